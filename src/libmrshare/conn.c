/* conn.c: a connection's life around the connect: settings, its loss, its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "libmrshare/conn.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { DRAIN_MS = 1000 }; /* how long flushed completions are waited for before the queue pair is destroyed instead */

/* Cheaper to look at in each call than the process id. */
static unsigned int forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	forks++;
}

static void count_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

unsigned int conn_forks(void)
{
	return forks;
}

int conn_is_foreign(void)
{
	struct err err;
	err_set(&err, -ECHILD, "the connection belongs to the process that this one was forked from");
	return error_publish(&err);
}

int conn_enter(struct mrshare *conn, const char *call)
{
	error_enter(call);
	/* Another thread may have held the mutex when this process was forked. */
	if (conn->forks != conn_forks())
		return conn_is_foreign();
	pthread_mutex_lock(&conn->mutex);
	return 0;
}

void conn_rest(struct mrshare *conn)
{
	endpoint_close(conn);
	conn->state = conn->connected ? CONN_DOWN : CONN_IDLE;
	/* What was posted meanwhile. */
	if (!TAILQ_EMPTY(&conn->lists[OP_CONNECT]))
		connect_begin(conn);
}

void conn_drain(struct mrshare *conn)
{
	if (!sendq_empty(conn) && clock_ms() >= conn->drain_ms) {
		cm_destroy_qp(conn->id);
		sendq_forget(conn);
	}
	if (sendq_empty(conn) && conn->pd_users == 0)
		conn_rest(conn);
}

void conn_drop(struct mrshare *conn, int code, const char *format, ...)
{
	char text[sizeof(conn->cause.text)];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	struct err err;
	err_set(&err, code, "%s", text);
	if (conn->state >= CONN_NAMES && conn->state < CONN_UP)
		connect_failed(conn, &err);
	if (conn->state != CONN_UP)
		return;

	conn->cause = err;
	conn->state = CONN_DRAINING;
	conn->drain_ms = clock_ms() + DRAIN_MS;
	time_due(conn, conn->drain_ms);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	if (conn->id->qp)
		verbs_modify_qp(conn->id->qp, &attr, IBV_QP_STATE);
	/* Lets the daemon know at once; where it cannot hear us there is nothing to do about it. */
	cm_disconnect(conn->id);
	views_void(conn);

	err_set(&err, code == -ETIMEDOUT || code == -ECANCELED ? code : -ECONNRESET, "%s: disconnected: %s",
		conn->address, text);
	for (int place = OP_VIEWS; place <= OP_WIRE; place++)
		op_end_all(conn, (enum op_place)place, err.code, err.text);
	service_wake_thread(conn);
}

static int conn_init(struct mrshare *conn)
{
	pthread_once(&fork_once, count_forks);
	conn->forks = conn_forks();
	conn->timeout_ms = MRSHARE_DEFAULT_TIMEOUT_MS;
	conn->threaded = true;
	conn->refresh.op.place = OP_NOWHERE;
	conn->free_slot = OP_NO_SLOT;
	for (int i = 0; i < OP_PLACES; i++)
		TAILQ_INIT(&conn->lists[i]);

	pthread_mutex_init(&conn->mutex, NULL);
	return service_init(conn);
}

static void conn_free(struct mrshare *conn)
{
	service_free(conn);
	pthread_mutex_destroy(&conn->mutex);
	free(conn->table);
	free(conn->source);
	free(conn);
}

int mrshare_new(struct mrshare **ret_conn)
{
	error_enter(__func__);
	struct err err;
	struct mrshare *conn = calloc(1, sizeof(*conn));
	if (!conn) {
		err_set(&err, -ENOMEM, "out of memory");
		return error_publish(&err);
	}
	int r = conn_init(conn);
	if (r < 0) {
		conn_free(conn);
		err_set(&err, r, "no descriptors for a connection: %s", strerror(-r));
		return error_publish(&err);
	}
	*ret_conn = conn;
	return 0;
}

/* Everything ends; callbacks run. False in a child of one of them. */
static bool shut_down(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	conn->closing = true;
	for (int place = OP_CONNECT; place <= OP_WIRE; place++)
		op_end_all(conn, (enum op_place)place, -ECANCELED, "the connection is being closed");
	conn_drop(conn, -ECANCELED, "closed");
	pthread_mutex_unlock(&conn->mutex);
	service_stop(conn);

	pthread_mutex_lock(&conn->mutex);
	while (service_run(conn), conn->state == CONN_DRAINING) {
		sendq_arm(conn);
		pthread_mutex_unlock(&conn->mutex);
		poll(&(struct pollfd){ .fd = conn->all_fd, .events = POLLIN }, 1, 10);
		pthread_mutex_lock(&conn->mutex);
	}
	while (!TAILQ_EMPTY(&conn->lists[OP_CALLBACK])) {
		if (!service_call_back(conn))
			return false;
	}
	pthread_mutex_unlock(&conn->mutex);
	return true;
}

static bool is_in_callback(struct mrshare *conn)
{
	if (conn->forks != conn_forks())
		return false;
	pthread_mutex_lock(&conn->mutex);
	bool in_callback = conn->calling_back && pthread_equal(conn->caller_back, pthread_self());
	pthread_mutex_unlock(&conn->mutex);
	return in_callback;
}

void mrshare_close(struct mrshare **conn_ptr)
{
	struct mrshare *conn = *conn_ptr;
	if (!conn)
		return;
	error_enter(__func__);
	if (is_in_callback(conn)) {
		struct err err;
		err_set(&err, -EDEADLK, "a connection cannot be closed in its own callback");
		error_publish(&err);
		return;
	}
	*conn_ptr = NULL;
	if (conn->forks != conn_forks()) {
		/* Only what is this process's own, whatever state another thread had left the rest in. */
		service_free(conn);
		free(conn);
		return;
	}
	if (!shut_down(conn))
		return;
	struct op *op;
	while ((op = TAILQ_FIRST(&conn->lists[OP_POLLED])))
		op_free(conn, op);
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next)
		buffer->conn = NULL;
	snapshot_unref(conn, &conn->snapshot);
	conn_free(conn);
}

int mrshare_set_source(struct mrshare *conn, const char *address)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	char *copy = address ? strdup(address) : NULL;
	if (address && !copy) {
		struct err err;
		err_set(&err, -ENOMEM, "out of memory");
		r = error_publish(&err);
	} else {
		free(conn->source);
		conn->source = copy;
	}
	pthread_mutex_unlock(&conn->mutex);
	return r;
}

int mrshare_set_timeout(struct mrshare *conn, unsigned int timeout_ms)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	conn->timeout_ms = timeout_ms == 0 ? MRSHARE_DEFAULT_TIMEOUT_MS : timeout_ms < INT_MAX ? timeout_ms : INT_MAX;
	pthread_mutex_unlock(&conn->mutex);
	return 0;
}

int mrshare_set_write(struct mrshare *conn, bool write_wanted)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	conn->want_write = write_wanted;
	pthread_mutex_unlock(&conn->mutex);
	return 0;
}

unsigned int mrshare_granted(struct mrshare *conn)
{
	if (conn_enter(conn, __func__) < 0)
		return 0;
	unsigned int granted = conn->granted;
	pthread_mutex_unlock(&conn->mutex);
	return granted;
}
