/* channel.c: vhost-user frames with their fds over a non-blocking Unix stream socket. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

void channel_init(struct channel *channel, int fd)
{
	memset(channel, 0, sizeof(*channel));
	channel->fd = fd;
	channel->message_fd = -1;
}

static void take_fds(struct channel *channel, struct msghdr *msg)
{
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd), sizeof(fd));
			if (channel->fd_count++ == 0)
				channel->message_fd = fd;
			else
				channel->surplus[channel->surplus_count++] = fd;
		}
	}
}

/* Reads up to `size` bytes, never beyond the message: the fds that come with them are its own. Returns as recvmsg(). */
static ssize_t read_part(struct channel *channel, void *to, size_t size)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(CHANNEL_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = to, .iov_len = size };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};

	ssize_t n = recvmsg(channel->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	take_fds(channel, &msg);
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	return n;
}

static size_t message_size(const struct channel *channel)
{
	if (channel->have < VHOST_USER_HEADER_SIZE)
		return VHOST_USER_HEADER_SIZE;
	return VHOST_USER_HEADER_SIZE + channel->header.size;
}

int channel_read(struct channel *channel)
{
	for (;;) {
		bool in_header = channel->have < VHOST_USER_HEADER_SIZE;
		size_t left = message_size(channel) - channel->have;
		if (!in_header && left == 0)
			return CHANNEL_MESSAGE;

		uint8_t *to = in_header ? channel->header_bytes + channel->have
					: channel->payload + (channel->have - VHOST_USER_HEADER_SIZE);
		ssize_t n = read_part(channel, to, left);
		if (n == -EAGAIN)
			return CHANNEL_MORE;
		if (n == -EINTR)
			continue;
		if (n < 0)
			return (int)n;
		if (n == 0)
			return channel->have ? -ECONNRESET : -ENOTCONN;

		channel->have += (size_t)n;
		if (in_header && channel->have == VHOST_USER_HEADER_SIZE) {
			channel->header = vhost_user_header_read(channel->header_bytes);
			if (!vhost_user_request_is_valid(&channel->header))
				return -EBADMSG;
		}
		if (channel->surplus_count)
			return CHANNEL_SURPLUS;
	}
}

void channel_next(struct channel *channel)
{
	channel->have = 0;
	channel->message_fd = -1;
	channel->fd_count = 0;
}

void channel_reply(struct channel *channel, uint32_t request, int64_t result)
{
	vhost_user_reply_write(request, result, channel->reply);
	channel->reply_left = sizeof(channel->reply);
}

int channel_write(struct channel *channel)
{
	while (channel->reply_left) {
		const uint8_t *from = channel->reply + sizeof(channel->reply) - channel->reply_left;
		ssize_t n = send(channel->fd, from, channel->reply_left, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		channel->reply_left -= (size_t)n;
	}
	return 1;
}

unsigned int channel_take_fds(struct channel *channel, int *ret_fds)
{
	unsigned int count = channel->surplus_count;
	memcpy(ret_fds, channel->surplus, count * sizeof(int));
	channel->surplus_count = 0;
	if (channel->message_fd >= 0)
		ret_fds[count++] = channel->message_fd;
	channel->message_fd = -1;
	return count;
}
