/* read.c: `mrshare read`: bytes of a region into a file. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/size.h"
#include "cli/cli.h"

static int run(const struct cli_command *command, int argc, char **argv);

const struct cli_command cli_read = {
	.name = "read",
	.synopsis = "[OPTION]... HOST[:PORT] SHMID:OFFSET LEN [FILE]",
	.summary = "Read memory that a daemon shares, into FILE or standard output",
	.options = peer_options,
	.option_count = PEER_OPTION_COUNT,
	.run = run,
};

struct output {
	const char *name; /* NULL: standard output */
	int fd;           /* -1: not open yet */
};

static int output_failed(const struct output *output)
{
	return cli_fail("%s: %s", output->name ? output->name : "standard output", strerror(errno));
}

/* A file is made only when there is something to put in it: a failed read must not empty it. */
static int output_write(struct output *output, const char *bytes, size_t size)
{
	if (output->fd < 0)
		output->fd = output->name ? open(output->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
					  : STDOUT_FILENO;
	if (output->fd < 0)
		return output_failed(output);
	while (size) {
		ssize_t n = write(output->fd, bytes, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return output_failed(output);
		bytes += n;
		size -= (size_t)n;
	}
	return CLI_OK;
}

/* Some file systems tell only at the end that there was no room. */
static int output_close(struct output *output)
{
	if (!output->name || output->fd < 0)
		return CLI_OK;
	int r = close(output->fd);
	output->fd = -1;
	return r < 0 ? output_failed(output) : CLI_OK;
}

static int copy(struct mrshare *conn, uint8_t shmid, uint64_t offset, uint64_t len, struct output *output)
{
	struct transfer_buffer buffer;
	int status = transfer_buffer_open(conn, len, &buffer);
	if (status != CLI_OK)
		return status;
	do {
		size_t size = len < buffer.size ? (size_t)len : buffer.size;
		if (mrshare_read(conn, shmid, offset, buffer.memory, size) < 0)
			status = cli_fail("%s", mrshare_error());
		else
			status = output_write(output, buffer.memory, size);
		offset += size;
		len -= size;
	} while (len && status == CLI_OK);
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
	if (arguments.count != 3 && arguments.count != 4)
		return cli_usage(command, "wanted are the daemon's address, SHMID:OFFSET, LEN, and perhaps a FILE");
	uint8_t shmid;
	uint64_t offset, len;
	if (!position_parse(values[1], &shmid, &offset))
		return cli_usage(command, "%s: wanted is SHMID:OFFSET, such as 0:0x1000 or 0:64M", values[1]);
	if (size_parse(values[2], &len) < 0)
		return cli_usage(command, "%s: wanted is a length such as 4096, 64M or 0x1000", values[2]);

	/* A reader that goes away is an error that is said, like any other. */
	signal(SIGPIPE, SIG_IGN);
	struct output output = { .name = arguments.count == 4 && strcmp(values[3], "-") != 0 ? values[3] : NULL,
		.fd = -1 };
	struct mrshare *conn;
	status = cli_connect(values[0], &settings, false, &conn);
	if (status != CLI_OK)
		return status;
	status = copy(conn, shmid, offset, len, &output);
	int closed = output_close(&output);
	mrshare_close(&conn);
	return status != CLI_OK ? status : closed;
}
