/* say.c: errors for people. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/peer.h"

int cli_fail(const char *format, ...)
{
	progress_end();
	va_list args;
	va_start(args, format);
	fputs("mrshare: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return CLI_FAILED;
}

int cli_flush(void)
{
	errno = 0;
	/* What failed to go out earlier is no longer there to be flushed. */
	if (fflush(stdout) == 0 && !ferror(stdout))
		return CLI_OK;
	return cli_fail("standard output: %s", errno ? strerror(errno) : "not all could be written");
}

int cli_end(int status)
{
	bool told = status == CLI_OK || status == CLI_NOT_SWAPPED;
	return told && cli_flush() != CLI_OK ? CLI_FAILED : status;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "mrshare %s: ", command->name);
	vfprintf(stderr, format, args);
	fprintf(stderr, " (see: mrshare %s --help)\n", command->name);
	va_end(args);
	return CLI_USAGE;
}
