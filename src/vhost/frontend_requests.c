/* frontend_requests.c: the table of what a front-end may ask: when, in how many bytes and with how many fds. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A request that is wrong is answered with an error where it asked for an acknowledgement, or has a reply that can say
 * so. Where it can not be told, the front-end would go on from something that is not so: then its connection ends.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "vhost/frontend_internal.h"

/* When a request is allowed. */
enum {
	ALWAYS = 0,
	OWNED = 1,   /* after SET_OWNER */
	STOPPED = 2, /* while no queue runs */
};

enum error_form {
	ERROR_ACK,   /* in the acknowledgement */
	ERROR_EMPTY, /* a reply without payload */
	ERROR_END,   /* there is none */
};

static const struct row {
	const char *name;
	uint16_t size, size_max; /* of the payload */
	uint8_t fds, fds_max;
	uint64_t protocol; /* features that must be acknowledged */
	unsigned int state;
	enum error_form error;
	request_fn *handle;
} rows[] = {
	[VHOST_USER_GET_FEATURES] = { "GET_FEATURES", 0, 0, 0, 0, 0, ALWAYS, ERROR_END, request_get_features },
	[VHOST_USER_SET_FEATURES] = { "SET_FEATURES", 8, 8, 0, 0, 0, STOPPED, ERROR_ACK, request_set_features },
	[VHOST_USER_SET_OWNER] = { "SET_OWNER", 0, 0, 0, 0, 0, ALWAYS, ERROR_ACK, request_set_owner },
	[VHOST_USER_RESET_OWNER] = { "RESET_OWNER", 0, 0, 0, 0, 0, ALWAYS, ERROR_ACK, request_reset_owner },
	[VHOST_USER_SET_MEM_TABLE] = { "SET_MEM_TABLE", 8, 8 + VHOST_USER_REGIONS_MAX *VHOST_USER_REGION_SIZE, 0,
		VHOST_USER_REGIONS_MAX, 0, OWNED, ERROR_ACK, request_set_mem_table },
	[VHOST_USER_SET_VRING_NUM] = { "SET_VRING_NUM", 8, 8, 0, 0, 0, OWNED, ERROR_ACK, request_set_vring_num },
	[VHOST_USER_SET_VRING_ADDR] = { "SET_VRING_ADDR", 40, 40, 0, 0, 0, OWNED, ERROR_ACK, request_set_vring_addr },
	[VHOST_USER_SET_VRING_BASE] = { "SET_VRING_BASE", 8, 8, 0, 0, 0, OWNED, ERROR_ACK, request_set_vring_base },
	[VHOST_USER_GET_VRING_BASE] = { "GET_VRING_BASE", 8, 8, 0, 0, 0, OWNED, ERROR_END, request_get_vring_base },
	[VHOST_USER_SET_VRING_KICK] = { "SET_VRING_KICK", 8, 8, 0, 1, 0, OWNED, ERROR_ACK, request_set_vring_kick },
	[VHOST_USER_SET_VRING_CALL] = { "SET_VRING_CALL", 8, 8, 0, 1, 0, OWNED, ERROR_ACK, request_set_vring_call },
	[VHOST_USER_SET_VRING_ERR] = { "SET_VRING_ERR", 8, 8, 0, 1, 0, OWNED, ERROR_ACK, request_set_vring_err },
	[VHOST_USER_GET_PROTOCOL_FEATURES] = { "GET_PROTOCOL_FEATURES", 0, 0, 0, 0, 0, ALWAYS, ERROR_END,
		request_get_protocol_features },
	[VHOST_USER_SET_PROTOCOL_FEATURES] = { "SET_PROTOCOL_FEATURES", 8, 8, 0, 0, 0, STOPPED, ERROR_END,
		request_set_protocol_features },
	[VHOST_USER_GET_QUEUE_NUM] = { "GET_QUEUE_NUM", 0, 0, 0, 0, VHOST_USER_PROTOCOL_MQ, ALWAYS, ERROR_END,
		request_get_queue_num },
	[VHOST_USER_SET_VRING_ENABLE] = { "SET_VRING_ENABLE", 8, 8, 0, 0, 0, OWNED, ERROR_ACK,
		request_set_vring_enable },
	[VHOST_USER_SET_BACKEND_REQ_FD] = { "SET_BACKEND_REQ_FD", 0, 0, 1, 1, VHOST_USER_PROTOCOL_BACKEND_REQ, ALWAYS,
		ERROR_ACK, request_set_backend_req_fd },
	[VHOST_USER_GET_CONFIG] = { "GET_CONFIG", VHOST_USER_CONFIG_HEADER_SIZE, VHOST_USER_PAYLOAD_MAX, 0, 0,
		VHOST_USER_PROTOCOL_CONFIG, ALWAYS, ERROR_EMPTY, request_get_config },
	[VHOST_USER_SET_CONFIG] = { "SET_CONFIG", VHOST_USER_CONFIG_HEADER_SIZE, VHOST_USER_PAYLOAD_MAX, 0, 0,
		VHOST_USER_PROTOCOL_CONFIG, ALWAYS, ERROR_ACK, request_set_config },
	[VHOST_USER_RESET_DEVICE] = { "RESET_DEVICE", 0, 0, 0, 0, VHOST_USER_PROTOCOL_RESET_DEVICE, OWNED, ERROR_ACK,
		request_reset_device },
	[VHOST_USER_GET_MAX_MEM_SLOTS] = { "GET_MAX_MEM_SLOTS", 0, 0, 0, 0, 0, ALWAYS, ERROR_END,
		request_get_max_mem_slots },
	[VHOST_USER_ADD_MEM_REG] = { "ADD_MEM_REG", 8 + VHOST_USER_REGION_SIZE, 8 + VHOST_USER_REGION_SIZE, 1, 1, 0,
		OWNED, ERROR_ACK, request_add_mem_reg },
	/* Some front-ends send the region's fd along: it is closed. */
	[VHOST_USER_REM_MEM_REG] = { "REM_MEM_REG", 8 + VHOST_USER_REGION_SIZE, 8 + VHOST_USER_REGION_SIZE, 0, 1, 0,
		OWNED, ERROR_ACK, request_rem_mem_reg },
	[VHOST_USER_SET_STATUS] = { "SET_STATUS", 8, 8, 0, 0, VHOST_USER_PROTOCOL_STATUS, ALWAYS, ERROR_ACK,
		request_set_status },
	[VHOST_USER_GET_STATUS] = { "GET_STATUS", 0, 0, 0, 0, VHOST_USER_PROTOCOL_STATUS, ALWAYS, ERROR_END,
		request_get_status },
	[VHOST_USER_GET_SHMEM_CONFIG] = { "GET_SHMEM_CONFIG", 0, 0, 0, 0, VHOST_USER_PROTOCOL_SHMEM, ALWAYS, ERROR_END,
		request_get_shmem_config },
};

static const struct row *find_row(uint32_t request)
{
	static const struct row unknown = { .name = "request", .error = ERROR_ACK };
	return request < sizeof(rows) / sizeof(rows[0]) && rows[request].handle ? &rows[request] : &unknown;
}

static int check(const struct frontend *frontend, const struct row *row, struct err *err)
{
	const struct channel *channel = &frontend->channel;
	uint32_t size = channel->header.size;
	if (!row->handle)
		return err_set(err, -EOPNOTSUPP, "request %u is not served here", channel->header.request);
	if (size < row->size || size > row->size_max)
		return err_set(err, -EINVAL, "its payload has %u bytes, wanted %u%s", size, row->size,
			row->size_max == row->size ? "" : " and more");
	if (channel->fd_count < row->fds || channel->fd_count > row->fds_max)
		return err_set(err, -EBADF, "%u file descriptors came with it, wanted %u%s", channel->fd_count,
			row->fds, row->fds_max == row->fds ? "" : " and more");
	if (row->protocol & ~frontend->protocol_features)
		return err_set(err, -EPROTO, "it needs protocol feature %#llx, which was not acknowledged",
			(unsigned long long)row->protocol);
	if (row->state & OWNED && !frontend->owned)
		return err_set(err, -EPROTO, "it came before SET_OWNER");
	if (row->state & STOPPED && queue_any_runs(frontend))
		return err_set(err, -EBUSY, "a queue runs");
	return 0;
}

bool request_needs_ack(const struct frontend *frontend)
{
	return frontend->channel.header.flags & VHOST_USER_NEED_REPLY &&
	       frontend->protocol_features & VHOST_USER_PROTOCOL_REPLY_ACK;
}

void request_reply(struct frontend *frontend, const void *payload, uint32_t size)
{
	struct vhost_user_header header = {
		.request = frontend->channel.header.request,
		.flags = VHOST_USER_VERSION | VHOST_USER_REPLY,
		.size = size,
	};
	channel_send(&frontend->channel, &header, payload, -1);
}

void request_end(struct frontend *frontend, uint32_t request, bool needs_ack, int result, const struct err *err)
{
	if (result >= 0) {
		if (needs_ack)
			channel_reply(&frontend->channel, request, 0);
		return;
	}
	const struct row *row = find_row(request);
	struct err told = *err;
	err_prefix(&told, "%s refused", row->name);
	if (row->error == ERROR_END || (row->error == ERROR_ACK && !needs_ack)) {
		session_end(frontend, result, &told);
		return;
	}
	log_warning("%s: %s", frontend_tag(frontend), told.text);
	if (row->error == ERROR_ACK)
		channel_reply(&frontend->channel, request, result);
	else
		channel_send(&frontend->channel,
			&(struct vhost_user_header){ request, VHOST_USER_VERSION | VHOST_USER_REPLY, 0 }, NULL, -1);
}

void request_dispatch(struct frontend *frontend)
{
	struct channel *channel = &frontend->channel;
	uint32_t request = channel->header.request;
	const struct row *row = find_row(request);
	/* By what was acknowledged before it, even where it changes that. */
	bool needs_ack = request_needs_ack(frontend);

	struct err err = { 0 };
	int r = check(frontend, row, &err);
	if (r == 0)
		r = row->handle(frontend, &err);
	for (unsigned int i = 0; i < CHANNEL_KEEP_MAX; i++)
		session_close_later(frontend, &channel->fds[i]);
	channel_next(channel);
	if (r <= REQUEST_DONE)
		request_end(frontend, request, needs_ack, r, &err);
}
