/* sync.c: makes files durable on a worker: one sync at a time, for everyone who asks meanwhile. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What was written before a sync starts is covered by it, what comes later is not: who asks while one runs waits for
 * the next. A sync has descriptors of its own, so that a mapping can be removed while its file is being synced.
 */
#include "daemon/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fd.h"

struct sync_file {
	int fd;
	char name[160];
};

struct syncer {
	struct worker_pool *pool;
	sync_collect_fn *collect;
	void *data;
	struct sync_waiter *waiting, *covered; /* by the next sync, by the one that runs */

	struct job job;
	bool running;
	struct sync_file files[SYNC_FILES_MAX];
	size_t count;
	uint64_t last_id; /* of `files` */
	atomic_size_t at; /* the file that is being synced */
	struct err err;
};

static struct syncer *of_job(struct job *job)
{
	return container_of(job, struct syncer, job);
}

static void run(struct job *job)
{
	struct syncer *syncer = of_job(job);
	for (size_t i = 0; i < syncer->count; i++) {
		struct sync_file *file = &syncer->files[i];
		atomic_store(&syncer->at, i);
		if (fdatasync(file->fd) < 0 && !syncer->err.code)
			err_set(&syncer->err, -errno, "%s: %s", file->name, strerror(errno));
		fd_close(&file->fd);
	}
}

static void tell(struct sync_waiter **list, int result, const struct err *err)
{
	while (*list) {
		struct sync_waiter *waiter = *list;
		*list = waiter->next;
		waiter->done(waiter->data, result, err);
	}
}

/* Takes the files that are to be synced now. */
static int collect(struct syncer *syncer, uint64_t below, struct err *err)
{
	syncer->count = 0;
	int r = syncer->collect(syncer->data, syncer, below, err);
	for (size_t i = 0; r < 0 && i < syncer->count; i++)
		fd_close(&syncer->files[i].fd);
	return r;
}

static void done(struct job *job);

static void submit(struct syncer *syncer)
{
	syncer->running = true;
	atomic_store(&syncer->at, 0);
	syncer->job = (struct job){ .run = run, .done = done };
	worker_pool_submit(syncer->pool, &syncer->job);
}

/* With the first files collected. */
static void start(struct syncer *syncer)
{
	syncer->covered = syncer->waiting;
	syncer->waiting = NULL;
	syncer->err.code = 0;
	submit(syncer);
}

static void done(struct job *job)
{
	struct syncer *syncer = of_job(job);
	if (syncer->count == SYNC_FILES_MAX && !syncer->err.code &&
		collect(syncer, syncer->last_id, &syncer->err) == 0 && syncer->count) {
		submit(syncer);
		return;
	}
	struct err err = syncer->err;
	/* Who asks from inside is for the next one. */
	tell(&syncer->covered, err.code, &err);
	syncer->running = false;
	if (!syncer->waiting)
		return;
	if (collect(syncer, UINT64_MAX, &err) < 0)
		tell(&syncer->waiting, err.code, &err);
	else
		start(syncer);
}

int sync_ask(struct syncer *syncer, struct sync_waiter *waiter, struct err *err)
{
	if (!syncer->running) {
		int r = collect(syncer, UINT64_MAX, err);
		if (r < 0 || !syncer->count)
			return r < 0 ? r : 1;
	}
	waiter->next = syncer->waiting;
	syncer->waiting = waiter;
	if (!syncer->running)
		start(syncer);
	return 0;
}

static void forget(struct sync_waiter **link, const struct sync_waiter *waiter)
{
	for (; *link; link = &(*link)->next) {
		if (*link == waiter) {
			*link = waiter->next;
			return;
		}
	}
}

void sync_forget(struct syncer *syncer, struct sync_waiter *waiter)
{
	forget(&syncer->waiting, waiter);
	forget(&syncer->covered, waiter);
}

int sync_add(struct syncer *syncer, uint64_t id, int fd, const char *name, struct err *err)
{
	if (syncer->count == SYNC_FILES_MAX)
		return 0;
	struct sync_file *file = &syncer->files[syncer->count];
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0)
		return err_set(err, -errno, "%s: %s", name, strerror(errno));
	snprintf(file->name, sizeof(file->name), "%s", name);
	syncer->last_id = id;
	syncer->count++;
	return 1;
}

const char *sync_waits_for(struct syncer *syncer)
{
	return syncer->running && syncer->count ? syncer->files[atomic_load(&syncer->at)].name : "no file";
}

int syncer_new(struct worker_pool *pool, sync_collect_fn *collect_fn, void *data, struct syncer **ret_syncer)
{
	struct syncer *syncer = calloc(1, sizeof(*syncer));
	if (!syncer)
		return -ENOMEM;
	syncer->pool = pool;
	syncer->collect = collect_fn;
	syncer->data = data;
	*ret_syncer = syncer;
	return 0;
}
