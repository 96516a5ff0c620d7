/* driver.h: the driver's side of a virtqueue, in a memfd that tests do with as they like. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "vhost/memory.h"
#include "vhost/vring.h"

/*
 * Guest memory of two neighbours of one file, and one entry that is an own file behind them. User addresses are others.
 * The ring is at the beginning of the first.
 */
#define DRIVER_GUEST UINT64_C(0x100000)
#define DRIVER_USER UINT64_C(0x7f0000000000)
#define DRIVER_SIZE (UINT64_C(4) << 20)
#define DRIVER_SECOND (DRIVER_GUEST + DRIVER_SIZE)
#define DRIVER_OWN (DRIVER_GUEST + 2 * DRIVER_SIZE)
/* Buffers are from here on. */
#define DRIVER_BUFFERS (DRIVER_GUEST + (UINT64_C(2) << 20))

struct driver {
	int fd;
	uint8_t *bytes; /* both neighbours */
	struct memory *memory;
	struct vring ring; /* as the driver sees it */
	struct vring_addrs addrs;
	struct virtqueue *vq; /* of `num` at most; running */
	uint64_t features;
};

void driver_new(struct driver *driver, unsigned int num, uint64_t features);
void driver_free(struct driver *driver);
/* Another table of the same memory. */
struct memory *driver_table(const struct driver *driver);
/* Guest addresses by kind. */
struct vring_addrs driver_addrs(const struct driver *driver, enum memory_kind kind);
void driver_start(struct driver *driver);

/* Where a guest address is. */
void *driver_at(const struct driver *driver, uint64_t guest_addr);
void driver_desc(struct driver *driver, unsigned int index, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next);
/* The same in a table anywhere. */
void driver_desc_at(struct driver *driver, uint64_t table, unsigned int index, uint64_t addr, uint32_t len,
	uint16_t flags, uint16_t next);
void driver_offer(struct driver *driver, uint16_t head);

/* Open file descriptors of this process. */
unsigned int count_fds(void);

#endif
