/* catalog.c: root, entries and slots of the catalog. A reader trusts nothing in them, a good CRC notwithstanding. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/catalog.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>

#include "base/cursor.h"
#include "base/range.h"

static const uint8_t magic[4] = { 'M', 'R', 'S', 'C' };

enum {
	ROOT_CRC_OFFSET = 36,
	ENTRY_SIZE_MIN = CATALOG_ENTRY_HEADER_SIZE + MRSHARE_VIEW_SIZE_MAX - MRSHARE_DEVICE_NAME_MAX,
	ACCESS_KNOWN = MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC,
};

uint32_t catalog_crc(const void *bytes, size_t size)
{
	/* ISA-L neither inverts nor writes, though it takes no const; its length is an int. */
	unsigned char *pos = (unsigned char *)(uintptr_t)bytes;
	uint32_t crc = UINT32_MAX;
	while (size) {
		int n = size < INT_MAX ? (int)size : INT_MAX;
		crc = crc32_iscsi(pos, n, crc);
		pos += n;
		size -= (size_t)n;
	}
	return ~crc;
}

/* The CRC of a root, its own field taken as 0. */
static uint32_t root_crc(const uint8_t bytes[CATALOG_ROOT_SIZE])
{
	uint8_t copy[CATALOG_ROOT_SIZE];
	memcpy(copy, bytes, sizeof(copy));
	memset(copy + ROOT_CRC_OFFSET, 0, sizeof(uint32_t));
	return catalog_crc(copy, sizeof(copy));
}

void catalog_root_write(const struct catalog_root *root, uint8_t ret_bytes[CATALOG_ROOT_SIZE])
{
	struct writer w = writer_init(ret_bytes, CATALOG_ROOT_SIZE);
	write_bytes(&w, magic, sizeof(magic));
	write_u16(&w, CATALOG_VERSION);
	write_u16(&w, CATALOG_ROOT_SIZE);
	write_u64(&w, root->generation);
	write_u64(&w, root->slot_offset);
	write_u32(&w, root->slot_size);
	write_u32(&w, root->view_count);
	write_u32(&w, root->slot_crc);
	write_zeros(&w, w.left);

	struct writer crc = writer_init(ret_bytes + ROOT_CRC_OFFSET, sizeof(uint32_t));
	write_u32(&crc, root_crc(ret_bytes));
}

static bool count_is_possible(const struct catalog_root *root)
{
	return root->view_count <= root->slot_size / ENTRY_SIZE_MIN;
}

int catalog_root_read(const uint8_t bytes[CATALOG_ROOT_SIZE], uint64_t catalog_size, struct catalog_root *ret_root)
{
	struct reader r = reader_init(bytes, CATALOG_ROOT_SIZE);
	uint8_t seen[sizeof(magic)];
	read_bytes(&r, seen, sizeof(seen));
	uint16_t version = read_u16(&r);
	uint16_t root_size = read_u16(&r);
	struct catalog_root root = { .generation = read_u64(&r) };
	root.slot_offset = read_u64(&r);
	root.slot_size = read_u32(&r);
	root.view_count = read_u32(&r);
	root.slot_crc = read_u32(&r);

	/* The magic never changes, so that a torn read cannot have another. */
	if (memcmp(seen, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	if (read_u32(&r) != root_crc(bytes))
		return -EAGAIN;
	if (version != CATALOG_VERSION)
		return -EPROTONOSUPPORT;
	if (root_size < CATALOG_ROOT_SIZE || root.slot_offset < root_size ||
		!range_fits(root.slot_offset, root.slot_size, catalog_size) || !count_is_possible(&root))
		return -EBADMSG;
	*ret_root = root;
	return 0;
}

ssize_t catalog_entry_write(const struct mrshare_entry *entry, void *buf, size_t size)
{
	uint8_t view[MRSHARE_VIEW_SIZE_MAX];
	ssize_t view_size = mrshare_view_encode(&entry->view, view, sizeof(view));
	if (view_size < 0)
		return view_size;
	size_t entry_size = CATALOG_ENTRY_HEADER_SIZE + (size_t)view_size;
	if (size < entry_size)
		return -ENOSPC;

	struct writer w = writer_init(buf, size);
	write_u32(&w, (uint32_t)entry_size);
	write_u8(&w, entry->shmid);
	write_u8(&w, entry->access);
	write_u16(&w, 0);
	write_u64(&w, entry->shm_offset);
	write_u64(&w, entry->mapping_id);
	write_bytes(&w, view, (size_t)view_size);
	return (ssize_t)entry_size;
}

ssize_t catalog_entry_read(const void *buf, size_t size, struct mrshare_entry *ret_entry)
{
	struct reader r = reader_init(buf, size);
	uint32_t entry_size = read_u32(&r);
	struct mrshare_entry entry = { .shmid = read_u8(&r) };
	entry.access = read_u8(&r) & ACCESS_KNOWN;
	read_skip(&r, sizeof(uint16_t));
	entry.shm_offset = read_u64(&r);
	entry.mapping_id = read_u64(&r);
	if (r.failed || entry_size < ENTRY_SIZE_MIN || entry_size > size)
		return -EBADMSG;

	if (mrshare_view_decode(r.pos, entry_size - CATALOG_ENTRY_HEADER_SIZE, &entry.view) < 0)
		return -EBADMSG;
	if (range_overflows(entry.view.addr, entry.view.size) || range_overflows(entry.shm_offset, entry.view.size))
		return -EBADMSG;
	*ret_entry = entry;
	return (ssize_t)entry_size;
}

int catalog_slot_read(const void *slot, const struct catalog_root *root, struct mrshare_entry **ret_entries)
{
	if (catalog_crc(slot, root->slot_size) != root->slot_crc)
		return -EAGAIN;
	/* Before anything is allocated by it. */
	if (!count_is_possible(root))
		return -EBADMSG;
	struct mrshare_entry *entries = calloc(root->view_count ? root->view_count : 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;

	struct reader r = reader_init(slot, root->slot_size);
	for (uint32_t i = 0; i < root->view_count; i++) {
		ssize_t n = catalog_entry_read(r.pos, r.left, &entries[i]);
		if (n < 0) {
			free(entries);
			return (int)n;
		}
		read_skip(&r, (size_t)n);
	}
	if (r.left) {
		free(entries);
		return -EBADMSG;
	}
	*ret_entries = entries;
	return 0;
}
