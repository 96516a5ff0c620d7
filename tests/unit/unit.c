/* unit.c: runs the suites of base and wire, each test in a process of its own. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

Suite *suite_of(const char *name, const TTest *const tests[], size_t count)
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	tcase_set_timeout(tcase, 60);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	suite_add_tcase(suite, tcase);
	return suite;
}

static uint8_t nibble(char digit)
{
	const char *digits = "0123456789abcdef", *at = strchr(digits, digit);
	ASSERT_QUICK(digit && at);
	return (uint8_t)(at - digits);
}

struct bytes from_hex(const char *hex)
{
	struct bytes out = { .size = 0 };
	while (*hex) {
		if (*hex == ' ') {
			hex++;
			continue;
		}
		ASSERT_QUICK(out.size < sizeof(out.data));
		out.data[out.size++] = (uint8_t)(nibble(hex[0]) << 4 | nibble(hex[1]));
		hex += 2;
	}
	return out;
}

void assert_bytes_eq(const void *got, size_t size, const char *wanted_hex)
{
	struct bytes wanted = from_hex(wanted_hex);
	ck_assert_uint_eq(size, wanted.size);
	ck_assert_mem_eq(got, wanted.data, wanted.size);
}

void *exact_copy(const void *bytes, size_t size)
{
	void *copy = malloc(size ? size : 1);
	ASSERT_QUICK(copy);
	if (size)
		memcpy(copy, bytes, size);
	return copy;
}

void assert_refused(read_fn *read, const void *buf, size_t size, size_t ret_size, int code)
{
	void *copy = exact_copy(buf, size);
	uint8_t *ret = malloc(ret_size), *untouched = malloc(ret_size);
	ASSERT_QUICK(ret && untouched);
	memset(ret, 0xa5, ret_size);
	memset(untouched, 0xa5, ret_size);

	int r = read(size ? copy : NULL, size, ret);
	if (r != code)
		ck_abort_msg("%zu bytes: wanted %d, got %d", size, code, r);
	if (memcmp(ret, untouched, ret_size) != 0)
		ck_abort_msg("%zu bytes: wanted no result, it was written to", size);
	free(copy);
	free(ret);
	free(untouched);
}

void assert_truncated(read_fn *read, const struct bytes *bytes, size_t ret_size, int code)
{
	for (size_t size = 0; size < bytes->size; size++)
		assert_refused(read, bytes->data, size, ret_size, code);
}

int main(void)
{
	SRunner *runner = srunner_create(suite_range());
	Suite *(*const more[])(void) = {
		suite_size,
		suite_address,
		suite_cursor,
		suite_fd,
		suite_text,
		suite_worker,
		suite_mmap,
		suite_vhost_user,
		suite_view,
		suite_json,
		suite_catalog,
		suite_peer,
		suite_mutation,
	};
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		srunner_add_suite(runner, more[i]());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
