/* service.c: the thread that answers the daemon: notices, keep-alive, the end of the connection. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum { KEEPALIVE_FACTOR = 3 };

/* Marks what the notice withdraws, so that no new work request touches it. */
static void mark_withdrawn(struct mrshare *conn, struct peer_notice *notice)
{
	struct snapshot *snapshot = &conn->snapshot;
	/* Views read after the withdrawal do not have it any more; "all" means what was known before. */
	if (snapshot->generation >= notice->generation)
		notice->withdrawn_count = 0;

	bool all = notice->withdrawn_count == PEER_WITHDRAWN_ALL;
	for (size_t i = 0; notice->withdrawn_count && i < snapshot->count; i++) {
		bool hit = all;
		for (uint32_t k = 0; !hit && k < notice->withdrawn_count; k++)
			hit = notice->withdrawn[k] == snapshot->entries[i].mapping_id;
		snapshot->withdrawn[i] |= hit;
	}
}

static void take_notice(struct mrshare *conn, struct peer_notice *notice)
{
	if (conn->noticed && notice->sequence == conn->notice.sequence)
		return;
	if (conn->noticed && notice->sequence != conn->notice.sequence + 1) {
		conn_drop(conn, -EPROTO, "the daemon broke the protocol: notice %u follows notice %u", notice->sequence,
			conn->notice.sequence);
		return;
	}
	if (conn->ack_due || notice->generation < conn->announced) {
		conn_drop(conn, -EPROTO, "the daemon broke the protocol: %s",
			conn->ack_due ? "a second notice before the answer to the first"
				      : "its generations go backwards");
		return;
	}

	mark_withdrawn(conn, notice);
	conn->announced = notice->generation;
	conn->notice = *notice;
	conn->noticed = true;
	conn->ack_due = true;
	pthread_cond_broadcast(&conn->changed);
	sendq_try_ack(conn);
}

static void take_receive(struct mrshare *conn, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		sendq_reap(conn);
		/* A flushed receive says that the queue pair is in error, not why. */
		if (wc->status == IBV_WC_WR_FLUSH_ERR)
			conn_drop(conn, -ECONNRESET, "the daemon closed the connection");
		else
			conn_drop(conn, -ECONNRESET, "receiving from the daemon: %s", verbs_wc_status_name(wc->status));
		return;
	}

	struct peer_frame frame;
	int r = peer_frame_read(conn->frames + wc->wr_id * PEER_FRAME_SIZE_MAX, wc->byte_len, &frame);
	if (r < 0 || frame.type != PEER_FRAME_NOTICE) {
		conn_drop(conn, -EPROTO, "the daemon broke the protocol: it sent %s",
			r == -EPROTONOSUPPORT ? "a message of an unknown type"
			: r < 0               ? "a message that makes no sense"
					      : "a message that is not its to send now");
		return;
	}
	conn->heard_ms = clock_ms();
	r = endpoint_post_receive(conn, (unsigned int)wc->wr_id);
	if (r < 0)
		conn_drop(conn, r, "a receive cannot be posted: %s", strerror(-r));
	else
		take_notice(conn, &frame.notice);
}

static void drain_receives(struct mrshare *conn)
{
	struct ibv_cq *cq;
	while (verbs_next_cq_event(conn->recv_channel, &cq) == 0)
		continue;
	/* Armed first: what arrives behind the last look makes an event. */
	int r = verbs_req_notify_cq(conn->recv_cq);
	struct ibv_wc wc;
	int n = 1;
	while (r == 0 && conn->state == CONN_UP && (n = verbs_poll_cq(conn->recv_cq, 1, &wc)) > 0)
		take_receive(conn, &wc);
	if (r < 0 || n < 0)
		conn_drop(conn, -EIO, "the device's completion queue fails");
}

static void drain_cm_events(struct mrshare *conn)
{
	struct cm_event event;
	int r;
	while ((r = cm_next_event(conn->cm_channel, &event)) == 0) {
		/* Why is often in a completion that nobody has taken yet. */
		sendq_reap(conn);
		if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			conn_drop(conn, -ECONNRESET, "the RDMA device was removed");
		else if (event.type == RDMA_CM_EVENT_DISCONNECTED)
			conn_drop(conn, -ECONNRESET, "the daemon closed the connection");
		else if (event.type != RDMA_CM_EVENT_ESTABLISHED && event.type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
			conn_drop(conn, -ECONNRESET, "the connection failed: %s", cm_event_name(event.type));
	}
	if (r != -EAGAIN)
		conn_drop(conn, r, "the connection manager fails: %s", strerror(-r));
}

/* The ms until the daemon counts as lost; drops it when they are over. */
static int check_keepalive(struct mrshare *conn)
{
	uint64_t limit = KEEPALIVE_FACTOR * 1000 * (uint64_t)conn->keepalive_s, silent = clock_ms() - conn->heard_ms;
	if (silent < limit)
		return (int)(limit - silent);
	conn_drop(
		conn, -ECONNRESET, "nothing was heard from the daemon for %u s", KEEPALIVE_FACTOR * conn->keepalive_s);
	return 0;
}

static bool serve(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	/* First: a removed device says so here, and only fails in all other places. */
	drain_cm_events(conn);
	drain_receives(conn);
	int timeout = check_keepalive(conn);
	bool going_on = conn->state == CONN_UP && !conn->stopping;
	pthread_mutex_unlock(&conn->mutex);
	if (!going_on)
		return false;

	struct pollfd fds[] = {
		{ .fd = conn->recv_channel->fd, .events = POLLIN },
		{ .fd = conn->cm_channel->fd, .events = POLLIN },
		{ .fd = conn->stop_fd, .events = POLLIN },
	};
	poll(fds, sizeof(fds) / sizeof(fds[0]), timeout);
	return true;
}

/* Nothing of a dead connection may stay with the device, or its removal would hang: as a call of our own, unless the
 * one who stops us does it. */
static void give_back(struct mrshare *conn)
{
	pthread_mutex_lock(&conn->mutex);
	while (conn->calling && !conn->stopping)
		pthread_cond_wait(&conn->changed, &conn->mutex);
	bool ours = !conn->stopping;
	conn->calling |= ours;
	pthread_mutex_unlock(&conn->mutex);
	if (ours) {
		endpoint_close(conn);
		conn_end(conn);
	}
}

static void *service_main(void *data)
{
	struct mrshare *conn = data;
	while (serve(conn))
		continue;
	give_back(conn);
	return NULL;
}

int service_start(struct mrshare *conn, struct err *err)
{
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	conn->stopping = false;
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
	pthread_mutex_lock(&conn->mutex);
	conn->stopping = true;
	conn_drop(conn, -ECONNRESET, "closed");
	pthread_cond_broadcast(&conn->changed);
	pthread_mutex_unlock(&conn->mutex);
	uint64_t one = 1;
	ssize_t ignored = write(conn->stop_fd, &one, sizeof(one));
	(void)ignored;
	pthread_join(conn->thread, NULL);
	conn->thread_runs = false;
	ignored = read(conn->stop_fd, &one, sizeof(one));
}
