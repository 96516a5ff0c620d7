/* pmem.h: the virtio persistent memory device: its configuration, and its queue of flushes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DEVICE_PMEM_H
#define DEVICE_PMEM_H

#include <stdint.h>

#include <linux/virtio_ids.h>
#include <linux/virtio_pmem.h>

#include "base/err.h"
#include "base/event.h"
#include "vhost/vring.h"

/* The device's memory is shared memory region 0. Source: VIRTIO 1.4, "PMEM Device", "Feature bits". */
#ifndef VIRTIO_PMEM_F_SHMEM_REGION
#define VIRTIO_PMEM_F_SHMEM_REGION 0
#endif

#define PMEM_FEATURES (UINT64_C(1) << VIRTIO_PMEM_F_SHMEM_REGION)

enum {
	PMEM_VIRTIO_ID = VIRTIO_ID_PMEM,
	PMEM_QUEUES = 1,
	PMEM_QUEUE_NUM_MAX = 1024,
	PMEM_FLUSH_TIMEOUT_MS = 30000,
};

struct pmem;

/* None of these may free the pmem or its ring from inside the call. */
struct pmem_ops {
	/* Makes durable what region 0's files on disks hold now. 0: pmem_synced() follows, later, never from inside the
	 * call; 1: there is nothing to do; or a negative errno with `err` in words. One at a time. */
	int (*sync)(void *data, struct err *err);
	/* The file that the running sync waits for, in words, for the log. */
	const char *(*sync_waits_for)(void *data);
	/* The driver is to be called. */
	void (*call)(void *data);
	/* The ring broke; with -EIO the front-end's memory did. Said once a start. */
	void (*broken)(void *data, const struct err *err);
};

/* Whether a front-end can be offered these regions, sizes by shmid (0: none): region 0 exists and is a multiple of
 * 2 MiB, and the sum is a power of two. -EINVAL with the next good size. */
int pmem_check_regions(const uint64_t sizes[256], struct err *err);
/* The device's configuration space. */
struct virtio_pmem_config pmem_config(uint64_t region_size);

/* `name` is the front-end's, for logs; it and `ops` must outlive the pmem. -ENOMEM. */
int pmem_new(struct event_loop *loop, const char *name, const struct pmem_ops *ops, void *data, struct pmem **ret_pmem);
/* A sync that runs must not be answered any more. */
void pmem_free(struct pmem **pmem);

/* The queue's ring was started: takes requests from now on, those that wait already included. */
void pmem_start(struct pmem *pmem, struct virtqueue *vq);
/* Before its ring is stopped. Flushes without an answer are left to vring_stop(), which gives them back. */
void pmem_stop(struct pmem *pmem);
/* The driver kicked. */
void pmem_kick(struct pmem *pmem);
/* The sync ended: 0, or a negative errno with `err` in words. */
void pmem_synced(struct pmem *pmem, int result, const struct err *err);
/* The daemon ends: answers every flush with 1, those that wait and those that are still to come. */
void pmem_fail_all(struct pmem *pmem);
/* Flushes without an answer. */
unsigned int pmem_waiting(const struct pmem *pmem);

#endif
