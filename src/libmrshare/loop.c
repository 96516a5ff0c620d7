/* loop.c: completions and event loops: the calls that an application's own loop makes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

int mrshare_set_thread(struct mrshare *conn, bool thread)
{
	struct err err;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	if (conn->thread_runs || conn->state != CONN_IDLE) {
		r = err_set(&err, -EISCONN, "the connection is in use: choose before the first connect");
	} else if (thread != conn->threaded) {
		struct epoll_event event = { .events = EPOLLIN };
		if (epoll_ctl(conn->app_fd, thread ? EPOLL_CTL_DEL : EPOLL_CTL_ADD, conn->all_fd, &event) < 0)
			r = err_set(&err, -errno, "epoll_ctl: %m");
		else
			conn->threaded = thread;
	}
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}

int mrshare_fd(struct mrshare *conn)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	r = conn->app_fd;
	pthread_mutex_unlock(&conn->mutex);
	return r;
}

int mrshare_dispatch(struct mrshare *conn)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	if (!conn->thread_runs) {
		service_run(conn);
		if (!service_call_back(conn)) {
			error_enter(__func__);
			return conn_is_foreign();
		}
		/* What completes from here on makes the descriptor readable. */
		sendq_arm(conn);
	}
	pthread_mutex_unlock(&conn->mutex);
	return 0;
}

int mrshare_poll(struct mrshare *conn, int timeout_ms, struct mrshare_completion *ret_completion)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	struct op_list *list = &conn->lists[OP_POLLED];
	if (TAILQ_EMPTY(list) && conn->thread_runs)
		sendq_step(conn);
	else if (TAILQ_EMPTY(list))
		service_run(conn);
	if (TAILQ_EMPTY(list) && timeout_ms)
		service_wait(conn, NULL, timeout_ms < 0 ? UINT64_MAX : clock_ms() + (uint64_t)timeout_ms);

	struct op *op = TAILQ_FIRST(list);
	if (op) {
		*ret_completion = (struct mrshare_completion){
			.id = op->id, .data = op->data, .result = op->result, .value = op->value
		};
		if (op->result < 0)
			error_publish_of(
				op->call, op->result, op->text ? op->text : "out of memory for the words of an error");
		op_free(conn, op);
	} else {
		struct err err;
		err_set(&err, -EAGAIN, "no operation has ended");
		r = error_publish(&err);
	}
	service_update_ready(conn);
	if (!conn->thread_runs)
		sendq_arm(conn);
	pthread_mutex_unlock(&conn->mutex);
	return r;
}
