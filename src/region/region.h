/* region.h: VIRTIO shared memory regions and what is mapped into them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef REGION_REGION_H
#define REGION_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "mrshare.h"

struct region;

/* One file range at its place in a region. Filled by regions_claim(); its memory is the caller's until
 * regions_release(). */
struct mapping {
	struct region *region;
	uint64_t id;    /* never reused, never 0 */
	uint64_t owner; /* a provider's id, or 0: static */
	uint8_t shmid;
	bool writable;
	uint64_t shm_offset, len, fd_offset;
	void *addr; /* of its first byte in our address space; mapped or not */
};

/* A mapping as people read it: "region 0 [0x0, 0x4000000)". */
struct mapping_text {
	char text[80];
};
struct mapping_text mapping_format(const struct mapping *mapping);

/* How much may be mapped, over all regions. */
struct regions_limits {
	size_t max_mappings, max_mappings_each; /* in total, a provider */
	uint64_t max_bytes, max_bytes_each;
};

struct regions;

int regions_new(const struct regions_limits *limits, struct regions **ret_regions);
void regions_free(struct regions **regions);
/* Counts for what is mapped from now on; what is mapped stays. */
void regions_set_limits(struct regions *regions, const struct regions_limits *limits);
/* Reserves a region: contiguous address space, aligned to 1 GiB. `size` is a multiple of 4096. -EEXIST, -ENOMEM. */
int regions_add(struct regions *regions, uint8_t shmid, uint64_t size, struct err *err);

/* Takes the range of a checked request for `owner`: -ENXIO, -ERANGE, -EEXIST, -EDQUOT, -ENOMEM, in this order. Nothing
 * is mapped yet. */
int regions_claim(struct regions *regions, const struct mrshare_mmap *mmap, uint64_t owner, struct mapping *ret_mapping,
	struct err *err);
/* The mapping of exactly this shmid, shm_offset and len that `owner` may unmap: -ENXIO, -ERANGE, -ENOENT, -EPERM. */
int regions_find(struct regions *regions, const struct mrshare_mmap *mmap, uint64_t owner, struct mapping **ret_mapping,
	struct err *err);
/* Frees the range. Its memory must be reserved again, see mapping_clear(). */
void regions_release(struct regions *regions, const struct mapping *mapping);
size_t regions_count(const struct regions *regions);

/* Maps the file range over the reservation, read-only or read-write. May block: workers only. 0 or a negative errno. */
int mapping_place(const struct mapping *mapping, int fd, int prot);
/* Puts the reservation back in its place. May block: workers only. 0 or a negative errno. */
int mapping_clear(const struct mapping *mapping);

#endif
