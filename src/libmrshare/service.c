/* service.c: who moves a connection on: the library's thread, the application's loop, or a caller that waits. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "libmrshare/conn.h"

/*
 * With the library's thread, that looks after everything, but leaves completions to a caller that waits for one (the
 * leader), for whom a detour over another thread would cost more than the transfer itself. Without it the leader looks
 * after everything, and so does mrshare_dispatch(). Callbacks run in the thread or in mrshare_dispatch() only.
 */

enum { SPIN_US = 20 }; /* what a small transfer takes on a fast device: below it sleeping costs more than it saves */

static void fd_signal(int fd)
{
	uint64_t one = 1;
	/* Fails only where the counter is full, which is a signal as well. */
	ssize_t ignored = write(fd, &one, sizeof(one));
	(void)ignored;
}

static void fd_clear(int fd)
{
	uint64_t count;
	ssize_t ignored = read(fd, &count, sizeof(count));
	(void)ignored;
}

static int epoll_add(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int service_init(struct mrshare *conn)
{
	TAILQ_INIT(&conn->waiters);
	conn->timer_ms = UINT64_MAX;
	int *const fds[] = { &conn->app_fd, &conn->all_fd, &conn->ready_fd, &conn->wake_fd, &conn->leader_fd,
		&conn->timer_fd };
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		*fds[i] = -1;
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		*fds[i] = i < 2                       ? epoll_create1(EPOLL_CLOEXEC)
			  : fds[i] == &conn->timer_fd ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)
						      : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (*fds[i] < 0)
			return -errno;
	}
	int r = epoll_add(conn->app_fd, conn->ready_fd);
	if (r == 0)
		r = epoll_add(conn->all_fd, conn->wake_fd);
	return r < 0 ? r : epoll_add(conn->all_fd, conn->timer_fd);
}

void service_free(struct mrshare *conn)
{
	fd_close(&conn->app_fd);
	fd_close(&conn->all_fd);
	fd_close(&conn->ready_fd);
	fd_close(&conn->wake_fd);
	fd_close(&conn->leader_fd);
	fd_close(&conn->timer_fd);
}

void service_watch_fd(struct mrshare *conn, int fd)
{
	epoll_add(conn->all_fd, fd);
}

void service_unwatch_fd(struct mrshare *conn, int fd)
{
	/* By hand: a forked child that has the descriptor too would keep it there. */
	epoll_ctl(conn->all_fd, EPOLL_CTL_DEL, fd, NULL);
}

void service_wake_thread(struct mrshare *conn)
{
	fd_signal(conn->wake_fd);
}

void service_wake_leader(struct mrshare *conn)
{
	if (conn->leader_sleeps)
		fd_signal(conn->leader_fd);
}

void service_update_ready(struct mrshare *conn)
{
	bool ready = !TAILQ_EMPTY(&conn->lists[OP_POLLED]) ||
		     (!conn->thread_runs && !TAILQ_EMPTY(&conn->lists[OP_CALLBACK]));
	if (ready && !conn->ready)
		fd_signal(conn->ready_fd);
	if (!ready && conn->ready)
		fd_clear(conn->ready_fd);
	conn->ready = ready;
}

void service_finished(struct mrshare *conn, const struct op *op)
{
	struct waiter *waiter;
	if (op->place == OP_CALLBACK && conn->thread_runs)
		service_wake_thread(conn);
	TAILQ_FOREACH(waiter, &conn->waiters, link) {
		if (waiter->op != (op->waited ? op : NULL))
			continue;
		if (waiter == conn->leader)
			service_wake_leader(conn);
		else
			pthread_cond_signal(&waiter->wake);
	}
	service_update_ready(conn);
}

static bool on_thread(const struct mrshare *conn)
{
	return conn->thread_runs && pthread_equal(pthread_self(), conn->thread);
}

static void drain_cm_events(struct mrshare *conn)
{
	struct cm_event event;
	int r = -EAGAIN;
	while (conn->cm_channel && (r = cm_next_event(conn->cm_channel, &event)) == 0) {
		if (conn->state < CONN_UP) {
			connect_event(conn, &event);
			continue;
		}
		if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			conn_drop(conn, -ECONNRESET, "the RDMA device was removed");
		/* Why is often in a completion that nobody has taken yet. */
		sendq_reap(conn);
		if (event.type == RDMA_CM_EVENT_DISCONNECTED)
			conn_drop(conn, -ECONNRESET, "the daemon closed the connection");
		else if (event.type != RDMA_CM_EVENT_ESTABLISHED && event.type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			conn_drop(conn, -ECONNRESET, "the connection failed: %s", cm_event_name(event.type));
	}
	if (conn->cm_channel && r != -EAGAIN)
		conn_drop(conn, r, "the connection manager fails: %s", strerror(-r));
}

void service_run(struct mrshare *conn)
{
	fd_clear(conn->wake_fd);
	/* First: a removed device says so here, and only fails in all other places. */
	drain_cm_events(conn);
	notice_drain(conn);
	sendq_take_events(conn);
	sendq_step(conn);
	time_check(conn);
	sendq_step(conn);
	if (conn->state == CONN_DRAINING)
		conn_drain(conn);
	if (conn->state == CONN_NAMES)
		connect_names(conn);
}

/*
 * Waiting
 */

static bool is_over(const struct mrshare *conn, const struct waiter *waiter)
{
	return waiter->op ? waiter->op->done : !TAILQ_EMPTY(&conn->lists[OP_POLLED]);
}

static uint64_t clock_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Sleeps until something may have happened. */
static void sleep_as_leader(struct mrshare *conn, bool alone, uint64_t deadline_ms)
{
	uint64_t now = clock_ms(), left = deadline_ms > now ? deadline_ms - now : 0;
	struct pollfd fds[] = {
		{ .fd = alone                ? conn->all_fd
			: conn->send_channel ? conn->send_channel->fd
					     : -1,
			.events = POLLIN },
		{ .fd = conn->leader_fd, .events = POLLIN },
	};
	conn->leader_sleeps = true;
	pthread_mutex_unlock(&conn->mutex);
	poll(fds, 2, left > 60000 ? 60000 : (int)left);
	pthread_mutex_lock(&conn->mutex);
	conn->leader_sleeps = false;
	if (fds[1].revents)
		fd_clear(conn->leader_fd);
}

static void lead(struct mrshare *conn, const struct waiter *waiter, uint64_t deadline_ms)
{
	uint64_t spin_end = clock_us() + SPIN_US;
	bool ran = false;
	for (;;) {
		/* The thread itself may be waiting, in a callback. */
		bool alone = !conn->thread_runs || conn->thread_waits;
		if (alone && !ran)
			service_run(conn);
		ran = true;
		sendq_step(conn);
		if (is_over(conn, waiter))
			return;
		if (clock_us() < spin_end) {
			pthread_mutex_unlock(&conn->mutex);
			pthread_mutex_lock(&conn->mutex);
			continue;
		}
		sendq_arm(conn);
		if (is_over(conn, waiter) || clock_ms() >= deadline_ms)
			return;
		sleep_as_leader(conn, alone, deadline_ms);
		sendq_take_events(conn);
		ran = false;
	}
}

static void follow(struct mrshare *conn, struct waiter *waiter, uint64_t deadline_ms)
{
	struct timespec until = { .tv_sec = (time_t)(deadline_ms / 1000),
		.tv_nsec = (long)(deadline_ms % 1000) * 1000000 };
	if (deadline_ms == UINT64_MAX)
		pthread_cond_wait(&waiter->wake, &conn->mutex);
	else
		pthread_cond_timedwait(&waiter->wake, &conn->mutex, &until);
}

bool service_wait(struct mrshare *conn, const struct op *op, uint64_t deadline_ms)
{
	struct waiter waiter = { .op = op };
	bool thread = on_thread(conn);
	conn->thread_waits |= thread;
	if (thread)
		service_wake_leader(conn);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&waiter.wake, &attr);
	pthread_condattr_destroy(&attr);
	TAILQ_INSERT_TAIL(&conn->waiters, &waiter, link);
	while (!is_over(conn, &waiter) && (deadline_ms == UINT64_MAX || clock_ms() < deadline_ms)) {
		if (conn->leader) {
			follow(conn, &waiter, deadline_ms);
			continue;
		}
		conn->leader = &waiter;
		lead(conn, &waiter, deadline_ms);
		conn->leader = NULL;
	}
	bool over = is_over(conn, &waiter);
	TAILQ_REMOVE(&conn->waiters, &waiter, link);
	pthread_cond_destroy(&waiter.wake);
	if (thread)
		conn->thread_waits = false;

	/* Someone must look after what is still on the wire. */
	if (!conn->leader && !TAILQ_EMPTY(&conn->waiters))
		pthread_cond_signal(&TAILQ_FIRST(&conn->waiters)->wake);
	else
		service_posted(conn, false);
	return over;
}

void service_posted(struct mrshare *conn, bool waited)
{
	sendq_step(conn);
	if (conn->thread_watches_sends || (!conn->thread_runs && !waited))
		sendq_arm(conn);
	if (conn->thread_runs) {
		bool looked_after = waited || conn->leader || conn->thread_watches_sends || sendq_empty(conn);
		if (!on_thread(conn) && (conn->state != CONN_UP || !looked_after))
			service_wake_thread(conn);
	} else if (conn->state == CONN_NAMES) {
		service_wake_thread(conn);
	}
}

bool service_call_back(struct mrshare *conn)
{
	unsigned int forks = conn_forks();
	if (conn->calling_back)
		return true;
	conn->calling_back = true;
	conn->caller_back = pthread_self();
	/* Those that are there now: what a callback posts may end at once and be the next one. */
	struct op *last = TAILQ_LAST(&conn->lists[OP_CALLBACK], op_list), *op = NULL;
	while (op != last) {
		op = TAILQ_FIRST(&conn->lists[OP_CALLBACK]);
		struct op ended = *op;
		op->text = NULL;
		op_free(conn, op);
		struct mrshare_completion completion = {
			.id = ended.id, .data = ended.data, .result = ended.result, .value = ended.value
		};
		if (ended.result < 0)
			error_publish_of(ended.call, ended.result,
				ended.text ? ended.text : "out of memory for the words of an error");
		pthread_mutex_unlock(&conn->mutex);
		free(ended.text);
		ended.callback(conn, &completion);
		if (conn_forks() != forks)
			return false;
		pthread_mutex_lock(&conn->mutex);
	}
	conn->calling_back = false;
	service_update_ready(conn);
	return true;
}

/*
 * The thread
 */

static void thread_sleep(struct mrshare *conn)
{
	conn->thread_watches_sends = !conn->leader && !sendq_empty(conn);
	if (conn->thread_watches_sends || conn->leader_sleeps)
		sendq_arm(conn);
	/* Arming may have found what ends the sleep. */
	if (!TAILQ_EMPTY(&conn->lists[OP_CALLBACK]))
		return;
	struct pollfd fds[] = {
		{ .fd = conn->wake_fd, .events = POLLIN },
		{ .fd = conn->timer_fd, .events = POLLIN },
		{ .fd = conn->cm_channel ? conn->cm_channel->fd : -1, .events = POLLIN },
		{ .fd = conn->recv_channel ? conn->recv_channel->fd : -1, .events = POLLIN },
		{ .fd = conn->thread_watches_sends && conn->send_channel ? conn->send_channel->fd : -1,
			.events = POLLIN },
		{ .fd = conn->lookup ? lookup_fd(conn->lookup) : -1, .events = POLLIN },
	};
	pthread_mutex_unlock(&conn->mutex);
	poll(fds, sizeof(fds) / sizeof(fds[0]), -1);
	pthread_mutex_lock(&conn->mutex);
}

static void *service_main(void *data)
{
	struct mrshare *conn = data;
	pthread_mutex_lock(&conn->mutex);
	while (!conn->closing) {
		service_run(conn);
		if (!service_call_back(conn))
			return NULL;
		if (!conn->closing)
			thread_sleep(conn);
		conn->thread_watches_sends = false;
	}
	pthread_mutex_unlock(&conn->mutex);
	return NULL;
}

int service_start(struct mrshare *conn, struct err *err)
{
	if (conn->thread_runs)
		return 0;
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&conn->thread, NULL, service_main, conn);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		return err_set(err, -r, "cannot start a thread: %s", strerror(r));
	conn->thread_runs = true;
	pthread_setname_np(conn->thread, "mrshare");
	return 0;
}

void service_stop(struct mrshare *conn)
{
	if (!conn->thread_runs)
		return;
	service_wake_thread(conn);
	pthread_join(conn->thread, NULL);
	conn->thread_runs = false;
}
