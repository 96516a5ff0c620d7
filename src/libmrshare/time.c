/* time.c: what is due at some time: the limits of connects, silence, readings, operations. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum { KEEPALIVE_FACTOR = 3 };

void time_due(struct mrshare *conn, uint64_t when_ms)
{
	if (when_ms >= conn->timer_ms)
		return;
	conn->timer_ms = when_ms;
	struct itimerspec spec = {
		.it_value = { .tv_sec = (time_t)(when_ms / 1000), .tv_nsec = (long)(when_ms % 1000) * 1000000 + 1 },
	};
	timerfd_settime(conn->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static uint64_t check_silence(struct mrshare *conn, uint64_t now)
{
	/* We may have been late ourselves. */
	sendq_reap(conn);
	uint64_t heard_due = conn->heard_ms + 1000 * KEEPALIVE_FACTOR * (uint64_t)conn->keepalive_s,
		 wire_due = sendq_empty(conn) ? UINT64_MAX : conn->progress_ms + conn->timeout_ms;
	if (now >= heard_due)
		conn_drop(conn, -ECONNRESET, "nothing was heard from the daemon for %u s",
			KEEPALIVE_FACTOR * conn->keepalive_s);
	else if (now >= wire_due)
		conn_drop(conn, -ETIMEDOUT, "no answer from the daemon's host within the time limit");
	return heard_due < wire_due ? heard_due : wire_due;
}

static uint64_t check_refresh(struct mrshare *conn, uint64_t now)
{
	struct err err;
	if (conn->refresh.step == REFRESH_NONE)
		return UINT64_MAX;
	if (now < conn->refresh.deadline_ms)
		return conn->refresh.deadline_ms;
	err_set(&err, -ETIMEDOUT, "%s: the daemon's catalog could not be read whole within the time limit",
		conn->address);
	views_failed(conn, &err);
	return UINT64_MAX;
}

static uint64_t check_connection(struct mrshare *conn, uint64_t now)
{
	if (conn->state >= CONN_NAMES && conn->state < CONN_UP)
		return connect_check_time(conn, now);
	if (conn->state == CONN_DRAINING)
		return now < conn->drain_ms ? conn->drain_ms : UINT64_MAX;
	if (conn->state != CONN_UP)
		return UINT64_MAX;
	uint64_t silence = check_silence(conn, now), refresh = check_refresh(conn, now);
	return silence < refresh ? silence : refresh;
}

void time_check(struct mrshare *conn)
{
	uint64_t now = clock_ms(), expirations;
	if (now < conn->timer_ms)
		return;
	ssize_t ignored = read(conn->timer_fd, &expirations, sizeof(expirations));
	(void)ignored;
	/* What the checks find to be due later sets it again. */
	conn->timer_ms = UINT64_MAX;
	uint64_t ops = op_check_time(conn, now), connection = check_connection(conn, now);
	time_due(conn, ops < connection ? ops : connection);
}
