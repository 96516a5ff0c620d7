/* vhost_user.c: the header of vhost-user messages, payloads, and the reply with a result, in native byte order. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/vhost_user.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The structs are the wire form. */
static_assert(sizeof(struct vhost_user_header) == VHOST_USER_HEADER_SIZE, "a header has 12 bytes");
static_assert(offsetof(struct vhost_user_header, flags) == 4, "place of flags");
static_assert(offsetof(struct vhost_user_header, size) == 8, "place of size");
static_assert(sizeof(struct vhost_user_region) == VHOST_USER_REGION_SIZE, "a region has 32 bytes");
static_assert(sizeof(struct vhost_user_vring_state) == 8, "a ring's state has 8 bytes");
static_assert(sizeof(struct vhost_user_vring_addr) == 40, "a ring's addresses have 40 bytes");
static_assert(
	sizeof(struct vhost_user_config) == VHOST_USER_CONFIG_HEADER_SIZE, "a configuration's header has 12 bytes");

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

bool vhost_user_reply_is_valid(const struct vhost_user_header *header)
{
	return version_is_known(header) && header->flags & VHOST_USER_REPLY && header->size <= VHOST_USER_PAYLOAD_MAX;
}

static int read_exactly(const uint8_t *payload, size_t size, void *ret, size_t wanted)
{
	if (size != wanted)
		return -EMSGSIZE;
	memcpy(ret, payload, wanted);
	return 0;
}

int vhost_user_u64_read(const uint8_t *payload, size_t size, uint64_t *ret_value)
{
	return read_exactly(payload, size, ret_value, sizeof(*ret_value));
}

int vhost_user_vring_state_read(const uint8_t *payload, size_t size, struct vhost_user_vring_state *ret_state)
{
	return read_exactly(payload, size, ret_state, sizeof(*ret_state));
}

int vhost_user_vring_addr_read(const uint8_t *payload, size_t size, struct vhost_user_vring_addr *ret_addr)
{
	return read_exactly(payload, size, ret_addr, sizeof(*ret_addr));
}

int vhost_user_regions_read(const uint8_t *payload, size_t size,
	struct vhost_user_region ret_regions[VHOST_USER_REGIONS_MAX], uint32_t *ret_count)
{
	const size_t head = 8; /* u32 count, u32 padding */
	uint32_t count;
	if (size < head)
		return -EMSGSIZE;
	memcpy(&count, payload, sizeof(count));
	if (count > VHOST_USER_REGIONS_MAX)
		return -ENOSPC;
	int r = read_exactly(payload + head, size - head, ret_regions, count * sizeof(*ret_regions));
	if (r == 0)
		*ret_count = count;
	return r;
}

int vhost_user_region_read(const uint8_t *payload, size_t size, struct vhost_user_region *ret_region)
{
	const size_t head = 8; /* padding */
	return size < head ? -EMSGSIZE : read_exactly(payload + head, size - head, ret_region, sizeof(*ret_region));
}

int vhost_user_config_read(const uint8_t *payload, size_t size, struct vhost_user_config *ret_config)
{
	struct vhost_user_config config;
	if (size < sizeof(config))
		return -EMSGSIZE;
	memcpy(&config, payload, sizeof(config));
	if (config.size != size - sizeof(config))
		return -EMSGSIZE;
	*ret_config = config;
	return 0;
}

void vhost_user_shmem_config_write(const uint64_t sizes[256], uint8_t ret_payload[VHOST_USER_SHMEM_CONFIG_SIZE])
{
	uint32_t head[2] = { 0, 0 }; /* how many there are, padding */
	for (size_t shmid = 0; shmid < 256; shmid++)
		head[0] += sizes[shmid] != 0;
	memcpy(ret_payload, head, sizeof(head));
	memcpy(ret_payload + sizeof(head), sizes, 256 * sizeof(*sizes));
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
