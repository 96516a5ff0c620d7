/* cursor.c: the bounded cursor and its sticky error. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cursor.h"

#include <string.h>

#include "unit.h"

static const char *const golden = "01 0302 07060504 0f0e0d0c0b0a0908 aabbcc 0000";

START_TEST(reading)
{
	struct bytes bytes = from_hex(golden);
	struct reader r = reader_init(bytes.data, bytes.size);
	ck_assert_uint_eq(read_u8(&r), 0x01);
	ck_assert_uint_eq(read_u16(&r), 0x0203);
	ck_assert_uint_eq(read_u32(&r), 0x04050607);
	ck_assert_uint_eq(read_u64(&r), 0x08090a0b0c0d0e0f);
	uint8_t out[3];
	read_bytes(&r, out, sizeof(out));
	assert_bytes_eq(out, sizeof(out), "aabbcc");
	read_skip(&r, 2);
	ck_assert_uint_eq(r.left, 0);
	ck_assert_int_eq(r.failed, false);
	/* Nothing more is no error. */
	read_bytes(&r, out, 0);
	read_skip(&r, 0);
	ck_assert_int_eq(r.failed, false);
}
END_TEST

START_TEST(writing)
{
	uint8_t buf[20];
	memset(buf, 0xa5, sizeof(buf));
	struct writer w = writer_init(buf, sizeof(buf));
	write_u8(&w, 0x01);
	write_u16(&w, 0x0203);
	write_u32(&w, 0x04050607);
	write_u64(&w, 0x08090a0b0c0d0e0f);
	write_bytes(&w, "\xaa\xbb\xcc", 3);
	write_zeros(&w, 2);
	ck_assert_uint_eq(w.left, 0);
	ck_assert_int_eq(w.failed, false);
	assert_bytes_eq(buf, sizeof(buf), golden);
	write_bytes(&w, NULL, 0);
	ck_assert_int_eq(w.failed, false);
}
END_TEST

START_TEST(reading_too_much)
{
	uint8_t bytes[7] = { 1, 2, 3, 4, 5, 6, 7 };
	struct reader r = reader_init(bytes, sizeof(bytes));
	ck_assert_uint_eq(read_u64(&r), 0);
	ck_assert_int_eq(r.failed, true);
	/* What would fit is refused too, and gives zeros. */
	ck_assert_uint_eq(read_u8(&r), 0);
	ck_assert_uint_eq(read_u16(&r), 0);
	ck_assert_uint_eq(read_u32(&r), 0);
	uint8_t out[2] = { 9, 9 };
	read_bytes(&r, out, sizeof(out));
	assert_bytes_eq(out, sizeof(out), "0000");
	ck_assert_uint_eq(r.left, 7);

	r = reader_init(bytes, sizeof(bytes));
	read_skip(&r, SIZE_MAX);
	ck_assert_int_eq(r.failed, true);
	ck_assert_ptr_eq(r.pos, bytes);
	r = reader_init(NULL, 0);
	ck_assert_uint_eq(read_u8(&r), 0);
	ck_assert_int_eq(r.failed, true);
}
END_TEST

START_TEST(writing_too_much)
{
	uint8_t buf[8];
	memset(buf, 0xa5, sizeof(buf));
	struct writer w = writer_init(buf, 7);
	write_u64(&w, 0);
	ck_assert_int_eq(w.failed, true);
	write_u8(&w, 0);
	write_u16(&w, 0);
	write_u32(&w, 0);
	write_bytes(&w, "x", 1);
	write_zeros(&w, 1);
	write_zeros(&w, SIZE_MAX);
	ck_assert_uint_eq(w.left, 7);
	assert_bytes_eq(buf, sizeof(buf), "a5a5a5a5a5a5a5a5");
}
END_TEST

Suite *suite_cursor(void)
{
	const TTest *const tests[] = { reading, writing, reading_too_much, writing_too_much };
	return suite_of("cursor", tests, sizeof(tests) / sizeof(tests[0]));
}
