/* generation.c: when a new generation is written, and when what left with it is out of every peer's reach. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>

#include "publish/peer.h"

/* A new generation at most every so often, so that a reader of the catalog is not overtaken. */
enum { WRITE_INTERVAL_MS = 1, WRITE_BYTES_PER_MS = 100 * 1000 };

static int listing_compare(const void *a, const void *b)
{
	uint64_t x = ((const struct listing *)a)->mapping_id, y = ((const struct listing *)b)->mapping_id;
	return x < y ? -1 : x > y;
}

static void listing_move(struct publish *publish, struct listing *listing, enum listing_state state)
{
	TAILQ_REMOVE(&publish->listings[listing->state], listing, link);
	listing->state = state;
	TAILQ_INSERT_TAIL(&publish->listings[state], listing, link);
}

static void listing_free(struct publish *publish, struct listing *listing)
{
	TAILQ_REMOVE(&publish->listings[listing->state], listing, link);
	tdelete(listing, &publish->listings_by_id, listing_compare);
	free(listing);
}

static void listings_free(struct publish *publish)
{
	struct listing *listing;
	for (int state = 0; state < LISTING_STATES; state++) {
		while ((listing = TAILQ_FIRST(&publish->listings[state])))
			listing_free(publish, listing);
	}
}

static void catalogs_write(struct publish *publish)
{
	publish->generation++;
	publish->written_ms = event_now_ms(publish->loop);
	for (size_t i = 0; i < publish->device_count; i++)
		catalog_write(publish->devices[i]->catalog, publish->generation);
}

static void tell_peers(struct publish *publish)
{
	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link)
		peer_pump(peer);
}

static void history_add(struct history *history, uint64_t generation, uint64_t mapping_id)
{
	if (history->last[history->next].generation)
		history->lost = history->last[history->next].generation;
	history->last[history->next].generation = generation;
	history->last[history->next].mapping_id = mapping_id;
	history->next = (history->next + 1) % PEER_NOTICE_IDS_MAX;
}

void generation_withdrawn_since(const struct publish *publish, uint64_t told, struct peer_notice *notice)
{
	const struct history *history = &publish->history;
	notice->withdrawn_count = 0;
	if (told < history->lost) {
		notice->withdrawn_count = PEER_WITHDRAWN_ALL;
		return;
	}
	for (unsigned int i = 0; i < PEER_NOTICE_IDS_MAX; i++) {
		if (history->last[i].generation > told)
			notice->withdrawn[notice->withdrawn_count++] = history->last[i].mapping_id;
	}
}

/* For the next withdrawal whose late peers were not dropped yet. Those that wait are in the order of their generations,
 * and so of their deadlines. */
static void revoke_timer_set(struct publish *publish)
{
	uint64_t now = event_now_ms(publish->loop);
	struct listing *listing;
	TAILQ_FOREACH(listing, &publish->listings[LISTING_WAITING], link) {
		if (listing->generation > publish->revoked) {
			uint64_t deadline = listing->deadline_ms;
			event_timer_set(publish->revoke_timer, deadline > now ? deadline - now : 0);
			return;
		}
	}
}

static void on_revoke_timer(void *data)
{
	struct publish *publish = data;
	completions_take(publish);
	uint64_t now = event_now_ms(publish->loop);
	struct listing *listing;
	TAILQ_FOREACH(listing, &publish->listings[LISTING_WAITING], link) {
		if (listing->deadline_ms <= now)
			publish->revoked = listing->generation;
	}

	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (peer->state == PEER_ADMITTED && peer->acked < publish->revoked)
			peer_end(peer, "dropped: it did not acknowledge within %u ms that a mapping is gone",
				publish->config->revoke_timeout_ms);
	}
	publish_settle_soon(publish);
	revoke_timer_set(publish);
}

static void on_write_timer(void *data)
{
	struct publish *publish = data;
	publish->write_is_due = false;
	catalogs_write(publish);

	struct listing *listing;
	TAILQ_FOREACH(listing, &publish->listings[LISTING_WITHDRAWN], link)
		history_add(&publish->history, publish->generation, listing->mapping_id);
	while ((listing = TAILQ_FIRST(&publish->listings[LISTING_ADDED])))
		listing_move(publish, listing, LISTING_WRITTEN);

	tell_peers(publish);
	/* Peers have their time from when they were told, which is not at once where there are many. */
	uint64_t deadline_ms = event_now_ms(publish->loop) + publish->config->revoke_timeout_ms;
	while ((listing = TAILQ_FIRST(&publish->listings[LISTING_WITHDRAWN]))) {
		listing->generation = publish->generation;
		listing->deadline_ms = deadline_ms;
		listing_move(publish, listing, LISTING_WAITING);
	}
	revoke_timer_set(publish);
	publish_settle_soon(publish);
	/* The call may add, withdraw or stop. */
	while ((listing = TAILQ_FIRST(&publish->listings[LISTING_WRITTEN]))) {
		listing_move(publish, listing, LISTING_LISTED);
		publish->ops->added(publish->data, listing->mapping_id);
	}
}

/* Changes that come until then go into the same generation. */
void generation_write_soon(struct publish *publish)
{
	if (publish->write_is_due)
		return;
	uint64_t size = 0;
	for (size_t i = 0; i < publish->device_count; i++) {
		uint32_t slot_size = catalog_slot_size(publish->devices[i]->catalog);
		size = slot_size > size ? slot_size : size;
	}
	uint64_t interval = size / WRITE_BYTES_PER_MS;
	if (interval < WRITE_INTERVAL_MS)
		interval = WRITE_INTERVAL_MS;
	uint64_t passed = event_now_ms(publish->loop) - publish->written_ms;
	publish->write_is_due = true;
	event_timer_set(publish->write_timer, passed < interval ? interval - passed : 0);
}

int generation_list(struct publish *publish, uint64_t mapping_id)
{
	struct listing *listing = calloc(1, sizeof(*listing));
	if (!listing)
		return -ENOMEM;
	listing->mapping_id = mapping_id;
	listing->state = LISTING_ADDED;
	if (!tsearch(listing, &publish->listings_by_id, listing_compare)) {
		free(listing);
		return -ENOMEM;
	}
	TAILQ_INSERT_TAIL(&publish->listings[LISTING_ADDED], listing, link);
	generation_write_soon(publish);
	return 0;
}

void generation_withdraw(struct publish *publish, uint64_t mapping_id)
{
	struct listing key = { .mapping_id = mapping_id };
	struct listing **found = tfind(&key, &publish->listings_by_id, listing_compare);
	if (!found || (*found)->state >= LISTING_WITHDRAWN)
		return;
	listing_move(publish, *found, LISTING_WITHDRAWN);
	generation_write_soon(publish);
}

uint64_t generation_acknowledged(const struct publish *publish)
{
	uint64_t generation = publish->generation;
	const struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (peer->reachable && peer->acked < generation)
			generation = peer->acked;
	}
	return generation;
}

void generation_settle(struct publish *publish)
{
	struct listing *listing = TAILQ_FIRST(&publish->listings[LISTING_WAITING]);
	uint64_t acknowledged = listing ? generation_acknowledged(publish) : 0;
	while (listing && listing->generation <= acknowledged) {
		uint64_t mapping_id = listing->mapping_id;
		listing_free(publish, listing);
		publish->ops->withdrawn(publish->data, mapping_id);
		listing = TAILQ_FIRST(&publish->listings[LISTING_WAITING]);
	}
}

void generation_write_last(struct publish *publish)
{
	event_timer_stop(publish->write_timer);
	event_timer_stop(publish->revoke_timer);
	struct listing *listing;
	for (int state = 0; state < LISTING_STATES; state++) {
		TAILQ_FOREACH(listing, &publish->listings[state], link) {
			for (size_t i = 0; i < publish->device_count; i++)
				catalog_remove(publish->devices[i]->catalog, listing->mapping_id);
		}
	}
	listings_free(publish);
	catalogs_write(publish);
	publish->history.lost = publish->generation;
	tell_peers(publish);
}

int generation_init(struct publish *publish)
{
	publish->generation = 1;
	for (int state = 0; state < LISTING_STATES; state++)
		TAILQ_INIT(&publish->listings[state]);
	publish->write_timer = event_timer_new(publish->loop, on_write_timer, publish);
	publish->revoke_timer = event_timer_new(publish->loop, on_revoke_timer, publish);
	return publish->write_timer && publish->revoke_timer ? 0 : -ENOMEM;
}

void generation_free(struct publish *publish)
{
	event_source_free(&publish->write_timer);
	event_source_free(&publish->revoke_timer);
	listings_free(publish);
}
