/* test_transfers.c: operations: many at once, from many threads, refused, cancelled, late, cut. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_daemon.h"

enum { HALF = FAKE_REGION_SIZE / 2 };

static struct mrshare *conn;
static uint8_t memory[HALF];
static int results[1000];
static _Atomic unsigned int result_count;

static void note_result(struct mrshare *of, const struct mrshare_completion *completion)
{
	unsigned int at = result_count;
	results[at % 1000] = completion->result;
	result_count = at + 1;
}
static const struct mrshare_how noted = { .done = note_result };

static void open_connection(void)
{
	conn = fake_connected(false);
	for (size_t i = 0; i < FAKE_REGION_SIZE; i++)
		fake.region[i] = (uint8_t)(i * 7 + i / 251);
}

static void open_threaded(void)
{
	conn = fake_connected(true);
}

static void close_connection(void)
{
	mrshare_close(&conn);
	ck_assert_int_eq(fake_objects(), 0);
}

static void run_some(void)
{
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
}

enum { PIECE = 128 << 10, INLINE_MAX = 220 };

static bool is_small(size_t size)
{
	return size > 0 && size <= INLINE_MAX;
}

START_TEST(bytes_arrive)
{
	static const size_t sizes[] = { 0, 1, 7, 220, 221, 4096, 131072, 131073, 1000001, HALF };
	struct mrshare_buffer *buffer = NULL;
	if (_i)
		ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i], at = (HALF - size) / 3;
		memset(memory, 0, sizeof(memory));
		ck_assert_int_eq(mrshare_read(conn, 0, at, memory, size), 0);
		ck_assert(memcmp(memory, fake.region + at, size) == 0);
		ck_assert(size == HALF || memory[size] == 0);
		for (size_t k = 0; k < size; k++)
			memory[k] ^= 0x5a;
		unsigned int inlines = fake.inlines;
		ck_assert_int_eq(mrshare_write(conn, 0, at, memory, size), 0);
		ck_assert(memcmp(memory, fake.region + at, size) == 0);
		/* What is small goes with the work request, be it the last piece of something large. */
		ck_assert_uint_eq(fake.inlines - inlines, is_small(size % PIECE) ? 1 : 0);
	}
	mrshare_buffer_unregister(&buffer);
}
END_TEST

START_TEST(a_long_transfer_is_signalled_selectively)
{
	fake.posts = fake.signals = 0;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, HALF), 0);
	ck_assert_uint_eq(fake.posts, HALF >> 17);
	ck_assert_uint_lt(fake.signals, fake.posts);
}
END_TEST

START_TEST(the_wire_is_bounded_and_the_rest_waits)
{
	fake.hold = true;
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, (uint64_t)i, memory + i, 1, &noted, NULL), 0);
	ck_assert_uint_lt(fake.on_wire_max, 128);
	while (result_count < 1000) {
		fake_release(10);
		fake_wait_dispatch(conn);
	}
	ck_assert_uint_lt(fake.on_wire_max, 128);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(results[i], 0);
	ck_assert(memcmp(memory, fake.region, 1000) == 0);
	fake.hold = false;
}
END_TEST

START_TEST(a_short_one_is_not_held_up_by_a_long_one)
{
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, HALF, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 77, memory, 1, &noted, NULL), 0);
	unsigned int released = 0;
	while (result_count == 0) {
		fake_release(1);
		released++;
		fake_wait_dispatch(conn);
	}
	ck_assert_uint_lt(released, HALF >> 17);
	fake.hold = false;
	fake_release(100);
	DISPATCH_UNTIL(conn, result_count == 2);
}
END_TEST

/* Of few bytes, with a time limit, and what others may wait for. */
START_TEST(the_catalog_is_not_held_up_by_transfers)
{
	struct mrshare_completion completion;
	fake.hold = true;
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, HALF, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_refresh(conn, NULL, NULL), 0);
	/* What was on the wire already goes first, once for the root and once for the slot. */
	unsigned int released = 0, on_wire = fake.on_wire;
	while (mrshare_poll(conn, 0, &completion) == -EAGAIN) {
		ck_assert_msg(released < 3 * on_wire, "not read after %u pieces of others", released);
		fake_release(1);
		released++;
		fake_wait_dispatch(conn);
	}
	ck_assert_int_eq(completion.result, 0);
	ck_assert_uint_eq(result_count, 0);
	fake.hold = false;
	fake_release(100);
}
END_TEST

START_TEST(too_many_are_refused)
{
	fake.hold = true;
	for (int i = 0; i < MRSHARE_OPERATIONS_MAX; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1, &noted, NULL), -EAGAIN);
	ck_assert_str_eq(mrshare_error_call(), "mrshare_post_read");
	fake.hold = false;
	fake_release(1000);
	DISPATCH_UNTIL(conn, result_count == MRSHARE_OPERATIONS_MAX);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1, &noted, NULL), 0);
}
END_TEST

START_TEST(completions_are_polled)
{
	struct mrshare_completion completion;
	const struct mrshare_how how = { .data = memory };
	uint64_t first, second;
	ck_assert_int_eq(mrshare_poll(conn, 0, &completion), -EAGAIN);
	ck_assert_int_eq(mrshare_poll(conn, 10, &completion), -EAGAIN);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 10, &how, &first), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, HALF, memory, 10, NULL, &second), 0);
	struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
	ck_assert_int_eq(poll(&fd, 1, 1000), 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(mrshare_poll(conn, -1, &completion), 0);
		ck_assert(completion.id == first || completion.id == second);
		ck_assert_ptr_eq(completion.data, completion.id == first ? memory : NULL);
		ck_assert_int_eq(completion.result, completion.id == first ? 0 : -ENXIO);
		if (completion.result == 0)
			continue;
		ck_assert_str_eq(mrshare_error_call(), "mrshare_post_read");
		ck_assert_ptr_nonnull(strstr(mrshare_error(), "nothing is mapped"));
	}
	run_some();
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
}
END_TEST

START_TEST(atomics_are_exact)
{
	uint64_t old, value = 5;
	memcpy(fake.region + 64, &value, sizeof(value));
	ck_assert_int_eq(mrshare_fetch_add(conn, 0, 64, 3, &old), 0);
	ck_assert_uint_eq(old, 5);
	ck_assert_int_eq(mrshare_compare_swap(conn, 0, 64, 7, 100, &old), 0);
	ck_assert_uint_eq(old, 8);
	ck_assert_int_eq(mrshare_compare_swap(conn, 0, 64, 8, 100, NULL), 0);
	ck_assert_int_eq(mrshare_read(conn, 0, 64, &value, sizeof(value)), 0);
	ck_assert_uint_eq(value, 100);
	ck_assert_int_eq(mrshare_fetch_add(conn, 0, 65, 1, &old), -EINVAL);
	ck_assert_int_eq(mrshare_fetch_add(conn, 0, HALF, 1, &old), -ENXIO);

	struct mrshare_completion completion;
	ck_assert_int_eq(mrshare_post_fetch_add(conn, 0, 64, 1, NULL, NULL), 0);
	ck_assert_int_eq(mrshare_poll(conn, -1, &completion), 0);
	ck_assert_uint_eq(completion.value, 100);
	ck_assert_int_eq(mrshare_post_compare_swap(conn, 0, 64, 101, 0, NULL, NULL), 0);
	ck_assert_int_eq(mrshare_poll(conn, -1, &completion), 0);
	ck_assert_uint_eq(completion.value, 101);
}
END_TEST

START_TEST(what_is_not_allowed_is_refused_before_the_wire)
{
	uint64_t old;
	fake.posts = 0;
	ck_assert_int_eq(mrshare_read(conn, 1, 0, memory, 1), -ENXIO);
	ck_assert_int_eq(mrshare_read(conn, 0, HALF - 1, memory, 2), -ENXIO);
	ck_assert_int_eq(mrshare_read(conn, 0, UINT64_MAX, memory, 2), -EOVERFLOW);
	struct mrshare_how how = { .reserved = { 1 } };
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1, &how, NULL), -EINVAL);
	ck_assert_uint_eq(fake.posts, 0);

	const struct mrshare_entry entry = fake_entry(1, 0, HALF, MRSHARE_READ);
	fake_publish(2, &entry, 1);
	ck_assert_int_eq(mrshare_refresh(conn), 0);
	ck_assert_int_eq(mrshare_write(conn, 0, 0, memory, 1), -EACCES);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "read-only"));
	ck_assert_int_eq(mrshare_fetch_add(conn, 0, 0, 1, &old), -EACCES);

	fake.granted = MRSHARE_READ;
	fake_disconnect();
	while (mrshare_refresh(conn) == -ECONNRESET)
		continue;
	ck_assert_int_eq(mrshare_write(conn, 0, 0, memory, 1), -EACCES);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 1), 0);
}
END_TEST

START_TEST(extents_of_foreign_sizes_do_no_harm)
{
	const struct mrshare_entry entries[] = { fake_entry(1, 0, 4096, MRSHARE_READ),
		fake_entry(2, 4096, UINT64_MAX, MRSHARE_READ) };
	fake_publish(2, entries, 2);
	int r = mrshare_refresh(conn);
	ck_assert(r == 0 || r == -EBADMSG);
	r = mrshare_read(conn, 0, UINT64_MAX - 8192, memory, 4096);
	ck_assert_int_lt(r, 0);
}
END_TEST

START_TEST(one_is_cancelled)
{
	struct mrshare_buffer *buffer = NULL;
	uint64_t operation;
	if (_i)
		ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, HALF, &noted, &operation), 0);
	ck_assert_int_eq(mrshare_cancel(conn, operation), 0);
	ck_assert_int_eq(mrshare_cancel(conn, operation), -ENOENT);
	run_some();
	/* The device still has registered memory; our own is ours. */
	if (_i)
		ck_assert_uint_eq(result_count, 0);
	else
		DISPATCH_UNTIL(conn, result_count == 1);
	unsigned int posted = fake.posts;
	fake_release(100);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ECANCELED);
	ck_assert_uint_eq(fake.posts, posted);
	fake.hold = false;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, HALF), 0);
	ck_assert_uint_eq(fake.connects, 1);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

START_TEST(one_is_late)
{
	const struct mrshare_how how = { .done = note_result, .timeout_ms = 20 };
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 100, &how, NULL), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory + 100, 100, &noted, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ETIMEDOUT);
	fake_release(2);
	DISPATCH_UNTIL(conn, result_count == 2);
	ck_assert_int_eq(results[1], 0);
	ck_assert_uint_eq(fake.connects, 1);
	fake.hold = false;
}
END_TEST

/* What the device does not give back is taken with its queue pair: from one that is late, from one that is cancelled,
 * and that has a time limit or none. */
START_TEST(registered_memory_is_taken_back)
{
	static const unsigned int limits[] = { 20, 0, 60000 };
	const struct mrshare_how how = { .done = note_result, .timeout_ms = limits[_i] };
	struct mrshare_buffer *buffer;
	uint64_t operation, begin = clock_ms();
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 100, &how, &operation), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory + 100, 100, &noted, NULL), 0);
	if (_i)
		ck_assert_int_eq(mrshare_cancel(conn, operation), 0);
	DISPATCH_UNTIL(conn, result_count == 2);
	/* Not with what ends a silent wire. */
	ck_assert_uint_lt(clock_ms() - begin, MRSHARE_DEFAULT_TIMEOUT_MS / 2);
	ck_assert_int_eq(results[0], _i ? -ECANCELED : -ETIMEDOUT);
	ck_assert_int_eq(results[1], -ETIMEDOUT);
	fake.hold = false;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 100), 0);
	ck_assert_uint_eq(fake.connects, 2);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

/* As long as the wire gives answers, neither a time limit nor a cancel costs a connection. */
START_TEST(a_slow_wire_gives_it_back)
{
	const struct mrshare_how how = { .done = note_result, .timeout_ms = _i ? 0 : 20 };
	struct mrshare_buffer *buffer;
	uint64_t operation;
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	fake.hold = true;
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 100, NULL, NULL), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 100, &how, &operation), 0);
	if (_i)
		ck_assert_int_eq(mrshare_cancel(conn, operation), 0);
	for (int i = 0; i < 7; i++) {
		uint64_t until = clock_ms() + 60;
		while (clock_ms() < until)
			fake_wait_dispatch(conn);
		fake_release(1);
		fake_wait_dispatch(conn);
	}
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], _i ? -ECANCELED : -ETIMEDOUT);
	fake.hold = false;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 100), 0);
	ck_assert_uint_eq(fake.connects, 1);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

START_TEST(a_silent_wire_ends_the_connection)
{
	ck_assert_int_eq(mrshare_set_timeout(conn, 50), 0);
	fake.hold = true;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 100), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "no answer"));
	ck_assert_int_eq(mrshare_set_timeout(conn, 5000), 0);
	fake.hold = false;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 100), 0);
}
END_TEST

START_TEST(an_error_on_the_wire_cuts_all)
{
	fake.hold = true;
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(mrshare_post_write(conn, 0, 0, memory, 300, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
	fake.hold = false;
	fake_fail_first((enum ibv_wc_status)_i);
	DISPATCH_UNTIL(conn, result_count == 6);
	bool removed = _i == IBV_WC_REM_ACCESS_ERR || _i == IBV_WC_REM_INV_REQ_ERR;
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(results[i], removed && i == 0 ? -ESTALE : -ECONNRESET);
	ck_assert_int_eq(mrshare_write(conn, 0, 0, memory, 300), 0);
}
END_TEST

START_TEST(a_device_that_takes_nothing)
{
	fake_fail("verbs_post_send", (unsigned int)_i, -ENOMEM);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, HALF), -ECONNRESET);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, HALF), 0);
	ck_assert(memcmp(memory, fake.region, HALF) == 0);
	fake_fail("verbs_poll_cq", 0, -EIO);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 10), -ECONNRESET);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 10), 0);
}
END_TEST

static void post_again(struct mrshare *of, const struct mrshare_completion *completion)
{
	const struct mrshare_how how = { .done = post_again };
	note_result(of, completion);
	if (result_count < 500)
		ck_assert_int_eq(mrshare_post_read(of, 0, 0, memory, 10, &how, NULL), 0);
	else if (result_count == 500)
		ck_assert_int_eq(mrshare_read(of, 0, 0, memory, 10), 0);
}

START_TEST(callbacks_post_and_wait)
{
	const struct mrshare_how how = { .done = post_again };
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 10, &how, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 500);
}
END_TEST

static void close_in_callback(struct mrshare *of, const struct mrshare_completion *completion)
{
	struct mrshare *handle = of;
	mrshare_close(&handle);
	ck_assert_ptr_eq(handle, of);
	ck_assert_int_eq(mrshare_error_code(), -EDEADLK);
	ck_assert_str_eq(mrshare_error_call(), "mrshare_close");
	note_result(of, completion);
}

START_TEST(a_close_in_a_callback_does_nothing)
{
	const struct mrshare_how how = { .done = close_in_callback };
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 10, &how, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 10), 0);
}
END_TEST

static void post_on_end(struct mrshare *of, const struct mrshare_completion *completion)
{
	const struct mrshare_how how = { .done = post_on_end };
	note_result(of, completion);
	ck_assert_int_eq(mrshare_post_read(of, 0, 0, memory, 10, &how, NULL), -ECANCELED);
}

START_TEST(a_close_ends_what_is_outstanding)
{
	const struct mrshare_how how = { .done = post_on_end };
	struct mrshare_buffer *buffer;
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, HALF, &buffer), 0);
	fake.hold = true;
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1000, i % 2 ? &how : NULL, NULL), 0);
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &how, NULL), 0);
	fake.hold = false;
	mrshare_close(&conn);
	ck_assert_ptr_null(conn);
	ck_assert_uint_eq(result_count, 11);
	for (int i = 0; i < 11; i++)
		ck_assert_int_eq(results[i], -ECANCELED);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

static void *hammer(void *data)
{
	unsigned int number = (unsigned int)(uintptr_t)data, value;
	for (unsigned int i = 0; i < 300; i++) {
		uint64_t at = number * 4096, old;
		value = i;
		ck_assert_int_eq(mrshare_write(conn, 0, at, &value, sizeof(value)), 0);
		value = ~0u;
		ck_assert_int_eq(mrshare_read(conn, 0, at, &value, sizeof(value)), 0);
		ck_assert_uint_eq(value, i);
		ck_assert_int_eq(mrshare_fetch_add(conn, 0, HALF - 8, 1, &old), 0);
		if (i % 50 == 0)
			ck_assert_int_eq(mrshare_refresh(conn), 0);
	}
	return NULL;
}

START_TEST(threads_share_a_connection)
{
	pthread_t threads[8];
	uint64_t sum;
	memset(fake.region + HALF - 8, 0, 8);
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, (void *)i), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(mrshare_read(conn, 0, HALF - 8, &sum, sizeof(sum)), 0);
	ck_assert_uint_eq(sum, 8 * 300);
}
END_TEST

static _Atomic unsigned int posted_count, ended_count, good_count;

static void count_end(struct mrshare *of, const struct mrshare_completion *completion)
{
	int r = completion->result;
	ck_assert_msg(r == 0 || r == -ECONNRESET || r == -ECANCELED || r == -ESTALE, "got %d: %s", r, mrshare_error());
	ended_count++;
	good_count += r == 0;
}

static void *post_and_wait(void *data)
{
	const struct mrshare_how how = { .done = count_end, .timeout_ms = 20000 };
	uint8_t in[3000], out[3000] = "";
	uint64_t operation;
	for (int i = 0; i < 300; i++) {
		for (int k = 0; k < 5; k++) {
			ck_assert_int_eq(mrshare_post_read(conn, 0, 0, in, sizeof(in), &how, &operation), 0);
			posted_count++;
		}
		mrshare_cancel(conn, operation);
		int r = mrshare_write(conn, 0, HALF - 3000, out, (size_t)i * 10);
		ck_assert_msg(r == 0 || r == -ECONNRESET, "got %d: %s", r, mrshare_error());
	}
	while (ended_count != posted_count)
		usleep(100);
	return NULL;
}

START_TEST(threads_survive_losses)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, post_and_wait, NULL), 0);
	for (int i = 0; i < 100; i++) {
		usleep(2000);
		fake_disconnect();
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(ended_count, 4 * 300 * 5);
	ck_assert_uint_gt(good_count, 0);
	ck_assert_uint_gt(fake.connects, 1);
}
END_TEST

static void *fail_often(void *data)
{
	for (int i = 0; i < 1000; i++) {
		char byte;
		ck_assert_int_eq(mrshare_write(conn, 0, HALF, &byte, 1), -ENXIO);
		ck_assert_int_eq(mrshare_error_code(), -ENXIO);
		ck_assert_str_eq(mrshare_error_call(), "mrshare_write");
		ck_assert_ptr_nonnull(strstr(mrshare_error(), "nothing is mapped"));
	}
	return NULL;
}

static void *ask_first(void *data)
{
	ck_assert_int_eq(mrshare_error_code(), 0);
	ck_assert_str_eq(mrshare_error_call(), "");
	ck_assert_str_eq(mrshare_error(), "");
	return fail_often(data);
}

/* Nor does a call that succeeds change it. */
START_TEST(each_thread_has_its_own_failure)
{
	pthread_t thread;
	char text[300], byte;
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -EISCONN);
	snprintf(text, sizeof(text), "%s", mrshare_error());
	ck_assert_str_ne(text, "");
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_first, NULL), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(mrshare_error_code(), -EISCONN);
		ck_assert_str_eq(mrshare_error_call(), "mrshare_connect");
		ck_assert_str_eq(mrshare_error(), text);
		ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
	}
	pthread_join(thread, NULL);
	ck_assert_int_eq(mrshare_error_code(), -EISCONN);
	ck_assert_str_eq(mrshare_error_call(), "mrshare_connect");
	ck_assert_str_eq(mrshare_error(), text);
}
END_TEST

static void *watch_long(void *data)
{
	ck_assert_int_eq(mrshare_watch(conn, 1, 0), 0);
	return NULL;
}

START_TEST(one_that_waits_holds_up_nobody)
{
	pthread_t thread;
	struct mrshare_completion completion;
	ck_assert_int_eq(pthread_create(&thread, NULL, watch_long, NULL), 0);
	usleep(50000);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 1000), 0);
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1000, NULL, NULL), 0);
		ck_assert_int_eq(mrshare_poll(conn, 5000, &completion), 0);
		usleep(10000);
	}
	fake_publish(2, NULL, 0);
	fake_notice(1, 2, NULL, 0);
	pthread_join(thread, NULL);
}
END_TEST

static void *wait_for_one(void *data)
{
	struct mrshare_completion completion;
	ck_assert_int_eq(mrshare_poll(conn, 5000, &completion), 0);
	return NULL;
}

START_TEST(threads_poll)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_for_one, NULL), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 1, NULL, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

void add_transfers_tests(Suite *suite)
{
	TCase *tcase = tcase_create("transfers");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, open_connection, close_connection);
	tcase_add_loop_test(tcase, bytes_arrive, 0, 2);
	tcase_add_test(tcase, a_long_transfer_is_signalled_selectively);
	tcase_add_test(tcase, the_wire_is_bounded_and_the_rest_waits);
	tcase_add_test(tcase, a_short_one_is_not_held_up_by_a_long_one);
	tcase_add_test(tcase, the_catalog_is_not_held_up_by_transfers);
	tcase_add_test(tcase, too_many_are_refused);
	tcase_add_test(tcase, completions_are_polled);
	tcase_add_test(tcase, atomics_are_exact);
	tcase_add_test(tcase, what_is_not_allowed_is_refused_before_the_wire);
	tcase_add_test(tcase, extents_of_foreign_sizes_do_no_harm);
	tcase_add_loop_test(tcase, one_is_cancelled, 0, 2);
	tcase_add_test(tcase, one_is_late);
	tcase_add_loop_test(tcase, registered_memory_is_taken_back, 0, 3);
	tcase_add_loop_test(tcase, a_slow_wire_gives_it_back, 0, 2);
	tcase_add_test(tcase, a_silent_wire_ends_the_connection);
	tcase_add_loop_test(tcase, an_error_on_the_wire_cuts_all, IBV_WC_LOC_LEN_ERR, IBV_WC_RNR_RETRY_EXC_ERR + 1);
	tcase_add_loop_test(tcase, a_device_that_takes_nothing, 0, 8);
	tcase_add_test(tcase, callbacks_post_and_wait);
	tcase_add_test(tcase, a_close_ends_what_is_outstanding);
	tcase_add_test(tcase, a_close_in_a_callback_does_nothing);
	tcase_add_test(tcase, threads_share_a_connection);
	tcase_add_test(tcase, one_that_waits_holds_up_nobody);
	tcase_add_test(tcase, each_thread_has_its_own_failure);
	suite_add_tcase(suite, tcase);

	TCase *threaded = tcase_create("transfers with a thread");
	tcase_set_timeout(threaded, 60);
	tcase_add_checked_fixture(threaded, open_threaded, close_connection);
	tcase_add_loop_test(threaded, bytes_arrive, 0, 2);
	tcase_add_test(threaded, threads_share_a_connection);
	tcase_add_test(threaded, threads_survive_losses);
	tcase_add_test(threaded, threads_poll);
	tcase_add_test(threaded, one_that_waits_holds_up_nobody);
	tcase_add_test(threaded, each_thread_has_its_own_failure);
	tcase_add_test(threaded, callbacks_post_and_wait);
	tcase_add_loop_test(threaded, one_is_cancelled, 0, 2);
	tcase_add_test(threaded, a_close_ends_what_is_outstanding);
	tcase_add_test(threaded, a_close_in_a_callback_does_nothing);
	tcase_add_test(threaded, a_silent_wire_ends_the_connection);
	suite_add_tcase(suite, threaded);
}
