/* mmap.c: the map request, VhostUserMMap, read from and written to exactly its bytes or an end of a longer buffer. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/range.h"
#include "mrshare.h"

/* The struct is the wire form: no byte of it may be the compiler's. */
static_assert(sizeof(struct mrshare_mmap) == MRSHARE_MMAP_SIZE, "VhostUserMMap has 40 bytes");
static_assert(offsetof(struct mrshare_mmap, fd_offset) == 8, "place of fd_offset");
static_assert(offsetof(struct mrshare_mmap, shm_offset) == 16, "place of shm_offset");
static_assert(offsetof(struct mrshare_mmap, len) == 24, "place of len");
static_assert(offsetof(struct mrshare_mmap, flags) == 32, "place of flags");

struct mrshare_mmap mrshare_mmap_zero(void)
{
	return (struct mrshare_mmap){ 0 };
}

int mrshare_mmap_read(const void *buf, size_t size, struct mrshare_mmap *ret_mmap)
{
	if (size != MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	memcpy(ret_mmap, buf, MRSHARE_MMAP_SIZE);
	return 0;
}

int mrshare_mmap_read_prefix(const void *buf, size_t size, struct mrshare_mmap *ret_mmap, size_t *ret_left)
{
	if (size < MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	memcpy(ret_mmap, buf, MRSHARE_MMAP_SIZE);
	*ret_left = size - MRSHARE_MMAP_SIZE;
	return 0;
}

int mrshare_mmap_read_suffix(const void *buf, size_t size, struct mrshare_mmap *ret_mmap, size_t *ret_left)
{
	if (size < MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	size_t before = size - MRSHARE_MMAP_SIZE;
	memcpy(ret_mmap, (const uint8_t *)buf + before, MRSHARE_MMAP_SIZE);
	*ret_left = before;
	return 0;
}

int mrshare_mmap_write(const struct mrshare_mmap *mmap, void *buf, size_t size)
{
	if (size != MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	memcpy(buf, mmap, MRSHARE_MMAP_SIZE);
	return 0;
}

int mrshare_mmap_write_prefix(const struct mrshare_mmap *mmap, void *buf, size_t size)
{
	if (size < MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	memcpy(buf, mmap, MRSHARE_MMAP_SIZE);
	return 0;
}

int mrshare_mmap_write_suffix(const struct mrshare_mmap *mmap, void *buf, size_t size)
{
	if (size < MRSHARE_MMAP_SIZE)
		return -EMSGSIZE;
	memcpy((uint8_t *)buf + size - MRSHARE_MMAP_SIZE, mmap, MRSHARE_MMAP_SIZE);
	return 0;
}

/* The same four conditions as is_valid() of VhostUserMMap in rust-vmm's vhost crate, whose padding is free too. Not
 * covered: alignment, the region and its size, the file. */
bool mrshare_mmap_is_valid(const struct mrshare_mmap *mmap)
{
	return mmap->len && !range_overflows(mmap->fd_offset, mmap->len) &&
	       !range_overflows(mmap->shm_offset, mmap->len) && !(mmap->flags & ~(uint64_t)MRSHARE_MMAP_WRITABLE);
}
