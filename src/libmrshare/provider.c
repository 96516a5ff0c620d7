/* provider.c: a provider's end of the daemon's socket: map and unmap requests, each with its answer. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/size.h"
#include "libmrshare/conn.h"
#include "wire/vhost_user.h"

struct mrshare_provider {
	pid_t pid; /* whose this is */
	int fd;
	bool broken;   /* bytes were lost: what comes next is no reply to what we ask next */
	bool answered; /* there was a reply */
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

/* What the daemon's refusals mean, and the way out. mrshare-protocol(7), "Provider channel". */
struct meaning {
	int code;
	const char *words;
};

static const struct meaning map_meanings[] = {
	{ -EOPNOTSUPP,
		"this host cannot pin such pages: map a memfd, tmpfs, hugetlbfs or device DAX instead, or map it "
		"read-only from a descriptor opened read-write" },
	{ -EINVAL, "offsets and length must be multiples of 4096, of the huge page size on hugetlbfs, the length not "
		   "0, and offset + length within 64 bits" },
	{ -EBADF, "this descriptor does not give access to a file" },
	{ -ENXIO, "the daemon has no such region" },
	{ -ERANGE, "the range ends beyond the region" },
	{ -EEXIST, "the range overlaps another mapping of the region" },
	{ -EDQUOT, "a limit of the daemon is reached: --max-mappings, --max-bytes or --max-extents" },
	{ -EACCES, "the descriptor allows no such access: writable needs O_RDWR and no write seal, read-only needs "
		   "reading" },
	{ -ENODEV,
		"this is no regular file, memfd or DAX device, or it is on a file system that another process serves" },
	{ -EPERM, "the file can be truncated, and the daemon has --unsealed=refuse: use a memfd made with "
		  "MFD_ALLOW_SEALING" },
	{ -EFBIG, "the file is shorter than offset + length" },
	{ -ENOMEM, "not enough memory for the daemon to lock: its log names the limit" },
	{ -EFAULT, "its pages cannot be pinned: the file system may be full, or the file be shortened" },
};

static const struct meaning unmap_meanings[] = {
	{ -EINVAL, "offset and length must be multiples of 4096, the length not 0, and their sum within 64 bits" },
	{ -ENXIO, "the daemon has no such region" },
	{ -ERANGE, "the range ends beyond the region" },
	{ -ENOENT, "nothing is mapped with exactly this offset and length" },
	{ -EPERM, "that mapping belongs to another provider or to the daemon itself" },
	{ -EBUSY, "an earlier removal of it failed: it stays mapped until the daemon ends" },
	{ -EINPROGRESS, "no peer reaches the memory any more, but a guest still may: its VM has not answered yet" },
};

static const char *find_meaning(const struct meaning *meanings, size_t count, int code)
{
	for (size_t i = 0; i < count; i++) {
		if (meanings[i].code == code)
			return meanings[i].words;
	}
	return "its log says why";
}

static int refused(const struct mrshare_provider *provider, uint32_t request_type, const struct mrshare_mmap *mmap,
	int code, struct err *err)
{
	bool map = request_type == VHOST_USER_BACKEND_SHMEM_MAP;
	const char *words =
		map ? find_meaning(map_meanings, sizeof(map_meanings) / sizeof(map_meanings[0]), code)
		    : find_meaning(unmap_meanings, sizeof(unmap_meanings) / sizeof(unmap_meanings[0]), code);
	return err_set(err, code, "the daemon at %s refused to %s %s at 0x%" PRIx64 " of region %u: %s: %s",
		provider->path, map ? "map" : "unmap", size_format(mmap->len).text, mmap->shm_offset, mmap->shmid,
		strerror(-code), words);
}

static int lost(struct mrshare_provider *provider, int code, struct err *err)
{
	provider->broken = true;
	if (code == 0 || code == -EPIPE || code == -ECONNRESET)
		return err_set(err, -ECONNRESET, "the daemon at %s has closed the connection%s", provider->path,
			provider->answered ? "" : ": its log says why (is --max-providers reached?)");
	return err_set(err, code, "the daemon at %s: %s", provider->path, strerror(-code));
}

/* Sends all bytes, `fd` (or -1) with the first of them. */
static int send_all(int socket_fd, const uint8_t *bytes, size_t size, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	while (size) {
		struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
		struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
		if (fd >= 0) {
			message.msg_control = &control;
			message.msg_controllen = sizeof(control.bytes);
			struct cmsghdr *header = CMSG_FIRSTHDR(&message);
			header->cmsg_level = SOL_SOCKET;
			header->cmsg_type = SCM_RIGHTS;
			header->cmsg_len = CMSG_LEN(sizeof(fd));
			memcpy(CMSG_DATA(header), &fd, sizeof(fd));
		}
		ssize_t n = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
		fd = -1;
	}
	return 0;
}

/* Receives all bytes. 1, or 0 at the end of the stream, or a negative errno. */
static int receive_all(int socket_fd, uint8_t *bytes, size_t size)
{
	while (size) {
		ssize_t n = recv(socket_fd, bytes, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		bytes += n;
		size -= (size_t)n;
	}
	return 1;
}

static int request(
	struct mrshare_provider *provider, uint32_t type, const struct mrshare_mmap *mmap, int fd, struct err *err)
{
	if (provider->pid != getpid())
		return err_set(err, -ECHILD, "the provider belongs to process %d, which this one was forked from",
			(int)provider->pid);
	if (provider->broken)
		return err_set(err, -ENOTCONN, "the connection to the daemon at %s has ended", provider->path);

	uint8_t message[VHOST_USER_HEADER_SIZE + MRSHARE_MMAP_SIZE], reply[VHOST_USER_REPLY_SIZE];
	const struct vhost_user_header header = {
		.request = type,
		.flags = VHOST_USER_VERSION | VHOST_USER_NEED_REPLY,
		.size = MRSHARE_MMAP_SIZE,
	};
	vhost_user_header_write(&header, message);
	mrshare_mmap_write(mmap, message + VHOST_USER_HEADER_SIZE, MRSHARE_MMAP_SIZE);
	int r = send_all(provider->fd, message, sizeof(message), fd);
	if (r == -EBADF)
		return err_set(err, r, "%d is no open file descriptor", fd);
	if (r < 0)
		return lost(provider, r, err);
	r = receive_all(provider->fd, reply, sizeof(reply));
	if (r <= 0)
		return lost(provider, r, err);

	int64_t result;
	if (vhost_user_reply_read(reply, type, &result) < 0 || result > 0 || result < -4095) {
		provider->broken = true;
		return err_set(err, -EBADMSG, "%s: what listens there does not answer like mrshared", provider->path);
	}
	provider->answered = true;
	return result < 0 ? refused(provider, type, mmap, (int)result, err) : 0;
}

int mrshare_provider_map(struct mrshare_provider *provider, const struct mrshare_mmap *mmap, int fd)
{
	error_enter(__func__);
	struct err err;
	int r = fd < 0 ? err_set(&err, -EBADF, "%d is no open file descriptor", fd)
		       : request(provider, VHOST_USER_BACKEND_SHMEM_MAP, mmap, fd, &err);
	return r < 0 ? error_publish(&err) : 0;
}

int mrshare_provider_unmap(struct mrshare_provider *provider, const struct mrshare_mmap *mmap)
{
	error_enter(__func__);
	struct err err;
	int r = request(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, mmap, -1, &err);
	return r < 0 ? error_publish(&err) : 0;
}

static int open_failed(const char *path, int code, struct err *err)
{
	const char *words = "";
	if (code == -ENOENT || code == -ECONNREFUSED)
		words = ": is mrshared running with --provider-socket of this path?";
	else if (code == -EACCES)
		words = ": its mode decides who may share memory (--socket-mode, --socket-group)";
	return err_set(err, code, "cannot connect to the daemon at %s: %s%s", path, strerror(-code), words);
}

static int provider_open(const char *path, struct mrshare_provider **ret_provider, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (!*path)
		return err_set(err, -EINVAL, "the path of the daemon's socket is empty");
	if (strlen(path) >= sizeof(address.sun_path))
		return open_failed(path, -ENAMETOOLONG, err);
	strcpy(address.sun_path, path);

	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return open_failed(path, -errno, err);
	while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno != EINTR)
			return open_failed(path, -errno, err);
	}

	struct mrshare_provider *provider = calloc(1, sizeof(*provider));
	if (!provider)
		return err_set(err, -ENOMEM, "out of memory");
	strcpy(provider->path, path);
	provider->pid = getpid();
	provider->fd = fd;
	fd = -1;
	*ret_provider = provider;
	return 0;
}

int mrshare_provider_open(const char *path, struct mrshare_provider **ret_provider)
{
	error_enter(__func__);
	struct err err;
	return provider_open(path, ret_provider, &err) < 0 ? error_publish(&err) : 0;
}

int mrshare_provider_fd(const struct mrshare_provider *provider)
{
	return provider->fd;
}

void mrshare_provider_close(struct mrshare_provider **provider)
{
	if (!*provider)
		return;
	/* The socket may live on in a forked child; the mappings must not. */
	if ((*provider)->pid == getpid())
		shutdown((*provider)->fd, SHUT_RDWR);
	fd_close(&(*provider)->fd);
	free(*provider);
	*provider = NULL;
}
