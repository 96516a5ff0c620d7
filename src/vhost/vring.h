/* vring.h: a split virtqueue in memory that may be hostile. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_VRING_H
#define VHOST_VRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>

#include "base/err.h"
#include "vhost/memory.h"

/*
 * Nothing that stands in the ring is believed: each index, flag, address and length is copied once, checked, and used
 * from the copy. The first thing that is wrong breaks the ring: the call says so, once; from then on the ring has no
 * requests and takes no answers until it is started again.
 *
 * Requests must be answered in the order in which they were popped, so that a stopped ring can say where to go on.
 */

/* What the ring can do; a device's own features are added to them. */
#define VRING_FEATURES                                                                         \
	(UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC | UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX | \
		UINT64_C(1) << VIRTIO_F_VERSION_1)

enum { VRING_NUM_MAX = 32768 };

/* A descriptor's buffer. It lay inside one mapped entry when it was popped. */
struct vring_segment {
	uint64_t addr; /* a guest address */
	uint32_t len;
	bool writable; /* by us */
};

struct vring_request {
	uint16_t head;
	unsigned int readable_count, writable_count; /* segments: first those that we read, then those that we write */
	uint64_t readable_len, writable_len;
	const struct vring_segment *segments; /* the ring's, until the next call of vring_pop() */
};

struct vring_addrs {
	uint64_t desc, avail, used;
};

struct virtqueue;

/* `max_num` is a power of two up to VRING_NUM_MAX. -ENOMEM. */
int vring_new(unsigned int max_num, struct virtqueue **ret_vq);
void vring_free(struct virtqueue **vq);

/* These three are for a stopped ring, -EBUSY else. -EINVAL: no power of two or too large; not aligned; above 65535. */
int vring_set_num(struct virtqueue *vq, uint32_t num, struct err *err);
int vring_set_addrs(struct virtqueue *vq, const struct vring_addrs *addrs, struct err *err);
int vring_set_base(struct virtqueue *vq, uint32_t base, struct err *err);
/* The index of the request that is popped next. */
uint16_t vring_base(const struct virtqueue *vq);

/* Starts the ring, a broken one too. `features` are those acknowledged; `kind` is that of the ring's own addresses. An
 * error where num or addresses are not set, or are not in memory; the ring then stays stopped. */
int vring_start(struct virtqueue *vq, struct memory *memory, enum memory_kind kind, uint64_t features, struct err *err);
/* Requests not answered yet are given back: they are popped again after the next start. */
void vring_stop(struct virtqueue *vq);
bool vring_is_running(const struct virtqueue *vq);
/* From now on the ring is in that memory. */
void vring_set_memory(struct virtqueue *vq, struct memory *memory);

/* 1: a request; 0: none, and the driver will kick; or the ring broke: a negative errno, -EIO where its memory did. */
int vring_pop(struct virtqueue *vq, struct vring_request *ret_request, struct err *err);
/* Answers a request with `written` bytes in its segments. 0, or the ring broke. */
int vring_push(struct virtqueue *vq, uint16_t head, uint32_t written, struct err *err);
/* Whether the driver wants a call for what was pushed since it was last asked. 1, 0, or the ring broke. */
int vring_needs_call(struct virtqueue *vq, struct err *err);

/* Copies `len` bytes, which the segments must have, from or to their beginning. 0, or the ring broke. */
int vring_read(struct virtqueue *vq, const struct vring_segment *segments, void *ret_buf, size_t len, struct err *err);
int vring_write(
	struct virtqueue *vq, const struct vring_segment *segments, const void *buf, size_t len, struct err *err);

#endif
