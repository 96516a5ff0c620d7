/* range.h: arithmetic on foreign offsets and lengths that cannot overflow. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_RANGE_H
#define BASE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether offset + len is more than 2^64 - 1. */
static inline bool range_overflows(uint64_t offset, uint64_t len)
{
	return len > UINT64_MAX - offset;
}

/* Whether [offset, offset + len) lies inside [0, size). */
static inline bool range_fits(uint64_t offset, uint64_t len, uint64_t size)
{
	return offset <= size && len <= size - offset;
}

/* Whether two ranges, neither of which overflows, share a byte. */
static inline bool ranges_overlap(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a < b ? b - a < a_len && b_len : a - b < b_len && a_len;
}

/* Whether `value` is a multiple of `unit`, a power of two. */
static inline bool is_aligned(uint64_t value, uint64_t unit)
{
	return (value & (unit - 1)) == 0;
}

#endif
