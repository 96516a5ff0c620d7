/* catalog.c: CRC, root, entries and slots: golden bytes, torn ones, and fields out of bounds under a good CRC. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "unit.h"

enum { CATALOG_SIZE = 1 << 20, ROOT_CRC_OFFSET = 36 };

static const char *const golden_root = "4d525343 0100 4000 0807060504030201 4000000000000000 8b000000 02000000 44332211"
				       "1813bcea 000000000000000000000000000000000000000000000000";

static const struct catalog_root root_value = {
	.generation = 0x0102030405060708,
	.slot_offset = 64,
	.slot_size = 0x8b,
	.view_count = 2,
	.slot_crc = 0x11223344,
};

static const char *const golden_entry = "3a000000 01 03 0000 0020400000000000 1817161514131211"
					"04030201 8877665544332211 0040000000000000 0600000000000000 6d6c78355f30";

static const struct mrshare_entry entry_value = {
	.mapping_id = 0x1112131415161718,
	.shm_offset = 0x402000,
	.shmid = 1,
	.access = MRSHARE_READ | MRSHARE_WRITE,
	.view = { .rkey = 0x01020304, .addr = 0x1122334455667788, .size = 0x4000, .device_name = "mlx5_0" },
};

static void assert_entry_eq(const struct mrshare_entry *got, const struct mrshare_entry *wanted)
{
	ck_assert_uint_eq(got->mapping_id, wanted->mapping_id);
	ck_assert_uint_eq(got->shm_offset, wanted->shm_offset);
	ck_assert_uint_eq(got->shmid, wanted->shmid);
	ck_assert_uint_eq(got->access, wanted->access);
	ck_assert_uint_eq(got->view.rkey, wanted->view.rkey);
	ck_assert_uint_eq(got->view.addr, wanted->view.addr);
	ck_assert_uint_eq(got->view.size, wanted->view.size);
	ck_assert_str_eq(got->view.device_name, wanted->view.device_name);
}

/* RFC 3720, B.4. */
START_TEST(crc_vectors)
{
	uint8_t bytes[32];
	memset(bytes, 0, sizeof(bytes));
	ck_assert_uint_eq(catalog_crc(bytes, sizeof(bytes)), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	ck_assert_uint_eq(catalog_crc(bytes, sizeof(bytes)), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++)
		bytes[i] = i;
	ck_assert_uint_eq(catalog_crc(bytes, sizeof(bytes)), 0x46dd794e);
	for (uint8_t i = 0; i < 32; i++)
		bytes[i] = 31 - i;
	ck_assert_uint_eq(catalog_crc(bytes, sizeof(bytes)), 0x113fdb5c);
	struct bytes iscsi_read = from_hex("01c00000000000000000000000000000 14000000000004000000001400000018"
					   "28000000000000000200000000000000");
	ck_assert_uint_eq(catalog_crc(iscsi_read.data, iscsi_read.size), 0xd9963a56);
	ck_assert_uint_eq(catalog_crc("123456789", 9), 0xe3069283);
	ck_assert_uint_eq(catalog_crc("", 0), 0);
	ck_assert_uint_eq(catalog_crc(NULL, 0), 0);
}
END_TEST

/* What the CRC is by its definition, bit by bit. */
static uint32_t slow_crc(const uint8_t *bytes, size_t size)
{
	uint32_t value = UINT32_MAX;
	for (size_t i = 0; i < size; i++) {
		value ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			value = value & 1 ? value >> 1 ^ 0x82f63b78 : value >> 1;
	}
	return ~value;
}

START_TEST(crc_of_any_size)
{
	uint8_t bytes[600];
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 151 + 7);
	for (size_t size = 0; size < sizeof(bytes) - 3; size++) {
		for (size_t start = 0; start < 3; start++)
			ASSERT_QUICK(catalog_crc(bytes + start, size) == slow_crc(bytes + start, size));
	}
}
END_TEST

START_TEST(root_golden)
{
	uint8_t bytes[CATALOG_ROOT_SIZE];
	memset(bytes, 0xa5, sizeof(bytes));
	catalog_root_write(&root_value, bytes);
	assert_bytes_eq(bytes, sizeof(bytes), golden_root);

	struct bytes golden = from_hex(golden_root);
	struct catalog_root got;
	ck_assert_int_eq(catalog_root_read(golden.data, CATALOG_SIZE, &got), 0);
	ck_assert_uint_eq(got.generation, root_value.generation);
	ck_assert_uint_eq(got.slot_offset, root_value.slot_offset);
	ck_assert_uint_eq(got.slot_size, root_value.slot_size);
	ck_assert_uint_eq(got.view_count, root_value.view_count);
	ck_assert_uint_eq(got.slot_crc, root_value.slot_crc);
}
END_TEST

static uint64_t read_root_catalog_size = CATALOG_SIZE;

static int read_root(const void *buf, size_t size, void *ret)
{
	ASSERT_QUICK(size == CATALOG_ROOT_SIZE);
	return catalog_root_read(buf, read_root_catalog_size, ret);
}

START_TEST(torn_root)
{
	for (size_t i = 0; i < CATALOG_ROOT_SIZE; i++) {
		for (int change = 1; change < 256; change++) {
			struct bytes bytes = from_hex(golden_root);
			bytes.data[i] ^= (uint8_t)change;
			assert_refused(read_root, bytes.data, bytes.size, sizeof(struct catalog_root),
				i < 4 ? -EBADMSG : -EAGAIN);
		}
	}
	/* Of two roots, the first bytes of one and the last of the other. */
	struct catalog_root next = root_value;
	next.generation++;
	next.slot_offset += 4096;
	next.slot_crc = 0x55667788;
	uint8_t old_bytes[CATALOG_ROOT_SIZE], bytes[CATALOG_ROOT_SIZE];
	catalog_root_write(&root_value, old_bytes);
	for (size_t cut = 9; cut < 40; cut++) {
		catalog_root_write(&next, bytes);
		memcpy(bytes + cut, old_bytes + cut, sizeof(bytes) - cut);
		assert_refused(read_root, bytes, sizeof(bytes), sizeof(struct catalog_root), -EAGAIN);
	}
	memset(bytes, 0, sizeof(bytes));
	assert_refused(read_root, bytes, sizeof(bytes), sizeof(struct catalog_root), -EBADMSG);
}
END_TEST

/* A root's bytes with the CRC made right again. */
static void repair_crc(uint8_t bytes[CATALOG_ROOT_SIZE])
{
	memset(bytes + ROOT_CRC_OFFSET, 0, 4);
	struct writer w = writer_init(bytes + ROOT_CRC_OFFSET, 4);
	write_u32(&w, catalog_crc(bytes, CATALOG_ROOT_SIZE));
}

static void assert_root(const struct catalog_root *value, uint64_t catalog_size, int wanted)
{
	uint8_t bytes[CATALOG_ROOT_SIZE];
	catalog_root_write(value, bytes);
	read_root_catalog_size = catalog_size;
	struct catalog_root got;
	if (wanted < 0)
		assert_refused(read_root, bytes, sizeof(bytes), sizeof(got), wanted);
	else
		ck_assert_int_eq(catalog_root_read(bytes, catalog_size, &got), 0);
}

START_TEST(root_bounds)
{
	struct catalog_root value = { .slot_offset = 64, .slot_size = 1000, .view_count = 1 };
	assert_root(&value, 1064, 0);
	assert_root(&value, 1063, -EBADMSG);
	assert_root(&value, 0, -EBADMSG);
	assert_root(&value, UINT64_MAX, 0);
	value.slot_offset = 63;
	assert_root(&value, 1064, -EBADMSG);
	value.slot_offset = 0;
	assert_root(&value, 1064, -EBADMSG);
	const uint64_t offsets[] = { 65, 1065, UINT64_MAX, UINT64_MAX - 999, UINT64_MAX - 1000, 1ull << 63 };
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		value.slot_offset = offsets[i];
		assert_root(&value, 1064, -EBADMSG);
	}
	value = (struct catalog_root){ .slot_offset = 64, .slot_size = UINT32_MAX };
	assert_root(&value, 1064, -EBADMSG);
	assert_root(&value, 64ull + UINT32_MAX, 0);

	/* An entry has 52 bytes at least. */
	value = (struct catalog_root){ .slot_offset = 64, .slot_size = 104, .view_count = 2 };
	assert_root(&value, 1064, 0);
	value.view_count = 3;
	assert_root(&value, 1064, -EBADMSG);
	value.view_count = UINT32_MAX;
	assert_root(&value, 1064, -EBADMSG);
	value = (struct catalog_root){ .slot_offset = 64, .slot_size = 51, .view_count = 1 };
	assert_root(&value, 1064, -EBADMSG);
	value = (struct catalog_root){ .slot_offset = 1064 };
	assert_root(&value, 1064, 0);
}
END_TEST

static int read_patched_root(size_t offset, uint8_t byte)
{
	struct bytes bytes = from_hex(golden_root);
	bytes.data[offset] = byte;
	repair_crc(bytes.data);
	struct catalog_root got;
	return catalog_root_read(bytes.data, CATALOG_SIZE, &got);
}

START_TEST(root_of_others)
{
	ck_assert_int_eq(read_patched_root(3, '2'), -EBADMSG);
	ck_assert_int_eq(read_patched_root(4, 0), -EPROTONOSUPPORT);
	ck_assert_int_eq(read_patched_root(4, 2), -EPROTONOSUPPORT);
	ck_assert_int_eq(read_patched_root(5, 1), -EPROTONOSUPPORT);
	ck_assert_int_eq(read_patched_root(6, 63), -EBADMSG);
	/* A longer root has its slots behind it. */
	ck_assert_int_eq(read_patched_root(6, 65), -EBADMSG);
	for (size_t i = 40; i < CATALOG_ROOT_SIZE; i++)
		ck_assert_int_eq(read_patched_root(i, 0xff), 0);

	struct bytes bytes = from_hex(golden_root);
	bytes.data[6] = 128;
	bytes.data[16] = 128;
	repair_crc(bytes.data);
	struct catalog_root got;
	ck_assert_int_eq(catalog_root_read(bytes.data, CATALOG_SIZE, &got), 0);
	ck_assert_uint_eq(got.slot_offset, 128);
}
END_TEST

static int read_entry(const void *buf, size_t size, void *ret)
{
	return (int)catalog_entry_read(buf, size, ret);
}

START_TEST(entry_golden)
{
	uint8_t buf[CATALOG_ENTRY_SIZE_MAX];
	ck_assert_int_eq(catalog_entry_write(&entry_value, buf, sizeof(buf)), 58);
	assert_bytes_eq(buf, 58, golden_entry);

	struct bytes bytes = from_hex(golden_entry);
	struct mrshare_entry got;
	ck_assert_int_eq(catalog_entry_read(bytes.data, bytes.size, &got), 58);
	assert_entry_eq(&got, &entry_value);
	ck_assert_int_eq(catalog_entry_read(bytes.data, sizeof(bytes.data), &got), 58);
	assert_truncated(read_entry, &bytes, sizeof(got), -EBADMSG);

	uint8_t untouched[58];
	memset(buf, 0x5a, sizeof(buf));
	memset(untouched, 0x5a, sizeof(untouched));
	for (size_t size = 0; size < 58; size++)
		ck_assert_int_eq(catalog_entry_write(&entry_value, buf, size), -ENOSPC);
	ck_assert_mem_eq(buf, untouched, 58);
	ck_assert_int_eq(catalog_entry_write(&entry_value, buf, 58), 58);

	struct mrshare_entry bad = entry_value;
	strcpy(bad.view.device_name, "\xff");
	ck_assert_int_eq(catalog_entry_write(&bad, buf, sizeof(buf)), -EINVAL);
	memset(bad.view.device_name, 'n', sizeof(bad.view.device_name));
	ck_assert_int_eq(catalog_entry_write(&bad, buf, sizeof(buf)), -EINVAL);
	bad.view.device_name[63] = '\0';
	ck_assert_int_eq(catalog_entry_write(&bad, buf, sizeof(buf)), CATALOG_ENTRY_SIZE_MAX);
}
END_TEST

START_TEST(entry_with_unknown_tail)
{
	struct bytes bytes = from_hex(golden_entry);
	memset(bytes.data + bytes.size, 0xff, 100);
	for (unsigned int more = 0; more <= 100; more++) {
		bytes.data[0] = (uint8_t)(58 + more);
		struct mrshare_entry got;
		ck_assert_int_eq(catalog_entry_read(bytes.data, 58 + more, &got), (ssize_t)(58 + more));
		assert_entry_eq(&got, &entry_value);
		assert_refused(read_entry, bytes.data, 57 + more, sizeof(got), -EBADMSG);
	}
}
END_TEST

static void assert_no_entry(const struct mrshare_entry *value)
{
	uint8_t buf[CATALOG_ENTRY_SIZE_MAX];
	ssize_t n = catalog_entry_write(value, buf, sizeof(buf));
	ck_assert_int_gt(n, 0);
	assert_refused(read_entry, buf, (size_t)n, sizeof(*value), -EBADMSG);
}

START_TEST(entry_bounds)
{
	/* The size: too small for any entry, for this one, beyond the buffer. */
	const uint32_t sizes[] = { 0, 1, 24, 51, 52, 57, 59, 0x7fffffff, 0x80000000, 0xffffffff };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct bytes bytes = from_hex(golden_entry);
		struct writer w = writer_init(bytes.data, 4);
		write_u32(&w, sizes[i]);
		assert_refused(read_entry, bytes.data, bytes.size, sizeof(struct mrshare_entry), -EBADMSG);
	}

	struct mrshare_entry value = entry_value;
	value.view.addr = UINT64_MAX - 0x3fff;
	assert_no_entry(&value);
	value = entry_value;
	value.shm_offset = UINT64_MAX - 0x3fff;
	assert_no_entry(&value);
	value = entry_value;
	value.view.size = UINT64_MAX;
	assert_no_entry(&value);

	value = entry_value;
	value.view.addr = value.shm_offset = UINT64_MAX - 0x4000;
	value.shmid = 255;
	value.mapping_id = UINT64_MAX;
	uint8_t buf[CATALOG_ENTRY_SIZE_MAX];
	struct mrshare_entry got;
	ck_assert_int_eq(catalog_entry_write(&value, buf, sizeof(buf)), 58);
	ck_assert_int_eq(catalog_entry_read(buf, 58, &got), 58);
	assert_entry_eq(&got, &value);
}
END_TEST

START_TEST(entry_access)
{
	for (int access = 0; access < 256; access++) {
		struct bytes bytes = from_hex(golden_entry);
		bytes.data[5] = (uint8_t)access;
		bytes.data[6] = bytes.data[7] = 0xff;
		struct mrshare_entry got;
		ck_assert_int_eq(catalog_entry_read(bytes.data, bytes.size, &got), 58);
		ck_assert_uint_eq(got.access, access & 7);
	}
}
END_TEST

/* Writes a slot of `count` entries that differ, and its root. The caller frees the slot. */
static uint8_t *make_slot(uint32_t count, struct catalog_root *ret_root)
{
	uint8_t *slot = malloc((size_t)count * CATALOG_ENTRY_SIZE_MAX + 1);
	ck_assert_ptr_nonnull(slot);
	size_t size = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct mrshare_entry value = entry_value;
		value.mapping_id = i;
		value.shm_offset = 4096ull * i;
		memset(value.view.device_name, 'n', i % 64);
		value.view.device_name[i % 64] = '\0';
		ssize_t n = catalog_entry_write(&value, slot + size, CATALOG_ENTRY_SIZE_MAX);
		ASSERT_QUICK(n > 0);
		size += (size_t)n;
	}
	*ret_root = (struct catalog_root){
		.slot_offset = 64,
		.slot_size = (uint32_t)size,
		.view_count = count,
		.slot_crc = catalog_crc(slot, size),
	};
	uint8_t *exact = exact_copy(slot, size);
	free(slot);
	return exact;
}

static void assert_slot(uint32_t count)
{
	struct catalog_root root;
	uint8_t *slot = make_slot(count, &root);
	struct mrshare_entry *entries = NULL;
	ck_assert_int_eq(catalog_slot_read(slot, &root, &entries), 0);
	ck_assert_ptr_nonnull(entries);
	for (uint32_t i = 0; i < count; i++) {
		ASSERT_QUICK(entries[i].mapping_id == i);
		ASSERT_QUICK(entries[i].shm_offset == 4096ull * i);
		ASSERT_QUICK(strlen(entries[i].view.device_name) == i % 64);
	}
	free(entries);
	free(slot);
}

START_TEST(slots)
{
	assert_slot(0);
	assert_slot(1);
	assert_slot(64);
	/* As many as a catalog has by default. */
	assert_slot(65536);
}
END_TEST

static void assert_no_slot(const uint8_t *slot, const struct catalog_root *root, int wanted)
{
	struct mrshare_entry untouched, *entries = &untouched;
	int r = catalog_slot_read(slot, root, &entries);
	if (r != wanted)
		ck_abort_msg("wanted %d, got %d", wanted, r);
	ASSERT_QUICK(entries == &untouched);
}

START_TEST(torn_slot)
{
	struct catalog_root root;
	uint8_t *slot = make_slot(10, &root);
	for (uint32_t i = 0; i < root.slot_size; i++) {
		for (int change = 1; change < 256; change += 2) {
			slot[i] ^= (uint8_t)change;
			assert_no_slot(slot, &root, -EAGAIN);
			slot[i] ^= (uint8_t)change;
		}
	}
	struct mrshare_entry *entries;
	ck_assert_int_eq(catalog_slot_read(slot, &root, &entries), 0);
	free(entries);
	free(slot);
}
END_TEST

START_TEST(slot_that_lies)
{
	struct catalog_root good, root;
	uint8_t *slot = make_slot(10, &good);

	/* More or fewer entries than there are; far more than fit, which allocates nothing. */
	const uint32_t counts[] = { 0, 9, 11, 12, 1000000, 0x80000000, UINT32_MAX };
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		root = good;
		root.view_count = counts[i];
		assert_no_slot(slot, &root, -EBADMSG);
	}
	/* Cut anywhere, under a CRC that is right. */
	for (uint32_t size = 0; size < good.slot_size; size++) {
		root = good;
		root.slot_size = size;
		root.slot_crc = catalog_crc(slot, size);
		uint8_t *cut = exact_copy(slot, size);
		assert_no_slot(cut, &root, -EBADMSG);
		free(cut);
	}
	/* The first entry claims all, or more than all. */
	for (uint32_t more = 0; more < 2; more++) {
		struct writer w = writer_init(slot, 4);
		write_u32(&w, good.slot_size + more);
		root = good;
		root.slot_crc = catalog_crc(slot, good.slot_size);
		assert_no_slot(slot, &root, -EBADMSG);
	}
	free(slot);
}
END_TEST

Suite *suite_catalog(void)
{
	const TTest *const tests[] = { crc_vectors, crc_of_any_size, root_golden, torn_root, root_bounds,
		root_of_others, entry_golden, entry_with_unknown_tail, entry_bounds, entry_access, slots, torn_slot,
		slot_that_lies };
	return suite_of("catalog", tests, sizeof(tests) / sizeof(tests[0]));
}
