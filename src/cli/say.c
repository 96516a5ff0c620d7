/* say.c: errors for people. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>

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
