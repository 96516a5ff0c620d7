/* fake_rdma.h: stands in for base/rdma.c: devices, queue pairs and connections that do as a test says. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_RDMA_H
#define FAKE_RDMA_H

#include "base/rdma.h"

enum { FAKE_DEVICES = 2 };

/* fake0 at 10.0.0.1, fake1 at 10.0.0.2. A test may change what they say of themselves. */
extern struct ibv_device_attr fake_attr[FAKE_DEVICES];
extern uint32_t fake_odp_caps;
struct ibv_context *fake_context(unsigned int device);

/* Whether the device is not to be found; what is open on it goes on until it is told so by an event. */
void fake_absent(unsigned int device, bool is_absent);
/* Of cm_devices(), not released. */
int fake_context_holds(void);

/* The call after the next `skip` ones to that function of rdma.h, and each of `times` - 1 after it, fails. */
void fake_fail(const char *function, unsigned int skip, unsigned int times, int code);
/* How often that function was called, failed calls counted. */
unsigned int fake_calls(const char *function);
/* From now on `hook` runs at the beginning of each call to that function, which is counted already. */
void fake_on_call(const char *function, void (*hook)(void));

/* How many there are now. */
struct fake_counts {
	int pds, mrs, cqs, qps, ids, comp_channels;
	int cm_events; /* taken and not acknowledged */
};
struct fake_counts fake_counts(void);

/* The MRs in the order of their registration, deregistered ones not counted; NULL beyond the last. */
struct fake_mr {
	struct ibv_mr base;
	uint64_t iova;
	int access;
};
const struct fake_mr *fake_mr(unsigned int index);

/* What a connection has come to, as its peer sees it. */
struct fake_connection {
	struct rdma_cm_id *id; /* NULL: destroyed */
	bool accepted, rejected, disconnected;
	uint8_t private_data[256];
	struct rdma_conn_param param; /* of the accept */
	struct fake_qp *qp;           /* NULL: not accepted, or destroyed */
};

struct fake_qp {
	struct ibv_qp base;
	struct fake_qp *next;
	enum ibv_qp_state state;
	struct ibv_qp_attr attr; /* what was set last */
	uint64_t receive_ids[16];
	uint8_t *receives[16];
	unsigned int receive_count;
	uint8_t sent[256]; /* the SEND that is on its way */
	size_t sent_size;  /* 0: none */
	uint64_t send_id;
};

/* A peer at an address such as "10.0.0.9" asks to connect on a device. */
struct fake_connection *fake_request(
	unsigned int device, const char *address, const void *data, uint8_t size, uint8_t initiator_depth);
/* rdma_cm reports something of it. */
void fake_event(struct fake_connection *connection, enum rdma_cm_event_type type);
/* The SEND on its way ends thus. */
void fake_complete_send(struct fake_connection *connection, enum ibv_wc_status status);
/* A frame arrives from the peer; the opcode is IBV_WC_RECV where the peer plays by the rules. */
void fake_receive(struct fake_connection *connection, const void *frame, size_t size, enum ibv_wc_opcode opcode);
/* An async event of a device. */
void fake_async_event(unsigned int device, enum ibv_event_type type);
/* One of a queue pair. */
void fake_qp_event(struct fake_connection *connection, enum ibv_event_type type);

#endif
