/* worker.h: a pool of threads for what may block: jobs in, results out, an fd that tells of results. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Threads are made when a job finds none idle, up to a limit, and end when idle for long. Small jobs overtake big ones,
 * of which only a few run at a time, and never on the last thread; a big job that has run for WORKER_STUCK_MS no longer
 * counts, nor does its thread, so that one that hangs holds up nothing but itself. That goes for WORKER_STUCK_MAX of
 * them. A pool with one thread has no other, and runs its jobs in the order of their submission.
 */

enum { WORKER_STUCK_MS = 10000, WORKER_STUCK_MAX = 64 };

struct worker_pool;

/* Embed it in what the job works on; that belongs to the job from worker_pool_submit() until `done` is called. */
struct job {
	void (*run)(struct job *job);  /* on a worker */
	void (*done)(struct job *job); /* on the loop's thread, in worker_pool_collect() */
	bool big;

	struct job *next;    /* the pool's */
	uint64_t started_ms; /* the pool's */
};

/* `name` shows up in ps and top (15 bytes). At most `max_threads` threads that count, `max_big` of them with big jobs.
 * One thread exists from the start. Errors: -ENOMEM, -EAGAIN, -EMFILE. */
int worker_pool_new(const char *name, unsigned int max_threads, unsigned int max_big, struct worker_pool **ret_pool);
/* A higher limit. A lower one is not taken: those that it was made for may be there still. */
void worker_pool_raise_max(struct worker_pool *pool, unsigned int max_threads);
/* Readable when worker_pool_collect() has something to do. */
int worker_pool_fd(const struct worker_pool *pool);
void worker_pool_submit(struct worker_pool *pool, struct job *job);
/* Calls `done` of every finished job. */
void worker_pool_collect(struct worker_pool *pool);
/* Joins nobody: a thread in a job that hangs keeps what it needs. No `done` is called any more. */
void worker_pool_free(struct worker_pool **pool);

#endif
