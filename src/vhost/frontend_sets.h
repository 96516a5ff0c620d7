/* frontend_sets.h: what a front-end should hold, what it may hold, and the request that comes next. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_FRONTEND_SETS_H
#define VHOST_FRONTEND_SETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mrshare.h"

/*
 * A front-end may be sent requests from a start to the stop after it only, one at a time. It keeps what it holds over a
 * stop, drops it at a reset, and tells neither: so at a start everything held before is uncertain. What is no longer
 * wanted is then taken back, whatever the answer is; what is wanted is announced, and for what was held before a
 * refusal means that it is there still. What is wanted is never taken back and announced again: a guest may live on it.
 *
 * All is pure: nothing here sends, receives or logs.
 */

enum { SETS_TABLE_MAX = 8 }; /* regions of a front-end's memory table, in which mappings share the room with its own */

enum sets_held {
	SETS_ABSENT,    /* -> HELD (announced), REFUSED */
	SETS_HELD,      /* -> UNCERTAIN (start), ABSENT (taken back) */
	SETS_UNCERTAIN, /* -> HELD (announced, or there still), ABSENT (taken back) */
	SETS_REFUSED,   /* -> ABSENT (start: it is tried again) */
};

struct sets_entry {
	struct sets_entry *next;
	uint64_t id; /* the mapping's, and its age: lower is older */
	struct mrshare_mmap mmap;
	int fd; /* the mapping's owner's, which stays open until the mapping is withdrawn */
	bool is_static;
	bool wanted; /* not withdrawn */
	enum sets_held held;
};

struct sets {
	struct sets_entry *entries; /* static ones first, then by age */
	bool running;
	unsigned int foreign;     /* entries of the front-end's table that are not ours */
	struct sets_entry *asked; /* of the request without an answer, or NULL */
	bool asked_unmap;         /* which request that is */
	bool asked_before_start;  /* a start came since it was sent */
	bool settled;             /* nothing is to be asked, until something changes */
};

enum sets_request { SETS_NOTHING, SETS_MAP, SETS_UNMAP };

/* What an answer meant, for the log. */
enum sets_outcome { SETS_ANNOUNCED, SETS_THERE_STILL, SETS_WAS_REFUSED, SETS_TAKEN_BACK };

/* -ENOMEM. */
int sets_add(struct sets *sets, uint64_t id, const struct mrshare_mmap *mmap, int fd, bool is_static);
/* The mapping is no longer wanted. True: it is not held, and forgotten. False: sets_answer() will say when it is. */
bool sets_withdraw(struct sets *sets, uint64_t id);
void sets_start(struct sets *sets);
void sets_stop(struct sets *sets);
/* A table was accepted that has so many entries which are not ours. */
void sets_set_foreign(struct sets *sets, unsigned int foreign);
void sets_free(struct sets *sets);

/* The request to send now, if any; `ret_entry` is its entry. It counts as sent. */
enum sets_request sets_next(struct sets *sets, const struct sets_entry **ret_entry);
/* The request was answered. `ret_forgotten`: its mapping was withdrawn before, and is now known not to be held. */
enum sets_outcome sets_answer(struct sets *sets, uint64_t result, bool *ret_forgotten);
/* The request was not sent after all. */
void sets_unask(struct sets *sets);
/* Its answer will never come. */
void sets_lose(struct sets *sets);

/* NULL: there is none. */
const struct sets_entry *sets_find(const struct sets *sets, uint64_t id);

/* Mappings that are wanted but do not fit into the front-end's table. */
unsigned int sets_surplus(const struct sets *sets);
/* Bytes of a region that the front-end has, as far as is known. */
uint64_t sets_held_bytes(const struct sets *sets, uint8_t shmid);

#endif
