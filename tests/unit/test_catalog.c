/* test_catalog.c: what a device publishes, read back as a peer reads it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/catalog.h"
#include "fake_rdma.h"

enum { ROOM = 20 };

static struct device *device;
static struct catalog *catalog;

static void open_catalog(void)
{
	struct err err;
	ck_assert_int_eq(device_new(fake_context(0), 0, false, &device, &err), 0);
	ck_assert_int_eq(catalog_new(device, ROOM, &catalog, &err), 0);
}

static void close_catalog(void)
{
	catalog_free(&catalog);
	device_free(&device);
	ck_assert_int_eq(fake_counts().mrs, 0);
}

static int add(uint64_t mapping_id, unsigned int count, size_t reserved)
{
	struct ibv_mr mr[ROOM + 1];
	struct extent extents[ROOM + 1];
	for (unsigned int i = 0; i < count; i++) {
		mr[i].rkey = (uint32_t)(mapping_id * 100 + i);
		extents[i] = (struct extent){ .shm_offset = (mapping_id * 100 + i) * 4096, .len = 4096, .mr = &mr[i] };
	}
	struct device_extents list = { .device = device, .extents = extents, .count = count };
	return catalog_add(catalog, mapping_id, 7, MRSHARE_READ | MRSHARE_WRITE, &list, reserved);
}

/* The entries that a peer sees now. */
static uint32_t read_back(uint64_t generation, struct mrshare_entry **ret_entries)
{
	const uint8_t *memory = fake_mr(0)->base.addr;
	struct catalog_root root;
	ck_assert_int_eq(catalog_root_read(memory, catalog_view(catalog)->size, &root), 0);
	ck_assert_uint_eq(root.generation, generation);
	ck_assert_uint_eq(root.slot_offset, catalog_last_root(catalog)->slot_offset);
	ck_assert_int_eq(catalog_slot_read(memory + root.slot_offset, &root, ret_entries), 0);
	return root.view_count;
}

static void assert_ids(uint64_t generation, const uint64_t *ids, uint32_t count)
{
	struct mrshare_entry *entries;
	ck_assert_uint_eq(read_back(generation, &entries), count);
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(entries[i].mapping_id, ids[i]);
	free(entries);
}

START_TEST(it_starts_empty_for_remote_reads_alone)
{
	open_catalog();
	assert_ids(1, NULL, 0);
	const struct mrshare_view *view = catalog_view(catalog);
	ck_assert_int_eq(fake_mr(0)->access, IBV_ACCESS_REMOTE_READ);
	ck_assert_uint_eq(fake_mr(0)->iova, 0);
	ck_assert_uint_eq(view->addr, 0);
	ck_assert_uint_eq(view->rkey, fake_mr(0)->base.rkey);
	ck_assert_uint_eq(view->size, catalog_memory_size(device, ROOM));
	ck_assert_str_eq(view->device_name, "fake0");
	close_catalog();
}
END_TEST

START_TEST(entries_say_what_was_added)
{
	open_catalog();
	ck_assert_int_eq(catalog_reserve(catalog, 2), 0);
	ck_assert_int_eq(add(3, 2, 2), 0);
	assert_ids(1, NULL, 0); /* nothing before the write */
	catalog_write(catalog, 2);
	struct mrshare_entry *entries;
	ck_assert_uint_eq(read_back(2, &entries), 2);
	for (unsigned int i = 0; i < 2; i++) {
		ck_assert_uint_eq(entries[i].mapping_id, 3);
		ck_assert_uint_eq(entries[i].shmid, 7);
		ck_assert_uint_eq(entries[i].access, MRSHARE_READ | MRSHARE_WRITE);
		ck_assert_uint_eq(entries[i].shm_offset, (300 + i) * 4096);
		ck_assert_uint_eq(entries[i].view.addr, entries[i].shm_offset);
		ck_assert_uint_eq(entries[i].view.size, 4096);
		ck_assert_uint_eq(entries[i].view.rkey, 300 + i);
		ck_assert_str_eq(entries[i].view.device_name, "fake0");
	}
	free(entries);
	close_catalog();
}
END_TEST

START_TEST(removing_leaves_the_others)
{
	open_catalog();
	for (uint64_t id = 5; id > 0; id--)
		ck_assert_int_eq(add(id, 1, 0), 0);
	catalog_write(catalog, 2);
	assert_ids(2, (uint64_t[]){ 1, 2, 3, 4, 5 }, 5);
	catalog_remove(catalog, 3);
	catalog_remove(catalog, 3);
	catalog_remove(catalog, 99);
	ck_assert_int_eq(add(6, 1, 0), 0);
	catalog_remove(catalog, 1);
	catalog_write(catalog, 3);
	assert_ids(3, (uint64_t[]){ 2, 4, 5, 6 }, 4);
	close_catalog();
}
END_TEST

START_TEST(room_is_counted)
{
	open_catalog();
	ck_assert_int_eq(catalog_reserve(catalog, ROOM + 1), -EDQUOT);
	ck_assert_int_eq(catalog_reserve(catalog, ROOM - 2), 0);
	ck_assert_int_eq(catalog_reserve(catalog, 3), -EDQUOT);
	ck_assert_int_eq(catalog_reserve(catalog, SIZE_MAX), -EDQUOT);
	ck_assert_int_eq(catalog_reserve(catalog, 2), 0);
	/* More extents than reserved do not fit, and the room stays reserved. */
	ck_assert_int_eq(add(1, 3, 2), -EDQUOT);
	ck_assert_int_eq(catalog_reserve(catalog, 1), -EDQUOT);
	ck_assert_int_eq(add(1, 2, 2), 0);
	catalog_unreserve(catalog, ROOM - 2);
	ck_assert_int_eq(add(2, 4, 0), 0);
	catalog_remove(catalog, 1);
	ck_assert_int_eq(catalog_reserve(catalog, ROOM - 4), 0);
	ck_assert_int_eq(catalog_reserve(catalog, 1), -EDQUOT);
	close_catalog();
}
END_TEST

START_TEST(a_full_catalog_takes_new_mappings_after_removals)
{
	open_catalog();
	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < ROOM; i++)
			ck_assert_int_eq(add(round * ROOM + i + 1, 1, 0), 0);
		ck_assert_int_eq(add(1000, 1, 0), -EDQUOT);
		if (round % 2)
			catalog_write(catalog, round + 2);
		for (uint64_t i = 0; i < ROOM; i++)
			catalog_remove(catalog, round * ROOM + i + 1);
	}
	catalog_write(catalog, 10);
	assert_ids(10, NULL, 0);
	close_catalog();
}
END_TEST

START_TEST(eight_slots_are_used_in_turn)
{
	open_catalog();
	uint64_t seen[CATALOG_SLOTS];
	for (uint64_t generation = 2; generation < 30; generation++) {
		ck_assert_int_eq(add(generation, 1, 0), 0);
		catalog_remove(catalog, generation - 1);
		catalog_write(catalog, generation);
		assert_ids(generation, &generation, 1);
		uint64_t offset = catalog_last_root(catalog)->slot_offset;
		if (generation >= 2 + CATALOG_SLOTS)
			ck_assert_uint_eq(seen[generation % CATALOG_SLOTS], offset);
		seen[generation % CATALOG_SLOTS] = offset;
	}
	for (unsigned int i = 0; i < CATALOG_SLOTS; i++) {
		for (unsigned int j = 0; j < i; j++)
			ck_assert_uint_ne(seen[i], seen[j]);
	}
	close_catalog();
}
END_TEST

/* A reader that has read a root is not served wrong bytes by what is written afterwards: it sees a torn slot. */
START_TEST(an_overtaken_reader_sees_a_wrong_crc)
{
	open_catalog();
	ck_assert_int_eq(add(1, 1, 0), 0);
	catalog_write(catalog, 2);
	const uint8_t *memory = fake_mr(0)->base.addr;
	struct catalog_root root;
	struct mrshare_entry *entries;
	ck_assert_int_eq(catalog_root_read(memory, catalog_view(catalog)->size, &root), 0);
	catalog_remove(catalog, 1);
	for (uint64_t generation = 3; generation < 10; generation++) {
		ck_assert_int_eq(add(generation, 1, 0), 0);
		catalog_write(catalog, generation);
		catalog_remove(catalog, generation);
		ck_assert_int_eq(catalog_slot_read(memory + root.slot_offset, &root, &entries), 0);
		free(entries);
	}
	ck_assert_int_eq(add(10, 1, 0), 0);
	catalog_write(catalog, 10);
	ck_assert_int_eq(catalog_slot_read(memory + root.slot_offset, &root, &entries), -EAGAIN);
	close_catalog();
}
END_TEST

START_TEST(what_cannot_be_registered_leaves_nothing)
{
	struct err err;
	ck_assert_int_eq(device_new(fake_context(0), 0, false, &device, &err), 0);
	fake_fail("verbs_reg_mr_iova", 0, 1, -ENOMEM);
	ck_assert_int_eq(catalog_new(device, ROOM, &catalog, &err), -ENOMEM);
	ck_assert_ptr_null(catalog);
	ck_assert_ptr_nonnull(strstr(err.text, "--max-extents"));
	ck_assert_int_eq(catalog_new(device, UINT32_MAX, &catalog, &err), -EINVAL);
	ck_assert_uint_eq(catalog_memory_size(device, UINT32_MAX), 0);
	device->attr.max_mr_size = 4096;
	ck_assert_int_eq(catalog_new(device, 65536, &catalog, &err), -EINVAL);
	device_free(&device);
}
END_TEST

void add_catalog_tests(Suite *suite)
{
	TCase *tcase = tcase_create("catalog");
	tcase_add_test(tcase, it_starts_empty_for_remote_reads_alone);
	tcase_add_test(tcase, entries_say_what_was_added);
	tcase_add_test(tcase, removing_leaves_the_others);
	tcase_add_test(tcase, room_is_counted);
	tcase_add_test(tcase, a_full_catalog_takes_new_mappings_after_removals);
	tcase_add_test(tcase, eight_slots_are_used_in_turn);
	tcase_add_test(tcase, an_overtaken_reader_sees_a_wrong_crc);
	tcase_add_test(tcase, what_cannot_be_registered_leaves_nothing);
	suite_add_tcase(suite, tcase);
}
