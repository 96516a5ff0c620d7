/* log_repeats.h: counts lines that come again and again. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_LOG_REPEATS_H
#define BASE_LOG_REPEATS_H

#include "base/log.h"

enum {
	LOG_REPEATS_WRITTEN = 10, /* of lines that are alike, in: */
	LOG_REPEATS_MS = 5000,
};

typedef void log_emit_fn(const struct log_record *record);

/* Whether the line is to be written. `emit` may be called with the count of others. */
bool log_repeats_pass(const struct log_record *record, log_emit_fn *emit);
/* Writes the counts that are due, or `all`. */
void log_repeats_tick(log_emit_fn *emit, bool all);

#endif
