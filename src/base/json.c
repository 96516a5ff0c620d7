/* json.c: JSON as text that may go to a terminal. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ESCAPE_SIZE = 6 };

char *json_text(struct json_object *object)
{
	const char *text = object ? json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN) : NULL;
	char *out = text ? malloc(ESCAPE_SIZE * strlen(text) + 1) : NULL;
	if (!out)
		return NULL;
	char *end = out;
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		/* DEL and U+0080 to U+009F, which json-c leaves: terminals obey them. */
		bool is_c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f;
		c += is_c1;
		if (is_c1 || *c == 0x7f)
			end += snprintf(end, ESCAPE_SIZE + 1, "\\u%04x", *c);
		else
			*end++ = (char)*c;
	}
	*end = '\0';
	return out;
}
