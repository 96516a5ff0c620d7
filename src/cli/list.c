/* list.c: `mrshare list`: the views that a daemon publishes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>

#include "base/fd.h"
#include "cli/peer.h"

static int run(const struct cli_command *command, int argc, char **argv);

static const struct cli_option options[] = { PEER_OPTIONS, PEER_OPTION_JSON("print one JSON object") };

const struct cli_command cli_list = {
	.name = "list",
	.synopsis = "[OPTION]... HOST[:PORT]",
	.summary = "List the memory that a daemon shares",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.run = run,
};

static void print_text(unsigned int granted, const struct mrshare_entry *entries, size_t count, uint64_t generation)
{
	char text[ACCESS_TEXT_SIZE];
	printf("generation %" PRIu64 ", %zu view%s, granted %s\n", generation, count, count == 1 ? "" : "s",
		access_text(granted, text));
	if (count)
		entry_print_header();
	for (size_t i = 0; i < count; i++)
		entry_print(&entries[i]);
}

static struct json_object *views_to_json(const struct mrshare_entry *entries, size_t count)
{
	struct json_object *views = json_object_new_array();
	for (size_t i = 0; views && i < count; i++) {
		struct json_object *view = entry_to_json(&entries[i]);
		if (!view || json_object_array_add(views, view) < 0) {
			json_object_put(view);
			json_object_put(views);
			return NULL;
		}
	}
	return views;
}

static int print_json(struct mrshare *conn, const struct mrshare_entry *entries, size_t count, uint64_t generation)
{
	struct json_object *object = json_object_new_object();
	if (object && json_add(object, "daemon_id", daemon_id_to_json(conn)) &&
		json_add(object, "generation", json_object_new_uint64(generation)) &&
		json_add(object, "granted", access_to_json(mrshare_granted(conn))) &&
		json_add(object, "views", views_to_json(entries, count)))
		return json_print(object);
	json_object_put(object);
	return json_print(NULL);
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

	CLEANUP_FREE struct mrshare_entry *entries = NULL;
	size_t count;
	uint64_t generation;
	if (mrshare_views(peer.conn, &entries, &count, &generation) < 0)
		return cli_fail("%s", mrshare_error());
	if (peer.settings.json)
		return print_json(peer.conn, entries, count, generation);
	print_text(mrshare_granted(peer.conn), entries, count, generation);
	return CLI_OK;
}
