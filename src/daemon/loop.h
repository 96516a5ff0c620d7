/* loop.h: the daemon's event loop. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include "base/event.h"

/* One a process, for its whole life. NULL: out of memory or fds. */
struct event_loop *loop_new(void);
/* Calls `fn` on the loop's thread for each signal `signum` from now on. NULL: out of memory. */
struct event_source *loop_signal_new(struct event_loop *loop, int signum, event_timer_fn *fn, void *data);
/* Runs until loop_stop(). */
void loop_run(struct event_loop *loop);
void loop_stop(struct event_loop *loop);

#endif
