/* view.c: the view: golden bytes, every size, names, slices, and how it is made and shown. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "mrshare.h"
#include "unit.h"

/* As bincode with fixed-width integers writes {rkey: u32, addr: usize, size: usize, device_name: String}. */
static const char *const golden = "04030201 8877665544332211 0040000000000000 0600000000000000 6d6c78355f30";

static const struct mrshare_view value = {
	.rkey = 0x01020304,
	.addr = 0x1122334455667788,
	.size = 0x4000,
	.device_name = "mlx5_0",
};

static int decode(const void *buf, size_t size, void *ret)
{
	return (int)mrshare_view_decode(buf, size, ret);
}

START_TEST(wire_form)
{
	uint8_t buf[MRSHARE_VIEW_SIZE_MAX];
	ck_assert_int_eq(mrshare_view_encode(&value, buf, sizeof(buf)), 34);
	assert_bytes_eq(buf, 34, golden);

	struct bytes bytes = from_hex(golden);
	struct mrshare_view view;
	ck_assert_int_eq(mrshare_view_decode(bytes.data, bytes.size, &view), 34);
	ck_assert_uint_eq(view.rkey, 0x01020304);
	ck_assert_uint_eq(view.addr, 0x1122334455667788);
	ck_assert_uint_eq(view.size, 0x4000);
	ck_assert_str_eq(view.device_name, "mlx5_0");

	/* What follows a view is not looked at. */
	memset(bytes.data + bytes.size, 0xff, 100);
	ck_assert_int_eq(mrshare_view_decode(bytes.data, bytes.size + 100, &view), 34);
	ck_assert_int_eq(mrshare_view_equal(&view, &value), true);
}
END_TEST

START_TEST(every_size)
{
	struct bytes bytes = from_hex(golden);
	assert_truncated(decode, &bytes, sizeof(struct mrshare_view), -EMSGSIZE);

	uint8_t buf[34], untouched[34];
	memset(buf, 0x5a, sizeof(buf));
	memset(untouched, 0x5a, sizeof(untouched));
	for (size_t size = 0; size < 34; size++)
		ck_assert_int_eq(mrshare_view_encode(&value, buf, size), -ENOSPC);
	ck_assert_mem_eq(buf, untouched, sizeof(buf));
	ck_assert_int_eq(mrshare_view_encode(&value, buf, 34), 34);
}
END_TEST

/* A view's bytes with this name, whose length field says `len`. */
static struct bytes with_name(const void *name, size_t name_size, uint64_t len)
{
	struct bytes bytes = from_hex("01000000 0200000000000000 0300000000000000");
	for (unsigned int i = 0; i < 8; i++)
		bytes.data[bytes.size++] = (uint8_t)(len >> 8 * i);
	memcpy(bytes.data + bytes.size, name, name_size);
	bytes.size += name_size;
	return bytes;
}

static void assert_name(const char *name, size_t size, bool wanted)
{
	struct bytes bytes = with_name(name, size, size);
	struct mrshare_view view = { 0 };
	if (!wanted) {
		assert_refused(decode, bytes.data, bytes.size, sizeof(view), -EBADMSG);
		memcpy(view.device_name, name, size);
		if (!memchr(name, '\0', size))
			ck_assert_int_eq(mrshare_view_encode(&view, bytes.data, sizeof(bytes.data)), -EINVAL);
		return;
	}
	uint8_t *copy = exact_copy(bytes.data, bytes.size);
	ck_assert_int_eq(mrshare_view_decode(copy, bytes.size, &view), (ssize_t)bytes.size);
	ck_assert_uint_eq(strlen(view.device_name), size);
	ck_assert_mem_eq(view.device_name, name, size);
	uint8_t again[MRSHARE_VIEW_SIZE_MAX];
	ck_assert_int_eq(mrshare_view_encode(&view, again, sizeof(again)), (ssize_t)bytes.size);
	ck_assert_mem_eq(again, copy, bytes.size);
	free(copy);
}

START_TEST(name_length)
{
	char name[64];
	memset(name, 'n', sizeof(name));
	for (size_t len = 0; len <= 63; len++)
		assert_name(name, len, true);

	const uint64_t lengths[] = { 64, 65, 255, 256, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 27 };
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct bytes bytes = with_name(name, 64, lengths[i]);
		assert_refused(decode, bytes.data, bytes.size, sizeof(struct mrshare_view), -EBADMSG);
	}

	struct mrshare_view view = { 0 };
	memset(view.device_name, 'n', sizeof(view.device_name));
	uint8_t buf[200];
	ck_assert_int_eq(mrshare_view_encode(&view, buf, sizeof(buf)), -EINVAL);
	view.device_name[63] = '\0';
	ck_assert_int_eq(mrshare_view_encode(&view, buf, MRSHARE_VIEW_SIZE_MAX - 1), -ENOSPC);
	ck_assert_int_eq(mrshare_view_encode(&view, buf, MRSHARE_VIEW_SIZE_MAX), MRSHARE_VIEW_SIZE_MAX);
}
END_TEST

START_TEST(name_utf8)
{
	/* The first and last character of each length, and those beside the surrogates. */
	const char *const good[] = { "\x01", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
		"\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
		"a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z" };
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_name(good[i], strlen(good[i]), true);

	const char *const bad[] = {
		"\x80",
		"\xbf",
		"\xc0\x80",
		"\xc0\xaf",
		"\xc1\xbf",
		"\xe0\x80\x80",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\x80",
		"\xf0\x8f\xbf\xbf", /* overlong */
		"\xed\xa0\x80",
		"\xed\xbf\xbf", /* surrogates */
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80", /* above U+10FFFF */
		"\xf8\x88\x80\x80\x80",
		"\xfe",
		"\xff", /* never in UTF-8 */
		"\xc2",
		"\xe2\x82",
		"\xf0\x9f\x98", /* cut short */
		"\xc2\x41",
		"\xc2\xc0",
		"\xdf\xff",
		"\xc2\xc2",
		"\xe2\x41\x80",
		"\xe2\x82\x41",
		"\xf0\x9f\x41\x80",
		"\xf0\x9f\x98\x41",
		"ok\xff",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_name(bad[i], strlen(bad[i]), false);
	assert_name("a\0b", 3, false);
	assert_name("ab\0", 3, false);
	assert_name("\0", 1, false);
}
END_TEST

START_TEST(slices)
{
	const struct mrshare_view view = { .rkey = 5, .addr = 0x1000, .size = 100, .device_name = "rxe0" };
	struct mrshare_view out;
	ck_assert_int_eq(mrshare_view_slice(&view, 10, 20, &out), 0);
	ck_assert_uint_eq(out.addr, 0x100a);
	ck_assert_uint_eq(out.size, 20);
	ck_assert_uint_eq(out.rkey, 5);
	ck_assert_str_eq(out.device_name, "rxe0");
	ck_assert_int_eq(mrshare_view_slice(&view, 0, 100, &out), 0);
	ck_assert_int_eq(mrshare_view_equal(&out, &view), true);
	ck_assert_int_eq(mrshare_view_slice(&view, 0, 0, &out), 0);
	ck_assert_uint_eq(out.size, 0);
	ck_assert_int_eq(mrshare_view_slice(&view, 100, 0, &out), 0);
	ck_assert_uint_eq(out.addr, 0x1064);

	/* In place. */
	out = view;
	ck_assert_int_eq(mrshare_view_slice(&out, 1, 2, &out), 0);
	ck_assert_uint_eq(out.addr, 0x1001);
	ck_assert_uint_eq(out.size, 2);
}
END_TEST

static void assert_no_slice(const struct mrshare_view *view, uint64_t offset, uint64_t size)
{
	struct mrshare_view out = value;
	ck_assert_int_eq(mrshare_view_slice(view, offset, size, &out), -ERANGE);
	ck_assert_int_eq(mrshare_view_equal(&out, &value), true);
}

START_TEST(no_slices)
{
	const struct mrshare_view view = { .rkey = 5, .addr = 0x1000, .size = 100, .device_name = "rxe0" };
	assert_no_slice(&view, 0, 101);
	assert_no_slice(&view, 1, 100);
	assert_no_slice(&view, 100, 1);
	assert_no_slice(&view, 101, 0);
	assert_no_slice(&view, UINT64_MAX, 1);
	assert_no_slice(&view, UINT64_MAX, 2);
	assert_no_slice(&view, 1, UINT64_MAX);
	assert_no_slice(&view, UINT64_MAX, UINT64_MAX);
	/* The view itself wraps around. */
	const struct mrshare_view wrapped = { .addr = UINT64_MAX - 10, .size = 100 };
	assert_no_slice(&wrapped, 20, 1);
}
END_TEST

START_TEST(equality)
{
	struct mrshare_view other = value;
	ck_assert_int_eq(mrshare_view_equal(&value, &other), true);
	/* What stands behind the name's end does not count. */
	other.device_name[20] = 'x';
	ck_assert_int_eq(mrshare_view_equal(&value, &other), true);
	other.rkey++;
	ck_assert_int_eq(mrshare_view_equal(&value, &other), false);
	other = value;
	other.addr++;
	ck_assert_int_eq(mrshare_view_equal(&value, &other), false);
	other = value;
	other.size++;
	ck_assert_int_eq(mrshare_view_equal(&value, &other), false);
	other = value;
	other.device_name[5] = '1';
	ck_assert_int_eq(mrshare_view_equal(&value, &other), false);
}
END_TEST

START_TEST(format)
{
	const char *wanted = "rkey 0x01020304, addr 0x1122334455667788, size 0x4000, device mlx5_0";
	char buf[200];
	ck_assert_int_eq(mrshare_view_format(&value, buf, sizeof(buf)), (int)strlen(wanted));
	ck_assert_str_eq(buf, wanted);
	ck_assert_int_eq(mrshare_view_format(&value, NULL, 0), (int)strlen(wanted));
	ck_assert_int_eq(mrshare_view_format(&value, buf, 10), (int)strlen(wanted));
	ck_assert_str_eq(buf, "rkey 0x01");

	struct mrshare_view view = value;
	memset(view.device_name, '\n', sizeof(view.device_name));
	ck_assert_int_lt(mrshare_view_format(&view, buf, sizeof(buf)), (int)sizeof(buf));
	ck_assert_ptr_null(strchr(buf, '\n'));
	ck_assert_ptr_nonnull(strstr(buf, "device ????"));
}
END_TEST

START_TEST(from_mr)
{
	struct ibv_device device = { .name = "rxe0" };
	struct ibv_context context = { .device = &device };
	struct ibv_mr mr = { .context = &context, .length = 0x2000, .lkey = 1, .rkey = 0x55667788 };
	struct mrshare_view view;
	ck_assert_int_eq(mrshare_view_from_mr(&mr, 0x3000, &view), 0);
	ck_assert_uint_eq(view.rkey, 0x55667788);
	ck_assert_uint_eq(view.addr, 0x3000);
	ck_assert_uint_eq(view.size, 0x2000);
	ck_assert_str_eq(view.device_name, "rxe0");

	struct mrshare_view untouched = value;
	strcpy(device.name, "rxe\xff");
	ck_assert_int_eq(mrshare_view_from_mr(&mr, 0, &untouched), -EINVAL);
	memset(device.name, 'n', sizeof(device.name));
	ck_assert_int_eq(mrshare_view_from_mr(&mr, 0, &untouched), -EINVAL);
	ck_assert_int_eq(mrshare_view_equal(&untouched, &value), true);
	device.name[63] = '\0';
	ck_assert_int_eq(mrshare_view_from_mr(&mr, 0, &view), 0);
	ck_assert_uint_eq(strlen(view.device_name), 63);
}
END_TEST

Suite *suite_view(void)
{
	const TTest *const tests[] = { wire_form, every_size, name_length, name_utf8, slices, no_slices, equality,
		format, from_mr };
	return suite_of("view", tests, sizeof(tests) / sizeof(tests[0]));
}
