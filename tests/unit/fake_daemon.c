/* fake_daemon.c: stands in for base/rdma.c under the library: a daemon in the same process that does as a test says. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_daemon.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "wire/catalog.h"

enum { QUEUE = 1024, CATALOG_KEY = 1, CATALOG_SIZE = 64 << 10, KEYS = 32 };

struct fake_cq {
	struct ibv_cq base;
	struct ibv_wc queue[QUEUE];
	unsigned int head, tail;
	bool armed, told;
	bool left_behind;
};

struct held {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t inlined[256];
};

struct fake_daemon fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device device = { .name = "fake0" };
static struct ibv_context context = { .device = &device };
static uint8_t catalog[CATALOG_SIZE];
static bool revoked[KEYS];
static struct held held[QUEUE];
static unsigned int held_head, held_tail;
static struct cm_event cm_queue[QUEUE];
static unsigned int cm_head, cm_tail;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;
static struct ibv_qp *qp;
static bool qp_error;
static uint64_t receive_ids[QUEUE];
static uint8_t *receives[QUEUE];
static unsigned int receive_head, receive_tail;
static int objects;
static void *left_behind[QUEUE]; /* of devices that have gone */
static unsigned int left_behind_count;
static uint32_t pd_number; /* of the last one: the key of what is registered with it */
static struct {
	const char *function;
	unsigned int skip;
	int code;
} failure;

void fake_fail(const char *function, unsigned int skip, int code)
{
	failure.function = function;
	failure.skip = skip;
	failure.code = code;
}

static int injected(const char *function)
{
	if (!failure.function || strcmp(failure.function, function) != 0)
		return 0;
	if (failure.skip) {
		failure.skip--;
		return 0;
	}
	failure.function = NULL;
	return failure.code;
}

#define INJECT()                               \
	do {                                   \
		int fail = injected(__func__); \
		if (fail)                      \
			return fail;           \
	} while (0)

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ck_assert_int_eq(write(fd, &one, sizeof(one)), sizeof(one));
}

static void clear_fd(int fd)
{
	uint64_t value;
	ssize_t ignored = read(fd, &value, sizeof(value));
	(void)ignored;
}

static void *object(size_t size)
{
	__atomic_add_fetch(&objects, 1, __ATOMIC_SEQ_CST);
	return calloc(1, size);
}

static void object_free(void *memory)
{
	__atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST);
	free(memory);
}

/* -EIO where the device has gone: the object is nobody's any more then. */
static int destroy(void *memory)
{
	if (!fake.gone) {
		object_free(memory);
		return 0;
	}
	__atomic_sub_fetch(&objects, 1, __ATOMIC_SEQ_CST);
	left_behind[left_behind_count++] = memory;
	return -EIO;
}

int fake_objects(void)
{
	for (int i = 0; i < 2000 && __atomic_load_n(&objects, __ATOMIC_SEQ_CST); i++)
		usleep(1000);
	return __atomic_load_n(&objects, __ATOMIC_SEQ_CST);
}

/*
 * The daemon
 */

struct mrshare_entry fake_entry(uint64_t mapping_id, uint64_t offset, uint64_t size, uint8_t access)
{
	return (struct mrshare_entry){
		.mapping_id = mapping_id,
		.shm_offset = offset,
		.access = access,
		.view = { .rkey = (uint32_t)(100 + mapping_id), .addr = offset, .size = size, .device_name = "fake0" },
	};
}

static struct catalog_root root;

void fake_spoil_root(uint32_t views, uint32_t bytes)
{
	struct catalog_root spoilt = root;
	spoilt.view_count += views;
	spoilt.slot_size += bytes;
	if (bytes < CATALOG_SIZE)
		spoilt.slot_crc = catalog_crc(catalog + 64, spoilt.slot_size);
	catalog_root_write(&spoilt, catalog);
}

void fake_publish(uint64_t generation, const struct mrshare_entry *entries, size_t count)
{
	pthread_mutex_lock(&lock);
	size_t size = 0;
	for (size_t i = 0; i < count; i++) {
		ssize_t n = catalog_entry_write(&entries[i], catalog + 64 + size, CATALOG_SIZE - 64 - size);
		ck_assert_int_gt(n, 0);
		size += (size_t)n;
	}
	root = (struct catalog_root){
		.generation = generation,
		.slot_offset = CATALOG_ROOT_SIZE,
		.slot_size = (uint32_t)size,
		.view_count = (uint32_t)count,
		.slot_crc = catalog_crc(catalog + 64, size),
	};
	catalog_root_write(&root, catalog);
	fake.generation = generation;
	pthread_mutex_unlock(&lock);
}

void fake_reset(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.granted = MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC;
	fake.keepalive_s = 5;
	const struct mrshare_entry entry =
		fake_entry(1, 0, FAKE_REGION_SIZE / 2, MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC);
	fake_publish(1, &entry, 1);
}

void fake_revoke(uint64_t mapping_id)
{
	revoked[mapping_id] = true;
}

static void push_completion(struct ibv_cq *base, const struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	cq->queue[cq->tail++ % QUEUE] = *wc;
	if (!cq->armed)
		return;
	cq->armed = false;
	cq->told = true;
	signal_fd(base->channel->fd);
}

static void send_frame(const void *bytes, size_t size)
{
	if (!qp || qp_error)
		return;
	ck_assert_uint_ne(receive_head, receive_tail);
	unsigned int i = receive_head++ % QUEUE;
	memcpy(receives[i], bytes, size);
	struct ibv_wc wc = { .wr_id = receive_ids[i], .opcode = IBV_WC_RECV, .byte_len = (uint32_t)size };
	push_completion(qp->recv_cq, &wc);
}

void fake_send(const void *bytes, size_t size)
{
	pthread_mutex_lock(&lock);
	send_frame(bytes, size);
	pthread_mutex_unlock(&lock);
}

void fake_notice(uint32_t sequence, uint64_t generation, const uint64_t *withdrawn, uint32_t count)
{
	struct peer_frame frame = { .type = PEER_FRAME_NOTICE };
	uint8_t bytes[PEER_FRAME_SIZE_MAX];
	frame.notice.sequence = sequence;
	frame.notice.generation = generation;
	frame.notice.withdrawn_count = count;
	frame.notice.slot_offset = CATALOG_ROOT_SIZE;
	if (withdrawn)
		memcpy(frame.notice.withdrawn, withdrawn, count * sizeof(*withdrawn));
	fake_send(bytes, (size_t)peer_frame_write(&frame, bytes));
}

static void push_cm_event(enum rdma_cm_event_type type, int status, const void *data, size_t size)
{
	if (!channel)
		return;
	struct cm_event *event = &cm_queue[cm_tail++ % QUEUE];
	*event = (struct cm_event){ .type = type, .status = status, .id = id };
	memcpy(event->private_data, data, size);
	event->param.private_data_len = (uint8_t)size;
	signal_fd(channel->fd);
}

static void flush(void)
{
	qp_error = true;
	if (!qp)
		return;
	while (held_head != held_tail) {
		struct ibv_wc wc = { .wr_id = held[held_head++ % QUEUE].wr.wr_id, .status = IBV_WC_WR_FLUSH_ERR };
		push_completion(qp->send_cq, &wc);
	}
	while (receive_head != receive_tail) {
		struct ibv_wc wc = { .wr_id = receive_ids[receive_head++ % QUEUE], .status = IBV_WC_WR_FLUSH_ERR };
		push_completion(qp->recv_cq, &wc);
	}
	fake.on_wire = 0;
}

void fake_disconnect(void)
{
	pthread_mutex_lock(&lock);
	push_cm_event(RDMA_CM_EVENT_DISCONNECTED, 0, "", 0);
	flush();
	pthread_mutex_unlock(&lock);
}

static void take_ack(const void *bytes, size_t size)
{
	struct peer_frame frame;
	ck_assert_int_eq(peer_frame_read(bytes, size, &frame), 0);
	ck_assert_int_eq(frame.type, PEER_FRAME_ACK);
	fake.ack = frame.ack;
	fake.acks++;
}

static uint8_t *remote_memory(uint32_t rkey, uint64_t addr, size_t size)
{
	if (rkey == CATALOG_KEY)
		return addr + size <= CATALOG_SIZE ? catalog + addr : NULL;
	if (rkey < 100 || rkey >= 100 + KEYS || revoked[rkey - 100] || addr + size > FAKE_REGION_SIZE)
		return NULL;
	return fake.region + addr;
}

static enum ibv_wc_status execute(const struct held *job)
{
	const struct ibv_send_wr *wr = &job->wr;
	uint8_t *local = wr->send_flags & IBV_SEND_INLINE ? (uint8_t *)(uintptr_t)job->inlined
							  : (uint8_t *)(uintptr_t)job->sge.addr;
	size_t size = job->sge.length;
	if (!(wr->send_flags & IBV_SEND_INLINE) && job->sge.lkey != pd_number)
		return IBV_WC_LOC_PROT_ERR;
	if (wr->opcode == IBV_WR_SEND) {
		take_ack(local, size);
		return IBV_WC_SUCCESS;
	}
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint8_t *remote = atomic ? remote_memory(wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, size)
				 : remote_memory(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, size);
	if (!remote)
		return IBV_WC_REM_ACCESS_ERR;
	uint64_t value;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		memcpy(remote, local, size);
		break;
	case IBV_WR_RDMA_READ:
		memcpy(local, remote, size);
		fake.reads++;
		if (wr->wr.rdma.rkey == CATALOG_KEY && wr->wr.rdma.remote_addr && fake.torn) {
			fake.torn--;
			local[0] ^= 1;
		}
		break;
	default:
		ck_assert_uint_eq(size, sizeof(value));
		memcpy(&value, remote, size);
		memcpy(local, &value, size);
		if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			value += wr->wr.atomic.compare_add;
		else if (value == wr->wr.atomic.compare_add)
			value = wr->wr.atomic.swap;
		memcpy(remote, &value, size);
	}
	return IBV_WC_SUCCESS;
}

static void complete_first(enum ibv_wc_status status)
{
	const struct held *job = &held[held_head++ % QUEUE];
	if (status == IBV_WC_SUCCESS)
		status = execute(job);
	fake.on_wire--;
	struct ibv_wc wc = { .wr_id = job->wr.wr_id, .status = status };
	if (status != IBV_WC_SUCCESS || job->wr.send_flags & IBV_SEND_SIGNALED)
		push_completion(qp->send_cq, &wc);
	if (status != IBV_WC_SUCCESS)
		flush();
}

void fake_release(unsigned int count)
{
	pthread_mutex_lock(&lock);
	while (count-- && held_head != held_tail)
		complete_first(IBV_WC_SUCCESS);
	pthread_mutex_unlock(&lock);
}

void fake_fail_first(enum ibv_wc_status status)
{
	pthread_mutex_lock(&lock);
	complete_first(status);
	pthread_mutex_unlock(&lock);
}

static void welcome(void)
{
	struct peer_frame frame = { .type = PEER_FRAME_WELCOME };
	uint8_t bytes[PEER_FRAME_SIZE_MAX];
	frame.welcome.granted = fake.granted;
	frame.welcome.generation = fake.generation;
	frame.welcome.catalog =
		(struct mrshare_view){ .rkey = CATALOG_KEY, .size = CATALOG_SIZE, .device_name = "fake0" };
	send_frame(bytes, (size_t)peer_frame_write(&frame, bytes));
}

bool fake_welcome(void)
{
	pthread_mutex_lock(&lock);
	bool asked = qp && fake.connects;
	if (asked)
		welcome();
	pthread_mutex_unlock(&lock);
	return asked;
}

static void answer_request(const struct rdma_conn_param *param)
{
	struct peer_request request;
	ck_assert_int_eq(peer_request_read(param->private_data, param->private_data_len, &request), 0);
	fake.request_flags = request.flags;
	fake.connects++;
	if (fake.silent == FAKE_REQUEST)
		return;
	if (fake.failing == FAKE_REQUEST) {
		push_cm_event(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "", 0);
		return;
	}
	if (fake.reject) {
		struct peer_reject reject = { .code = PEER_REJECT_FULL };
		uint8_t bytes[PEER_REJECT_SIZE_MAX];
		strcpy(reject.text, fake.reject);
		size_t size = fake.reject[0] ? peer_reject_write(&reject, bytes) : 0;
		push_cm_event(RDMA_CM_EVENT_REJECTED, 8, bytes, size);
		return;
	}
	struct peer_accept accept = { .version = PEER_VERSION, .keepalive = (uint16_t)fake.keepalive_s };
	uint8_t bytes[PEER_ACCEPT_SIZE];
	accept.server_id[0] = fake.server_id;
	peer_accept_write(&accept, bytes);
	push_cm_event(RDMA_CM_EVENT_ESTABLISHED, 0, bytes, sizeof(bytes));
	if (fake.silent == FAKE_WELCOME)
		return;
	if (fake.failing == FAKE_WELCOME)
		flush();
	else
		welcome();
}

/*
 * rdma_cm
 */

int cm_channel_new(struct rdma_event_channel **ret_channel)
{
	INJECT();
	pthread_mutex_lock(&lock);
	*ret_channel = channel = object(sizeof(*channel));
	channel->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	cm_head = cm_tail = 0;
	pthread_mutex_unlock(&lock);
	return 0;
}

void cm_channel_free(struct rdma_event_channel **channel_ptr)
{
	if (!*channel_ptr)
		return;
	pthread_mutex_lock(&lock);
	channel = *channel_ptr == channel ? NULL : channel;
	close((*channel_ptr)->fd);
	object_free(*channel_ptr);
	*channel_ptr = NULL;
	pthread_mutex_unlock(&lock);
}

int cm_next_event(struct rdma_event_channel *of, struct cm_event *ret_event)
{
	INJECT();
	int r = -EAGAIN;
	pthread_mutex_lock(&lock);
	if (cm_head != cm_tail) {
		*ret_event = cm_queue[cm_head++ % QUEUE];
		ret_event->param.private_data = ret_event->param.private_data_len ? ret_event->private_data : NULL;
		r = 0;
	} else {
		clear_fd(of->fd);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

const char *cm_event_name(enum rdma_cm_event_type type)
{
	return "event";
}

int cm_id_new(struct rdma_event_channel *of, void *id_context, struct rdma_cm_id **ret_id)
{
	INJECT();
	pthread_mutex_lock(&lock);
	*ret_id = id = object(sizeof(*id));
	id->channel = of;
	pthread_mutex_unlock(&lock);
	return 0;
}

int cm_id_free(struct rdma_cm_id **id_ptr)
{
	if (*id_ptr)
		object_free(*id_ptr);
	*id_ptr = NULL;
	return 0;
}

int cm_resolve_addr(struct rdma_cm_id *of, struct sockaddr *source, struct sockaddr *dest, int timeout_ms)
{
	INJECT();
	ck_assert_int_gt(timeout_ms, 0);
	if (fake.silent == FAKE_ADDRESS)
		return 0;
	of->verbs = &context;
	of->port_num = 1;
	pthread_mutex_lock(&lock);
	if (fake.address_timeouts) {
		fake.address_timeouts--;
		push_cm_event(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT, "", 0);
	} else if (fake.failing == FAKE_ADDRESS) {
		push_cm_event(RDMA_CM_EVENT_ADDR_ERROR, -ENETUNREACH, "", 0);
	} else {
		push_cm_event(RDMA_CM_EVENT_ADDR_RESOLVED, 0, "", 0);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

int cm_resolve_route(struct rdma_cm_id *of, int timeout_ms)
{
	INJECT();
	pthread_mutex_lock(&lock);
	if (fake.failing == FAKE_ROUTE)
		push_cm_event(RDMA_CM_EVENT_ROUTE_ERROR, -ENETUNREACH, "", 0);
	else if (fake.silent != FAKE_ROUTE)
		push_cm_event(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, "", 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

int cm_connect(struct rdma_cm_id *of, struct rdma_conn_param *param)
{
	INJECT();
	pthread_mutex_lock(&lock);
	answer_request(param);
	pthread_mutex_unlock(&lock);
	return 0;
}

int cm_disconnect(struct rdma_cm_id *of)
{
	return 0;
}

int cm_create_qp(struct rdma_cm_id *of, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	INJECT();
	if (fake.no_inline && attr->cap.max_inline_data)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	qp = object(sizeof(*qp));
	qp->context = &context;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp_error = false;
	held_head = held_tail = receive_head = receive_tail = 0;
	fake.on_wire = 0;
	of->qp = qp;
	pthread_mutex_unlock(&lock);
	return 0;
}

void cm_destroy_qp(struct rdma_cm_id *of)
{
	pthread_mutex_lock(&lock);
	if (of->qp)
		object_free(of->qp);
	of->qp = qp = NULL;
	pthread_mutex_unlock(&lock);
}

/*
 * Verbs
 */

const char *verbs_device_name(struct ibv_context *of)
{
	return of->device->name;
}

int verbs_query_device(struct ibv_context *of, struct ibv_device_attr *ret_attr)
{
	INJECT();
	*ret_attr = (struct ibv_device_attr){ .max_qp_wr = 4096, .max_qp_init_rd_atom = 16 };
	return 0;
}

int verbs_query_port(struct ibv_context *of, uint8_t port, struct ibv_port_attr *ret_attr)
{
	INJECT();
	*ret_attr = (struct ibv_port_attr){ .max_msg_sz = 1u << 30 };
	return 0;
}

int verbs_alloc_pd(struct ibv_context *of, struct ibv_pd **ret_pd)
{
	INJECT();
	fake.gone = false;
	*ret_pd = object(sizeof(**ret_pd));
	(*ret_pd)->context = of;
	(*ret_pd)->handle = ++pd_number;
	return 0;
}

int verbs_dealloc_pd(struct ibv_pd **pd)
{
	int r = *pd ? destroy(*pd) : 0;
	*pd = r == 0 ? NULL : *pd;
	return r;
}

int verbs_create_comp_channel(struct ibv_context *of, struct ibv_comp_channel **ret_channel)
{
	INJECT();
	*ret_channel = object(sizeof(**ret_channel));
	(*ret_channel)->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return 0;
}

int verbs_destroy_comp_channel(struct ibv_comp_channel **channel_ptr)
{
	if (*channel_ptr && !fake.gone)
		close((*channel_ptr)->fd);
	int r = *channel_ptr ? destroy(*channel_ptr) : 0;
	*channel_ptr = r == 0 ? NULL : *channel_ptr;
	return r;
}

int verbs_create_cq(struct ibv_context *of, int cqe, void *cq_context, struct ibv_comp_channel *comp_channel,
	struct ibv_cq **ret_cq)
{
	INJECT();
	struct fake_cq *cq = object(sizeof(*cq));
	cq->base.channel = comp_channel;
	/* So that a channel finds its one CQ. */
	cq->base.context = of;
	comp_channel->context = (struct ibv_context *)(void *)cq;
	*ret_cq = &cq->base;
	return 0;
}

int verbs_destroy_cq(struct ibv_cq **cq)
{
	if (*cq && fake.gone)
		((struct fake_cq *)*cq)->left_behind = true;
	int r = *cq ? destroy(*cq) : 0;
	*cq = r == 0 ? NULL : *cq;
	return r;
}

int verbs_req_notify_cq(struct ibv_cq *cq)
{
	INJECT();
	pthread_mutex_lock(&lock);
	((struct fake_cq *)cq)->armed = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

int verbs_next_cq_event(struct ibv_comp_channel *of, struct ibv_cq **ret_cq)
{
	struct fake_cq *cq = (struct fake_cq *)(void *)of->context;
	INJECT();
	ck_assert_msg(!cq || !cq->left_behind, "an event of a device that has gone is asked for");
	pthread_mutex_lock(&lock);
	bool told = cq && cq->told;
	if (told)
		cq->told = false;
	clear_fd(of->fd);
	pthread_mutex_unlock(&lock);
	if (!told)
		return -EAGAIN;
	*ret_cq = &cq->base;
	return 0;
}

int verbs_poll_cq(struct ibv_cq *base, int max, struct ibv_wc *ret_wc)
{
	INJECT();
	struct fake_cq *cq = (struct fake_cq *)base;
	ck_assert_msg(!cq->left_behind, "a completion of a device that has gone is asked for");
	int n = 0;
	pthread_mutex_lock(&lock);
	while (n < max && cq->head != cq->tail)
		ret_wc[n++] = cq->queue[cq->head++ % QUEUE];
	pthread_mutex_unlock(&lock);
	return n;
}

const char *verbs_wc_status_name(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "status";
}

int verbs_modify_qp(struct ibv_qp *of, struct ibv_qp_attr *attr, int mask)
{
	INJECT();
	pthread_mutex_lock(&lock);
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR && !fake.hold && !qp_error)
		flush();
	pthread_mutex_unlock(&lock);
	return 0;
}

int verbs_post_send(struct ibv_qp *of, struct ibv_send_wr *wr)
{
	INJECT();
	pthread_mutex_lock(&lock);
	struct held *job = &held[held_tail++ % QUEUE];
	job->wr = *wr;
	job->sge = wr->sg_list[0];
	if (wr->send_flags & IBV_SEND_INLINE) {
		memcpy(job->inlined, (const void *)(uintptr_t)job->sge.addr, job->sge.length);
		fake.inlines++;
	}
	fake.posts++;
	fake.signals += wr->send_flags & IBV_SEND_SIGNALED ? 1 : 0;
	fake.on_wire++;
	fake.on_wire_max = fake.on_wire > fake.on_wire_max ? fake.on_wire : fake.on_wire_max;
	while (!fake.hold && !qp_error && held_head != held_tail)
		complete_first(IBV_WC_SUCCESS);
	if (qp_error && held_head != held_tail)
		flush();
	pthread_mutex_unlock(&lock);
	return 0;
}

int verbs_post_recv(struct ibv_qp *of, struct ibv_recv_wr *wr)
{
	INJECT();
	pthread_mutex_lock(&lock);
	receive_ids[receive_tail % QUEUE] = wr->wr_id;
	receives[receive_tail++ % QUEUE] = (uint8_t *)(uintptr_t)wr->sg_list[0].addr;
	pthread_mutex_unlock(&lock);
	return 0;
}

int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access, struct ibv_mr **ret_mr)
{
	INJECT();
	if (fake.on_reg)
		fake.on_reg(length);
	struct ibv_mr *mr = object(sizeof(*mr));
	mr->addr = addr;
	mr->length = length;
	mr->lkey = pd->handle;
	*ret_mr = mr;
	return 0;
}

int verbs_dereg_mr(struct ibv_mr **mr)
{
	if (*mr && fake.on_dereg)
		fake.on_dereg();
	int r = *mr ? destroy(*mr) : 0;
	*mr = r == 0 ? NULL : *mr;
	return r;
}

/*
 * For tests
 */

struct mrshare *fake_connected(bool thread)
{
	struct mrshare *conn;
	fake_reset();
	ck_assert_int_eq(mrshare_new(&conn), 0);
	ck_assert_int_eq(mrshare_set_write(conn, true), 0);
	ck_assert_int_eq(mrshare_set_thread(conn, thread), 0);
	int r = mrshare_connect(conn, "10.0.0.1");
	ck_assert_msg(r == 0, "%d: %s", r, mrshare_error());
	return conn;
}

void fake_wait_dispatch(struct mrshare *conn)
{
	struct pollfd fd = { .fd = mrshare_fd(conn), .events = POLLIN };
	poll(&fd, 1, 1);
	ck_assert_int_eq(mrshare_dispatch(conn), 0);
}
