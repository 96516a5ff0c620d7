/* fake_rdma.c: stands in for base/rdma.c: devices, queue pairs and connections that do as a test says. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "fake_rdma.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MRS_MAX = 256, CONNECTIONS_MAX = 2048, QUEUE = 8192 };

struct ibv_device_attr fake_attr[FAKE_DEVICES] = {
	{ .max_mr_size = UINT64_MAX,
		.max_cqe = 4096,
		.max_qp_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.vendor_id = 0x15b3 },
	{ .max_mr_size = UINT64_MAX,
		.max_cqe = 4096,
		.max_qp_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.vendor_id = 0x15b3 },
};

struct fake_cq {
	struct ibv_cq base;
	struct ibv_wc queue[QUEUE];
	unsigned int head, tail;
	bool armed, told;
	struct fake_cq *next;
};

/* Calls come from the loop's thread and from workers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_counts counts;
static struct ibv_device devices[FAKE_DEVICES] = { { .name = "fake0" }, { .name = "fake1" } };
static struct ibv_context contexts[FAKE_DEVICES];
static struct ibv_async_event async_events[FAKE_DEVICES][16];
static unsigned int async_count[FAKE_DEVICES];
static bool absent[FAKE_DEVICES];
static int context_holds[FAKE_DEVICES];
static struct fake_mr *mrs[MRS_MAX];
static struct fake_cq *cqs;
static struct fake_qp *qps;
static struct fake_connection *connections[CONNECTIONS_MAX];
static unsigned int connection_count;
static struct cm_event cm_queue[QUEUE];
static unsigned int cm_head, cm_tail;
static struct rdma_event_channel cm_channel = { .fd = -1 };
static uint32_t next_number = 1;

static struct {
	const char *function;
	unsigned int skip, times;
	int code;
} failures[8];

void fake_fail(const char *function, unsigned int skip, unsigned int times, int code)
{
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		if (failures[i].times)
			continue;
		failures[i].function = function;
		failures[i].skip = skip;
		failures[i].times = times;
		failures[i].code = code;
		return;
	}
	abort();
}

static struct {
	const char *function;
	unsigned int count;
	void (*hook)(void);
} calls[64];

/* The entry of a function in `calls`; under the lock. */
static unsigned int call_index(const char *function)
{
	unsigned int i = 0;
	while (calls[i].function && strcmp(calls[i].function, function) != 0)
		i++;
	assert(i + 1 < sizeof(calls) / sizeof(calls[0]));
	calls[i].function = function;
	return i;
}

unsigned int fake_calls(const char *function)
{
	pthread_mutex_lock(&lock);
	unsigned int out = calls[call_index(function)].count;
	pthread_mutex_unlock(&lock);
	return out;
}

void fake_on_call(const char *function, void (*hook)(void))
{
	pthread_mutex_lock(&lock);
	calls[call_index(function)].hook = hook;
	pthread_mutex_unlock(&lock);
}

static int injected(const char *function)
{
	int code = 0;
	pthread_mutex_lock(&lock);
	unsigned int call = call_index(function);
	calls[call].count++;
	void (*hook)(void) = calls[call].hook;
	pthread_mutex_unlock(&lock);
	if (hook)
		hook();

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]) && code == 0; i++) {
		if (!failures[i].times || strcmp(failures[i].function, function) != 0)
			continue;
		if (failures[i].skip) {
			failures[i].skip--;
			continue;
		}
		failures[i].times--;
		code = failures[i].code;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

/* Begins a function that can be told to fail. */
#define INJECT()                               \
	do {                                   \
		int fail = injected(__func__); \
		if (fail)                      \
			return fail;           \
	} while (0)

static void count(int *counter, int by)
{
	pthread_mutex_lock(&lock);
	*counter += by;
	pthread_mutex_unlock(&lock);
}

struct fake_counts fake_counts(void)
{
	pthread_mutex_lock(&lock);
	struct fake_counts out = counts;
	pthread_mutex_unlock(&lock);
	return out;
}

static void signal_fd(int fd)
{
	uint64_t one = 1;
	ssize_t ignored = write(fd, &one, sizeof(one));
	(void)ignored;
}

static void clear_fd(int fd)
{
	uint64_t value;
	ssize_t ignored = read(fd, &value, sizeof(value));
	(void)ignored;
}

static int new_fd(void)
{
	return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static unsigned int index_of(const struct ibv_context *context)
{
	return (unsigned int)(context - contexts);
}

struct ibv_context *fake_context(unsigned int device)
{
	struct ibv_context *context = &contexts[device];
	if (!context->device) {
		context->device = &devices[device];
		context->async_fd = new_fd();
	}
	return context;
}

void fake_absent(unsigned int device, bool is_absent)
{
	pthread_mutex_lock(&lock);
	absent[device] = is_absent;
	pthread_mutex_unlock(&lock);
}

static bool is_absent(unsigned int device)
{
	pthread_mutex_lock(&lock);
	bool out = absent[device];
	pthread_mutex_unlock(&lock);
	return out;
}

int fake_context_holds(void)
{
	pthread_mutex_lock(&lock);
	int sum = 0;
	for (unsigned int i = 0; i < FAKE_DEVICES; i++)
		sum += context_holds[i];
	pthread_mutex_unlock(&lock);
	return sum;
}

/*
 * rdma_cm
 */

void verbs_init(void)
{
}

bool cm_is_there(void)
{
	return true;
}

int cm_channel_new(struct rdma_event_channel **ret_channel)
{
	INJECT();
	bool any = false;
	for (unsigned int i = 0; i < FAKE_DEVICES; i++)
		any |= !is_absent(i);
	if (!any)
		return -ENODEV;
	cm_channel.fd = new_fd();
	*ret_channel = &cm_channel;
	return 0;
}

void cm_channel_free(struct rdma_event_channel **channel)
{
	if (*channel)
		close((*channel)->fd);
	*channel = NULL;
}

/* What librdmacm gives, by a pointer to it. */
struct fake_cm_event {
	struct rdma_cm_event base;
	struct cm_event event;
};

int cm_take_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret_event)
{
	INJECT();
	struct fake_cm_event *taken = calloc(1, sizeof(*taken));
	int r = -EAGAIN;
	pthread_mutex_lock(&lock);
	while (r < 0 && cm_head != cm_tail) {
		taken->event = cm_queue[cm_head++ % QUEUE];
		r = taken->event.id ? 0 : -EAGAIN; /* NULL: its id has been freed meanwhile */
	}
	if (r < 0)
		clear_fd(channel->fd);
	counts.cm_events += r == 0;
	pthread_mutex_unlock(&lock);
	if (r < 0)
		free(taken);
	else
		*ret_event = &taken->base;
	return r;
}

void cm_ack_event(struct rdma_cm_event *event, struct cm_event *ret_event)
{
	struct fake_cm_event *taken = (struct fake_cm_event *)event;
	*ret_event = taken->event;
	ret_event->context = ret_event->id->context;
	if (ret_event->param.private_data)
		ret_event->param.private_data = ret_event->private_data;
	free(taken);
	count(&counts.cm_events, -1);
}

const char *cm_event_name(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_UNREACHABLE ? "unreachable" : "event";
}

int cm_id_new(struct rdma_event_channel *channel, void *context, struct rdma_cm_id **ret_id)
{
	INJECT();
	struct rdma_cm_id *id = calloc(1, sizeof(*id));
	id->channel = channel;
	id->context = context;
	count(&counts.ids, 1);
	*ret_id = id;
	return 0;
}

static struct fake_connection *connection_of(const struct rdma_cm_id *id)
{
	for (unsigned int i = 0; i < connection_count; i++) {
		if (connections[i]->id == id)
			return connections[i];
	}
	return NULL;
}

int cm_id_free(struct rdma_cm_id **id)
{
	INJECT();
	if (!*id)
		return 0;
	pthread_mutex_lock(&lock);
	struct fake_connection *connection = connection_of(*id);
	if (connection)
		connection->id = NULL;
	for (unsigned int i = cm_head; i != cm_tail; i++) {
		if (cm_queue[i % QUEUE].id == *id)
			cm_queue[i % QUEUE].id = NULL;
	}
	free(*id);
	counts.ids--;
	pthread_mutex_unlock(&lock);
	*id = NULL;
	return 0;
}

int cm_bind(struct rdma_cm_id *id, struct sockaddr *address)
{
	INJECT();
	struct sockaddr_in in;
	memcpy(&in, address, sizeof(in));
	uint32_t host = ntohl(in.sin_addr.s_addr);
	if (host == INADDR_ANY)
		return 0;
	if (host >> 8 != 0x0a0000 || (host & 0xff) - 1 >= FAKE_DEVICES || is_absent((host & 0xff) - 1))
		return -ENODEV;
	id->verbs = fake_context((host & 0xff) - 1);
	return 0;
}

int cm_listen(struct rdma_cm_id *id, int backlog)
{
	INJECT();
	return 0;
}

int cm_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	INJECT();
	struct fake_connection *connection = connection_of(id);
	connection->accepted = true;
	connection->param = *param;
	memcpy(connection->private_data, param->private_data, param->private_data_len);
	connection->qp = qps;
	while (connection->qp->base.qp_num != param->qp_num)
		connection->qp = connection->qp->next;
	return 0;
}

int cm_reject(struct rdma_cm_id *id, const void *private_data, uint8_t size)
{
	INJECT();
	struct fake_connection *connection = connection_of(id);
	connection->rejected = true;
	memcpy(connection->private_data, private_data, size);
	return 0;
}

int cm_disconnect(struct rdma_cm_id *id)
{
	INJECT();
	connection_of(id)->disconnected = true;
	return 0;
}

int cm_init_qp_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *ret_attr, int *ret_mask)
{
	INJECT();
	/* As rdma_cm does it: every right, and the peer's wishes. */
	*ret_attr = (struct ibv_qp_attr){
		.qp_state = state,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 255,
	};
	*ret_mask = IBV_QP_STATE;
	if (state == IBV_QPS_INIT)
		*ret_mask |= IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR)
		*ret_mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;
	if (state == IBV_QPS_RTS)
		*ret_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return 0;
}

struct sockaddr *cm_peer_addr(struct rdma_cm_id *id)
{
	return &id->route.addr.dst_addr;
}

int cm_devices(struct ibv_context ***ret_contexts)
{
	INJECT();
	struct ibv_context **list = calloc(FAKE_DEVICES + 1, sizeof(struct ibv_context *));
	unsigned int found = 0;
	for (unsigned int i = 0; i < FAKE_DEVICES; i++) {
		if (is_absent(i))
			continue;
		count(&context_holds[i], 1);
		list[found++] = fake_context(i);
	}
	*ret_contexts = list;
	return 0;
}

void cm_device_release(struct ibv_context **context)
{
	count(&context_holds[index_of(*context)], -1);
	*context = NULL;
}

static void push_cm_event(const struct cm_event *event)
{
	pthread_mutex_lock(&lock);
	cm_queue[cm_tail++ % QUEUE] = *event;
	pthread_mutex_unlock(&lock);
	signal_fd(cm_channel.fd);
}

struct fake_connection *fake_request(
	unsigned int device, const char *address, const void *data, uint8_t size, uint8_t initiator_depth)
{
	struct fake_connection *connection = calloc(1, sizeof(*connection));
	assert(connection_count < CONNECTIONS_MAX);
	connections[connection_count++] = connection;
	cm_id_new(&cm_channel, NULL, &connection->id);
	connection->id->verbs = fake_context(device);
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(4711) };
	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&connection->id->route.addr.dst_addr, &in, sizeof(in));

	struct cm_event event = { .type = RDMA_CM_EVENT_CONNECT_REQUEST, .id = connection->id };
	event.param.responder_resources = initiator_depth;
	event.param.private_data_len = size;
	event.param.private_data = data ? event.private_data : NULL;
	if (size)
		memcpy(event.private_data, data, size);
	push_cm_event(&event);
	return connection;
}

void fake_event(struct fake_connection *connection, enum rdma_cm_event_type type)
{
	struct cm_event event = { .type = type, .id = connection->id };
	push_cm_event(&event);
}

/*
 * Verbs
 */

const char *verbs_device_name(struct ibv_context *context)
{
	return context->device->name;
}

int verbs_query_device(struct ibv_context *context, struct ibv_device_attr *ret_attr)
{
	INJECT();
	*ret_attr = fake_attr[index_of(context)];
	return 0;
}

uint32_t fake_odp_caps;

int verbs_query_odp(struct ibv_context *context, uint32_t *ret_rc_caps)
{
	INJECT();
	*ret_rc_caps = fake_odp_caps;
	return 0;
}

int verbs_alloc_pd(struct ibv_context *context, struct ibv_pd **ret_pd)
{
	INJECT();
	struct ibv_pd *pd = calloc(1, sizeof(*pd));
	pd->context = context;
	count(&counts.pds, 1);
	*ret_pd = pd;
	return 0;
}

int verbs_dealloc_pd(struct ibv_pd **pd)
{
	INJECT();
	if (*pd)
		count(&counts.pds, -1);
	free(*pd);
	*pd = NULL;
	return 0;
}

int verbs_create_comp_channel(struct ibv_context *context, struct ibv_comp_channel **ret_channel)
{
	INJECT();
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
	channel->context = context;
	channel->fd = new_fd();
	count(&counts.comp_channels, 1);
	*ret_channel = channel;
	return 0;
}

int verbs_destroy_comp_channel(struct ibv_comp_channel **channel)
{
	INJECT();
	if (*channel) {
		close((*channel)->fd);
		count(&counts.comp_channels, -1);
	}
	free(*channel);
	*channel = NULL;
	return 0;
}

int verbs_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
	struct ibv_cq **ret_cq)
{
	INJECT();
	struct fake_cq *cq = calloc(1, sizeof(*cq));
	cq->base.context = context;
	cq->base.cq_context = cq_context;
	cq->base.channel = channel;
	cq->base.cqe = cqe;
	cq->next = cqs;
	cqs = cq;
	count(&counts.cqs, 1);
	*ret_cq = &cq->base;
	return 0;
}

int verbs_destroy_cq(struct ibv_cq **cq)
{
	INJECT();
	if (!*cq)
		return 0;
	struct fake_cq **link = &cqs;
	while (&(*link)->base != *cq)
		link = &(*link)->next;
	struct fake_cq *gone = *link;
	*link = gone->next;
	free(gone);
	count(&counts.cqs, -1);
	*cq = NULL;
	return 0;
}

int verbs_req_notify_cq(struct ibv_cq *cq)
{
	INJECT();
	((struct fake_cq *)cq)->armed = true;
	return 0;
}

int verbs_next_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq)
{
	INJECT();
	for (struct fake_cq *cq = cqs; cq; cq = cq->next) {
		if (cq->base.channel == channel && cq->told) {
			cq->told = false;
			*ret_cq = &cq->base;
			return 0;
		}
	}
	clear_fd(channel->fd);
	return -EAGAIN;
}

int verbs_poll_cq(struct ibv_cq *base, int max, struct ibv_wc *ret_wc)
{
	INJECT();
	struct fake_cq *cq = (struct fake_cq *)base;
	int n = 0;
	while (n < max && cq->head != cq->tail)
		ret_wc[n++] = cq->queue[cq->head++ % QUEUE];
	return n;
}

const char *verbs_wc_status_name(enum ibv_wc_status status)
{
	return status == IBV_WC_RNR_RETRY_EXC_ERR ? "RNR retry counter exceeded" : "status";
}

int verbs_set_async_nonblocking(struct ibv_context *context)
{
	INJECT();
	return 0;
}

int verbs_next_async_event(struct ibv_context *context, struct ibv_async_event *ret_event)
{
	unsigned int device = index_of(context);
	if (async_count[device] == 0) {
		clear_fd(context->async_fd);
		return -EAGAIN;
	}
	*ret_event = async_events[device][--async_count[device]];
	return 0;
}

void verbs_ack_async_event(struct ibv_async_event *event)
{
}

void fake_async_event(unsigned int device, enum ibv_event_type type)
{
	async_events[device][async_count[device]++] = (struct ibv_async_event){ .event_type = type };
	signal_fd(contexts[device].async_fd);
}

void fake_qp_event(struct fake_connection *connection, enum ibv_event_type type)
{
	unsigned int device = index_of(connection->qp->base.context);
	async_events[device][async_count[device]++] =
		(struct ibv_async_event){ .event_type = type, .element.qp = &connection->qp->base };
	signal_fd(contexts[device].async_fd);
}

const char *verbs_event_name(enum ibv_event_type type)
{
	return "async event";
}

static void push_completion(struct ibv_cq *base, const struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)base;
	cq->queue[cq->tail++ % QUEUE] = *wc;
	assert(cq->tail - cq->head <= (unsigned int)cq->base.cqe);
	if (!cq->armed)
		return;
	cq->armed = false;
	cq->told = true;
	signal_fd(cq->base.channel->fd);
}

int verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **ret_qp)
{
	INJECT();
	struct fake_qp *qp = calloc(1, sizeof(*qp));
	qp->base.context = pd->context;
	qp->base.pd = pd;
	qp->base.send_cq = attr->send_cq;
	qp->base.recv_cq = attr->recv_cq;
	qp->base.qp_num = next_number++;
	qp->next = qps;
	qps = qp;
	count(&counts.qps, 1);
	*ret_qp = &qp->base;
	return 0;
}

int verbs_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	INJECT();
	struct fake_qp *qp = (struct fake_qp *)base;
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	if (mask & IBV_QP_ACCESS_FLAGS)
		qp->attr.qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		qp->attr.min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		qp->attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_RETRY_CNT)
		qp->attr.retry_cnt = attr->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->attr.rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		qp->attr.max_rd_atomic = attr->max_rd_atomic;
	if (qp->state != IBV_QPS_ERR)
		return 0;

	for (unsigned int i = 0; i < qp->receive_count; i++) {
		struct ibv_wc wc = { .wr_id = qp->receive_ids[i], .status = IBV_WC_WR_FLUSH_ERR };
		push_completion(base->recv_cq, &wc);
	}
	if (qp->sent_size) {
		struct ibv_wc wc = { .wr_id = qp->send_id, .status = IBV_WC_WR_FLUSH_ERR };
		push_completion(base->send_cq, &wc);
	}
	qp->receive_count = 0;
	qp->sent_size = 0;
	return 0;
}

int verbs_destroy_qp(struct ibv_qp **qp)
{
	INJECT();
	if (!*qp)
		return 0;
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < connection_count; i++) {
		if (connections[i]->qp && &connections[i]->qp->base == *qp)
			connections[i]->qp = NULL;
	}
	struct fake_qp **link = &qps;
	while (&(*link)->base != *qp)
		link = &(*link)->next;
	struct fake_qp *gone = *link;
	*link = gone->next;
	free(gone);
	counts.qps--;
	pthread_mutex_unlock(&lock);
	*qp = NULL;
	return 0;
}

int verbs_post_send(struct ibv_qp *base, struct ibv_send_wr *wr)
{
	INJECT();
	struct fake_qp *qp = (struct fake_qp *)base;
	assert(qp->sent_size == 0 && wr->sg_list[0].length <= sizeof(qp->sent));
	qp->sent_size = wr->sg_list[0].length;
	memcpy(qp->sent, (const void *)(uintptr_t)wr->sg_list[0].addr, qp->sent_size);
	qp->send_id = wr->wr_id;
	return 0;
}

int verbs_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr)
{
	INJECT();
	struct fake_qp *qp = (struct fake_qp *)base;
	assert(qp->receive_count < 4 && wr->sg_list[0].length == 256);
	qp->receive_ids[qp->receive_count] = wr->wr_id;
	qp->receives[qp->receive_count++] = (uint8_t *)(uintptr_t)wr->sg_list[0].addr;
	return 0;
}

void fake_complete_send(struct fake_connection *connection, enum ibv_wc_status status)
{
	struct fake_qp *qp = connection->qp;
	assert(qp->sent_size);
	struct ibv_wc wc = { .wr_id = qp->send_id, .status = status, .opcode = IBV_WC_SEND };
	qp->sent_size = 0;
	push_completion(qp->base.send_cq, &wc);
}

void fake_receive(struct fake_connection *connection, const void *frame, size_t size, enum ibv_wc_opcode opcode)
{
	struct fake_qp *qp = connection->qp;
	assert(qp->receive_count);
	struct ibv_wc wc = { .wr_id = qp->receive_ids[0], .opcode = opcode, .byte_len = (uint32_t)size };
	if (opcode == IBV_WC_RECV)
		memcpy(qp->receives[0], frame, size);
	qp->receive_count--;
	memmove(qp->receive_ids, qp->receive_ids + 1, qp->receive_count * sizeof(qp->receive_ids[0]));
	memmove(qp->receives, qp->receives + 1, qp->receive_count * sizeof(qp->receives[0]));
	push_completion(qp->base.recv_cq, &wc);
}

int verbs_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access, struct ibv_mr **ret_mr)
{
	INJECT();
	struct fake_mr *mr = calloc(1, sizeof(*mr));
	mr->base = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length };
	mr->iova = iova;
	mr->access = access;
	pthread_mutex_lock(&lock);
	mr->base.rkey = mr->base.lkey = next_number++;
	unsigned int i = 0;
	while (mrs[i])
		i++;
	assert(i < MRS_MAX);
	mrs[i] = mr;
	counts.mrs++;
	pthread_mutex_unlock(&lock);
	*ret_mr = &mr->base;
	return 0;
}

int verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access, struct ibv_mr **ret_mr)
{
	INJECT();
	return verbs_reg_mr_iova(pd, addr, length, (uintptr_t)addr, access, ret_mr);
}

int verbs_dereg_mr(struct ibv_mr **mr)
{
	INJECT();
	if (!*mr)
		return 0;
	pthread_mutex_lock(&lock);
	unsigned int i = 0;
	while (&mrs[i]->base != *mr)
		i++;
	free(mrs[i]);
	memmove(&mrs[i], &mrs[i + 1], (MRS_MAX - 1 - i) * sizeof(struct fake_mr *));
	counts.mrs--;
	pthread_mutex_unlock(&lock);
	*mr = NULL;
	return 0;
}

const struct fake_mr *fake_mr(unsigned int index)
{
	return mrs[index];
}
