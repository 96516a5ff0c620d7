/* buffer.c: caller's memory registered with the device of a connection. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/range.h"
#include "base/size.h"
#include "libmrshare/conn.h"

/* Pinning and letting go take their time, and the daemon wants its answers meanwhile: between these two the connection
 * is unlocked, and a connection that is up keeps its PD. */
static void begin_slow(struct mrshare *conn)
{
	conn->pd_users++;
	pthread_mutex_unlock(&conn->mutex);
}

static void end_slow(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	if (--conn->pd_users == 0 && conn->state == CONN_DRAINING)
		service_wake_thread(conn);
}

static int register_now(struct mrshare *conn, struct mrshare_buffer *buffer, struct err *err)
{
	struct ibv_pd *pd = conn->pd;
	char device[MRSHARE_DEVICE_NAME_MAX + 1];
	snprintf(device, sizeof(device), "%s", verbs_device_name(conn->id->verbs));
	begin_slow(conn);
	int r = verbs_reg_mr(pd, buffer->addr, buffer->size, IBV_ACCESS_LOCAL_WRITE, &buffer->mr);
	end_slow(conn);
	if (r < 0)
		return err_set(err, r, "%s: device %s cannot register %s: %s%s", conn->address, device,
			size_format(buffer->size).text, strerror(-r),
			r == -ENOMEM ? " (the limit of locked memory may be too small: ulimit -l)" : "");
	return 0;
}

int mrshare_buffer_register(struct mrshare *conn, void *addr, size_t size, struct mrshare_buffer **ret_buffer)
{
	struct err err;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	struct mrshare_buffer *buffer = size ? calloc(1, sizeof(*buffer)) : NULL;
	if (!size)
		r = err_set(&err, -EINVAL, "a buffer of size 0");
	else if (!buffer)
		r = err_set(&err, -ENOMEM, "out of memory");
	else
		*buffer = (struct mrshare_buffer){ .forks = conn->forks, .conn = conn, .addr = addr, .size = size };
	if (r == 0 && conn->state == CONN_UP)
		r = register_now(conn, buffer, &err);
	if (r == 0) {
		buffer->next = conn->buffers;
		conn->buffers = buffer;
		*ret_buffer = buffer;
	} else {
		free(buffer);
	}
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}

void mrshare_buffer_unregister(struct mrshare_buffer **buffer_ptr)
{
	struct mrshare_buffer *buffer = *buffer_ptr;
	*buffer_ptr = NULL;
	if (!buffer)
		return;
	struct mrshare *conn = buffer->forks == conn_forks() ? buffer->conn : NULL;
	if (conn && conn_enter(conn, __func__) == 0) {
		for (struct mrshare_buffer **link = &conn->buffers; *link; link = &(*link)->next) {
			if (*link == buffer) {
				*link = buffer->next;
				break;
			}
		}
		bool slow = buffer->mr && conn->state == CONN_UP;
		if (slow)
			begin_slow(conn);
		verbs_dereg_mr(&buffer->mr);
		if (slow)
			end_slow(conn);
		pthread_mutex_unlock(&conn->mutex);
	}
	free(buffer);
}

bool buffer_find(const struct mrshare *conn, const void *addr, size_t size, uint32_t *ret_lkey)
{
	for (const struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next) {
		uintptr_t start = (uintptr_t)buffer->addr, wanted = (uintptr_t)addr;
		if (buffer->mr && wanted >= start && range_fits(wanted - start, size, buffer->size)) {
			*ret_lkey = buffer->mr->lkey;
			return true;
		}
	}
	return false;
}

void buffers_register(struct mrshare *conn)
{
	uint64_t begin_ms = clock_ms();
	/* Where it fails the memory is copied: slower, and no reason to stay without a connection. */
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next) {
		if (!buffer->mr)
			verbs_reg_mr(conn->pd, buffer->addr, buffer->size, IBV_ACCESS_LOCAL_WRITE, &buffer->mr);
	}
	/* How long pinning takes says nothing of whether the daemon answers. */
	uint64_t took_ms = clock_ms() - begin_ms;
	conn->attempt_ms += took_ms;
	conn->deadline_ms += took_ms;
}
