/* connect.c: a peer's queue pair, without any right until the peer is admitted. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/container.h"
#include "publish/peer.h"

/* rdma_cm would make the queue pair with every right; so it only says which values a state takes. What among them comes
 * from the peer's request is not left to the peer. */
static int queue_pair_move(struct peer *peer, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;
	int mask;
	int r = cm_init_qp_attr(peer->id, state, &attr, &mask);
	if (r < 0)
		return r;
	attr.qp_access_flags = 0;
	attr.max_dest_rd_atomic = peer->responder_resources;
	attr.max_rd_atomic = 0; /* the daemon reads from nobody */
	attr.min_rnr_timer = PEER_MIN_RNR_TIMER;
	attr.retry_cnt = PEER_SEND_RETRIES;
	attr.rnr_retry = PEER_SEND_RETRIES;
	return verbs_modify_qp(peer->qp, &attr, mask);
}

static int queue_pair_new(struct peer *peer)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = group_cq(peer),
		.recv_cq = group_cq(peer),
		.cap = { .max_send_wr = 1, .max_recv_wr = PEER_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int r = verbs_create_qp(peer->device->device->pd, &attr, &peer->qp);
	if (r == 0)
		r = queue_pair_move(peer, IBV_QPS_INIT);
	if (r == 0)
		r = group_post_receives(peer);
	if (r == 0)
		r = queue_pair_move(peer, IBV_QPS_RTR);
	if (r == 0)
		r = queue_pair_move(peer, IBV_QPS_RTS);
	return r;
}

static void connect_run(struct job *job)
{
	struct peer *peer = container_of(job, struct peer, job);
	peer->connect_result = queue_pair_new(peer);
}

static void connect_done(struct job *job)
{
	struct peer *peer = container_of(job, struct peer, job);
	peer->connecting = false;
	if (!peer->qp) {
		peer->device->queue_pairs--;
		publish_settle_soon(peer->publish);
	}
	peer_connected(peer);
}

int peer_connect(struct peer *peer, struct peer_reject *reject)
{
	struct err err;
	int r = group_join(peer, &err);
	if (r == -EAGAIN)
		return r;
	if (r < 0)
		return reject_set(reject, PEER_REJECT_RESOURCES, "%.120s", err.text);
	peer->device->queue_pairs++;
	peer->connecting = true;
	peer->job = (struct job){ .run = connect_run, .done = connect_done };
	worker_pool_submit(peer->publish->connector, &peer->job);
	return 0;
}

static int accept_connection(struct peer *peer)
{
	const struct publish *publish = peer->publish;
	struct peer_accept accept = { .version = PEER_VERSION, .keepalive = (uint16_t)publish->config->keepalive_s };
	memcpy(accept.server_id, publish->server_id, sizeof(accept.server_id));
	if (getrandom(accept.nonce, sizeof(accept.nonce), 0) != (ssize_t)sizeof(accept.nonce))
		return -EIO;
	uint8_t bytes[PEER_ACCEPT_SIZE];
	peer_accept_write(&accept, bytes);
	struct rdma_conn_param param = {
		.private_data = bytes,
		.private_data_len = sizeof(bytes),
		.responder_resources = peer->responder_resources,
		.rnr_retry_count = PEER_SEND_RETRIES,
		.qp_num = peer->qp->qp_num,
	};
	return cm_accept(peer->id, &param);
}

int peer_accept(struct peer *peer, struct peer_reject *reject)
{
	int r = peer->connect_result;
	if (r < 0)
		return reject_set(reject, PEER_REJECT_RESOURCES, "mrshared cannot make a queue pair: %s", strerror(-r));
	r = accept_connection(peer);
	if (r < 0)
		return reject_set(reject, PEER_REJECT_RESOURCES, "mrshared cannot accept: %s", strerror(-r));
	return 0;
}
