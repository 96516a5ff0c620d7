/* connect.c: from a name to the welcome of a daemon, step by step as answers come, within one time limit. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum {
	ADDRESS_TRY_MS = 200,   /* of one address resolution */
	READS_MAX = 16,         /* READs on the wire that we ask for */
	REASON_NO_LISTENER = 8, /* of the CM: IB specification, table 107 */
};

static int time_left(uint64_t deadline)
{
	uint64_t now = clock_ms();
	return now < deadline ? (int)(deadline - now) : 0;
}

static void forget_addresses(struct mrshare *conn)
{
	if (conn->lookup)
		service_unwatch_fd(conn, lookup_fd(conn->lookup));
	lookup_free(&conn->lookup);
	if (conn->dests)
		freeaddrinfo(conn->dests);
	if (conn->sources)
		freeaddrinfo(conn->sources);
	conn->dests = conn->sources = conn->dest = NULL;
}

void connect_failed(struct mrshare *conn, const struct err *err)
{
	struct err copy = *err;
	if (conn->state > CONN_NAMES)
		err_prefix(&copy, "%s", conn->address);
	forget_addresses(conn);
	/* Ended before the state changes: they do not begin the next connect. */
	op_end_all(conn, OP_CONNECT, copy.code, copy.text);
	conn_rest(conn);
}

/*
 * Requesting
 */

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

static struct sockaddr *source_of(const struct mrshare *conn)
{
	const struct addrinfo *source = conn->sources;
	while (source && source->ai_family != conn->dest->ai_family)
		source = source->ai_next;
	return source ? source->ai_addr : NULL;
}

/* Many short tries: the kernel looks for the neighbour's answer only at the end of each. */
static int resolve_address(struct mrshare *conn, struct err *err)
{
	int left = time_left(conn->attempt_ms);
	int r = cm_resolve_addr(conn->id, source_of(conn), conn->dest->ai_addr,
		left > 0 && left < ADDRESS_TRY_MS ? left : ADDRESS_TRY_MS);
	return r < 0 ? address_failed(r, err) : 0;
}

static int start_attempt(struct mrshare *conn, struct err *err)
{
	if (conn->sources && !source_of(conn))
		return err_set(err, -EAFNOSUPPORT, "the source is of another address family");
	int r = cm_channel_new(&conn->cm_channel);
	if (r == 0)
		r = cm_id_new(conn->cm_channel, conn, &conn->id);
	if (r < 0)
		return err_set(err, r, "RDMA connections are not possible on this host: %s%s", strerror(-r),
			r == -ENODEV || r == -ENOENT ? " (the module rdma_ucm is needed)" : "");
	service_watch_fd(conn, conn->cm_channel->fd);
	conn->state = CONN_ADDRESS;
	return resolve_address(conn, err);
}

/* Each address in turn gets its share of the time left. `err` is what the one before failed by. */
static void try_next(struct mrshare *conn, struct err *err)
{
	int r = -1;
	do {
		conn->dest = conn->dest ? conn->dest->ai_next : conn->dests;
		if (!conn->dest) {
			connect_failed(conn, err);
			return;
		}
		int count = 0;
		for (struct addrinfo *dest = conn->dest; dest; dest = dest->ai_next)
			count++;
		conn->attempt_ms = clock_ms() + (uint64_t)(time_left(conn->deadline_ms) / count);
		time_due(conn, conn->attempt_ms);
		r = start_attempt(conn, err);
		if (r < 0)
			endpoint_close(conn);
	} while (r < 0);
}

static void attempt_failed(struct mrshare *conn, struct err *err)
{
	endpoint_close(conn);
	try_next(conn, err);
}

void connect_names(struct mrshare *conn)
{
	struct err err;
	int r = lookup_result(conn->lookup, &conn->dests, &conn->sources, &err);
	if (r == -EINPROGRESS)
		return;
	if (r < 0) {
		connect_failed(conn, &err);
		return;
	}
	service_unwatch_fd(conn, lookup_fd(conn->lookup));
	lookup_free(&conn->lookup);
	conn->state = CONN_ADDRESS;
	err_set(&err, -EHOSTUNREACH, "the name has no address");
	try_next(conn, &err);
}

void connect_begin(struct mrshare *conn)
{
	struct err err;
	conn->deadline_ms = clock_ms() + conn->timeout_ms;
	time_due(conn, conn->deadline_ms);
	conn->state = CONN_NAMES;
	int r = lookup_start(conn->address, conn->source, &conn->lookup, &err);
	if (r == 0)
		service_watch_fd(conn, lookup_fd(conn->lookup));
	else
		connect_failed(conn, &err);
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

/*
 * Answers
 */

/* REJECTED comes from the daemon, with a text, or from the kernel of its host. Whether it was the daemon: no other
 * address of it will do better. */
static bool rejected(const struct cm_event *event, struct err *err)
{
	struct peer_reject reject;
	if (peer_reject_read(event->param.private_data, event->param.private_data_len, &reject) == 0) {
		err_set(err, -ECONNREFUSED, "the daemon rejected the connection: %s", reject.text);
		return true;
	}
	if (event->status == REASON_NO_LISTENER || event->status == -ECONNREFUSED)
		err_set(err, -ECONNREFUSED, "no one listens on that port for RDMA");
	else
		err_set(err, -ECONNREFUSED, "rejected by something that is no mrshared (reason %d)", event->status);
	return false;
}

static int event_failed(const struct cm_event *event, struct err *err)
{
	switch (event->type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return address_failed(event->status, err);
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
	memcpy(conn->daemon_id, accept.server_id, sizeof(conn->daemon_id));

	/* Without it a message that comes before its receive is posted again waits 0.65 s. */
	struct ibv_qp_attr attr = { .min_rnr_timer = PEER_MIN_RNR_TIMER };
	int r = verbs_modify_qp(conn->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
	return r < 0 ? err_set(err, r, "cannot set up the queue pair: %s", strerror(-r)) : 0;
}

static int address_resolved(struct mrshare *conn, struct err *err)
{
	if (!conn->id->verbs)
		return address_failed(-ENODEV, err);
	conn->state = CONN_ROUTE;
	int left = time_left(conn->attempt_ms);
	int r = cm_resolve_route(conn->id, left > 0 ? left : 1);
	return r < 0 ? address_failed(r, err) : 0;
}

static int route_resolved(struct mrshare *conn, struct err *err)
{
	conn->state = CONN_REQUESTED;
	int r = endpoint_open(conn, err);
	return r < 0 ? r : request(conn, err);
}

/* The step that the event makes; any other event than the one that is due is a failure. */
static int step(struct mrshare *conn, const struct cm_event *event, struct err *err)
{
	if (conn->state == CONN_ADDRESS && event->type == RDMA_CM_EVENT_ADDR_RESOLVED)
		return address_resolved(conn, err);
	if (conn->state == CONN_ADDRESS && event->type == RDMA_CM_EVENT_ADDR_ERROR && event->status == -ETIMEDOUT &&
		time_left(conn->attempt_ms) > 0)
		return resolve_address(conn, err);
	if (conn->state == CONN_ROUTE && event->type == RDMA_CM_EVENT_ROUTE_RESOLVED)
		return route_resolved(conn, err);
	if (conn->state == CONN_REQUESTED && event->type == RDMA_CM_EVENT_ESTABLISHED) {
		conn->state = CONN_WELCOME;
		return accepted(conn, event, err);
	}
	return event_failed(event, err);
}

void connect_event(struct mrshare *conn, const struct cm_event *event)
{
	struct err err;
	if (event->type == RDMA_CM_EVENT_REJECTED) {
		if (rejected(event, &err))
			connect_failed(conn, &err);
		else
			attempt_failed(conn, &err);
	} else if (step(conn, event, &err) < 0) {
		attempt_failed(conn, &err);
	}
}

static int take_welcome(struct mrshare *conn, const struct ibv_wc *wc, struct err *err)
{
	if (wc->status != IBV_WC_SUCCESS)
		return err_set(err, -ECONNRESET, "the daemon closed the connection before its welcome");
	struct peer_frame frame;
	int r = peer_frame_read(endpoint_receive_frame(conn, wc->wr_id), wc->byte_len, &frame);
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

void connect_welcome(struct mrshare *conn, const struct ibv_wc *wc)
{
	struct err err;
	if (take_welcome(conn, wc, &err) < 0) {
		attempt_failed(conn, &err);
		return;
	}
	forget_addresses(conn);
	/* What was registered while the daemon was asked. */
	buffers_register(conn);
	views_daemon(conn);
	conn->connect_serial++;
	conn->heard_ms = clock_ms();
	conn->notice = (struct peer_notice){ 0 };
	conn->repeated = true;
	conn->ack_due = false;
	conn->state = CONN_UP;
	time_due(conn, conn->heard_ms); /* finds out when it is really due */

	struct op *op;
	while (conn->state == CONN_UP && (op = TAILQ_FIRST(&conn->lists[OP_CONNECT])))
		op_start(conn, op);
}

uint64_t connect_check_time(struct mrshare *conn, uint64_t now)
{
	static const char *const missing[] = {
		[CONN_NAMES] = "the name look-up did not end",
		[CONN_ADDRESS] = "no answer to address resolution",
		[CONN_ROUTE] = "no answer to route resolution",
		[CONN_REQUESTED] = "no answer to the connection request",
		[CONN_WELCOME] = "the daemon accepted, but sent no welcome",
	};
	uint64_t due = conn->state == CONN_NAMES ? conn->deadline_ms : conn->attempt_ms;
	if (now < due)
		return due;
	struct err err;
	err_set(&err, -ETIMEDOUT, "%s within the time limit", missing[conn->state]);
	if (conn->state == CONN_NAMES) {
		err_prefix(&err, "%s", conn->address);
		connect_failed(conn, &err);
	} else {
		attempt_failed(conn, &err);
	}
	return UINT64_MAX;
}

/*
 * Calls
 */

static int post_connect(
	struct mrshare *conn, const char *address, const struct mrshare_how *how, bool waited, struct op **ret_op)
{
	struct err err;
	int r = 0;
	if (conn->connected)
		r = err_set(&err, -EISCONN, "connected to %s already: a handle is for one daemon", conn->address);
	else if ((conn->state != CONN_IDLE && conn->state != CONN_DRAINING) || !TAILQ_EMPTY(&conn->lists[OP_CONNECT]))
		r = err_set(&err, -EALREADY, "a connect to %s is under way", conn->address);
	else if (strlen(address) >= sizeof(conn->address))
		r = err_set(&err, -EINVAL, "the address is too long");
	if (r == 0)
		r = op_new(conn, OP_CONNECTING, waited ? "mrshare_connect" : "mrshare_post_connect", how, waited,
			ret_op, &err);
	if (r < 0)
		return error_publish(&err);
	snprintf(conn->address, sizeof(conn->address), "%s", address);
	return 0;
}

int mrshare_post_connect(struct mrshare *conn, const char *address, const struct mrshare_how *how, uint64_t *ret_id)
{
	struct op *op;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	r = post_connect(conn, address, how, false, &op);
	if (r == 0) {
		if (ret_id)
			*ret_id = op->id;
		op_post(conn, op);
	}
	pthread_mutex_unlock(&conn->mutex);
	return r;
}

int mrshare_connect(struct mrshare *conn, const char *address)
{
	struct op *op;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	r = post_connect(conn, address, NULL, true, &op);
	if (r < 0) {
		pthread_mutex_unlock(&conn->mutex);
		return r;
	}
	op_post(conn, op);
	return op_wait(conn, op, NULL);
}
