/* guest.h: the pmem device of a front-end, between its queue and the files that its flushes make durable. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_GUEST_H
#define DAEMON_GUEST_H

#include "base/event.h"
#include "daemon/sync.h"
#include "vhost/frontend.h"

/* What front-ends are told that the device is. */
struct frontend_device guest_device(void);
/* Fills the configuration space of a device whose region 0 has that size. */
void guest_config(uint64_t region_size, uint8_t ret_config[VHOST_USER_CONFIG_MAX]);

/* The device's half of `struct frontend_ops`. */
int guest_new(struct event_loop *loop, struct syncer *syncer, struct frontend *frontend, void **ret_guest);
void guest_free(void *guest);
void guest_queue_start(void *guest, unsigned int queue, struct virtqueue *vq);
void guest_queue_stop(void *guest, unsigned int queue);
void guest_queue_kick(void *guest, unsigned int queue);
void guest_fail(void *guest);

#endif
