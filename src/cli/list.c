/* list.c: `mrshare list`: the views that a daemon publishes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/size.h"
#include "cli/cli.h"

static int run(const struct cli_command *command, int argc, char **argv);

const struct cli_command cli_list = {
	.name = "list",
	.synopsis = "[OPTION]... HOST[:PORT]",
	.summary = "List the memory that a daemon shares",
	.options = peer_options,
	.option_count = PEER_OPTION_COUNT,
	.run = run,
};

static const char *access_text(unsigned int access, char text[4])
{
	text[0] = access & MRSHARE_READ ? 'r' : '-';
	text[1] = access & MRSHARE_WRITE ? 'w' : '-';
	text[2] = access & MRSHARE_ATOMIC ? 'a' : '-';
	text[3] = '\0';
	return text;
}

static void print_entry(const struct mrshare_entry *entry)
{
	struct mrshare_view view = entry->view;
	char offset[24], access[4];
	text_sanitize(view.device_name);
	snprintf(offset, sizeof(offset), "0x%" PRIx64, entry->shm_offset);
	printf("%5u  %-14s  %-14s  %-6s  0x%08" PRIx32 "  %7" PRIu64 "  %s\n", entry->shmid, offset,
		size_format(view.size).text, access_text(entry->access, access), view.rkey, entry->mapping_id,
		view.device_name);
}

static int print_views(struct mrshare *conn)
{
	struct mrshare_entry *entries;
	size_t count;
	uint64_t generation;
	if (mrshare_views(conn, &entries, &count, &generation) < 0)
		return cli_fail("%s", mrshare_error());
	char granted[4];
	printf("generation %" PRIu64 ", %zu view%s, granted %s\n", generation, count,
		count == 1 ? "" : "s", access_text(mrshare_granted(conn), granted));
	if (count)
		printf("%5s  %-14s  %-14s  %-6s  %-10s  %7s  %s\n", "shmid", "shm_offset", "size", "access", "rkey",
			"mapping", "device");
	for (size_t i = 0; i < count; i++)
		print_entry(&entries[i]);
	free(entries);
	return CLI_OK;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	struct peer_settings settings = { 0 };
	struct cli_arguments arguments;
	int status;
	if (options_parse(command, argc, argv, &settings, &arguments, &status) < 0)
		return status;
	if (arguments.count != 1)
		return cli_usage(command, "the daemon's address is wanted, and nothing else");

	struct mrshare *conn;
	status = cli_connect(arguments.values[0], &settings, false, &conn);
	if (status != CLI_OK)
		return status;
	status = print_views(conn);
	mrshare_close(&conn);
	return status;
}
