/* cursor.h: a bounded cursor over bytes. An error sticks: check it once, at the end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_CURSOR_H
#define BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All integers are little-endian. What reads beyond the end gets zeros and sets `failed`; what writes beyond it writes
 * nothing and sets `failed`. */
struct reader {
	const uint8_t *pos;
	size_t left;
	bool failed;
};

struct writer {
	uint8_t *pos;
	size_t left;
	bool failed;
};

struct reader reader_init(const void *buf, size_t size);
uint8_t read_u8(struct reader *r);
uint16_t read_u16(struct reader *r);
uint32_t read_u32(struct reader *r);
uint64_t read_u64(struct reader *r);
void read_bytes(struct reader *r, void *ret, size_t size);
void read_skip(struct reader *r, size_t size);

struct writer writer_init(void *buf, size_t size);
void write_u8(struct writer *w, uint8_t value);
void write_u16(struct writer *w, uint16_t value);
void write_u32(struct writer *w, uint32_t value);
void write_u64(struct writer *w, uint64_t value);
void write_bytes(struct writer *w, const void *bytes, size_t size);
void write_zeros(struct writer *w, size_t size);

#endif
