/* notice.c: what the daemon tells us on its own: generations, withdrawals, that it lives. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

static void take_notice(struct mrshare *conn, const struct peer_notice *notice)
{
	/* A duplicate delivery; another one is a flood. */
	if (notice->sequence == conn->notice.sequence && !conn->repeated) {
		conn->repeated = true;
		return;
	}
	if (notice->sequence != conn->notice.sequence + 1) {
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
	conn->announced = notice->generation;
	conn->notice = *notice;
	conn->repeated = false;
	conn->ack_due = true;
	views_noticed(conn, notice);
	sendq_reap(conn);
	sendq_try_ack(conn);
}

static void take_frame(struct mrshare *conn, const struct ibv_wc *wc)
{
	struct peer_frame frame;
	int r = peer_frame_read(endpoint_receive_frame(conn, wc->wr_id), wc->byte_len, &frame);
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

static void take_receive(struct mrshare *conn, const struct ibv_wc *wc)
{
	if (conn->state == CONN_WELCOME) {
		connect_welcome(conn, wc);
	} else if (wc->status == IBV_WC_SUCCESS) {
		take_frame(conn, wc);
	} else {
		/* A flushed receive says that the queue pair is in error, not why. */
		sendq_reap(conn);
		if (wc->status == IBV_WC_WR_FLUSH_ERR)
			conn_drop(conn, -ECONNRESET, "the daemon closed the connection");
		else
			conn_drop(conn, -ECONNRESET, "receiving from the daemon: %s", verbs_wc_status_name(wc->status));
	}
}

void notice_drain(struct mrshare *conn)
{
	/* In any state, or the descriptor stays readable for those who wait for it. */
	endpoint_take_events(conn, conn->recv_channel);
	if (conn->state != CONN_WELCOME && conn->state != CONN_UP)
		return;
	/* Armed first: what arrives behind the last look makes an event. */
	int r = verbs_req_notify_cq(conn->recv_cq);
	struct ibv_wc wc;
	int n = 1;
	while (r == 0 && (conn->state == CONN_WELCOME || conn->state == CONN_UP) &&
		(n = verbs_poll_cq(conn->recv_cq, 1, &wc)) > 0)
		take_receive(conn, &wc);
	if (r < 0 || n < 0)
		conn_drop(conn, -EIO, "the device's completion queue fails");
}
