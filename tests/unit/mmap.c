/* mmap.c: the map request: golden bytes, every size, every flag, syntax. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mrshare.h"
#include "unit.h"

/* Native byte order is on the wire. */
#if __BYTE_ORDER == __LITTLE_ENDIAN
static const char *const golden =
	"07 a1a2a3a4a5a6a7 0010000000000000 0020400000000000 00f0ffffff000000 0100000000000080";
#else
static const char *const golden =
	"07 a1a2a3a4a5a6a7 0000000000001000 0000000000402000 000000fffffff000 8000000000000001";
#endif

static const struct mrshare_mmap value = {
	.shmid = 7,
	.padding = { 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7 },
	.fd_offset = 0x1000,
	.shm_offset = 0x402000,
	.len = 0xfffffff000,
	.flags = 0x8000000000000001,
};

static void assert_value(const struct mrshare_mmap *got)
{
	ck_assert_uint_eq(got->shmid, value.shmid);
	ck_assert_mem_eq(got->padding, value.padding, sizeof(value.padding));
	ck_assert_uint_eq(got->fd_offset, value.fd_offset);
	ck_assert_uint_eq(got->shm_offset, value.shm_offset);
	ck_assert_uint_eq(got->len, value.len);
	ck_assert_uint_eq(got->flags, value.flags);
}

static int read_exact(const void *buf, size_t size, void *ret)
{
	return mrshare_mmap_read(buf, size, ret);
}

struct with_left {
	struct mrshare_mmap mmap;
	size_t left;
};

static int read_prefix(const void *buf, size_t size, void *ret)
{
	struct with_left *out = ret;
	return mrshare_mmap_read_prefix(buf, size, &out->mmap, &out->left);
}

static int read_suffix(const void *buf, size_t size, void *ret)
{
	struct with_left *out = ret;
	return mrshare_mmap_read_suffix(buf, size, &out->mmap, &out->left);
}

START_TEST(zero)
{
	const uint8_t zeros[MRSHARE_MMAP_SIZE] = { 0 };
	struct mrshare_mmap mmap = mrshare_mmap_zero();
	uint8_t buf[MRSHARE_MMAP_SIZE];
	memset(buf, 0xa5, sizeof(buf));
	ck_assert_int_eq(mrshare_mmap_write(&mmap, buf, sizeof(buf)), 0);
	ck_assert_mem_eq(buf, zeros, sizeof(zeros));
	ck_assert_uint_eq(sizeof(struct mrshare_mmap), MRSHARE_MMAP_SIZE);
}
END_TEST

START_TEST(exact)
{
	struct bytes bytes = from_hex(golden);
	ck_assert_uint_eq(bytes.size, 40);
	struct mrshare_mmap mmap;
	ck_assert_int_eq(mrshare_mmap_read(bytes.data, bytes.size, &mmap), 0);
	assert_value(&mmap);

	uint8_t buf[40];
	ck_assert_int_eq(mrshare_mmap_write(&value, buf, sizeof(buf)), 0);
	assert_bytes_eq(buf, sizeof(buf), golden);

	assert_truncated(read_exact, &bytes, sizeof(mmap), -EMSGSIZE);
	for (size_t size = 41; size < 100; size++)
		assert_refused(read_exact, bytes.data, size, sizeof(mmap), -EMSGSIZE);
}
END_TEST

START_TEST(prefix_and_suffix)
{
	struct bytes bytes = from_hex(golden);
	assert_truncated(read_prefix, &bytes, sizeof(struct with_left), -EMSGSIZE);
	assert_truncated(read_suffix, &bytes, sizeof(struct with_left), -EMSGSIZE);

	for (size_t more = 0; more < 60; more++) {
		uint8_t *buf = malloc(40 + more);
		ck_assert_ptr_nonnull(buf);
		struct mrshare_mmap mmap;
		size_t left = SIZE_MAX;

		memset(buf, 0x5a, 40 + more);
		memcpy(buf, bytes.data, 40);
		ck_assert_int_eq(mrshare_mmap_read_prefix(buf, 40 + more, &mmap, &left), 0);
		assert_value(&mmap);
		ck_assert_uint_eq(left, more);

		memset(buf, 0x5a, 40 + more);
		memcpy(buf + more, bytes.data, 40);
		ck_assert_int_eq(mrshare_mmap_read_suffix(buf, 40 + more, &mmap, &left), 0);
		assert_value(&mmap);
		ck_assert_uint_eq(left, more);
		free(buf);
	}
}
END_TEST

START_TEST(writes)
{
	uint8_t buf[50], untouched[50];
	memset(untouched, 0x5a, sizeof(untouched));
	for (size_t size = 0; size < 40; size++) {
		memcpy(buf, untouched, sizeof(buf));
		ck_assert_int_eq(mrshare_mmap_write(&value, buf, size), -EMSGSIZE);
		ck_assert_int_eq(mrshare_mmap_write_prefix(&value, buf, size), -EMSGSIZE);
		ck_assert_int_eq(mrshare_mmap_write_suffix(&value, buf, size), -EMSGSIZE);
		ck_assert_mem_eq(buf, untouched, sizeof(buf));
	}
	memcpy(buf, untouched, sizeof(buf));
	ck_assert_int_eq(mrshare_mmap_write(&value, buf, 41), -EMSGSIZE);
	ck_assert_mem_eq(buf, untouched, sizeof(buf));

	ck_assert_int_eq(mrshare_mmap_write_prefix(&value, buf, 50), 0);
	assert_bytes_eq(buf, 40, golden);
	ck_assert_mem_eq(buf + 40, untouched, 10);
	memcpy(buf, untouched, sizeof(buf));
	ck_assert_int_eq(mrshare_mmap_write_suffix(&value, buf, 50), 0);
	ck_assert_mem_eq(buf, untouched, 10);
	assert_bytes_eq(buf + 10, 40, golden);

	ck_assert_int_eq(mrshare_mmap_write_prefix(&value, buf, 40), 0);
	ck_assert_int_eq(mrshare_mmap_write_suffix(&value, buf, 40), 0);
	assert_bytes_eq(buf, 40, golden);
}
END_TEST

static struct mrshare_mmap make(uint64_t fd_offset, uint64_t shm_offset, uint64_t len, uint64_t flags)
{
	return (struct mrshare_mmap){ .fd_offset = fd_offset, .shm_offset = shm_offset, .len = len, .flags = flags };
}

static void assert_valid(struct mrshare_mmap mmap, bool wanted)
{
	ck_assert_msg(mrshare_mmap_is_valid(&mmap) == wanted,
		"fd_offset %#llx, shm_offset %#llx, len %#llx, flags %#llx: wanted %s",
		(unsigned long long)mmap.fd_offset, (unsigned long long)mmap.shm_offset, (unsigned long long)mmap.len,
		(unsigned long long)mmap.flags, wanted ? "valid" : "invalid");
}

START_TEST(syntax)
{
	assert_valid(make(0, 0, 1, 0), true);
	assert_valid(make(0, 0, 0, 0), false);
	assert_valid(make(4096, 4096, 0, 1), false);
	assert_valid(make(0, 0, UINT64_MAX, 1), true);
	/* The sum is 2^64 - 1, 2^64, and 2^64 + 4096. */
	assert_valid(make(UINT64_MAX - 4096, 0, 4096, 0), true);
	assert_valid(make(UINT64_MAX - 4095, 0, 4096, 0), false);
	assert_valid(make(UINT64_MAX - 4095, 0, 8192, 0), false);
	assert_valid(make(0, UINT64_MAX - 4096, 4096, 0), true);
	assert_valid(make(0, UINT64_MAX - 4095, 4096, 0), false);
	assert_valid(make(0, UINT64_MAX - 4095, 8192, 0), false);
	assert_valid(make(8192, 0, UINT64_MAX - 4095, 0), false);
	assert_valid(make(0, 8192, UINT64_MAX - 4095, 0), false);
	assert_valid(make(UINT64_MAX, UINT64_MAX, UINT64_MAX, 0), false);
	/* Not its business: alignment and padding. */
	assert_valid(make(1, 3, 5, 0), true);
	struct mrshare_mmap mmap = make(0, 0, 1, 0);
	memset(mmap.padding, 0xff, sizeof(mmap.padding));
	mmap.shmid = 255;
	assert_valid(mmap, true);
}
END_TEST

START_TEST(flags)
{
	for (unsigned int bit = 0; bit < 64; bit++) {
		assert_valid(make(0, 0, 4096, 1ull << bit), bit == 0);
		assert_valid(make(0, 0, 4096, 1ull << bit | MRSHARE_MMAP_WRITABLE), bit == 0);
	}
	assert_valid(make(0, 0, 4096, UINT64_MAX), false);
}
END_TEST

Suite *suite_mmap(void)
{
	const TTest *const tests[] = { zero, exact, prefix_and_suffix, writes, syntax, flags };
	return suite_of("mmap", tests, sizeof(tests) / sizeof(tests[0]));
}
