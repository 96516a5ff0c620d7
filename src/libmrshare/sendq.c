/* sendq.c: the ops on the send queue: posting, completions from either thread, acks between calls. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum {
	SPIN_US = 20,    /* what a small transfer takes on a fast device: below it sleeping costs more than it saves */
	DRAIN_MS = 1000, /* how long flushed completions are waited for before the queue pair is destroyed instead */
};

int sendq_post(struct mrshare *conn, struct op *op, struct ibv_send_wr *wr)
{
	wr->wr_id = (uintptr_t)op;
	wr->send_flags |= IBV_SEND_SIGNALED;
	op->done = false;
	int r = verbs_post_send(conn->id->qp, wr);
	if (r < 0)
		return r;
	op->next = conn->ops;
	conn->ops = op;
	return 0;
}

static void finish(struct mrshare *conn, struct op *op, enum ibv_wc_status status)
{
	for (struct op **link = &conn->ops; *link; link = &(*link)->next) {
		if (*link == op) {
			*link = op->next;
			break;
		}
	}
	op->status = status;
	op->done = true;
}

static const char *status_words(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "the daemon's host does not answer";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the daemon takes no messages any more";
	case IBV_WC_REM_ACCESS_ERR:
		return "the daemon's device refused an access: the memory was removed meanwhile";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the daemon's device refused a request";
	default:
		return verbs_wc_status_name(status);
	}
}

void sendq_reap(struct mrshare *conn)
{
	struct ibv_wc wc[SENDS_MAX];
	int n = conn->send_cq ? verbs_poll_cq(conn->send_cq, SENDS_MAX, wc) : 0;
	if (n < 0)
		conn_drop(conn, n, "the device's completion queue fails: %s", strerror(-n));
	for (int i = 0; i < n; i++) {
		struct op *op = (struct op *)(uintptr_t)wc[i].wr_id;
		if (wc[i].status != IBV_WC_SUCCESS && wc[i].status != IBV_WC_WR_FLUSH_ERR)
			conn_drop(conn, -ECONNRESET, "%s", status_words(wc[i].status));
		finish(conn, op, wc[i].status);
	}
}

static bool is_withdrawn(const struct peer_notice *notice, uint64_t mapping_id)
{
	if (notice->withdrawn_count == PEER_WITHDRAWN_ALL)
		return true;
	for (uint32_t i = 0; i < notice->withdrawn_count; i++) {
		if (notice->withdrawn[i] == mapping_id)
			return true;
	}
	return false;
}

static struct op *free_ack(struct mrshare *conn)
{
	for (size_t i = 0; i < ACKS_MAX; i++) {
		if (conn->acks[i].done)
			return &conn->acks[i];
	}
	return NULL;
}

static int post_ack(struct mrshare *conn, struct op *op)
{
	uint8_t *bytes = conn->frames + (PEER_RECEIVES + (op - conn->acks)) * PEER_FRAME_SIZE_MAX;
	const struct peer_frame frame = {
		.type = PEER_FRAME_ACK,
		.ack = { .sequence = conn->notice.sequence, .generation = conn->notice.generation },
	};
	ssize_t size = peer_frame_write(&frame, bytes);
	if (size < 0)
		return (int)size;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = (uint32_t)size, .lkey = conn->frames_mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	return sendq_post(conn, op, &wr);
}

void sendq_try_ack(struct mrshare *conn)
{
	sendq_reap(conn);
	if (!conn->ack_due || conn->state != CONN_UP)
		return;
	for (const struct op *op = conn->ops; op; op = op->next) {
		if (op->mapping_id && is_withdrawn(&conn->notice, op->mapping_id))
			return;
	}

	/* One is free: the daemon sends a notice only when it has the ack of the one before. */
	struct op *op = free_ack(conn);
	int r = op ? post_ack(conn, op) : -ENOBUFS;
	if (r < 0)
		conn_drop(conn, r, "an answer to the daemon cannot be sent: %s", strerror(-r));
	conn->ack_due = false;
}

/* One look at the queue, acks included. Returns whether the connection lives. */
static bool look(struct mrshare *conn, const struct op *op, bool *ret_done)
{
	pthread_mutex_lock(&conn->mutex);
	sendq_reap(conn);
	if (conn->ack_due)
		sendq_try_ack(conn);
	*ret_done = op->done;
	bool alive = conn->state == CONN_UP;
	pthread_mutex_unlock(&conn->mutex);
	return alive;
}

/* Sleeps until there may be a completion, or `dead_fd` is readable. */
static void sleep_for_completion(struct mrshare *conn, const struct op *op, int dead_fd, uint64_t deadline_ms)
{
	struct ibv_cq *cq;
	while (verbs_next_cq_event(conn->send_channel, &cq) == 0)
		continue;
	verbs_req_notify_cq(conn->send_cq);
	bool done;
	look(conn, op, &done);
	if (!done)
		wait_readable(conn->send_channel->fd, dead_fd, deadline_ms);
}

/* The connection is dead: the device flushes what is on the wire, or loses its queue pair. */
static void drain(struct mrshare *conn, const struct op *op)
{
	uint64_t deadline = clock_ms() + DRAIN_MS;
	bool done = false;
	while (look(conn, op, &done), !done && clock_ms() < deadline)
		sleep_for_completion(conn, op, -1, deadline);
	if (done)
		return;

	pthread_mutex_lock(&conn->mutex);
	cm_destroy_qp(conn->id);
	sendq_reap(conn);
	while (conn->ops)
		finish(conn, conn->ops, IBV_WC_WR_FLUSH_ERR);
	pthread_mutex_unlock(&conn->mutex);
}

static uint64_t clock_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void sendq_wait(struct mrshare *conn, struct op *op, uint64_t deadline_ms)
{
	uint64_t spin_end = clock_us() + SPIN_US;
	bool done;
	while (look(conn, op, &done) && !done) {
		if (clock_us() < spin_end)
			continue;
		sleep_for_completion(conn, op, conn->dead_fd, deadline_ms);
		if (clock_ms() < deadline_ms)
			continue;
		pthread_mutex_lock(&conn->mutex);
		sendq_reap(conn);
		if (!op->done)
			conn_drop(conn, -ETIMEDOUT, "no answer from the daemon's host within the time limit");
		pthread_mutex_unlock(&conn->mutex);
	}
	if (!done)
		drain(conn, op);
}
