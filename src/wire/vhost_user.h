/* vhost_user.h: the frames of a vhost-user back-end request channel. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef WIRE_VHOST_USER_H
#define WIRE_VHOST_USER_H

#include <stdbool.h>
#include <stdint.h>

/* Source: the vhost-user specification, "Message structure" and "Back-end message types". Native byte order. */
struct vhost_user_header {
	uint32_t request;
	uint32_t flags;
	uint32_t size; /* bytes of payload that follow */
};

enum {
	VHOST_USER_HEADER_SIZE = 12,
	VHOST_USER_VERSION = 1,
	VHOST_USER_VERSION_MASK = 3,
	VHOST_USER_REPLY = 1 << 2,
	VHOST_USER_NEED_REPLY = 1 << 3,
	VHOST_USER_PAYLOAD_MAX = 4096, /* ours: no message we take is longer */
	VHOST_USER_REPLY_SIZE = VHOST_USER_HEADER_SIZE + 8,
};

/* Requests of a back-end to its front-end. */
enum vhost_user_backend_request {
	VHOST_USER_BACKEND_SHMEM_MAP = 9,
	VHOST_USER_BACKEND_SHMEM_UNMAP = 10,
};

struct vhost_user_header vhost_user_header_read(const uint8_t bytes[VHOST_USER_HEADER_SIZE]);
void vhost_user_header_write(const struct vhost_user_header *header, uint8_t ret_bytes[VHOST_USER_HEADER_SIZE]);
/* Whether a request's header keeps the framing: version 1, no REPLY, size within VHOST_USER_PAYLOAD_MAX. */
bool vhost_user_request_is_valid(const struct vhost_user_header *header);

/* The reply to a request: u64 0 or a negative errno as two's complement. */
void vhost_user_reply_write(uint32_t request, int64_t result, uint8_t ret_bytes[VHOST_USER_REPLY_SIZE]);
/* -EBADMSG where the bytes are no reply to `request`. */
int vhost_user_reply_read(const uint8_t bytes[VHOST_USER_REPLY_SIZE], uint32_t request, int64_t *ret_result);

#endif
