/* vhost_user.c: headers and replies of the back-end request channel. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/vhost_user.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "unit.h"

#if __BYTE_ORDER == __LITTLE_ENDIAN
static const char *const golden_map = "09000000 09000000 28000000";
static const char *const golden_ok = "0a000000 05000000 08000000 0000000000000000";
static const char *const golden_enoent = "0a000000 05000000 08000000 feffffffffffffff";
#else
static const char *const golden_map = "00000009 00000009 00000028";
static const char *const golden_ok = "0000000a 00000005 00000008 0000000000000000";
static const char *const golden_enoent = "0000000a 00000005 00000008 fffffffffffffffe";
#endif

START_TEST(header_golden)
{
	struct bytes bytes = from_hex(golden_map);
	ck_assert_uint_eq(bytes.size, VHOST_USER_HEADER_SIZE);
	struct vhost_user_header got = vhost_user_header_read(bytes.data);
	ck_assert_uint_eq(got.request, VHOST_USER_BACKEND_SHMEM_MAP);
	ck_assert_uint_eq(got.flags, VHOST_USER_VERSION | VHOST_USER_NEED_REPLY);
	ck_assert_uint_eq(got.size, 40);
	ck_assert_int_eq(vhost_user_request_is_valid(&got), true);

	uint8_t buf[VHOST_USER_HEADER_SIZE];
	vhost_user_header_write(&got, buf);
	assert_bytes_eq(buf, sizeof(buf), golden_map);
}
END_TEST

static bool request_is_valid(uint32_t flags, uint32_t size)
{
	const struct vhost_user_header request = { .request = 9, .flags = flags, .size = size };
	return vhost_user_request_is_valid(&request);
}

START_TEST(request_flags)
{
	/* Version 1, no REPLY; NEED_REPLY and all higher bits are free. */
	for (unsigned int bit = 0; bit < 32; bit++) {
		ck_assert_int_eq(request_is_valid(1u << bit, 40), bit == 0);
		ck_assert_int_eq(request_is_valid(1u << bit | VHOST_USER_VERSION, 40), bit != 1 && bit != 2);
	}
	ck_assert_int_eq(request_is_valid(0, 40), false);
	ck_assert_int_eq(request_is_valid(3, 40), false);
	ck_assert_int_eq(request_is_valid(0xfffffff9, 40), true);
}
END_TEST

START_TEST(request_size)
{
	ck_assert_int_eq(request_is_valid(1, 0), true);
	ck_assert_int_eq(request_is_valid(1, 39), true);
	ck_assert_int_eq(request_is_valid(1, 4096), true);
	ck_assert_int_eq(request_is_valid(1, 4097), false);
	ck_assert_int_eq(request_is_valid(1, 0x80000000), false);
	ck_assert_int_eq(request_is_valid(1, 0xffffffff), false);
}
END_TEST

START_TEST(reply_golden)
{
	uint8_t buf[VHOST_USER_REPLY_SIZE];
	vhost_user_reply_write(VHOST_USER_BACKEND_SHMEM_UNMAP, 0, buf);
	assert_bytes_eq(buf, sizeof(buf), golden_ok);
	int64_t result = 99;
	ck_assert_int_eq(vhost_user_reply_read(buf, VHOST_USER_BACKEND_SHMEM_UNMAP, &result), 0);
	ck_assert_int_eq(result, 0);

	vhost_user_reply_write(VHOST_USER_BACKEND_SHMEM_UNMAP, -ENOENT, buf);
	assert_bytes_eq(buf, sizeof(buf), golden_enoent);
	ck_assert_int_eq(vhost_user_reply_read(buf, VHOST_USER_BACKEND_SHMEM_UNMAP, &result), 0);
	ck_assert_int_eq(result, -ENOENT);

	/* QEMU says 1 for a failure; the extremes pass as they are. */
	const int64_t results[] = { 1, INT64_MAX, INT64_MIN, -1 };
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		vhost_user_reply_write(9, results[i], buf);
		ck_assert_int_eq(vhost_user_reply_read(buf, 9, &result), 0);
		ck_assert_int_eq(result, results[i]);
	}
}
END_TEST

static void assert_no_reply(struct vhost_user_header header)
{
	uint8_t buf[VHOST_USER_REPLY_SIZE] = { 0 };
	int64_t result = 99;
	vhost_user_header_write(&header, buf);
	ck_assert_int_eq(vhost_user_reply_read(buf, 9, &result), -EBADMSG);
	ck_assert_int_eq(result, 99);
}

START_TEST(no_reply)
{
	assert_no_reply((struct vhost_user_header){ .request = 10, .flags = 5, .size = 8 });
	assert_no_reply((struct vhost_user_header){ .request = 9, .flags = 1, .size = 8 });
	assert_no_reply((struct vhost_user_header){ .request = 9, .flags = 4, .size = 8 });
	assert_no_reply((struct vhost_user_header){ .request = 9, .flags = 6, .size = 8 });
	assert_no_reply((struct vhost_user_header){ .request = 9, .flags = 7, .size = 8 });
	const uint32_t sizes[] = { 0, 7, 9, 40, 0xffffffff };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_no_reply((struct vhost_user_header){ .request = 9, .flags = 5, .size = sizes[i] });

	for (unsigned int bit = 3; bit < 32; bit++) {
		uint8_t buf[VHOST_USER_REPLY_SIZE] = { 0 };
		const struct vhost_user_header header = { .request = 9, .flags = 5 | 1u << bit, .size = 8 };
		int64_t result = 99;
		vhost_user_header_write(&header, buf);
		ck_assert_int_eq(vhost_user_reply_read(buf, 9, &result), 0);
		ck_assert_int_eq(result, 0);
	}
}
END_TEST

Suite *suite_vhost_user(void)
{
	const TTest *const tests[] = { header_golden, request_flags, request_size, reply_golden, no_reply };
	return suite_of("vhost_user", tests, sizeof(tests) / sizeof(tests[0]));
}
