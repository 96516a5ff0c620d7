/* worker.c: a pool of threads for what may block. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { IDLE_END_MS = 30000 };

struct job_queue {
	struct job *head, *tail;
};

/* A thread that runs a big job is on the pool's list until the job counts as stuck or ends. */
struct worker_pool {
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t wake;
	struct job_queue small, big, finished;
	struct job *running_big; /* those that count, linked by `next` */
	unsigned int big_count;  /* running, those that hang included */
	unsigned int threads, idle, queued, max_threads, max_big;
	bool freed;
	int event_fd;
	char name[16];
};

static void queue_push(struct job_queue *queue, struct job *job)
{
	job->next = NULL;
	if (queue->head)
		queue->tail->next = job;
	else
		queue->head = job;
	queue->tail = job;
}

static struct job *queue_pop(struct job_queue *queue)
{
	struct job *job = queue->head;
	if (job)
		queue->head = job->next;
	return job;
}

/* Those that hang leave the list. */
static void forget_stuck(struct worker_pool *pool, uint64_t now_ms)
{
	for (struct job **link = &pool->running_big; *link;) {
		if (now_ms - (*link)->started_ms >= WORKER_STUCK_MS)
			*link = (*link)->next;
		else
			link = &(*link)->next;
	}
}

static unsigned int running_big(const struct worker_pool *pool)
{
	unsigned int running = 0;
	for (const struct job *job = pool->running_big; job; job = job->next)
		running++;
	return running;
}

/* How many threads there may be, those that hang included. */
static unsigned int thread_limit(const struct worker_pool *pool)
{
	unsigned int stuck = pool->big_count - running_big(pool);
	if (pool->max_threads == 1)
		return 1;
	return pool->max_threads + (stuck < WORKER_STUCK_MAX ? stuck : WORKER_STUCK_MAX);
}

static bool big_may_start(const struct worker_pool *pool)
{
	/* One thread is always there for small jobs. */
	return running_big(pool) < pool->max_big &&
	       (pool->max_threads == 1 || pool->big_count + 1 < thread_limit(pool));
}

static struct job *next_job(struct worker_pool *pool)
{
	struct job *job = queue_pop(&pool->small);
	if (job) {
		pool->queued--;
		return job;
	}

	uint64_t now_ms = clock_ms();
	forget_stuck(pool, now_ms);
	if (!pool->big.head || !big_may_start(pool))
		return NULL;
	job = queue_pop(&pool->big);
	pool->queued--;
	job->started_ms = now_ms;
	pool->big_count++;
	job->next = pool->running_big;
	pool->running_big = job;
	return job;
}

static void finish_job(struct worker_pool *pool, struct job *job)
{
	for (struct job **link = &pool->running_big; *link; link = &(*link)->next) {
		if (*link == job) {
			*link = job->next;
			break;
		}
	}
	if (job->big)
		pool->big_count--;
	queue_push(&pool->finished, job);
	/* Its counter cannot overflow: the loop reads it. */
	ssize_t ignored = write(pool->event_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	(void)ignored;
}

static void pool_destroy(struct worker_pool *pool)
{
	fd_close(&pool->event_fd);
	pthread_cond_destroy(&pool->wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* Waits for a job. False: waited for long in vain. */
static bool wait_for_job(struct worker_pool *pool)
{
	/* With a big job queued, look again soon whether a running one counts as stuck by now. */
	uint64_t wait_ms = pool->big.head ? 1000 : IDLE_END_MS;
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(wait_ms / 1000);

	pool->idle++;
	int r = pthread_cond_timedwait(&pool->wake, &pool->lock, &until);
	pool->idle--;
	return r != ETIMEDOUT || pool->big.head || pool->small.head;
}

static void *worker_main(void *arg);

/* With the lock held. */
static int thread_start(struct worker_pool *pool)
{
	/* Signals are for the loop's thread. */
	sigset_t all, saved;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

	pthread_t thread;
	int r = pthread_create(&thread, &attr, worker_main, pool);
	if (r == 0) {
		pthread_setname_np(thread, pool->name);
		pool->threads++;
	}
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	return -r;
}

/* An idle thread may have been woken for another job already. Where no thread can be made, one that exists takes the
 * job later. */
static void add_thread(struct worker_pool *pool)
{
	forget_stuck(pool, clock_ms());
	if (pool->queued > pool->idle && pool->threads < thread_limit(pool))
		thread_start(pool);
}

static void *worker_main(void *arg)
{
	struct worker_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	while (!pool->freed) {
		struct job *job = next_job(pool);
		if (job) {
			/* There may be more threads than when the others were submitted, since one hangs. */
			if (pool->threads >= pool->max_threads)
				add_thread(pool);
			pthread_mutex_unlock(&pool->lock);
			job->run(job);
			pthread_mutex_lock(&pool->lock);
			finish_job(pool, job);
		} else if (!wait_for_job(pool) && pool->threads > 1) {
			break;
		}
	}
	bool last = --pool->threads == 0 && pool->freed;
	pthread_mutex_unlock(&pool->lock);
	if (last)
		pool_destroy(pool);
	return NULL;
}

int worker_pool_new(const char *name, unsigned int max_threads, unsigned int max_big, struct worker_pool **ret_pool)
{
	struct worker_pool *pool = calloc(1, sizeof(*pool));
	if (!pool)
		return -ENOMEM;
	pool->max_threads = max_threads;
	pool->max_big = max_big;
	snprintf(pool->name, sizeof(pool->name), "%s", name);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->wake, &attr);
	pthread_condattr_destroy(&attr);

	pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int r = pool->event_fd < 0 ? -errno : 0;
	if (r == 0) {
		pthread_mutex_lock(&pool->lock);
		r = thread_start(pool);
		pthread_mutex_unlock(&pool->lock);
	}
	if (r < 0) {
		pool_destroy(pool);
		return r;
	}
	*ret_pool = pool;
	return 0;
}

void worker_pool_raise_max(struct worker_pool *pool, unsigned int max_threads)
{
	pthread_mutex_lock(&pool->lock);
	if (pool->max_threads < max_threads)
		pool->max_threads = max_threads;
	pthread_mutex_unlock(&pool->lock);
}

int worker_pool_fd(const struct worker_pool *pool)
{
	return pool->event_fd;
}

void worker_pool_submit(struct worker_pool *pool, struct job *job)
{
	pthread_mutex_lock(&pool->lock);
	queue_push(job->big ? &pool->big : &pool->small, job);
	pool->queued++;
	add_thread(pool);
	pthread_cond_signal(&pool->wake);
	pthread_mutex_unlock(&pool->lock);
}

void worker_pool_collect(struct worker_pool *pool)
{
	uint64_t count;
	ssize_t ignored = read(pool->event_fd, &count, sizeof(count));
	(void)ignored;

	pthread_mutex_lock(&pool->lock);
	struct job_queue finished = pool->finished;
	pool->finished = (struct job_queue){ 0 };
	pthread_mutex_unlock(&pool->lock);

	struct job *job;
	while ((job = queue_pop(&finished)))
		job->done(job);
}

void worker_pool_free(struct worker_pool **pool)
{
	if (!*pool)
		return;
	pthread_mutex_lock(&(*pool)->lock);
	(*pool)->freed = true;
	pthread_cond_broadcast(&(*pool)->wake);
	pthread_mutex_unlock(&(*pool)->lock);
	*pool = NULL;
}
