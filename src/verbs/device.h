/* device.h: an RDMA device: its context, one protection domain, its limits. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VERBS_DEVICE_H
#define VERBS_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "base/err.h"
#include "mrshare.h"

struct device {
	struct ibv_context *context; /* rdma_cm's own, so that its ids fit the PD */
	struct ibv_pd *pd;
	char name[MRSHARE_DEVICE_NAME_MAX + 1];
	struct ibv_device_attr attr;
	uint64_t extent_max; /* bytes of the longest extent */
	bool has_atomics;
	bool on_demand;             /* MRs are registered for on-demand paging: nothing is pinned */
	bool enforces_access_flags; /* whether rights of a queue pair hold (not so on irdma) */
	atomic_bool gone; /* removed: its calls fail with EIO, and the kernel has let go of all that was on it */
};

/* `max_mr_size` and `on_demand` as the flags say (0: none). `context` stays rdma_cm's. -EOPNOTSUPP: the device cannot
 * do that on demand. */
int device_new(
	struct ibv_context *context, uint64_t max_mr_size, bool on_demand, struct device **ret_device, struct err *err);
/* Everything made on the device must be gone. */
void device_free(struct device **device);
/* The number of extents that a mapping of `len` bytes is cut into beforehand. */
size_t device_extent_count(const struct device *device, uint64_t len);

/* The name of a device in a line of the log, which gets its field. */
const char *device_tag(const struct device *device);

#endif
