/* watch.c: says what a daemon shares and takes back, from an event loop of its own, without a thread.
 * Usage: watch HOST[:PORT] [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mrshare.h>

static struct mrshare_entry *known;
static size_t known_count;
static int result;

static uint8_t known_daemon[MRSHARE_DAEMON_ID_SIZE];

static int show_changes(const struct mrshare_entry *entries, size_t count)
{
	struct mrshare_change *changes;
	size_t change_count;
	int r = mrshare_changes(known, known_count, entries, count, &changes, &change_count);
	for (size_t i = 0; r == 0 && i < change_count; i++) {
		const struct mrshare_change *change = &changes[i];
		const struct mrshare_entry *entry = change->kind == MRSHARE_WITHDRAWN ? &change->before : &change->now;
		printf("%c region %u at 0x%" PRIx64 ", %" PRIu64 " bytes\n", " +-~"[change->kind], entry -> shmid,
			entry -> shm_offset, entry -> view.size);
	}
	if (r == 0)
		free(changes);
	return r;
}

static int show_news(struct mrshare *conn, uint64_t *ret_generation)
{
	uint8_t daemon[MRSHARE_DAEMON_ID_SIZE];
	struct mrshare_entry *entries;
	size_t count;
	int r = mrshare_daemon_id(conn, daemon);
	/* One that was started anew has other mappings, whatever their numbers are. */
	if (r == 0 && memcmp(daemon, known_daemon, sizeof(daemon)) != 0) {
		r = show_changes(NULL, 0);
		known_count = 0;
		memcpy(known_daemon, daemon, sizeof(daemon));
	}
	if (r == 0)
		r = mrshare_views(conn, &entries, &count, ret_generation);
	if (r < 0)
		return r;
	r = show_changes(entries, count);
	free(known);
	known = entries;
	known_count = count;
	return r < 0 ? r : fflush(stdout);
}

/* Each watch ends once, with news or a failure, and is posted anew. */
static void news(struct mrshare *conn, const struct mrshare_completion *completion)
{
	struct mrshare_how how = { .done = news };
	uint64_t generation = 0;
	result = completion->result;
	if (result == 0)
		result = show_news(conn, &generation);
	if (result == 0)
		result = mrshare_post_watch(conn, generation, &how, NULL);
}

int main(int argc, char **argv)
{
	struct mrshare *conn = NULL;
	struct mrshare_how how = { .done = news };
	if (argc < 2) {
		fprintf(stderr, "usage: watch HOST[:PORT] [SOURCE]\n");
		return 2;
	}
	result = mrshare_new(&conn);
	if (result == 0)
		result = mrshare_set_source(conn, argc > 2 ? argv[2] : NULL);
	if (result == 0)
		result = mrshare_set_thread(conn, false);
	if (result == 0) /* its completion is the first news */
		result = mrshare_post_connect(conn, argv[1], &how, NULL);
	while (result == 0) {
		struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
		poll(&fd, 1, -1);
		if (mrshare_dispatch(conn) < 0)
			break;
	}
	fprintf(stderr, "watch: %s: %s\n", mrshare_error_call(), mrshare_error());
	mrshare_close(&conn);
	free(known);
	return 1;
}
