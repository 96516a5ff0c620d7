/* fake_loop.c: an event loop whose clock jumps over the times in which nothing happens. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_loop.h"

#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

enum { SOURCES_MAX = 4096 };

struct source {
	struct event_source base;
	int fd; /* -1: a timer */
	unsigned int events;
	event_io_fn *io_fn;
	event_timer_fn *timer_fn;
	void *data;
	bool set, freed;
	uint64_t due_ms;
};

struct loop {
	struct event_loop base;
	uint64_t now_ms;
	struct source *sources[SOURCES_MAX];
	unsigned int count;
};

static struct event_source *source_new(struct event_loop *base, struct source values)
{
	struct loop *loop = (struct loop *)base;
	struct source *source = malloc(sizeof(*source));
	*source = values;
	source->base.loop = base;
	if (loop->count == SOURCES_MAX)
		abort();
	loop->sources[loop->count++] = source;
	return &source->base;
}

static struct event_source *io_new(struct event_loop *loop, int fd, event_io_fn *fn, void *data)
{
	return source_new(loop, (struct source){ .fd = fd, .io_fn = fn, .data = data });
}

static void io_set(struct event_source *source, unsigned int events)
{
	((struct source *)source)->events = events;
}

static struct event_source *timer_new(struct event_loop *loop, event_timer_fn *fn, void *data)
{
	return source_new(loop, (struct source){ .fd = -1, .timer_fn = fn, .data = data });
}

static void timer_set(struct event_source *base, uint64_t after_ms)
{
	struct source *source = (struct source *)base;
	source->set = true;
	source->due_ms = ((struct loop *)base->loop)->now_ms + after_ms;
}

static void timer_stop(struct event_source *base)
{
	((struct source *)base)->set = false;
}

static void source_free(struct event_source *base)
{
	struct source *source = (struct source *)base;
	source->freed = true;
	source->set = false;
	source->events = 0;
}

static uint64_t now_ms(struct event_loop *loop)
{
	return ((struct loop *)loop)->now_ms;
}

static const struct event_loop_ops ops = {
	.io_new = io_new,
	.io_set = io_set,
	.timer_new = timer_new,
	.timer_set = timer_set,
	.timer_stop = timer_stop,
	.source_free = source_free,
	.now_ms = now_ms,
};

struct event_loop *fake_loop_new(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	loop->base.ops = &ops;
	loop->now_ms = 1000000;
	return &loop->base;
}

static void sweep(struct loop *loop)
{
	unsigned int kept = 0;
	for (unsigned int i = 0; i < loop->count; i++) {
		if (loop->sources[i]->freed)
			free(loop->sources[i]);
		else
			loop->sources[kept++] = loop->sources[i];
	}
	loop->count = kept;
}

void fake_loop_free(struct event_loop **base)
{
	struct loop *loop = (struct loop *)*base;
	sweep(loop);
	for (unsigned int i = 0; i < loop->count; i++)
		free(loop->sources[i]);
	free(loop);
	*base = NULL;
}

/* Whether an fd was ready. */
static bool dispatch_ios(struct loop *loop)
{
	static struct pollfd fds[SOURCES_MAX];
	unsigned int count = loop->count;
	for (unsigned int i = 0; i < count; i++) {
		const struct source *source = loop->sources[i];
		fds[i] = (struct pollfd){ .fd = source->events ? source->fd : -1, .events = POLLIN };
	}
	if (poll(fds, count, 0) <= 0)
		return false;
	for (unsigned int i = 0; i < count; i++) {
		const struct source *source = loop->sources[i];
		if (fds[i].revents && source->events)
			source->io_fn(source->data, EVENT_READ);
	}
	return true;
}

static struct source *next_timer(const struct loop *loop)
{
	struct source *next = NULL;
	for (unsigned int i = 0; i < loop->count; i++) {
		struct source *source = loop->sources[i];
		if (source->set && (!next || source->due_ms < next->due_ms))
			next = source;
	}
	return next;
}

static void fire(struct source *timer)
{
	timer->set = false;
	timer->timer_fn(timer->data);
}

void fake_loop_be_late(struct event_loop *base, uint64_t ms)
{
	struct loop *loop = (struct loop *)base;
	loop->now_ms += ms;
	struct source *timer;
	while ((timer = next_timer(loop)) && timer->due_ms < loop->now_ms)
		fire(timer);
}

void fake_loop_run(struct event_loop *base, uint64_t ms)
{
	struct loop *loop = (struct loop *)base;
	uint64_t end_ms = loop->now_ms + ms;
	for (;;) {
		sweep(loop);
		if (dispatch_ios(loop))
			continue;
		struct source *timer = next_timer(loop);
		if (!timer || timer->due_ms > end_ms)
			break;
		if (timer->due_ms > loop->now_ms)
			loop->now_ms = timer->due_ms;
		fire(timer);
	}
	loop->now_ms = end_ms;
}
