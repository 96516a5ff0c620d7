/* memory.c: the memory that a front-end lends us: tables, their checks, and accesses. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/memory.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/range.h"
#include "vhost/guard.h"

enum { PAGE = 4096 };

_Static_assert((int)MEMORY_ENTRIES_MAX <= (int)GUARD_RANGES_MAX, "each entry has a range");

/* Mapped memory, shared by the tables that have it. */
struct lent {
	atomic_uint refs;
	void *start;
	size_t len;
	size_t page;
	char *first; /* the entry's first byte */
};

struct slot {
	struct memory_entry entry;
	int fd; /* -1: it came from another table, or is mapped already */
	dev_t dev;
	ino_t ino;
	bool is_own;
	bool is_regular;
	struct lent *lent; /* NULL: not mapped */
};

struct memory {
	struct slot slots[MEMORY_ENTRIES_MAX];
	unsigned int count;
	struct guard guard;
};

/*
 * Tables.
 */

static int check_entry(const struct memory_entry *entry, bool same_addresses, struct err *err)
{
	if (entry->size == 0)
		return err_set(err, -EINVAL, "its size is 0");
	if (range_overflows(entry->guest_addr, entry->size) || range_overflows(entry->user_addr, entry->size) ||
		range_overflows(entry->mmap_offset, entry->size))
		return err_set(err, -EINVAL, "address + size is more than 64 bits hold");
	if (!is_aligned(entry->guest_addr | entry->user_addr | entry->size | entry->mmap_offset, PAGE))
		return err_set(err, -EINVAL, "addresses, size and offset must be multiples of %d", PAGE);
	if (same_addresses && entry->guest_addr != entry->user_addr)
		return err_set(err, -EINVAL,
			"its two addresses differ, %#" PRIx64 " and %#" PRIx64 ", though GPA_ADDRESSES is acknowledged",
			entry->guest_addr, entry->user_addr);
	return 0;
}

/* Adds an entry, and takes the fd if it succeeds. */
static int add_entry(
	struct memory *memory, const struct memory_entry *entry, int *fd, bool same_addresses, struct err *err)
{
	if (memory->count == MEMORY_ENTRIES_MAX)
		return err_set(err, -ENOSPC, "a memory table has at most %d entries", MEMORY_ENTRIES_MAX);
	int r = check_entry(entry, same_addresses, err);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < memory->count; i++) {
		const struct memory_entry *other = &memory->slots[i].entry;
		if (ranges_overlap(entry->guest_addr, entry->size, other->guest_addr, other->size) ||
			ranges_overlap(entry->user_addr, entry->size, other->user_addr, other->size))
			return err_set(err, -EINVAL, "it overlaps entry %u", i);
	}
	memory->slots[memory->count++] = (struct slot){ .entry = *entry, .fd = *fd };
	*fd = -1;
	return 0;
}

static struct memory *table_new(void)
{
	guard_install();
	return calloc(1, sizeof(struct memory));
}

static void copy_slot(struct memory *memory, const struct slot *slot)
{
	memory->slots[memory->count++] = *slot;
	if (slot->lent)
		atomic_fetch_add(&slot->lent->refs, 1);
}

static void set_guard(struct memory *memory)
{
	memory->guard.count = 0;
	for (unsigned int i = 0; i < memory->count; i++) {
		const struct lent *lent = memory->slots[i].lent;
		if (lent)
			memory->guard.ranges[memory->guard.count++] =
				(struct guard_range){ (uintptr_t)lent->start, lent->len, lent->page };
	}
}

int memory_new(const struct memory_entry *entries, unsigned int count, int *fds, bool same_addresses,
	struct memory **ret_memory, struct err *err)
{
	struct memory *memory = table_new();
	if (!memory)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < count; i++) {
		int r = add_entry(memory, &entries[i], &fds[i], same_addresses, err);
		if (r < 0) {
			/* Nothing was done to the fds so far: the caller has them as before. */
			for (unsigned int k = 0; k < i; k++)
				fds[k] = memory->slots[k].fd;
			free(memory);
			err_prefix(err, "memory entry %u", i);
			return r;
		}
	}
	*ret_memory = memory;
	return 0;
}

int memory_new_with(const struct memory *base, const struct memory_entry *entry, int *fd, bool same_addresses,
	struct memory **ret_memory, struct err *err)
{
	struct memory *memory = table_new();
	if (!memory)
		return err_set(err, -ENOMEM, "out of memory");
	/* References are taken when nothing can fail any more, for giving one back may unmap. */
	if (base) {
		memcpy(memory->slots, base->slots, sizeof(base->slots));
		memory->count = base->count;
	}
	int r = add_entry(memory, entry, fd, same_addresses, err);
	if (r < 0) {
		free(memory);
		return r;
	}
	memory->count = 0;
	for (unsigned int i = 0; base && i < base->count; i++)
		copy_slot(memory, &base->slots[i]);
	memory->count++;
	atomic_store(&memory->guard.broken, base && memory_is_broken(base));
	set_guard(memory);
	*ret_memory = memory;
	return 0;
}

int memory_new_without(
	const struct memory *base, const struct memory_entry *entry, struct memory **ret_memory, struct err *err)
{
	unsigned int gone = 0;
	for (; gone < base->count; gone++) {
		const struct memory_entry *other = &base->slots[gone].entry;
		if (other->guest_addr == entry->guest_addr && other->user_addr == entry->user_addr &&
			other->size == entry->size)
			break;
	}
	if (gone == base->count)
		return err_set(err, -ENOENT, "the memory table has no such entry");
	struct memory *memory = table_new();
	if (!memory)
		return err_set(err, -ENOMEM, "out of memory");
	for (unsigned int i = 0; i < base->count; i++) {
		if (i != gone)
			copy_slot(memory, &base->slots[i]);
	}
	atomic_store(&memory->guard.broken, memory_is_broken(base));
	set_guard(memory);
	*ret_memory = memory;
	return 0;
}

/*
 * On workers.
 */

/* What the kernel knows of the file: it may be one of a provider's, of which a front-end is not to wait for the server.
 */
static int look_at_file(struct slot *slot, struct err *err)
{
	struct statx st;
	if (statx(slot->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_SIZE, &st) < 0)
		return err_set(err, -errno, "looking at its file: %s", strerror(errno));
	/* A character device may be device DAX, which a mapping of ours can be of. */
	if (!S_ISREG(st.stx_mode) && !S_ISCHR(st.stx_mode))
		return err_set(err, -ENODEV, "its file descriptor is of no file with memory");
	if (S_ISREG(st.stx_mode) && !range_fits(slot->entry.mmap_offset, slot->entry.size, st.stx_size))
		return err_set(err, -EFBIG, "its file has %" PRIu64 " bytes, fewer than offset + size = %" PRIu64,
			(uint64_t)st.stx_size, slot->entry.mmap_offset + slot->entry.size);
	slot->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	slot->ino = st.stx_ino;
	slot->is_regular = S_ISREG(st.stx_mode);
	return 0;
}

int memory_look(struct memory *memory, struct err *err)
{
	for (unsigned int i = 0; i < memory->count; i++) {
		if (memory->slots[i].fd < 0)
			continue;
		int r = look_at_file(&memory->slots[i], err);
		if (r < 0) {
			err_prefix(err, "memory entry %u", i);
			return r;
		}
	}
	return 0;
}

/* The page size of a file on a file system made of memory; of others 0. */
static int find_page(const struct slot *slot, size_t *ret_page, struct err *err)
{
	struct statfs fs;
	*ret_page = 0;
	/* Only files made of memory can be sealed; asking another for its file system may wait for a server. */
	if (!slot->is_regular || fcntl(slot->fd, F_GET_SEALS) < 0)
		return 0;
	if (fstatfs(slot->fd, &fs) < 0)
		return err_set(err, -errno, "looking at its file system: %s", strerror(errno));
	*ret_page = (uint32_t)fs.f_type == HUGETLBFS_MAGIC ? (size_t)fs.f_bsize : (size_t)sysconf(_SC_PAGESIZE);
	return 0;
}

/* Maps whole pages around the entry, which with huge pages need not begin or end with one. */
static int map_slot(struct slot *slot, uint64_t *left, struct err *err)
{
	size_t page;
	int r = find_page(slot, &page, err);
	if (r < 0 || !page)
		return r;
	if (slot->entry.size > *left)
		return err_set(err, -E2BIG,
			"with it there were more bytes than one front-end's memory can have here: for larger guests "
			"lower --max-front-ends");
	*left -= slot->entry.size;
	struct lent *lent = calloc(1, sizeof(*lent));
	if (!lent)
		return err_set(err, -ENOMEM, "out of memory");
	uint64_t mask = page - 1, offset = slot->entry.mmap_offset & ~mask;
	size_t before = slot->entry.mmap_offset & mask;
	*lent = (struct lent){ .refs = 1, .len = (before + slot->entry.size + mask) & ~mask, .page = page };
	lent->start =
		mmap(NULL, lent->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, slot->fd, (off_t)offset);
	if (lent->start == MAP_FAILED) {
		int code = -errno;
		free(lent);
		return err_set(err, code, "mapping it: %s", strerror(-code));
	}
	lent->first = (char *)lent->start + before;
	slot->lent = lent;
	return 0;
}

int memory_map(struct memory *memory, uint64_t max_bytes, struct err *err)
{
	uint64_t left = max_bytes;
	for (unsigned int i = 0; i < memory->count; i++) {
		const struct slot *slot = &memory->slots[i];
		/* Those from the table before fitted into as much. */
		left -= slot->lent ? slot->entry.size : 0;
	}
	int r = 0;
	for (unsigned int i = 0; i < memory->count; i++) {
		struct slot *slot = &memory->slots[i];
		if (slot->fd >= 0 && r == 0 && !slot->is_own) {
			r = map_slot(slot, &left, err);
			if (r < 0)
				err_prefix(err, "memory entry %u", i);
		}
		fd_close(&slot->fd);
	}
	set_guard(memory);
	return r;
}

void memory_free(struct memory **memory)
{
	for (unsigned int i = 0; *memory && i < (*memory)->count; i++) {
		struct slot *slot = &(*memory)->slots[i];
		fd_close(&slot->fd);
		if (slot->lent && atomic_fetch_sub(&slot->lent->refs, 1) == 1) {
			munmap(slot->lent->start, slot->lent->len);
			free(slot->lent);
		}
	}
	free(*memory);
	*memory = NULL;
}

/*
 * On the loop.
 */

void memory_mark_own(struct memory *memory, bool (*is_own)(void *data, dev_t dev, ino_t ino), void *data)
{
	for (unsigned int i = 0; i < memory->count; i++) {
		struct slot *slot = &memory->slots[i];
		if (slot->fd >= 0)
			slot->is_own = is_own(data, slot->dev, slot->ino);
	}
}

unsigned int memory_foreign_count(const struct memory *memory)
{
	unsigned int count = 0;
	for (unsigned int i = 0; i < memory->count; i++)
		count += !memory->slots[i].is_own;
	return count;
}

bool memory_is_broken(const struct memory *memory)
{
	return atomic_load(&memory->guard.broken);
}

static int find(const struct memory *memory, enum memory_kind kind, uint64_t addr, uint64_t len, char **ret_at)
{
	if (memory_is_broken(memory))
		return -EIO;
	for (unsigned int i = 0; i < memory->count; i++) {
		const struct slot *slot = &memory->slots[i];
		uint64_t start = kind == MEMORY_GUEST_ADDR ? slot->entry.guest_addr : slot->entry.user_addr;
		if (slot->lent && addr >= start && range_fits(addr - start, len, slot->entry.size)) {
			*ret_at = slot->lent->first + (addr - start);
			return 0;
		}
	}
	return -EFAULT;
}

static int leave(const struct memory *memory)
{
	guard_leave();
	return memory_is_broken(memory) ? -EIO : 0;
}

int memory_check(const struct memory *memory, enum memory_kind kind, uint64_t addr, uint64_t len)
{
	char *at;
	return find(memory, kind, addr, len, &at);
}

int memory_read(struct memory *memory, enum memory_kind kind, uint64_t addr, void *ret_buf, size_t len)
{
	char *at;
	int r = find(memory, kind, addr, len, &at);
	if (r < 0)
		return r;
	guard_enter(&memory->guard);
	memcpy(ret_buf, at, len);
	return leave(memory);
}

int memory_write(struct memory *memory, enum memory_kind kind, uint64_t addr, const void *buf, size_t len)
{
	char *at;
	int r = find(memory, kind, addr, len, &at);
	if (r < 0)
		return r;
	guard_enter(&memory->guard);
	memcpy(at, buf, len);
	return leave(memory);
}

/* Aligned for the processor where the address is: entries begin with a page. */
static int find_u16(const struct memory *memory, enum memory_kind kind, uint64_t addr, _Atomic uint16_t **ret_at)
{
	char *at;
	int r = is_aligned(addr, sizeof(uint16_t)) ? find(memory, kind, addr, sizeof(uint16_t), &at) : -EFAULT;
	if (r == 0)
		*ret_at = (_Atomic uint16_t *)(void *)at;
	return r;
}

int memory_load_u16(struct memory *memory, enum memory_kind kind, uint64_t addr, uint16_t *ret_value)
{
	_Atomic uint16_t *at;
	int r = find_u16(memory, kind, addr, &at);
	if (r < 0)
		return r;
	guard_enter(&memory->guard);
	*ret_value = le16toh(atomic_load_explicit(at, memory_order_acquire));
	return leave(memory);
}

int memory_store_u16(struct memory *memory, enum memory_kind kind, uint64_t addr, uint16_t value)
{
	_Atomic uint16_t *at;
	int r = find_u16(memory, kind, addr, &at);
	if (r < 0)
		return r;
	guard_enter(&memory->guard);
	atomic_store_explicit(at, htole16(value), memory_order_release);
	return leave(memory);
}
