/* cursor.c: a bounded cursor over bytes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cursor.h"

#include <endian.h>
#include <string.h>

struct reader reader_init(const void *buf, size_t size)
{
	return (struct reader){ .pos = buf, .left = size };
}

/* The next `size` bytes, or NULL at the end. */
static const uint8_t *take(struct reader *r, size_t size)
{
	if (r->failed || size > r->left) {
		r->failed = true;
		return NULL;
	}
	const uint8_t *bytes = r->pos;
	r->pos += size;
	r->left -= size;
	return bytes;
}

void read_bytes(struct reader *r, void *ret, size_t size)
{
	const uint8_t *bytes = take(r, size);
	if (bytes)
		memcpy(ret, bytes, size);
	else
		memset(ret, 0, size);
}

void read_skip(struct reader *r, size_t size)
{
	take(r, size);
}

uint8_t read_u8(struct reader *r)
{
	uint8_t value;
	read_bytes(r, &value, sizeof(value));
	return value;
}

uint16_t read_u16(struct reader *r)
{
	uint16_t value;
	read_bytes(r, &value, sizeof(value));
	return le16toh(value);
}

uint32_t read_u32(struct reader *r)
{
	uint32_t value;
	read_bytes(r, &value, sizeof(value));
	return le32toh(value);
}

uint64_t read_u64(struct reader *r)
{
	uint64_t value;
	read_bytes(r, &value, sizeof(value));
	return le64toh(value);
}

struct writer writer_init(void *buf, size_t size)
{
	return (struct writer){ .pos = buf, .left = size };
}

/* Room for `size` bytes, or NULL at the end. */
static uint8_t *room(struct writer *w, size_t size)
{
	if (w->failed || size > w->left) {
		w->failed = true;
		return NULL;
	}
	uint8_t *bytes = w->pos;
	w->pos += size;
	w->left -= size;
	return bytes;
}

void write_bytes(struct writer *w, const void *bytes, size_t size)
{
	uint8_t *to = room(w, size);
	if (to && size)
		memcpy(to, bytes, size);
}

void write_zeros(struct writer *w, size_t size)
{
	uint8_t *to = room(w, size);
	if (to)
		memset(to, 0, size);
}

void write_u8(struct writer *w, uint8_t value)
{
	write_bytes(w, &value, sizeof(value));
}

void write_u16(struct writer *w, uint16_t value)
{
	value = htole16(value);
	write_bytes(w, &value, sizeof(value));
}

void write_u32(struct writer *w, uint32_t value)
{
	value = htole32(value);
	write_bytes(w, &value, sizeof(value));
}

void write_u64(struct writer *w, uint64_t value)
{
	value = htole64(value);
	write_bytes(w, &value, sizeof(value));
}
