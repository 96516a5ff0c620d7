/* publish.c: what the daemon asks of this stage. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stage "publish" lets peers in over librdmacm and keeps its promise about them: what is withdrawn is out of the
 * reach of every peer before ops->withdrawn says so.
 *
 * Everything runs on the loop. Changes of the catalogs are collected into generations (generation.c). A peer (peer.c)
 * has a queue pair of its own making (connect.c) that gives no right before admission (admission.c), until which it is
 * half open (half_open.c), and is told of the newest generation by a notice, one at a time, which it acknowledges
 * (notice.c). A withdrawal waits until each peer that reaches memory has acknowledged its generation; who is late has
 * its queue pair put into error, upon which it reaches nothing. What may block, the making of queue pairs (connect.c),
 * their end and that of ids, the making of room for more peers (group.c), reading our own addresses (own_addresses.c),
 * looking for devices (look.c), opening and closing them (device.c), goes to worker pools, and a peer's struct lives
 * until that is done.
 *
 * Calls to the right come from timers only, so none comes from inside a call into this stage.
 */
#include "publish/publish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "publish/peer.h"

void publish_settle_soon(struct publish *publish)
{
	event_timer_set(publish->settle_timer, 0);
}

static void settle_drops(struct publish *publish)
{
	for (size_t i = 0; i < publish->device_count; i++) {
		struct publish_device *device = publish->devices[i];
		struct publish_drop *drop;
		while (publish->phase == PHASE_SERVING && device->queue_pairs == 0 && (drop = device->drops)) {
			device->drops = drop->next;
			drop->done(drop->data);
		}
	}
}

static void end_all(struct publish *publish)
{
	publish->phase = PHASE_ENDING;
	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link)
		peer_end(peer, "disconnected: mrshared ends");
	event_timer_set(publish->stop_timer, STOP_END_MS);
}

static void finish_stop(struct publish *publish)
{
	publish->phase = PHASE_ENDED;
	event_timer_stop(publish->stop_timer);
	publish->stopped(publish->stopped_data);
}

/* Whether a worker may still use our devices. */
static bool workers_need(const struct publish *publish)
{
	return !LIST_EMPTY(&publish->peers) || publish->groups_in_making || publish->closing || publish->look.runs ||
	       publish->own_addresses.runs || publish->take.runs;
}

static void settle_devices(struct publish *publish)
{
	devices_settle(publish);
	if (!publish->devices_changed)
		return;
	publish->devices_changed = false;
	publish->ops->devices_changed(publish->data);
}

static void on_settle_timer(void *data)
{
	struct publish *publish = data;
	switch (publish->phase) {
	case PHASE_SERVING:
		generation_settle(publish);
		settle_drops(publish);
		settle_devices(publish);
		break;
	case PHASE_LAST_ACKS:
		if (generation_acknowledged(publish) == publish->generation)
			end_all(publish);
		__attribute__((fallthrough));
	case PHASE_ENDING:
		if (!workers_need(publish))
			finish_stop(publish);
		break;
	case PHASE_ENDED:
		break;
	}
}

static void on_stop_timer(void *data)
{
	struct publish *publish = data;
	if (publish->phase == PHASE_LAST_ACKS)
		end_all(publish);
	else
		finish_stop(publish);
}

static int publish_init(struct publish *publish, struct err *err)
{
	if (getrandom(publish->server_id, sizeof(publish->server_id), 0) != (ssize_t)sizeof(publish->server_id))
		return err_set(err, -EIO, "there are no random numbers");
	publish->settle_timer = event_timer_new(publish->loop, on_settle_timer, publish);
	publish->stop_timer = event_timer_new(publish->loop, on_stop_timer, publish);
	if (generation_init(publish) < 0 || !publish->settle_timer || !publish->stop_timer)
		return err_set(err, -ENOMEM, "out of memory");

	return devices_open(publish, err);
}

int publish_new(struct event_loop *loop, const struct publish_config *config, struct worker_pool *taker,
	struct worker_pool *connector, struct worker_pool *destroyer, const struct publish_ops *ops, void *data,
	struct publish **ret_publish, struct err *err)
{
	struct publish *publish = calloc(1, sizeof(*publish));
	if (!publish)
		return err_set(err, -ENOMEM, "out of memory");
	verbs_init();
	publish->loop = loop;
	publish->config = config;
	publish->taker = taker;
	publish->connector = connector;
	publish->destroyer = destroyer;
	publish->ops = ops;
	publish->data = data;
	LIST_INIT(&publish->peers);
	TAILQ_INIT(&publish->half_open_peers);
	int r = publish_init(publish, err);
	if (r < 0) {
		publish_free(&publish);
		return r;
	}
	*ret_publish = publish;
	return 0;
}

static struct catalog *catalog_of(struct publish *publish, const struct device *device)
{
	return publish_device_of(publish, device)->catalog;
}

int publish_reserve(struct publish *publish, struct device *const *devices, size_t device_count, uint64_t len,
	struct err *err)
{
	for (size_t i = 0; i < device_count; i++) {
		size_t count = device_extent_count(devices[i], len);
		if (catalog_reserve(catalog_of(publish, devices[i]), count) == 0)
			continue;
		publish_unreserve(publish, devices, i, len);
		return err_set(err, -EDQUOT,
			"the catalog of device %s has no room for %zu extent(s): raise --max-extents", devices[i]->name,
			count);
	}
	return 0;
}

void publish_unreserve(struct publish *publish, struct device *const *devices, size_t device_count, uint64_t len)
{
	for (size_t i = 0; i < device_count; i++)
		catalog_unreserve(catalog_of(publish, devices[i]), device_extent_count(devices[i], len));
}

static int list_on(struct publish *publish, uint64_t mapping_id, uint8_t shmid, bool writable, uint64_t len,
	const struct device_extents *extents, struct err *err)
{
	const struct publish_device *device = publish_device_of(publish, extents->device);
	uint32_t access = writable ? device->rights : MRSHARE_READ;
	int r = catalog_add(device->catalog, mapping_id, shmid, (uint8_t)access, extents,
		device_extent_count(extents->device, len));
	if (r < 0)
		return err_set(err, r,
			"the catalog of device %s has no room for the %zu extents that memory allowed: raise "
			"--max-extents",
			extents->device->name, extents->count);
	return 0;
}

/* Takes a mapping out of the first catalogs; its room is reserved again. */
static void unlist(struct publish *publish, uint64_t mapping_id, uint64_t len, const struct registration *registration,
	size_t device_count)
{
	for (size_t i = 0; i < device_count; i++) {
		const struct device *device = registration->devices[i].device;
		catalog_remove(catalog_of(publish, device), mapping_id);
		catalog_reserve(catalog_of(publish, device), device_extent_count(device, len));
	}
}

int publish_add(struct publish *publish, uint64_t mapping_id, uint8_t shmid, bool writable, uint64_t len,
	struct registration *registration, struct err *err)
{
	if (publish->phase != PHASE_SERVING)
		return err_set(err, -ECANCELED, "mrshared is about to end");
	for (size_t i = 0; i < registration->device_count; i++) {
		int r = list_on(publish, mapping_id, shmid, writable, len, &registration->devices[i], err);
		if (r == 0)
			continue;
		unlist(publish, mapping_id, len, registration, i);
		return r;
	}
	if (generation_list(publish, mapping_id) < 0) {
		unlist(publish, mapping_id, len, registration, registration->device_count);
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

int publish_add_on(struct publish *publish, struct device *device, uint64_t mapping_id, uint8_t shmid, bool writable,
	uint64_t len, struct registration *registration, struct err *err)
{
	if (publish->phase != PHASE_SERVING)
		return err_set(err, -ECANCELED, "mrshared is about to end");
	int r = list_on(publish, mapping_id, shmid, writable, len, registration_on(registration, device), err);
	if (r == 0)
		generation_write_soon(publish);
	return r;
}

void publish_withdraw(struct publish *publish, uint64_t mapping_id)
{
	if (publish->phase != PHASE_SERVING)
		return;
	for (size_t i = 0; i < publish->device_count; i++)
		catalog_remove(publish->devices[i]->catalog, mapping_id);
	generation_withdraw(publish, mapping_id);
}

void publish_drop_peers(struct publish *publish, struct device *device, struct publish_drop *drop)
{
	struct publish_device *of = publish_device_of(publish, device);
	drop->device = of;
	drop->next = of->drops;
	of->drops = drop;
	of->drop_count++;
	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (peer->device == of)
			peer_end(peer, "dropped: device %s does not let go of memory", device->name);
	}
	publish_settle_soon(publish);
}

void publish_drop_end(struct publish_drop *drop)
{
	if (!drop->device)
		return;
	drop->device->drop_count--;
	drop->device = NULL;
}

void publish_stop(struct publish *publish, void (*done)(void *data), void *data)
{
	publish->phase = PHASE_LAST_ACKS;
	publish->stopped = done;
	publish->stopped_data = data;
	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (peer->state == PEER_CONNECTING)
			peer_end(peer, "disconnected: mrshared ends");
	}
	generation_write_last(publish);
	event_timer_set(publish->stop_timer, STOP_ACKS_MS);
	publish_settle_soon(publish);
}

void publish_free(struct publish **publish_ptr)
{
	struct publish *publish = *publish_ptr;
	if (!publish)
		return;
	*publish_ptr = NULL;
	event_source_free(&publish->settle_timer);
	event_source_free(&publish->stop_timer);
	event_source_free(&publish->channel_source);
	generation_free(publish);
	/* A peer whose end hangs needs its device, its frames and the channel; so does a group in the making. */
	if (workers_need(publish))
		return;
	devices_close(publish);
	cm_channel_free(&publish->channel);
	free(publish->own_addresses.list);
	free(publish);
}

struct publish_snapshot publish_snapshot(const struct publish *publish)
{
	return (struct publish_snapshot){
		.peers = publish->admitted,
		.half_open = publish->half_open,
		.generation = publish->generation,
	};
}
