/* peer.h: what daemon and peer tell each other: private data of the connection, and frames. mrshare-protocol(7). */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef WIRE_PEER_H
#define WIRE_PEER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "mrshare.h"

enum {
	PEER_VERSION = 1,
	PEER_REQUEST_SIZE = 56,       /* all that RoCE and InfiniBand carry in a request */
	PEER_ACCEPT_SIZE = 44,        /* of 196 */
	PEER_REJECT_SIZE_MAX = 148,
	PEER_REJECT_TEXT_MAX = PEER_REJECT_SIZE_MAX - 8,
	PEER_ID_SIZE = 16,
	PEER_FRAME_SIZE_MAX = 256,
	PEER_RECEIVES = 4,            /* that each side keeps posted */
	PEER_NOTICE_IDS_MAX = 16,
	PEER_SEND_RETRIES = 6,        /* retry_count and rnr_retry_count; 7 would be for ever */
	PEER_MIN_RNR_TIMER = 12,      /* 0.64 ms; rdma_cm leaves 655 ms */
};

/* The request flag: the peer wants to write. */
enum { PEER_WANTS_WRITE = 1 };
/* The accept flag: authentication follows. */
enum { PEER_AUTHENTICATES = 1 };
/* The withdrawn count of a notice that says: drop everything you know. */
#define PEER_WITHDRAWN_ALL 0xffffffffu

enum peer_reject_code {
	PEER_REJECT_MALFORMED = 1,
	PEER_REJECT_VERSION = 2,
	PEER_REJECT_DENIED = 3,      /* the address is not allowed */
	PEER_REJECT_FULL = 4,
	PEER_REJECT_RESOURCES = 5,   /* responder resources, queue pairs, memory */
	PEER_REJECT_REGISTERING = 6, /* the device is not ready yet */
};

struct peer_request {
	uint16_t version_min, version_max;
	uint32_t flags;
	uint8_t nonce[PEER_ID_SIZE];
};

struct peer_accept {
	uint16_t version;
	uint16_t flags;
	uint16_t keepalive; /* seconds */
	uint8_t server_id[PEER_ID_SIZE];
	uint8_t nonce[PEER_ID_SIZE];
};

struct peer_reject {
	uint16_t code;
	char text[PEER_REJECT_TEXT_MAX + 1]; /* longer texts are cut when written; control characters become '?' when read */
};

struct peer_welcome {
	uint32_t granted; /* enum mrshare_access */
	uint64_t generation;
	struct mrshare_view catalog;
};

struct peer_notice {
	uint32_t sequence;
	uint32_t withdrawn_count; /* up to PEER_NOTICE_IDS_MAX, or PEER_WITHDRAWN_ALL with no ids */
	uint64_t generation;
	uint64_t slot_offset;
	uint32_t slot_size;
	uint32_t slot_crc;
	uint64_t withdrawn[PEER_NOTICE_IDS_MAX]; /* mapping ids */
};

struct peer_ack {
	uint32_t sequence;
	uint64_t generation;
};

/* Private data arrives zero-padded, sometimes not at all (`data` NULL, size 0). -EBADMSG where it is none: too short,
 * another magic, version_min above version_max, a keep-alive of 0, a text longer than the data. Unknown flags are kept. */
void peer_request_write(const struct peer_request *request, uint8_t ret_bytes[PEER_REQUEST_SIZE]);
int peer_request_read(const void *data, size_t size, struct peer_request *ret_request);
void peer_accept_write(const struct peer_accept *accept, uint8_t ret_bytes[PEER_ACCEPT_SIZE]);
int peer_accept_read(const void *data, size_t size, struct peer_accept *ret_accept);
/* Returns the bytes written. */
size_t peer_reject_write(const struct peer_reject *reject, uint8_t ret_bytes[PEER_REJECT_SIZE_MAX]);
int peer_reject_read(const void *data, size_t size, struct peer_reject *ret_reject);

/* A frame starts with its type: the XXH64 (seed 0) of its type name. */
enum peer_frame_type { PEER_FRAME_WELCOME, PEER_FRAME_NOTICE, PEER_FRAME_ACK };

struct peer_frame {
	enum peer_frame_type type;
	union {
		struct peer_welcome welcome;
		struct peer_notice notice;
		struct peer_ack ack;
	};
};

/* "mrshare.welcome.v1" and so on. */
const char *peer_frame_type_name(enum peer_frame_type type);
uint64_t peer_frame_type_hash(enum peer_frame_type type);

/* Returns the bytes written, never more than PEER_FRAME_SIZE_MAX; -EINVAL where a view or a withdrawn count cannot be
 * encoded. */
ssize_t peer_frame_write(const struct peer_frame *frame, uint8_t ret_bytes[PEER_FRAME_SIZE_MAX]);
/* -EPROTONOSUPPORT: unknown type; -EBADMSG: short, or a field out of bounds. What follows a frame is ignored, and so are
 * rights in `granted` that are unknown. */
int peer_frame_read(const void *bytes, size_t size, struct peer_frame *ret_frame);

#endif
