/* read.c: `mrshare read`: bytes of a region into a file. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/size.h"
#include "cli/peer.h"

static int run(const struct cli_command *command, int argc, char **argv);

static const struct cli_option options[] = {
	PEER_OPTIONS,
	{ "output", "FILE", "where to (standard output)", option_text, offsetof(struct peer_settings, output), 'o' },
	{ "continue", NULL, "go on with a FILE that an earlier read left incomplete", option_switch,
		offsetof(struct peer_settings, resume), 0 },
};

const struct cli_command cli_read = {
	.name = "read",
	.synopsis = "[OPTION]... HOST[:PORT] SHMID:OFFSET LEN",
	.summary = "Read memory that a daemon shares",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.run = run,
};

/* From `done` on. Each piece is kept only after a look at what was mapped when the last byte of it had come. */
static int copy(const struct peer *peer, uint64_t len, uint64_t done, const char *origin, struct output *output)
{
	CLEANUP_TRANSFER struct transfer_buffer buffer = { 0 };
	int status = transfer_buffer_open(peer->conn, len - done, &buffer);
	if (status != CLI_OK)
		return status;
	progress_start(len - done, !output->name && isatty(STDOUT_FILENO));
	do {
		size_t size = len - done < buffer.size ? (size_t)(len - done) : buffer.size;
		if (mrshare_read(peer->conn, peer->shmid, peer->offset + done, buffer.memory, size) < 0)
			status = cli_fail("%s", mrshare_error());
		else if (origin)
			status = origin_check(peer, peer->offset, len, origin);
		if (status == CLI_OK)
			status = output_write(output, origin, buffer.memory, size);
		done += size;
		progress_add(size);
	} while (done < len && status == CLI_OK);
	progress_end();
	return status;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	static const struct peer_operands operands = { "are the daemon's address, SHMID:OFFSET and LEN", true, 1, 1 };
	CLEANUP_PEER struct peer peer = { 0 };
	int status;
	if (peer_begin(command, &operands, argc, argv, &peer, &status) < 0)
		return status;
	uint64_t len, done = 0;
	if (size_parse(peer.others[0], &len) < 0)
		return cli_usage(command, "%s: wanted is a length such as 4096, 64M or 0x1000", peer.others[0]);
	const char *file = peer.settings.output;
	struct output output = { .name = file && strcmp(file, "-") != 0 ? file : NULL, .fd = -1 };
	if (peer.settings.resume && !output.name)
		return cli_usage(command, "--continue goes on with a file, which --output names");

	/* A reader that goes away is an error that is said, like any other. */
	signal(SIGPIPE, SIG_IGN);
	status = peer_connect(&peer, false);
	CLEANUP_FREE char *origin = NULL;
	if (status == CLI_OK && (len > TRANSFER_PIECE || peer.settings.resume))
		status = origin_take(&peer, peer.offset, len, &origin);
	if (status == CLI_OK && peer.settings.resume)
		status = output_resume(&output, origin, len, &done);
	if (status == CLI_OK && (done < len || !done))
		status = copy(&peer, len, done, origin, &output);
	int closed = output_close(&output, status == CLI_OK);
	return status != CLI_OK ? status : closed;
}
