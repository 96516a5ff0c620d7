/* listen.c: a Unix socket that one daemon serves. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock file beside the socket tells two daemons apart from one daemon and a socket file that a killed one left: who
 * holds the lock may replace a socket file that nobody answers on. Out of fds, accepting pauses: a connection that
 * cannot be accepted stays readable, and the loop would spin. So does a socket that somebody else who has it shuts
 * down.
 */
#include "vhost/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fd.h"
#include "base/log.h"

enum { ACCEPT_PAUSE_MS = 100, BACKLOG = 128 };

/* A refused connection that a worker closes. */
struct refusal {
	struct listener *listener;
	struct job job;
	int fd; /* -1: not in use */
};

struct listener {
	struct worker_pool *pool;
	struct refusal refusals[LISTENER_REFUSALS_MAX];
	unsigned int refusal_count;
	bool freed;       /* but for the refusals that workers still have */
	const char *path; /* NULL: the socket was given to us */
	char name[136];   /* of a socket without a path */
	char lock_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
	int lock_fd, fd;
	dev_t dev; /* of our socket file */
	ino_t ino;
	bool bound;
	bool paused, shut_down;
	struct event_source *io, *resume;
	listener_accept_fn *fn;
	void *data;
};

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int explain_lock(const struct listener *listener, int code, struct err *err)
{
	const char *slash = strrchr(listener->path, '/');
	if (code == -ENOENT && slash)
		return err_set(err, code, "cannot make the lock file %s: %s: make the folder %.*s",
			listener->lock_path, strerror(-code), (int)(slash - listener->path), listener->path);
	return err_set(err, code, "cannot make the lock file %s: %s", listener->lock_path, strerror(-code));
}

/* A lock file may be removed by its last owner between our open and our lock: then it is no longer the one at the path.
 */
static int lock_path(struct listener *listener, struct err *err)
{
	snprintf(listener->lock_path, sizeof(listener->lock_path), "%s.lock", listener->path);
	for (;;) {
		CLEANUP_CLOSE int fd = open(listener->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return explain_lock(listener, -errno, err);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno == EWOULDBLOCK)
				return err_set(err, -EADDRINUSE,
					"another mrshared serves %s (it holds %s): give this one another path",
					listener->path, listener->lock_path);
			return err_set(err, -errno, "cannot lock %s: %s", listener->lock_path, strerror(errno));
		}

		struct stat ours, there;
		if (fstat(fd, &ours) == 0 && stat(listener->lock_path, &there) == 0 && is_same_file(&ours, &there)) {
			listener->lock_fd = fd;
			fd = -1;
			return 0;
		}
	}
}

/* Removes a socket file on which nobody answers. */
static int remove_dead(const struct sockaddr_un *address, struct err *err)
{
	struct stat st;
	if (lstat(address->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", address->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(
			err, -EEXIST, "%s exists and is no socket: it stays; give another path", address->sun_path);

	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, -errno, "socket: %s", strerror(errno));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno != ECONNREFUSED)
		return err_set(err, -EADDRINUSE, "another program serves %s: give another path", address->sun_path);
	if (unlink(address->sun_path) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove the dead socket %s: %s", address->sun_path, strerror(errno));
	return 0;
}

static int bind_path(struct listener *listener, mode_t mode, gid_t group, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", listener->path) >=
		sizeof(address.sun_path))
		return err_set(err, -ENAMETOOLONG, "%s is longer than a socket's path can be", listener->path);

	int r = lock_path(listener, err);
	if (r == 0)
		r = remove_dead(&address, err);
	if (r < 0)
		return r;

	listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return err_set(err, -errno, "socket: %s", strerror(errno));
	/* Nobody but us may connect before the mode and group are what was asked for. */
	mode_t saved = umask(0177);
	r = bind(listener->fd, (struct sockaddr *)&address, sizeof(address));
	umask(saved);
	struct stat st;
	if (r < 0 || lstat(listener->path, &st) < 0)
		return err_set(err, -errno, "cannot bind %s: %s", listener->path, strerror(errno));
	listener->dev = st.st_dev;
	listener->ino = st.st_ino;
	listener->bound = true;

	if (group != (gid_t)-1 && chown(listener->path, (uid_t)-1, group) < 0)
		return err_set(err, -errno, "cannot give %s to group %u: %s", listener->path, group, strerror(errno));
	if (chmod(listener->path, mode) < 0)
		return err_set(err, -errno, "cannot set the mode of %s: %s", listener->path, strerror(errno));
	if (listen(listener->fd, BACKLOG) < 0)
		return err_set(err, -errno, "cannot listen on %s: %s", listener->path, strerror(errno));
	return 0;
}

static const char *name_of(const struct listener *listener)
{
	return listener->path ? listener->path : listener->name;
}

static void pause_accepting(struct listener *listener, int cause)
{
	if (!listener->paused)
		log_warning("%s: cannot accept connections for now: %s", name_of(listener), strerror(cause));
	listener->paused = true;
	event_io_set(listener->io, 0);
	event_timer_set(listener->resume, ACCEPT_PAUSE_MS);
}

static void watch_again(struct listener *listener)
{
	bool watches = !listener->shut_down && listener->refusal_count < LISTENER_REFUSALS_MAX;
	event_io_set(listener->io, watches ? EVENT_READ : 0);
}

/* Nothing to accept: the connection has gone meanwhile, or there can be none any more. */
static void check_shut_down(struct listener *listener)
{
	if (!fd_is_hung_up(listener->fd))
		return;
	listener->shut_down = true;
	watch_again(listener);
	log_warning("%s: the socket was shut down by another program that has it: nobody can connect any more",
		name_of(listener));
}

static void refuse_run(struct job *job)
{
	close(container_of(job, struct refusal, job)->fd);
}

static void refuse_done(struct job *job)
{
	struct refusal *refusal = container_of(job, struct refusal, job);
	struct listener *listener = refusal->listener;
	refusal->fd = -1;
	listener->refusal_count--;
	if (!listener->freed)
		watch_again(listener);
	else if (listener->refusal_count == 0)
		free(listener);
}

static void refuse(struct listener *listener, int fd)
{
	struct refusal *refusal = listener->refusals;
	while (refusal->fd >= 0)
		refusal++;
	refusal->fd = fd;
	refusal->job = (struct job){ .run = refuse_run, .done = refuse_done };
	listener->refusal_count++;
	worker_pool_submit(listener->pool, &refusal->job);
	watch_again(listener);
}

static void on_readable(void *data, unsigned int events)
{
	struct listener *listener = data;
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		if (listener->paused)
			log_info("%s: accepting connections again", name_of(listener));
		listener->paused = false;
		if (listener->fn(listener->data, fd) < 0)
			refuse(listener, fd);
	} else if (errno == EAGAIN || errno == EINVAL) {
		check_shut_down(listener);
	} else if (errno != EINTR && errno != ECONNABORTED) {
		pause_accepting(listener, errno);
	}
}

static void on_resume(void *data)
{
	watch_again(data);
}

static struct listener *listener_alloc(struct worker_pool *pool, const char *path, listener_accept_fn *fn, void *data)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	if (!listener)
		return NULL;
	listener->pool = pool;
	for (size_t i = 0; i < LISTENER_REFUSALS_MAX; i++) {
		listener->refusals[i].listener = listener;
		listener->refusals[i].fd = -1;
	}
	listener->path = path;
	listener->lock_fd = listener->fd = -1;
	listener->fn = fn;
	listener->data = data;
	return listener;
}

static int watch(struct listener *listener, struct event_loop *loop, struct err *err)
{
	listener->io = event_io_new(loop, listener->fd, on_readable, listener);
	listener->resume = event_timer_new(loop, on_resume, listener);
	if (!listener->io || !listener->resume)
		return err_set(err, -ENOMEM, "out of memory");
	event_io_set(listener->io, EVENT_READ);
	return 0;
}

int listener_new(struct event_loop *loop, struct worker_pool *pool, const char *path, mode_t mode, gid_t group,
	listener_accept_fn *fn, void *data, struct listener **ret_listener, struct err *err)
{
	struct listener *listener = listener_alloc(pool, path, fn, data);
	if (!listener)
		return err_set(err, -ENOMEM, "out of memory");
	int r = bind_path(listener, mode, group, err);
	if (r == 0)
		r = watch(listener, loop, err);
	if (r < 0)
		listener_free(&listener);
	else
		*ret_listener = listener;
	return r;
}

int listener_new_fd(struct event_loop *loop, struct worker_pool *pool, int fd, listener_accept_fn *fn, void *data,
	struct listener **ret_listener, struct err *err)
{
	struct listener *listener = listener_alloc(pool, NULL, fn, data);
	if (!listener)
		return err_set(err, -ENOMEM, "out of memory");
	struct sockaddr_un address = { 0 };
	socklen_t size = sizeof(address) - 1;
	getsockname(fd, (struct sockaddr *)&address, &size);
	snprintf(listener->name, sizeof(listener->name), "fd %d%s%s", fd, *address.sun_path ? ", " : "",
		address.sun_path);
	listener->fd = fd;
	int r = fd_set_nonblocking(fd);
	/* Who connects sees the pid of who called listen() last: channel.c tells our connections by that. */
	if (r == 0 && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r < 0)
		err_set(err, r, "%s: %s", listener->name, strerror(-r));
	else
		r = watch(listener, loop, err);
	if (r < 0) {
		listener->fd = -1;
		listener_free(&listener);
		return r;
	}
	*ret_listener = listener;
	return 0;
}

void listener_free(struct listener **listener_ptr)
{
	struct listener *listener = *listener_ptr;
	if (!listener)
		return;
	event_source_free(&listener->io);
	event_source_free(&listener->resume);
	fd_close(&listener->fd);

	struct stat st;
	if (listener->bound && lstat(listener->path, &st) == 0 && st.st_dev == listener->dev &&
		st.st_ino == listener->ino)
		unlink(listener->path);
	/* While the lock is held, so that the next owner of the path has a lock file of its own. */
	if (listener->lock_fd >= 0)
		unlink(listener->lock_path);
	fd_close(&listener->lock_fd);
	*listener_ptr = NULL;
	listener->freed = true;
	if (listener->refusal_count == 0)
		free(listener);
}
