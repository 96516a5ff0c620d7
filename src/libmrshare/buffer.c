/* buffer.c: caller's memory registered with the device of a connection. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "base/size.h"
#include "libmrshare/conn.h"

static int buffer_register(
	struct mrshare *conn, void *addr, size_t size, struct mrshare_buffer **ret_buffer, struct err *err)
{
	struct mrshare_buffer *buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return err_set(err, -ENOMEM, "out of memory");
	int r = verbs_reg_mr(conn->pd, addr, size, IBV_ACCESS_LOCAL_WRITE, &buffer->mr);
	if (r < 0) {
		free(buffer);
		return err_set(err, r, "%s: device %s cannot register %s: %s%s", conn->address,
			verbs_device_name(conn->id->verbs), size_format(size).text, strerror(-r),
			r == -ENOMEM ? " (the limit of locked memory may be too small: ulimit -l)" : "");
	}
	buffer->conn = conn;
	buffer->addr = addr;
	buffer->size = size;
	buffer->next = conn->buffers;
	conn->buffers = buffer;
	*ret_buffer = buffer;
	return 0;
}

int mrshare_buffer_register(struct mrshare *conn, void *addr, size_t size, struct mrshare_buffer **ret_buffer)
{
	struct err err;
	int r = conn_begin_up(conn, &err);
	if (r < 0)
		return error_publish(&err);
	r = buffer_register(conn, addr, size, ret_buffer, &err);
	conn_end(conn);
	return r < 0 ? error_publish(&err) : 0;
}

void mrshare_buffer_unregister(struct mrshare_buffer **buffer_ptr)
{
	struct mrshare_buffer *buffer = *buffer_ptr;
	if (!buffer)
		return;
	struct mrshare *conn = buffer->conn;
	if (conn) {
		conn_begin(conn);
		for (struct mrshare_buffer **link = &conn->buffers; *link; link = &(*link)->next) {
			if (*link == buffer) {
				*link = buffer->next;
				break;
			}
		}
		verbs_dereg_mr(&buffer->mr);
		conn_end(conn);
	}
	free(buffer);
	*buffer_ptr = NULL;
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
