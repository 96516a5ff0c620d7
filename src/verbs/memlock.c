/* memlock.c: the budget of locked memory, asked before anything is pinned. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "verbs/registration.h"

/* glibc has no wrapper for capget, and one bit is not worth a library. */
static bool may_lock_without_limit(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	return data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK);
}

void memlock_init(struct memlock *memlock)
{
	struct rlimit limit;
	*memlock = (struct memlock){ .limit = UINT64_MAX };
	if (!may_lock_without_limit() && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		memlock->limit = limit.rlim_cur;
}

int memlock_take(struct memlock *memlock, uint64_t len, size_t device_count, struct err *err)
{
	uint64_t need, pinned = atomic_load(&memlock->pinned);
	bool impossible = __builtin_mul_overflow(len, (uint64_t)device_count, &need);
	do {
		/* The kernel's rule for all: what exceeds the limit is refused, what meets it is not. */
		if (impossible || pinned > memlock->limit || need > memlock->limit - pinned)
			return err_set(err, -ENOMEM,
				"%s must be locked on each of %zu device(s), %s are locked already, and RLIMIT_MEMLOCK "
				"is %s: raise it "
				"(LimitMEMLOCK=infinity in the unit file, `ulimit -l unlimited` in a shell)",
				size_format(len).text, device_count, size_format(pinned).text,
				size_format(memlock->limit).text);
	} while (!atomic_compare_exchange_weak(&memlock->pinned, &pinned, pinned + need));
	return 0;
}

void memlock_give_back(struct memlock *memlock, uint64_t len, size_t device_count)
{
	atomic_fetch_sub(&memlock->pinned, len * device_count);
}
