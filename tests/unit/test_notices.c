/* test_notices.c: what the daemon says of its own accord: generations, withdrawals, and what is not its to say. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake_daemon.h"

static const uint8_t rw = MRSHARE_READ | MRSHARE_WRITE;
static struct mrshare *conn;
static int results[8];
static unsigned int result_count;

static void note_result(struct mrshare *of, const struct mrshare_completion *completion)
{
	results[result_count++] = completion->result;
}
static const struct mrshare_how noted = { .done = note_result };

static void open_connection(void)
{
	conn = fake_connected(false);
}

static void close_connection(void)
{
	fake.hold = false;
	mrshare_close(&conn);
	ck_assert_int_eq(fake_objects(), 0);
}

START_TEST(a_notice_is_acknowledged)
{
	fake_notice(1, 2, NULL, 0);
	DISPATCH_UNTIL(conn, fake.acks == 1);
	ck_assert_uint_eq(fake.ack.sequence, 1);
	ck_assert_uint_eq(fake.ack.generation, 2);
	/* Delivered twice, it is answered once. */
	fake_notice(1, 2, NULL, 0);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	ck_assert_uint_eq(fake.acks, 1);
	fake_notice(2, 2, NULL, 0);
	DISPATCH_UNTIL(conn, fake.acks == 2);
	fake_notice(2, 2, NULL, 0);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	char byte;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), 0);
	ck_assert_uint_eq(fake.connects, 1);
}
END_TEST

START_TEST(the_ack_waits_for_what_touches_the_withdrawn)
{
	static char memory[100];
	uint64_t withdrawn = 1;
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &noted, NULL), 0);
	ck_assert_uint_eq(fake.on_wire, 1);
	fake_publish(2, NULL, 0);
	fake_notice(1, 2, &withdrawn, 1);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	ck_assert_uint_eq(fake.on_wire, 1);
	fake_release(1);
	DISPATCH_UNTIL(conn, fake.on_wire == 1);
	ck_assert_int_eq(results[0], 0);
	fake_release(1);
	ck_assert_uint_eq(fake.acks, 1);

	/* New calls on it are refused. */
	fake.hold = false;
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, sizeof(memory)), -ENXIO);
}
END_TEST

START_TEST(the_ack_does_not_wait_for_others)
{
	static char memory[100];
	uint64_t withdrawn = 2;
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &noted, NULL), 0);
	fake_notice(1, 2, &withdrawn, 1);
	DISPATCH_UNTIL(conn, fake.on_wire == 2);
}
END_TEST

START_TEST(an_operation_ends_where_its_mapping_does)
{
	static char memory[2 << 20];
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &noted, NULL), 0);
	unsigned int posted = fake.on_wire;
	ck_assert_uint_lt(posted, sizeof(memory) >> 17);
	fake_publish(2, NULL, 0);
	fake_notice(1, 2, NULL, PEER_WITHDRAWN_ALL);
	for (int i = 0; i < 3; i++)
		fake_wait_dispatch(conn);
	fake_release(posted);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ESTALE);
	DISPATCH_UNTIL(conn, (fake_release(1), fake.acks == 1));
}
END_TEST

/* The same place under another mapping is not what the operation began with. */
START_TEST(an_operation_does_not_slip_to_another_mapping)
{
	static char memory[2 << 20];
	struct mrshare_entry other = fake_entry(2, 0, FAKE_REGION_SIZE / 2, rw);
	uint64_t withdrawn = 1;
	fake.hold = true;
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), &noted, NULL), 0);
	fake_publish(2, &other, 1);
	fake_notice(1, 2, &withdrawn, 1);
	for (int i = 0; i < 3; i++)
		fake_wait_dispatch(conn);
	fake.hold = false;
	fake_release(100);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], -ESTALE);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 10), 0);
}
END_TEST

START_TEST(a_withdrawn_key_that_reaches_the_wire)
{
	static char memory[100];
	fake.hold = true;
	fake_revoke(1);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, 10, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_read(conn, 0, 10, memory + 10, 10, &noted, NULL), 0);
	ck_assert_int_eq(mrshare_post_refresh(conn, &noted, NULL), 0);
	struct mrshare_entry other = fake_entry(3, 0, FAKE_REGION_SIZE / 2, rw);
	fake_publish(9, &other, 1);
	fake.hold = false;
	fake_release(1);
	DISPATCH_UNTIL(conn, result_count == 3);
	ck_assert_int_eq(results[0], -ESTALE);
	ck_assert_int_eq(results[1], -ECONNRESET);
	ck_assert_int_eq(results[2], -ECONNRESET);
	/* The next call connects anew and reads the views anew. */
	ck_assert_int_eq(mrshare_read(conn, 0, 0, memory, 10), 0);
	ck_assert_uint_eq(fake.connects, 2);
}
END_TEST

/* Of a transfer over several, the one that failed is named. */
START_TEST(the_error_names_what_was_removed)
{
	static char memory[16384];
	const struct mrshare_entry entries[] = { fake_entry(1, 0, 8192, rw), fake_entry(2, 8192, 8192, rw) };
	fake_publish(2, entries, 2);
	ck_assert_int_eq(mrshare_refresh(conn), 0);
	fake_revoke((uint64_t)_i);
	ck_assert_int_eq(mrshare_read(conn, 0, 4096, memory, 8192), -ESTALE);
	ck_assert_msg(strstr(mrshare_error(), _i == 1 ? " 0x1000 " : " 0x2000 ") != NULL, "got: %s", mrshare_error());
}
END_TEST

START_TEST(what_is_new_is_found_without_being_asked_for)
{
	static char memory[100];
	struct mrshare_entry entries[] = { fake_entry(1, 0, FAKE_REGION_SIZE / 2, rw),
		fake_entry(2, FAKE_REGION_SIZE / 2, FAKE_REGION_SIZE / 2, rw) };
	ck_assert_int_eq(mrshare_read(conn, 0, FAKE_REGION_SIZE / 2, memory, 10), -ENXIO);
	fake_publish(2, entries, 2);
	fake_notice(1, 2, NULL, 0);
	DISPATCH_UNTIL(conn, fake.acks == 1);
	ck_assert_int_eq(mrshare_read(conn, 0, FAKE_REGION_SIZE / 2, memory, 10), 0);
	ck_assert_int_eq(mrshare_read(conn, 0, FAKE_REGION_SIZE / 2 - 5, memory, 10), 0);
}
END_TEST

START_TEST(a_watch_ends_with_news)
{
	uint64_t generation = 0;
	struct mrshare_entry *entries;
	size_t count;
	ck_assert_int_eq(mrshare_post_watch(conn, 0, &noted, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
	for (int i = 0; i < 5; i++)
		fake_wait_dispatch(conn);
	ck_assert_uint_eq(result_count, 1);
	fake_publish(4, NULL, 0);
	fake_notice(1, 4, NULL, PEER_WITHDRAWN_ALL);
	DISPATCH_UNTIL(conn, result_count == 2);
	ck_assert_int_eq(results[1], 0);
	ck_assert_int_eq(mrshare_views(conn, &entries, &count, &generation), 0);
	ck_assert_uint_eq(generation, 4);
	ck_assert_uint_eq(count, 0);
	free(entries);
	ck_assert_int_eq(mrshare_watch(conn, 4, 20), -ETIMEDOUT);
	ck_assert_int_eq(mrshare_watch(conn, 3, 0), 0);
}
END_TEST

START_TEST(a_watch_ends_with_a_daemon_that_counts_anew)
{
	fake_disconnect();
	DISPATCH_UNTIL(conn, mrshare_watch(conn, 1, 1) != -ETIMEDOUT || fake.connects == 2);
	fake_disconnect();
	fake.server_id = 9;
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	if (results[0] == -ECONNRESET) {
		ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
		DISPATCH_UNTIL(conn, result_count == 2);
	}
	ck_assert_int_eq(results[result_count - 1], 0);
}
END_TEST

/* -ETIMEDOUT of a watch says that there is nothing new: its own time limit, and no other. */
START_TEST(a_watch_that_fails_says_that_it_did)
{
	static char memory[8];
	ck_assert_int_eq(mrshare_set_timeout(conn, 50), 0);
	switch (_i) {
	case 0: /* the wire is silent */
		ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
		fake.hold = true;
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, memory, sizeof(memory), NULL, NULL), 0);
		break;
	case 1: /* the catalog cannot be read */
		ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
		fake.torn = 1000;
		fake_notice(1, 2, NULL, 0);
		break;
	case 2: /* the daemon cannot be reached any more */
		fake_disconnect();
		while (mrshare_refresh(conn) < 0)
			continue;
		fake.silent = FAKE_REQUEST;
		fake_disconnect();
		for (int i = 0; i < 20; i++)
			fake_wait_dispatch(conn);
		ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
		break;
	default: /* none of that */
		ck_assert_int_eq(mrshare_watch(conn, 1, 20), -ETIMEDOUT);
		ck_assert_int_eq(mrshare_refresh(conn), 0);
		ck_assert_uint_eq(fake.connects, 1);
		return;
	}
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_msg(results[0] == -ECONNRESET, "wanted %d, got %d", -ECONNRESET, results[0]);
	fake.hold = false;
}
END_TEST

static uint64_t generation_now(void)
{
	struct mrshare_entry *entries;
	size_t count;
	uint64_t generation;
	ck_assert_int_eq(mrshare_views(conn, &entries, &count, &generation), 0);
	free(entries);
	return generation;
}

/* Whoever made the library connect anew: a read, or a connect that got as far as the accept. */
START_TEST(a_watch_sees_a_daemon_that_is_at_the_same_generation)
{
	uint64_t before = generation_now();
	char byte;
	int r;
	if (_i == 2)
		mrshare_set_timeout(conn, 100);
	fake_disconnect();
	fake.server_id = _i == 3 ? 0 : 9;
	fake.silent = _i == 2 ? FAKE_WELCOME : FAKE_NO_STEP;
	fake.failing = _i == 1 ? FAKE_WELCOME : FAKE_NO_STEP;
	while ((r = mrshare_read(conn, 0, 0, &byte, 1)) < 0) {
		if (fake.connects == 2)
			fake.silent = fake.failing = FAKE_NO_STEP;
	}
	ck_assert_int_eq(mrshare_refresh(conn), 0);
	/* The last one is the same daemon again. */
	ck_assert_int_eq(mrshare_watch(conn, before, 50), _i == 3 ? -ETIMEDOUT : 0);
	ck_assert(_i == 3 ? generation_now() == before : generation_now() > before);
	ck_assert_int_eq(mrshare_watch(conn, generation_now(), 50), -ETIMEDOUT);
	/* What it withdraws goes by its own count. */
	uint64_t withdrawn = 1;
	fake_publish(2, NULL, 0);
	fake_notice(1, 2, &withdrawn, 1);
	ck_assert_int_eq(mrshare_watch(conn, generation_now(), 0), 0);
	ck_assert_uint_eq(fake.ack.generation, 2);
	ck_assert_int_eq(mrshare_read(conn, 0, 0, &byte, 1), -ENXIO);
}
END_TEST

/* The numbers of generations never begin anew, nor would a daemon that counts be there yet. */
START_TEST(generations_do_not_wrap)
{
	const struct mrshare_entry entry = fake_entry(1, 0, FAKE_PAGE, rw);
	char byte;
	int r;
	fake_publish(UINT64_MAX - 1, &entry, 1);
	ck_assert_int_eq(mrshare_refresh(conn), 0);
	uint64_t last = generation_now();
	ck_assert_uint_eq(last, UINT64_MAX - 1);
	fake_publish(1, &entry, 1);
	fake.server_id++;
	fake_disconnect();
	while ((r = mrshare_read(conn, 0, 0, &byte, 1)) == -ECONNRESET)
		continue;
	ck_assert_int_eq(r, -EBADMSG);
	ck_assert_uint_eq(generation_now(), last);
}
END_TEST

/* A daemon has an ack before our device says so. */
START_TEST(more_acks_than_the_wire_has_room_for)
{
	fake.hold = true;
	for (uint32_t i = 1; i <= PEER_RECEIVES + 1; i++) {
		fake_notice(i, i + 1, NULL, 0);
		for (int k = 0; k < 3; k++)
			fake_wait_dispatch(conn);
	}
	ck_assert_uint_eq(fake.on_wire, PEER_RECEIVES);
	fake.hold = false;
	fake_release(PEER_RECEIVES);
	DISPATCH_UNTIL(conn, fake.acks == PEER_RECEIVES + 1);
	ck_assert_uint_eq(fake.ack.sequence, PEER_RECEIVES + 1);
	ck_assert_uint_eq(fake.connects, 1);
}
END_TEST

START_TEST(torn_reads_are_read_again)
{
	fake.torn = 5;
	ck_assert_int_eq(mrshare_refresh(conn), 0);
	ck_assert_uint_eq(fake.torn, 0);
}
END_TEST

START_TEST(after_too_many_torn_reads_a_notice_is_waited_for)
{
	fake.torn = 8;
	ck_assert_int_eq(mrshare_post_refresh(conn, &noted, NULL), 0);
	for (int i = 0; i < 10; i++)
		fake_wait_dispatch(conn);
	ck_assert_uint_eq(fake.torn, 0);
	ck_assert_uint_eq(result_count, 0);
	const struct mrshare_entry entry = fake_entry(1, 0, FAKE_REGION_SIZE, rw);
	fake_publish(2, &entry, 1);
	fake_notice(1, 2, NULL, 0);
	DISPATCH_UNTIL(conn, result_count == 1);
	ck_assert_int_eq(results[0], 0);

	fake.torn = 1000;
	ck_assert_int_eq(mrshare_set_timeout(conn, 50), 0);
	ck_assert_int_eq(mrshare_refresh(conn), -ETIMEDOUT);
	ck_assert_int_eq(mrshare_set_timeout(conn, 5000), 0);
	fake.torn = 0;
	ck_assert_int_eq(mrshare_refresh(conn), 0);
}
END_TEST

START_TEST(a_catalog_older_than_the_notice_is_read_again)
{
	ck_assert_int_eq(mrshare_set_timeout(conn, 50), 0);
	fake_notice(1, 7, NULL, 0);
	DISPATCH_UNTIL(conn, fake.acks == 1);
	ck_assert_int_eq(mrshare_refresh(conn), -ETIMEDOUT);
}
END_TEST

START_TEST(a_broken_rule_ends_the_connection)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK };
	uint8_t bytes[PEER_FRAME_SIZE_MAX] = "garbage that is long enough to be something";
	ck_assert_int_eq(mrshare_post_watch(conn, 1, &noted, NULL), 0);
	switch (_i) {
	case 0: /* a gap in the sequence */
		fake_notice(1, 2, NULL, 0);
		DISPATCH_UNTIL(conn, fake.acks == 1);
		fake_notice(3, 3, NULL, 0);
		break;
	case 1: /* generations that go backwards */
		fake_notice(1, 5, NULL, 0);
		DISPATCH_UNTIL(conn, fake.acks == 1);
		fake_notice(2, 4, NULL, 0);
		break;
	case 2: /* not its to send */
		fake_send(bytes, (size_t)peer_frame_write(&frame, bytes));
		break;
	case 3:
		fake_send(bytes, sizeof(bytes));
		break;
	case 4:
		fake_send(bytes, 0);
		break;
	case 5: /* a first notice that is none */
		fake_notice(0, 2, NULL, 0);
		break;
	case 6:
		fake_notice(2, 2, NULL, 0);
		break;
	case 7: /* more than one duplicate */
		fake_notice(1, 2, NULL, 0);
		DISPATCH_UNTIL(conn, fake.acks == 1);
		fake_notice(1, 2, NULL, 0);
		fake_notice(1, 2, NULL, 0);
		break;
	default: /* a second notice before the answer to the first */
		fake.hold = true;
		ck_assert_int_eq(mrshare_post_read(conn, 0, 0, bytes, 8, NULL, NULL), 0);
		fake_notice(1, 2, NULL, PEER_WITHDRAWN_ALL);
		fake_notice(2, 3, NULL, 0);
	}
	fake.hold = false;
	DISPATCH_UNTIL(conn, result_count >= 1 && results[result_count - 1] != 0);
	ck_assert_int_eq(results[result_count - 1], -ECONNRESET);
}
END_TEST

void add_notices_tests(Suite *suite)
{
	TCase *tcase = tcase_create("notices");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, open_connection, close_connection);
	tcase_add_test(tcase, a_notice_is_acknowledged);
	tcase_add_test(tcase, the_ack_waits_for_what_touches_the_withdrawn);
	tcase_add_test(tcase, the_ack_does_not_wait_for_others);
	tcase_add_test(tcase, an_operation_ends_where_its_mapping_does);
	tcase_add_test(tcase, an_operation_does_not_slip_to_another_mapping);
	tcase_add_test(tcase, a_withdrawn_key_that_reaches_the_wire);
	tcase_add_loop_test(tcase, the_error_names_what_was_removed, 1, 3);
	tcase_add_test(tcase, what_is_new_is_found_without_being_asked_for);
	tcase_add_test(tcase, a_watch_ends_with_news);
	tcase_add_test(tcase, a_watch_ends_with_a_daemon_that_counts_anew);
	tcase_add_loop_test(tcase, a_watch_that_fails_says_that_it_did, 0, 4);
	tcase_add_loop_test(tcase, a_watch_sees_a_daemon_that_is_at_the_same_generation, 0, 4);
	tcase_add_test(tcase, generations_do_not_wrap);
	tcase_add_test(tcase, more_acks_than_the_wire_has_room_for);
	tcase_add_test(tcase, torn_reads_are_read_again);
	tcase_add_test(tcase, after_too_many_torn_reads_a_notice_is_waited_for);
	tcase_add_test(tcase, a_catalog_older_than_the_notice_is_read_again);
	tcase_add_loop_test(tcase, a_broken_rule_ends_the_connection, 0, 9);
	suite_add_tcase(suite, tcase);
}
