/* rdma.c: every call into libibverbs and librdmacm, with one way to report errors. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/rdma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* Of a call that reports by NULL or -1 and errno; some leave errno alone. */
static int errno_code(void)
{
	return errno > 0 ? -errno : -EIO;
}

/* Of a call that returns 0, a positive errno, or -1 and errno. */
static int code(int r)
{
	if (r == 0)
		return 0;
	return r > 0 ? -r : errno_code();
}

void verbs_init(void)
{
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
}

bool cm_is_there(void)
{
	return access("/dev/infiniband/rdma_cm", F_OK) == 0;
}

int cm_channel_new(struct rdma_event_channel **ret_channel)
{
	errno = 0;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	if (!channel)
		return errno_code();
	int r = fd_set_nonblocking(channel->fd);
	if (r < 0) {
		rdma_destroy_event_channel(channel);
		return r;
	}
	*ret_channel = channel;
	return 0;
}

void cm_channel_free(struct rdma_event_channel **channel)
{
	if (*channel)
		rdma_destroy_event_channel(*channel);
	*channel = NULL;
}

int cm_take_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event)
{
	return rdma_get_cm_event(channel, ret_event) ? errno_code() : 0;
}

void cm_ack_event(struct rdma_cm_event *event, struct cm_event *ret_event)
{
	*ret_event = (struct cm_event){
		.type = event->event,
		.status = event->status,
		.id = event->id,
		.context = event->id->context,
		.listen_id = event->listen_id,
		.param = event->param.conn,
	};
	ret_event->param.private_data = NULL;
	if (event->param.conn.private_data) {
		memcpy(ret_event->private_data, event->param.conn.private_data, event->param.conn.private_data_len);
		ret_event->param.private_data = ret_event->private_data;
	} else {
		ret_event->param.private_data_len = 0;
	}
	rdma_ack_cm_event(event);
}

int cm_next_event(struct rdma_event_channel *channel, struct cm_event *ret_event)
{
	struct rdma_cm_event *event;
	int r = cm_take_event(channel, &event);
	if (r == 0)
		cm_ack_event(event, ret_event);
	return r;
}

const char *cm_event_name(enum rdma_cm_event_type type)
{
	return rdma_event_str(type);
}

int cm_id_new(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **ret_id)
{
	return code(rdma_create_id(channel, ret_id, context, RDMA_PS_TCP));
}

int cm_id_free(struct rdma_cm_id **id)
{
	int r = *id ? code(rdma_destroy_id(*id)) : 0;
	if (r == 0)
		*id = NULL;
	return r;
}

int cm_bind(struct rdma_cm_id *id, struct sockaddr *address)
{
	return code(rdma_bind_addr(id, address));
}

int cm_listen(struct rdma_cm_id *id, int backlog)
{
	return code(rdma_listen(id, backlog));
}

int cm_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *dest, int timeout_ms)
{
	return code(rdma_resolve_addr(id, source, dest, timeout_ms));
}

int cm_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	return code(rdma_resolve_route(id, timeout_ms));
}

int cm_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return code(rdma_connect(id, param));
}

int cm_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return code(rdma_accept(id, param));
}

int cm_reject(struct rdma_cm_id *id, const void *private_data, uint8_t size)
{
	return code(rdma_reject(id, private_data, size));
}

int cm_disconnect(struct rdma_cm_id *id)
{
	return code(rdma_disconnect(id));
}

int cm_init_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *ret_attr, int *ret_mask)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0;
	int r = code(rdma_init_qp_attr(id, &attr, &mask));
	if (r < 0)
		return r;
	*ret_attr = attr;
	*ret_mask = mask;
	return 0;
}

int cm_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return code(rdma_create_qp(id, pd, attr));
}

void cm_destroy_qp(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
}

struct sockaddr *cm_peer_addr(struct rdma_cm_id *id)
{
	return rdma_get_peer_addr(id);
}

struct sockaddr *cm_local_addr(struct rdma_cm_id *id)
{
	return rdma_get_local_addr(id);
}

int cm_devices(struct ibv_context ***ret_contexts)
{
	errno = 0;
	struct ibv_context **contexts = rdma_get_devices(NULL);
	if (!contexts)
		return errno_code();
	*ret_contexts = contexts;
	return 0;
}

void cm_device_release(struct ibv_context **context)
{
	/* librdmacm counts for each context in a list, and frees the list. */
	struct ibv_context **list = *context ? calloc(2, sizeof(*list)) : NULL;
	if (list) {
		list[0] = *context;
		rdma_free_devices(list);
	}
	*context = NULL;
}

const char *verbs_device_name(struct ibv_context *context)
{
	return ibv_get_device_name(context->device);
}

int verbs_query_device(struct ibv_context *context, struct ibv_device_attr *ret_attr)
{
	return code(ibv_query_device(context, ret_attr));
}

int verbs_query_odp(struct ibv_context *context, uint32_t *ret_rc_caps)
{
	struct ibv_device_attr_ex attr = { 0 };
	int r = code(ibv_query_device_ex(context, NULL, &attr));
	if (r < 0)
		return r;
	bool has = attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
	*ret_rc_caps = has ? attr.odp_caps.per_transport_caps.rc_odp_caps : 0;
	return 0;
}

int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attr)
{
	return code(ibv_query_port(context, port, ret_attr));
}

int verbs_alloc_pd(struct ibv_context *context, struct ibv_pd **ret_pd)
{
	errno = 0;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	if (!pd)
		return errno_code();
	*ret_pd = pd;
	return 0;
}

int verbs_dealloc_pd(struct ibv_pd **pd)
{
	int r = *pd ? code(ibv_dealloc_pd(*pd)) : 0;
	if (r == 0)
		*pd = NULL;
	return r;
}

int verbs_create_comp_channel(struct ibv_context *context, struct ibv_comp_channel **ret_channel)
{
	errno = 0;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	if (!channel)
		return errno_code();
	int r = fd_set_nonblocking(channel->fd);
	if (r < 0) {
		ibv_destroy_comp_channel(channel);
		return r;
	}
	*ret_channel = channel;
	return 0;
}

int verbs_destroy_comp_channel(struct ibv_comp_channel **channel)
{
	int r = *channel ? code(ibv_destroy_comp_channel(*channel)) : 0;
	if (r == 0)
		*channel = NULL;
	return r;
}

int verbs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
	struct ibv_cq **ret_cq)
{
	errno = 0;
	struct ibv_cq *cq = ibv_create_cq(context, cqe, cq_context, channel, 0);
	if (!cq)
		return errno_code();
	*ret_cq = cq;
	return 0;
}

int verbs_destroy_cq(struct ibv_cq **cq)
{
	int r = *cq ? code(ibv_destroy_cq(*cq)) : 0;
	if (r == 0)
		*cq = NULL;
	return r;
}

int verbs_req_notify_cq(struct ibv_cq *cq)
{
	return code(ibv_req_notify_cq(cq, 0));
}

int verbs_next_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq)
{
	struct ibv_cq *cq;
	void *context;
	if (ibv_get_cq_event(channel, &cq, &context))
		return errno_code();
	ibv_ack_cq_events(cq, 1);
	*ret_cq = cq;
	return 0;
}

int verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *ret_wc)
{
	int n = ibv_poll_cq(cq, max, ret_wc);
	return n >= 0 ? n : -EIO;
}

const char *verbs_wc_status_name(enum ibv_wc_status status)
{
	return ibv_wc_status_str(status);
}

int verbs_set_async_nonblocking(struct ibv_context *context)
{
	return fd_set_nonblocking(context->async_fd);
}

int verbs_next_async_event(struct ibv_context *context, struct ibv_async_event *ret_event)
{
	return ibv_get_async_event(context, ret_event) ? errno_code() : 0;
}

void verbs_ack_async_event(struct ibv_async_event *event)
{
	ibv_ack_async_event(event);
}

const char *verbs_event_name(enum ibv_event_type type)
{
	return ibv_event_type_str(type);
}

int verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret_qp)
{
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(pd, attr);
	if (!qp)
		return errno_code();
	*ret_qp = qp;
	return 0;
}

int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return code(ibv_modify_qp(qp, attr, mask));
}

int verbs_destroy_qp(struct ibv_qp **qp)
{
	int r = *qp ? code(ibv_destroy_qp(*qp)) : 0;
	if (r == 0)
		*qp = NULL;
	return r;
}

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return code(ibv_post_send(qp, wr, &bad));
}

int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	return code(ibv_post_recv(qp, wr, &bad));
}

int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access, struct ibv_mr **ret_mr)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, length, access);
	if (!mr)
		return errno_code();
	*ret_mr = mr;
	return 0;
}

int verbs_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access, struct ibv_mr **ret_mr)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, addr, length, iova, access);
	if (!mr)
		return errno_code();
	*ret_mr = mr;
	return 0;
}

int verbs_dereg_mr(struct ibv_mr **mr)
{
	int r = *mr ? code(ibv_dereg_mr(*mr)) : 0;
	if (r == 0)
		*mr = NULL;
	return r;
}
