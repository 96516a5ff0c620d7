/* lib_ops.c: what programs do with libmrshare's operations, each way once, with the result checked. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: lib_ops ADDRESS SOURCE CASE [ARGUMENT]. Region 0 has at least 16 MiB. Prints "ok" at the end, or what was
 * wanted and what came. The cases are the functions below.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mrshare.h"

enum { MIB = 1 << 20, THREADS = 4, OPERATIONS = 400, SIZE = 3000, DEPTH = 64 };

static const char *address, *source, *argument;
static struct mrshare *conn;

static void wanted(const char *what, int got)
{
	printf("wanted %s, got %s (%s: %s)\n", what, strerrorname_np(-got), mrshare_error_call(), mrshare_error());
	exit(1);
}

static void must(const char *what, int r)
{
	if (r < 0)
		wanted(what, r);
}

static void must_be(const char *what, int code, int r)
{
	if (r != code)
		wanted(what, r);
}

static void open_handle(bool thread)
{
	must("a handle", mrshare_new(&conn));
	must("a source", mrshare_set_source(conn, source));
	must("write", mrshare_set_write(conn, true));
	must("a mode", mrshare_set_thread(conn, thread));
}

static void connect_now(void)
{
	must("a connection", mrshare_connect(conn, address));
}

static int elapsed_ms(const struct timespec *start)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int)((now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000);
}

/* many: threads that each have all their operations outstanding at once, on places of their own; written, read back,
 * compared. */

struct place {
	uint8_t out[SIZE], in[SIZE];
	uint64_t offset;
	atomic_uint *left;
};

static void place_read(struct mrshare *of, const struct mrshare_completion *completion)
{
	struct place *place = completion->data;
	must("a read", completion->result);
	if (memcmp(place->in, place->out, SIZE) != 0) {
		printf("wanted at %" PRIu64 " what was written, got something else\n", place->offset);
		exit(1);
	}
	atomic_fetch_sub(place->left, 1);
}

static void place_written(struct mrshare *of, const struct mrshare_completion *completion)
{
	struct place *place = completion->data;
	const struct mrshare_how how = { .done = place_read, .data = place };
	must("a write", completion->result);
	must("to post a read", mrshare_post_read(of, 0, place->offset, place->in, SIZE, &how, NULL));
}

static void *many_thread(void *data)
{
	uintptr_t number = (uintptr_t)data;
	struct place *places = calloc(OPERATIONS, sizeof(*places));
	atomic_uint left = OPERATIONS;
	for (unsigned int i = 0; i < OPERATIONS; i++) {
		struct place *place = &places[i];
		const struct mrshare_how how = { .done = place_written, .data = place };
		memset(place->out, (int)(number * 50 + i), SIZE);
		place->out[i % SIZE] = (uint8_t)number;
		place->offset = (number * OPERATIONS + i) * SIZE;
		place->left = &left;
		must("to post a write", mrshare_post_write(conn, 0, place->offset, place->out, SIZE, &how, NULL));
	}
	while (atomic_load(&left))
		usleep(1000);
	free(places);
	return NULL;
}

static void many(void)
{
	pthread_t threads[THREADS];
	open_handle(true);
	connect_now();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, many_thread, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* blocking: the same with blocking calls, which must not wait for each other. */
static void *blocking_thread(void *data)
{
	uint8_t out[300], in[300];
	for (unsigned int i = 0; i < 100; i++) {
		uint64_t offset = (uintptr_t)data * MIB + i * 300;
		memset(out, (int)(i + 1), sizeof(out));
		must("a write", mrshare_write(conn, 0, offset, out, sizeof(out)));
		must("a read", mrshare_read(conn, 0, offset, in, sizeof(in)));
		must_be("what was written", 0, memcmp(in, out, sizeof(in)));
	}
	return NULL;
}

static void blocking(void)
{
	pthread_t threads[THREADS];
	open_handle(argument && strcmp(argument, "loop") != 0);
	connect_now();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, blocking_thread, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* add COUNT: fetch-and-add and compare-and-swap on the counter at 0, many at once, each adding one. */
static void add(void)
{
	struct mrshare_completion completion;
	int count = atoi(argument), posted = 0, done = 0;
	uint64_t seen, old;
	open_handle(true);
	connect_now();
	while (done < count) {
		if (posted < count && posted - done < DEPTH) {
			must("to post", mrshare_post_fetch_add(conn, 0, 0, 1, NULL, NULL));
			posted++;
			continue;
		}
		must("a completion", mrshare_poll(conn, -1, &completion));
		must("an addition", completion.result);
		done++;
	}
	for (int i = 0; i < count / 10; i++) {
		must("a read", mrshare_read(conn, 0, 0, &seen, sizeof(seen)));
		for (;; seen = old) {
			must("a swap", mrshare_compare_swap(conn, 0, 0, seen, seen + 1, &old));
			if (old == seen)
				break;
		}
	}
}

/* counter: prints it; "counter clear" puts it to 0 first. */
static void counter(void)
{
	uint64_t value = 0;
	open_handle(true);
	connect_now();
	if (argument)
		must("a write", mrshare_write(conn, 0, 0, &value, sizeof(value)));
	must("a read", mrshare_read(conn, 0, 0, &value, sizeof(value)));
	printf("counter %" PRIu64 "\n", value);
}

/* loop: everything from an event loop of our own: connect, transfers, news, with nothing that waits. */

static int loop_result;
static unsigned int loop_ended;

static void loop_done(struct mrshare *of, const struct mrshare_completion *completion)
{
	loop_result = completion->result;
	loop_ended++;
}

static void turn_until(unsigned int ended)
{
	struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
	while (loop_ended < ended) {
		if (poll(&fd, 1, 20000) != 1) {
			printf("wanted operation %u to end, got silence\n", ended);
			exit(1);
		}
		must("to dispatch", mrshare_dispatch(conn));
	}
	must("its success", loop_result);
}

static void loop(void)
{
	const struct mrshare_how how = { .done = loop_done };
	static uint8_t out[2 * MIB], in[2 * MIB];
	memset(out, 0x3c, sizeof(out));
	open_handle(false);
	must("to post a connect", mrshare_post_connect(conn, address, &how, NULL));
	turn_until(1);
	for (unsigned int i = 0; i < 3; i++) {
		must("to post a write", mrshare_post_write(conn, 0, i, out, sizeof(out), &how, NULL));
		turn_until(2 + 2 * i);
		must("to post a read", mrshare_post_read(conn, 0, i, in, sizeof(in), &how, NULL));
		turn_until(3 + 2 * i);
		must_be("what was written", 0, memcmp(in, out, sizeof(in)));
	}
	uint64_t generation;
	struct mrshare_entry *entries;
	size_t count;
	must("views", mrshare_views(conn, &entries, &count, &generation));
	free(entries);
	must("to post a watch", mrshare_post_watch(conn, generation, &how, NULL));
	printf("watching\n");
	turn_until(8);
	/* It stays up over several keep-alives. */
	struct timespec start;
	clock_gettime(CLOCK_MONOTONIC, &start);
	must("views", mrshare_views(conn, &entries, &count, &generation));
	free(entries);
	const struct mrshare_how limited = { .done = loop_done, .timeout_ms = 4000 };
	must("to post a watch", mrshare_post_watch(conn, generation, &limited, NULL));
	struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
	while (loop_ended < 9 && poll(&fd, 1, 20000) == 1)
		must("to dispatch", mrshare_dispatch(conn));
	must_be("a watch without news to end by its limit", -ETIMEDOUT, loop_result);
	must("a read", mrshare_read(conn, 0, 0, in, 10));
}

/* limits: cancel, time limits, both with and without registered memory. */
static void limits(void)
{
	static uint8_t memory[8 * MIB];
	struct mrshare_buffer *buffer = NULL;
	struct mrshare_completion completion;
	uint64_t id;
	open_handle(true);
	connect_now();
	for (int i = 0; i < 2; i++) {
		const struct mrshare_how how = { .timeout_ms = 1 };
		if (i)
			must("a buffer", mrshare_buffer_register(conn, memory, sizeof(memory), &buffer));
		must("to post", mrshare_post_read(conn, 0, 0, memory, sizeof(memory), NULL, &id));
		must("to cancel", mrshare_cancel(conn, id));
		must("a completion", mrshare_poll(conn, 5000, &completion));
		must_be("a cancelled read", -ECANCELED, completion.result);
		must_be("no such operation", -ENOENT, mrshare_cancel(conn, id));
		must("to post", mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &how, &id));
		must("a completion", mrshare_poll(conn, 5000, &completion));
		must_be("a late read", -ETIMEDOUT, completion.result);
		must("a read after that", mrshare_read(conn, 0, 0, memory, sizeof(memory)));
	}
	mrshare_buffer_unregister(&buffer);
}

/* cut: the wire is cut when a line comes. Blocking calls end by their limit; when it is back they connect anew. */
static void cut(void)
{
	uint8_t memory[100];
	struct timespec start;
	open_handle(true);
	connect_now();
	must("a read", mrshare_read(conn, 0, 8 * MIB, memory, sizeof(memory)));
	printf("connected\n");
	getchar();
	must("a limit", mrshare_set_timeout(conn, 1000));
	clock_gettime(CLOCK_MONOTONIC, &start);
	must_be("silence", -ETIMEDOUT, mrshare_read(conn, 0, 8 * MIB, memory, sizeof(memory)));
	if (elapsed_ms(&start) > 5000)
		wanted("an end after 1 s", -elapsed_ms(&start));
	int r = mrshare_read(conn, 0, 8 * MIB, memory, sizeof(memory));
	if (r != -ETIMEDOUT && r != -EHOSTUNREACH)
		wanted("no connection", r);
	printf("cut\n");
	getchar();
	must("a limit", mrshare_set_timeout(conn, 0));
	for (int i = 0; i < 20 && (r = mrshare_read(conn, 0, 8 * MIB, memory, sizeof(memory))) < 0; i++)
		continue;
	must("a read over a new connection", r);
}

/* connect: to a daemon that does not answer. */
static void connect_late(void)
{
	open_handle(argument && strcmp(argument, "loop") != 0);
	must("a limit", mrshare_set_timeout(conn, 1500));
	must_be("no answer", -ETIMEDOUT, mrshare_connect(conn, address));
}

/* child: a fork in the middle of traffic: the child only fails, the parent goes on. */
static void child(void)
{
	static uint8_t memory[4 * MIB];
	struct mrshare_completion completion;
	struct mrshare_buffer *buffer;
	int status;
	open_handle(true);
	connect_now();
	must("a buffer", mrshare_buffer_register(conn, memory, sizeof(memory), &buffer));
	must("to post", mrshare_post_read(conn, 0, 0, memory, sizeof(memory), NULL, NULL));
	pid_t pid = fork();
	if (pid == 0) {
		uint8_t byte;
		bool good = mrshare_read(conn, 0, 0, &byte, 1) == -ECHILD &&
			    mrshare_post_refresh(conn, NULL, NULL) == -ECHILD && mrshare_dispatch(conn) == -ECHILD;
		mrshare_buffer_unregister(&buffer);
		mrshare_close(&conn);
		_exit(good ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	must_be("a child that fails by -ECHILD", 0, status);
	must("a completion", mrshare_poll(conn, 20000, &completion));
	must("the parent's read", completion.result);
	must("a read", mrshare_read(conn, 0, 0, memory, sizeof(memory)));
	mrshare_buffer_unregister(&buffer);
}

/* load: reads without a pause until a line comes, from the first 4 MiB and from what is at 8 MiB, and says by what they
 * ended. */

static atomic_bool load_over;
static atomic_uint load_counts[200];

static void *load_thread(void *data)
{
	uint8_t memory[1000];
	uint64_t offset = (uintptr_t)data % 2 ? 8 * MIB : 0;
	while (!atomic_load(&load_over)) {
		int r = mrshare_read(conn, 0, offset, memory, sizeof(memory));
		if (r != 0 && r != -ENXIO && r != -ESTALE && r != -ECONNRESET && r != -ETIMEDOUT)
			wanted("a read, or the words for its failure", r);
		atomic_fetch_add(&load_counts[-r], 1);
	}
	return NULL;
}

static void load(void)
{
	pthread_t threads[THREADS];
	open_handle(true);
	connect_now();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, load_thread, (void *)i);
	printf("loading\n");
	getchar();
	atomic_store(&load_over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("read %u, not there %u, removed %u, disconnected %u\n", load_counts[0], load_counts[ENXIO],
		load_counts[ESTALE], load_counts[ECONNRESET]);
	uint8_t memory[100];
	must("a read of what stays", mrshare_read(conn, 0, 8 * MIB, memory, sizeof(memory)));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "many", many }, { "blocking", blocking }, { "add", add }, { "counter", counter },
		{ "loop", loop }, { "limits", limits }, { "cut", cut }, { "connect", connect_late }, { "child", child },
		{ "load", load } };
	if (argc < 4)
		return 2;
	address = argv[1];
	source = argv[2];
	argument = argc > 4 ? argv[4] : NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(cases[i].name, argv[3]) != 0)
			continue;
		cases[i].run();
		mrshare_close(&conn);
		printf("ok\n");
		return 0;
	}
	return 2;
}
