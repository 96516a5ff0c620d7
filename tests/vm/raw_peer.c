/* raw_peer.c: a peer on bare verbs that breaks the rules it is told to break. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: raw_peer ADDRESS SOURCE ACK [OPTION...], with ACK "now", "never" or a delay in ms. Options:
 *   request=HEX  the private data of its request    depth=N      its initiator_depth
 *   receives=N   how many receives it posts         half-open    it never says that it is ready
 * Prints a line an event: "rejected CODE TEXT", "catalog RKEY SIZE", "welcome GRANTED", "half-open", "notice SEQUENCE
 * GENERATION WITHDRAWN", "ack SEQUENCE", "disconnected". A line of input is "read RKEY ADDR SIZE", "write RKEY ADDR
 * TEXT", "write-imm RKEY ADDR TEXT" or "fetch-add RKEY ADDR 1", which go on the wire as they are, whatever was granted
 * or withdrawn; each is answered by its name, STATUS, and for a read TEXT. "flood RKEY ADDR TEXT" writes again and again,
 * until "flood STATUS". "send HEX" sends a frame of these bytes.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/rdma.h"
#include "wire/peer.h"

enum { DATA_SIZE = 65536, SEND_AT = PEER_RECEIVES * PEER_FRAME_SIZE_MAX, DATA_AT = 8192 };
enum { ID_ACK = 100, ID_DATA = 101 };

static struct {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;  /* receives, the send, data */
	int ack_delay_ms; /* -1: never */
	struct peer_ack ack;
	uint64_t ack_due_ms;   /* 0: none */
	const char *operation; /* on the wire, or NULL */
	struct ibv_send_wr wr; /* its work request, and its bytes */
	size_t size;
	bool ended;
	uint8_t request[PEER_REQUEST_SIZE];
	uint8_t request_size, depth;
	unsigned int receives;
	bool half_open;
	struct ibv_qp *qp;
} peer;

static void need(int r, const char *what)
{
	if (r >= 0)
		return;
	printf("failed %s: %s\n", what, strerror(-r));
	exit(1);
}

static void post_receive(uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)peer.memory + slot * PEER_FRAME_SIZE_MAX, PEER_FRAME_SIZE_MAX,
		peer.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	if (verbs_post_recv(peer.qp, &wr) < 0)
		peer.ended = true;
}

static void post_send(struct ibv_send_wr *wr, uint64_t id, size_t at, size_t size)
{
	struct ibv_sge sge = { (uintptr_t)peer.memory + at, (uint32_t)size, peer.mr->lkey };
	wr->wr_id = id;
	wr->sg_list = &sge;
	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (verbs_post_send(peer.qp, wr) < 0)
		peer.ended = true;
}

static void expect_event(enum rdma_cm_event_type wanted, struct cm_event *ret_event)
{
	struct pollfd fd = { .fd = peer.channel->fd, .events = POLLIN };
	if (poll(&fd, 1, 10000) != 1)
		need(-ETIMEDOUT, cm_event_name(wanted));
	need(cm_next_event(peer.channel, ret_event), cm_event_name(wanted));
	if (ret_event->type == wanted)
		return;
	struct peer_reject reject;
	if (ret_event->type == RDMA_CM_EVENT_REJECTED &&
		peer_reject_read(ret_event->param.private_data, ret_event->param.private_data_len, &reject) == 0)
		printf("rejected %u %s\n", reject.code, reject.text);
	else
		printf("failed %s: got %s\n", cm_event_name(wanted), cm_event_name(ret_event->type));
	exit(1);
}

static struct addrinfo *resolve(const char *text)
{
	struct err err;
	struct host_port host_port;
	struct addrinfo *list;
	need(host_port_parse(text, MRSHARE_DEFAULT_PORT, &host_port, &err), text);
	need(host_port_resolve(&host_port, &list, &err), text);
	return list;
}

static void connect_to(const char *address, const char *source)
{
	struct cm_event event;
	struct addrinfo *to = resolve(address), *from = resolve(source);
	((struct sockaddr_in *)(void *)from->ai_addr)->sin_port = 0;
	need(cm_channel_new(&peer.channel), "channel");
	need(cm_id_new(peer.channel, NULL, &peer.id), "id");
	need(cm_resolve_addr(peer.id, from->ai_addr, to->ai_addr, 2000), "resolve_addr");
	expect_event(RDMA_CM_EVENT_ADDR_RESOLVED, &event);
	need(cm_resolve_route(peer.id, 2000), "resolve_route");
	expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED, &event);
	freeaddrinfo(to);
	freeaddrinfo(from);

	struct ibv_context *verbs = peer.id->verbs;
	need(verbs_alloc_pd(verbs, &peer.pd), "pd");
	need(verbs_create_comp_channel(verbs, &peer.comp), "comp_channel");
	need(verbs_create_cq(verbs, 64, NULL, peer.comp, &peer.cq), "cq");
	need(verbs_req_notify_cq(peer.cq), "notify");
	struct ibv_qp_init_attr attr = {
		.send_cq = peer.cq,
		.recv_cq = peer.cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	if (peer.half_open) {
		need(verbs_create_qp(peer.pd, &attr, &peer.qp), "qp");
	} else {
		need(cm_create_qp(peer.id, peer.pd, &attr), "qp");
		peer.qp = peer.id->qp;
	}
	peer.memory = aligned_alloc(4096, DATA_AT + DATA_SIZE);
	need(verbs_reg_mr(peer.pd, peer.memory, DATA_AT + DATA_SIZE, IBV_ACCESS_LOCAL_WRITE, &peer.mr), "mr");
	for (uint64_t slot = 0; slot < peer.receives && !peer.half_open; slot++)
		post_receive(slot);

	struct rdma_conn_param param = {
		.private_data = peer.request,
		.private_data_len = peer.request_size,
		.responder_resources = 1,
		.initiator_depth = peer.depth,
		.retry_count = PEER_SEND_RETRIES,
		.rnr_retry_count = PEER_SEND_RETRIES,
		.qp_num = peer.qp->qp_num,
	};
	need(cm_connect(peer.id, &param), "connect");
	if (!peer.half_open) {
		expect_event(RDMA_CM_EVENT_ESTABLISHED, &event);
		return;
	}
	/* Who has a queue pair that rdma_cm does not know has to say when it is ready. */
	expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, &event);
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_attr qp_attr;
		int mask;
		need(cm_init_qp_attr(peer.id, states[i], &qp_attr, &mask), "init_qp_attr");
		need(verbs_modify_qp(peer.qp, &qp_attr, mask), "modify_qp");
	}
	printf("half-open\n");
}

static void send_ack(void)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK, .ack = peer.ack };
	ssize_t size = peer_frame_write(&frame, peer.memory + SEND_AT);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	post_send(&wr, ID_ACK, SEND_AT, (size_t)size);
	printf("ack %u\n", peer.ack.sequence);
	peer.ack_due_ms = 0;
}

static void on_frame(uint64_t slot, size_t size)
{
	struct peer_frame frame;
	int r = peer_frame_read(peer.memory + slot * PEER_FRAME_SIZE_MAX, size, &frame);
	post_receive(slot);
	if (r < 0) {
		printf("failed frame: %s\n", strerror(-r));
	} else if (frame.type == PEER_FRAME_WELCOME) {
		printf("catalog 0x%x %" PRIu64 "\n", frame.welcome.catalog.rkey, frame.welcome.catalog.size);
		printf("welcome %u\n", frame.welcome.granted);
	} else if (frame.type == PEER_FRAME_NOTICE) {
		printf("notice %u %" PRIu64 " %u\n", frame.notice.sequence, frame.notice.generation,
			frame.notice.withdrawn_count);
		peer.ack = (struct peer_ack){ frame.notice.sequence, frame.notice.generation };
		if (peer.ack_delay_ms >= 0)
			peer.ack_due_ms = clock_ms() + (uint64_t)peer.ack_delay_ms + 1;
	}
}

static void on_completions(void)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	while (verbs_next_cq_event(peer.comp, &cq) == 0)
		verbs_req_notify_cq(cq);
	while (verbs_poll_cq(peer.cq, 1, &wc) == 1) {
		if (wc.wr_id == ID_DATA && wc.status == IBV_WC_SUCCESS && strcmp(peer.operation, "flood") == 0) {
			post_send(&peer.wr, ID_DATA, DATA_AT, peer.size);
		} else if (wc.wr_id == ID_DATA) {
			printf("%s %s %.64s\n", peer.operation,
				wc.status == IBV_WC_SUCCESS ? "ok" : verbs_wc_status_name(wc.status),
				strcmp(peer.operation, "read") == 0 ? (char *)peer.memory + DATA_AT : "");
			peer.operation = NULL;
		}
		if (wc.status != IBV_WC_SUCCESS)
			peer.ended = true;
		else if (wc.wr_id < PEER_RECEIVES)
			on_frame(wc.wr_id, wc.byte_len);
	}
}

/* Returns the number of bytes. */
static size_t from_hex(const char *hex, uint8_t *bytes, size_t max)
{
	size_t size = 0;
	unsigned int byte;
	while (size < max && sscanf(hex + 2 * size, "%2x", &byte) == 1)
		bytes[size++] = (uint8_t)byte;
	return size;
}

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
} operations[] = {
	{ "read", IBV_WR_RDMA_READ },
	{ "write", IBV_WR_RDMA_WRITE },
	{ "flood", IBV_WR_RDMA_WRITE },
	{ "write-imm", IBV_WR_RDMA_WRITE_WITH_IMM },
	{ "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD },
	{ "send", IBV_WR_SEND },
};

static bool set_operation(const char *name)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		if (strcmp(operations[i].name, name) != 0)
			continue;
		peer.operation = operations[i].name;
		peer.wr = (struct ibv_send_wr){ .opcode = operations[i].opcode };
		return true;
	}
	return false;
}

/* `args` says where, and what or how much. */
static bool set_access(const char *args)
{
	uint32_t rkey;
	uint64_t addr;
	int text_at;
	if (sscanf(args, "%" SCNi32 " %" SCNi64 " %n", (int32_t *)&rkey, (int64_t *)&addr, &text_at) != 2)
		return false;
	const char *text = args + text_at;
	if (peer.wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		peer.size = sizeof(uint64_t);
		peer.wr.wr.atomic.remote_addr = addr;
		peer.wr.wr.atomic.rkey = rkey;
		peer.wr.wr.atomic.compare_add = strtoull(text, NULL, 0);
		return true;
	}
	bool is_read = peer.wr.opcode == IBV_WR_RDMA_READ;
	peer.size = is_read ? strtoul(text, NULL, 0) : strlen(text) + 1;
	peer.wr.wr.rdma.remote_addr = addr;
	peer.wr.wr.rdma.rkey = rkey;
	if (!is_read)
		memcpy(peer.memory + DATA_AT, text, peer.size);
	return true;
}

static void on_command(char *line)
{
	line[strcspn(line, "\n")] = '\0';
	char *args = strchr(line, ' ');
	if (args)
		*args++ = '\0';
	memset(peer.memory + DATA_AT, 0, DATA_SIZE);
	if (!set_operation(line))
		return;
	if (peer.wr.opcode == IBV_WR_SEND) {
		peer.size = from_hex(args ? args : "", peer.memory + DATA_AT, DATA_SIZE);
	} else if (!args || !set_access(args)) {
		peer.operation = NULL;
		return;
	}
	post_send(&peer.wr, ID_DATA, DATA_AT, peer.size);
}

static void set_option(const char *option)
{
	if (strncmp(option, "request=", 8) == 0)
		peer.request_size = (uint8_t)from_hex(option + 8, peer.request, sizeof(peer.request));
	else if (strncmp(option, "depth=", 6) == 0)
		peer.depth = (uint8_t)atoi(option + 6);
	else if (strncmp(option, "receives=", 9) == 0)
		peer.receives = (unsigned int)atoi(option + 9);
	else if (strcmp(option, "half-open") == 0)
		peer.half_open = true;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	peer.ack_delay_ms = strcmp(argv[3], "never") == 0 ? -1 : atoi(argv[3]);
	peer_request_write(
		&(struct peer_request){ .version_min = 1, .version_max = 1, .flags = PEER_WANTS_WRITE }, peer.request);
	peer.request_size = sizeof(peer.request);
	peer.depth = 4;
	peer.receives = PEER_RECEIVES;
	for (int i = 4; i < argc; i++)
		set_option(argv[i]);
	connect_to(argv[1], argv[2]);

	while (!peer.ended) {
		struct pollfd fds[] = {
			{ .fd = STDIN_FILENO, .events = POLLIN },
			{ .fd = peer.comp->fd, .events = POLLIN },
			{ .fd = peer.channel->fd, .events = POLLIN },
		};
		poll(fds, 3, peer.ack_due_ms ? 10 : 1000);
		on_completions();
		struct cm_event event;
		while (cm_next_event(peer.channel, &event) == 0)
			peer.ended |= event.type == RDMA_CM_EVENT_DISCONNECTED;
		if (peer.ack_due_ms && clock_ms() >= peer.ack_due_ms)
			send_ack();
		char line[4096];
		if (fds[0].revents && fgets(line, sizeof(line), stdin))
			on_command(line);
		else if (fds[0].revents)
			break;
	}
	/* How an operation ended may be known only after the connection has. */
	for (int i = 0; i < 200 && (on_completions(), peer.operation); i++)
		poll(NULL, 0, 10);
	printf("disconnected\n");
	return 0;
}
