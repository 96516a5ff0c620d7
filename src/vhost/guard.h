/* guard.h: accesses to memory that another process may take away under us. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_GUARD_H
#define VHOST_GUARD_H

#include <stdatomic.h>
#include <stdint.h>

enum { GUARD_RANGES_MAX = 8 };

/* What is mapped there may vanish, in units of its page size. */
struct guard_range {
	uintptr_t start, len;
	uintptr_t page;
};

struct guard {
	struct guard_range ranges[GUARD_RANGES_MAX];
	unsigned int count;
	atomic_bool broken; /* something has vanished; zeros are in its place */
};

/* Handles SIGBUS in this process from now on; once is enough. */
void guard_install(void);
/* Between the two, this thread may access the guard's ranges, and nothing else that can vanish. They do not nest. */
void guard_enter(struct guard *guard);
void guard_leave(void);

#endif
