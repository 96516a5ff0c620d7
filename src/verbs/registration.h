/* registration.h: the MRs of one mapping on every device, all or nothing. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VERBS_REGISTRATION_H
#define VERBS_REGISTRATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "verbs/device.h"

/* One MR; its extents cover a mapping without a gap. iova = shm_offset. */
struct extent {
	uint64_t shm_offset;
	uint64_t len;
	struct ibv_mr *mr;
};

enum { REGISTRATION_DEVICES_MAX = 16 };

struct registration {
	size_t device_count;
	struct device_extents {
		struct device *device;
		struct extent *extents;
		size_t count; /* 0: the device has gone, or has no room for it */
	} devices[REGISTRATION_DEVICES_MAX];
};

/* What to register: mapped memory and the place of its first byte in the region. */
struct registration_request {
	void *addr;
	uint64_t len;
	uint64_t shm_offset;
	bool writable;                /* remote write (and atomics where the device has them), else remote read only */
	const atomic_bool *cancelled; /* looked at between chunks: -ECANCELED */
};

/* Faults the pages in and registers on every device, in order; what fails is undone in reverse order. A device that goes
 * meanwhile is no failure: it has no extents; that it goes is waited for, 10 s at most, where it refuses as one does that
 * is being removed. Takes as long as pinning takes: workers only. `err` says why in words that
 * name the remedy. Where undoing fails too, *ret_registration is what is left, for registration_free(): the memory is
 * still registered then. Otherwise a failure leaves it alone. */
int registration_new(struct device *const *devices, size_t device_count, const struct registration_request *request,
	struct registration **ret_registration, struct err *err);
/* Deregisters and frees. Where an MR cannot be deregistered: its errno; the rest is done, and a further call tries what
 * is left again. Blocks: on the thread for deregistration only. */
int registration_free(struct registration **registration, struct err *err);

/* The same on one more device. What fails is undone; where undoing fails, the device has the extents that are
 * left. */
int registration_add(struct registration *registration, struct device *device,
	const struct registration_request *request, struct err *err);
/* Deregisters on one device, which is in `registration` no more. Fails as registration_free() does. */
int registration_drop(struct registration *registration, const struct device *device, struct err *err);
/* NULL: not registered there. */
struct device_extents *registration_on(struct registration *registration, const struct device *device);

/*
 * The budget of locked memory, which the kernel counts a process and device. Of any thread.
 */

struct memlock {
	_Atomic uint64_t pinned; /* bytes */
	uint64_t limit;  /* UINT64_MAX: none (CAP_IPC_LOCK, or unlimited) */
};

void memlock_init(struct memlock *memlock);
/* Takes len x devices; -ENOMEM with words where the limit does not allow it. */
int memlock_take(struct memlock *memlock, uint64_t len, size_t device_count, struct err *err);
void memlock_give_back(struct memlock *memlock, uint64_t len, size_t device_count);

#endif
