/* unit.h: the suites of the unit program, and what they share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef UNIT_H
#define UNIT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>

Suite *suite_range(void);
Suite *suite_size(void);
Suite *suite_address(void);
Suite *suite_cursor(void);
Suite *suite_fd(void);
Suite *suite_text(void);
Suite *suite_worker(void);
Suite *suite_mmap(void);
Suite *suite_vhost_user(void);
Suite *suite_view(void);
Suite *suite_json(void);
Suite *suite_catalog(void);
Suite *suite_peer(void);
Suite *suite_mutation(void);

/* A suite of one case. */
Suite *suite_of(const char *name, const TTest *const tests[], size_t count);

/* For loops of many rounds: libcheck notes each ck_assert in a file, this only a failure. */
#define ASSERT_QUICK(condition)                                 \
	do {                                                    \
		if (!(condition))                               \
			ck_abort_msg("wanted: %s", #condition); \
	} while (0)

struct bytes {
	uint8_t data[512];
	size_t size;
};

/* The bytes that a text of hex digits and spaces stands for. */
struct bytes from_hex(const char *hex);
void assert_bytes_eq(const void *got, size_t size, const char *wanted_hex);

/* A copy that ends where its memory does, so that a sanitizer sees each byte read too much. For free(). */
void *exact_copy(const void *bytes, size_t size);

/* A reader under test: 0 or more, or a negative code. */
typedef int read_fn(const void *buf, size_t size, void *ret);
/* Calls `read` with each of the first 0 to `size` - 1 bytes: it must return `code` and write none of the `ret_size`
 * bytes of its result. */
void assert_truncated(read_fn *read, const struct bytes *bytes, size_t ret_size, int code);
/* The same once, with these bytes. */
void assert_refused(read_fn *read, const void *buf, size_t size, size_t ret_size, int code);

#endif
