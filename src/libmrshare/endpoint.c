/* endpoint.c: the verbs objects of a connection. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libmrshare/conn.h"

enum {
	FRAMES_SIZE = (PEER_RECEIVES + ACKS_MAX) * PEER_FRAME_SIZE_MAX,
	STAGE_SIZE = PIECES_MAX * PIECE_SIZE,
	PAGE = 4096, /* alignment only: registered memory shares no page with the heap */
};

static int open_queues(struct mrshare *conn)
{
	struct ibv_context *context = conn->id->verbs;
	int r = verbs_alloc_pd(context, &conn->pd);
	if (r == 0)
		r = verbs_create_comp_channel(context, &conn->send_channel);
	if (r == 0)
		r = verbs_create_comp_channel(context, &conn->recv_channel);
	if (r == 0)
		r = verbs_create_cq(context, SENDS_MAX, NULL, conn->send_channel, &conn->send_cq);
	if (r == 0)
		r = verbs_create_cq(context, PEER_RECEIVES, NULL, conn->recv_channel, &conn->recv_cq);
	if (r == 0)
		r = verbs_req_notify_cq(conn->recv_cq);
	if (r < 0)
		return r;

	/* rdma_cm gives this queue pair remote rights of its own accord; no MR of this PD grants any. */
	struct ibv_qp_init_attr attr = {
		.send_cq = conn->send_cq,
		.recv_cq = conn->recv_cq,
		.cap = { .max_send_wr = SENDS_MAX, .max_recv_wr = PEER_RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	return cm_create_qp(conn->id, conn->pd, &attr);
}

static int registered_memory(struct ibv_pd *pd, size_t size, uint8_t **ret_memory, struct ibv_mr **ret_mr)
{
	uint8_t *memory = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
	if (!memory)
		return -ENOMEM;
	int r = verbs_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE, ret_mr);
	if (r < 0) {
		free(memory);
		return r;
	}
	*ret_memory = memory;
	return 0;
}

int endpoint_post_receive(struct mrshare *conn, unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(conn->frames + slot * PEER_FRAME_SIZE_MAX),
		.length = PEER_FRAME_SIZE_MAX,
		.lkey = conn->frames_mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	return verbs_post_recv(conn->id->qp, &wr);
}

int endpoint_open(struct mrshare *conn, struct err *err)
{
	const char *device = verbs_device_name(conn->id->verbs);
	struct ibv_port_attr port;
	int r = verbs_query_port(conn->id->verbs, conn->id->port_num, &port);
	if (r < 0)
		return err_set(err, r, "device %s: cannot query port %u: %s", device, conn->id->port_num, strerror(-r));
	conn->piece_max = port.max_msg_sz && port.max_msg_sz < PIECE_SIZE ? port.max_msg_sz : PIECE_SIZE;

	r = open_queues(conn);
	if (r < 0)
		return err_set(err, r, "device %s: cannot make a queue pair: %s", device, strerror(-r));
	r = registered_memory(conn->pd, FRAMES_SIZE, &conn->frames, &conn->frames_mr);
	if (r < 0)
		return err_set(err, r, "device %s: cannot register memory: %s%s", device, strerror(-r),
			r == -ENOMEM ? " (the limit of locked memory may be too small: ulimit -l)" : "");
	for (size_t i = 0; i < ACKS_MAX; i++)
		conn->acks[i].done = true;
	for (unsigned int i = 0; i < PEER_RECEIVES; i++) {
		r = endpoint_post_receive(conn, i);
		if (r < 0)
			return err_set(err, r, "device %s: cannot post a receive: %s", device, strerror(-r));
	}
	return 0;
}

int endpoint_need_stage(struct mrshare *conn, struct err *err)
{
	if (conn->stage)
		return 0;
	int r = registered_memory(conn->pd, STAGE_SIZE, &conn->stage, &conn->stage_mr);
	if (r < 0)
		return err_set(err, r, "device %s: cannot register %d KiB to copy through: %s",
			verbs_device_name(conn->id->verbs), STAGE_SIZE >> 10, strerror(-r));
	return 0;
}

void endpoint_close(struct mrshare *conn)
{
	if (conn->id && conn->id->qp) {
		cm_disconnect(conn->id);
		cm_destroy_qp(conn->id);
	}
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next)
		verbs_dereg_mr(&buffer->mr);
	verbs_dereg_mr(&conn->stage_mr);
	verbs_dereg_mr(&conn->frames_mr);
	verbs_destroy_cq(&conn->send_cq);
	verbs_destroy_cq(&conn->recv_cq);
	verbs_destroy_comp_channel(&conn->send_channel);
	verbs_destroy_comp_channel(&conn->recv_channel);
	verbs_dealloc_pd(&conn->pd);
	cm_id_free(&conn->id);
	cm_channel_free(&conn->cm_channel);
	/* Memory that a device would not let go of must not be used for anything else. */
	if (!conn->stage_mr)
		free(conn->stage);
	if (!conn->frames_mr)
		free(conn->frames);
	conn->stage = conn->frames = NULL;
	conn->stage_mr = conn->frames_mr = NULL;
	conn->ops = NULL;
}
