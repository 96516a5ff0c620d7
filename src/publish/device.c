/* device.c: a device from its opening to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/log.h"
#include "publish/peer.h"

struct publish_device *publish_device_find(struct publish *publish, const struct ibv_context *context)
{
	for (size_t i = 0; i < publish->device_count; i++) {
		if (publish->devices[i]->device->context == context)
			return publish->devices[i];
	}
	return NULL;
}

struct publish_device *publish_device_of(struct publish *publish, const struct device *device)
{
	for (size_t i = 0; i < publish->device_count; i++) {
		if (publish->devices[i]->device == device)
			return publish->devices[i];
	}
	return NULL;
}

/*
 * Opening.
 */

/* Rights of a queue pair hold for all or for none, so where they do not hold nobody may be promised less than all. */
static int check_rights(const struct publish *publish, const struct device *device, struct err *err)
{
	for (size_t i = 0; !device->enforces_access_flags && i < publish->config->allow_count; i++) {
		if (!publish->config->allow[i].may_write)
			return err_set(err, -EOPNOTSUPP,
				"device %s does not enforce the rights of a queue pair: it cannot serve --allow with "
				"ro",
				device->name);
	}
	return 0;
}

static int open_catalog(struct publish_device *device, struct err *err)
{
	const struct publish_config *config = device->publish->config;
	uint64_t size = catalog_memory_size(device->device, config->max_extents);
	if (config->memlock) {
		if (memlock_take(config->memlock, size, 1, err) < 0)
			return err_prefix(err, "device %s: its catalog for --max-extents %u", device->device->name,
				config->max_extents);
		device->catalog_locked = size;
	}
	return catalog_new(device->device, config->max_extents, &device->catalog, err);
}

static int open_channels(struct publish_device *device, struct err *err)
{
	struct ibv_context *context = device->device->context;
	int r = verbs_create_comp_channel(context, &device->channel);
	if (r == 0)
		r = verbs_set_async_nonblocking(context);
	if (r < 0)
		return err_set(
			err, r, "device %s: cannot make a completion channel: %s", device->device->name, strerror(-r));
	return 0;
}

int publish_device_open(struct publish *publish, struct ibv_context *context, bool listed,
	struct publish_device **ret_device, struct err *err)
{
	struct publish_device *device = calloc(1, sizeof(*device));
	if (!device) {
		if (listed)
			cm_device_release(&context);
		return err_set(err, -ENOMEM, "out of memory");
	}
	device->publish = publish;
	int r = device_new(context, publish->config->max_mr_size, publish->config->on_demand, &device->device, err);
	if (r < 0) {
		if (listed)
			cm_device_release(&context);
		free(device);
		return r;
	}
	device->listed = listed;
	r = check_rights(publish, device->device, err);
	if (r == 0)
		r = open_catalog(device, err);
	if (r == 0)
		r = open_channels(device, err);
	if (r == 0)
		r = groups_open(device, err);
	if (r < 0) {
		publish_device_free(device);
		return r;
	}
	*ret_device = device;
	return 0;
}

/* Atomics of two devices on the same bytes are not atomic to each other, so one device has them: the first one, also
 * when it comes back. */
static void set_rights(struct publish_device *device)
{
	struct publish *publish = device->publish;
	if (!publish->first_device[0])
		memcpy(publish->first_device, device->device->name, sizeof(device->device->name));
	device->rights = MRSHARE_READ | MRSHARE_WRITE;
	if (device->device->has_atomics && strcmp(publish->first_device, device->device->name) == 0)
		device->rights |= MRSHARE_ATOMIC;
}

int publish_device_install(struct publish_device *device, struct err *err)
{
	struct publish *publish = device->publish;
	device->channel_source = event_io_new(publish->loop, device->channel->fd, on_completion_channel, device);
	device->async_source = event_io_new(publish->loop, device->device->context->async_fd, on_async_event, device);
	if (!device->channel_source || !device->async_source)
		return err_set(err, -ENOMEM, "out of memory");
	event_io_set(device->channel_source, EVENT_READ);
	event_io_set(device->async_source, EVENT_READ);
	set_rights(device);
	if (catalog_last_root(device->catalog)->generation != publish->generation)
		catalog_write(device->catalog, publish->generation);
	publish->devices[publish->device_count++] = device;
	if (publish->device_count > publish->device_peak)
		publish->device_peak = publish->device_count;
	return 0;
}

/*
 * The end.
 */

/* What is on the device, and its context. */
static void unmake(struct publish_device *device)
{
	struct ibv_context *context = device->device->context;
	groups_free(device);
	verbs_destroy_comp_channel(&device->channel);
	catalog_free(&device->catalog);
	if (device->catalog_locked)
		memlock_give_back(device->publish->config->memlock, device->catalog_locked, 1);
	device_free(&device->device);
	if (device->listed)
		cm_device_release(&context);
}

void publish_device_free(struct publish_device *device)
{
	event_source_free(&device->channel_source);
	event_source_free(&device->async_source);
	unmake(device);
	free(device);
}

void publish_device_lost(struct publish_device *device, const char *why)
{
	struct publish *publish = device->publish;
	if (atomic_exchange(&device->device->gone, true))
		return;
	log_error("device %s is gone: %s; mappings stay, its peers cannot; it is looked for once a second",
		device_tag(device->device), why);
	/* They would be readable for ever. */
	event_source_free(&device->channel_source);
	event_source_free(&device->async_source);

	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (peer->device == device)
			peer_end(peer, "disconnected: device %s is gone", device->device->name);
	}
	publish->devices_changed = true;
	publish_settle_soon(publish);
}

/* The listeners' ids hold the context, so they go last. */
static void close_run(struct job *job)
{
	struct publish_device *device = container_of(job, struct publish_device, job);
	struct publish *publish = device->publish;
	unmake(device);
	for (size_t i = 0; i < publish->listener_count; i++) {
		if (publish->listeners[i].device == device)
			cm_id_free(&publish->listeners[i].dying);
	}
}

static void close_done(struct job *job)
{
	struct publish_device *device = container_of(job, struct publish_device, job);
	struct publish *publish = device->publish;
	for (size_t i = 0; i < publish->listener_count; i++) {
		if (publish->listeners[i].device == device)
			publish->listeners[i].device = NULL;
	}
	publish->closing--;
	free(device);
	devices_look(publish);
	publish_settle_soon(publish);
}

static bool is_needed(const struct publish_device *device)
{
	return !atomic_load(&device->device->gone) || device->queue_pairs || device->makes_group ||
	       device->drop_count || device->holds;
}

void devices_settle(struct publish *publish)
{
	if (publish->look.runs)
		return; /* which uses the listeners, and settles when it is done */
	for (size_t i = publish->device_count; i-- > 0;) {
		struct publish_device *device = publish->devices[i];
		if (is_needed(device))
			continue;
		publish->devices[i] = publish->devices[--publish->device_count];
		for (size_t j = 0; j < publish->listener_count; j++) {
			struct listener *listener = &publish->listeners[j];
			if (listener->device == device) {
				listener->dying = listener->id;
				listener->id = NULL;
				listener->listens = false;
			}
		}
		publish->closing++;
		device->job = (struct job){ .run = close_run, .done = close_done };
		worker_pool_submit(publish->destroyer, &device->job);
	}
}

/*
 * What the daemon asks.
 */

size_t publish_devices(const struct publish *publish, struct device **ret_devices)
{
	size_t count = 0;
	for (size_t i = 0; i < publish->device_count; i++) {
		if (!atomic_load(&publish->devices[i]->device->gone))
			ret_devices[count++] = publish->devices[i]->device;
	}
	return count;
}

void publish_hold(struct publish *publish, struct device *device)
{
	publish_device_of(publish, device)->holds++;
}

void publish_release(struct publish *publish, struct device *device)
{
	publish_device_of(publish, device)->holds--;
	publish_settle_soon(publish);
}

bool publish_serves(struct publish *publish, const struct device *device)
{
	return publish_device_of(publish, device)->serves;
}

void publish_serve(struct publish *publish, struct device *device)
{
	publish_device_of(publish, device)->serves = true;
	log_info("device %s is published on", device->name);
}
