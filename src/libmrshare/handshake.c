/* handshake.c: one address: resolving it, the connection request, the daemon's answer and its welcome. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum {
	ADDRESS_TRY_MS = 200,   /* of one address resolution */
	READS_MAX = 16,         /* READs on the wire that we ask for */
	REASON_NO_LISTENER = 8, /* of the CM: IB specification, table 107 */
};

/* REJECTED comes from the daemon, with a text, or from the kernel of its host. */
static int rejected(struct mrshare *conn, const struct cm_event *event, struct err *err)
{
	struct peer_reject reject;
	conn->rejected = peer_reject_read(event->param.private_data, event->param.private_data_len, &reject) == 0;
	if (conn->rejected)
		return err_set(err, -ECONNREFUSED, "the daemon rejected the connection: %s", reject.text);
	if (event->status == REASON_NO_LISTENER || event->status == -ECONNREFUSED)
		return err_set(err, -ECONNREFUSED, "no one listens on that port for RDMA");
	return err_set(err, -ECONNREFUSED, "rejected by something that is no mrshared (reason %d)", event->status);
}

static int address_failed(int code, struct err *err)
{
	if (code == -ENODEV)
		return err_set(
			err, code, "no RDMA device on the way there: `rdma link show` lists the devices of this host");
	if (code == -ETIMEDOUT)
		return err_set(err, -EHOSTUNREACH, "the host does not answer (address resolution timed out)");
	return err_set(err, code < 0 ? code : -EHOSTUNREACH, "cannot be reached: %s",
		strerror(code < 0 ? -code : EHOSTUNREACH));
}

static int connection_event_failed(struct mrshare *conn, const struct cm_event *event, struct err *err)
{
	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return address_failed(event->status, err);
	case RDMA_CM_EVENT_REJECTED:
		return rejected(conn, event, err);
	case RDMA_CM_EVENT_UNREACHABLE:
		return err_set(err, -EHOSTUNREACH, "the host does not answer connection requests");
	case RDMA_CM_EVENT_DISCONNECTED:
		return err_set(err, -ECONNRESET, "the daemon closed the connection before its welcome");
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return err_set(err, -ENODEV, "the RDMA device was removed");
	default:
		return err_set(err, event->status < 0 ? event->status : -EIO, "%s (%d)", cm_event_name(event->type),
			event->status);
	}
}

/* Waits for the event that is due; any other is a failure. */
static int await_event(struct mrshare *conn, uint64_t deadline, enum rdma_cm_event_type due, struct cm_event *ret_event,
	struct err *err)
{
	int r;
	while ((r = cm_next_event(conn->cm_channel, ret_event)) == -EAGAIN) {
		if (time_left(deadline) == 0)
			return err_set(err, -ETIMEDOUT, "no answer to %s within the time limit",
				due == RDMA_CM_EVENT_ESTABLISHED ? "the connection request" : "address resolution");
		wait_readable(conn->cm_channel->fd, -1, deadline);
	}
	if (r < 0)
		return err_set(err, r, "the connection manager fails: %s", strerror(-r));
	return ret_event->type == due ? 0 : connection_event_failed(conn, ret_event, err);
}

/* Many short tries: the kernel looks for the neighbour's answer only at the end of each. */
static int resolve_address(
	struct mrshare *conn, struct sockaddr *source, struct sockaddr *dest, uint64_t deadline, struct err *err)
{
	struct cm_event event = { .status = 0 };
	int r;
	do {
		int left = time_left(deadline);
		r = cm_resolve_addr(conn->id, source, dest, left < ADDRESS_TRY_MS ? left : ADDRESS_TRY_MS);
		if (r < 0)
			return address_failed(r, err);
		r = await_event(conn, deadline, RDMA_CM_EVENT_ADDR_RESOLVED, &event, err);
	} while (r < 0 && event.type == RDMA_CM_EVENT_ADDR_ERROR && event.status == -ETIMEDOUT &&
		 time_left(deadline) > 0);
	if (r == 0 && !conn->id->verbs)
		return address_failed(-ENODEV, err);
	return r;
}

static int resolve(
	struct mrshare *conn, struct sockaddr *source, struct sockaddr *dest, uint64_t deadline, struct err *err)
{
	int r = cm_channel_new(&conn->cm_channel);
	if (r == 0)
		r = cm_id_new(conn->cm_channel, conn, &conn->id);
	if (r < 0)
		return err_set(err, r, "RDMA connections are not possible on this host: %s%s", strerror(-r),
			r == -ENODEV || r == -ENOENT ? " (the module rdma_ucm is needed)" : "");

	r = resolve_address(conn, source, dest, deadline, err);
	if (r < 0)
		return r;
	r = cm_resolve_route(conn->id, time_left(deadline));
	if (r < 0)
		return address_failed(r, err);
	struct cm_event event;
	return await_event(conn, deadline, RDMA_CM_EVENT_ROUTE_RESOLVED, &event, err);
}

static int request(struct mrshare *conn, struct err *err)
{
	struct ibv_device_attr device;
	int r = verbs_query_device(conn->id->verbs, &device);
	if (r < 0)
		return err_set(err, r, "device %s: %s", verbs_device_name(conn->id->verbs), strerror(-r));
	int reads = device.max_qp_init_rd_atom < READS_MAX ? device.max_qp_init_rd_atom : READS_MAX;

	struct peer_request request = {
		.version_min = PEER_VERSION,
		.version_max = PEER_VERSION,
		.flags = conn->want_write ? PEER_WANTS_WRITE : 0,
	};
	if (getrandom(request.nonce, sizeof(request.nonce), 0) != (ssize_t)sizeof(request.nonce))
		return err_set(err, -EIO, "no random numbers");
	uint8_t bytes[PEER_REQUEST_SIZE];
	peer_request_write(&request, bytes);
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = sizeof(bytes),
		.responder_resources = 1,
		.initiator_depth = (uint8_t)(reads > 0 ? reads : 1),
		.retry_count = PEER_SEND_RETRIES,
		.rnr_retry_count = PEER_SEND_RETRIES,
	};
	r = cm_connect(conn->id, &param);
	return r < 0 ? err_set(err, r, "cannot send a connection request: %s", strerror(-r)) : 0;
}

static int accepted(struct mrshare *conn, const struct cm_event *event, struct err *err)
{
	struct peer_accept accept;
	if (peer_accept_read(event->param.private_data, event->param.private_data_len, &accept) < 0)
		return err_set(err, -EPROTO, "what listens there is no mrshared");
	if (accept.version != PEER_VERSION)
		return err_set(err, -EPROTONOSUPPORT, "the daemon chose protocol version %u, which was not offered",
			accept.version);
	if (accept.flags & PEER_AUTHENTICATES)
		return err_set(
			err, -EPROTONOSUPPORT, "the daemon asks for authentication, which this version does not have");
	conn->keepalive_s = accept.keepalive;

	/* Without it a message that comes before its receive is posted again waits 0.65 s. */
	struct ibv_qp_attr attr = { .min_rnr_timer = PEER_MIN_RNR_TIMER };
	int r = verbs_modify_qp(conn->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
	return r < 0 ? err_set(err, r, "cannot set up the queue pair: %s", strerror(-r)) : 0;
}

static int take_welcome(struct mrshare *conn, const struct ibv_wc *wc, struct err *err)
{
	if (wc->status != IBV_WC_SUCCESS)
		return err_set(err, -ECONNRESET, "the daemon closed the connection before its welcome");
	struct peer_frame frame;
	int r = peer_frame_read(conn->frames + wc->wr_id * PEER_FRAME_SIZE_MAX, wc->byte_len, &frame);
	if (r < 0 || frame.type != PEER_FRAME_WELCOME)
		return err_set(err, -EPROTO, "the daemon's first message is no welcome");

	r = endpoint_post_receive(conn, (unsigned int)wc->wr_id);
	if (r < 0)
		return err_set(err, r, "a receive cannot be posted: %s", strerror(-r));
	conn->granted = frame.welcome.granted;
	conn->announced = frame.welcome.generation;
	conn->catalog = frame.welcome.catalog;
	return 0;
}

static int await_welcome(struct mrshare *conn, uint64_t deadline, struct err *err)
{
	struct ibv_wc wc;
	int n;
	while ((n = verbs_poll_cq(conn->recv_cq, 1, &wc)) == 0) {
		struct cm_event event;
		if (cm_next_event(conn->cm_channel, &event) == 0)
			return connection_event_failed(conn, &event, err);
		if (time_left(deadline) == 0)
			return err_set(
				err, -ETIMEDOUT, "the daemon accepted, but sent no welcome within the time limit");
		/* The service thread takes the completion event; until it runs the CQ was armed once, which does. */
		wait_readable(conn->recv_channel->fd, conn->cm_channel->fd, deadline);
	}
	if (n < 0)
		return err_set(err, n, "the device's completion queue fails: %s", strerror(-n));
	return take_welcome(conn, &wc, err);
}

int handshake(struct mrshare *conn, struct sockaddr *source, struct sockaddr *dest, uint64_t deadline, struct err *err)
{
	struct cm_event event;
	int r = resolve(conn, source, dest, deadline, err);
	if (r == 0)
		r = endpoint_open(conn, err);
	if (r == 0)
		r = request(conn, err);
	if (r == 0)
		r = await_event(conn, deadline, RDMA_CM_EVENT_ESTABLISHED, &event, err);
	if (r == 0)
		r = accepted(conn, &event, err);
	if (r == 0)
		r = await_welcome(conn, deadline, err);
	if (r < 0)
		endpoint_close(conn);
	return r;
}
