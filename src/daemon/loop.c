/* loop.c: the event loop on libev; the only file that knows it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/loop.h"

#include <stdlib.h>

#include "base/clock.h"

/* libev's own macros cast watchers and break no rule that matters here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-align"
#include <ev.h>

struct loop {
	struct event_loop base;
	struct ev_loop *ev;
};

struct source {
	struct event_source base;
	enum { SOURCE_IO, SOURCE_TIMER, SOURCE_SIGNAL } kind;
	union {
		ev_io io;
		ev_timer timer;
		ev_signal signal;
	};
	event_io_fn *io_fn;
	event_timer_fn *timer_fn;
	void *data;
};

static struct ev_loop *ev_of(struct event_source *source)
{
	return ((struct loop *)source->loop)->ev;
}

static void on_io(struct ev_loop *ev, ev_io *io, int revents)
{
	struct source *source = io->data;
	source->io_fn(source->data, (revents & EV_READ ? EVENT_READ : 0u) | (revents & EV_WRITE ? EVENT_WRITE : 0u));
}

static void on_timer(struct ev_loop *ev, ev_timer *timer, int revents)
{
	struct source *source = timer->data;
	source->timer_fn(source->data);
}

static void on_signal(struct ev_loop *ev, ev_signal *signal, int revents)
{
	struct source *source = signal->data;
	source->timer_fn(source->data);
}

static struct source *source_new(struct event_loop *loop, int kind, void *data)
{
	struct source *source = calloc(1, sizeof(*source));
	if (!source)
		return NULL;
	source->base.loop = loop;
	source->kind = kind;
	source->data = data;
	return source;
}

static struct event_source *io_new(struct event_loop *loop, int fd, event_io_fn *fn, void *data)
{
	struct source *source = source_new(loop, SOURCE_IO, data);
	if (!source)
		return NULL;
	source->io_fn = fn;
	ev_io_init(&source->io, on_io, fd, 0);
	source->io.data = source;
	return &source->base;
}

static void io_set(struct event_source *base, unsigned int events)
{
	struct source *source = (struct source *)base;
	int wanted = (events & EVENT_READ ? EV_READ : 0) | (events & EVENT_WRITE ? EV_WRITE : 0);
	if (ev_is_active(&source->io) && (source->io.events & (EV_READ | EV_WRITE)) == wanted)
		return;
	ev_io_stop(ev_of(base), &source->io);
	if (wanted) {
		ev_io_set(&source->io, source->io.fd, wanted);
		ev_io_start(ev_of(base), &source->io);
	}
}

static struct event_source *timer_new(struct event_loop *loop, event_timer_fn *fn, void *data)
{
	struct source *source = source_new(loop, SOURCE_TIMER, data);
	if (!source)
		return NULL;
	source->timer_fn = fn;
	ev_timer_init(&source->timer, on_timer, 0., 0.);
	source->timer.data = source;
	return &source->base;
}

static void timer_set(struct event_source *base, uint64_t after_ms)
{
	struct source *source = (struct source *)base;
	ev_timer_stop(ev_of(base), &source->timer);
	/* libev counts from its cached time; a long call-back would make the timer early. */
	ev_now_update(ev_of(base));
	ev_timer_set(&source->timer, (double)after_ms / 1000, 0.);
	ev_timer_start(ev_of(base), &source->timer);
}

static void timer_stop(struct event_source *base)
{
	struct source *source = (struct source *)base;
	ev_timer_stop(ev_of(base), &source->timer);
}

static void source_free(struct event_source *base)
{
	struct source *source = (struct source *)base;
	switch (source->kind) {
	case SOURCE_IO:
		ev_io_stop(ev_of(base), &source->io);
		break;
	case SOURCE_TIMER:
		ev_timer_stop(ev_of(base), &source->timer);
		break;
	case SOURCE_SIGNAL:
		ev_signal_stop(ev_of(base), &source->signal);
		break;
	}
	free(source);
}

static uint64_t now_ms(struct event_loop *base)
{
	return clock_ms();
}

static const struct event_loop_ops loop_ops = {
	.io_new = io_new,
	.io_set = io_set,
	.timer_new = timer_new,
	.timer_set = timer_set,
	.timer_stop = timer_stop,
	.source_free = source_free,
	.now_ms = now_ms,
};

struct event_loop *loop_new(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	if (!loop)
		return NULL;
	loop->base.ops = &loop_ops;
	loop->ev = ev_default_loop(EVFLAG_AUTO | EVFLAG_NOENV);
	if (!loop->ev) {
		free(loop);
		return NULL;
	}
	return &loop->base;
}

struct event_source *loop_signal_new(struct event_loop *loop, int signum, event_timer_fn *fn, void *data)
{
	struct source *source = source_new(loop, SOURCE_SIGNAL, data);
	if (!source)
		return NULL;
	source->timer_fn = fn;
	ev_signal_init(&source->signal, on_signal, signum);
	source->signal.data = source;
	ev_signal_start(ev_of(&source->base), &source->signal);
	return &source->base;
}

void loop_run(struct event_loop *base)
{
	ev_run(((struct loop *)base)->ev, 0);
}

void loop_stop(struct event_loop *base)
{
	ev_break(((struct loop *)base)->ev, EVBREAK_ALL);
}
#pragma GCC diagnostic pop
