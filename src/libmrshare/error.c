/* error.c: the last failure of each thread, and the version. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <stdio.h>

#include "libmrshare/conn.h"

static _Thread_local struct {
	const char *running; /* the public call that runs */
	const char *call;    /* that failed last */
	int code;
	char text[sizeof(((struct err *)0)->text)];
} last = { .running = "", .call = "" };

void error_enter(const char *call)
{
	last.running = call;
}

int error_publish_of(const char *call, int code, const char *text)
{
	last.call = call;
	last.code = code;
	snprintf(last.text, sizeof(last.text), "%s", text);
	return code;
}

int error_publish(const struct err *err)
{
	return error_publish_of(last.running, err->code, err->text);
}

const char *mrshare_error(void)
{
	return last.text;
}

int mrshare_error_code(void)
{
	return last.code;
}

const char *mrshare_error_call(void)
{
	return last.call;
}

const char *mrshare_version(void)
{
	return PACKAGE_VERSION;
}
