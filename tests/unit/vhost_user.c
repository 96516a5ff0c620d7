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

START_TEST(replies_with_a_payload)
{
	const uint32_t flags[] = { 1, 4, 5, 6, 7, 13, 0xfffffffd };
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct vhost_user_header header = { .request = 9, .flags = flags[i], .size = 4096 };
		ck_assert_int_eq(vhost_user_reply_is_valid(&header), (flags[i] & 7) == 5);
		header.size = 4097;
		ck_assert_int_eq(vhost_user_reply_is_valid(&header), false);
	}
}
END_TEST

/* Readers with a common form, for assert_truncated(). */
#define READER(name, type)                                              \
	static int read_##name(const void *buf, size_t size, void *ret) \
	{                                                               \
		type *result = ret;                                     \
		return vhost_user_##name##_read(buf, size, result);     \
	}

READER(u64, uint64_t)
READER(vring_state, struct vhost_user_vring_state)
READER(vring_addr, struct vhost_user_vring_addr)
READER(region, struct vhost_user_region)
READER(config, struct vhost_user_config)

struct regions {
	struct vhost_user_region regions[VHOST_USER_REGIONS_MAX];
	uint32_t count;
};

static int read_regions(const void *buf, size_t size, void *ret)
{
	struct regions *result = ret;
	return vhost_user_regions_read(buf, size, result->regions, &result->count);
}

START_TEST(payloads_are_read_from_exactly_their_bytes)
{
	static const struct {
		const char *hex;
		read_fn *read;
		size_t ret_size;
	} payloads[] = {
		{ "0102030405060708", read_u64, sizeof(uint64_t) },
		{ "0100000040000000", read_vring_state, sizeof(struct vhost_user_vring_state) },
		{ "00000000 01000000 0000000000000001 0000000000000002 0000000000000003 0000000000000004",
			read_vring_addr, sizeof(struct vhost_user_vring_addr) },
		{ "aaaaaaaaaaaaaaaa 0000000000000001 0000000000000002 0000000000000003 0000000000000004", read_region,
			sizeof(struct vhost_user_region) },
		{ "08000000 04000000 00000000 01020304", read_config, sizeof(struct vhost_user_config) },
		{ "01000000 aaaaaaaa 0000000000000001 0000000000000002 0000000000000003 0000000000000004", read_regions,
			sizeof(struct regions) },
	};
	for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
		struct bytes bytes = from_hex(payloads[i].hex);
		uint8_t ret[512];
		ck_assert_int_eq(payloads[i].read(bytes.data, bytes.size, ret), 0);
		assert_truncated(payloads[i].read, &bytes, payloads[i].ret_size, -EMSGSIZE);
		assert_refused(payloads[i].read, bytes.data, bytes.size + 1, payloads[i].ret_size, -EMSGSIZE);
	}
}
END_TEST

START_TEST(a_table_of_regions)
{
	uint8_t buf[8 + 9 * VHOST_USER_REGION_SIZE] = { 0 };
	struct vhost_user_region regions[VHOST_USER_REGIONS_MAX];
	uint32_t count = 99;
	for (uint32_t n = 0; n <= VHOST_USER_REGIONS_MAX; n++) {
		memcpy(buf, &n, sizeof(n));
		ck_assert_int_eq(vhost_user_regions_read(buf, 8 + n * VHOST_USER_REGION_SIZE, regions, &count), 0);
		ck_assert_uint_eq(count, n);
	}
	const uint32_t counts[] = { 9, 0x08000000, 0x80000000, 0xffffffff };
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		memcpy(buf, &counts[i], sizeof(counts[i]));
		ck_assert_int_eq(vhost_user_regions_read(buf, sizeof(buf), regions, &count), -ENOSPC);
	}
	ck_assert_uint_eq(count, VHOST_USER_REGIONS_MAX);
}
END_TEST

START_TEST(shmem_config_golden)
{
	uint64_t sizes[256] = { [0] = 0x4000000, [255] = 0x1000 };
	uint8_t buf[VHOST_USER_SHMEM_CONFIG_SIZE];
	memset(buf, 0xa5, sizeof(buf));
	vhost_user_shmem_config_write(sizes, buf);
	assert_bytes_eq(buf, 24, "02000000 00000000 0000000400000000 0000000000000000");
	assert_bytes_eq(buf + sizeof(buf) - 16, 16, "0000000000000000 0010000000000000");
}
END_TEST

Suite *suite_vhost_user(void)
{
	const TTest *const tests[] = { header_golden, request_flags, request_size, reply_golden, no_reply,
		replies_with_a_payload, payloads_are_read_from_exactly_their_bytes, a_table_of_regions,
		shmem_config_golden };
	return suite_of("vhost_user", tests, sizeof(tests) / sizeof(tests[0]));
}
