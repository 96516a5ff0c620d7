/* test_connect.c: connects that succeed, fail at each step, take too long, are made anew, are given up. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_daemon.h"

static struct mrshare *conn;

static void open_handle(void)
{
	fake_reset();
	ck_assert_int_eq(mrshare_new(&conn), 0);
	ck_assert_int_eq(mrshare_set_timeout(conn, 5000), 0);
}

static void close_handle(void)
{
	mrshare_close(&conn);
	ck_assert_int_eq(fake_objects(), 0);
}

START_TEST(a_connect_has_grants_and_views)
{
	struct mrshare_entry *entries;
	size_t count;
	uint64_t generation;
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_granted(conn), 0);
	ck_assert_int_eq(mrshare_views(conn, &entries, &count, NULL), -ENOTCONN);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	ck_assert_uint_eq(mrshare_granted(conn), MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC);
	ck_assert_int_eq(mrshare_views(conn, &entries, &count, &generation), 0);
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(generation, 1);
	ck_assert_uint_eq(entries[0].view.rkey, 101);
	free(entries);
	ck_assert_uint_eq(fake.request_flags, 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -EISCONN);
	ck_assert_str_eq(mrshare_error_call(), "mrshare_connect");
	ck_assert_int_eq(mrshare_error_code(), -EISCONN);
	ck_assert_int_eq(mrshare_set_thread(conn, true), -EISCONN);
}
END_TEST

/* Each step: not answered, then answered by an error, then all well. */
START_TEST(a_step_fails)
{
	static const int failures[] = { [FAKE_ADDRESS] = -ENETUNREACH,
		[FAKE_ROUTE] = -ENETUNREACH,
		[FAKE_REQUEST] = -EHOSTUNREACH,
		[FAKE_WELCOME] = -ECONNRESET };
	enum fake_step which = (enum fake_step)(_i / 2);
	mrshare_set_thread(conn, _i % 2);
	fake.silent = which;
	mrshare_set_timeout(conn, 100);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "10.0.0.1: "));
	fake.silent = FAKE_NO_STEP;
	mrshare_set_timeout(conn, 5000);
	fake.failing = which;
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), failures[which]);
	fake.failing = FAKE_NO_STEP;
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
}
END_TEST

static const char *const functions[] = { "cm_channel_new", "cm_id_new", "cm_resolve_addr", "cm_resolve_route",
	"cm_connect", "cm_create_qp", "verbs_query_device", "verbs_query_port", "verbs_alloc_pd",
	"verbs_create_comp_channel", "verbs_create_cq", "verbs_req_notify_cq", "verbs_modify_qp", "verbs_post_recv",
	"verbs_reg_mr", "verbs_post_send", "verbs_poll_cq", "verbs_next_cq_event" };
enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

START_TEST(a_call_of_verbs_or_cm_fails)
{
	/* The latter two may mean something. */
	static const int codes[] = { -EIO, -ENOMEM, -EINVAL };
	const char *function = functions[_i];
	for (size_t i = 0; i < 2 * 2 * sizeof(codes) / sizeof(codes[0]); i++) {
		int code = codes[i / 4];
		unsigned int skip = i / 2 % 2;
		open_handle();
		mrshare_set_thread(conn, i % 2);
		fake_fail(function, skip, code);
		int r = mrshare_connect(conn, "10.0.0.1");
		/* A device that takes no inline data is asked again without. */
		bool asked_again = strcmp(function, "cm_create_qp") == 0 && code != -EIO;
		if (asked_again && skip == 0)
			ck_assert_msg(r == 0, "%s, %d: wanted 0, got %d", function, code, r);
		else if (skip == 0)
			ck_assert_msg(r < 0, "%s, %d: wanted a failure, got %d", function, code, r);
		if (r < 0)
			ck_assert_msg(mrshare_error()[0] != '\0', "%s: no words", function);
		fake_fail("", 0, 0);
		if (r < 0)
			ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
		close_handle();
	}
}
END_TEST

START_TEST(a_rejection_has_the_daemons_text)
{
	fake.reject = "full: 1024 peers";
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "full: 1024 peers"));
	fake.reject = "";
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -ECONNREFUSED);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "no one listens"));
}
END_TEST

START_TEST(a_cold_neighbour_is_asked_for_again)
{
	fake.address_timeouts = 3;
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
}
END_TEST

START_TEST(a_name_is_looked_up)
{
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_connect(conn, "localhost:7471"), 0);
	fake_disconnect();
	char byte;
	while (mrshare_read(conn, 0, 0, &byte, 1) == -ECONNRESET)
		continue;
	ck_assert_uint_eq(fake.connects, 2);
}
END_TEST

START_TEST(a_source_is_of_the_same_family)
{
	ck_assert_int_eq(mrshare_set_source(conn, "::1"), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), -EAFNOSUPPORT);
	ck_assert_int_eq(mrshare_set_source(conn, "10.0.0.2"), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
}
END_TEST

static _Atomic bool releasing;

static void *release_slowly(void *data)
{
	usleep(200000);
	fake_welcome();
	while (releasing) {
		usleep(20000);
		fake_release(1);
	}
	return NULL;
}

/* Whoever waits asks the device for an event, whoever posted. */
START_TEST(a_slow_wire_is_waited_for)
{
	pthread_t thread;
	char byte;
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	fake.hold = true;
	fake.silent = FAKE_WELCOME;
	releasing = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, release_slowly, NULL), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
		ck_assert_int_eq(mrshare_refresh(conn), 0);
	}
	releasing = false;
	pthread_join(thread, NULL);
	fake.hold = false;
}
END_TEST

START_TEST(an_address_that_is_none)
{
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1:0x"), -EINVAL);
	ck_assert_int_eq(mrshare_connect(conn, ""), -EINVAL);
	char text[] = "x";
	ck_assert_int_eq(mrshare_read(conn, 0, 0, text, 1), -ENOTCONN);
	ck_assert_str_eq(mrshare_error_call(), "mrshare_read");
}
END_TEST

START_TEST(without_inline_data_it_connects_too)
{
	fake.no_inline = true;
	ck_assert_int_eq(mrshare_set_write(conn, true), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	ck_assert_uint_eq(fake.request_flags, PEER_WANTS_WRITE);
	ck_assert_int_eq(mrshare_write(conn, 0, 5, "abc", 4), 0);
	ck_assert_str_eq((char *)fake.region + 5, "abc");
	ck_assert_uint_eq(fake.inlines, 0);
}
END_TEST

/* Of a daemon that writes nonsense, and of one that never gets to write it whole. */
START_TEST(a_catalog_that_makes_no_sense)
{
	const uint8_t rw = MRSHARE_READ | MRSHARE_WRITE;
	const struct mrshare_entry overlapping[] = { fake_entry(1, 0, 8192, rw), fake_entry(2, 4096, 8192, rw) },
				   good = fake_entry(1, 0, 8192, rw), empty = fake_entry(1, 0, 0, rw);
	char byte;
	if (_i == 0)
		fake_publish(1, overlapping, 2);
	else if (_i == 1)
		fake_publish(1, &empty, 1);
	else if (_i >= 6)
		fake_publish(_i == 6 ? 0 : UINT64_MAX, &good, 1);
	else
		fake_spoil_root(_i == 2, _i == 2 ? 0 : _i == 3 ? 1 : 1u << 30);
	if (_i == 5) {
		mrshare_set_timeout(conn, 1000);
		fake.torn = 1000000;
	}
	int wanted = _i == 5 ? -ETIMEDOUT : -EBADMSG;
	if (_i == 5)
		fake_publish(1, &good, 1);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), wanted);
	ck_assert_ptr_nonnull(strstr(mrshare_error(), "catalog"));
	fake.torn = 0;
	fake_publish(1, &good, 1);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);

	/* Later it costs the calls that need it, not the connection. */
	fake_publish(2, overlapping, 2);
	ck_assert_int_eq(mrshare_refresh(conn), -EBADMSG);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
	ck_assert_uint_eq(fake.connects, 2);

	/* But a connection that has no views is of no use. */
	int r;
	fake_disconnect();
	while ((r = mrshare_read(conn, 0, 0, &byte, 1)) == -ECONNRESET)
		continue;
	ck_assert_int_eq(r, -EBADMSG);
	fake_publish(3, &good, 1);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
	ck_assert_uint_eq(fake.connects, 4);
}
END_TEST

static int results[8];
static _Atomic unsigned int result_count;
static void note_result(struct mrshare *of, const struct mrshare_completion *completion)
{
	unsigned int at = result_count;
	results[at] = completion->result;
	result_count = at + 1;
}

START_TEST(a_connect_is_posted)
{
	const struct mrshare_how how = { .done = note_result };
	ck_assert_int_eq(mrshare_set_thread(conn, false), 0);
	ck_assert_int_eq(mrshare_post_connect(conn, "10.0.0.1", &how, NULL), 0);
	ck_assert_int_eq(mrshare_post_connect(conn, "10.0.0.1", &how, NULL), -EALREADY);
	ck_assert_uint_eq(result_count, 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], 0);
}
END_TEST

/* Each operation ends, whoever runs its callback. */
START_TEST(what_is_posted_before_a_connect_ends_too)
{
	const struct mrshare_how how = { .done = note_result };
	struct mrshare_completion completion;
	char byte;
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, &byte, 1, NULL, NULL), 0);
	ck_assert_int_eq(mrshare_poll(conn, 0, &completion), 0);
	ck_assert_int_eq(completion.result, -ENOTCONN);
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, &byte, 1, &how, NULL), 0);
	ck_assert_int_eq(mrshare_post_watch(conn, 0, &how, NULL), 0);
	if (_i) {
		for (int i = 0; i < 3000 && result_count < 2; i++)
			usleep(1000);
	} else {
		DISPATCH_UNTIL(conn, result_count == 2);
	}
	ck_assert_uint_eq(result_count, 2);
	ck_assert_int_eq(results[0], -ENOTCONN);
	ck_assert_int_eq(results[1], -ENOTCONN);
	ck_assert_int_eq(mrshare_set_thread(conn, _i), _i ? -EISCONN : 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
}
END_TEST

/* Before a connect and after it, so that it does not depend on the device. */
START_TEST(a_buffer_of_no_bytes_is_none)
{
	struct mrshare_buffer *buffer = NULL;
	char memory[1];
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(mrshare_buffer_register(conn, memory, 0, &buffer), -EINVAL);
		ck_assert_ptr_null(buffer);
		ck_assert_str_eq(mrshare_error(), "a buffer of size 0");
		ck_assert_str_eq(mrshare_error_call(), "mrshare_buffer_register");
		ck_assert_int_eq(i == 0 ? mrshare_connect(conn, "10.0.0.1") : 0, 0);
	}
}
END_TEST

START_TEST(a_buffer_comes_while_the_daemon_is_asked)
{
	static char memory[4096];
	const struct mrshare_how how = { .done = note_result };
	struct mrshare_buffer *buffer;
	uint64_t operation;
	ck_assert_int_eq(mrshare_set_thread(conn, false), 0);
	fake.silent = FAKE_WELCOME;
	ck_assert_int_eq(mrshare_post_connect(conn, "10.0.0.1", &how, NULL), 0);
	DISPATCH_UNTIL(conn, fake.connects == 1);
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	ck_assert(fake_welcome());
	DISPATCH_UNTIL(conn, result_count == 1);
	/* The device keeps it while it uses it: it is registered. */
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &how, &operation), 0);
	ck_assert_int_eq(mrshare_cancel(conn, operation), 0);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	ck_assert_uint_eq(result_count, 1);
	fake.hold = false;
	fake_release(1);
	DISPATCH_UNTIL(conn, result_count == 2);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

static char large[FAKE_PAGE];

static void pin_slowly(size_t size)
{
	if (size == sizeof(large))
		usleep(700000);
}

static void *welcome_twice(void *data)
{
	for (unsigned int i = 1; i <= 2; i++) {
		while (fake.connects < i)
			usleep(1000);
		usleep(20000);
		fake_welcome();
	}
	return NULL;
}

/* How long it takes to pin memory says nothing of whether the daemon answers. */
START_TEST(pinning_does_not_count_against_the_time_limit)
{
	struct mrshare_buffer *buffer;
	pthread_t daemon;
	char byte;
	int r;
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_buffer_register(conn, large, sizeof(large), &buffer), 0);
	ck_assert_int_eq(mrshare_set_timeout(conn, 500), 0);
	fake.on_reg = pin_slowly;
	fake.silent = FAKE_WELCOME;
	ck_assert_int_eq(pthread_create(&daemon, NULL, welcome_twice, NULL), 0);
	r = mrshare_connect(conn, "10.0.0.1");
	ck_assert_msg(r == 0, "wanted 0, got %d: %s", r, mrshare_error());
	fake_disconnect();
	while ((r = mrshare_read(conn, 0, 0, &byte, 1)) == -ECONNRESET)
		continue;
	ck_assert_msg(r == 0, "wanted 0, got %d: %s", r, mrshare_error());
	ck_assert_uint_eq(fake.connects, 2);
	pthread_join(daemon, NULL);

	/* The limit counts on behind it. */
	fake_disconnect();
	while ((r = mrshare_read(conn, 0, 0, &byte, 1)) == -ECONNRESET)
		continue;
	ck_assert_int_eq(r, -ETIMEDOUT);
	fake.on_reg = NULL;
	mrshare_buffer_unregister(&buffer);
}
END_TEST

START_TEST(a_time_limit_beyond_every_int)
{
	ck_assert_int_eq(mrshare_set_timeout(conn, _i ? UINT_MAX : 3000000000u), 0);
	fake.address_timeouts = 3;
	int r = mrshare_connect(conn, "10.0.0.1");
	ck_assert_msg(r == 0, "%d: %s", r, mrshare_error());
	ck_assert_int_eq(mrshare_refresh(conn), 0);
}
END_TEST

START_TEST(a_posted_connect_is_cancelled_or_late)
{
	struct mrshare_how how = { .done = note_result };
	uint64_t operation;
	ck_assert_int_eq(mrshare_set_thread(conn, false), 0);
	fake.silent = FAKE_REQUEST;
	ck_assert_int_eq(mrshare_post_connect(conn, "10.0.0.1", &how, &operation), 0);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	ck_assert_int_eq(mrshare_cancel(conn, operation), 0);
	ck_assert_int_eq(mrshare_cancel(conn, operation), -ENOENT);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ECANCELED);

	how.timeout_ms = 20;
	ck_assert_int_eq(mrshare_post_connect(conn, "10.0.0.1", &how, &operation), 0);
	DISPATCH_UNTIL(conn, result_count == 2);
	ck_assert_int_eq(results[1], -ETIMEDOUT);
	fake.silent = FAKE_NO_STEP;
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
}
END_TEST

START_TEST(it_connects_anew)
{
	char text[4] = "";
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	for (int i = 0; i < 3; i++) {
		memcpy(fake.region, "ab\0", 4);
		fake_disconnect();
		fake.server_id++;
		int r;
		/* The loss may be noticed by this call or before it. */
		while ((r = mrshare_read(conn, 0, 0, text, 4)) == -ECONNRESET)
			ck_assert_ptr_nonnull(strstr(mrshare_error(), "disconnected"));
		ck_assert_int_eq(r, 0);
		ck_assert_str_eq(text, "ab");
		ck_assert_uint_eq(fake.connects, (unsigned int)i + 2);
	}
}
END_TEST

/* What could not be given back is of no use, on a device that comes after it least of all. */
START_TEST(it_connects_anew_by_another_device)
{
	static char memory[FAKE_PAGE];
	struct mrshare_buffer *buffer;
	ck_assert_int_eq(mrshare_set_thread(conn, _i), 0);
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	for (unsigned int i = 2; i < 5; i++) {
		memset(fake.region, (int)i, sizeof(memory));
		fake.gone = true;
		fake_disconnect();
		int r, tries = 0;
		while ((r = mrshare_read(conn, 0, 0, memory, sizeof(memory))) == -ECONNRESET && ++tries < 100)
			usleep(1000);
		ck_assert_msg(r == 0, "wanted 0, got %d: %s", r, mrshare_error());
		ck_assert_mem_eq(memory, fake.region, sizeof(memory));
		ck_assert_uint_eq(fake.connects, i);
	}
	mrshare_buffer_unregister(&buffer);
}
END_TEST

START_TEST(a_daemon_that_is_gone_is_said_by_each_call)
{
	char text[4] = "";
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	fake.reject = "";
	fake_disconnect();
	int r = mrshare_read(conn, 0, 0, text, 4);
	if (r == -ECONNRESET)
		r = mrshare_read(conn, 0, 0, text, 4);
	ck_assert_int_eq(r, -ECONNREFUSED);
	ck_assert_int_eq(mrshare_refresh(conn), -ECONNREFUSED);
	fake.reject = NULL;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, text, 4), 0);
}
END_TEST

START_TEST(silence_of_the_daemon_ends_the_connection)
{
	fake.keepalive_s = 1;
	const struct mrshare_how how = { .done = note_result };
	ck_assert_int_eq(mrshare_set_thread(conn, false), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &how, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ECONNRESET);
}
END_TEST

START_TEST(a_child_only_fails)
{
	struct mrshare_buffer *buffer;
	char memory[64] = "";
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	ck_assert_int_eq(mrshare_buffer_register(conn, memory, sizeof(memory), &buffer), 0);
	pid_t pid = fork();
	if (pid == 0) {
		bool good = mrshare_read(conn, 0, 0, memory, 4) == -ECHILD && mrshare_refresh(conn) == -ECHILD &&
			    mrshare_post_read(conn, 0, 0, memory, 4, NULL, NULL) == -ECHILD &&
			    mrshare_fd(conn) == -ECHILD && mrshare_dispatch(conn) == -ECHILD &&
			    mrshare_granted(conn) == 0 && mrshare_cancel(conn, 1) == -ECHILD;
		mrshare_buffer_unregister(&buffer);
		mrshare_close(&conn);
		_exit(good && !conn && !buffer ? 0 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 4), 0);
	mrshare_buffer_unregister(&buffer);
}
END_TEST

static _Atomic int child_status = -1;
static _Atomic bool in_child;

/* A child returns from the callback of its parent, as one that goes on with a loop of its own does. */
static void fork_in_callback(struct mrshare *of, const struct mrshare_completion *completion)
{
	pid_t pid = fork();
	if (pid == 0) {
		in_child = true;
		alarm(10);
		return;
	}
	int status = -2;
	waitpid(pid, &status, 0);
	child_status = status;
}

static void exit_well(void)
{
	if (in_child)
		_exit(7);
}

START_TEST(a_child_returns_from_a_callback)
{
	const struct mrshare_how how = { .done = fork_in_callback };
	char byte;
	ck_assert_int_eq(mrshare_set_thread(conn, _i == 1), 0);
	ck_assert_int_eq(mrshare_connect(conn, "10.0.0.1"), 0);
	/* Of a thread that returns nothing else is left. */
	atexit(exit_well);
	if (_i == 2)
		fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, &byte, 1, &how, NULL), 0);
	if (_i == 0) {
		int r = mrshare_dispatch(conn);
		if (in_child)
			_exit(r == -ECHILD && mrshare_error_code() == -ECHILD ? 7 : 1);
		ck_assert_int_eq(r, 0);
	} else if (_i == 1) {
		for (int i = 0; i < 10000 && child_status == -1; i++)
			usleep(1000);
	} else {
		struct mrshare *closed = conn;
		mrshare_close(&closed);
		if (in_child)
			_exit(closed ? 1 : 7);
		ck_assert_int_eq(mrshare_new(&conn), 0);
	}
	ck_assert_msg(WIFEXITED(child_status) && WEXITSTATUS(child_status) == 7, "the child: wanted 7, got status 0x%x",
		child_status);
}
END_TEST

void add_connect_tests(Suite *suite)
{
	TCase *tcase = tcase_create("connect");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, open_handle, close_handle);
	tcase_add_loop_test(tcase, a_connect_has_grants_and_views, 0, 2);
	tcase_add_loop_test(tcase, a_step_fails, 2 * FAKE_ADDRESS, 2 * FAKE_WELCOME + 2);
	tcase_add_test(tcase, a_rejection_has_the_daemons_text);
	tcase_add_test(tcase, a_cold_neighbour_is_asked_for_again);
	tcase_add_loop_test(tcase, a_name_is_looked_up, 0, 2);
	tcase_add_loop_test(tcase, a_slow_wire_is_waited_for, 0, 2);
	tcase_add_test(tcase, a_source_is_of_the_same_family);
	tcase_add_test(tcase, an_address_that_is_none);
	tcase_add_test(tcase, without_inline_data_it_connects_too);
	tcase_add_loop_test(tcase, a_catalog_that_makes_no_sense, 0, 8);
	tcase_add_test(tcase, a_connect_is_posted);
	tcase_add_loop_test(tcase, what_is_posted_before_a_connect_ends_too, 0, 2);
	tcase_add_test(tcase, a_buffer_of_no_bytes_is_none);
	tcase_add_test(tcase, a_buffer_comes_while_the_daemon_is_asked);
	tcase_add_loop_test(tcase, pinning_does_not_count_against_the_time_limit, 0, 2);
	tcase_add_loop_test(tcase, a_time_limit_beyond_every_int, 0, 2);
	tcase_add_test(tcase, a_posted_connect_is_cancelled_or_late);
	tcase_add_loop_test(tcase, it_connects_anew, 0, 2);
	tcase_add_loop_test(tcase, it_connects_anew_by_another_device, 0, 2);
	tcase_add_test(tcase, a_daemon_that_is_gone_is_said_by_each_call);
	tcase_add_test(tcase, silence_of_the_daemon_ends_the_connection);
	tcase_add_test(tcase, a_child_only_fails);
	tcase_add_loop_test(tcase, a_child_returns_from_a_callback, 0, 3);
	suite_add_tcase(suite, tcase);

	TCase *failures = tcase_create("connect failures");
	tcase_set_timeout(failures, 60);
	tcase_add_loop_test(failures, a_call_of_verbs_or_cm_fails, 0, FUNCTIONS);
	suite_add_tcase(suite, failures);
}
