/* crowd.c: many peers on libmrshare in one process. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: crowd hold ADDRESS SOURCE N    connects N peers and says "held COUNT", with the text of the first refusal. A
 *                                       line of input "read SHMID OFFSET SIZE" lets each read once: "read COUNT
 *                                       MAX-MS"; "close COUNT" closes the last ones; the end of input closes all.
 *        crowd churn ADDRESS SOURCE N   connects, reads the catalog and closes, N times: "churned COUNT FAILED".
 *        crowd knock ADDRESS SOURCE N   N requests by peers that never go on, held until the end of input: "knocked N
 *                                       ANSWERED REJECTED TEXT", with the text of the last rejection.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/rdma.h"
#include "mrshare.h"
#include "wire/peer.h"

enum { TIMEOUT_MS = 20000, PROGRESS = 500 };

static const char *address, *source;

static int peer_connect(struct mrshare **ret_conn)
{
	struct mrshare *conn;
	int r = mrshare_new(&conn);
	if (r < 0)
		return r;
	mrshare_set_source(conn, source);
	mrshare_set_timeout(conn, TIMEOUT_MS);
	r = mrshare_connect(conn, address);
	if (r < 0)
		mrshare_close(&conn);
	else
		*ret_conn = conn;
	return r;
}

static void read_all(struct mrshare **peers, unsigned int count, const char *args)
{
	unsigned int shmid, done = 0;
	unsigned long long offset, size;
	uint64_t slowest = 0;
	if (sscanf(args, "%u %llu %llu", &shmid, &offset, &size) != 3)
		return;
	void *buf = malloc(size);
	for (unsigned int i = 0; i < count; i++) {
		uint64_t start = clock_ms();
		done += mrshare_read(peers[i], (uint8_t)shmid, offset, buf, size) == 0;
		uint64_t took = clock_ms() - start;
		slowest = took > slowest ? took : slowest;
	}
	free(buf);
	printf("read %u %llu\n", done, (unsigned long long)slowest);
}

static int hold(unsigned int wanted)
{
	struct mrshare **peers = calloc(wanted, sizeof(struct mrshare *));
	unsigned int count = 0;
	int r = 0;
	while (count < wanted && (r = peer_connect(&peers[count])) == 0)
		count++;
	printf("held %u %s\n", count, r < 0 ? mrshare_error() : "");

	char line[256];
	while (fgets(line, sizeof(line), stdin)) {
		if (strncmp(line, "read ", 5) == 0)
			read_all(peers, count, line + 5);
		for (int close = strncmp(line, "close ", 6) == 0 ? atoi(line + 6) : 0; close > 0 && count > 0; close--)
			mrshare_close(&peers[--count]);
	}
	while (count > 0)
		mrshare_close(&peers[--count]);
	free(peers);
	return 0;
}

static int churn(unsigned int times)
{
	unsigned int failed = 0;
	for (unsigned int i = 0; i < times; i++) {
		struct mrshare *conn;
		struct mrshare_entry *entries = NULL;
		size_t count;
		if (peer_connect(&conn) < 0) {
			failed++;
			printf("failed %u %s\n", i, mrshare_error());
			continue;
		}
		failed += mrshare_views(conn, &entries, &count, NULL) < 0;
		free(entries);
		mrshare_close(&conn);
		if ((i + 1) % PROGRESS == 0)
			printf("at %u\n", i + 1);
	}
	printf("churned %u %u\n", times, failed);
	return 0;
}

/* -ETIMEDOUT: no event for so long. */
static int next_event(struct rdma_event_channel *channel, int timeout_ms, struct cm_event *ret_event)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	return poll(&fd, 1, timeout_ms) == 1 ? cm_next_event(channel, ret_event) : -ETIMEDOUT;
}

static struct addrinfo *resolve(const char *text)
{
	struct host_port host_port;
	struct addrinfo *list;
	struct err err;
	if (host_port_parse(text, MRSHARE_DEFAULT_PORT, &host_port, &err) < 0 ||
		host_port_resolve(&host_port, &list, &err) < 0) {
		printf("failed %s\n", err.text);
		exit(1);
	}
	return list;
}

/* A request with the number of a queue pair that is nobody's; -ETIMEDOUT, or what failed. A number that came before
 * makes the other host's connection manager take the connection of that time for stale. */
static int knock_once(struct rdma_event_channel *channel, struct sockaddr *from, struct sockaddr *to, uint32_t qp_num)
{
	struct rdma_cm_id *id;
	struct cm_event event;
	int r = cm_id_new(channel, NULL, &id);
	if (r == 0)
		r = cm_resolve_addr(id, from, to, 2000);
	if (r == 0)
		r = next_event(channel, 2000, &event);
	if (r == 0)
		r = cm_resolve_route(id, 2000);
	if (r == 0)
		r = next_event(channel, 2000, &event);

	uint8_t bytes[PEER_REQUEST_SIZE];
	peer_request_write(&(struct peer_request){ .version_min = 1, .version_max = 1 }, bytes);
	struct rdma_conn_param param = { .private_data = bytes,
		.private_data_len = sizeof(bytes),
		.initiator_depth = 1,
		.retry_count = 6,
		.rnr_retry_count = 6,
		.qp_num = qp_num };
	return r == 0 ? cm_connect(id, &param) : r;
}

static int knock(unsigned int times)
{
	struct addrinfo *to = resolve(address), *from = resolve(source);
	((struct sockaddr_in *)(void *)from->ai_addr)->sin_port = 0;
	unsigned int answered = 0, rejected = 0;
	char text[160] = "";
	struct rdma_event_channel **channel = calloc(times, sizeof(struct rdma_event_channel *));
	for (unsigned int i = 0; i < times; i++) {
		int r = cm_channel_new(&channel[i]);
		if (r == 0)
			r = knock_once(channel[i], from->ai_addr, to->ai_addr, 0x4711 + i);
		if (r < 0)
			printf("failed %u %s\n", i, strerror(-r));
	}
	for (unsigned int i = 0; i < times; i++) {
		struct cm_event event;
		struct peer_reject reject;
		if (next_event(channel[i], 1000, &event) < 0)
			continue;
		answered += event.type == RDMA_CM_EVENT_CONNECT_RESPONSE;
		rejected += event.type == RDMA_CM_EVENT_REJECTED;
		if (event.type == RDMA_CM_EVENT_REJECTED &&
			peer_reject_read(event.param.private_data, event.param.private_data_len, &reject) == 0)
			snprintf(text, sizeof(text), "%s", reject.text);
	}
	printf("knocked %u %u %u %s\n", times, answered, rejected, text);
	char line[16];
	while (fgets(line, sizeof(line), stdin)) {
	}
	return 0; /* ids are the kernel's to end */
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	address = argv[2];
	source = argv[3];
	unsigned int count = (unsigned int)atoi(argv[4]);
	if (strcmp(argv[1], "hold") == 0)
		return hold(count);
	return strcmp(argv[1], "churn") == 0 ? churn(count) : knock(count);
}
