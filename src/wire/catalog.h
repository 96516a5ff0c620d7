/* catalog.h: the layout of a device's catalog, which peers READ. mrshare-protocol(7), "Catalog". */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef WIRE_CATALOG_H
#define WIRE_CATALOG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mrshare.h"

enum {
	CATALOG_VERSION = 1,
	CATALOG_ROOT_SIZE = 64,
	CATALOG_ENTRY_HEADER_SIZE = 24,
	CATALOG_ENTRY_SIZE_MAX = CATALOG_ENTRY_HEADER_SIZE + MRSHARE_VIEW_SIZE_MAX,
	CATALOG_SLOTS = 8,
};

/* The root, at the catalog's start. On the wire also: magic, version, root size, and the CRC of the root. */
struct catalog_root {
	uint64_t generation;
	uint64_t slot_offset; /* of the active slot, bytes into the catalog */
	uint32_t slot_size;   /* bytes used in it */
	uint32_t view_count;
	uint32_t slot_crc;
};

/* CRC32C (Castagnoli) as in iSCSI (RFC 3720). */
uint32_t catalog_crc(const void *bytes, size_t size);

void catalog_root_write(const struct catalog_root *root, uint8_t ret_bytes[CATALOG_ROOT_SIZE]);
/* -EAGAIN: the CRC is wrong, as after a torn read; -EBADMSG: no such root, or its slot is not inside `catalog_size` bytes
 * behind the root; -EPROTONOSUPPORT: another version. */
int catalog_root_read(const uint8_t bytes[CATALOG_ROOT_SIZE], uint64_t catalog_size, struct catalog_root *ret_root);

/* Returns the bytes written, or as mrshare_view_encode(). */
ssize_t catalog_entry_write(const struct mrshare_entry *entry, void *buf, size_t size);
/* Returns the bytes of the whole entry, what is unknown at its end included; -EBADMSG where it is none. Rights in `access`
 * that are unknown are left out. */
ssize_t catalog_entry_read(const void *buf, size_t size, struct mrshare_entry *ret_entry);

/* Reads a whole slot, root->slot_size bytes, that has `root` as its root. The caller frees the array of root->view_count
 * entries. -EAGAIN: the CRC is wrong; -EBADMSG: the bytes are not that many entries; -ENOMEM. */
int catalog_slot_read(const void *slot, const struct catalog_root *root, struct mrshare_entry **ret_entries);

#endif
