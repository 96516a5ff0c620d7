/* range.c: checked arithmetic at its edges. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/range.h"

#include "unit.h"

#define MAX UINT64_MAX

START_TEST(overflow)
{
	ck_assert_int_eq(range_overflows(0, 0), false);
	ck_assert_int_eq(range_overflows(MAX, 0), false);
	ck_assert_int_eq(range_overflows(0, MAX), false);
	ck_assert_int_eq(range_overflows(1, MAX - 1), false);
	ck_assert_int_eq(range_overflows(1, MAX), true);
	ck_assert_int_eq(range_overflows(MAX, 1), true);
	ck_assert_int_eq(range_overflows(MAX, MAX), true);
	/* Page by page around 2^64. */
	ck_assert_int_eq(range_overflows(MAX - 4095, 4095), false);
	ck_assert_int_eq(range_overflows(MAX - 4095, 4096), true);
	ck_assert_int_eq(range_overflows(4096, MAX - 4095), true);
	ck_assert_int_eq(range_overflows(1ull << 63, 1ull << 63), true);
	ck_assert_int_eq(range_overflows(1ull << 63, (1ull << 63) - 1), false);
}
END_TEST

START_TEST(fit)
{
	ck_assert_int_eq(range_fits(0, 0, 0), true);
	ck_assert_int_eq(range_fits(0, 1, 0), false);
	ck_assert_int_eq(range_fits(1, 0, 0), false);
	ck_assert_int_eq(range_fits(4096, 4096, 8192), true);
	ck_assert_int_eq(range_fits(4096, 8192, 8192), false);
	ck_assert_int_eq(range_fits(4096, 4097, 8192), false);
	ck_assert_int_eq(range_fits(4097, 4096, 8192), false);
	ck_assert_int_eq(range_fits(8192, 0, 8192), true);
	ck_assert_int_eq(range_fits(8193, 0, 8192), false);
	ck_assert_int_eq(range_fits(0, MAX, MAX), true);
	ck_assert_int_eq(range_fits(1, MAX, MAX), false);
	ck_assert_int_eq(range_fits(MAX, 1, MAX), false);
	/* Sums that wrap around to something small. */
	ck_assert_int_eq(range_fits(MAX - 4095, 4096, 8192), false);
	ck_assert_int_eq(range_fits(4096, MAX - 4095, 8192), false);
	ck_assert_int_eq(range_fits(0, 1ull << 63, 64 << 20), false);
}
END_TEST

/* Both ways around. */
static void assert_overlap(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len, bool wanted)
{
	ck_assert_int_eq(ranges_overlap(a, a_len, b, b_len), wanted);
	ck_assert_int_eq(ranges_overlap(b, b_len, a, a_len), wanted);
}

START_TEST(overlap)
{
	assert_overlap(0, 4096, 4096, 4096, false);
	assert_overlap(0, 4097, 4096, 4096, true);
	assert_overlap(0, 4096, 0, 4096, true);
	assert_overlap(0, 16384, 4096, 4096, true);
	assert_overlap(4096, 4096, 4096, 8192, true);
	assert_overlap(0, 4096, 8192, 4096, false);
	assert_overlap(0, MAX, MAX - 1, 1, true);
	assert_overlap(0, MAX, MAX, 0, false);
	assert_overlap(MAX - 4095, 4095, 0, 4096, false);
	/* An empty range has no byte to share. */
	assert_overlap(4096, 0, 0, 8192, false);
	assert_overlap(4096, 0, 4096, 4096, false);
	assert_overlap(4096, 0, 4096, 0, false);
}
END_TEST

START_TEST(alignment)
{
	ck_assert_int_eq(is_aligned(0, 4096), true);
	ck_assert_int_eq(is_aligned(4096, 4096), true);
	ck_assert_int_eq(is_aligned(4095, 4096), false);
	ck_assert_int_eq(is_aligned(4097, 4096), false);
	ck_assert_int_eq(is_aligned(MAX, 1), true);
	ck_assert_int_eq(is_aligned(MAX, 2), false);
	ck_assert_int_eq(is_aligned(1ull << 63, 1ull << 63), true);
	ck_assert_int_eq(is_aligned(1ull << 62, 1ull << 63), false);
	for (unsigned int bit = 0; bit < 64; bit++)
		ck_assert_int_eq(is_aligned(1ull << bit, 2 << 20), bit >= 21);
}
END_TEST

Suite *suite_range(void)
{
	const TTest *const tests[] = { overflow, fit, overlap, alignment };
	return suite_of("range", tests, sizeof(tests) / sizeof(tests[0]));
}
