/* err.c: an error with its context. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t text_utf8_sequence(const char *text, size_t size)
{
	const unsigned char *byte = (const unsigned char *)text;
	unsigned char lead = byte[0];
	if (lead < 0x80)
		return 1;
	size_t len = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
	if (lead < 0xc2 || lead > 0xf4 || len > size)
		return 0;

	/* The second byte is narrower after some leads: no overlong form, no surrogate, nothing above U+10FFFF. */
	unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (byte[1] < low || byte[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++) {
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
	}
	return len;
}

void text_sanitize(char *text)
{
	size_t size = strlen(text);
	for (size_t i = 0; i < size;) {
		size_t n = text_utf8_sequence(text + i, size - i);
		unsigned char first = (unsigned char)text[i], second = (unsigned char)text[i + 1];
		/* U+0080 to U+009F too, which terminals obey. */
		bool is_control = first < 0x20 || first == 0x7f || (first == 0xc2 && second <= 0x9f);
		if (n == 0 || is_control)
			memset(text + i, '?', n ? n : 1);
		i += n ? n : 1;
	}
}

int err_set(struct err *err, int code, const char *format, ...)
{
	if (!err)
		return code;
	err->code = code;

	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	text_sanitize(err->text);
	return code;
}

int err_prefix(struct err *err, const char *format, ...)
{
	char prefix[320], text[sizeof(err->text)];
	va_list args;
	va_start(args, format);
	vsnprintf(prefix, sizeof(prefix), format, args);
	va_end(args);

	snprintf(text, sizeof(text), "%s", err->text);
	return err_set(err, err->code, "%s: %s", prefix, text);
}
