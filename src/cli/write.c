/* write.c: `mrshare write`: a file's bytes into a region. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

static int run(const struct cli_command *command, int argc, char **argv);

const struct cli_command cli_write = {
	.name = "write",
	.synopsis = "[OPTION]... HOST[:PORT] SHMID:OFFSET [FILE]",
	.summary = "Write FILE or standard input into memory that a daemon shares",
	.options = peer_options,
	.option_count = PEER_OPTION_COUNT,
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

static int copy(struct mrshare *conn, uint8_t shmid, uint64_t offset, int fd, const char *name)
{
	struct transfer_buffer buffer;
	int status = transfer_buffer_open(conn, TRANSFER_PIECE, &buffer);
	if (status != CLI_OK)
		return status;
	ssize_t size;
	do {
		size = fill(fd, buffer.memory, buffer.size);
		if (size < 0)
			status = cli_fail("%s: %s", name, strerror(errno));
		else if (mrshare_write(conn, shmid, offset, buffer.memory, (size_t)size) < 0)
			status = cli_fail("%s", mrshare_error());
		else
			offset += (uint64_t)size;
	} while (status == CLI_OK && (size_t)size == buffer.size);
	transfer_buffer_close(&buffer);
	return status;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	struct peer_settings settings = { 0 };
	struct cli_arguments arguments;
	int status;
	if (options_parse(command, argc, argv, &settings, &arguments, &status) < 0)
		return status;
	char **values = arguments.values;
	if (arguments.count != 2 && arguments.count != 3)
		return cli_usage(command, "wanted are the daemon's address, SHMID:OFFSET, and perhaps a FILE");
	uint8_t shmid;
	uint64_t offset;
	if (!position_parse(values[1], &shmid, &offset))
		return cli_usage(command, "%s: wanted is SHMID:OFFSET, such as 0:0x1000 or 0:64M", values[1]);

	bool from_stdin = arguments.count == 2 || strcmp(values[2], "-") == 0;
	CLEANUP_CLOSE int file = from_stdin ? -1 : open(values[2], O_RDONLY | O_CLOEXEC);
	if (!from_stdin && file < 0)
		return cli_fail("%s: %s", values[2], strerror(errno));
	struct mrshare *conn;
	status = cli_connect(values[0], &settings, true, &conn);
	if (status != CLI_OK)
		return status;
	status = copy(conn, shmid, offset, from_stdin ? STDIN_FILENO : file, from_stdin ? "standard input" : values[2]);
	mrshare_close(&conn);
	return status;
}
