/* rdma.h: every call into libibverbs and librdmacm, with one way to report errors. Tests replace this file. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_RDMA_H
#define BASE_RDMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/*
 * The libraries report errors as NULL + errno, as a positive errno, or as -1 + errno. Here every function that can fail
 * returns 0 or a negative errno, and results go through `ret_` pointers, written only on success. A function that
 * destroys takes NULL inside and nulls the pointer when it succeeded. None blocks unless it says so.
 */

/* Once, before any other call, of a program that is all ours: what was on a removed device can be destroyed without an
 * error. */
void verbs_init(void);

/* Whether the kernel offers rdma_cm to programs: librdmacm has one error for that and for no device. */
bool cm_is_there(void);

/* What rdma_cm says of an event, copied, with the event acknowledged: an id may be destroyed at once. */
struct cm_event {
	enum rdma_cm_event_type type;
	int status;            /* as librdmacm gives it: a negative errno, or for REJECTED the reason of the CM */
	struct rdma_cm_id *id; /* not to be looked into where another thread may be freeing it */
	void *context;         /* the id's; for CONNECT_REQUEST the listener's */
	struct rdma_cm_id *listen_id; /* CONNECT_REQUEST only */
	struct rdma_conn_param param; /* of connection events; its private_data points below, or is NULL */
	uint8_t private_data[256];
};

/* A non-blocking channel of events; its fd is channel->fd. */
int cm_channel_new(struct rdma_event_channel **ret_channel);
void cm_channel_free(struct rdma_event_channel **channel);
/* The next event as librdmacm gives it, whose id cannot be destroyed until cm_ack_event(); -EAGAIN where there is none.
 * For a connection request it waits for librdmacm's lock, under which devices are opened and closed, and may open one. */
int cm_take_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event);
void cm_ack_event(struct rdma_cm_event *event, struct cm_event *ret_event);
/* Both: for those to whom nobody connects. */
int cm_next_event(struct rdma_event_channel *channel, struct cm_event *ret_event);
const char *cm_event_name(enum rdma_cm_event_type type);

int cm_id_new(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **ret_id);
/* Blocks until the kernel lets go of the id, up to a minute: never on the loop. */
int cm_id_free(struct rdma_cm_id **id);
int cm_bind(struct rdma_cm_id *id, struct sockaddr *address);
int cm_listen(struct rdma_cm_id *id, int backlog);
int cm_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *dest, int timeout_ms);
int cm_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int cm_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int cm_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int cm_reject(struct rdma_cm_id *id, const void *private_data, uint8_t size);
int cm_disconnect(struct rdma_cm_id *id);
int cm_init_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *ret_attr, int *ret_mask);
/* A queue pair that rdma_cm moves through its states itself; id->qp. */
int cm_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void cm_destroy_qp(struct rdma_cm_id *id);
struct sockaddr *cm_peer_addr(struct rdma_cm_id *id);
struct sockaddr *cm_local_addr(struct rdma_cm_id *id);
/* The contexts that rdma_cm uses itself, so that a PD made on one fits the ids of that device; -ENODEV where there are
 * none. The array ends with NULL and is the caller's to free(); so is each context to release: it stays open until then,
 * and a removed device's is closed then. May block: workers only, but at the start. */
int cm_devices(struct ibv_context ***ret_contexts);
void cm_device_release(struct ibv_context **context);

const char *verbs_device_name(struct ibv_context *context);
int verbs_query_device(struct ibv_context *context, struct ibv_device_attr *ret_attr);
/* enum ibv_odp_transport_cap_bits of RC queue pairs; 0: no on-demand paging. */
int verbs_query_odp(struct ibv_context *context, uint32_t *ret_rc_caps);
int verbs_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *ret_attr);
int verbs_alloc_pd(struct ibv_context *context, struct ibv_pd **ret_pd);
int verbs_dealloc_pd(struct ibv_pd **pd);
/* A non-blocking channel of completion events; its fd is channel->fd. */
int verbs_create_comp_channel(struct ibv_context *context, struct ibv_comp_channel **ret_channel);
int verbs_destroy_comp_channel(struct ibv_comp_channel **channel);
int verbs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
	struct ibv_cq **ret_cq);
int verbs_destroy_cq(struct ibv_cq **cq);
int verbs_req_notify_cq(struct ibv_cq *cq);
/* The CQ of the next completion event, acknowledged; -EAGAIN where there is none. */
int verbs_next_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq);
/* The number of completions written to `ret_wc`, or a negative errno. */
int verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *ret_wc);
const char *verbs_wc_status_name(enum ibv_wc_status status);
/* The async event fd made non-blocking. */
int verbs_set_async_nonblocking(struct ibv_context *context);
/* The next async event; -EAGAIN where there is none. What it names is not destroyed before it is acknowledged. */
int verbs_next_async_event(struct ibv_context *context, struct ibv_async_event *ret_event);
void verbs_ack_async_event(struct ibv_async_event *event);
const char *verbs_event_name(enum ibv_event_type type);

int verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret_qp);
int verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int verbs_destroy_qp(struct ibv_qp **qp);
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr);

/* Both pin memory and take as long as that takes: workers only, in the daemon. */
int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access, struct ibv_mr **ret_mr);
int verbs_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access, struct ibv_mr **ret_mr);
int verbs_dereg_mr(struct ibv_mr **mr);

#endif
