/* event.h: what a stage asks of the event loop that runs it; daemon/loop.c fills the table. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_EVENT_H
#define BASE_EVENT_H

#include <stdint.h>

enum { EVENT_READ = 1, EVENT_WRITE = 2 };

struct event_loop;
struct event_source;

typedef void event_io_fn(void *data, unsigned int events);
typedef void event_timer_fn(void *data);

struct event_loop_ops {
	struct event_source *(*io_new)(struct event_loop *loop, int fd, event_io_fn *fn, void *data);
	void (*io_set)(struct event_source *source, unsigned int events);
	struct event_source *(*timer_new)(struct event_loop *loop, event_timer_fn *fn, void *data);
	void (*timer_set)(struct event_source *source, uint64_t after_ms);
	void (*timer_stop)(struct event_source *source);
	void (*source_free)(struct event_source *source);
	uint64_t (*now_ms)(struct event_loop *loop);
};

/* A loop's own struct starts with this one. */
struct event_loop {
	const struct event_loop_ops *ops;
};

struct event_source {
	struct event_loop *loop;
};

/* Watches `fd` for nothing at first; the fd stays the caller's and must outlive the source. NULL: out of memory. */
static inline struct event_source *event_io_new(struct event_loop *loop, int fd, event_io_fn *fn, void *data)
{
	return loop->ops->io_new(loop, fd, fn, data);
}

/* Watches for `events` from now on (EVENT_READ | EVENT_WRITE, 0: none). */
static inline void event_io_set(struct event_source *source, unsigned int events)
{
	source->loop->ops->io_set(source, events);
}

/* A stopped timer. NULL: out of memory. */
static inline struct event_source *event_timer_new(struct event_loop *loop, event_timer_fn *fn, void *data)
{
	return loop->ops->timer_new(loop, fn, data);
}

/* Fires once, `after_ms` from now; what was set before is replaced. */
static inline void event_timer_set(struct event_source *source, uint64_t after_ms)
{
	source->loop->ops->timer_set(source, after_ms);
}

static inline void event_timer_stop(struct event_source *source)
{
	source->loop->ops->timer_stop(source);
}

/* Stops and frees a source of either kind; takes NULL and nulls the pointer. Allowed in the source's own call-back. */
static inline void event_source_free(struct event_source **source)
{
	if (*source)
		(*source)->loop->ops->source_free(*source);
	*source = 0;
}

/* A monotonic clock. */
static inline uint64_t event_now_ms(struct event_loop *loop)
{
	return loop->ops->now_ms(loop);
}

#endif
