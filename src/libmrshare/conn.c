/* conn.c: a connection's life around the handshake: settings, calls taking turns, its death, its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "libmrshare/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

void wait_readable(int fd, int fd2, uint64_t deadline_ms)
{
	uint64_t now = clock_ms();
	if (now >= deadline_ms)
		return;
	uint64_t left = deadline_ms - now;
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN }, { .fd = fd2, .events = POLLIN } };
	poll(fds, 2, left > 60000 ? 60000 : (int)left);
}

void conn_begin(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	while (conn->calling)
		pthread_cond_wait(&conn->changed, &conn->mutex);
	conn->calling = true;
	pthread_mutex_unlock(&conn->mutex);
}

void conn_end(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	conn->calling = false;
	pthread_cond_broadcast(&conn->changed);
	pthread_mutex_unlock(&conn->mutex);
}

int conn_begin_up(struct mrshare *conn, struct err *err)
{
	conn_begin(conn);
	pthread_mutex_lock(&conn->mutex);
	int r = 0;
	if (conn->state == CONN_IDLE)
		r = err_set(err, -ENOTCONN, "not connected");
	else if (conn->state == CONN_DEAD)
		r = err_set(err, -ENOTCONN, "%s: no longer connected: %s", conn->address, conn->cause.text);
	pthread_mutex_unlock(&conn->mutex);
	if (r < 0)
		conn_end(conn);
	return r;
}

static void fd_signal(int fd)
{
	uint64_t one = 1;
	/* Fails only where the counter is full, which is a signal as well. */
	ssize_t ignored = write(fd, &one, sizeof(one));
	(void)ignored;
}

void conn_drop(struct mrshare *conn, int code, const char *format, ...)
{
	if (conn->state != CONN_UP)
		return;

	char text[sizeof(conn->cause.text)];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	err_set(&conn->cause, code, "%s", text);
	conn->state = CONN_DEAD;

	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	if (conn->id->qp)
		verbs_modify_qp(conn->id->qp, &attr, IBV_QP_STATE);
	/* Lets the daemon know at once; where it cannot hear us there is nothing to do about it. */
	cm_disconnect(conn->id);
	fd_signal(conn->dead_fd);
	fd_signal(conn->stop_fd);
	pthread_cond_broadcast(&conn->changed);
}

int conn_cut(struct mrshare *conn, struct err *err)
{
	pthread_mutex_lock(&conn->mutex);
	int code = conn->cause.code == -ETIMEDOUT ? -ETIMEDOUT : -ECONNRESET;
	err_set(err, code, "%s: disconnected: %s", conn->address, conn->cause.text);
	pthread_mutex_unlock(&conn->mutex);
	return code;
}

int mrshare_new(struct mrshare **ret_conn)
{
	struct err err;
	struct mrshare *conn = calloc(1, sizeof(*conn));
	if (!conn) {
		err_set(&err, -ENOMEM, "out of memory");
		return error_publish(&err);
	}
	conn->timeout_ms = MRSHARE_DEFAULT_TIMEOUT_MS;
	conn->deadline_ms = UINT64_MAX;
	conn->dead_fd = -1;
	conn->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (conn->stop_fd >= 0)
		conn->dead_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (conn->dead_fd < 0) {
		err_set(&err, -errno, "eventfd: %s", strerror(errno));
		fd_close(&conn->stop_fd);
		free(conn);
		return error_publish(&err);
	}

	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&conn->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&conn->mutex, NULL);
	*ret_conn = conn;
	return 0;
}

void mrshare_close(struct mrshare **conn_ptr)
{
	struct mrshare *conn = *conn_ptr;
	if (!conn)
		return;
	service_stop(conn);
	endpoint_close(conn);
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next)
		buffer->conn = NULL;
	snapshot_free(&conn->snapshot);
	fd_close(&conn->stop_fd);
	fd_close(&conn->dead_fd);
	pthread_cond_destroy(&conn->changed);
	pthread_mutex_destroy(&conn->mutex);
	free(conn->source);
	free(conn);
	*conn_ptr = NULL;
}

int mrshare_set_source(struct mrshare *conn, const char *address)
{
	char *copy = address ? strdup(address) : NULL;
	if (address && !copy) {
		struct err err;
		err_set(&err, -ENOMEM, "out of memory");
		return error_publish(&err);
	}
	conn_begin(conn);
	free(conn->source);
	conn->source = copy;
	conn_end(conn);
	return 0;
}

int mrshare_set_timeout(struct mrshare *conn, unsigned int timeout_ms)
{
	conn_begin(conn);
	conn->timeout_ms = timeout_ms ? timeout_ms : MRSHARE_DEFAULT_TIMEOUT_MS;
	conn_end(conn);
	return 0;
}

int mrshare_set_write(struct mrshare *conn, bool write_wanted)
{
	conn_begin(conn);
	conn->want_write = write_wanted;
	conn_end(conn);
	return 0;
}

unsigned int mrshare_granted(struct mrshare *conn)
{
	conn_begin(conn);
	unsigned int granted = conn->granted;
	conn_end(conn);
	return granted;
}
