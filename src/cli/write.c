/* write.c: `mrshare write`: a file's bytes into a region. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/peer.h"

static int run(const struct cli_command *command, int argc, char **argv);

static const struct cli_option options[] = { PEER_OPTIONS };

const struct cli_command cli_write = {
	.name = "write",
	.synopsis = "[OPTION]... HOST[:PORT] SHMID:OFFSET [FILE]",
	.summary = "Write FILE or standard input into memory that a daemon shares",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.run = run,
};

/* Reads until the buffer is full or the file ends. Returns the bytes, or -1 with errno. */
static ssize_t fill(int fd, char *memory, size_t size)
{
	size_t done = 0;
	while (done < size) {
		ssize_t n = read(fd, memory + done, size - done);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* What is left of a file; 0 where nobody knows. */
static uint64_t left_of(int fd)
{
	struct stat st;
	off_t at = lseek(fd, 0, SEEK_CUR);
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && at >= 0 && at < st.st_size ? (uint64_t)(st.st_size - at)
											: 0;
}

/* The next piece has an origin that begins with that of those before, or they went into another mapping. */
static int extend_origin(const struct peer *peer, uint64_t done, uint64_t size, char **origin)
{
	char *longer;
	int status = origin_take(peer, peer->offset, done + size, &longer);
	if (status != CLI_OK)
		return status;
	if (*origin)
		status = origin_check(peer, peer->offset, done, *origin);
	free(*origin);
	*origin = longer;
	return status;
}

static int copy(const struct peer *peer, int fd, const char *name)
{
	CLEANUP_FREE char *origin = NULL;
	CLEANUP_TRANSFER struct transfer_buffer buffer = { 0 };
	int status = transfer_buffer_open(peer->conn, TRANSFER_PIECE, &buffer);
	if (status != CLI_OK)
		return status;
	progress_start(left_of(fd), false);
	uint64_t done = 0;
	ssize_t size;
	do {
		size = fill(fd, buffer.memory, buffer.size);
		if (size < 0)
			status = cli_fail("%s: %s", name, strerror(errno));
		else if (done || (size_t)size == buffer.size)
			status = extend_origin(peer, done, (uint64_t)size, &origin);
		if (status == CLI_OK &&
			mrshare_write(peer->conn, peer->shmid, peer->offset + done, buffer.memory, (size_t)size) < 0)
			status = cli_fail("%s", mrshare_error());
		if (status == CLI_OK) {
			done += (uint64_t)size;
			progress_add((uint64_t)size);
		}
	} while (status == CLI_OK && (size_t)size == buffer.size);
	if (status == CLI_OK && origin)
		status = origin_check(peer, peer->offset, done, origin);
	progress_end();
	return status;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	static const struct peer_operands operands = { "are the daemon's address, SHMID:OFFSET, and perhaps a FILE",
		true, 0, 1 };
	CLEANUP_PEER struct peer peer = { 0 };
	int status;
	if (peer_begin(command, &operands, argc, argv, &peer, &status) < 0)
		return status;

	const char *name = peer.other_count ? peer.others[0] : "-";
	bool from_stdin = strcmp(name, "-") == 0;
	CLEANUP_CLOSE int file = from_stdin ? -1 : open(name, O_RDONLY | O_CLOEXEC);
	if (!from_stdin && file < 0)
		return cli_fail("%s: %s", name, strerror(errno));
	status = peer_connect(&peer, true);
	if (status == CLI_OK)
		status = copy(&peer, from_stdin ? STDIN_FILENO : file, from_stdin ? "standard input" : name);
	return status;
}
