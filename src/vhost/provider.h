/* provider.h: provider sessions: programs that hand us memory over the provider socket. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_PROVIDER_H
#define VHOST_PROVIDER_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/event.h"
#include "base/worker.h"
#include "mrshare.h"

struct provider;
struct providers;

enum {
	PROVIDER_READ_AHEAD = 32, /* complete messages */
	/* The fds that one session can make us hold: its socket, one a message read ahead, the surplus of one read. */
	PROVIDER_FDS_MAX = 1 + PROVIDER_READ_AHEAD + 1 + 253,
};

struct providers_config {
	const char *path; /* of the socket; NULL: `fd` */
	int fd;           /* a listening socket */
	mode_t mode;
	gid_t group; /* -1: ours */
	unsigned int max_providers;
};

/*
 * What a session calls to its right, one request at a time. A negative errno (with `err` in words) refuses at once, and
 * the fd stays the session's. 0 takes the request over, its fd included: provider_answer() ends it, later, never from
 * inside the call.
 */
struct provider_ops {
	int (*map)(void *data, struct provider *provider, const struct mrshare_mmap *mmap, int fd, struct err *err);
	int (*unmap)(void *data, struct provider *provider, const struct mrshare_mmap *mmap, struct err *err);
	/* The connection has ended. A request that was taken over is still to be answered; then the session is freed.
	 */
	void (*gone)(void *data, struct provider *provider);
};

/* Listens on the provider socket. `pool` closes received fds, which may block. `config` must outlive it. */
int providers_new(struct event_loop *loop, const struct providers_config *config, struct worker_pool *pool,
	const struct provider_ops *ops, void *data, struct providers **ret_providers, struct err *err);
/* Stops listening and removes the socket file; sessions go on. */
void providers_stop(struct providers *providers);
/* How many are connected. */
unsigned int providers_count(const struct providers *providers);
/* Ends the request that the session handed over: 0, or a negative errno with `err` in words. */
void provider_answer(struct provider *provider, int result, const struct err *err);

/* Never reused, never 0. */
uint64_t provider_id(const struct provider *provider);
pid_t provider_pid(const struct provider *provider);
uid_t provider_uid(const struct provider *provider);
/* "provider 3 (pid 1234, uid 0)", for logs. */
const char *provider_name(const struct provider *provider);

#endif
