/* catalog.c: the list of views that a device publishes, in memory that peers READ. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stage "catalog" holds, for one device, the entries as they are to be (in wire form, a block a mapping), and the
 * memory that peers read: a root and eight slots used in turn. A generation is written into the slot that was left
 * alone longest, then the root names it, so a reader has seven generations' time for its READ, and notices by a CRC
 * when that was not enough. All entries of a device are equally long, since only the device's name varies in length.
 */
#include "catalog/catalog.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rdma.h"
#include "base/size.h"

enum { SLOT_ALIGNMENT = 64 };

/* A mapping's entries; ordered by id. */
struct listed {
	uint64_t mapping_id;
	uint8_t *bytes; /* NULL: removed, and squeezed out later */
	uint32_t count;
};

struct catalog {
	struct device *device;
	uint8_t *memory;
	uint64_t memory_size;
	struct ibv_mr *mr;
	struct mrshare_view view;
	struct catalog_root root; /* what was written last */
	unsigned int slot;        /* the one it is in */
	uint32_t entry_size, max_entries;
	uint32_t entries; /* listed */
	uint32_t taken;   /* listed or reserved */
	struct listed *listed;
	size_t listed_count; /* with removed ones; room is for max_entries */
};

static uint32_t entry_size_of(const struct device *device)
{
	return (uint32_t)(CATALOG_ENTRY_SIZE_MAX - MRSHARE_DEVICE_NAME_MAX + strlen(device->name));
}

static uint64_t slot_room(const struct device *device, uint32_t max_extents)
{
	uint64_t size = (uint64_t)max_extents * entry_size_of(device);
	return (size + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

uint64_t catalog_memory_size(const struct device *device, uint32_t max_extents)
{
	uint64_t room = slot_room(device, max_extents), page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t size = (CATALOG_ROOT_SIZE + CATALOG_SLOTS * room + page - 1) / page * page;
	/* A slot's size has 32 bits on the wire. */
	return room > UINT32_MAX || size > device->attr.max_mr_size ? 0 : size;
}

static int catalog_register(struct catalog *catalog, struct err *err)
{
	const struct device *device = catalog->device;
	uint8_t *memory = mmap(NULL, catalog->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r = memory == MAP_FAILED ? -errno : 0;
	if (r == 0) {
		catalog->memory = memory;
		r = verbs_reg_mr_iova(
			device->pd, memory, catalog->memory_size, 0, IBV_ACCESS_REMOTE_READ, &catalog->mr);
	}
	if (r == 0)
		r = mrshare_view_from_mr(catalog->mr, 0, &catalog->view);
	if (r < 0)
		return err_set(err, r,
			"device %s: cannot register its catalog of %s: %s; --max-extents makes it smaller",
			device->name, size_format(catalog->memory_size).text, strerror(-r));
	return 0;
}

int catalog_new(struct device *device, uint32_t max_extents, struct catalog **ret_catalog, struct err *err)
{
	uint64_t memory_size = catalog_memory_size(device, max_extents);
	if (memory_size == 0)
		return err_set(err, -EINVAL, "device %s: a catalog of %u extents is too large: lower --max-extents",
			device->name, max_extents);

	struct catalog *catalog = calloc(1, sizeof(*catalog));
	if (!catalog)
		return err_set(err, -ENOMEM, "out of memory");
	catalog->device = device;
	catalog->max_entries = max_extents;
	catalog->entry_size = entry_size_of(device);
	catalog->memory_size = memory_size;
	catalog->listed = calloc(max_extents, sizeof(*catalog->listed));
	int r = catalog->listed ? catalog_register(catalog, err) : err_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		catalog_free(&catalog);
		return r;
	}
	catalog_write(catalog, 1);
	*ret_catalog = catalog;
	return 0;
}

void catalog_free(struct catalog **catalog_ptr)
{
	struct catalog *catalog = *catalog_ptr;
	if (!catalog)
		return;
	for (size_t i = 0; i < catalog->listed_count; i++)
		free(catalog->listed[i].bytes);
	free(catalog->listed);
	/* What a peer may still read must not become anything else. */
	bool unreachable = verbs_dereg_mr(&catalog->mr) == 0 || atomic_load(&catalog->device->gone);
	if (catalog->memory && unreachable)
		munmap(catalog->memory, catalog->memory_size);
	free(catalog);
	*catalog_ptr = NULL;
}

int catalog_reserve(struct catalog *catalog, size_t count)
{
	if (count > catalog->max_entries - catalog->taken)
		return -EDQUOT;
	catalog->taken += (uint32_t)count;
	return 0;
}

void catalog_unreserve(struct catalog *catalog, size_t count)
{
	catalog->taken -= (uint32_t)count;
}

/* The place of a mapping in the list, or the one where it would stand. */
static size_t find(const struct catalog *catalog, uint64_t mapping_id)
{
	size_t low = 0, high = catalog->listed_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (catalog->listed[middle].mapping_id < mapping_id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Drops what was removed. Done once for many removals: a provider may leave with thousands of mappings. */
static void squeeze(struct catalog *catalog)
{
	size_t kept = 0;
	for (size_t i = 0; i < catalog->listed_count; i++) {
		if (catalog->listed[i].bytes)
			catalog->listed[kept++] = catalog->listed[i];
	}
	catalog->listed_count = kept;
}

static uint8_t *entries_write(const struct catalog *catalog, uint64_t mapping_id, uint8_t shmid, uint8_t access,
	const struct device_extents *extents)
{
	uint8_t *bytes = calloc(extents->count, catalog->entry_size);
	if (!bytes)
		return NULL;
	struct mrshare_entry entry = { .mapping_id = mapping_id, .shmid = shmid, .access = access };
	for (size_t i = 0; i < extents->count; i++) {
		entry.shm_offset = extents->extents[i].shm_offset;
		entry.view = catalog->view;
		entry.view.rkey = extents->extents[i].mr->rkey;
		entry.view.addr = entry.shm_offset;
		entry.view.size = extents->extents[i].len;
		catalog_entry_write(&entry, bytes + i * catalog->entry_size, catalog->entry_size);
	}
	return bytes;
}

int catalog_add(struct catalog *catalog, uint64_t mapping_id, uint8_t shmid, uint8_t access,
	const struct device_extents *extents, size_t reserved)
{
	uint32_t others = catalog->taken - (uint32_t)reserved;
	if (extents->count > catalog->max_entries - others)
		return -EDQUOT;
	uint8_t *bytes = entries_write(catalog, mapping_id, shmid, access, extents);
	if (!bytes)
		return -ENOMEM;

	if (catalog->listed_count == catalog->max_entries)
		squeeze(catalog);
	size_t place = find(catalog, mapping_id);
	struct listed *listed = &catalog->listed[place];
	memmove(listed + 1, listed, (catalog->listed_count - place) * sizeof(*listed));
	*listed = (struct listed){ .mapping_id = mapping_id, .bytes = bytes, .count = (uint32_t)extents->count };
	catalog->listed_count++;
	catalog->entries += listed->count;
	catalog->taken = others + listed->count;
	return 0;
}

void catalog_remove(struct catalog *catalog, uint64_t mapping_id)
{
	size_t place = find(catalog, mapping_id);
	struct listed *listed = &catalog->listed[place];
	if (place == catalog->listed_count || listed->mapping_id != mapping_id || !listed->bytes)
		return;
	catalog->entries -= listed->count;
	catalog->taken -= listed->count;
	free(listed->bytes);
	listed->bytes = NULL;
}

void catalog_write(struct catalog *catalog, uint64_t generation)
{
	squeeze(catalog);
	catalog->slot = (catalog->slot + 1) % CATALOG_SLOTS;
	uint64_t offset = CATALOG_ROOT_SIZE + catalog->slot * slot_room(catalog->device, catalog->max_entries);
	uint8_t *start = catalog->memory + offset, *pos = start;
	for (size_t i = 0; i < catalog->listed_count; i++) {
		size_t size = (size_t)catalog->listed[i].count * catalog->entry_size;
		memcpy(pos, catalog->listed[i].bytes, size);
		pos += size;
	}

	catalog->root = (struct catalog_root){
		.generation = generation,
		.slot_offset = offset,
		.slot_size = catalog_slot_size(catalog),
		.view_count = catalog->entries,
		.slot_crc = catalog_crc(start, catalog_slot_size(catalog)),
	};
	uint8_t root[CATALOG_ROOT_SIZE];
	catalog_root_write(&catalog->root, root);
	/* The root names the slot only once it is there; a notice goes out only once the root is. */
	atomic_thread_fence(memory_order_seq_cst);
	memcpy(catalog->memory, root, sizeof(root));
	atomic_thread_fence(memory_order_seq_cst);
}

uint32_t catalog_slot_size(const struct catalog *catalog)
{
	return catalog->entries * catalog->entry_size;
}

const struct catalog_root *catalog_last_root(const struct catalog *catalog)
{
	return &catalog->root;
}

const struct mrshare_view *catalog_view(const struct catalog *catalog)
{
	return &catalog->view;
}
