/* limits.h: what the system must allow for the flags to hold. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_LIMITS_H
#define DAEMON_LIMITS_H

#include "base/err.h"
#include "daemon/options.h"

/* Raises RLIMIT_NOFILE to its hard limit; -ERANGE where it, or vm.max_map_count, cannot hold what the flags allow. */
int limits_check(const struct options *options, struct err *err);

#endif
