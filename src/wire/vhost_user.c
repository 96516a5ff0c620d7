/* vhost_user.c: the header of vhost-user messages and the reply that carries a result, in native byte order. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/vhost_user.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The struct is the wire form. */
static_assert(sizeof(struct vhost_user_header) == VHOST_USER_HEADER_SIZE, "a header has 12 bytes");
static_assert(offsetof(struct vhost_user_header, flags) == 4, "place of flags");
static_assert(offsetof(struct vhost_user_header, size) == 8, "place of size");

struct vhost_user_header vhost_user_header_read(const uint8_t bytes[VHOST_USER_HEADER_SIZE])
{
	struct vhost_user_header header;
	memcpy(&header, bytes, sizeof(header));
	return header;
}

void vhost_user_header_write(const struct vhost_user_header *header, uint8_t ret_bytes[VHOST_USER_HEADER_SIZE])
{
	memcpy(ret_bytes, header, sizeof(*header));
}

static bool version_is_known(const struct vhost_user_header *header)
{
	return (header->flags & VHOST_USER_VERSION_MASK) == VHOST_USER_VERSION;
}

bool vhost_user_request_is_valid(const struct vhost_user_header *header)
{
	return version_is_known(header) && !(header->flags & VHOST_USER_REPLY) &&
	       header->size <= VHOST_USER_PAYLOAD_MAX;
}

void vhost_user_reply_write(uint32_t request, int64_t result, uint8_t ret_bytes[VHOST_USER_REPLY_SIZE])
{
	struct vhost_user_header header = {
		.request = request,
		.flags = VHOST_USER_VERSION | VHOST_USER_REPLY,
		.size = sizeof(result),
	};
	vhost_user_header_write(&header, ret_bytes);
	memcpy(ret_bytes + VHOST_USER_HEADER_SIZE, &result, sizeof(result));
}

int vhost_user_reply_read(const uint8_t bytes[VHOST_USER_REPLY_SIZE], uint32_t request, int64_t *ret_result)
{
	struct vhost_user_header header = vhost_user_header_read(bytes);
	if (!version_is_known(&header) || !(header.flags & VHOST_USER_REPLY) || header.request != request ||
		header.size != sizeof(*ret_result))
		return -EBADMSG;
	memcpy(ret_result, bytes + VHOST_USER_HEADER_SIZE, sizeof(*ret_result));
	return 0;
}
