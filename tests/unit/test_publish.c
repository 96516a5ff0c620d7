/* test_publish.c: peers that keep the rules and peers that do not, and what a withdrawal promises. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fake_loop.h"
#include "fake_rdma.h"
#include "publish/publish.h"
#include "wire/peer.h"

enum { STOP_END_MS = 200, REVOKE_MS = 1000, KEEPALIVE_S = 5, MAX_PEERS = 200, MAPPINGS_MAX = 64, PEERS_MAX = 512 };

static struct event_loop *loop;
static struct worker_pool *pool, *connector, *taker;
static struct event_source *pool_source, *connector_source, *taker_source;
static struct publish *publish;
static struct sockaddr_storage listen_addresses[2];
static struct publish_allow allow[] = {
	{ .family = AF_INET, .address = { 10, 0, 0, 8 }, .prefix_len = 32 },
	{ .family = AF_INET, .address = { 10, 0, 0, 0 }, .prefix_len = 25, .may_write = true },
};
static struct publish_config config = {
	.listen = listen_addresses,
	.listen_count = 2,
	.allow = allow,
	.allow_count = 2,
	.keepalive_s = KEEPALIVE_S,
	.revoke_timeout_ms = REVOKE_MS,
	.max_peers = MAX_PEERS,
	.max_extents = 100,
};
static const char *open_publish_at = "10.0.0.1";
static struct memlock memlock;
static struct registration *registrations[MAPPINGS_MAX];
static uint64_t added[MAPPINGS_MAX], withdrawn[MAPPINGS_MAX];
static unsigned int added_count, withdrawn_count, done_count, changed_count;
/* Peers that must not reach memory when a mapping is said to be withdrawn. */
static struct fake_connection *must_be_cut;

static void on_added(void *data, uint64_t mapping_id)
{
	added[added_count++] = mapping_id;
}

static void on_withdrawn(void *data, uint64_t mapping_id)
{
	if (must_be_cut && must_be_cut->qp)
		ck_assert_int_eq(must_be_cut->qp->state, IBV_QPS_ERR);
	withdrawn[withdrawn_count++] = mapping_id;
}

static void on_devices_changed(void *data)
{
	changed_count++;
}

static void on_done(void *data)
{
	done_count++;
}

static const struct publish_ops ops = {
	.added = on_added, .withdrawn = on_withdrawn, .devices_changed = on_devices_changed
};

static void on_pool(void *data, unsigned int events)
{
	worker_pool_collect(data);
}

static void set_address(struct sockaddr_storage *storage, const char *text)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(7471) };
	inet_pton(AF_INET, text, &in.sin_addr);
	memcpy(storage, &in, sizeof(in));
}

static int try_open(struct err *err)
{
	set_address(&listen_addresses[0], open_publish_at);
	set_address(&listen_addresses[1], "10.0.0.2");
	memlock.limit = UINT64_MAX;
	config.memlock = &memlock;
	loop = fake_loop_new();
	ck_assert_int_eq(worker_pool_new("test", 2, 1, &pool), 0);
	ck_assert_int_eq(worker_pool_new("test", 2, 1, &connector), 0);
	pool_source = event_io_new(loop, worker_pool_fd(pool), on_pool, pool);
	event_io_set(pool_source, EVENT_READ);
	connector_source = event_io_new(loop, worker_pool_fd(connector), on_pool, connector);
	event_io_set(connector_source, EVENT_READ);
	ck_assert_int_eq(worker_pool_new("test", 1, 1, &taker), 0);
	taker_source = event_io_new(loop, worker_pool_fd(taker), on_pool, taker);
	event_io_set(taker_source, EVENT_READ);
	return publish_new(loop, &config, taker, connector, pool, &ops, NULL, &publish, err);
}

static void open_publish(void)
{
	struct err err;
	ck_assert_int_eq(try_open(&err), 0);
}

static void close_publish(void)
{
	for (unsigned int i = 0; i < MAPPINGS_MAX; i++)
		registration_free(&registrations[i], NULL);
	publish_free(&publish);
	ck_assert_int_eq(fake_counts().mrs, 0);
	ck_assert_int_eq(fake_counts().ids, 0);
	ck_assert_int_eq(fake_counts().qps, 0);
	ck_assert_int_eq(fake_counts().cqs, 0);
	ck_assert_int_eq(fake_counts().pds, 0);
	ck_assert_int_eq(fake_counts().comp_channels, 0);
	ck_assert_int_eq(fake_counts().cm_events, 0);
	ck_assert_int_eq(fake_context_holds(), 0);
	event_source_free(&pool_source);
	event_source_free(&connector_source);
	event_source_free(&taker_source);
	worker_pool_free(&pool);
	worker_pool_free(&connector);
	worker_pool_free(&taker);
	fake_loop_free(&loop);
}

static void run(uint64_t ms)
{
	fake_loop_run(loop, ms);
}

/* Workers do nothing until they are let on. */
static void hold_workers(bool hold)
{
	event_io_set(pool_source, hold ? 0 : EVENT_READ);
	if (!hold)
		run(0);
}

static size_t device_count(void)
{
	struct device *devices[PUBLISH_DEVICES_MAX];
	return publish_devices(publish, devices);
}

/* What a peer's request says. */
static struct peer_request hello = { .version_min = 1, .version_max = 1, .flags = PEER_WANTS_WRITE };

static struct fake_connection *knock(unsigned int device, const char *address)
{
	uint8_t bytes[PEER_REQUEST_SIZE];
	peer_request_write(&hello, bytes);
	struct fake_connection *connection = fake_request(device, address, bytes, sizeof(bytes), 4);
	run(0);
	return connection;
}

static struct peer_frame sent(const struct fake_connection *connection)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK };
	ck_assert_ptr_nonnull(connection->qp);
	ck_assert_uint_ne(connection->qp->sent_size, 0);
	ck_assert_int_eq(peer_frame_read(connection->qp->sent, connection->qp->sent_size, &frame), 0);
	return frame;
}

static struct peer_notice notice(struct fake_connection *connection)
{
	struct peer_frame frame = sent(connection);
	ck_assert_int_eq(frame.type, PEER_FRAME_NOTICE);
	fake_complete_send(connection, IBV_WC_SUCCESS);
	run(0);
	return frame.notice;
}

static bool is_quiet(const struct fake_connection *connection)
{
	return connection->qp && connection->qp->sent_size == 0;
}

/* Which the daemon has not seen yet. */
static void ack_arrives(struct fake_connection *connection, uint32_t sequence, uint64_t generation)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK, .ack = { sequence, generation } };
	uint8_t bytes[PEER_FRAME_SIZE_MAX];
	ssize_t size = peer_frame_write(&frame, bytes);
	fake_receive(connection, bytes, (size_t)size, IBV_WC_RECV);
}

static void ack(struct fake_connection *connection, uint32_t sequence, uint64_t generation)
{
	ack_arrives(connection, sequence, generation);
	run(0);
}

static struct fake_connection *join(unsigned int device, const char *address)
{
	struct fake_connection *connection = knock(device, address);
	ck_assert(connection->accepted);
	fake_event(connection, RDMA_CM_EVENT_ESTABLISHED);
	run(0);
	ck_assert_int_eq(sent(connection).type, PEER_FRAME_WELCOME);
	fake_complete_send(connection, IBV_WC_SUCCESS);
	run(0);
	return connection;
}

static bool is_cut(const struct fake_connection *connection)
{
	return !connection->qp && !connection->id;
}

static int try_add(uint64_t mapping_id, struct err *err)
{
	static void *addr;
	if (!addr)
		addr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t device_count = publish_devices(publish, devices);
	struct registration_request request = { .addr = addr, .len = 4096, .shm_offset = mapping_id * 4096 };
	if (!registrations[mapping_id])
		ck_assert_int_eq(
			registration_new(devices, device_count, &request, &registrations[mapping_id], NULL), 0);
	int r = publish_reserve(publish, devices, device_count, 4096, err);
	if (r < 0)
		return r;
	r = publish_add(publish, mapping_id, 0, false, 4096, registrations[mapping_id], err);
	if (r < 0)
		publish_unreserve(publish, devices, device_count, 4096);
	return r;
}

static void add(uint64_t mapping_id)
{
	struct err err;
	ck_assert_int_eq(try_add(mapping_id, &err), 0);
	run(5);
	ck_assert_uint_eq(added[added_count - 1], mapping_id);
}

START_TEST(a_peer_has_no_right_before_it_is_admitted)
{
	open_publish();
	struct fake_connection *peer = knock(0, "10.0.0.9");
	ck_assert(peer->accepted);
	ck_assert_int_eq(peer->qp->state, IBV_QPS_RTS);
	ck_assert_uint_eq(peer->qp->attr.qp_access_flags, 0);
	ck_assert_uint_eq(peer->qp->attr.retry_cnt, PEER_SEND_RETRIES);
	ck_assert_uint_eq(peer->qp->attr.rnr_retry, PEER_SEND_RETRIES);
	ck_assert_uint_eq(peer->qp->attr.min_rnr_timer, PEER_MIN_RNR_TIMER);
	ck_assert_uint_eq(peer->qp->attr.max_dest_rd_atomic, 4);
	ck_assert_uint_eq(peer->qp->receive_count, PEER_RECEIVES);
	ck_assert_uint_eq(peer->param.responder_resources, 4);
	struct peer_accept accept;
	ck_assert_int_eq(peer_accept_read(peer->private_data, sizeof(peer->private_data), &accept), 0);
	ck_assert_uint_eq(accept.keepalive, KEEPALIVE_S);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 1);

	fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
	run(0);
	struct peer_frame frame = sent(peer);
	ck_assert_int_eq(frame.type, PEER_FRAME_WELCOME);
	ck_assert_uint_eq(frame.welcome.granted, MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC);
	ck_assert_uint_eq(frame.welcome.generation, 1);
	ck_assert_uint_eq(frame.welcome.catalog.rkey, fake_mr(0)->base.rkey);
	ck_assert_uint_eq(peer->qp->attr.qp_access_flags,
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	ck_assert_uint_eq(publish_snapshot(publish).peers, 1);

	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	ck_assert(is_cut(peer));
	close_publish();
}
END_TEST

static uint32_t granted(unsigned int device, const char *address)
{
	struct fake_connection *connection = knock(device, address);
	fake_event(connection, RDMA_CM_EVENT_ESTABLISHED);
	run(0);
	uint32_t rights = sent(connection).welcome.granted;
	unsigned int flags = connection->qp->attr.qp_access_flags;
	ck_assert_int_eq(!!(flags & IBV_ACCESS_REMOTE_WRITE), !!(rights & MRSHARE_WRITE));
	ck_assert_int_eq(!!(flags & IBV_ACCESS_REMOTE_ATOMIC), !!(rights & MRSHARE_ATOMIC));
	fake_event(connection, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	return rights;
}

START_TEST(rights_are_those_asked_for_and_allowed)
{
	open_publish();
	ck_assert_uint_eq(granted(0, "10.0.0.8"), MRSHARE_READ);
	ck_assert_uint_eq(granted(1, "10.0.0.9"), MRSHARE_READ | MRSHARE_WRITE); /* atomics on the first device only */
	hello.flags = 0;
	ck_assert_uint_eq(granted(0, "10.0.0.9"), MRSHARE_READ);
	close_publish();
}
END_TEST

static void assert_told(struct fake_connection *peer, enum peer_reject_code code)
{
	run(0);
	struct peer_reject reject;
	ck_assert(peer->rejected);
	ck_assert(!peer->accepted);
	ck_assert_int_eq(peer_reject_read(peer->private_data, PEER_REJECT_SIZE_MAX, &reject), 0);
	ck_assert_uint_eq(reject.code, code);
	ck_assert_uint_gt(strlen(reject.text), 3);
}

static void assert_rejected(struct fake_connection *peer, enum peer_reject_code code)
{
	assert_told(peer, code);
	ck_assert(is_cut(peer));
}

START_TEST(who_may_not_connect_is_told_why)
{
	open_publish();
	assert_rejected(knock(0, "10.0.0.128"), PEER_REJECT_DENIED);
	assert_rejected(knock(0, "11.0.0.9"), PEER_REJECT_DENIED);
	assert_rejected(fake_request(0, "10.0.0.9", NULL, 0, 4), PEER_REJECT_MALFORMED);
	uint8_t bytes[PEER_REQUEST_SIZE] = { 0 };
	assert_rejected(fake_request(0, "10.0.0.9", bytes, sizeof(bytes), 4), PEER_REJECT_MALFORMED);
	peer_request_write(&hello, bytes);
	assert_rejected(fake_request(0, "10.0.0.9", bytes, 20, 4), PEER_REJECT_MALFORMED);
	assert_rejected(fake_request(0, "10.0.0.9", bytes, sizeof(bytes), 0), PEER_REJECT_RESOURCES);
	hello.version_min = hello.version_max = 2;
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_VERSION);
	hello.version_min = hello.version_max = 0;
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_VERSION);
	hello.version_max = UINT16_MAX;
	ck_assert(knock(0, "10.0.0.9")->accepted);
	run(10000);
	close_publish();
}
END_TEST

/* In the place of libc's, for all stages: one address, which a test may change. */
static struct sockaddr_storage own_address;
static unsigned int own_address_reads;
static int own_address_errno;

int getifaddrs(struct ifaddrs **ret_list)
{
	static struct ifaddrs list[2];
	own_address_reads++;
	if (own_address.ss_family == AF_UNSPEC)
		set_address(&own_address, "127.0.0.1");
	list[0] = (struct ifaddrs){ .ifa_next = &list[1] }; /* an interface without one */
	list[1] = (struct ifaddrs){ .ifa_addr = (struct sockaddr *)&own_address };
	*ret_list = list;
	errno = own_address_errno;
	return own_address_errno ? -1 : 0;
}

void freeifaddrs(struct ifaddrs *list)
{
}

static void open_publish_without_allow(void)
{
	config.allow_count = 0;
	set_address(&own_address, "10.0.0.1");
	open_publish();
}

START_TEST(without_allow_only_own_addresses_connect)
{
	open_publish_without_allow();
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_DENIED);
	struct fake_connection *own = join(0, "10.0.0.1");
	fake_event(own, RDMA_CM_EVENT_DISCONNECTED);
	run(0);

	/* They come and go. */
	set_address(&own_address, "10.0.0.9");
	run(2000);
	assert_rejected(knock(0, "10.0.0.1"), PEER_REJECT_DENIED);
	own = join(0, "10.0.0.9");
	fake_event(own, RDMA_CM_EVENT_DISCONNECTED);
	own_address_errno = ENOBUFS;
	run(2000);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_DENIED);
	close_publish();
}
END_TEST

START_TEST(own_addresses_are_read_by_a_worker_and_rarely)
{
	enum { STRANGERS = 500 };
	open_publish_without_allow();
	ck_assert_uint_eq(own_address_reads, 0);
	hold_workers(true);
	struct fake_connection *own = knock(0, "10.0.0.1"), *stranger = knock(0, "10.0.0.9");
	ck_assert_uint_eq(own_address_reads, 0);
	ck_assert(!own->accepted && !own->rejected && !stranger->rejected);
	hold_workers(false);
	ck_assert(own->accepted);
	assert_rejected(stranger, PEER_REJECT_DENIED);
	for (unsigned int i = 0; i < STRANGERS; i++)
		assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_DENIED);
	ck_assert_uint_eq(own_address_reads, 1);

	/* While they are being read for long: no more than may wait do, and none for ever. */
	run(2000);
	hold_workers(true);
	struct fake_connection *waiting[128];
	for (unsigned int i = 0; i < 127; i++)
		waiting[i] = knock(0, "10.0.0.9");
	ck_assert(!waiting[126]->rejected);
	struct fake_connection *other = knock(0, "10.0.0.10"), *more = knock(0, "10.0.0.9");
	ck_assert(!other->rejected && more->rejected);
	run(5100);
	ck_assert(other->rejected && waiting[126]->rejected);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	hold_workers(false);
	ck_assert_uint_eq(own_address_reads, 2);
	close_publish();
}
END_TEST

START_TEST(the_end_may_come_while_own_addresses_are_read)
{
	open_publish_without_allow();
	hold_workers(true);
	struct fake_connection *own = knock(0, "10.0.0.1");
	publish_stop(publish, on_done, NULL);
	run(0);
	ck_assert_uint_eq(done_count, 0);
	hold_workers(false);
	ck_assert(is_cut(own) && !own->accepted);
	ck_assert_uint_eq(done_count, 1);
	close_publish();
}
END_TEST

/* One host, whoever is on it, takes all places; another's peer gets one. */
START_TEST(one_host_does_not_keep_others_out)
{
	enum { PLACES = 128, SMALL = 16 };
	bool small = _i;
	unsigned int places = small ? SMALL : PLACES;
	config.max_peers = small ? SMALL : MAX_PEERS;
	open_publish();
	struct fake_connection *knocks[PLACES], *others[PLACES];
	for (unsigned int i = 0; i < places; i++) {
		knocks[i] = knock(0, "10.0.0.9");
		ck_assert(knocks[i]->accepted);
	}
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_FULL);
	for (unsigned int i = 0; i < places / 2; i++) {
		others[i] = knock(0, "10.0.0.10");
		ck_assert(others[i]->accepted);
		ck_assert(is_cut(knocks[i])); /* the oldest first */
	}
	ck_assert(!is_cut(knocks[places / 2]));
	assert_rejected(knock(0, "10.0.0.10"), PEER_REJECT_FULL);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_FULL);
	for (unsigned int i = 0; i < places / 2; i++)
		fake_event(others[i], RDMA_CM_EVENT_ESTABLISHED);
	run(6000);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	ck_assert_uint_eq(publish_snapshot(publish).peers, places / 2);
	for (unsigned int i = 0; i < places / 2; i++)
		fake_event(others[i], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* From now on what is logged goes to the file that is returned. */
static int catch_log(void)
{
	int fd = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	log_set_level(LOG_LEVEL_INFO);
	return fd;
}

static unsigned int count_lines(int log, const char *with)
{
	static char text[1 << 20];
	ssize_t size = pread(log, text, sizeof(text) - 1, 0);
	ck_assert_int_ge(size, 0);
	text[size] = '\0';
	unsigned int count = 0;
	for (const char *at = text; (at = strstr(at, with)); at++)
		count++;
	return count;
}

/* Connections whose end hangs; when they are as many as may be, that is waited for, and said. */
START_TEST(so_many_connections_may_be_ending)
{
	enum { ENDING_MAX = 1 + 256, MORE = 40 };
	config.max_peers = 1;
	open_publish();
	int log = catch_log();
	struct fake_connection *strangers[ENDING_MAX + MORE], *good;
	hold_workers(true);
	for (unsigned int i = 0; i < 3; i++)
		strangers[i] = knock(0, "11.0.0.9");
	good = join(0, "10.0.0.9");
	fake_event(good, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	for (unsigned int i = 3; i < ENDING_MAX + MORE; i++)
		strangers[i] = knock(0, "11.0.0.9");
	ck_assert(strangers[ENDING_MAX - 2]->rejected);
	ck_assert(!strangers[ENDING_MAX + 1]->rejected);
	ck_assert_uint_eq(count_lines(log, "error: no peer can connect: 257 connections are ending"), 1);
	ck_assert_uint_eq(count_lines(log, "peers can connect again"), 0);
	hold_workers(false);
	ck_assert_uint_eq(count_lines(log, "no peer can connect"), 1);
	ck_assert_uint_eq(count_lines(log, "peers can connect again"), 1);
	for (unsigned int i = 0; i < ENDING_MAX + MORE; i++)
		assert_rejected(strangers[i], PEER_REJECT_DENIED);
	good = join(0, "10.0.0.9");
	fake_event(good, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(half_open_peers_are_bounded)
{
	open_publish();
	struct fake_connection *peers[128];
	for (unsigned int i = 0; i < 128; i++)
		peers[i] = knock(0, "10.0.0.9");
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_FULL);
	fake_event(peers[0], RDMA_CM_EVENT_ESTABLISHED);
	run(4000);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 127);
	run(2000);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	ck_assert_uint_eq(publish_snapshot(publish).peers, 1);
	ck_assert(is_cut(peers[127]));
	fake_event(peers[0], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(peers_are_bounded)
{
	open_publish();
	struct fake_connection *peers[MAX_PEERS];
	for (unsigned int i = 0; i < MAX_PEERS; i++)
		peers[i] = join(i % 2, "10.0.0.9");
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_FULL);
	fake_event(peers[7], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	peers[7] = join(1, "10.0.0.9");
	for (unsigned int i = 0; i < MAX_PEERS; i++)
		fake_event(peers[i], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	ck_assert_int_eq(fake_counts().qps, 0);
	close_publish();
}
END_TEST

/* Each call that a new peer needs fails in turn: it is rejected and leaves nothing. */
START_TEST(a_peer_that_cannot_be_served_is_rejected)
{
	static const struct {
		const char *function;
		unsigned int skip;
	} steps[] = {
		{ "verbs_create_qp", 0 },
		{ "cm_init_qp_attr", 0 },
		{ "cm_init_qp_attr", 2 },
		{ "verbs_modify_qp", 0 },
		{ "verbs_modify_qp", 1 },
		{ "verbs_modify_qp", 2 },
		{ "verbs_post_recv", 0 },
		{ "verbs_post_recv", 3 },
		{ "cm_accept", 0 },
	};
	open_publish();
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		fake_fail(steps[i].function, steps[i].skip, 1, -ENOMEM);
		assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_RESOURCES);
		ck_assert_int_eq(fake_counts().qps, 0);
		ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	}
	struct fake_connection *peer = join(0, "10.0.0.9");
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* While its queue pair is being made: the peer goes, its time is over, the device goes, the daemon ends; or nothing of
 * that, but it cannot be made. */
START_TEST(anything_may_happen_while_a_queue_pair_is_made)
{
	open_publish();
	struct fake_connection *other = join(1, "10.0.0.10");
	event_io_set(connector_source, 0);
	struct fake_connection *peer = knock(0, "10.0.0.9");
	ck_assert(!peer->accepted && !peer->rejected);
	ck_assert_int_eq(fake_counts().qps, 1);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 1);
	bool fails = _i % 2;
	switch (_i / 2) {
	case 1:
		fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
		break;
	case 2:
		fake_event(peer, RDMA_CM_EVENT_CONNECT_ERROR);
		fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
		break;
	case 3:
		run(5100);
		notice(other);
		break;
	case 4:
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
		break;
	case 5:
		publish_stop(publish, on_done, NULL);
		break;
	default:
		break;
	}
	run(0);
	ck_assert(!is_cut(peer) && !peer->disconnected);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, _i / 2 == 0);
	if (fails)
		fake_fail("verbs_create_qp", 0, 1, -ENOMEM);
	event_io_set(connector_source, EVENT_READ);
	run(0);
	if (_i == 0) {
		ck_assert(peer->accepted);
		fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
		run(0);
	}
	ck_assert(is_cut(peer));
	ck_assert(peer->rejected == (_i == 1));
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	run(1100);
	if (_i / 2 == 4)
		ck_assert_uint_eq(device_count(), 2); /* it could be closed, and came back */
	if (_i / 2 == 5)
		ck_assert_uint_eq(done_count, 1);
	else
		fake_event(other, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* Taking an event may wait for whatever opens or closes a device: the daemon does not, nor does its end. */
START_TEST(events_are_taken_by_a_worker)
{
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9");
	unsigned int taken = fake_calls("cm_take_event");
	event_io_set(taker_source, 0);
	struct fake_connection *next = knock(0, "10.0.0.10");
	ck_assert(!next->accepted && !next->rejected);
	add(1);
	ck_assert_uint_eq(notice(peer).generation, 2);
	ack(peer, 1, 2);
	ck_assert_uint_eq(fake_calls("cm_take_event"), taken);
	if (_i) {
		publish_stop(publish, on_done, NULL);
		run(400);
		ck_assert_uint_eq(done_count, 0);
		run(200);
		ck_assert_uint_eq(done_count, 1);
		publish_free(&publish);
		ck_assert_int_eq(fake_counts().pds, FAKE_DEVICES); /* what the worker needs is still there */
		return;
	}
	event_io_set(taker_source, EVENT_READ);
	run(0);
	ck_assert(next->accepted);
	fake_event(next, RDMA_CM_EVENT_DISCONNECTED);
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(any_event_comes_in_any_state)
{
	static const enum rdma_cm_event_type ends[] = { RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_CONNECT_ERROR,
		RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_REJECTED };
	open_publish();
	for (unsigned int i = 0; i < 4; i++) {
		struct fake_connection *peer = knock(0, "10.0.0.9");
		fake_event(peer, RDMA_CM_EVENT_ADDR_CHANGE);
		fake_event(peer, ends[i]);
		fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
		fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
		fake_event(peer, RDMA_CM_EVENT_TIMEWAIT_EXIT);
		run(0);
		ck_assert(is_cut(peer));
		peer = join(0, "10.0.0.9");
		fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
		fake_event(peer, ends[i]);
		fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
		run(0);
		ck_assert(is_cut(peer));
	}
	ck_assert_uint_eq(publish_snapshot(publish).peers, 0);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	close_publish();
}
END_TEST

START_TEST(a_change_is_told_once_and_changes_are_collected)
{
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9");
	struct err err;
	for (uint64_t id = 1; id <= 5; id++)
		ck_assert_int_eq(try_add(id, &err), 0);
	ck_assert_uint_eq(added_count, 0); /* never from inside the call */
	run(5);
	ck_assert_uint_eq(added_count, 5);
	struct peer_notice first = notice(peer);
	ck_assert_uint_eq(first.sequence, 1);
	ck_assert_uint_eq(first.generation, 2);
	ck_assert_uint_eq(first.withdrawn_count, 0);
	/* One at a time: the next one waits for the acknowledgement. */
	add(6);
	add(7);
	ck_assert(is_quiet(peer));
	ack(peer, 1, 2);
	struct peer_notice second = notice(peer);
	ck_assert_uint_eq(second.sequence, 2);
	ck_assert_uint_eq(second.generation, 4);
	ack(peer, 2, 4);
	ck_assert(is_quiet(peer));
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(a_withdrawal_waits_for_each_acknowledgement)
{
	open_publish();
	add(1);
	struct fake_connection *a = join(0, "10.0.0.9"), *b = join(1, "10.0.0.10");
	publish_withdraw(publish, 1);
	run(5);
	struct peer_notice notice_a = notice(a), notice_b = notice(b);
	ck_assert_uint_eq(notice_a.withdrawn_count, 1);
	ck_assert_uint_eq(notice_a.withdrawn[0], 1);
	ck_assert_uint_eq(notice_b.generation, 3);
	ack(a, 1, 3);
	run(REVOKE_MS - 100);
	ck_assert_uint_eq(withdrawn_count, 0);
	ack(b, 1, 3);
	ck_assert_uint_eq(withdrawn_count, 1);
	ck_assert_uint_eq(withdrawn[0], 1);
	run(REVOKE_MS);
	ck_assert(a->qp && b->qp);
	fake_event(a, RDMA_CM_EVENT_DISCONNECTED);
	fake_event(b, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(who_is_late_is_cut_before_the_promise)
{
	open_publish();
	add(1);
	struct fake_connection *late = join(0, "10.0.0.9"), *good = join(0, "10.0.0.10");
	must_be_cut = late;
	if (_i == 1) /* the device refuses: then its queue pair must be gone */
		fake_fail("verbs_modify_qp", 0, 1, -EINVAL);
	publish_withdraw(publish, 1);
	run(5);
	notice(late);
	notice(good);
	ack(good, 1, 3);
	run(REVOKE_MS - 100);
	ck_assert_uint_eq(withdrawn_count, 0);
	run(200);
	ck_assert_uint_eq(withdrawn_count, 1);
	ck_assert(is_cut(late));
	ck_assert(late->disconnected);
	ck_assert_ptr_nonnull(good->qp);
	fake_event(good, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* That the daemon was busy for so long is not the peer's fault: 0 before an unmap's deadline, 1 a keep-alive's. */
START_TEST(an_acknowledgement_that_is_there_counts)
{
	open_publish();
	add(1);
	struct fake_connection *peer = join(0, "10.0.0.9");
	if (_i == 0)
		publish_withdraw(publish, 1);
	run(_i == 0 ? 5 : KEEPALIVE_S * 1000 + 10);
	uint64_t generation = notice(peer).generation;
	ack_arrives(peer, 1, generation);
	fake_loop_be_late(loop, _i == 0 ? 2 * REVOKE_MS : 4 * KEEPALIVE_S * 1000);
	run(0);
	ck_assert(!is_cut(peer));
	ck_assert_uint_eq(withdrawn_count, _i == 0);
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* Its time is over in the same moment in which a later change is written. */
START_TEST(a_later_withdrawal_gives_nobody_more_time)
{
	open_publish();
	add(1);
	add(2);
	run(100);
	struct fake_connection *late = join(0, "10.0.0.9");
	publish_withdraw(publish, 1); /* written at once */
	run(REVOKE_MS - 1);
	struct err err;
	ck_assert_int_eq(try_add(3, &err), 0); /* written at once, so what follows is 1 ms later */
	run(0);
	publish_withdraw(publish, 2);
	run(0);
	ck_assert_uint_eq(withdrawn_count, 0);
	ck_assert(!is_cut(late));
	run(10);
	ck_assert(is_cut(late));
	ck_assert_uint_eq(withdrawn_count, 2);
	close_publish();
}
END_TEST

START_TEST(a_queue_pair_that_stays_holds_the_promise_back)
{
	open_publish();
	add(1);
	struct fake_connection *late = join(0, "10.0.0.9");
	fake_fail("verbs_modify_qp", 0, 1, -EINVAL);
	fake_fail("verbs_destroy_qp", 0, 1, -EBUSY);
	publish_withdraw(publish, 1);
	run(10 * REVOKE_MS);
	ck_assert_uint_eq(withdrawn_count, 0);
	ck_assert_ptr_nonnull(late->qp);
}
END_TEST

START_TEST(a_peer_that_lags_learns_of_all_that_went)
{
	unsigned int count = (unsigned int)_i;
	open_publish();
	for (uint64_t id = 1; id <= count + 1; id++)
		add(id);
	struct fake_connection *peer = join(0, "10.0.0.9");
	publish_withdraw(publish, count + 1);
	run(5);
	uint64_t generation = notice(peer).generation;
	for (uint64_t id = 1; id <= count; id++) {
		publish_withdraw(publish, id);
		run(5);
	}
	ack(peer, 1, generation);
	struct peer_notice all = notice(peer);
	ck_assert_uint_eq(all.generation, generation + count);
	if (count > PEER_NOTICE_IDS_MAX) {
		ck_assert_uint_eq(all.withdrawn_count, PEER_WITHDRAWN_ALL);
	} else {
		uint64_t sum = 0;
		ck_assert_uint_eq(all.withdrawn_count, count);
		for (unsigned int i = 0; i < count; i++)
			sum += all.withdrawn[i];
		ck_assert_uint_eq(sum, count * (count + 1) / 2);
	}
	ack(peer, 2, all.generation);
	ck_assert_uint_eq(withdrawn_count, count + 1);
	/* What it knows is not told again. */
	add(count + 2);
	ck_assert_uint_eq(notice(peer).withdrawn_count, 0);
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(a_mapping_withdrawn_before_it_was_written_is_never_added)
{
	open_publish();
	struct err err;
	ck_assert_int_eq(try_add(1, &err), 0);
	publish_withdraw(publish, 1);
	ck_assert_uint_eq(withdrawn_count, 0); /* never from inside the call */
	run(5);
	ck_assert_uint_eq(added_count, 0);
	ck_assert_uint_eq(withdrawn_count, 1);
	close_publish();
}
END_TEST

START_TEST(who_breaks_the_protocol_is_dropped)
{
	open_publish();
	add(1);
	struct fake_connection *peer = join(0, "10.0.0.9");
	uint8_t bytes[PEER_FRAME_SIZE_MAX] = { 0 };
	bool told = _i < 7;
	if (told) {
		add(2);
		ck_assert_uint_eq(notice(peer).generation, 3);
	}
	switch (_i) {
	case 0:
		ack(peer, 2, 3); /* a notice that was not sent */
		break;
	case 1:
		ack(peer, 1, 2); /* an older generation */
		break;
	case 2:
		ack(peer, 1, 4); /* one that is not there yet */
		break;
	case 3:
		fake_receive(peer, bytes, sizeof(bytes), IBV_WC_RECV);
		break;
	case 4:
		fake_receive(peer, bytes, 0, IBV_WC_RECV);
		break;
	case 5:
		fake_receive(peer, bytes, 1 << 20, IBV_WC_RECV_RDMA_WITH_IMM);
		break;
	case 6:
		ack(peer, 1, 3);
		ck_assert_ptr_nonnull(peer->qp);
		ack(peer, 1, 3); /* a duplicate delivery */
		run(0);
		ck_assert(!is_cut(peer));
		ack(peer, 1, 3); /* a flood */
		break;
	case 7:
		ack(peer, 0, 2); /* nothing was asked */
		break;
	default:
		fake_receive(peer, bytes,
			(size_t)peer_frame_write(
				&(struct peer_frame){ .type = PEER_FRAME_NOTICE, .notice = { .slot_offset = 64 } },
				bytes),
			IBV_WC_RECV);
	}
	run(0);
	ck_assert(is_cut(peer));
	ck_assert_uint_eq(publish_snapshot(publish).peers, 0);
	close_publish();
}
END_TEST

START_TEST(silence_is_broken_and_silent_peers_are_dropped)
{
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9"), *silent = join(0, "10.0.0.10"),
			       *deaf = join(0, "10.0.0.11");
	for (uint32_t sequence = 1; sequence < 6; sequence++) {
		ck_assert(is_quiet(peer));
		run(KEEPALIVE_S * 1000 + 10);
		struct peer_notice alive = notice(peer);
		ck_assert_uint_eq(alive.sequence, sequence);
		ck_assert_uint_eq(alive.generation, 1);
		ck_assert_uint_eq(alive.withdrawn_count, 0);
		if (sequence == 1)
			notice(silent);
		ack(peer, sequence, 1);
		ck_assert_int_eq(is_cut(silent), sequence >= 4);
		ck_assert_int_eq(is_cut(deaf), sequence >= 4); /* whose send never completes */
	}
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(a_peer_that_takes_no_frame_is_dropped)
{
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9");
	add(1);
	fake_complete_send(peer, IBV_WC_RNR_RETRY_EXC_ERR);
	run(0);
	ck_assert(is_cut(peer));
	close_publish();
}
END_TEST

START_TEST(an_unlucky_admission_ends_the_peer)
{
	open_publish();
	struct fake_connection *peer = knock(0, "10.0.0.9");
	fake_fail(_i ? "verbs_post_send" : "verbs_modify_qp", 0, 1, -EIO);
	fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
	run(0);
	ck_assert(is_cut(peer));
	ck_assert_uint_eq(publish_snapshot(publish).peers, 0);
	close_publish();
}
END_TEST

START_TEST(a_device_that_is_gone_takes_its_peers_along)
{
	open_publish();
	add(1);
	struct fake_connection *lost = join(0, "10.0.0.9"), *other = join(1, "10.0.0.10");
	/* From now on nothing works there any more. */
	fake_fail("verbs_modify_qp", 0, 1, -EIO);
	if (_i == 0)
		fake_event(lost, RDMA_CM_EVENT_DEVICE_REMOVAL);
	else if (_i == 1)
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
	else
		fake_fail("verbs_next_cq_event", 0, 1, -EIO);
	if (_i == 2)
		ack(lost, 9, 9);
	run(0);
	ck_assert(is_cut(lost));
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_REGISTERING);
	publish_withdraw(publish, 1);
	run(5);
	ack(other, notice(other).sequence, 3);
	ck_assert_uint_eq(withdrawn_count, 1);
	fake_event(other, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(peers_of_a_device_can_be_dropped)
{
	open_publish();
	struct device *devices[PUBLISH_DEVICES_MAX];
	ck_assert_uint_eq(publish_devices(publish, devices), 2);
	struct publish_drop drops[2] = { { .done = on_done }, { .done = on_done } };
	struct fake_connection *a = join(0, "10.0.0.9"), *b = join(0, "10.0.0.10"), *other = join(1, "10.0.0.11");
	publish_drop_peers(publish, devices[0], &drops[0]);
	publish_drop_peers(publish, devices[0], &drops[1]);
	ck_assert_uint_eq(done_count, 0);
	run(0);
	ck_assert_uint_eq(done_count, 2);
	ck_assert(is_cut(a) && is_cut(b));
	ck_assert_ptr_nonnull(other->qp);

	/* Nobody may come between that and the second try, of either. */
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_REGISTERING);
	publish_drop_end(&drops[0]);
	publish_drop_end(&drops[0]);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_REGISTERING);
	publish_drop_end(&drops[1]);
	a = join(0, "10.0.0.9");

	publish_drop_peers(publish, devices[0], &drops[0]);
	run(0);
	ck_assert_uint_eq(done_count, 3);
	publish_drop_peers(publish, devices[0], &drops[1]);
	ck_assert_uint_eq(done_count, 3); /* never from inside the call */
	run(0);
	ck_assert_uint_eq(done_count, 4);
	ck_assert(is_cut(a));
	fake_event(other, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(the_end_is_told_and_waited_for)
{
	open_publish();
	add(1);
	struct fake_connection *peer = join(0, "10.0.0.9"), *half_open = knock(0, "10.0.0.9");
	publish_stop(publish, on_done, NULL);
	run(0);
	ck_assert(is_cut(half_open));
	struct peer_notice last = notice(peer);
	ck_assert_uint_eq(last.withdrawn_count, PEER_WITHDRAWN_ALL);
	ck_assert_uint_eq(last.slot_size, 0);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_RESOURCES);
	ck_assert_uint_eq(done_count, 0);
	if (_i == 0) {
		ack(peer, last.sequence, last.generation);
	} else {
		run(250);
		ck_assert_uint_eq(done_count, 0);
		run(100);
	}
	ck_assert_uint_eq(done_count, 1);
	ck_assert(is_cut(peer));
	publish_withdraw(publish, 1); /* as a provider that goes meanwhile */
	run(1000);
	ck_assert_uint_eq(withdrawn_count, 0);
	ck_assert_uint_eq(done_count, 1);
	close_publish();
}
END_TEST

START_TEST(the_end_waits_for_nothing_that_hangs)
{
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9");
	fake_fail("verbs_destroy_qp", 0, 1, -EBUSY);
	publish_stop(publish, on_done, NULL);
	run(490);
	ck_assert_uint_eq(done_count, 0);
	run(20);
	ck_assert_uint_eq(done_count, 1);
	ck_assert_int_eq(peer->qp->state, IBV_QPS_ERR);
	publish_free(&publish);
}
END_TEST

/* A completion that comes after its peer's slot has a new peer touches nobody. */
START_TEST(a_late_completion_is_nobodys)
{
	open_publish();
	struct fake_connection *first = join(0, "10.0.0.9");
	struct ibv_wc stale = { .wr_id = first->qp->receive_ids[0], .status = IBV_WC_WR_FLUSH_ERR };
	fake_event(first, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	struct fake_connection *second = join(0, "10.0.0.10");
	uint64_t own = second->qp->receive_ids[0];
	ck_assert_uint_ne(own, stale.wr_id);
	ck_assert_uint_eq(own & 0xffffffff, stale.wr_id & 0xffffffff); /* the same slot */
	second->qp->receive_ids[0] = stale.wr_id;
	fake_receive(second, &stale, 0, IBV_WC_RECV);
	run(0);
	ck_assert_ptr_nonnull(second->qp);
	fake_event(second, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(a_full_catalog_is_an_error_that_names_the_flag)
{
	config.max_extents = 2;
	open_publish();
	add(1);
	add(2);
	struct err err;
	ck_assert_int_eq(try_add(3, &err), -EDQUOT);
	ck_assert_ptr_nonnull(strstr(err.text, "--max-extents"));
	publish_withdraw(publish, 1);
	run(5);
	add(3);
	close_publish();
}
END_TEST

/* Each call of the start fails in turn: an error in words, and nothing left. */
START_TEST(a_start_that_fails_leaves_nothing)
{
	static const struct {
		const char *function;
		unsigned int skip;
	} steps[] = {
		{ "cm_channel_new", 0 },
		{ "cm_id_new", 0 },
		{ "cm_id_new", 1 },
		{ "cm_bind", 0 },
		{ "cm_bind", 1 },
		{ "verbs_query_device", 0 },
		{ "verbs_query_device", 1 },
		{ "verbs_alloc_pd", 0 },
		{ "verbs_alloc_pd", 1 },
		{ "verbs_reg_mr_iova", 0 },
		{ "verbs_reg_mr_iova", 1 },
		{ "verbs_create_comp_channel", 0 },
		{ "verbs_create_comp_channel", 1 },
		{ "verbs_set_async_nonblocking", 1 },
		{ "verbs_reg_mr", 0 },
		{ "verbs_reg_mr", 1 },
		{ "verbs_create_cq", 0 },
		{ "verbs_create_cq", 1 },
		{ "verbs_req_notify_cq", 0 },
		{ "verbs_req_notify_cq", 1 },
		{ "cm_listen", 0 },
		{ "cm_listen", 1 },
	};
	struct err err = { .text = "" };
	fake_fail(steps[_i].function, steps[_i].skip, 1, -EPERM);
	ck_assert_int_eq(try_open(&err), -EPERM);
	ck_assert_ptr_null(publish);
	ck_assert_uint_gt(strlen(err.text), 10);
	ck_assert_uint_eq(memlock.pinned, 0);
	ck_assert_int_eq(fake_counts().mrs, 0);
	close_publish();
}
END_TEST

/* As the daemon does when every mapping stands on each device. */
static void serve(void)
{
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t count = publish_devices(publish, devices);
	for (size_t i = 0; i < count; i++) {
		if (!publish_serves(publish, devices[i]))
			publish_serve(publish, devices[i]);
	}
}

/* Listens on two addresses, or on a wildcard. */
static void listen_on(bool wildcard)
{
	config.listen_count = wildcard ? 1 : 2;
	open_publish_at = wildcard ? "0.0.0.0" : "10.0.0.1";
}

START_TEST(a_missing_device_is_looked_for)
{
	listen_on(_i % 2);
	bool none = _i >= 2;
	fake_absent(0, none);
	fake_absent(1, true);
	open_publish();
	ck_assert_uint_eq(device_count(), !none);
	run(3000);
	ck_assert_uint_eq(device_count(), !none);
	ck_assert_uint_eq(changed_count, 0);
	unsigned int looks = fake_calls("cm_channel_new");
	if (none)
		ck_assert_uint_ge(looks, 3);

	fake_absent(0, false);
	run(1100);
	ck_assert_uint_eq(device_count(), 1);
	ck_assert_uint_eq(changed_count, none);
	if (none) {
		assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_REGISTERING);
		serve();
	}
	struct fake_connection *peer = join(0, "10.0.0.9");
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* Nothing is missing when it comes: a peer asks for it, or nobody does. */
START_TEST(a_wildcard_notices_a_device_that_was_never_there)
{
	bool by_peer = _i % 2, none_at_start = _i >= 2;
	listen_on(true);
	fake_absent(0, none_at_start);
	fake_absent(1, true);
	open_publish();
	fake_absent(0, false);
	run(3000);
	ck_assert_uint_eq(device_count(), 1);
	serve();

	fake_absent(1, false);
	if (by_peer) {
		struct fake_connection *early = knock(1, "10.0.0.9");
		assert_rejected(early, PEER_REJECT_REGISTERING);
		struct peer_reject reject;
		peer_reject_read(early->private_data, PEER_REJECT_SIZE_MAX, &reject);
		ck_assert_ptr_nonnull(strstr(reject.text, "not published yet: try again"));
	}
	run(by_peer ? 1100 : 10100);
	ck_assert_uint_eq(device_count(), 2);
	serve();
	unsigned int looks = fake_calls("cm_devices");
	struct fake_connection *peer = join(1, "10.0.0.9");
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(6000);
	ck_assert_uint_eq(fake_calls("cm_devices"), looks); /* rarely, where nothing is missing */
	close_publish();
}
END_TEST

START_TEST(a_device_that_goes_comes_back)
{
	listen_on(_i == 1);
	open_publish();
	add(1);
	struct fake_connection *lost = join(0, "10.0.0.9"), *other = join(1, "10.0.0.10");
	struct device *devices[PUBLISH_DEVICES_MAX];
	ck_assert_uint_eq(publish_devices(publish, devices), 2);
	publish_hold(publish, devices[0]);
	fake_absent(0, true);
	fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
	run(0);
	ck_assert(is_cut(lost));
	ck_assert_uint_eq(changed_count, 1);
	ck_assert_uint_eq(device_count(), 1);
	/* While somebody holds it, it is there, and does not come back. */
	fake_absent(0, false);
	run(3000);
	ck_assert_int_eq(fake_counts().pds, 2);
	ck_assert_uint_eq(device_count(), 1);

	ck_assert_int_eq(registration_drop(registrations[1], devices[0], NULL), 0);
	publish_release(publish, devices[0]);
	run(0);
	ck_assert_int_eq(fake_counts().pds, 1);
	run(1100);
	ck_assert_uint_eq(device_count(), 2);
	ck_assert_uint_eq(changed_count, 2);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_REGISTERING);
	serve();
	/* It is the first device still, and its catalog is of today. */
	struct fake_connection *back = knock(0, "10.0.0.9");
	fake_event(back, RDMA_CM_EVENT_ESTABLISHED);
	run(0);
	struct peer_welcome welcome = sent(back).welcome;
	ck_assert_uint_eq(welcome.granted, MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC);
	ck_assert_uint_eq(welcome.generation, 2);
	fake_complete_send(back, IBV_WC_SUCCESS);
	add(2);
	ck_assert_uint_eq(notice(back).generation, 3);
	ack(back, 1, 3);
	ck_assert_ptr_nonnull(other->qp);
	fake_event(back, RDMA_CM_EVENT_DISCONNECTED);
	fake_event(other, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

static struct event_loop_ops failing_ops;
static struct event_source *(*io_new)(struct event_loop *loop, int fd, event_io_fn *fn, void *data);

static struct event_source *no_more_io(struct event_loop *of, int fd, event_io_fn *fn, void *data)
{
	failing_ops.io_new = io_new;
	return NULL;
}

static void fail_next_io(void)
{
	failing_ops = *loop->ops;
	io_new = failing_ops.io_new;
	failing_ops.io_new = no_more_io;
	loop->ops = &failing_ops;
}

/* Each call of a device's return fails in turn: it is tried again, and nothing is left of the try that failed. */
START_TEST(a_return_that_fails_is_tried_again)
{
	static const char *const steps[] = { "cm_id_new", "cm_bind", "verbs_query_device", "verbs_alloc_pd",
		"verbs_reg_mr_iova", "verbs_create_comp_channel", "verbs_set_async_nonblocking", "verbs_reg_mr",
		"verbs_create_cq", "verbs_req_notify_cq", "cm_listen", "cm_devices" };
	bool wildcard = _i == 11, no_memory = _i == 12;
	listen_on(wildcard);
	open_publish();
	uint64_t pinned = memlock.pinned;
	struct fake_counts counts = fake_counts();
	fake_async_event(1, IBV_EVENT_CQ_ERR);
	run(0);
	ck_assert_uint_eq(device_count(), 1);
	if (no_memory)
		fail_next_io();
	else
		fake_fail(steps[_i], 0, 1, -EPERM);
	run(1100);
	ck_assert_uint_eq(device_count(), 1 + (_i == 10));
	run(1100);
	ck_assert_uint_eq(device_count(), 2);
	ck_assert_uint_eq(memlock.pinned, pinned);
	ck_assert_int_eq(fake_counts().mrs, counts.mrs);
	ck_assert_int_eq(fake_counts().ids, counts.ids);
	ck_assert_int_eq(fake_counts().cqs, counts.cqs);
	close_publish();
}
END_TEST

START_TEST(a_queue_pair_that_fails_ends_its_peer)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR };
	open_publish();
	struct fake_connection *failed = join(0, "10.0.0.9"), *other = join(0, "10.0.0.10");
	fake_qp_event(failed, types[_i]);
	run(0);
	ck_assert(is_cut(failed));
	ck_assert_ptr_nonnull(other->qp);
	fake_event(other, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

START_TEST(what_a_port_does_ends_nobody)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE,
		IBV_EVENT_LID_CHANGE, IBV_EVENT_SM_CHANGE, IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_COMM_EST };
	open_publish();
	struct fake_connection *peer = join(0, "10.0.0.9");
	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		fake_async_event(0, types[i]);
	run(3000);
	ck_assert_ptr_nonnull(peer->qp);
	ck_assert_uint_eq(device_count(), 2);
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* A worker that opens or closes a device when the end comes: what it needs stays. */
START_TEST(the_end_may_come_while_a_device_is_opened_or_closed)
{
	open_publish();
	if (_i == 0) { /* a look is under way */
		fake_absent(0, true);
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
		run(0);
		fake_absent(0, false);
		hold_workers(true);
		run(1100);
	} else { /* a device is being closed */
		hold_workers(true);
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
		run(0);
	}
	publish_stop(publish, on_done, NULL);
	run(STOP_END_MS - 50);
	ck_assert_uint_eq(done_count, 0);
	hold_workers(false);
	ck_assert_uint_eq(done_count, 1);
	close_publish();
}
END_TEST

START_TEST(rights_that_a_device_does_not_enforce_are_refused)
{
	struct err err;
	fake_attr[1].vendor_id = 0x8086;
	ck_assert_int_eq(try_open(&err), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "fake1"));
	close_publish();
	allow[0].may_write = true;
	open_publish();
	close_publish();
}
END_TEST

START_TEST(a_small_device_has_small_groups)
{
	fake_attr[0].max_cqe = 20; /* two peers a completion queue */
	open_publish();
	struct fake_connection *peers[7];
	for (unsigned int i = 0; i < 7; i++)
		peers[i] = join(0, "10.0.0.9");
	ck_assert_int_eq(fake_counts().cqs, 4 + 1); /* and the first of the other device */
	for (unsigned int i = 0; i < 7; i++)
		fake_event(peers[i], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
	close_publish();
}
END_TEST

/* The peers of one completion queue, and how many of them make the next one due. */
enum { GROUP = 64, GROUP_DUE = 48 };

static void join_many(struct fake_connection **peers, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		peers[i] = join(0, "10.0.0.9");
}

static void end_many(struct fake_connection **peers, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		fake_event(peers[i], RDMA_CM_EVENT_DISCONNECTED);
	run(0);
}

START_TEST(room_for_peers_is_made_ahead_by_a_worker)
{
	open_publish();
	struct fake_connection *peers[GROUP + 1];
	ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES);
	hold_workers(true);
	uint64_t pinned = memlock.pinned;
	join_many(peers, GROUP_DUE - 1);
	ck_assert_uint_eq(memlock.pinned, pinned);
	join_many(peers + GROUP_DUE - 1, GROUP - GROUP_DUE + 1);
	ck_assert_uint_gt(memlock.pinned, pinned);
	ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES); /* nothing is registered on the loop */
	hold_workers(false);
	ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES + 1);
	join_many(peers + GROUP, 1);
	end_many(peers, GROUP + 1);
	close_publish();
}
END_TEST

/* A burst comes before the workers get to anything: all are served, on a device with small groups too. */
START_TEST(a_burst_waits_for_room)
{
	enum { BURST = 128 };
	if (_i)
		fake_attr[0].max_cqe = 20;
	open_publish();
	struct fake_connection *peers[1 + BURST];
	join_many(peers, 1);
	hold_workers(true);
	for (unsigned int i = 1; i <= BURST; i++)
		peers[i] = knock(0, "10.0.0.9");
	for (unsigned int i = 1; i <= BURST; i++)
		ck_assert(!peers[i]->rejected);
	hold_workers(false);
	for (unsigned int i = 1; i <= BURST; i++) {
		ck_assert(peers[i]->accepted);
		fake_event(peers[i], RDMA_CM_EVENT_ESTABLISHED);
	}
	run(0);
	ck_assert_uint_eq(publish_snapshot(publish).peers, 1 + BURST);
	end_many(peers, 1 + BURST);
	ck_assert_int_eq(fake_counts().qps, 0);
	close_publish();
}
END_TEST

/* While a peer waits for room: it goes, the room cannot be made, its time is over, the device goes, the daemon ends. */
START_TEST(anything_may_happen_while_room_is_waited_for)
{
	open_publish();
	struct fake_connection *peers[GROUP];
	hold_workers(true);
	join_many(peers, GROUP);
	struct fake_connection *peer = knock(0, "10.0.0.9");
	ck_assert(!peer->accepted && !peer->rejected);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 1);
	if (_i == 0)
		fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	else if (_i == 1)
		fake_fail("verbs_create_cq", 0, 1, -ENOMEM);
	else if (_i == 2)
		run(5100);
	else if (_i == 3)
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
	else if (_i == 4)
		publish_stop(publish, on_done, NULL);
	else
		fake_event(peer, RDMA_CM_EVENT_ESTABLISHED); /* nonsense */
	run(0);
	ck_assert_uint_eq(publish_snapshot(publish).half_open, _i == 1 || _i == 5);
	if (_i == 2)
		assert_told(peer, PEER_REJECT_RESOURCES);
	hold_workers(false);
	if (_i == 1)
		assert_rejected(peer, PEER_REJECT_RESOURCES);
	if (_i == 5) {
		ck_assert(peer->accepted);
		fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
		run(0);
	}
	ck_assert(is_cut(peer));
	ck_assert_uint_eq(publish_snapshot(publish).half_open, 0);
	if (_i == 4)
		run(1000);
	else
		end_many(peers, _i == 3 ? 0 : GROUP);
	ck_assert_int_eq(fake_counts().qps, 0);
	close_publish();
}
END_TEST

START_TEST(room_that_cannot_be_made_is_tried_again)
{
	static const char *const functions[] = { "verbs_reg_mr", "verbs_create_cq", "verbs_req_notify_cq" };
	open_publish();
	struct fake_connection *peers[GROUP];
	join_many(peers, GROUP_DUE - 1);
	struct fake_counts counts = fake_counts();
	uint64_t pinned = memlock.pinned;
	fake_fail(functions[_i], 0, 1, -ENOMEM);
	join_many(peers + GROUP_DUE - 1, 1);
	ck_assert_int_eq(fake_counts().cqs, counts.cqs);
	ck_assert_int_eq(fake_counts().mrs, counts.mrs);
	ck_assert_uint_eq(memlock.pinned, pinned);
	join_many(peers + GROUP_DUE, 1);
	ck_assert_int_eq(fake_counts().cqs, counts.cqs + 1);
	ck_assert_uint_gt(memlock.pinned, pinned);
	end_many(peers, GROUP_DUE + 1);
	close_publish();
}
END_TEST

START_TEST(room_that_the_budget_does_not_allow_is_told)
{
	open_publish();
	struct fake_connection *peers[GROUP + 1];
	memlock.limit = memlock.pinned;
	join_many(peers, GROUP);
	ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES);
	assert_rejected(knock(0, "10.0.0.9"), PEER_REJECT_RESOURCES);
	memlock.limit = UINT64_MAX;
	join_many(peers + GROUP, 1);
	end_many(peers, GROUP + 1);
	close_publish();
}
END_TEST

START_TEST(a_device_may_go_while_room_is_made)
{
	open_publish();
	struct fake_connection *peers[GROUP_DUE];
	hold_workers(true);
	join_many(peers, GROUP_DUE);
	fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
	run(0);
	if (_i == 1)
		fake_fail("verbs_reg_mr", 0, 1, -EIO);
	if (_i == 2)
		fake_fail("verbs_req_notify_cq", 0, 1, -EIO);
	hold_workers(false);
	for (unsigned int i = 0; i < GROUP_DUE; i++)
		ck_assert(is_cut(peers[i]));
	/* It is closed, with all that was made on it. */
	ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES - 1);
	ck_assert_int_eq(fake_counts().pds, FAKE_DEVICES - 1);
	close_publish();
}
END_TEST

START_TEST(the_end_waits_for_room_in_the_making_but_not_for_long)
{
	open_publish();
	struct fake_connection *peers[GROUP_DUE];
	hold_workers(true);
	join_many(peers, GROUP_DUE);
	publish_stop(publish, on_done, NULL);
	run(490);
	ck_assert_uint_eq(done_count, 0);
	if (_i == 0) {
		hold_workers(false);
		ck_assert_uint_eq(done_count, 1);
		ck_assert_int_eq(fake_counts().cqs, FAKE_DEVICES + 1);
		close_publish();
		return;
	}
	run(20);
	ck_assert_uint_eq(done_count, 1);
	publish_free(&publish);
	/* What the worker needs is still there. */
	ck_assert_int_eq(fake_counts().pds, FAKE_DEVICES);
	ck_assert_int_eq(fake_counts().comp_channels, FAKE_DEVICES);
}
END_TEST

static void add_peer_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_peer_has_no_right_before_it_is_admitted);
	tcase_add_test(tcase, rights_are_those_asked_for_and_allowed);
	tcase_add_test(tcase, who_may_not_connect_is_told_why);
	tcase_add_test(tcase, without_allow_only_own_addresses_connect);
	tcase_add_test(tcase, own_addresses_are_read_by_a_worker_and_rarely);
	tcase_add_test(tcase, the_end_may_come_while_own_addresses_are_read);
	tcase_add_loop_test(tcase, one_host_does_not_keep_others_out, 0, 2);
	tcase_add_test(tcase, so_many_connections_may_be_ending);
	tcase_add_test(tcase, half_open_peers_are_bounded);
	tcase_add_test(tcase, peers_are_bounded);
	tcase_add_test(tcase, a_peer_that_cannot_be_served_is_rejected);
	tcase_add_loop_test(tcase, anything_may_happen_while_a_queue_pair_is_made, 0, 12);
	tcase_add_loop_test(tcase, events_are_taken_by_a_worker, 0, 2);
	tcase_add_test(tcase, any_event_comes_in_any_state);
	tcase_add_loop_test(tcase, who_breaks_the_protocol_is_dropped, 0, 9);
	tcase_add_test(tcase, silence_is_broken_and_silent_peers_are_dropped);
	tcase_add_test(tcase, a_peer_that_takes_no_frame_is_dropped);
	tcase_add_loop_test(tcase, an_unlucky_admission_ends_the_peer, 0, 2);
	tcase_add_test(tcase, a_late_completion_is_nobodys);
	tcase_add_test(tcase, a_small_device_has_small_groups);
	tcase_add_test(tcase, room_for_peers_is_made_ahead_by_a_worker);
	tcase_add_loop_test(tcase, a_burst_waits_for_room, 0, 2);
	tcase_add_loop_test(tcase, anything_may_happen_while_room_is_waited_for, 0, 6);
	tcase_add_loop_test(tcase, room_that_cannot_be_made_is_tried_again, 0, 3);
	tcase_add_test(tcase, room_that_the_budget_does_not_allow_is_told);
	tcase_add_loop_test(tcase, a_device_may_go_while_room_is_made, 0, 3);
	tcase_add_loop_test(tcase, the_end_waits_for_room_in_the_making_but_not_for_long, 0, 2);
}

static void add_mapping_tests(TCase *tcase)
{
	tcase_add_test(tcase, a_change_is_told_once_and_changes_are_collected);
	tcase_add_test(tcase, a_withdrawal_waits_for_each_acknowledgement);
	tcase_add_loop_test(tcase, who_is_late_is_cut_before_the_promise, 0, 2);
	tcase_add_loop_test(tcase, an_acknowledgement_that_is_there_counts, 0, 2);
	tcase_add_test(tcase, a_later_withdrawal_gives_nobody_more_time);
	tcase_add_test(tcase, a_queue_pair_that_stays_holds_the_promise_back);
	tcase_add_loop_test(tcase, a_peer_that_lags_learns_of_all_that_went, 15, 18);
	tcase_add_test(tcase, a_mapping_withdrawn_before_it_was_written_is_never_added);
	tcase_add_loop_test(tcase, a_device_that_is_gone_takes_its_peers_along, 0, 3);
	tcase_add_test(tcase, peers_of_a_device_can_be_dropped);
	tcase_add_test(tcase, a_full_catalog_is_an_error_that_names_the_flag);
}

static void add_life_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, the_end_is_told_and_waited_for, 0, 2);
	tcase_add_test(tcase, the_end_waits_for_nothing_that_hangs);
	tcase_add_loop_test(tcase, a_start_that_fails_leaves_nothing, 0, 22);
	tcase_add_test(tcase, rights_that_a_device_does_not_enforce_are_refused);
}

static void add_device_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, a_missing_device_is_looked_for, 0, 4);
	tcase_add_loop_test(tcase, a_wildcard_notices_a_device_that_was_never_there, 0, 4);
	tcase_add_loop_test(tcase, a_device_that_goes_comes_back, 0, 2);
	tcase_add_loop_test(tcase, a_return_that_fails_is_tried_again, 0, 13);
	tcase_add_loop_test(tcase, a_queue_pair_that_fails_ends_its_peer, 0, 3);
	tcase_add_test(tcase, what_a_port_does_ends_nobody);
	tcase_add_loop_test(tcase, the_end_may_come_while_a_device_is_opened_or_closed, 0, 2);
}

void add_publish_tests(Suite *suite)
{
	TCase *tcase = tcase_create("publish");
	tcase_set_timeout(tcase, 60);
	add_peer_tests(tcase);
	add_mapping_tests(tcase);
	add_life_tests(tcase);
	add_device_tests(tcase);
	suite_add_tcase(suite, tcase);
}
