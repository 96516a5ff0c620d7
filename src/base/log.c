/* log.c: the daemon's log: one line an event, written by one call so that lines never mix. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log_repeats.h"
#include "base/log_send.h"

static const char *const level_names[] = { "error", "warning", "info", "debug" };

static atomic_int max_level = LOG_LEVEL_INFO;
static bool writes_json;
static bool is_sent; /* by a thread of its own */

static _Thread_local struct log_field next_fields[LOG_FIELDS_MAX];
static _Thread_local size_t next_field_count;
static _Thread_local const char *next_message_id;

void log_set_level(enum log_level level)
{
	atomic_store(&max_level, (int)level);
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

const char *log_level_name(enum log_level level)
{
	return level_names[level];
}

void log_set_json(void)
{
	writes_json = true;
}

void log_field(const char *name, const char *format, ...)
{
	if (next_field_count == LOG_FIELDS_MAX)
		return;
	struct log_field *field = &next_fields[next_field_count++];
	field->name = name;
	va_list args;
	va_start(args, format);
	vsnprintf(field->value, sizeof(field->value), format, args);
	va_end(args);
	text_sanitize(field->value);
}

void log_message_id(const char *message_id)
{
	next_message_id = message_id;
}

/* Others who share the file may have made it non-blocking. */
static void write_bytes(const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = write(STDERR_FILENO, bytes, size);
		if (n >= 0) {
			bytes += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN) {
			struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
			poll(&fd, 1, -1);
		} else if (errno != EINTR) {
			return;
		}
	}
}

static void write_plain(const struct log_record *record)
{
	char line[LOG_TEXT_MAX + 16];
	int n = snprintf(line, sizeof(line), "%s: %s\n", level_names[record->level], record->text);
	write_bytes(line, (size_t)n);
}

static void write_json(const struct log_record *record)
{
	char when[40];
	struct tm utc;
	size_t n = strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", gmtime_r(&record->when.tv_sec, &utc));
	snprintf(when + n, sizeof(when) - n, ".%06ldZ", record->when.tv_nsec / 1000);

	struct json_object *object = json_object_new_object();
	if (!object)
		return;
	json_object_object_add(object, "time", json_object_new_string(when));
	json_object_object_add(object, "level", json_object_new_string(level_names[record->level]));
	json_object_object_add(object, "message", json_object_new_string(record->text));
	if (record->message_id)
		json_object_object_add(object, "MESSAGE_ID", json_object_new_string(record->message_id));
	for (size_t i = 0; i < record->field_count; i++)
		json_object_object_add(object, record->fields[i].name, json_object_new_string(record->fields[i].value));
	char line[2 * (LOG_TEXT_MAX + LOG_FIELDS_MAX * (LOG_VALUE_MAX + 32))];
	int size = snprintf(line, sizeof(line), "%s\n",
		json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(object);
	if ((size_t)size < sizeof(line))
		write_bytes(line, (size_t)size);
}

static void write_record(const struct log_record *record)
{
	if (writes_json)
		write_json(record);
	else
		write_plain(record);
}

static void emit(const struct log_record *record)
{
	if (is_sent)
		log_send(record);
	else
		write_record(record);
}

int log_start(log_send_fn *send)
{
	struct stat st;
	if (!send && fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode))
		return 0;
	int r = log_send_start(send ? send : write_record);
	is_sent = r == 0;
	return r;
}

void log_line(enum log_level level, const char *format, ...)
{
	struct log_record record = { .level = level, .message_id = next_message_id, .field_count = next_field_count };
	memcpy(record.fields, next_fields, next_field_count * sizeof(next_fields[0]));
	next_field_count = 0;
	next_message_id = NULL;
	if ((int)level > atomic_load(&max_level))
		return;

	clock_gettime(CLOCK_REALTIME, &record.when);
	va_list args;
	va_start(args, format);
	vsnprintf(record.text, sizeof(record.text), format, args);
	va_end(args);
	text_sanitize(record.text);
	if (level > LOG_LEVEL_WARNING || log_repeats_pass(&record, emit))
		emit(&record);
}

void log_tick(void)
{
	log_repeats_tick(emit, false);
}

void log_finish(void)
{
	log_repeats_tick(emit, true);
	if (is_sent)
		log_send_end();
}
