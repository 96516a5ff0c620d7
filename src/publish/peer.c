/* peer.c: a peer from its request to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "publish/peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/container.h"
#include "base/log.h"

static struct peer *peer_of(struct job *job)
{
	return container_of(job, struct peer, job);
}

static void destroy_id_run(struct job *job)
{
	cm_id_free(&peer_of(job)->id);
}

static void destroy_id_done(struct job *job)
{
	struct peer *peer = peer_of(job);
	struct publish *publish = peer->publish;
	LIST_REMOVE(peer, link);
	free(peer);
	publish->ending--;
	cm_channel_resume(publish);
	publish_settle_soon(publish);
}

/* Always a big job, since what destroys queue pairs must overtake it, which withdrawals may wait for: it takes up to a
 * minute where the peer's host is dead, and strangers can have any number of ids made by being rejected. */
static void destroy_id(struct peer *peer)
{
	peer->job = (struct job){ .run = destroy_id_run, .done = destroy_id_done, .big = true };
	worker_pool_submit(peer->publish->destroyer, &peer->job);
}

/* The host comes first: its port is another each time. */
const char *peer_tag(const struct peer *peer)
{
	const char *host = peer->name, *port = strrchr(host, ':');
	int len = port ? (int)(port - host) : (int)strlen(host);
	if (*host == '[') {
		host++;
		len -= 2;
	}
	log_field("MRSHARE_PEER", "%.*s", len, host);
	log_field("MRSHARE_PEER_PORT", "%s", port ? port + 1 : "");
	if (peer->device)
		device_tag(peer->device->device);
	return peer->name;
}

/* Which may end before the id does. */
static void leave_device(struct peer *peer)
{
	group_leave(peer);
	peer->device = NULL;
}

static void destroy_qp_run(struct job *job)
{
	struct peer *peer = peer_of(job);
	int r = verbs_destroy_qp(&peer->qp);
	if (r == -EIO && atomic_load(&peer->device->device->gone))
		peer->qp = NULL;
}

static void destroy_qp_done(struct job *job)
{
	struct peer *peer = peer_of(job);
	if (peer->qp) {
		/* It may still reach memory, so what waits for it waits for ever; its frames stay too. */
		log_error("device %s: cannot destroy the queue pair of peer %s: restart mrshared",
			peer->device->device->name, peer_tag(peer));
		return;
	}
	peer->reachable = false;
	peer->device->queue_pairs--;
	leave_device(peer);
	publish_settle_soon(peer->publish);
	destroy_id(peer);
}

static void destroy(struct peer *peer)
{
	if (peer->qp) {
		peer->job = (struct job){ .run = destroy_qp_run, .done = destroy_qp_done };
		worker_pool_submit(peer->publish->destroyer, &peer->job);
	} else {
		leave_device(peer);
		destroy_id(peer);
	}
}

/* Makes the peer ENDING and hands it to the destroyer, at once or when its queue pair is made. */
static void peer_destroy(struct peer *peer)
{
	peer->state = PEER_ENDING;
	peer->publish->ending++;
	event_source_free(&peer->timer);
	if (!peer->connecting)
		destroy(peer);
	publish_settle_soon(peer->publish);
}

/* From here on nothing of this peer reaches memory. Where the device refuses, the peer counts as reaching it until its
 * queue pair is destroyed. */
static void cut_off(struct peer *peer)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	if (verbs_modify_qp(peer->qp, &attr, IBV_QP_STATE) == 0)
		peer->reachable = false;
	/* Tells the peer; one that is not connected is told by the end of the id. */
	cm_disconnect(peer->id);
}

void peer_end(struct peer *peer, const char *format, ...)
{
	if (peer->state == PEER_ENDING)
		return;
	char text[256];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_message_id("b6236d3d2ebe43f9beca5db52688f15c");
	log_info("peer %s %s", peer_tag(peer), text);

	if (!peer->connecting && peer->qp)
		cut_off(peer);
	if (peer->state == PEER_CONNECTING)
		half_open_leave(peer);
	else
		peer->publish->admitted--;
	peer_destroy(peer);
}

static void peer_reject(struct peer *peer, const struct peer_reject *reject)
{
	log_warning("peer %s rejected: %s", peer_tag(peer), reject->text);
	uint8_t bytes[PEER_REJECT_SIZE_MAX];
	size_t size = peer_reject_write(reject, bytes);
	cm_reject(peer->id, bytes, (uint8_t)size);
	half_open_leave(peer);
	peer_destroy(peer);
}

static void on_half_open_timer(void *data)
{
	struct peer *peer = data;
	struct peer_reject reject;
	if (peer->waits) {
		reject_set(&reject, PEER_REJECT_RESOURCES, "mrshared is too busy: try again");
		peer_reject(peer, &reject);
	} else {
		peer_end(peer, "gave up: it did not complete the connection within %d s", HALF_OPEN_MS / 1000);
	}
}

static int peer_start(struct peer *peer, struct peer_reject *reject)
{
	struct terms terms;
	int r = admission_check(peer, &terms, reject);
	if (r < 0)
		return r;
	peer->device = terms.device;
	peer->granted = terms.granted;
	peer->responder_resources = terms.responder_resources;
	return peer_connect(peer, reject);
}

static void peer_go_on(struct peer *peer)
{
	struct peer_reject reject;
	int r = peer_start(peer, &reject);
	peer->waits = r == -EAGAIN;
	if (r < 0 && r != -EAGAIN)
		peer_reject(peer, &reject);
}

void peers_go_on(struct publish *publish)
{
	struct peer *peer, *next;
	for (peer = TAILQ_FIRST(&publish->half_open_peers); peer; peer = next) {
		next = TAILQ_NEXT(peer, half_open_link);
		if (peer->waits)
			peer_go_on(peer);
	}
}

void peers_have_no_room(struct publish_device *device, const struct err *err)
{
	struct peer *peer, *next;
	for (peer = TAILQ_FIRST(&device->publish->half_open_peers); peer; peer = next) {
		next = TAILQ_NEXT(peer, half_open_link);
		struct peer_reject reject;
		if (!peer->waits || peer->device != device)
			continue;
		reject_set(&reject, PEER_REJECT_RESOURCES, "%.120s", err->text);
		peer_reject(peer, &reject);
	}
}

void peer_request(struct publish *publish, const struct cm_event *event)
{
	struct peer *peer = calloc(1, sizeof(*peer));
	struct rdma_cm_id *id = event->id;
	id->context = peer; /* it was the listener's */
	if (!peer) {
		/* The id stays, since its end may block. */
		log_error("a peer cannot be served: out of memory");
		return;
	}
	peer->publish = publish;
	peer->id = id;
	peer->request = *event;
	if (event->param.private_data)
		peer->request.param.private_data = peer->request.private_data;
	snprintf(peer->name, sizeof(peer->name), "%s", address_format(cm_peer_addr(id)).text);
	LIST_INSERT_HEAD(&publish->peers, peer, link);
	half_open_enter(peer);

	struct peer_reject reject;
	peer->timer = event_timer_new(publish->loop, on_half_open_timer, peer);
	if (!peer->timer) {
		reject_set(&reject, PEER_REJECT_RESOURCES, "mrshared is out of memory");
		peer_reject(peer, &reject);
		return;
	}
	event_timer_set(peer->timer, HALF_OPEN_MS);
	peer_go_on(peer);
}

void peer_connected(struct peer *peer)
{
	struct peer_reject reject;
	if (peer->state == PEER_ENDING)
		destroy(peer);
	else if (peer_accept(peer, &reject) < 0)
		peer_reject(peer, &reject);
}

static unsigned int access_flags(uint32_t granted)
{
	unsigned int flags = IBV_ACCESS_REMOTE_READ;
	if (granted & MRSHARE_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (granted & MRSHARE_ATOMIC)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

void peer_admit(struct peer *peer)
{
	if (peer->state != PEER_CONNECTING || peer->waits || peer->connecting)
		return;
	peer->state = PEER_ADMITTED;
	half_open_leave(peer);
	peer->publish->admitted++;
	peer->reachable = true;
	/* It could not have read an earlier generation. */
	peer->told = peer->acked = peer->publish->generation;
	struct ibv_qp_attr attr = { .qp_access_flags = access_flags(peer->granted) };
	int r = verbs_modify_qp(peer->qp, &attr, IBV_QP_ACCESS_FLAGS);
	if (r < 0) {
		peer_end(peer, "dropped: cannot give it its rights: %s", strerror(-r));
		return;
	}
	log_message_id("f2b5a4554b444eb584fc98e5a0167226");
	log_info("peer %s connected on %s: read%s%s", peer_tag(peer), peer->device->device->name,
		peer->granted & MRSHARE_WRITE ? ", write" : "", peer->granted & MRSHARE_ATOMIC ? ", atomic" : "");
	peer_send_welcome(peer);
}
