/* worker.c: the worker pool: what runs where and in which order. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/worker.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"

struct test_job {
	struct job job;
	int number;
	pthread_t ran_on;
	int gate; /* a pipe from which the job reads first, or -1 */
};

static int finished[128];
static unsigned int finished_count;
static atomic_uint started, running, running_most;
static atomic_uint clock_ahead_s; /* of what worker.c takes for the time */

/* In the place of libc's. */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ret);
	ret->tv_sec += atomic_load(&clock_ahead_s);
	return r;
}

static void run(struct job *job)
{
	struct test_job *test = (struct test_job *)job;
	test->ran_on = pthread_self();
	unsigned int now = atomic_fetch_add(&running, 1) + 1, most = atomic_load(&running_most);
	while (now > most && !atomic_compare_exchange_weak(&running_most, &most, now))
		;
	atomic_fetch_add(&started, 1);
	char byte;
	if (test->gate >= 0 && read(test->gate, &byte, 1) != 1)
		test->number = -1;
	atomic_fetch_sub(&running, 1);
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

/* Long enough for any machine; a test that passes does not wait that long. */
static void sleep_while(bool (*is_true)(unsigned int value), unsigned int value)
{
	for (int i = 0; i < 20000 && is_true(value); i++)
		poll(NULL, 0, 1);
	ck_assert(!is_true(value));
}

static bool are_fewer_started(unsigned int count)
{
	return atomic_load(&started) < count;
}

static bool is_open(unsigned int fd)
{
	return fcntl((int)fd, F_GETFD) >= 0;
}

static struct worker_pool *new_pool(unsigned int max_threads, unsigned int max_big)
{
	struct worker_pool *pool;
	ck_assert_int_eq(worker_pool_new("test", max_threads, max_big, &pool), 0);
	return pool;
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

START_TEST(big_jobs_never_take_the_last_thread)
{
	struct worker_pool *pool = new_pool(2, 2);
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job big[2] = { make_job(100, true, gate[0]), make_job(101, true, gate[0]) }, small[20];
	worker_pool_submit(pool, &big[0].job);
	worker_pool_submit(pool, &big[1].job);
	sleep_while(are_fewer_started, 1);
	for (unsigned int i = 0; i < 20; i++) {
		small[i] = make_job((int)i, false, -1);
		worker_pool_submit(pool, &small[i].job);
		collect_until(pool, i + 1);
	}
	ck_assert_int_eq(write(gate[1], "12", 2), 2);
	collect_until(pool, 22);
	worker_pool_free(&pool);
}
END_TEST

START_TEST(one_thread_runs_big_jobs_too)
{
	struct worker_pool *pool = new_pool(1, 1);
	struct test_job big[2] = { make_job(0, true, -1), make_job(1, true, -1) };
	worker_pool_submit(pool, &big[0].job);
	worker_pool_submit(pool, &big[1].job);
	collect_until(pool, 2);
	ck_assert_int_eq(finished[0], 0);
	ck_assert(pthread_equal(big[0].ran_on, big[1].ran_on));
	worker_pool_free(&pool);
}
END_TEST

/* As many jobs as may run at a time do, and no more. */
static void assert_most(struct worker_pool *pool, bool big, unsigned int most)
{
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job jobs[10];
	for (int i = 0; i < 10; i++) {
		jobs[i] = make_job(i, big, gate[0]);
		worker_pool_submit(pool, &jobs[i].job);
	}
	sleep_while(are_fewer_started, most);
	ck_assert_int_eq(write(gate[1], "0123456789", 10), 10);
	collect_until(pool, 10);
	ck_assert_uint_eq(atomic_load(&running_most), most);
	worker_pool_free(&pool);
}

static unsigned int thread_count(void)
{
	DIR *tasks = opendir("/proc/self/task");
	ck_assert_ptr_nonnull(tasks);
	unsigned int count = 0;
	for (struct dirent *entry; (entry = readdir(tasks));)
		count += entry->d_name[0] != '.';
	closedir(tasks);
	return count;
}

START_TEST(a_burst_makes_no_more_threads_than_it_has_jobs)
{
	enum { BURST = 12 };
	unsigned int before = thread_count();
	struct worker_pool *pool = new_pool(64, 2);
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job jobs[BURST];
	for (int i = 0; i < BURST; i++) {
		jobs[i] = make_job(i, false, gate[0]);
		worker_pool_submit(pool, &jobs[i].job);
	}
	sleep_while(are_fewer_started, BURST);
	ck_assert_uint_le(thread_count(), before + 1 + BURST); /* and the one that there always is */
	ck_assert_int_eq(write(gate[1], "0123456789ab", BURST), BURST);
	collect_until(pool, BURST);
	worker_pool_free(&pool);
}
END_TEST

START_TEST(threads_are_bounded)
{
	assert_most(new_pool(3, 1), false, 3);
}
END_TEST

START_TEST(the_bound_is_raised_and_not_lowered)
{
	struct worker_pool *pool = new_pool(2, 1);
	worker_pool_raise_max(pool, 4);
	worker_pool_raise_max(pool, 1);
	assert_most(pool, false, 4);
}
END_TEST

START_TEST(big_jobs_are_bounded)
{
	assert_most(new_pool(8, 2), true, 2);
}
END_TEST

START_TEST(a_big_job_that_hangs_stops_to_count)
{
	struct worker_pool *pool = new_pool(4, 1);
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job hung = make_job(0, true, gate[0]), next = make_job(1, true, -1), small = make_job(2, false, -1);
	worker_pool_submit(pool, &hung.job);
	sleep_while(are_fewer_started, 1);
	worker_pool_submit(pool, &next.job);
	worker_pool_submit(pool, &small.job);
	collect_until(pool, 1);
	ck_assert_int_eq(finished[0], 2);
	atomic_store(&clock_ahead_s, WORKER_STUCK_MS / 1000);
	collect_until(pool, 2);
	ck_assert_int_eq(finished[1], 1);
	ck_assert_int_eq(write(gate[1], "1", 1), 1);
	collect_until(pool, 3);
	worker_pool_free(&pool);
}
END_TEST

/* As many jobs hang as there are threads for big ones; what comes later still runs, big or small. */
START_TEST(big_jobs_that_hang_take_no_threads_from_others)
{
	enum { HUNG = 3, LATER = 3 };
	struct worker_pool *pool = new_pool(HUNG + 1, HUNG);
	int gate[2], later_gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(pipe(later_gate), 0);
	struct test_job hung[HUNG], later[LATER], small = make_job(2 * HUNG, false, -1);
	for (int i = 0; i < HUNG; i++) {
		hung[i] = make_job(i, true, gate[0]);
		worker_pool_submit(pool, &hung[i].job);
	}
	sleep_while(are_fewer_started, HUNG);
	for (int i = 0; i < LATER; i++) {
		later[i] = make_job(HUNG + i, true, later_gate[0]);
		worker_pool_submit(pool, &later[i].job);
	}
	ck_assert_uint_eq(atomic_load(&started), HUNG);
	atomic_store(&clock_ahead_s, WORKER_STUCK_MS / 1000);
	sleep_while(are_fewer_started, HUNG + LATER);
	worker_pool_submit(pool, &small.job);
	collect_until(pool, 1);
	ck_assert_int_eq(finished[0], 2 * HUNG);
	ck_assert_int_eq(write(later_gate[1], "345", LATER), LATER);
	collect_until(pool, 1 + LATER);
	ck_assert_int_eq(write(gate[1], "012", HUNG), HUNG);
	collect_until(pool, 1 + LATER + HUNG);
	worker_pool_free(&pool);
}
END_TEST

START_TEST(threads_for_those_that_hang_are_bounded)
{
	enum { HUNG = 80 };
	struct worker_pool *pool = new_pool(2, 1);
	int gate[2];
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job hung[HUNG], small;
	char bytes[HUNG] = { 0 };
	for (unsigned int i = 0; i < HUNG; i++) {
		hung[i] = make_job((int)i, true, gate[0]);
		worker_pool_submit(pool, &hung[i].job);
		if (i <= WORKER_STUCK_MAX)
			sleep_while(are_fewer_started, i + 1);
		atomic_fetch_add(&clock_ahead_s, WORKER_STUCK_MS / 1000);
	}
	small = make_job(HUNG, false, -1);
	worker_pool_submit(pool, &small.job);
	collect_until(pool, 1);
	ck_assert_int_eq(finished[0], HUNG);
	ck_assert_uint_eq(atomic_load(&running), WORKER_STUCK_MAX + 1);
	/* The rest runs when they have ended. */
	ck_assert_int_eq(write(gate[1], bytes, HUNG), HUNG);
	collect_until(pool, HUNG + 1);
	worker_pool_free(&pool);
}
END_TEST

START_TEST(nothing_to_collect_is_fine)
{
	struct worker_pool *pool = new_pool(2, 1);
	struct pollfd fd = { .fd = worker_pool_fd(pool), .events = POLLIN };
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	worker_pool_collect(pool);
	struct test_job job = make_job(0, false, -1);
	worker_pool_submit(pool, &job.job);
	collect_until(pool, 1);
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	worker_pool_collect(pool);
	ck_assert_uint_eq(finished_count, 1);

	/* Threads that are idle end with it. */
	worker_pool_free(&pool);
	sleep_while(is_open, (unsigned int)fd.fd);
}
END_TEST

START_TEST(a_pool_can_be_freed_while_a_job_hangs)
{
	struct worker_pool *pool = new_pool(1, 1);
	int gate[2], fd = worker_pool_fd(pool);
	ck_assert_int_eq(pipe(gate), 0);
	struct test_job hung = make_job(0, false, gate[0]), waiting = make_job(1, false, -1);
	worker_pool_submit(pool, &hung.job);
	worker_pool_submit(pool, &waiting.job);
	sleep_while(are_fewer_started, 1);
	worker_pool_free(&pool);
	ck_assert_ptr_null(pool);
	ck_assert(is_open((unsigned int)fd)); /* what the thread needs is still there */

	ck_assert_int_eq(write(gate[1], "1", 1), 1);
	sleep_while(is_open, (unsigned int)fd);
	ck_assert_uint_eq(atomic_load(&started), 1);
	ck_assert_uint_eq(finished_count, 0);
}
END_TEST

Suite *suite_worker(void)
{
	const TTest *const tests[] = {
		one_thread_keeps_the_order,
		small_jobs_pass_hanging_big_ones,
		big_jobs_never_take_the_last_thread,
		one_thread_runs_big_jobs_too,
		a_burst_makes_no_more_threads_than_it_has_jobs,
		threads_are_bounded,
		the_bound_is_raised_and_not_lowered,
		big_jobs_are_bounded,
		a_big_job_that_hangs_stops_to_count,
		big_jobs_that_hang_take_no_threads_from_others,
		threads_for_those_that_hang_are_bounded,
		nothing_to_collect_is_fine,
		a_pool_can_be_freed_while_a_job_hangs,
	};
	return suite_of("worker", tests, sizeof(tests) / sizeof(tests[0]));
}
