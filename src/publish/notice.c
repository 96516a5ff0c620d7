/* notice.c: the frames between daemon and peer: welcome, notices, acknowledgements, keep-alive. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "publish/peer.h"

/* A peer whose answer is missing for so many keep-alive intervals is dropped. */
enum { KEEPALIVES_MISSED = 3 };

static uint64_t keepalive_ms(const struct peer *peer)
{
	return (uint64_t)peer->publish->config->keepalive_s * 1000;
}

static bool is_busy(const struct peer *peer)
{
	return peer->sending || peer->unacked;
}

static void timer_update(struct peer *peer)
{
	uint64_t limit = keepalive_ms(peer) * (is_busy(peer) ? KEEPALIVES_MISSED : 1);
	uint64_t passed = event_now_ms(peer->publish->loop) - peer->sent_ms;
	event_timer_set(peer->timer, passed < limit ? limit - passed : 0);
}

static void on_peer_timer(void *data)
{
	struct peer *peer = data;
	uint64_t limit = KEEPALIVES_MISSED * keepalive_ms(peer);
	if (is_busy(peer))
		completions_take(peer->publish);
	if (peer->state == PEER_ENDING)
		return;
	if (!is_busy(peer))
		peer_pump(peer);
	else if (event_now_ms(peer->publish->loop) - peer->sent_ms >= limit)
		peer_end(peer, "dropped: it has not answered for %u s", (unsigned int)(limit / 1000));
	else
		timer_update(peer);
}

static void frame_send(struct peer *peer, const struct peer_frame *frame)
{
	ssize_t size = peer_frame_write(frame, group_send_buffer(peer));
	int r = size < 0 ? (int)size : group_post_send(peer, (size_t)size);
	if (r < 0) {
		peer_end(peer, "dropped: cannot send to it: %s", strerror(-r));
		return;
	}
	peer->sending = true;
	peer->sent_ms = event_now_ms(peer->publish->loop);
	timer_update(peer);
}

void peer_send_welcome(struct peer *peer)
{
	struct peer_frame frame = {
		.type = PEER_FRAME_WELCOME,
		.welcome = {
			.granted = peer->granted,
			.generation = peer->publish->generation,
			.catalog = *catalog_view(peer->device->catalog),
		},
	};
	event_source_free(&peer->timer);
	peer->timer = event_timer_new(peer->publish->loop, on_peer_timer, peer);
	if (peer->timer)
		frame_send(peer, &frame);
	else
		peer_end(peer, "dropped: out of memory");
}

void peer_pump(struct peer *peer)
{
	const struct publish *publish = peer->publish;
	if (peer->state != PEER_ADMITTED || is_busy(peer))
		return;
	if (peer->told == publish->generation && event_now_ms(publish->loop) - peer->sent_ms < keepalive_ms(peer)) {
		timer_update(peer);
		return;
	}

	const struct catalog_root *root = catalog_last_root(peer->device->catalog);
	struct peer_frame frame = {
		.type = PEER_FRAME_NOTICE,
		.notice = {
			.sequence = ++peer->sequence,
			.generation = root->generation,
			.slot_offset = root->slot_offset,
			.slot_size = root->slot_size,
			.slot_crc = root->slot_crc,
		},
	};
	generation_withdrawn_since(publish, peer->told, &frame.notice);
	peer->told = root->generation;
	peer->unacked = true;
	peer->repeated = false;
	frame_send(peer, &frame);
}

void peer_sent(struct peer *peer)
{
	peer->sending = false;
	peer_pump(peer);
}

void peer_received(struct peer *peer, const uint8_t *bytes, size_t size)
{
	struct peer_frame frame;
	if (peer_frame_read(bytes, size, &frame) < 0 || frame.type != PEER_FRAME_ACK) {
		peer_end(peer, "dropped: it sent a frame that is no acknowledgement");
		return;
	}
	/* A duplicate delivery; another one is a flood. */
	if (!peer->unacked && peer->sequence && frame.ack.sequence == peer->sequence && !peer->repeated) {
		peer->repeated = true;
		return;
	}
	/* This is also what bounds a peer that floods us with frames. */
	if (!peer->unacked || frame.ack.sequence != peer->sequence) {
		peer_end(peer, "dropped: it acknowledged notice %u, which does not wait for it", frame.ack.sequence);
		return;
	}
	if (frame.ack.generation < peer->told || frame.ack.generation > peer->publish->generation) {
		peer_end(peer, "dropped: it acknowledged a generation that notice %u does not name", peer->sequence);
		return;
	}
	peer->unacked = false;
	peer->acked = frame.ack.generation;
	publish_settle_soon(peer->publish);
	peer_pump(peer);
}
