/* stages.c: runs the tests of the daemon's stages with RDMA replaced, each in a process of its own. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <stdlib.h>

#include "base/log.h"

int main(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	Suite *suite = suite_create("stages");
	add_options_tests(suite);
	add_mapfile_tests(suite);
	add_admission_tests(suite);
	add_memory_tests(suite);
	add_vring_tests(suite);
	add_region_tests(suite);
	add_pmem_tests(suite);
	add_registration_tests(suite);
	add_catalog_tests(suite);
	add_publish_tests(suite);
	add_mapping_life_tests(suite);
	add_frontend_tests(suite);

	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
