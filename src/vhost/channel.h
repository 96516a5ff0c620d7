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
	CHANNEL_KEEP_MAX = 8,  /* fds that a message can keep */
};

/* What is read from a channel. */
enum channel_kind { CHANNEL_REQUESTS, CHANNEL_REPLIES };

/*
 * A message is read over any number of reads. Its first `keep` fds stay with it; every further one, which no message of
 * this channel has a use for, is surplus: it is counted, and the reader must get rid of it before it reads on. So the
 * fds that a connection can make us hold are bounded, whatever it sends.
 */
struct channel {
	int fd;
	enum channel_kind kind;
	unsigned int keep;
	size_t have; /* bytes of the message read so far, its header included */
	uint8_t header_bytes[VHOST_USER_HEADER_SIZE];
	struct vhost_user_header header; /* valid once it is complete */
	uint8_t payload[VHOST_USER_PAYLOAD_MAX];
	int fds[CHANNEL_KEEP_MAX]; /* -1: none, or taken */
	unsigned int fd_count;     /* fds that came with the message, the surplus included */
	int surplus[CHANNEL_FDS_MAX];
	unsigned int surplus_count;
	bool has_own_end; /* an fd that came is the other end of a connection to us */

	uint8_t out[VHOST_USER_MESSAGE_MAX];
	size_t out_size, out_left; /* `out_left` bytes at the end of `out_size` are not yet written */
	int out_fd;                /* goes with the first byte, and stays its owner's; -1: none */
};

enum channel_progress {
	CHANNEL_MORE,    /* nothing to read now */
	CHANNEL_MESSAGE, /* header, payload and fds of one message are there, until channel_next() */
	CHANNEL_SURPLUS, /* surplus fds came: take them, then read on */
};

/* `fd` becomes the channel's. `keep` is at most CHANNEL_KEEP_MAX. */
void channel_init(struct channel *channel, int fd, enum channel_kind kind, unsigned int keep);
/* An enum channel_progress, or the end of the connection: -ENOTCONN (closed between messages), -ECONNRESET (inside
 * one), -EBADMSG (nothing of its kind, or the framing is lost), -EMFILE (fds were cut off), -ELOOP (the end of a
 * connection to us came: who has gone would stay connected for as long as we have it), or another negative errno. */
int channel_read(struct channel *channel);
/* Whether a connection that ended so was left by the other end. */
bool channel_was_left(int cause);
struct channel_text {
	char text[128];
} /* What was wrong, in words. */
channel_describe(const struct channel *channel, int cause);
/* Forgets the message, so that the next one is read. Its fds must have been taken. */
void channel_next(struct channel *channel);
/* Begins to send a message; none may be unwritten, and it is no longer than VHOST_USER_MESSAGE_MAX. `fd` goes with it,
 * unless it is -1, and must stay open until it is written. */
void channel_send(struct channel *channel, const struct vhost_user_header *header, const void *payload, int fd);
/* Begins a reply that carries a result. */
void channel_reply(struct channel *channel, uint32_t request, int64_t result);
/* Forgets the message being sent if no byte of it is written; says whether it did. */
bool channel_unsend(struct channel *channel);
/* Writes what it can. 1: all is written; 0: the socket is full; or a negative errno. */
int channel_write(struct channel *channel);
/* Moves every fd that the unfinished message holds to `ret_fds`, which has room for CHANNEL_FDS_MAX + CHANNEL_KEEP_MAX;
 * returns how many. */
unsigned int channel_take_fds(struct channel *channel, int *ret_fds);

#endif
