/* sync.h: makes files durable on a worker: one sync at a time, for everyone who asks meanwhile. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_SYNC_H
#define DAEMON_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker.h"

struct syncer;

enum { SYNC_FILES_MAX = 64 }; /* descriptors that a sync has at a time */

/* Who waits for a sync. Filled by sync_ask(). */
struct sync_waiter {
	struct sync_waiter *next;
	/* 0, or a negative errno with `err` in words that name the file. */
	void (*done)(void *data, int result, const struct err *err);
	void *data;
};

/* Calls sync_add() for each file that is to be durable and has an id below `below`, from the highest on. */
typedef int sync_collect_fn(void *data, struct syncer *syncer, uint64_t below, struct err *err);

/* -ENOMEM. */
int syncer_new(struct worker_pool *pool, sync_collect_fn *collect, void *data, struct syncer **ret_syncer);
/* One more file. `fd` may be closed afterwards; `name` is for people. 1: it is taken; 0: no more are taken for now. */
int sync_add(struct syncer *syncer, uint64_t id, int fd, const char *name, struct err *err);

/* Asks for a sync that starts from now on. 0: `waiter->done` follows, never from inside the call; 1: there is no file
 * to sync; or a negative errno. */
int sync_ask(struct syncer *syncer, struct sync_waiter *waiter, struct err *err);
/* The waiter is not to be told any more. It may be none. */
void sync_forget(struct syncer *syncer, struct sync_waiter *waiter);
/* The file that the running sync waits for. Valid until the next call. */
const char *sync_waits_for(struct syncer *syncer);

#endif
