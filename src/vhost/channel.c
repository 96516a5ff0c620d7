/* channel.c: vhost-user frames with their fds over a non-blocking Unix stream socket. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/channel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

void channel_init(struct channel *channel, int fd, enum channel_kind kind, unsigned int keep)
{
	memset(channel, 0, sizeof(*channel));
	channel->fd = fd;
	channel->kind = kind;
	channel->keep = keep;
	channel->out_fd = -1;
	channel_next(channel);
}

/* The other end of a socket that we listen on shows our own pid as that of its peer. */
static bool is_own_end(int fd)
{
	struct ucred cred = { 0 };
	socklen_t size = sizeof(cred);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) == 0 && cred.pid == getpid();
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
			channel->has_own_end = channel->has_own_end || is_own_end(fd);
			if (channel->fd_count < channel->keep)
				channel->fds[channel->fd_count] = fd;
			else
				channel->surplus[channel->surplus_count++] = fd;
			channel->fd_count++;
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
	return channel->has_own_end ? -ELOOP : n;
}

static bool header_is_valid(const struct channel *channel)
{
	return channel->kind == CHANNEL_REQUESTS ? vhost_user_request_is_valid(&channel->header)
						 : vhost_user_reply_is_valid(&channel->header);
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
			if (!header_is_valid(channel))
				return -EBADMSG;
		}
		if (channel->surplus_count)
			return CHANNEL_SURPLUS;
	}
}

bool channel_was_left(int cause)
{
	return cause == -ENOTCONN || cause == -ECONNRESET || cause == -EPIPE;
}

struct channel_text channel_describe(const struct channel *channel, int cause)
{
	struct channel_text out;
	const char *kind = channel->kind == CHANNEL_REQUESTS ? "request" : "reply";
	switch (cause) {
	case -EBADMSG:
		snprintf(out.text, sizeof(out.text), "its message is no vhost-user %s (flags %#x, size %u)", kind,
			channel->header.flags, channel->header.size);
		break;
	case -EMFILE:
		snprintf(out.text, sizeof(out.text), "file descriptors that it sent did not arrive (see LimitNOFILE)");
		break;
	case -ELOOP:
		snprintf(out.text, sizeof(out.text), "it sent an end of a connection to mrshared itself");
		break;
	default:
		snprintf(out.text, sizeof(out.text), "%s", strerror(-cause));
	}
	return out;
}

void channel_next(struct channel *channel)
{
	channel->have = 0;
	channel->fd_count = 0;
	for (unsigned int i = 0; i < CHANNEL_KEEP_MAX; i++)
		channel->fds[i] = -1;
}

void channel_send(struct channel *channel, const struct vhost_user_header *header, const void *payload, int fd)
{
	vhost_user_header_write(header, channel->out);
	if (header->size)
		memcpy(channel->out + VHOST_USER_HEADER_SIZE, payload, header->size);
	channel->out_size = channel->out_left = VHOST_USER_HEADER_SIZE + header->size;
	channel->out_fd = fd;
}

void channel_reply(struct channel *channel, uint32_t request, int64_t result)
{
	vhost_user_reply_write(request, result, channel->out);
	channel->out_size = channel->out_left = VHOST_USER_REPLY_SIZE;
	channel->out_fd = -1;
}

bool channel_unsend(struct channel *channel)
{
	if (channel->out_left != channel->out_size)
		return false;
	channel->out_left = 0;
	return true;
}

/* The fd goes with the first byte that is written. Returns as sendmsg(). */
static ssize_t write_part(struct channel *channel)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = {
		.iov_base = channel->out + channel->out_size - channel->out_left,
		.iov_len = channel->out_left,
	};
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (channel->out_fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &channel->out_fd, sizeof(int));
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	return sendmsg(channel->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int channel_write(struct channel *channel)
{
	while (channel->out_left) {
		ssize_t n = write_part(channel);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
		channel->out_left -= (size_t)n;
		channel->out_fd = -1;
	}
	return 1;
}

unsigned int channel_take_fds(struct channel *channel, int *ret_fds)
{
	unsigned int count = channel->surplus_count;
	memcpy(ret_fds, channel->surplus, count * sizeof(int));
	channel->surplus_count = 0;
	for (unsigned int i = 0; i < CHANNEL_KEEP_MAX; i++) {
		if (channel->fds[i] >= 0)
			ret_fds[count++] = channel->fds[i];
		channel->fds[i] = -1;
	}
	return count;
}
