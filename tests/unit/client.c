/* client.c: runs the tests of the library with RDMA and the daemon replaced, each in a process of its own. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "fake_daemon.h"

int main(void)
{
	Suite *suite = suite_create("client");
	add_changes_tests(suite);
	add_commands_tests(suite);
	add_connect_tests(suite);
	add_notices_tests(suite);
	add_provider_tests(suite);
	add_transfers_tests(suite);
	add_waiting_tests(suite);

	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
