/* err.c: an error with its context. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

void text_sanitize(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
		/* U+0080 to U+009F, which terminals obey too. */
		if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
			c[0] = c[1] = '?';
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
	char prefix[128], text[sizeof(err->text)];
	va_list args;
	va_start(args, format);
	vsnprintf(prefix, sizeof(prefix), format, args);
	va_end(args);

	snprintf(text, sizeof(text), "%s", err->text);
	return err_set(err, err->code, "%s: %s", prefix, text);
}
