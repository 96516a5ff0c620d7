/* size.h: sizes as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* Parses a decimal or 0x number with an optional K, M, G or T (powers of 1024). -EINVAL where it is none, -ERANGE where
 * it does not fit. */
int size_parse(const char *text, uint64_t *ret_size);
/* Parses a decimal or 0x number up to `max`, without a unit. */
int number_parse(const char *text, uint64_t max, uint64_t *ret_number);

struct size_text {
	char text[32];
};
/* "64 MiB", "4 KiB", "5000 bytes": the largest unit that divides it. `size_format(n).text` lives to the end of the full
 * expression's block. */
struct size_text size_format(uint64_t size);

#endif
