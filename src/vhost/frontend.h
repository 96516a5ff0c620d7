/* frontend.h: front-end sessions: QEMU, or another VMM, whose back-end we are. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_FRONTEND_H
#define VHOST_FRONTEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/event.h"
#include "base/worker.h"
#include "mrshare.h"
#include "vhost/vring.h"
#include "wire/vhost_user.h"

struct frontend;
struct frontends;

enum {
	FRONTEND_QUEUES_MAX = 1,
	/* The fds that one session can make us hold: two sockets, kick, call and err of a queue, those of a table, and
	 * what one message or one read brings that waits to be closed. */
	FRONTEND_FDS_MAX = 2 + 3 * FRONTEND_QUEUES_MAX + VHOST_USER_REGIONS_MAX + 253 + VHOST_USER_REGIONS_MAX,
};

/* What the device behind the queues is, the same for every front-end. */
struct frontend_device {
	uint64_t features; /* its own; the ring's are added */
	unsigned int queues;
	unsigned int queue_num_max;
};

/* Where front-ends come from, and what those are offered. */
struct frontend_socket {
	const char *path;    /* NULL: `fd` */
	int fd;              /* a listening socket, or a connected one: its front-end is there already */
	uint64_t sizes[256]; /* of the regions, by shmid; 0: not offered */
	uint8_t config[VHOST_USER_CONFIG_MAX]; /* the device's configuration space, with zeros behind its end */
};

struct frontends_config {
	mode_t mode; /* of socket files */
	gid_t group; /* -1: ours */
	unsigned int max_frontends;
	bool gpa_addresses;
	struct frontend_device device;
};

/* What sessions call to their right. None may call back into the front-end from inside, but frontend_call() and
 * frontend_broken(). */
struct frontend_ops {
	/* A device for a new front-end. -ENOMEM. */
	int (*device_new)(void *data, struct frontend *frontend, void **ret_device);
	void (*device_free)(void *device);
	/* The queue's ring was started, is to be stopped, was kicked. */
	void (*queue_start)(void *device, unsigned int queue, struct virtqueue *vq);
	void (*queue_stop)(void *device, unsigned int queue);
	void (*queue_kick)(void *device, unsigned int queue);
	/* The daemon ends: what the device has not answered yet fails. */
	void (*device_fail)(void *device);

	/* Whether that file is one of a mapping. */
	bool (*is_own_file)(void *data, dev_t dev, ino_t ino);
	/* No front-end holds the withdrawn mapping any more. */
	void (*released)(void *data, uint64_t mapping_id);
	/* The front-end of a connected `fd` has left, or was dropped for what it did. */
	void (*left)(void *data, bool was_dropped);
};

/* `pool` closes fds, maps memory tables, and tells drivers. What is given must outlive it. */
int frontends_new(struct event_loop *loop, const struct frontends_config *config, struct worker_pool *pool,
	const struct frontend_ops *ops, void *data, struct frontends **ret_frontends, struct err *err);
/* Opens a socket, which must outlive the front-ends. */
int frontends_open(struct frontends *frontends, const struct frontend_socket *socket, struct err *err);
/* Stops listening and removes the socket files; sessions go on. */
void frontends_close(struct frontends *frontends);
/* The same, fails what devices have not answered; `done` when drivers were told. */
void frontends_stop(struct frontends *frontends, void (*done)(void *data), void *data);

/* A writable mapping is live: it is announced to each front-end that is offered its region. `fd` must stay open until
 * the mapping is withdrawn. `id` is higher than those before. */
int frontends_add(struct frontends *frontends, uint64_t id, const struct mrshare_mmap *mmap, int fd, bool is_static,
	struct err *err);
/* Takes a mapping back from the front-ends. True: none holds it, or it was never added. False: released() follows,
 * later. */
bool frontends_withdraw(struct frontends *frontends, uint64_t id);
/* How many are connected. */
unsigned int frontends_count(const struct frontends *frontends);
/* The name of a front-end that still holds a withdrawn mapping, and why it does; for people. */
void frontends_who_holds(const struct frontends *frontends, uint64_t id, char *ret_text, size_t size);

/* "front-end 2 (pid 1234, uid 0)", for logs; it lives as long as the front-end. */
const char *frontend_name(const struct frontend *frontend);
/* The driver of that queue is to be called; its ring broke (-EIO: the front-end's memory did). Allowed at any time. */
void frontend_call(struct frontend *frontend, unsigned int queue);
void frontend_broken(struct frontend *frontend, unsigned int queue, const struct err *err);

#endif
