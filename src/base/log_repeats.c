/* log_repeats.c: counts lines that come again and again. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines are alike when they differ in numbers only and are about the same subject, which is the first field: so nobody
 * fills the log by asking for another offset each time, and nobody hides what happens to others. A table of bounded
 * size holds those that came lately; the oldest makes room.
 */
#include "base/log_repeats.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/err.h"

enum { KINDS_MAX = 64 };

struct kind {
	uint64_t hash;
	uint64_t since_ms; /* when the first of them came; 0: not in use */
	uint64_t last_ms;
	uint64_t seen;
	struct log_record first;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct kind kinds[KINDS_MAX];

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f');
}

static uint64_t hash_of(const struct log_record *record)
{
	char text[LOG_TEXT_MAX];
	size_t n = 0;
	for (const char *c = record->text; *c;) {
		bool is_number = is_digit(*c), is_hexadecimal = c[0] == '0' && c[1] == 'x';
		text[n++] = is_number ? '0' : *c;
		c += is_hexadecimal ? 2 : 1;
		while (is_number && (is_hexadecimal ? is_hex(*c) : is_digit(*c)))
			c++;
	}
	const char *subject = record->field_count ? record->fields[0].value : "";
	return XXH64(text, n, XXH64(subject, strlen(subject), (XXH64_hash_t)record->level));
}

static void write_count(struct kind *kind, log_emit_fn *emit)
{
	uint64_t more = kind->seen > LOG_REPEATS_WRITTEN ? kind->seen - LOG_REPEATS_WRITTEN : 0;
	uint64_t took_ms = kind->last_ms - kind->since_ms;
	kind->since_ms = 0;
	if (!more)
		return;
	struct log_record *record = &kind->first;
	char count[80];
	int n = snprintf(count, sizeof(count), " (repeated %" PRIu64 " times in %" PRIu64 ".%" PRIu64 " s)", more,
		took_ms / 1000, took_ms % 1000 / 100);
	size_t len = strlen(record->text), max = sizeof(record->text) - 1 - (size_t)n;
	strcpy(record->text + (len < max ? len : max), count);
	text_sanitize(record->text); /* what was cut may be half a character */
	emit(record);
}

/* The entry of that hash, or else one that is free, or else the oldest. */
static struct kind *find(uint64_t hash)
{
	struct kind *oldest = kinds;
	for (size_t i = 0; i < KINDS_MAX; i++) {
		if (kinds[i].since_ms && kinds[i].hash == hash)
			return &kinds[i];
		if (kinds[i].since_ms < oldest->since_ms)
			oldest = &kinds[i];
	}
	return oldest;
}

bool log_repeats_pass(const struct log_record *record, log_emit_fn *emit)
{
	uint64_t hash = hash_of(record), now = clock_ms();
	pthread_mutex_lock(&lock);
	struct kind *kind = find(hash);
	if (kind->since_ms && (kind->hash != hash || now - kind->since_ms >= LOG_REPEATS_MS))
		write_count(kind, emit);
	if (!kind->since_ms) {
		*kind = (struct kind){ .hash = hash, .since_ms = now, .first = *record };
	}
	kind->last_ms = now;
	bool passes = ++kind->seen <= LOG_REPEATS_WRITTEN;
	pthread_mutex_unlock(&lock);
	return passes;
}

void log_repeats_tick(log_emit_fn *emit, bool all)
{
	uint64_t now = clock_ms();
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < KINDS_MAX; i++) {
		if (kinds[i].since_ms && (all || now - kinds[i].since_ms >= LOG_REPEATS_MS))
			write_count(&kinds[i], emit);
	}
	pthread_mutex_unlock(&lock);
}
