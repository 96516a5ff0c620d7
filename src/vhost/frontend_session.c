/* frontend_session.c: a front-end's connection, from its first byte to its last job. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages are handled in their order, one at a time; one that a worker prepares holds up those behind it and nobody
 * else. Everything that may wait for somebody is a worker's: closing foreign fds, unmapping memory, and writing to a
 * call eventfd, whose other owners can make a write to it block. A session has one such job at a time, and receives no
 * more fds while some wait to be closed, so what it can make us hold is bounded. While nothing is read, and after the
 * end, a timer looks at what no event would tell.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fd.h"
#include "base/log.h"
#include "vhost/frontend_internal.h"

enum { MESSAGES_A_TURN = 32, CHECK_MS = 500 };

bool session_may_take_fds(const struct frontend *frontend)
{
	return !frontend->closing_count && !frontend->chores.close_count;
}

void session_close_later(struct frontend *frontend, int *fd)
{
	if (*fd >= 0)
		frontend->closing[frontend->closing_count++] = *fd;
	*fd = -1;
}

void session_close_fds_later(struct frontend *frontend, struct channel *channel)
{
	int fds[CHANNEL_FDS_MAX + CHANNEL_KEEP_MAX];
	unsigned int count = channel_take_fds(channel, fds);
	for (unsigned int i = 0; i < count; i++)
		session_close_later(frontend, &fds[i]);
}

/*
 * What a worker does for the session.
 */

static struct frontend *of_chores(struct job *job)
{
	return container_of(job, struct frontend, chores.job);
}

static void chores_run(struct job *job)
{
	struct frontend_chores *chores = &of_chores(job)->chores;
	for (unsigned int i = 0; i < chores->notify_count; i++) {
		ssize_t ignored = write(chores->notify[i], &(uint64_t){ 1 }, sizeof(uint64_t));
		(void)ignored;
	}
	memory_free(&chores->memory);
	for (unsigned int i = 0; i < chores->close_count; i++)
		close(chores->close[i]);
}

static void chores_done(struct job *job)
{
	struct frontend *frontend = of_chores(job);
	struct frontends *frontends = frontend->frontends;
	frontend->chores.running = false;
	frontend->chores.notify_count = frontend->chores.close_count = 0;
	session_pump(frontend);
	if (frontends->stopped)
		frontends_wake(frontends);
}

static void take_notice(struct frontend_chores *chores, bool *due, int fd)
{
	if (*due && fd >= 0)
		chores->notify[chores->notify_count++] = fd;
	*due = false;
}

/* Memory that is not in use any more. */
static struct memory *take_old_memory(struct frontend *frontend)
{
	struct memory **from = &frontend->old_memory;
	if (!*from && !frontend->io && !frontend->table.running)
		from = &frontend->memory;
	struct memory *memory = *from;
	*from = NULL;
	return memory;
}

static void chores_start(struct frontend *frontend)
{
	struct frontend_chores *chores = &frontend->chores;
	if (chores->running)
		return;
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++) {
		struct frontend_queue *queue = &frontend->queues[i];
		take_notice(chores, &queue->call_due, queue->call);
		take_notice(chores, &queue->err_due, queue->err);
	}
	chores->memory = take_old_memory(frontend);
	memcpy(chores->close, frontend->closing, frontend->closing_count * sizeof(int));
	chores->close_count = frontend->closing_count;
	frontend->closing_count = 0;
	if (!chores->notify_count && !chores->memory && !chores->close_count)
		return;
	chores->running = true;
	chores->job = (struct job){ .run = chores_run, .done = chores_done };
	worker_pool_submit(frontend->frontends->pool, &chores->job);
}

/*
 * Reading, and the end.
 */

/* True: a message is there. */
static bool read_message(struct frontend *frontend)
{
	if (frontend->has_message)
		return true;
	if (!session_may_take_fds(frontend))
		return false;
	int r = channel_read(&frontend->channel);
	if (r < 0)
		session_end(frontend, r, NULL);
	else if (r == CHANNEL_SURPLUS)
		session_close_fds_later(frontend, &frontend->channel);
	frontend->has_message = r == CHANNEL_MESSAGE;
	return frontend->has_message;
}

/* A session is pumped for many reasons: the time that runs already is left alone. */
static void set_check(struct frontend *frontend)
{
	if (!frontend->check_set)
		event_timer_set(frontend->check, CHECK_MS);
	frontend->check_set = true;
}

static void set_events(struct frontend *frontend)
{
	bool reads = !frontend->has_message && session_may_take_fds(frontend);
	event_io_set(frontend->io, (reads ? EVENT_READ : 0u) | (frontend->channel.out_left ? EVENT_WRITE : 0u));
	if (!reads)
		set_check(frontend);
}

/* A write to a call eventfd blocks where another owner has filled it, and made it blocking. With the session gone
 * nobody needs to be told: the eventfd is emptied until the write is through. */
static void release_chores(struct frontend *frontend)
{
	const struct frontend_chores *chores = &frontend->chores;
	uint64_t count;
	struct iovec iov = { &count, sizeof(count) };
	for (unsigned int i = 0; i < chores->notify_count; i++) {
		ssize_t ignored = preadv2(chores->notify[i], &iov, 1, -1, RWF_NOWAIT);
		(void)ignored;
	}
	set_check(frontend);
}

static void on_check(void *data)
{
	struct frontend *frontend = data;
	frontend->check_set = false;
	if (frontend->io && fd_is_hung_up(frontend->channel.fd))
		session_end(frontend, -ENOTCONN, NULL);
	session_pump(frontend);
}

static bool is_waiting(const struct frontend *frontend)
{
	return frontend->channel.out_left || frontend->table.running || frontend->old_memory ||
	       !session_may_take_fds(frontend);
}

/* True: every request that has arrived is handled, and no part of one is there. */
static bool handle_messages(struct frontend *frontend)
{
	for (unsigned int i = 0; frontend->io && i < MESSAGES_A_TURN; i++) {
		int r = channel_write(&frontend->channel);
		if (r < 0) {
			session_end(frontend, r, NULL);
			return false;
		}
		bool has_message = read_message(frontend);
		if (!frontend->io || is_waiting(frontend))
			return false;
		if (!has_message)
			return frontend->channel.have == 0;
		frontend->has_message = false;
		request_dispatch(frontend);
	}
	if (frontend->io)
		session_wake(frontend);
	return false;
}

void session_pump(struct frontend *frontend)
{
	if (frontend->io)
		announce_take_answers(frontend);
	if (frontend->io && frontend->end_cause)
		session_end(frontend, frontend->end_cause, &frontend->end_err);
	bool has_read_all = handle_messages(frontend);
	if (frontend->io)
		announce_pump(frontend, has_read_all);
	chores_start(frontend);
	if (frontend->io)
		set_events(frontend);
	else if (!frontend->chores.running && !frontend->table.running)
		frontend_free(frontend);
	else
		release_chores(frontend);
}

static void on_io(void *data, unsigned int events)
{
	session_pump(data);
}

static void log_end(const struct frontend *frontend, int cause, const struct err *err)
{
	const struct channel *channel = &frontend->channel;
	log_message_id("340ebb93ee2840c68303400852a602b9");
	if (err)
		log_warning("%s: dropped: %s", frontend_tag(frontend), err->text);
	else if (channel_was_left(cause))
		log_info("%s: gone%s", frontend_tag(frontend), channel->have ? " in the middle of a message" : "");
	else
		log_warning("%s: dropped: %s", frontend_tag(frontend), channel_describe(channel, cause).text);
}

void session_end(struct frontend *frontend, int cause, const struct err *err)
{
	struct frontends *frontends = frontend->frontends;
	log_end(frontend, cause, err);
	event_source_free(&frontend->io);
	queues_end(frontend);
	frontends->ops->device_free(frontend->device);
	frontend->device = NULL;
	/* The other end is told at once; the close is a worker's, since messages that were not read may hold fds of
	 * which the last close blocks. */
	shutdown(frontend->channel.fd, SHUT_RDWR);
	session_close_later(frontend, &frontend->channel.fd);
	session_close_fds_later(frontend, &frontend->channel);
	announce_end(frontend);
	frontends_settle(frontends);
	if (frontend->is_sole)
		frontends->ops->left(frontends->data, err || !channel_was_left(cause));
}

/*
 * The beginning.
 */

static void name_it(struct frontend *frontend, int fd)
{
	socklen_t size = sizeof(frontend->cred);
	frontend->cred.uid = (uid_t)-1;
	getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &frontend->cred, &size);
	snprintf(frontend->name, sizeof(frontend->name), "front-end %llu (pid %d, uid %u)",
		(unsigned long long)frontend->id, frontend->cred.pid, frontend->cred.uid);
}

int session_new(struct frontends *frontends, const struct frontend_socket *socket, int fd, bool is_sole,
	struct frontend **ret_frontend, struct err *err)
{
	struct frontend *frontend = calloc(1, sizeof(*frontend));
	if (!frontend)
		return err_set(err, -ENOMEM, "out of memory");
	frontend->frontends = frontends;
	frontend->socket = socket;
	frontend->is_sole = is_sole;
	frontend->id = ++frontends->last_id;
	name_it(frontend, fd);
	if (queues_new(frontend) < 0)
		goto fail;
	channel_init(&frontend->back, -1, CHANNEL_REPLIES, 0);
	frontend->io = event_io_new(frontends->loop, fd, on_io, frontend);
	frontend->check = event_timer_new(frontends->loop, on_check, frontend);
	if (!frontend->io || !frontend->check ||
		frontends->ops->device_new(frontends->data, frontend, &frontend->device) < 0)
		goto fail;
	channel_init(&frontend->channel, fd, CHANNEL_REQUESTS, VHOST_USER_REGIONS_MAX);
	event_io_set(frontend->io, EVENT_READ);
	*ret_frontend = frontend;
	return 0;
fail:
	event_source_free(&frontend->io);
	event_source_free(&frontend->check);
	queues_free(frontend);
	free(frontend);
	return err_set(err, -ENOMEM, "out of memory");
}
