/* region.c: VIRTIO shared memory regions and what is mapped into them. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A region is one reserved span of address space, inaccessible where nothing is mapped. Its mappings are kept in the
 * order of their offsets; a range being registered or removed counts as taken. The table is of the loop's thread; the
 * memory itself is changed by workers, each in the range of a mapping that is theirs meanwhile.
 */
#include "region/region.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/range.h"
#include "base/size.h"

/* Huge pages keep their size in a NIC's translation where addresses agree with offsets modulo the largest page. */
#define REGION_ALIGN ((uint64_t)1 << 30)

struct region {
	uint64_t size;
	void *span; /* what munmap() takes */
	size_t span_size;
	uint8_t *base;
	struct mapping **mappings; /* in the order of shm_offset */
	size_t count, room;
};

struct regions {
	struct regions_limits limits;
	struct region *by_shmid[256];
	uint64_t last_id;
	size_t mapping_count;
	uint64_t bytes;
};

struct mapping_text mapping_format(const struct mapping *mapping)
{
	struct mapping_text out;
	snprintf(out.text, sizeof(out.text), "region %u [%#" PRIx64 ", %#" PRIx64 ")", mapping->shmid,
		mapping->shm_offset, mapping->shm_offset + mapping->len);
	return out;
}

int regions_new(const struct regions_limits *limits, struct regions **ret_regions)
{
	struct regions *regions = calloc(1, sizeof(*regions));
	if (!regions)
		return -ENOMEM;
	regions->limits = *limits;
	*ret_regions = regions;
	return 0;
}

void regions_set_limits(struct regions *regions, const struct regions_limits *limits)
{
	regions->limits = *limits;
}

void regions_free(struct regions **regions)
{
	if (!*regions)
		return;
	for (size_t shmid = 0; shmid < 256; shmid++) {
		struct region *region = (*regions)->by_shmid[shmid];
		if (!region)
			continue;
		munmap(region->span, region->span_size);
		free(region->mappings);
		free(region);
	}
	free(*regions);
	*regions = NULL;
}

int regions_add(struct regions *regions, uint8_t shmid, uint64_t size, struct err *err)
{
	if (regions->by_shmid[shmid])
		return err_set(err, -EEXIST, "region %u is configured twice", shmid);

	struct region *region = calloc(1, sizeof(*region));
	if (!region)
		return err_set(err, -ENOMEM, "out of memory");
	region->size = size;
	region->span_size = (size_t)(size + REGION_ALIGN);
	region->span =
		range_overflows(size, REGION_ALIGN)
			? MAP_FAILED
			: mmap(NULL, region->span_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region->span == MAP_FAILED) {
		free(region);
		return err_set(err, -ENOMEM, "cannot reserve %s of address space for region %u: choose a smaller one",
			size_format(size).text, shmid);
	}
	uintptr_t start = (uintptr_t)region->span;
	region->base = (uint8_t *)region->span + ((REGION_ALIGN - start % REGION_ALIGN) % REGION_ALIGN);
	regions->by_shmid[shmid] = region;
	return 0;
}

/* The index of the first mapping that ends behind `shm_offset`. */
static size_t lower_bound(const struct region *region, uint64_t shm_offset)
{
	size_t low = 0, high = region->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct mapping *mapping = region->mappings[middle];
		if (mapping->shm_offset + mapping->len <= shm_offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int find_region(
	const struct regions *regions, const struct mrshare_mmap *mmap, struct region **ret_region, struct err *err)
{
	struct region *region = regions->by_shmid[mmap->shmid];
	if (!region)
		return err_set(err, -ENXIO, "region %u is not configured (--shmem)", mmap->shmid);
	if (!range_fits(mmap->shm_offset, mmap->len, region->size))
		return err_set(err, -ERANGE, "[%#" PRIx64 ", %#" PRIx64 ") is not inside region %u, which has %s",
			mmap->shm_offset, mmap->shm_offset + mmap->len, mmap->shmid, size_format(region->size).text);
	*ret_region = region;
	return 0;
}

static int check_limits(const struct regions *regions, uint64_t len, uint64_t owner, struct err *err)
{
	const struct regions_limits *limits = &regions->limits;
	size_t count = 0;
	uint64_t bytes = 0;
	for (size_t shmid = 0; shmid < 256; shmid++) {
		const struct region *region = regions->by_shmid[shmid];
		for (size_t i = 0; region && i < region->count; i++) {
			if (region->mappings[i]->owner == owner) {
				count++;
				bytes += region->mappings[i]->len;
			}
		}
	}

	if (regions->mapping_count >= limits->max_mappings)
		return err_set(err, -EDQUOT, "there are %zu mappings already (--max-mappings)", regions->mapping_count);
	if (owner && count >= limits->max_mappings_each)
		return err_set(err, -EDQUOT, "this provider has %zu mappings already (--max-mappings)", count);
	if (!range_fits(regions->bytes, len, limits->max_bytes))
		return err_set(err, -EDQUOT,
			"%" PRIu64 " bytes are mapped already, %" PRIu64 " are allowed (--max-bytes)", regions->bytes,
			limits->max_bytes);
	if (owner && !range_fits(bytes, len, limits->max_bytes_each))
		return err_set(err, -EDQUOT,
			"this provider has mapped %" PRIu64 " bytes already, %" PRIu64 " are allowed (--max-bytes)",
			bytes, limits->max_bytes_each);
	return 0;
}

static int insert(struct region *region, size_t at, struct mapping *mapping)
{
	if (region->count == region->room) {
		size_t room = region->room ? 2 * region->room : 16;
		struct mapping **mappings = reallocarray(region->mappings, room, sizeof(*mappings));
		if (!mappings)
			return -ENOMEM;
		region->mappings = mappings;
		region->room = room;
	}
	memmove(&region->mappings[at + 1], &region->mappings[at], (region->count - at) * sizeof(*region->mappings));
	region->mappings[at] = mapping;
	region->count++;
	return 0;
}

static int say_overlap(const struct mrshare_mmap *mmap, const struct mapping *other, struct err *err)
{
	char owner[40] = "which is static";
	if (other->owner)
		snprintf(owner, sizeof(owner), "provider %" PRIu64 "'s", other->owner);
	return err_set(err, -EEXIST, "[%#" PRIx64 ", %#" PRIx64 ") overlaps a mapping in %s, %s", mmap->shm_offset,
		mmap->shm_offset + mmap->len, mapping_format(other).text, owner);
}

int regions_claim(struct regions *regions, const struct mrshare_mmap *mmap, uint64_t owner, struct mapping *ret_mapping,
	struct err *err)
{
	struct region *region;
	int r = find_region(regions, mmap, &region, err);
	if (r < 0)
		return r;

	size_t at = lower_bound(region, mmap->shm_offset);
	if (at < region->count) {
		const struct mapping *next = region->mappings[at];
		if (ranges_overlap(mmap->shm_offset, mmap->len, next->shm_offset, next->len))
			return say_overlap(mmap, next, err);
	}
	r = check_limits(regions, mmap->len, owner, err);
	if (r < 0)
		return r;

	if (insert(region, at, ret_mapping) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	*ret_mapping = (struct mapping){
		.region = region,
		.id = ++regions->last_id,
		.owner = owner,
		.shmid = mmap->shmid,
		.writable = mmap->flags & MRSHARE_MMAP_WRITABLE,
		.shm_offset = mmap->shm_offset,
		.len = mmap->len,
		.fd_offset = mmap->fd_offset,
		.addr = region->base + mmap->shm_offset,
	};
	regions->mapping_count++;
	regions->bytes += mmap->len;
	return 0;
}

int regions_find(struct regions *regions, const struct mrshare_mmap *mmap, uint64_t owner, struct mapping **ret_mapping,
	struct err *err)
{
	struct region *region;
	int r = find_region(regions, mmap, &region, err);
	if (r < 0)
		return r;

	size_t at = lower_bound(region, mmap->shm_offset);
	struct mapping *mapping = at < region->count ? region->mappings[at] : NULL;
	if (!mapping || mapping->shm_offset != mmap->shm_offset || mapping->len != mmap->len)
		return err_set(err, -ENOENT, "no mapping is exactly region %u [%#" PRIx64 ", %#" PRIx64 ")",
			mmap->shmid, mmap->shm_offset, mmap->shm_offset + mmap->len);
	if (mapping->owner != owner)
		return err_set(err, -EPERM, "%s is %s", mapping_format(mapping).text,
			mapping->owner ? "another provider's" : "static (--map)");
	*ret_mapping = mapping;
	return 0;
}

void regions_release(struct regions *regions, const struct mapping *mapping)
{
	struct region *region = mapping->region;
	size_t at = lower_bound(region, mapping->shm_offset);
	region->count--;
	memmove(&region->mappings[at], &region->mappings[at + 1], (region->count - at) * sizeof(*region->mappings));
	regions->mapping_count--;
	regions->bytes -= mapping->len;
}

size_t regions_count(const struct regions *regions)
{
	return regions->mapping_count;
}

int mapping_place(const struct mapping *mapping, int fd, int prot)
{
	void *addr =
		mmap(mapping->addr, (size_t)mapping->len, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)mapping->fd_offset);
	return addr == MAP_FAILED ? -errno : 0;
}

int mapping_clear(const struct mapping *mapping)
{
	void *addr = mmap(mapping->addr, (size_t)mapping->len, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return addr == MAP_FAILED ? -errno : 0;
}
