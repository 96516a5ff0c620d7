/* fake_worker.c: stands in for base/worker.c: jobs run on the loop's thread, one after the other, when it collects. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/worker.h"

struct worker_pool {
	int event_fd;
	struct job *head, **tail;
};

int worker_pool_new(const char *name, unsigned int max_threads, unsigned int max_big, struct worker_pool **ret_pool)
{
	struct worker_pool *pool = calloc(1, sizeof(*pool));
	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pool->tail = &pool->head;
	*ret_pool = pool;
	return 0;
}

void worker_pool_raise_max(struct worker_pool *pool, unsigned int max_threads)
{
}

int worker_pool_fd(const struct worker_pool *pool)
{
	return pool->event_fd;
}

void worker_pool_submit(struct worker_pool *pool, struct job *job)
{
	job->next = NULL;
	*pool->tail = job;
	pool->tail = &job->next;
	eventfd_write(pool->event_fd, 1);
}

void worker_pool_collect(struct worker_pool *pool)
{
	eventfd_t ignored;
	eventfd_read(pool->event_fd, &ignored);
	struct job *job = pool->head;
	pool->head = NULL;
	pool->tail = &pool->head;
	while (job) {
		struct job *next = job->next;
		job->run(job);
		job->done(job);
		job = next;
	}
}

void worker_pool_free(struct worker_pool **pool)
{
	close((*pool)->event_fd);
	free(*pool);
	*pool = NULL;
}
