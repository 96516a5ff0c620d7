/* frontend_sets.c: what a front-end should hold, what it may hold, and the request that comes next. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/frontend_sets.h"

#include <errno.h>
#include <stdlib.h>

static bool may_be_held(const struct sets_entry *entry)
{
	return entry->held == SETS_HELD || entry->held == SETS_UNCERTAIN;
}

static bool is_before(const struct sets_entry *a, const struct sets_entry *b)
{
	return a->is_static != b->is_static ? a->is_static : a->id < b->id;
}

int sets_add(struct sets *sets, uint64_t id, const struct mrshare_mmap *mmap, int fd, bool is_static)
{
	struct sets_entry *entry = calloc(1, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	*entry = (struct sets_entry){ .id = id, .mmap = *mmap, .fd = fd, .is_static = is_static, .wanted = true };
	struct sets_entry **link = &sets->entries;
	while (*link && is_before(*link, entry))
		link = &(*link)->next;
	entry->next = *link;
	*link = entry;
	sets->settled = false;
	return 0;
}

/* Forgets an entry that is neither wanted nor held nor asked for. */
static bool forget(struct sets *sets, struct sets_entry *entry)
{
	if (entry->wanted || may_be_held(entry) || sets->asked == entry)
		return false;
	struct sets_entry **link = &sets->entries;
	while (*link != entry)
		link = &(*link)->next;
	*link = entry->next;
	free(entry);
	return true;
}

static struct sets_entry *find(const struct sets *sets, uint64_t id)
{
	struct sets_entry *entry = sets->entries;
	while (entry && entry->id != id)
		entry = entry->next;
	return entry;
}

const struct sets_entry *sets_find(const struct sets *sets, uint64_t id)
{
	return find(sets, id);
}

bool sets_withdraw(struct sets *sets, uint64_t id)
{
	struct sets_entry *entry = find(sets, id);
	if (!entry)
		return true;
	entry->wanted = false;
	sets->settled = false;
	return forget(sets, entry);
}

void sets_start(struct sets *sets)
{
	sets->running = true;
	sets->settled = false;
	sets->asked_before_start = sets->asked != NULL;
	for (struct sets_entry *entry = sets->entries; entry; entry = entry->next) {
		if (entry->held == SETS_HELD)
			entry->held = SETS_UNCERTAIN;
		else if (entry->held == SETS_REFUSED)
			entry->held = SETS_ABSENT;
	}
}

void sets_stop(struct sets *sets)
{
	sets->running = false;
}

void sets_set_foreign(struct sets *sets, unsigned int foreign)
{
	sets->foreign = foreign;
	sets->settled = false;
}

void sets_free(struct sets *sets)
{
	while (sets->entries) {
		struct sets_entry *entry = sets->entries;
		sets->entries = entry->next;
		free(entry);
	}
	*sets = (struct sets){ 0 };
}

static unsigned int room_of(const struct sets *sets)
{
	return sets->foreign < SETS_TABLE_MAX ? SETS_TABLE_MAX - sets->foreign : 0;
}

static unsigned int held_count(const struct sets *sets)
{
	unsigned int count = 0;
	for (const struct sets_entry *entry = sets->entries; entry; entry = entry->next)
		count += may_be_held(entry);
	return count;
}

/* What is to be taken back: what is not wanted, and of what is uncertain the last that does not fit any more. */
static struct sets_entry *next_unmap(const struct sets *sets)
{
	struct sets_entry *last_uncertain = NULL;
	for (struct sets_entry *entry = sets->entries; entry; entry = entry->next) {
		if (!entry->wanted && may_be_held(entry))
			return entry;
		if (entry->held == SETS_UNCERTAIN)
			last_uncertain = entry;
	}
	return held_count(sets) > room_of(sets) ? last_uncertain : NULL;
}

static struct sets_entry *next_map(const struct sets *sets)
{
	bool has_room = held_count(sets) < room_of(sets);
	for (struct sets_entry *entry = sets->entries; entry; entry = entry->next) {
		if (entry->wanted && (entry->held == SETS_UNCERTAIN || (entry->held == SETS_ABSENT && has_room)))
			return entry;
	}
	return NULL;
}

enum sets_request sets_next(struct sets *sets, const struct sets_entry **ret_entry)
{
	if (!sets->running || sets->asked || sets->settled)
		return SETS_NOTHING;
	sets->asked = next_unmap(sets);
	sets->asked_unmap = sets->asked != NULL;
	if (!sets->asked)
		sets->asked = next_map(sets);
	sets->asked_before_start = false;
	*ret_entry = sets->asked;
	sets->settled = !sets->asked;
	if (!sets->asked)
		return SETS_NOTHING;
	return sets->asked_unmap ? SETS_UNMAP : SETS_MAP;
}

static enum sets_outcome settle(const struct sets *sets, struct sets_entry *entry, uint64_t result)
{
	if (sets->asked_unmap) {
		entry->held = SETS_ABSENT;
		return SETS_TAKEN_BACK;
	}
	bool was_held = entry->held == SETS_UNCERTAIN;
	/* Whether the answer is older than a reset before that start is not to be known. */
	if (result == 0 || was_held)
		entry->held = sets->asked_before_start ? SETS_UNCERTAIN : SETS_HELD;
	else
		entry->held = sets->asked_before_start ? SETS_ABSENT : SETS_REFUSED;
	return result == 0 ? SETS_ANNOUNCED : was_held ? SETS_THERE_STILL : SETS_WAS_REFUSED;
}

enum sets_outcome sets_answer(struct sets *sets, uint64_t result, bool *ret_forgotten)
{
	struct sets_entry *entry = sets->asked;
	enum sets_outcome outcome = settle(sets, entry, result);
	sets->asked = NULL;
	sets->settled = false;
	*ret_forgotten = forget(sets, entry);
	return outcome;
}

void sets_unask(struct sets *sets)
{
	sets->asked = NULL;
	sets->settled = false;
}

unsigned int sets_surplus(const struct sets *sets)
{
	unsigned int absent = 0, held = held_count(sets), room = room_of(sets);
	for (const struct sets_entry *entry = sets->entries; entry; entry = entry->next)
		absent += entry->wanted && entry->held == SETS_ABSENT;
	unsigned int free_room = held < room ? room - held : 0;
	return absent > free_room ? absent - free_room : 0;
}

uint64_t sets_held_bytes(const struct sets *sets, uint8_t shmid)
{
	uint64_t bytes = 0;
	for (const struct sets_entry *entry = sets->entries; entry; entry = entry->next)
		bytes += may_be_held(entry) && entry->mmap.shmid == shmid ? entry->mmap.len : 0;
	return bytes;
}

void sets_lose(struct sets *sets)
{
	if (sets->asked)
		sets->asked->held = SETS_UNCERTAIN;
	sets->asked = NULL;
	sets->settled = false;
}
