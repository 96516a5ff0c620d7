/* frontend.c: all front-ends of the daemon: where they come from, and the mappings that they are to have. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is asked from outside, between events of a session's own, is only noted; a timer of 0 ms then pumps the
 * sessions. So no call into here ever calls back, and released() and left() come from events only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "vhost/frontend_internal.h"
#include "vhost/listen.h"

enum { STOP_MS = 300 };

struct frontend_door {
	struct frontend_door *next;
	struct frontends *frontends;
	const struct frontend_socket *socket;
	struct listener *listener;
};

/*
 * Sessions.
 */

static void frontends_link(struct frontends *frontends, struct frontend *frontend)
{
	frontend->next = frontends->list;
	frontend->link = &frontends->list;
	if (frontend->next)
		frontend->next->link = &frontend->next;
	frontends->list = frontend;
	frontends->count++;
}

void frontend_free(struct frontend *frontend)
{
	*frontend->link = frontend->next;
	if (frontend->next)
		frontend->next->link = frontend->link;
	frontend->frontends->count--;
	event_source_free(&frontend->check);
	queues_free(frontend);
	free(frontend);
}

const char *frontend_name(const struct frontend *frontend)
{
	return frontend->name;
}

const char *frontend_tag(const struct frontend *frontend)
{
	log_field("MRSHARE_FRONTEND_UID", "%u", frontend->cred.uid); /* first: repetitions are counted by user */
	log_field("MRSHARE_FRONTEND_PID", "%d", frontend->cred.pid);
	log_field("MRSHARE_FRONTEND", "%llu", (unsigned long long)frontend->id);
	return frontend->name;
}

static bool is_offered(const struct frontend *frontend, const struct frontend_mapping *mapping)
{
	return frontend->socket->sizes[mapping->mmap.shmid] != 0;
}

static int offer(struct frontend *frontend, const struct frontend_mapping *mapping)
{
	if (!is_offered(frontend, mapping) || mapping->withdrawn)
		return 0;
	return sets_add(&frontend->sets, mapping->id, &mapping->mmap, mapping->fd, mapping->is_static);
}

/* A new connection, whose fd becomes the session's. */
static int admit(
	struct frontends *frontends, const struct frontend_socket *socket, int fd, bool is_sole, struct err *err)
{
	if (frontends->count >= frontends->config->max_frontends)
		return err_set(err, -EMFILE, "no more than %u may be connected (--max-front-ends)",
			frontends->config->max_frontends);
	struct frontend *frontend;
	int r = session_new(frontends, socket, fd, is_sole, &frontend, err);
	if (r < 0)
		return r;
	frontends_link(frontends, frontend);
	log_message_id("e225e0d3fa794baa8bc6997f5838d721");
	log_info("%s: connected%s%s", frontend_tag(frontend), socket->path ? " to " : "",
		socket->path ? socket->path : "");
	for (const struct frontend_mapping *mapping = frontends->mappings; mapping; mapping = mapping->next) {
		if (offer(frontend, mapping) < 0)
			log_error("%s: out of memory: mapping %llu is not announced to it", frontend_tag(frontend),
				(unsigned long long)mapping->id);
	}
	return 0;
}

static int on_accept(void *data, int fd)
{
	struct frontend_door *door = data;
	struct err err;
	int r = admit(door->frontends, door->socket, fd, false, &err);
	if (r < 0) {
		struct ucred cred = { .pid = 0, .uid = (uid_t)-1 };
		socklen_t cred_size = sizeof(cred);
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_size);
		log_field("MRSHARE_FRONTEND_UID", "%u", cred.uid);
		log_field("MRSHARE_FRONTEND_PID", "%d", cred.pid);
		log_warning("front-end (pid %d, uid %u): refused%s%s: %s", cred.pid, cred.uid,
			door->socket->path ? " on " : "", door->socket->path ? door->socket->path : "", err.text);
	}
	return r;
}

/* A session frees itself at most. */
static void pump_due(struct frontends *frontends)
{
	struct frontend *next;
	for (struct frontend *frontend = frontends->list; frontend; frontend = next) {
		next = frontend->next;
		if (!frontend->due)
			continue;
		frontend->due = false;
		session_pump(frontend);
	}
}

static bool is_told(const struct frontend *frontend)
{
	bool due = frontend->chores.running && frontend->chores.notify_count;
	for (unsigned int i = 0; i < FRONTEND_QUEUES_MAX; i++)
		due = due || (frontend->queues[i].call_due && frontend->queues[i].call >= 0);
	return !due;
}

/* At the end of the daemon: whether every driver was told. */
static void check_stopped(struct frontends *frontends)
{
	for (const struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (!is_told(frontend))
			return;
	}
	void (*stopped)(void *data) = frontends->stopped;
	frontends->stopped = NULL;
	stopped(frontends->stopped_data);
}

static void on_wake(void *data)
{
	struct frontends *frontends = data;
	pump_due(frontends);
	if (frontends->stopped)
		check_stopped(frontends);
}

void session_wake(struct frontend *frontend)
{
	frontend->due = true;
	event_timer_set(frontend->frontends->wake, 0);
}

void frontends_wake(struct frontends *frontends)
{
	for (struct frontend *frontend = frontends->list; frontend; frontend = frontend->next)
		frontend->due = true;
	event_timer_set(frontends->wake, 0);
}

/*
 * Mappings.
 */

int frontends_add(struct frontends *frontends, uint64_t id, const struct mrshare_mmap *mmap, int fd, bool is_static,
	struct err *err)
{
	struct frontend_mapping *mapping = calloc(1, sizeof(*mapping));
	if (!mapping)
		return err_set(err, -ENOMEM, "out of memory");
	*mapping = (struct frontend_mapping){
		.next = frontends->mappings, .id = id, .mmap = *mmap, .fd = fd, .is_static = is_static
	};
	frontends->mappings = mapping;
	int r = 0;
	for (struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (frontend->io && offer(frontend, mapping) < 0)
			r = err_set(err, -ENOMEM, "out of memory");
	}
	frontends_wake(frontends);
	return r;
}

static bool is_held(const struct frontends *frontends, uint64_t id)
{
	for (const struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (sets_find(&frontend->sets, id))
			return true;
	}
	return false;
}

static struct frontend_mapping **find_mapping(struct frontends *frontends, uint64_t id)
{
	struct frontend_mapping **link = &frontends->mappings;
	while (*link && (*link)->id != id)
		link = &(*link)->next;
	return link;
}

static void mapping_free(struct frontend_mapping **link)
{
	struct frontend_mapping *mapping = *link;
	*link = mapping->next;
	free(mapping);
}

bool frontends_withdraw(struct frontends *frontends, uint64_t id)
{
	struct frontend_mapping **link = find_mapping(frontends, id);
	if (!*link)
		return true;
	(*link)->withdrawn = true;
	bool held = false;
	for (struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (!announce_withdraw(frontend, id))
			held = true;
	}
	if (held)
		frontends_wake(frontends);
	else
		mapping_free(link);
	return !held;
}

void frontends_settle(struct frontends *frontends)
{
	struct frontend_mapping **link = &frontends->mappings;
	while (*link) {
		uint64_t id = (*link)->id;
		if (!(*link)->withdrawn || is_held(frontends, id)) {
			link = &(*link)->next;
			continue;
		}
		mapping_free(link);
		frontends->ops->released(frontends->data, id);
		link = &frontends->mappings; /* it may have changed meanwhile */
	}
}

unsigned int frontends_count(const struct frontends *frontends)
{
	return frontends->count;
}

void frontends_who_holds(const struct frontends *frontends, uint64_t id, char *ret_text, size_t size)
{
	snprintf(ret_text, size, "no front-end");
	for (const struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (sets_find(&frontend->sets, id))
			snprintf(ret_text, size, "%s, which %s,", frontend->name,
				!frontend->back_io       ? "has no back-end request channel any more"
				: frontend->sets.running ? "has not answered"
							 : "is stopped");
	}
}

/*
 * The beginning and the end.
 */

int frontends_new(struct event_loop *loop, const struct frontends_config *config, struct worker_pool *pool,
	const struct frontend_ops *ops, void *data, struct frontends **ret_frontends, struct err *err)
{
	struct frontends *frontends = calloc(1, sizeof(*frontends));
	if (!frontends)
		return err_set(err, -ENOMEM, "out of memory");
	*frontends = (struct frontends){ .loop = loop, .config = config, .pool = pool, .ops = ops, .data = data };
	frontends->wake = event_timer_new(loop, on_wake, frontends);
	if (!frontends->wake) {
		free(frontends);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret_frontends = frontends;
	return 0;
}

static int open_listening(struct frontends *frontends, const struct frontend_socket *socket, struct err *err)
{
	const struct frontends_config *config = frontends->config;
	struct frontend_door *door = calloc(1, sizeof(*door));
	if (!door)
		return err_set(err, -ENOMEM, "out of memory");
	*door = (struct frontend_door){ .next = frontends->doors, .frontends = frontends, .socket = socket };
	int r = socket->path ? listener_new(frontends->loop, frontends->pool, socket->path, config->mode, config->group,
				       on_accept, door, &door->listener, err)
			     : listener_new_fd(frontends->loop, frontends->pool, socket->fd, on_accept, door,
				       &door->listener, err);
	if (r < 0) {
		free(door);
		return r;
	}
	frontends->doors = door;
	return 0;
}

int frontends_open(struct frontends *frontends, const struct frontend_socket *socket, struct err *err)
{
	int listens = 1;
	socklen_t size = sizeof(listens);
	if (!socket->path && getsockopt(socket->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0)
		return err_set(err, -errno, "--fd %d: %s", socket->fd, strerror(errno));
	struct sockaddr_un peer;
	size = sizeof(peer);
	if (!listens && getpeername(socket->fd, (struct sockaddr *)&peer, &size) < 0)
		return err_set(err, -ENOTCONN, "--fd %d: the socket neither listens nor is it connected", socket->fd);
	if (listens)
		return open_listening(frontends, socket, err);
	if (frontends->has_sole)
		return err_set(err, -EINVAL,
			"--fd %d: another --fd is a connection as well, and the daemon ends with its front-end: give "
			"one connection, or sockets that listen",
			socket->fd);
	frontends->has_sole = true;
	return admit(frontends, socket, socket->fd, true, err);
}

static void on_stop_timeout(void *data)
{
	struct frontends *frontends = data;
	void (*stopped)(void *data) = frontends->stopped;
	frontends->stopped = NULL;
	if (stopped)
		stopped(frontends->stopped_data);
}

void frontends_close(struct frontends *frontends)
{
	while (frontends->doors) {
		struct frontend_door *door = frontends->doors;
		frontends->doors = door->next;
		listener_free(&door->listener);
		free(door);
	}
}

void frontends_stop(struct frontends *frontends, void (*done)(void *data), void *data)
{
	frontends_close(frontends);
	for (struct frontend *frontend = frontends->list; frontend; frontend = frontend->next) {
		if (frontend->io)
			frontends->ops->device_fail(frontend->device);
	}
	frontends->stopped = done;
	frontends->stopped_data = data;
	frontends->stop_timer = event_timer_new(frontends->loop, on_stop_timeout, frontends);
	if (frontends->stop_timer)
		event_timer_set(frontends->stop_timer, STOP_MS);
	frontends_wake(frontends);
}
