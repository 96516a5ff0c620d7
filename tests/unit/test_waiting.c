/* test_waiting.c: threads that sleep beside the wire: each is woken by what it waits for, not by a time limit. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_daemon.h"

enum {
	SOON_MS = 3000, /* far above what a busy machine needs, far below the time limit */
	HALF = FAKE_REGION_SIZE / 2,
};

static struct mrshare *conn;
static uint8_t memory[HALF];
static _Atomic unsigned int ended;
static _Atomic bool stop;

static void count_end(struct mrshare *of, const struct mrshare_completion *completion)
{
	ended++;
}

/* The slow answers of a daemon that is far away. */
static void *answer_late(void *data)
{
	unsigned int pause_us = *(const unsigned int *)data;
	while (!stop) {
		usleep(pause_us);
		fake_release(1);
	}
	return NULL;
}

static void *welcome_late(void *data)
{
	do
		usleep(30000);
	while (!fake_welcome());
	return NULL;
}

static pthread_t start(void *(*function)(void *), void *data)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, function, data), 0);
	return thread;
}

static void expect_soon(uint64_t begin, const char *what)
{
	uint64_t took = clock_ms() - begin;
	ck_assert_msg(took < SOON_MS, "%s: wanted below %d ms, took %d ms", what, SOON_MS, (int)took);
}

static void close_all(pthread_t answers)
{
	stop = true;
	pthread_join(answers, NULL);
	fake.hold = false;
	fake_release(1000);
	mrshare_close(&conn);
	ck_assert_int_eq(fake_objects(), 0);
}

START_TEST(a_late_welcome)
{
	fake_reset();
	fake.silent = FAKE_WELCOME;
	ck_assert_int_eq(mrshare_new(&conn), 0);
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	pthread_t daemon = start(welcome_late, NULL);
	uint64_t begin = clock_ms();
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	expect_soon(begin, "a connect");
	pthread_join(daemon, NULL);
	mrshare_close(&conn);
}
END_TEST

START_TEST(late_completions)
{
	unsigned int pause_us = 2000;
	fake_reset();
	fake.hold = true;
	ck_assert_int_eq(mrshare_new(&conn), 0);
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	pthread_t daemon = start(answer_late, &pause_us);
	uint64_t begin = clock_ms();
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	expect_soon(begin, "a connect");
	for (int i = 0; i < 5; i++) {
		begin = clock_ms();
		ck_assert_int_eq(mrshare_refresh(conn), 0);
		expect_soon(begin, "a refresh");
		usleep(5000);
		begin = clock_ms();
		ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 100), 0);
		expect_soon(begin, "a read");
		usleep(5000);
	}
	close_all(daemon);
}
END_TEST

static void *watch(void *data)
{
	ck_assert_int_eq(mrshare_watch(conn, 1, 0), 0);
	return NULL;
}

/* The catalog is read on behalf of one who sleeps already. */
START_TEST(a_watch_that_sleeps)
{
	unsigned int pause_us = 2000;
	conn = fake_connected(_i);
	fake.hold = true;
	pthread_t daemon = start(answer_late, &pause_us), watcher = start(watch, NULL);
	usleep(50000);
	fake_publish(2, NULL, 0);
	uint64_t begin = clock_ms();
	fake_notice(1, 2, NULL, 0);
	pthread_join(watcher, NULL);
	expect_soon(begin, "a watch");
	close_all(daemon);
}
END_TEST

/* Whoever looked after the wire has what it waited for and goes; a long operation is still there. */
START_TEST(a_leader_that_leaves)
{
	const struct mrshare_how how = { .done = count_end };
	unsigned int pause_us = 300;
	conn = fake_connected(true);
	fake.hold = true;
	pthread_t daemon = start(answer_late, &pause_us);
	for (unsigned int i = 0; i < 60; i++) {
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, HALF, &how, NULL), 0);
		for (unsigned int k = 0; k <= i % 7; k++) {
			uint64_t value;
			ck_assert_int_eq(mrshare_read(conn, 0, 0, &value, sizeof(value)), 0);
			usleep(i % 2 ? 700 : 0);
		}
		uint64_t begin = clock_ms();
		while (ended <= i && clock_ms() - begin < SOON_MS)
			usleep(200);
		expect_soon(begin, "what was posted before");
	}
	close_all(daemon);
}
END_TEST

static uint64_t flushed_ms;

static void *flush_late(void *data)
{
	usleep(50000);
	flushed_ms = clock_ms();
	fake.hold = false;
	fake_release(1000);
	return NULL;
}

/* How long after the device has given back all of a lost connection there is the next one. */
static int drain(bool blocking)
{
	const struct mrshare_how how = { .done = count_end };
	struct mrshare_completion completion;
	uint8_t byte;
	conn = fake_connected(true);
	fake.hold = true;
	ended = 0;
	ck_assert_int_eq(mrshare_set_timeout(conn, 50), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1000, &how, NULL), 0);
	/* Given up, for the wire is silent; the device goes on having its work requests. */
	while (!ended)
		usleep(1000);
	ck_assert_int_eq(mrshare_set_timeout(conn, 0), 0);
	pthread_t device = start(flush_late, NULL);
	if (blocking) {
		ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
	} else {
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, &byte, 1, NULL, NULL), 0);
		ck_assert_int_eq(mrshare_poll(conn, -1, &completion), 0);
		ck_assert_int_eq(completion.result, 0);
	}
	pthread_join(device, NULL);
	int took = (int)(clock_ms() - flushed_ms);
	mrshare_close(&conn);
	return took;
}

START_TEST(a_drain_that_ends_while_someone_waits)
{
	/* What is not woken takes a second, every time; a busy machine does not. */
	int took = 0;
	for (int i = 0; i < 5; i++) {
		took = drain(_i);
		if (took < 300)
			return;
	}
	ck_abort_msg("wanted the next connection below 300 ms, took %d ms", took);
}
END_TEST

static void expect_ack(void)
{
	uint64_t begin = clock_ms();
	fake.on_dereg = NULL;
	fake_notice(1, 2, NULL, 0);
	while (fake.acks == 0 && clock_ms() - begin < SOON_MS)
		usleep(1000);
	ck_assert_msg(fake.acks == 1, "wanted an ack while memory is deregistered, got none");
}

START_TEST(a_deregistration_holds_up_no_ack)
{
	struct mrshare_buffer *buffer;
	conn = fake_connected(true);
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, HALF, &buffer), 0);
	fake.on_dereg = expect_ack;
	mrshare_buffer_unregister(&buffer);
	ck_assert_uint_eq(fake.acks, 1);
	mrshare_close(&conn);
	ck_assert_int_eq(fake_objects(), 0);
}
END_TEST

static int cpu_ms(void)
{
	struct rusage usage;
	ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
	return (int)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (int)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* A device that takes its time to give memory back is slept for. */
START_TEST(a_close_that_waits)
{
	conn = fake_connected(_i);
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1000, NULL, NULL), 0);
	fake_notice(1, 2, NULL, 0);
	int before = cpu_ms();
	mrshare_close(&conn);
	int took = cpu_ms() - before;
	ck_assert_msg(took < 200, "wanted a second of sleep, took %d ms of CPU time", took);
}
END_TEST

void add_waiting_tests(Suite *suite)
{
	TCase *tcase = tcase_create("waiting");
	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_late_welcome, 0, 2);
	tcase_add_loop_test(tcase, late_completions, 0, 2);
	tcase_add_loop_test(tcase, a_watch_that_sleeps, 0, 2);
	tcase_add_test(tcase, a_leader_that_leaves);
	tcase_add_test(tcase, a_deregistration_holds_up_no_ack);
	tcase_add_loop_test(tcase, a_drain_that_ends_while_someone_waits, 0, 2);
	tcase_add_loop_test(tcase, a_close_that_waits, 0, 2);
	suite_add_tcase(suite, tcase);
}
