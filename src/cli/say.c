/* say.c: errors for people. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/peer.h"

/* One line: what a name of a file has in it is nothing that a terminal obeys. */
static void __attribute__((format(printf, 1, 0)))
say(const char *format, va_list args, const struct cli_command *command, const char *end)
{
	char *text;
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	if (text)
		text_sanitize(text);
	fprintf(stderr, "mrshare%s%s: %s%s\n", command ? " " : "", command ? command->name : "",
		text ? text : "out of memory for the words of an error", end);
	free(text);
}

int cli_fail(const char *format, ...)
{
	progress_end();
	va_list args;
	va_start(args, format);
	say(format, args, NULL, "");
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
	char help[64];
	snprintf(help, sizeof(help), " (see: mrshare %s%s--help)", command ? command->name : "", command ? " " : "");
	va_list args;
	va_start(args, format);
	say(format, args, command, help);
	va_end(args);
	return CLI_USAGE;
}

enum { WAIT_S = 5 };

/* Ready to be written, since a signal handler may do little. */
static char wait_text[512];

static void say_wait(int signal_number)
{
	int saved = errno;
	(void)signal_number;
	if (write(STDERR_FILENO, wait_text, strlen(wait_text)) < 0)
		errno = saved;
}

void cli_wait_begin(const char *format, ...)
{
	static const char prefix[] = "mrshare: waiting ";
	size_t at = sizeof(prefix) - 1;
	strcpy(wait_text, prefix);
	va_list args;
	va_start(args, format);
	vsnprintf(wait_text + at, sizeof(wait_text) - at - 1, format, args);
	va_end(args);
	text_sanitize(wait_text);
	strcat(wait_text, "\n");
	signal(SIGALRM, say_wait);
	alarm(WAIT_S);
}

void cli_wait_end(void)
{
	alarm(0);
}
