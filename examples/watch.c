/* watch.c: says what a daemon shares and takes back, from an event loop of its own, without a thread.
 * Usage: watch HOST[:PORT] [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <mrshare.h>

static struct mrshare_entry *known;
static size_t known_count;
static int result;

static int show_changes(struct mrshare *conn, uint64_t *ret_generation)
{
	struct mrshare_entry *entries;
	struct mrshare_change *changes;
	size_t count, change_count;
	int r = mrshare_views(conn, &entries, &count, ret_generation);
	if (r == 0)
		r = mrshare_changes(known, known_count, entries, count, &changes, &change_count);
	if (r < 0)
		return r;
	for (size_t i = 0; i < change_count; i++) {
		const struct mrshare_change *change = &changes[i];
		const struct mrshare_entry *entry = change->kind == MRSHARE_WITHDRAWN ? &change->before : &change->now;
		printf("%c region %u at 0x%" PRIx64 ", %" PRIu64 " bytes\n", " +-~"[change->kind], entry -> shmid,
			entry -> shm_offset, entry -> view.size);
	}
	free(changes);
	free(known);
	known = entries;
	known_count = count;
	return fflush(stdout);
}

/* Each watch ends once, with news or a failure, and is posted anew. */
static void news(struct mrshare *conn, const struct mrshare_completion *completion)
{
	struct mrshare_how how = { .done = news };
	uint64_t generation = 0;
	result = completion->result;
	if (result == 0)
		result = show_changes(conn, &generation);
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
