/* log.c: one line an event on standard error, written by one call so that lines never mix. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static const char *const level_names[] = { "error", "warning", "info", "debug" };

static enum log_level max_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	max_level = level;
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_line(enum log_level level, const char *format, ...)
{
	if (level > max_level)
		return;

	char line[1024];
	int n = snprintf(line, sizeof(line), "%s: ", level_names[level]);
	va_list args;
	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
	va_end(args);
	text_sanitize(line);

	size_t len = strlen(line);
	line[len] = '\n';
	/* A log that nobody reads must not stop the daemon: what would wait is lost. */
	struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
	if (poll(&fd, 1, 0) == 1 && fd.revents & POLLOUT) {
		ssize_t ignored = write(STDERR_FILENO, line, len + 1);
		(void)ignored;
	}
}
