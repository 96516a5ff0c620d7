/* watch.c: says what a daemon shares and takes back, from an event loop of its own, without a thread.
 * Usage: watch HOST[:PORT] [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mrshare.h>

static const char kinds[] = " +-~";
static struct mrshare_entry *known;
static size_t known_count;
static uint8_t known_daemon[MRSHARE_DAEMON_ID_SIZE];
static int result;

static int show_news(struct mrshare *conn, uint64_t *ret_generation)
{
	uint8_t daemon[MRSHARE_DAEMON_ID_SIZE];
	struct mrshare_entry *entries = NULL;
	struct mrshare_change *changes = NULL;
	size_t count, change_count = 0;
	if (mrshare_daemon_id(conn, daemon) < 0 || mrshare_views(conn, &entries, &count, ret_generation) < 0)
		return mrshare_error_code();
	if (known_count && memcmp(daemon, known_daemon, sizeof(daemon)) != 0) {
		printf("started anew, with other memory, whatever its numbers are\n");
		known_count = 0;
	}
	int r = mrshare_changes(known, known_count, entries, count, &changes, &change_count);
	for (size_t i = 0; i < change_count; i++) {
		enum mrshare_change_kind kind = changes[i].kind;
		const struct mrshare_entry *entry = kind == MRSHARE_WITHDRAWN ? &changes[i].before : &changes[i].now;
		printf("%c region %u at 0x%" PRIx64 ", %" PRIu64 " bytes\n", kinds[kind], entry->shmid,
			entry->shm_offset, entry->view.size);
	}
	free(changes);
	free(known);
	known = entries;
	known_count = count;
	memcpy(known_daemon, daemon, sizeof(daemon));
	return r < 0 ? r : fflush(stdout);
}

/* Each watch ends once, with news or a failure, and is posted anew. */
static void news(struct mrshare *conn, const struct mrshare_completion *completion)
{
	uint64_t generation = 0;
	result = completion->result;
	if (result == 0)
		result = show_news(conn, &generation);
	if (result == 0)
		result = mrshare_post_watch(conn, generation, &(struct mrshare_how){ .done = news }, NULL);
}

int main(int argc, char **argv)
{
	struct mrshare *conn = NULL;
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
		result = mrshare_post_connect(conn, argv[1], &(struct mrshare_how){ .done = news }, NULL);
	while (result == 0) {
		struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
		poll(&fd, 1, -1);
		mrshare_dispatch(conn);
	}
	fprintf(stderr, "watch: %s: %s\n", mrshare_error_call(), mrshare_error());
	mrshare_close(&conn);
	free(known);
	return 1;
}
