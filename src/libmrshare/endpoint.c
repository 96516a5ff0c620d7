/* endpoint.c: the verbs objects of a connection. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "libmrshare/conn.h"

enum {
	FRAMES_AT = WIRE_BYTES, /* behind the stage */
	MEMORY_SIZE = FRAMES_AT + (PEER_RECEIVES + ACKS_MAX) * PEER_FRAME_SIZE_MAX,
};

/* rdma_cm gives this queue pair remote rights of its own accord; no MR of this PD grants any. */
static int create_qp(struct mrshare *conn, uint32_t inline_wanted)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = conn->send_cq,
		.recv_cq = conn->recv_cq,
		.cap = {
			.max_send_wr = conn->sends_max,
			.max_recv_wr = PEER_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_wanted,
		},
		.qp_type = IBV_QPT_RC,
	};
	int r = cm_create_qp(conn->id, conn->pd, &attr);
	if (r == 0)
		conn->inline_max = attr.cap.max_inline_data < inline_wanted ? attr.cap.max_inline_data : inline_wanted;
	/* A device that takes none, or fewer work requests with them. */
	if (inline_wanted && (r == -EINVAL || r == -ENOMEM))
		return create_qp(conn, 0);
	return r;
}

static int open_queues(struct mrshare *conn)
{
	struct ibv_context *context = conn->id->verbs;
	struct ibv_device_attr device;
	int r = verbs_query_device(context, &device);
	if (r < 0)
		return r;
	conn->sends_max = device.max_qp_wr > 0 && device.max_qp_wr < SENDS_MAX ? (uint32_t)device.max_qp_wr : SENDS_MAX;
	if (conn->sends_max <= ACKS_MAX)
		return -ENOSPC;

	r = verbs_alloc_pd(context, &conn->pd);
	if (r == 0)
		r = verbs_create_comp_channel(context, &conn->send_channel);
	if (r == 0)
		r = verbs_create_comp_channel(context, &conn->recv_channel);
	if (r == 0)
		r = verbs_create_cq(context, (int)conn->sends_max, NULL, conn->send_channel, &conn->send_cq);
	if (r == 0)
		r = verbs_create_cq(context, PEER_RECEIVES, NULL, conn->recv_channel, &conn->recv_cq);
	if (r == 0)
		r = verbs_req_notify_cq(conn->recv_cq);
	if (r == 0)
		r = create_qp(conn, INLINE_WANTED);
	return r;
}

/* Mapped for itself: a child must not get these pages, or a kernel that shares them until they are written to gives us
 * others than the device has. */
static int open_memory(struct mrshare *conn)
{
	void *memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -errno;
	madvise(memory, MEMORY_SIZE, MADV_DONTFORK);
	int r = verbs_reg_mr(conn->pd, memory, MEMORY_SIZE, IBV_ACCESS_LOCAL_WRITE, &conn->memory_mr);
	if (r < 0)
		munmap(memory, MEMORY_SIZE);
	else
		conn->memory = memory;
	return r;
}

uint8_t *endpoint_receive_frame(const struct mrshare *conn, uint64_t slot)
{
	return conn->memory + FRAMES_AT + slot * PEER_FRAME_SIZE_MAX;
}

uint8_t *endpoint_ack_frame(const struct mrshare *conn, unsigned int slot)
{
	return endpoint_receive_frame(conn, PEER_RECEIVES + slot);
}

int endpoint_post_receive(struct mrshare *conn, unsigned int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)endpoint_receive_frame(conn, slot),
		.length = PEER_FRAME_SIZE_MAX,
		.lkey = conn->memory_mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	return verbs_post_recv(conn->id->qp, &wr);
}

bool endpoint_take_events(struct mrshare *conn, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq;
	bool any = false;
	int r = -EAGAIN;
	while (channel && (r = verbs_next_cq_event(channel, &cq)) == 0)
		any = true;
	/* It would be readable for ever. */
	if (r != -EAGAIN)
		conn_drop(conn, r, "the device's events fail: %s", strerror(-r));
	return any;
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
	r = open_memory(conn);
	if (r < 0)
		return err_set(err, r, "device %s: cannot register memory: %s%s", device, strerror(-r),
			r == -ENOMEM ? " (the limit of locked memory may be too small: ulimit -l)" : "");
	for (unsigned int i = 0; i < PEER_RECEIVES; i++) {
		r = endpoint_post_receive(conn, i);
		if (r < 0)
			return err_set(err, r, "device %s: cannot post a receive: %s", device, strerror(-r));
	}
	buffers_register(conn);
	conn->head = conn->tail = conn->acks_on_wire = 0;
	conn->stage_head = conn->stage_tail = conn->wire_bytes = 0;
	conn->sends_armed = false;
	service_watch_fd(conn, conn->recv_channel->fd);
	service_watch_fd(conn, conn->send_channel->fd);
	service_wake_leader(conn);
	return 0;
}

/* What a device that is no more did not let go of is left: it must not be taken for a part of the next endpoint. */
static void forget_objects(struct mrshare *conn)
{
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next)
		buffer->mr = NULL;
	conn->memory = NULL;
	conn->memory_mr = NULL;
	conn->send_cq = conn->recv_cq = NULL;
	conn->send_channel = conn->recv_channel = NULL;
	conn->pd = NULL;
}

void endpoint_close(struct mrshare *conn)
{
	if (conn->id && conn->id->qp) {
		cm_disconnect(conn->id);
		cm_destroy_qp(conn->id);
	}
	for (struct mrshare_buffer *buffer = conn->buffers; buffer; buffer = buffer->next)
		verbs_dereg_mr(&buffer->mr);
	verbs_dereg_mr(&conn->memory_mr);
	if (conn->send_channel)
		service_unwatch_fd(conn, conn->send_channel->fd);
	if (conn->recv_channel)
		service_unwatch_fd(conn, conn->recv_channel->fd);
	if (conn->cm_channel)
		service_unwatch_fd(conn, conn->cm_channel->fd);
	verbs_destroy_cq(&conn->send_cq);
	verbs_destroy_cq(&conn->recv_cq);
	verbs_destroy_comp_channel(&conn->send_channel);
	verbs_destroy_comp_channel(&conn->recv_channel);
	verbs_dealloc_pd(&conn->pd);
	background_free_id(&conn->id, &conn->cm_channel);
	/* Memory that a device would not let go of must not be used for anything else. */
	if (conn->memory && !conn->memory_mr)
		munmap(conn->memory, MEMORY_SIZE);
	forget_objects(conn);
	/* Who waits for the wire must not look at descriptors that are no more. */
	service_wake_leader(conn);
}
