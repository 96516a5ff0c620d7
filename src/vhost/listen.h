/* listen.h: a Unix socket that one daemon serves: locked, replaced when dead, removed at the end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_LISTEN_H
#define VHOST_LISTEN_H

#include <sys/types.h>

#include "base/err.h"
#include "base/event.h"
#include "base/worker.h"

struct listener;

/* Connections of a listener that are refused and whose close hangs; with as many it accepts no more. */
enum { LISTENER_REFUSALS_MAX = 16 };

/* Called for each connection, with a non-blocking fd that becomes the callee's. A negative errno refuses: then the
 * listener closes it, on a worker, since it may hold messages with fds whose close blocks. */
typedef int listener_accept_fn(void *data, int fd);

/* Listens on `path` with that mode, and that group unless it is -1. -EADDRINUSE where somebody serves the path. `path`
 * must outlive the listener. */
int listener_new(struct event_loop *loop, struct worker_pool *pool, const char *path, mode_t mode, gid_t group,
	listener_accept_fn *fn, void *data, struct listener **ret_listener, struct err *err);
/* The same on a socket that listens already, which becomes the listener's when this succeeds. */
int listener_new_fd(struct event_loop *loop, struct worker_pool *pool, int fd, listener_accept_fn *fn, void *data,
	struct listener **ret_listener, struct err *err);
/* Stops listening and removes the socket file unless somebody put another one in its place. */
void listener_free(struct listener **listener);

#endif
