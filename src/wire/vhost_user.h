/* vhost_user.h: the frames of vhost-user: its header, requests in both directions, and their payloads. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef WIRE_VHOST_USER_H
#define WIRE_VHOST_USER_H

#include <stdbool.h>
#include <stddef.h>
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

/* Requests of a front-end to its back-end. Source: the specification, "Front-end message types". */
enum vhost_user_request {
	VHOST_USER_GET_FEATURES = 1,
	VHOST_USER_SET_FEATURES = 2,
	VHOST_USER_SET_OWNER = 3,
	VHOST_USER_RESET_OWNER = 4,
	VHOST_USER_SET_MEM_TABLE = 5,
	VHOST_USER_SET_VRING_NUM = 8,
	VHOST_USER_SET_VRING_ADDR = 9,
	VHOST_USER_SET_VRING_BASE = 10,
	VHOST_USER_GET_VRING_BASE = 11,
	VHOST_USER_SET_VRING_KICK = 12,
	VHOST_USER_SET_VRING_CALL = 13,
	VHOST_USER_SET_VRING_ERR = 14,
	VHOST_USER_GET_PROTOCOL_FEATURES = 15,
	VHOST_USER_SET_PROTOCOL_FEATURES = 16,
	VHOST_USER_GET_QUEUE_NUM = 17,
	VHOST_USER_SET_VRING_ENABLE = 18,
	VHOST_USER_SET_BACKEND_REQ_FD = 21,
	VHOST_USER_GET_CONFIG = 24,
	VHOST_USER_SET_CONFIG = 25,
	VHOST_USER_RESET_DEVICE = 34,
	VHOST_USER_GET_MAX_MEM_SLOTS = 36,
	VHOST_USER_ADD_MEM_REG = 37,
	VHOST_USER_REM_MEM_REG = 38,
	VHOST_USER_SET_STATUS = 39,
	VHOST_USER_GET_STATUS = 40,
	VHOST_USER_GET_SHMEM_CONFIG = 44,
};

/* The bit of the device's features that says that there are protocol features. */
#define VHOST_USER_F_PROTOCOL_FEATURES (UINT64_C(1) << 30)

/* Protocol features. Drafts of the last two had other numbers; these are QEMU 11.1's. */
#define VHOST_USER_PROTOCOL_MQ (UINT64_C(1) << 0)
#define VHOST_USER_PROTOCOL_REPLY_ACK (UINT64_C(1) << 3)
#define VHOST_USER_PROTOCOL_BACKEND_REQ (UINT64_C(1) << 5)
#define VHOST_USER_PROTOCOL_CONFIG (UINT64_C(1) << 9)
#define VHOST_USER_PROTOCOL_BACKEND_SEND_FD (UINT64_C(1) << 10)
#define VHOST_USER_PROTOCOL_RESET_DEVICE (UINT64_C(1) << 13)
#define VHOST_USER_PROTOCOL_STATUS (UINT64_C(1) << 16)
#define VHOST_USER_PROTOCOL_GPA_ADDRESSES (UINT64_C(1) << 21)
#define VHOST_USER_PROTOCOL_SHMEM (UINT64_C(1) << 22)

enum {
	VHOST_USER_REGIONS_MAX = 8, /* of a memory table */
	VHOST_USER_REGION_SIZE = 32,
	VHOST_USER_CONFIG_HEADER_SIZE = 12,
	VHOST_USER_CONFIG_MAX = 256,         /* bytes of configuration space */
	VHOST_USER_SHMEM_CONFIG_SIZE = 2056, /* QEMU ends on any more */
	VHOST_USER_MESSAGE_MAX = VHOST_USER_HEADER_SIZE + VHOST_USER_SHMEM_CONFIG_SIZE, /* ours: the longest we send */
};

/* Bits of the payload of SET_VRING_KICK, _CALL and _ERR. */
#define VHOST_USER_VRING_INDEX_MASK UINT64_C(0xff)
#define VHOST_USER_VRING_NO_FD UINT64_C(0x100)

/* A memory region of SET_MEM_TABLE, ADD_MEM_REG, REM_MEM_REG. */
struct vhost_user_region {
	uint64_t guest_addr, size, user_addr, mmap_offset;
};

struct vhost_user_vring_state {
	uint32_t index, num;
};

struct vhost_user_vring_addr {
	uint32_t index, flags;
	uint64_t desc, used, avail, log;
};

/* Of GET_CONFIG and SET_CONFIG; `size` bytes follow it. */
struct vhost_user_config {
	uint32_t offset, size, flags;
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

/* The same for a reply that has a payload. */
bool vhost_user_reply_is_valid(const struct vhost_user_header *header);

/* Payloads, read from exactly their bytes: 0, or -EMSGSIZE where their number is another. */
int vhost_user_u64_read(const uint8_t *payload, size_t size, uint64_t *ret_value);
int vhost_user_vring_state_read(const uint8_t *payload, size_t size, struct vhost_user_vring_state *ret_state);
int vhost_user_vring_addr_read(const uint8_t *payload, size_t size, struct vhost_user_vring_addr *ret_addr);
/* SET_MEM_TABLE; -ENOSPC where there are more than VHOST_USER_REGIONS_MAX. */
int vhost_user_regions_read(const uint8_t *payload, size_t size,
	struct vhost_user_region ret_regions[VHOST_USER_REGIONS_MAX], uint32_t *ret_count);
/* ADD_MEM_REG, REM_MEM_REG. */
int vhost_user_region_read(const uint8_t *payload, size_t size, struct vhost_user_region *ret_region);
/* The header of a configuration that is followed by as many bytes as it says. */
int vhost_user_config_read(const uint8_t *payload, size_t size, struct vhost_user_config *ret_config);
/* GET_SHMEM_CONFIG: the sizes of the regions by shmid, 0: none. */
void vhost_user_shmem_config_write(const uint64_t sizes[256], uint8_t ret_payload[VHOST_USER_SHMEM_CONFIG_SIZE]);

/* The reply to a request: u64 0 or a negative errno as two's complement. */
void vhost_user_reply_write(uint32_t request, int64_t result, uint8_t ret_bytes[VHOST_USER_REPLY_SIZE]);
/* -EBADMSG where the bytes are no reply to `request`. */
int vhost_user_reply_read(const uint8_t bytes[VHOST_USER_REPLY_SIZE], uint32_t request, int64_t *ret_result);

#endif
