/* log.h: the daemon's log: one line an event, with fields for programs. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum {
	LOG_TEXT_MAX = 1000, /* bytes of a line, without its level, its end included */
	LOG_FIELDS_MAX = 12,
	LOG_VALUE_MAX = 256, /* bytes of a field's value, its end included */
};

/* What a line is about, by the names of systemd's journal: upper case, of a constant string. */
struct log_field {
	const char *name;
	char value[LOG_VALUE_MAX];
};

struct log_record {
	enum log_level level;
	struct timespec when;   /* of CLOCK_REALTIME */
	const char *message_id; /* NULL: none */
	char text[LOG_TEXT_MAX];
	struct log_field fields[LOG_FIELDS_MAX];
	size_t field_count;
};

/* Lines above this level are not written. Default: info. */
void log_set_level(enum log_level level);
/* The level with that name ("error" to "debug"), or -EINVAL. */
int log_level_parse(const char *name, enum log_level *ret_level);
const char *log_level_name(enum log_level level);

/* Lines are JSON objects, with the fields, from now on. */
void log_set_json(void);
/* From now on a line waits for nobody: lines go to `send` (NULL: to standard error), which may block, on a thread of
 * its own. What it does not take in time is lost and counted. Where standard error is a regular file, lines go there at
 * once. -ENOMEM, -EAGAIN. */
typedef void log_send_fn(const struct log_record *record);
int log_start(log_send_fn *send);

/* A field of the line that this thread logs next; what is too long is cut, what is too many left out. Called by what a
 * line names its subject with, see provider_tag() and its like. The first field says whose line it is, for counting
 * repetitions: the user rather than the process, of which there can be a new one each time. */
void log_field(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The line that this thread logs next tells of an event of that kind: 32 hexadecimal digits, constant. */
void log_message_id(const char *message_id);

/*
 * From any thread; never blocks after log_start(). Control characters become '?', since parts
 * of a line may come from a peer; so does what is no UTF-8.
 *
 * Of errors and warnings that differ in numbers only, and have the same first field, the first few in some seconds are
 * written, and the others counted: log_tick() writes their number.
 */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Call it about once a second. */
void log_tick(void);
/* At the end: writes what is counted, and waits a moment for lines that were not taken yet. */
void log_finish(void);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
