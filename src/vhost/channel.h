/* channel.h: vhost-user frames with their fds over a non-blocking Unix stream socket. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_CHANNEL_H
#define VHOST_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/vhost_user.h"

enum {
	CHANNEL_FDS_MAX = 253, /* fds that one sendmsg() can carry (SCM_MAX_FD) */
};

/*
 * A message is read over any number of reads. Its first fd stays with it; every further one, which no request of a
 * provider has a use for, is surplus: it is counted, and the reader must get rid of it before it reads on. So the fds
 * that a connection can make us hold are bounded, whatever it sends.
 */
struct channel {
	int fd;
	size_t have; /* bytes of the message read so far, its header included */
	uint8_t header_bytes[VHOST_USER_HEADER_SIZE];
	struct vhost_user_header header; /* valid once it is complete */
	uint8_t payload[VHOST_USER_PAYLOAD_MAX];
	int message_fd;        /* -1: none */
	unsigned int fd_count; /* fds that came with the message, the surplus included */
	int surplus[CHANNEL_FDS_MAX];
	unsigned int surplus_count;

	uint8_t reply[VHOST_USER_REPLY_SIZE];
	size_t reply_left; /* bytes at the end of `reply` not yet written */
};

enum channel_progress {
	CHANNEL_MORE,    /* nothing to read now */
	CHANNEL_MESSAGE, /* header, payload and fds of one message are there, until channel_next() */
	CHANNEL_SURPLUS, /* surplus fds came: take them, then read on */
};

/* `fd` becomes the channel's. */
void channel_init(struct channel *channel, int fd);
/* An enum channel_progress, or the end of the connection: -ENOTCONN (closed between messages), -ECONNRESET (inside
 * one), -EBADMSG (no request, or the framing is lost), -EMFILE (fds were cut off), or another negative errno. */
int channel_read(struct channel *channel);
/* Forgets the message, so that the next one is read. Its fd must have been taken. */
void channel_next(struct channel *channel);
/* Begins a reply; none may be unwritten. */
void channel_reply(struct channel *channel, uint32_t request, int64_t result);
/* Writes what it can. 1: all is written; 0: the socket is full; or a negative errno. */
int channel_write(struct channel *channel);
/* Moves every fd that the unfinished message holds to `ret_fds`, which has room for CHANNEL_FDS_MAX + 1; returns how
 * many. */
unsigned int channel_take_fds(struct channel *channel, int *ret_fds);

#endif
