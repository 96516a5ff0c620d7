/* fake_loop.h: an event loop whose clock jumps over the times in which nothing happens. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_LOOP_H
#define FAKE_LOOP_H

#include "base/event.h"

struct event_loop *fake_loop_new(void);
void fake_loop_free(struct event_loop **loop);
/* Runs for that long on the loop's clock. */
void fake_loop_run(struct event_loop *loop, uint64_t ms);
/* That much later, a loop that was late: the timers that are due come before all else that has happened, as in libev. */
void fake_loop_be_late(struct event_loop *loop, uint64_t ms);

#endif
