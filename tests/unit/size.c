/* size.c: sizes and numbers as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/size.h"

#include <errno.h>

#include "unit.h"

static const uint64_t untouched = 0xa5a5a5a5a5a5a5a5;

static void assert_size(const char *text, int wanted_code, uint64_t wanted)
{
	uint64_t size = untouched;
	int r = size_parse(text, &size);
	ck_assert_msg(r == wanted_code, "'%s': wanted %d, got %d", text, wanted_code, r);
	ck_assert_msg(size == (r < 0 ? untouched : wanted), "'%s': wanted %#llx, got %#llx", text,
		(unsigned long long)wanted, (unsigned long long)size);
}

START_TEST(sizes)
{
	assert_size("0", 0, 0);
	assert_size("1", 0, 1);
	assert_size("007", 0, 7);
	assert_size("4096", 0, 4096);
	assert_size("0x1000", 0, 4096);
	assert_size("0XaBcD", 0, 0xabcd);
	assert_size("1K", 0, 1024);
	assert_size("1k", 0, 1024);
	assert_size("64M", 0, 64ull << 20);
	assert_size("64m", 0, 64ull << 20);
	assert_size("3G", 0, 3ull << 30);
	assert_size("2T", 0, 2ull << 40);
	assert_size("0x10T", 0, 16ull << 40);
	assert_size("0T", 0, 0);
}
END_TEST

START_TEST(size_edges)
{
	assert_size("18446744073709551615", 0, UINT64_MAX);
	assert_size("18446744073709551616", -ERANGE, 0);
	assert_size("0xffffffffffffffff", 0, UINT64_MAX);
	assert_size("0x10000000000000000", -ERANGE, 0);
	assert_size("99999999999999999999999999999", -ERANGE, 0);
	assert_size("18014398509481983K", 0, UINT64_MAX - 1023);
	assert_size("18014398509481984K", -ERANGE, 0);
	assert_size("17592186044415M", 0, UINT64_MAX - ((1ull << 20) - 1));
	assert_size("17592186044416M", -ERANGE, 0);
	assert_size("17179869183G", 0, UINT64_MAX - ((1ull << 30) - 1));
	assert_size("17179869184G", -ERANGE, 0);
	assert_size("16777215T", 0, UINT64_MAX - ((1ull << 40) - 1));
	assert_size("16777216T", -ERANGE, 0);
}
END_TEST

START_TEST(no_sizes)
{
	const char *const texts[] = { "", " ", "K", "x", "0x", "0xK", "0xg", "0x0x10", "-1", "+1", " 1", "1 ", "1 K", "1KB",
		"1KiB", "1KK", "1P", "1E", "1.5G", "1e3", "1,000", "0x1p3", "--", "\n", "1\n", "1K\n", "one", "0b1" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_size(texts[i], -EINVAL, 0);
}
END_TEST

static void assert_number(const char *text, uint64_t max, int wanted_code, uint64_t wanted)
{
	uint64_t number = untouched;
	int r = number_parse(text, max, &number);
	ck_assert_msg(
		r == wanted_code, "'%s' up to %llu: wanted %d, got %d", text, (unsigned long long)max, wanted_code, r);
	ck_assert_uint_eq(number, r < 0 ? untouched : wanted);
}

START_TEST(numbers)
{
	assert_number("0", 0, 0, 0);
	assert_number("1", 0, -ERANGE, 0);
	assert_number("255", 255, 0, 255);
	assert_number("0xff", 255, 0, 255);
	assert_number("256", 255, -ERANGE, 0);
	assert_number("18446744073709551615", UINT64_MAX, 0, UINT64_MAX);
	assert_number("18446744073709551616", UINT64_MAX, -ERANGE, 0);
	const char *const texts[] = { "", "1K", "-1", "-0", "+1", " 1", "1 ", "1.0", "0x", "a" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_number(texts[i], UINT64_MAX, -EINVAL, 0);
}
END_TEST

START_TEST(texts)
{
	ck_assert_str_eq(size_format(0).text, "0 bytes");
	ck_assert_str_eq(size_format(1023).text, "1023 bytes");
	ck_assert_str_eq(size_format(1024).text, "1 KiB");
	ck_assert_str_eq(size_format(5000).text, "5000 bytes");
	ck_assert_str_eq(size_format(1536).text, "1536 bytes");
	ck_assert_str_eq(size_format(64 << 20).text, "64 MiB");
	ck_assert_str_eq(size_format((64 << 20) + 1024).text, "65537 KiB");
	ck_assert_str_eq(size_format(1ull << 30).text, "1 GiB");
	ck_assert_str_eq(size_format(1ull << 40).text, "1 TiB");
	ck_assert_str_eq(size_format(1ull << 63).text, "8388608 TiB");
	ck_assert_str_eq(size_format(UINT64_MAX).text, "18446744073709551615 bytes");
}
END_TEST

Suite *suite_size(void)
{
	const TTest *const tests[] = { sizes, size_edges, no_sizes, numbers, texts };
	return suite_of("size", tests, sizeof(tests) / sizeof(tests[0]));
}
