/* worker.c: the worker pool: what runs where and in which order. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/worker.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "unit.h"

struct test_job {
	struct job job;
	int number;
	pthread_t ran_on;
	int gate; /* a pipe from which the job reads first, or -1 */
};

static int finished[64];
static unsigned int finished_count;

static void run(struct job *job)
{
	struct test_job *test = (struct test_job *)job;
	test->ran_on = pthread_self();
	char byte;
	if (test->gate >= 0 && read(test->gate, &byte, 1) != 1)
		test->number = -1;
}

static void done(struct job *job)
{
	const struct test_job *test = (const struct test_job *)job;
	finished[finished_count++] = test->number;
}

static struct test_job make_job(int number, bool big, int gate)
{
	return (struct test_job){ .job = { .run = run, .done = done, .big = big }, .number = number, .gate = gate };
}

static void collect_until(struct worker_pool *pool, unsigned int wanted)
{
	while (finished_count < wanted) {
		struct pollfd fd = { .fd = worker_pool_fd(pool), .events = POLLIN };
		ck_assert_msg(poll(&fd, 1, 20000) == 1, "wanted %u jobs done, got %u", wanted, finished_count);
		worker_pool_collect(pool);
	}
	ck_assert_uint_eq(finished_count, wanted);
}

START_TEST(one_thread_keeps_the_order)
{
	struct worker_pool *pool;
	ck_assert_int_eq(worker_pool_new("one", 1, 1, &pool), 0);
	struct test_job jobs[32];
	for (int i = 0; i < 32; i++) {
		jobs[i] = make_job(i, false, -1);
		worker_pool_submit(pool, &jobs[i].job);
	}
	collect_until(pool, 32);
	for (int i = 0; i < 32; i++) {
		ck_assert_int_eq(finished[i], i);
		ck_assert(!pthread_equal(jobs[i].ran_on, pthread_self()));
	}
	worker_pool_free(&pool);
	ck_assert_ptr_null(pool);
	worker_pool_free(&pool);
}
END_TEST

START_TEST(small_jobs_pass_hanging_big_ones)
{
	struct worker_pool *pool;
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(worker_pool_new("big", 4, 2, &pool), 0);
	struct test_job jobs[8];
	for (int i = 0; i < 8; i++) {
		jobs[i] = i < 4 ? make_job(i, true, gate[0]) : make_job(i, false, -1);
		worker_pool_submit(pool, &jobs[i].job);
	}
	collect_until(pool, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_int_ge(finished[i], 4);
	ck_assert_int_eq(write(gate[1], "1234", 4), 4);
	collect_until(pool, 8);
	worker_pool_free(&pool);
}
END_TEST

Suite *suite_worker(void)
{
	const TTest *const tests[] = { one_thread_keeps_the_order, small_jobs_pass_hanging_big_ones };
	return suite_of("worker", tests, sizeof(tests) / sizeof(tests[0]));
}
