/* frontend_queue.c: a front-end's queues: their rings, kicks and calls. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue runs from when it has a kick fd and is enabled until one of them goes. Fds of kick, call and err are eventfds
 * and nothing else: reading another kind of file could make the loop wait. Even an eventfd can do so where another of
 * its owners takes its O_NONBLOCK away; so kicks are read with RWF_NOWAIT, and calls are a worker's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "vhost/frontend_internal.h"

static unsigned int index_of(const struct frontend *frontend, const struct frontend_queue *queue)
{
	return (unsigned int)(queue - frontend->queues);
}

static int find_queue(struct frontend *frontend, uint64_t index, struct frontend_queue **ret_queue, struct err *err)
{
	unsigned int queues = frontend->frontends->config->device.queues;
	if (index >= queues) {
		err_set(err, -EINVAL, "there is no queue %llu: the device has %u", (unsigned long long)index, queues);
		return -EINVAL;
	}
	*ret_queue = &frontend->queues[index];
	return 0;
}

/* The queue and the number of a payload that has the two. */
static int read_state(struct frontend *frontend, struct frontend_queue **ret_queue, uint32_t *ret_num, struct err *err)
{
	struct vhost_user_vring_state state;
	vhost_user_vring_state_read(frontend->channel.payload, frontend->channel.header.size, &state);
	*ret_num = state.num;
	return find_queue(frontend, state.index, ret_queue, err);
}

/*
 * Running.
 */

static int queue_start(struct frontend *frontend, struct frontend_queue *queue, struct err *err)
{
	const struct frontend_ops *ops = frontend->frontends->ops;
	enum memory_kind kind =
		frontend->protocol_features & VHOST_USER_PROTOCOL_GPA_ADDRESSES ? MEMORY_GUEST_ADDR : MEMORY_USER_ADDR;
	if (!frontend->memory)
		return err_set(
			err, -EINVAL, "queue %u cannot start: there is no memory table", index_of(frontend, queue));
	int r = vring_start(queue->vq, frontend->memory, kind, frontend->features, err);
	if (r < 0) {
		err_prefix(err, "queue %u cannot start", index_of(frontend, queue));
		return r;
	}
	queue->broken = false;
	/* A call from before the stop may have been lost with the fd of that time. */
	queue->call_due = true;
	event_io_set(queue->kick_io, EVENT_READ);
	ops->queue_start(frontend->device, index_of(frontend, queue), queue->vq);
	return 0;
}

static void queue_stop(struct frontend *frontend, struct frontend_queue *queue)
{
	if (!vring_is_running(queue->vq))
		return;
	frontend->frontends->ops->queue_stop(frontend->device, index_of(frontend, queue));
	vring_stop(queue->vq);
	event_io_set(queue->kick_io, 0);
}

static bool should_run(const struct frontend *frontend, const struct frontend_queue *queue)
{
	bool enabled = queue->enabled || !(frontend->features & VHOST_USER_F_PROTOCOL_FEATURES);
	return queue->kick >= 0 && enabled;
}

static int queue_update(struct frontend *frontend, struct frontend_queue *queue, struct err *err)
{
	bool runs = vring_is_running(queue->vq);
	if (!should_run(frontend, queue)) {
		queue_stop(frontend, queue);
		return 0;
	}
	return runs ? 0 : queue_start(frontend, queue, err);
}

static void drop_kick(struct frontend *frontend, struct frontend_queue *queue)
{
	queue_stop(frontend, queue);
	event_source_free(&queue->kick_io);
	session_close_later(frontend, &queue->kick);
}

static void on_kick(struct frontend *frontend, struct frontend_queue *queue)
{
	uint64_t count;
	struct iovec iov = { &count, sizeof(count) };
	if (preadv2(queue->kick, &iov, 1, -1, RWF_NOWAIT) < 0 && errno != EAGAIN && errno != EINTR) {
		log_warning("%s: cannot read the kicks of queue %u: %s", frontend_tag(frontend),
			index_of(frontend, queue), strerror(errno));
		event_io_set(queue->kick_io, 0);
		return;
	}
	frontend->frontends->ops->queue_kick(frontend->device, index_of(frontend, queue));
	session_pump(frontend);
}

/* A source has one pointer, and the queue is in the front-end. */
static void on_kick_of_queue_0(void *data, unsigned int events)
{
	struct frontend *frontend = data;
	on_kick(frontend, &frontend->queues[0]);
}

_Static_assert(FRONTEND_QUEUES_MAX == 1, "each queue needs its own on_kick");

void frontend_call(struct frontend *frontend, unsigned int queue)
{
	frontend->queues[queue].call_due = true;
	session_wake(frontend);
}

void frontend_broken(struct frontend *frontend, unsigned int index, const struct err *err)
{
	struct frontend_queue *queue = &frontend->queues[index];
	if (err->code == -EIO) {
		frontend->end_cause = err->code;
		frontend->end_err = *err;
	} else if (!queue->broken) {
		log_warning("%s: queue %u is broken, and stands still until it is started again: %s",
			frontend_tag(frontend), index, err->text);
	}
	queue->broken = queue->err_due = true;
	session_wake(frontend);
}

/*
 * Requests.
 */

int request_set_vring_num(struct frontend *frontend, struct err *err)
{
	struct frontend_queue *queue;
	uint32_t num;
	int r = read_state(frontend, &queue, &num, err);
	return r < 0 ? r : vring_set_num(queue->vq, num, err);
}

int request_set_vring_addr(struct frontend *frontend, struct err *err)
{
	struct vhost_user_vring_addr addr;
	struct frontend_queue *queue;
	vhost_user_vring_addr_read(frontend->channel.payload, frontend->channel.header.size, &addr);
	int r = find_queue(frontend, addr.index, &queue, err);
	if (r < 0)
		return r;
	if (addr.flags)
		return err_set(err, -EINVAL, "flags %#x: the log of writes was not offered", addr.flags);
	struct vring_addrs addrs = { .desc = addr.desc, .avail = addr.avail, .used = addr.used };
	return vring_set_addrs(queue->vq, &addrs, err);
}

int request_set_vring_base(struct frontend *frontend, struct err *err)
{
	struct frontend_queue *queue;
	uint32_t base;
	int r = read_state(frontend, &queue, &base, err);
	return r < 0 ? r : vring_set_base(queue->vq, base, err);
}

int request_get_vring_base(struct frontend *frontend, struct err *err)
{
	struct frontend_queue *queue;
	uint32_t ignored;
	int r = read_state(frontend, &queue, &ignored, err);
	if (r < 0)
		return r;
	announce_stop(frontend, "GET_VRING_BASE");
	drop_kick(frontend, queue);
	struct vhost_user_vring_state state = { index_of(frontend, queue), vring_base(queue->vq) };
	request_reply(frontend, &state, sizeof(state));
	return REQUEST_REPLIED;
}

int request_set_vring_enable(struct frontend *frontend, struct err *err)
{
	struct frontend_queue *queue;
	uint32_t enable;
	int r = read_state(frontend, &queue, &enable, err);
	if (r < 0)
		return r;
	if (enable > 1)
		return err_set(err, -EINVAL, "%u is neither 0 nor 1", enable);
	bool was_enabled = queue->enabled;
	queue->enabled = enable;
	if (!enable)
		announce_stop(frontend, "SET_VRING_ENABLE 0");
	r = queue_update(frontend, queue, err);
	if (r < 0)
		queue->enabled = was_enabled;
	else if (enable)
		announce_start(frontend);
	return r;
}

/* "anon_inode:[eventfd]" is what the kernel calls one; asking it touches no file system. */
static int check_eventfd(int fd, struct err *err)
{
	char path[32], target[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	target[n < 0 ? 0 : n] = '\0';
	if (strcmp(target, "anon_inode:[eventfd]") != 0)
		return err_set(err, -EINVAL, "its file descriptor is no eventfd");
	return 0;
}

/* The queue and the fd (-1: none) of SET_VRING_KICK, _CALL or _ERR. The fd stays the message's. */
static int read_fd(struct frontend *frontend, struct frontend_queue **ret_queue, int *ret_fd, struct err *err)
{
	uint64_t value;
	vhost_user_u64_read(frontend->channel.payload, frontend->channel.header.size, &value);
	if (value & ~(VHOST_USER_VRING_INDEX_MASK | VHOST_USER_VRING_NO_FD))
		return err_set(err, -EINVAL, "unknown bits in %#llx", (unsigned long long)value);
	int r = find_queue(frontend, value & VHOST_USER_VRING_INDEX_MASK, ret_queue, err);
	if (r < 0)
		return r;
	bool has_fd = !(value & VHOST_USER_VRING_NO_FD);
	if (has_fd != (frontend->channel.fd_count == 1))
		return err_set(err, -EBADF, "%u file descriptors came with it, and its bit 8 says %s",
			frontend->channel.fd_count, has_fd ? "1" : "none");
	*ret_fd = frontend->channel.fds[0];
	return has_fd ? check_eventfd(*ret_fd, err) : 0;
}

int request_set_vring_kick(struct frontend *frontend, struct err *err)
{
	struct frontend_queue *queue;
	int fd;
	int r = read_fd(frontend, &queue, &fd, err);
	if (r < 0)
		return r;
	if (fd < 0)
		return err_set(err, -EOPNOTSUPP, "queues are not polled: it needs a file descriptor");
	struct event_source *io = event_io_new(frontend->frontends->loop, fd, on_kick_of_queue_0, frontend);
	if (!io)
		return err_set(err, -ENOMEM, "out of memory");
	drop_kick(frontend, queue);
	queue->kick = fd;
	queue->kick_io = io;
	frontend->channel.fds[0] = -1;
	r = queue_update(frontend, queue, err);
	if (r < 0)
		drop_kick(frontend, queue);
	return r;
}

static int set_notifier(struct frontend *frontend, bool is_call, struct err *err)
{
	struct frontend_queue *queue;
	int fd;
	int r = read_fd(frontend, &queue, &fd, err);
	if (r < 0)
		return r;
	int *slot = is_call ? &queue->call : &queue->err;
	session_close_later(frontend, slot);
	*slot = fd;
	frontend->channel.fds[0] = -1;
	/* A call that is on its way goes to the fd before, where nobody may look any more: one too many does no harm.
	 */
	if (is_call)
		queue->call_due = true;
	return REQUEST_DONE;
}

int request_set_vring_call(struct frontend *frontend, struct err *err)
{
	return set_notifier(frontend, true, err);
}

int request_set_vring_err(struct frontend *frontend, struct err *err)
{
	return set_notifier(frontend, false, err);
}

/*
 * All queues of a front-end.
 */

int queues_new(struct frontend *frontend)
{
	const struct frontend_device *device = &frontend->frontends->config->device;
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		struct frontend_queue *queue = &frontend->queues[i];
		queue->kick = queue->call = queue->err = -1;
		int r = vring_new(device->queue_num_max, &queue->vq);
		if (r < 0)
			return r;
	}
	return 0;
}

void queues_free(struct frontend *frontend)
{
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++)
		vring_free(&frontend->queues[i].vq);
}

bool queue_any_runs(const struct frontend *frontend)
{
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		if (vring_is_running(frontend->queues[i].vq))
			return true;
	}
	return false;
}

void queues_stop(struct frontend *frontend)
{
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		struct frontend_queue *queue = &frontend->queues[i];
		drop_kick(frontend, queue);
		queue->enabled = false;
		vring_set_base(queue->vq, 0, NULL);
	}
}

void queues_end(struct frontend *frontend)
{
	queues_stop(frontend);
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		session_close_later(frontend, &frontend->queues[i].call);
		session_close_later(frontend, &frontend->queues[i].err);
	}
}

void queues_set_memory(struct frontend *frontend, struct memory *memory)
{
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		if (vring_is_running(frontend->queues[i].vq))
			vring_set_memory(frontend->queues[i].vq, memory);
	}
}
