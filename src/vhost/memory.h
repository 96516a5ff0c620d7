/* memory.h: the memory that a front-end lends us, and the only way to touch it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_MEMORY_H
#define VHOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/*
 * A table goes through these steps in this order, and whoever has it is the only one to touch it:
 *
 *     memory_new()       loop    what the message says is checked
 *     memory_look()      worker  which file it is; waits for no server of a file system
 *     memory_mark_own()  loop    which entries are files of our own mappings
 *     memory_map()       worker  all that is not our own, or nothing; no fd is open afterwards
 *     in use             loop    until the owner swaps it for another, between two requests
 *     memory_free()      worker  may follow any step
 *
 * Known but never mapped are files of our own mappings, and what is on no file system made of memory: a page of it
 * could make the loop wait. An access there fails like one outside the table. Which files are ours is asked once: guest
 * memory that a provider maps later is the guest's all the same, and its queues go on.
 *
 * The front-end may truncate a file at any time. An access to what is gone reads zeros, fails with -EIO, and breaks the
 * table for good: then that front-end is to be ended, and nothing else.
 */

enum { MEMORY_ENTRIES_MAX = 8 };

/* Of a process on x86-64, which has the least. */
#define MEMORY_ADDRESS_SPACE (UINT64_C(1) << 47)

/* One region of SET_MEM_TABLE, ADD_MEM_REG and REM_MEM_REG, in the order of its fields there. */
struct memory_entry {
	uint64_t guest_addr, size, user_addr, mmap_offset;
};

/* Which of an entry's two addresses an address is of. Descriptors always have guest addresses. */
enum memory_kind { MEMORY_GUEST_ADDR, MEMORY_USER_ADDR };

struct memory;

/* `same_addresses`: the two addresses of each entry must be equal (GPA_ADDRESSES). On success the fds are the table's,
 * and -1 in `fds`. No entries make an empty table. -EINVAL, -ENOSPC (too many), -ENOMEM. */
int memory_new(const struct memory_entry *entries, unsigned int count, int *fds, bool same_addresses,
	struct memory **ret_memory, struct err *err);
/* A table that has what `base` (which is in use, or NULL) has, and one entry more; the rest as above. */
int memory_new_with(const struct memory *base, const struct memory_entry *entry, int *fd, bool same_addresses,
	struct memory **ret_memory, struct err *err);
/* A table without the entry that has these addresses and size; it can be used at once. -ENOENT, -ENOMEM. */
int memory_new_without(
	const struct memory *base, const struct memory_entry *entry, struct memory **ret_memory, struct err *err);
int memory_look(struct memory *memory, struct err *err);
/* `is_own` is asked of each new entry. */
void memory_mark_own(struct memory *memory, bool (*is_own)(void *data, dev_t dev, ino_t ino), void *data);
/* -E2BIG where more than `max_bytes` would be mapped. */
int memory_map(struct memory *memory, uint64_t max_bytes, struct err *err);
void memory_free(struct memory **memory);

/* Entries that are not files of our own mappings. */
unsigned int memory_foreign_count(const struct memory *memory);
/* Asked after each burst of accesses. */
bool memory_is_broken(const struct memory *memory);

/*
 * Accesses. The range must lie inside one mapped entry: -EFAULT else, -EIO where the table is broken. What is read on
 * -EIO is not to be believed; on -EFAULT nothing is read.
 */
int memory_check(const struct memory *memory, enum memory_kind kind, uint64_t addr, uint64_t len);
int memory_read(struct memory *memory, enum memory_kind kind, uint64_t addr, void *ret_buf, size_t len);
int memory_write(struct memory *memory, enum memory_kind kind, uint64_t addr, const void *buf, size_t len);
/* A little-endian number at an even address; what the other side wrote before it is seen after. */
int memory_load_u16(struct memory *memory, enum memory_kind kind, uint64_t addr, uint16_t *ret_value);
/* What was written before is seen by who sees the number. */
int memory_store_u16(struct memory *memory, enum memory_kind kind, uint64_t addr, uint16_t value);

#endif
