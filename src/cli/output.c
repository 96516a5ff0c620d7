/* output.c: where `mrshare read` puts the bytes, and what is needed to go on with half of them. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * While a regular file is not complete, a file beside it says what it is a copy of. That one is written after the file
 * was emptied and removed before it is emptied: a file with bytes never has another's description.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/peer.h"

#define NOTES_SUFFIX ".mrshare-part"

static int output_failed(const struct output *output)
{
	return cli_fail("%s: %s", output->name ? output->name : "standard output", strerror(errno));
}

static int name_notes(struct output *output)
{
	if (!output->notes && asprintf(&output->notes, "%s" NOTES_SUFFIX, output->name) < 0) {
		output->notes = NULL;
		return cli_fail("out of memory");
	}
	return CLI_OK;
}

/* Whether the file beside it says that it is a copy of `origin`. errno is ENOENT where there is none. */
static bool notes_match(const struct output *output, const char *origin)
{
	FILE *file = fopen(output->notes, "re");
	if (!file)
		return false;
	CLEANUP_FREE char *line = NULL;
	size_t room = 0;
	ssize_t size = getline(&line, &room, file);
	fclose(file);
	errno = 0;
	return size > 0 && line[size - 1] == '\n' && (size_t)size - 1 == strlen(origin) &&
	       memcmp(line, origin, (size_t)size - 1) == 0;
}

int output_resume(struct output *output, const char *origin, uint64_t len, uint64_t *ret_done)
{
	*ret_done = 0;
	CLEANUP_CLOSE int fd = open(output->name, O_WRONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0)
		return errno == ENOENT ? CLI_OK : output_failed(output);
	if (fstat(fd, &st) < 0)
		return output_failed(output);
	if (!S_ISREG(st.st_mode))
		return cli_fail("%s: it is no regular file, which --continue needs", output->name);
	if (st.st_size == 0)
		return CLI_OK;
	if (name_notes(output) != CLI_OK)
		return CLI_FAILED;
	if (!notes_match(output, origin))
		return cli_fail("%s: it cannot be continued: %s%s%s; remove it, or leave out --continue", output->name,
			errno == ENOENT ? "it is complete or a copy of something else, as there is no "
					: "the mapping or what is asked for is another than the one that ",
			output->notes, errno == ENOENT ? "" : " is about");
	if ((uint64_t)st.st_size > len || lseek(fd, 0, SEEK_END) < 0)
		return cli_fail("%s: it cannot be continued: it is longer than what is asked for", output->name);
	*ret_done = (uint64_t)st.st_size;
	output->fd = fd;
	fd = -1;
	return CLI_OK;
}

/* Without the file beside it the copy cannot be continued, and is as good. */
static void write_notes(struct output *output, const char *origin)
{
	FILE *file = fopen(output->notes, "we");
	if (file) {
		fprintf(file, "%s\n", origin);
		fclose(file);
	}
}

static int output_open(struct output *output, const char *origin)
{
	if (!output->name) {
		output->fd = STDOUT_FILENO;
		return CLI_OK;
	}
	if (name_notes(output) != CLI_OK)
		return CLI_FAILED;
	unlink(output->notes);
	output->fd = open(output->name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	struct stat st;
	if (output->fd < 0 || fstat(output->fd, &st) < 0)
		return output_failed(output);
	if (origin && S_ISREG(st.st_mode))
		write_notes(output, origin);
	return CLI_OK;
}

int output_write(struct output *output, const char *origin, const char *bytes, size_t size)
{
	if (output->fd < 0 && output_open(output, origin) != CLI_OK)
		return CLI_FAILED;
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

int output_close(struct output *output, bool complete)
{
	int status = CLI_OK;
	/* Some file systems tell only at the end that there was no room. */
	if (output->name && output->fd >= 0 && close(output->fd) < 0)
		status = output_failed(output);
	if (output->notes && complete && status == CLI_OK)
		unlink(output->notes);
	free(output->notes);
	*output = (struct output){ .fd = -1 };
	return status;
}
