/* watch.c: `mrshare watch`: what a daemon adds, withdraws and changes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "cli/peer.h"

static int run(const struct cli_command *command, int argc, char **argv);

static const struct cli_option options[] = { PEER_OPTIONS, PEER_OPTION_JSON("print a JSON object a line") };

const struct cli_command cli_watch = {
	.name = "watch",
	.synopsis = "[OPTION]... HOST[:PORT]",
	.summary = "Show what a daemon shares and, until interrupted, what changes",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.run = run,
};

static const char *kind_text(enum mrshare_change_kind kind)
{
	return kind == MRSHARE_ADDED ? "added" : kind == MRSHARE_WITHDRAWN ? "withdrawn" : "changed";
}

static int print_json(const struct mrshare_change *change, uint64_t generation)
{
	struct json_object *object = entry_to_json(change->kind == MRSHARE_WITHDRAWN ? &change->before : &change->now);
	if (object && json_add(object, "change", json_object_new_string(kind_text(change->kind))) &&
		json_add(object, "generation", json_object_new_uint64(generation)) &&
		(change->kind != MRSHARE_CHANGED || json_add(object, "before", entry_to_json(&change->before))))
		return json_print(object);
	json_object_put(object);
	return json_print(NULL);
}

static int print_change(const struct mrshare_change *change, uint64_t generation, bool json)
{
	if (json)
		return print_json(change, generation);
	printf("%10" PRIu64 "  %-9s  ", generation, kind_text(change->kind));
	entry_print(change->kind == MRSHARE_WITHDRAWN ? &change->before : &change->now);
	return CLI_OK;
}

/* The views that were shown last. */
struct shown {
	struct mrshare_entry *entries;
	size_t count;
	uint64_t generation;
	uint8_t daemon_id[MRSHARE_DAEMON_ID_SIZE];
};

static int show_changes(const struct peer *peer, struct shown *shown)
{
	struct shown now;
	CLEANUP_FREE struct mrshare_change *changes = NULL;
	size_t count;
	if (mrshare_daemon_id(peer->conn, now.daemon_id) < 0 ||
		mrshare_views(peer->conn, &now.entries, &now.count, &now.generation) < 0)
		return cli_fail("%s", mrshare_error());
	/* The connection was lost and made anew between two looks. */
	if (shown->entries && memcmp(now.daemon_id, shown->daemon_id, sizeof(now.daemon_id)) != 0) {
		free(now.entries);
		return cli_fail("%s: the daemon was started anew", peer->address);
	}
	int r = mrshare_changes(shown->entries, shown->count, now.entries, now.count, &changes, &count);
	ptr_free(&shown->entries);
	*shown = now;
	if (r < 0)
		return cli_fail("%s", mrshare_error());

	int status = CLI_OK;
	for (size_t i = 0; i < count && status == CLI_OK; i++)
		status = print_change(&changes[i], now.generation, peer->settings.json);
	return status == CLI_OK ? cli_flush() : status;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	static const struct peer_operands operands = { "is the daemon's address, and nothing else", false, 0, 0 };
	CLEANUP_PEER struct peer peer = { 0 };
	int status;
	if (peer_begin(command, &operands, argc, argv, &peer, &status) < 0)
		return status;
	status = peer_connect(&peer, false);
	if (status != CLI_OK)
		return status;

	if (!peer.settings.json) {
		printf("%10s  %-9s  ", "generation", "change");
		entry_print_header();
	}
	struct shown shown = { 0 };
	do {
		if (mrshare_watch(peer.conn, shown.generation, 0) < 0)
			status = cli_fail("%s", mrshare_error());
		else
			status = show_changes(&peer, &shown);
	} while (status == CLI_OK);
	ptr_free(&shown.entries);
	return status;
}
