/* error.c: the last failure of each thread in words, and the version. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "config.h"

#include <stdio.h>

#include "libmrshare/conn.h"

static _Thread_local char last_error[sizeof(((struct err *)0)->text)];

int error_publish(const struct err *err)
{
	snprintf(last_error, sizeof(last_error), "%s", err->text);
	return err->code;
}

const char *mrshare_error(void)
{
	return last_error;
}

const char *mrshare_version(void)
{
	return PACKAGE_VERSION;
}
