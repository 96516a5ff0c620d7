/* provider.c: provider sessions: programs that hand us memory over the provider socket. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each connection is a vhost-user back-end request channel on which we play the front-end's part. Messages are read
 * ahead, so that a close is seen while a request runs, but executed one at a time, and none while a reply is unwritten:
 * a provider can hold up nobody but itself. Received fds are closed by the pool's workers, for close() of a file that
 * another process serves takes as long as that process likes; until it is done the session does nothing else, so that
 * what it can make us hold stays bounded.
 */
#include "vhost/provider.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/range.h"
#include "vhost/channel.h"
#include "vhost/listen.h"

enum {
	PAGE = 4096,
	CLOSING_MAX = CHANNEL_FDS_MAX + 1 + PROVIDER_READ_AHEAD + 1 + 1,
	HANGUP_CHECK_MS = 500,
};

/* A message that was read, as far as it matters. */
struct request {
	struct vhost_user_header header;
	struct mrshare_mmap mmap; /* where the payload has its size */
	int fd;
	unsigned int fd_count;
};

struct providers {
	struct event_loop *loop;
	const struct providers_config *config;
	struct worker_pool *pool;
	const struct provider_ops *ops;
	void *data;
	struct listener *listener;
	unsigned int count;
	uint64_t last_id;
};

struct provider {
	struct providers *providers;
	uint64_t id;
	struct ucred cred;
	char name[64];
	struct channel channel;
	struct event_source *io;     /* NULL: the connection has ended */
	struct event_source *hangup; /* while nothing is read, looks whether the other end is still there */

	struct request queue[PROVIDER_READ_AHEAD]; /* a ring */
	unsigned int queue_head, queue_count;
	struct request running; /* what was handed over last */
	bool busy;              /* it has not been answered */

	int closing[CLOSING_MAX]; /* fds that wait to be closed */
	unsigned int closing_count;
	int close_batch[CLOSING_MAX]; /* the close job's */
	unsigned int close_batch_count;
	bool close_running;
	struct job close_job;
};

static void session_read(struct provider *provider);
static void session_pump(struct provider *provider);
static void session_end(struct provider *provider, int cause);

/* The name of a provider in a line of the log, which gets its fields. */
static const char *tag(const struct provider *provider)
{
	log_field("MRSHARE_PROVIDER_UID", "%u", provider->cred.uid); /* first: repetitions are counted by user */
	log_field("MRSHARE_PROVIDER_PID", "%d", provider->cred.pid);
	log_field("MRSHARE_PROVIDER", "%llu", (unsigned long long)provider->id);
	return provider->name;
}

static const char *request_name(uint32_t request)
{
	switch (request) {
	case VHOST_USER_BACKEND_SHMEM_MAP:
		return "SHMEM_MAP";
	case VHOST_USER_BACKEND_SHMEM_UNMAP:
		return "SHMEM_UNMAP";
	default:
		return "request";
	}
}

/*
 * Closing fds.
 */

static struct provider *of_close_job(struct job *job)
{
	return container_of(job, struct provider, close_job);
}

static void close_run(struct job *job)
{
	struct provider *provider = of_close_job(job);
	for (unsigned int i = 0; i < provider->close_batch_count; i++)
		close(provider->close_batch[i]);
}

static void close_done(struct job *job)
{
	struct provider *provider = of_close_job(job);
	provider->close_running = false;
	/* A message may be complete already, with nothing left in the socket that would wake us. */
	session_read(provider);
}

static void close_later(struct provider *provider, int *fd)
{
	if (*fd >= 0)
		provider->closing[provider->closing_count++] = *fd;
	*fd = -1;
}

static void close_start(struct provider *provider)
{
	if (provider->close_running || !provider->closing_count)
		return;
	memcpy(provider->close_batch, provider->closing, provider->closing_count * sizeof(int));
	provider->close_batch_count = provider->closing_count;
	provider->closing_count = 0;
	provider->close_running = true;
	provider->close_job = (struct job){ .run = close_run, .done = close_done };
	worker_pool_submit(provider->providers->pool, &provider->close_job);
}

/*
 * Executing requests.
 */

/* What can be said of a request from its message alone, in the order of mrshare-protocol(7). */
static int request_check(const struct request *request, struct err *err)
{
	bool is_map = request->header.request == VHOST_USER_BACKEND_SHMEM_MAP;
	if (!is_map && request->header.request != VHOST_USER_BACKEND_SHMEM_UNMAP)
		return err_set(err, -EOPNOTSUPP,
			"request %u is not served here: only SHMEM_MAP (9) and SHMEM_UNMAP (10)",
			request->header.request);
	if (request->header.size != MRSHARE_MMAP_SIZE)
		return err_set(err, -EINVAL, "the payload has %u bytes instead of %d", request->header.size,
			MRSHARE_MMAP_SIZE);
	if (is_map && request->fd_count != 1)
		return err_set(err, -EBADF, "it came with %u file descriptors instead of 1", request->fd_count);
	if (!is_map && request->fd_count != 0)
		return err_set(err, -EINVAL, "it came with a file descriptor and takes none");

	const struct mrshare_mmap *mmap = &request->mmap;
	if (mmap->len == 0)
		return err_set(err, -EINVAL, "len is 0");
	if (range_overflows(mmap->shm_offset, mmap->len) || (is_map && range_overflows(mmap->fd_offset, mmap->len)))
		return err_set(err, -EINVAL, "offset + len is more than 64 bits hold");
	if (!is_aligned(mmap->shm_offset, PAGE) || !is_aligned(mmap->len, PAGE) ||
		(is_map && !is_aligned(mmap->fd_offset, PAGE)))
		return err_set(err, -EINVAL, "offsets and len must be multiples of %d", PAGE);
	if (is_map && mmap->flags & ~(uint64_t)MRSHARE_MMAP_WRITABLE)
		return err_set(err, -EINVAL, "unknown flags %#llx: only bit 0 (writable) is known",
			(unsigned long long)mmap->flags);
	return 0;
}

/* Replies if a reply is wanted; a refusal is in the log either way. */
static void request_end(struct provider *provider, const struct request *request, int result, const struct err *err)
{
	if (result < 0) {
		const char *name = tag(provider);
		log_field("ERRNO", "%d", -result);
		log_warning("%s: %s refused: %s", name, request_name(request->header.request), err->text);
	}
	if (provider->io && request->header.flags & VHOST_USER_NEED_REPLY)
		channel_reply(&provider->channel, request->header.request, result);
}

static void request_execute(struct provider *provider, struct request *request)
{
	const struct providers *providers = provider->providers;
	struct err err = { 0 };
	int r = request_check(request, &err);
	if (r == 0) {
		provider->running = *request;
		provider->running.fd = -1;
		if (request->header.request == VHOST_USER_BACKEND_SHMEM_MAP)
			r = providers->ops->map(providers->data, provider, &request->mmap, request->fd, &err);
		else
			r = providers->ops->unmap(providers->data, provider, &request->mmap, &err);
	}
	if (r < 0) {
		close_later(provider, &request->fd);
		request_end(provider, request, r, &err);
	} else {
		provider->busy = true;
	}
}

void provider_answer(struct provider *provider, int result, const struct err *err)
{
	provider->busy = false;
	request_end(provider, &provider->running, result, err);
	session_pump(provider);
}

/*
 * The session.
 */

static void session_free(struct provider *provider)
{
	provider->providers->count--;
	free(provider);
}

/* Does what can be done now: writes, executes, closes, frees; and says what to wait for. */
static void session_pump(struct provider *provider)
{
	while (provider->io) {
		int r = channel_write(&provider->channel);
		if (r < 0) {
			session_end(provider, r);
			return;
		}
		if (r == 0 || provider->busy || provider->close_running || provider->closing_count ||
			!provider->queue_count)
			break;
		struct request *request = &provider->queue[provider->queue_head];
		provider->queue_head = (provider->queue_head + 1) % PROVIDER_READ_AHEAD;
		provider->queue_count--;
		request_execute(provider, request);
	}
	close_start(provider);

	if (provider->io) {
		bool may_read = provider->queue_count < PROVIDER_READ_AHEAD && !provider->close_running;
		if (!may_read)
			event_timer_set(provider->hangup, HANGUP_CHECK_MS);
		event_io_set(
			provider->io, (may_read ? EVENT_READ : 0u) | (provider->channel.out_left ? EVENT_WRITE : 0u));
	} else if (!provider->busy && !provider->close_running) {
		session_free(provider);
	}
}

/* The connection ends: what was read ahead is dropped. */
static void session_end(struct provider *provider, int cause)
{
	log_message_id("38a15d78c23044dcbc614c56ce47fe19");
	switch (-cause) {
	case ENOTCONN:
		log_info("%s: disconnected", tag(provider));
		break;
	case ECONNRESET:
	case EPIPE:
		log_info("%s: disconnected in the middle of a message", tag(provider));
		break;
	default:
		log_warning("%s: dropped: %s", tag(provider), channel_describe(&provider->channel, cause).text);
		break;
	}

	event_source_free(&provider->io);
	event_source_free(&provider->hangup);
	/* The other end is told at once; the close is a worker's, since messages that were not read may hold fds of
	 * which the last close blocks. */
	shutdown(provider->channel.fd, SHUT_RDWR);
	close_later(provider, &provider->channel.fd);
	int fds[CHANNEL_FDS_MAX + CHANNEL_KEEP_MAX];
	unsigned int count = channel_take_fds(&provider->channel, fds);
	for (unsigned int i = 0; i < count; i++)
		close_later(provider, &fds[i]);
	while (provider->queue_count) {
		close_later(provider, &provider->queue[provider->queue_head].fd);
		provider->queue_head = (provider->queue_head + 1) % PROVIDER_READ_AHEAD;
		provider->queue_count--;
	}
	provider->providers->ops->gone(provider->providers->data, provider);
	session_pump(provider);
}

static void enqueue_message(struct provider *provider)
{
	struct channel *channel = &provider->channel;
	unsigned int tail = (provider->queue_head + provider->queue_count) % PROVIDER_READ_AHEAD;
	struct request *request = &provider->queue[tail];
	*request = (struct request){
		.header = channel->header,
		.fd = channel->fds[0],
		.fd_count = channel->fd_count,
	};
	/* Another size is refused by request_check(). */
	(void)mrshare_mmap_read(channel->payload, channel->header.size, &request->mmap);
	provider->queue_count++;
	channel_next(channel);
}

static void session_read(struct provider *provider)
{
	while (provider->io && provider->queue_count < PROVIDER_READ_AHEAD) {
		int r = channel_read(&provider->channel);
		if (r < 0) {
			session_end(provider, r);
			return;
		}
		if (r == CHANNEL_SURPLUS) {
			int fds[CHANNEL_FDS_MAX + CHANNEL_KEEP_MAX];
			/* The message's own fd may be among them: with surplus fds it is refused whatever it is. */
			unsigned int count = channel_take_fds(&provider->channel, fds);
			for (unsigned int i = 0; i < count; i++)
				close_later(provider, &fds[i]);
			break;
		}
		if (r == CHANNEL_MORE)
			break;
		enqueue_message(provider);
	}
	session_pump(provider);
}

static void on_io(void *data, unsigned int events)
{
	if (events & EVENT_READ)
		session_read(data);
	else
		session_pump(data);
}

static void on_hangup_check(void *data)
{
	struct provider *provider = data;
	if (fd_is_hung_up(provider->channel.fd))
		session_end(provider, -ENOTCONN);
	else
		session_pump(provider);
}

static int on_accept(void *data, int fd)
{
	struct providers *providers = data;
	struct ucred cred = { .pid = 0, .uid = (uid_t)-1 };
	socklen_t cred_size = sizeof(cred);
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_size);

	if (providers->count >= providers->config->max_providers) {
		log_field("MRSHARE_PROVIDER_UID", "%u", cred.uid);
		log_field("MRSHARE_PROVIDER_PID", "%d", cred.pid);
		log_warning("provider (pid %d, uid %u): refused: no more than %u may be connected (--max-providers)",
			cred.pid, cred.uid, providers->config->max_providers);
		return -EMFILE;
	}
	struct provider *provider = calloc(1, sizeof(*provider));
	if (provider) {
		provider->io = event_io_new(providers->loop, fd, on_io, provider);
		provider->hangup = event_timer_new(providers->loop, on_hangup_check, provider);
	}
	if (!provider || !provider->io || !provider->hangup) {
		log_error("provider (pid %d, uid %u): refused: out of memory", cred.pid, cred.uid);
		if (provider) {
			event_source_free(&provider->io);
			event_source_free(&provider->hangup);
		}
		free(provider);
		return -ENOMEM;
	}
	provider->providers = providers;
	provider->id = ++providers->last_id;
	provider->cred = cred;
	snprintf(provider->name, sizeof(provider->name), "provider %llu (pid %d, uid %u)",
		(unsigned long long)provider->id, cred.pid, cred.uid);
	channel_init(&provider->channel, fd, CHANNEL_REQUESTS, 1);
	providers->count++;
	event_io_set(provider->io, EVENT_READ);
	log_message_id("6bf892ad203245218de0930a37a4946e");
	log_info("%s: connected", tag(provider));
	return 0;
}

int providers_new(struct event_loop *loop, const struct providers_config *config, struct worker_pool *pool,
	const struct provider_ops *ops, void *data, struct providers **ret_providers, struct err *err)
{
	struct providers *providers = calloc(1, sizeof(*providers));
	if (!providers)
		return err_set(err, -ENOMEM, "out of memory");
	*providers = (struct providers){ .loop = loop, .config = config, .pool = pool, .ops = ops, .data = data };

	int r = config->path ? listener_new(loop, pool, config->path, config->mode, config->group, on_accept, providers,
				       &providers->listener, err)
			     : listener_new_fd(loop, pool, config->fd, on_accept, providers, &providers->listener, err);
	if (r < 0) {
		free(providers);
		return r;
	}
	*ret_providers = providers;
	return 0;
}

void providers_stop(struct providers *providers)
{
	listener_free(&providers->listener);
}

unsigned int providers_count(const struct providers *providers)
{
	return providers->count;
}

uint64_t provider_id(const struct provider *provider)
{
	return provider->id;
}

pid_t provider_pid(const struct provider *provider)
{
	return provider->cred.pid;
}

uid_t provider_uid(const struct provider *provider)
{
	return provider->cred.uid;
}

const char *provider_name(const struct provider *provider)
{
	return provider->name;
}
