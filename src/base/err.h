/* err.h: an error with its context, made where it happens and said where people are spoken to. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stddef.h>

/* A failure: a negative errno and one line that says what happened, to what, and what to do now. */
struct err {
	int code;
	char text[480];
};

/* Sets `err` (which may be NULL) and returns `code`. Control characters in the text become '?': parts of it may come
 * from a peer. */
int err_set(struct err *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text. Returns err->code. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The length of the UTF-8 sequence at `text`, one character of Unicode's table 3-7; 0 where there is none within
 * `size`, which is 1 or more. */
size_t text_utf8_sequence(const char *text, size_t size);
/* Control characters of `text`, and bytes that are no UTF-8, become '?'. */
void text_sanitize(char *text);

#endif
