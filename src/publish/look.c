/* look.c: looks for devices: at the start, once a second for those that are missing, and now and then for others. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A look binds the listeners that are not bound, opens the devices that are not open, and listens. It is one job, since
 * all of this may block; at the start it runs on the loop, and what it fails at ends the daemon. Later that is logged,
 * once, and looked at again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/container.h"
#include "base/log.h"
#include "publish/peer.h"

static bool any_wildcard(const struct publish *publish)
{
	for (size_t i = 0; i < publish->listener_count; i++) {
		if (publish->listeners[i].is_wildcard)
			return true;
	}
	return false;
}

/*
 * On a worker.
 */

/* A device is also known while its former self is not closed yet. */
static bool is_known(const struct look *look, struct ibv_context *context)
{
	for (size_t i = 0; i < look->known_count; i++) {
		if (look->known[i] == context ||
			strcmp(verbs_device_name(look->known[i]), verbs_device_name(context)) == 0)
			return true;
	}
	return false;
}

/* The first one is told. */
static void note(struct look *look, const struct err *err)
{
	if (err->code == -ENODEV)
		look->missing = true;
	else if (!look->err.code)
		look->err = *err;
}

static int look_open(struct publish *publish, struct ibv_context *context, bool listed)
{
	struct look *look = &publish->look;
	struct err err;
	int r;
	if (look->known_count == PUBLISH_DEVICES_MAX) {
		if (listed)
			cm_device_release(&context);
		r = err_set(&err, -E2BIG,
			"there are more than %d RDMA devices: name the addresses of those to be used (--rdma-listen)",
			PUBLISH_DEVICES_MAX);
	} else {
		r = publish_device_open(publish, context, listed, &look->found[look->found_count], &err);
	}
	if (r < 0) {
		note(look, &err);
		return r;
	}
	look->found_count++;
	look->known[look->known_count++] = context;
	return 0;
}

static int look_at_listener(struct publish *publish, size_t index)
{
	struct look *look = &publish->look;
	struct listener_look *at = &look->listeners[index];
	struct err err;
	cm_id_free(&at->id); /* of one whose device could not be installed */
	int r = listener_bind(look->channel, &publish->config->listen[index], &at->id, &err);
	if (r < 0) {
		note(look, &err);
		return r;
	}
	if (!at->id->verbs || is_known(look, at->id->verbs))
		return 0;
	r = look_open(publish, at->id->verbs, false);
	if (r < 0)
		cm_id_free(&at->id);
	return r;
}

static void look_at_all_devices(struct publish *publish)
{
	struct look *look = &publish->look;
	struct ibv_context **contexts;
	int r = cm_devices(&contexts);
	struct err err;
	if (r < 0) {
		err_set(&err, r, "cannot list the RDMA devices: %s", strerror(-r));
		note(look, &err);
		return;
	}
	look->missing |= !contexts[0];
	for (size_t i = 0; contexts[i]; i++) {
		if (is_known(look, contexts[i]))
			cm_device_release(&contexts[i]);
		else
			look_open(publish, contexts[i], true);
	}
	free(contexts);
}

static int look_channel(struct look *look)
{
	int r = look->channel ? 0 : cm_channel_new(&look->channel);
	struct err err;
	if (r < 0) {
		err_set(&err, r, "cannot use rdma_cm: %s: may this user open /dev/infiniband/rdma_cm?", strerror(-r));
		note(look, &err);
	}
	return r;
}

static void look_run(struct job *job)
{
	struct publish *publish = container_of(job, struct publish, look.job);
	struct look *look = &publish->look;
	if (look_channel(look) < 0)
		return;
	for (size_t i = 0; i < publish->listener_count; i++) {
		if (look->listeners[i].wanted)
			look_at_listener(publish, i);
	}
	if (any_wildcard(publish))
		look_at_all_devices(publish);

	for (size_t i = 0; i < publish->listener_count; i++) {
		struct err err;
		struct listener_look *at = &look->listeners[i];
		if (!at->id || at->listens)
			continue;
		at->listens = listener_listen(at->id, &publish->config->listen[i], &err) == 0;
		if (!at->listens)
			note(look, &err);
	}
}

/*
 * On the loop.
 */

static void look_prepare(struct publish *publish)
{
	struct look *look = &publish->look;
	look->channel = publish->channel;
	look->known_count = look->found_count = 0;
	look->missing = false;
	look->err.code = 0;
	publish->unknown_device = false;
	for (size_t i = 0; i < publish->device_count; i++)
		look->known[look->known_count++] = publish->devices[i]->device->context;
	for (size_t i = 0; i < publish->listener_count; i++) {
		const struct listener *listener = &publish->listeners[i];
		look->listeners[i] = (struct listener_look){
			.wanted = !listener->device && (!listener->id || !listener->is_wildcard),
			.id = listener->id,
			.listens = listener->listens,
		};
	}
}

static void take_listener(struct publish *publish, size_t index)
{
	struct listener *listener = &publish->listeners[index];
	const struct listener_look *at = &publish->look.listeners[index];
	bool began = at->listens && !listener->listens;
	listener->id = at->id;
	listener->listens = at->listens;
	if (at->id && at->id->verbs)
		listener->device = publish_device_find(publish, at->id->verbs);
	if (at->id && !listener->is_wildcard && !listener->device) {
		/* It could not be installed: the next look begins anew. */
		listener->listens = false;
		return;
	}
	if (!began || !listener->id)
		return;
	struct address_text text = address_format((const struct sockaddr *)&listener->address);
	if (listener->device)
		log_info("listening on %s, device %s", text.text, device_tag(listener->device->device));
	else
		log_info("listening on %s, every device", text.text);
}

/* Makes ours what the look found, also where it failed in part. */
static void look_take(struct publish *publish)
{
	struct look *look = &publish->look;
	struct err err;
	if (look->channel && !publish->channel) {
		publish->channel = look->channel;
		publish->channel_source = event_io_new(publish->loop, publish->channel->fd, on_cm_channel, publish);
		if (publish->channel_source)
			event_io_set(publish->channel_source, EVENT_READ);
		else
			err_set(&look->err, -ENOMEM, "out of memory");
	}
	size_t installed = 0;
	for (size_t i = 0; i < look->found_count; i++) {
		if (publish_device_install(look->found[i], &err) == 0) {
			look->found[installed++] = look->found[i];
		} else {
			publish_device_free(look->found[i]);
			note(look, &err);
		}
	}
	look->found_count = installed;
	for (size_t i = 0; i < publish->listener_count; i++)
		take_listener(publish, i);
}

static bool is_missing(const struct publish *publish)
{
	size_t live = 0;
	if (publish->unknown_device)
		return true;
	for (size_t i = 0; i < publish->device_count; i++)
		live += !atomic_load(&publish->devices[i]->device->gone);
	for (size_t i = 0; i < publish->listener_count; i++) {
		const struct listener *listener = &publish->listeners[i];
		if (!listener->listens || (listener->is_wildcard && (live == 0 || live < publish->device_peak)))
			return true;
	}
	return false;
}

static void look_done(struct job *job)
{
	struct publish *publish = container_of(job, struct publish, look.job);
	struct look *look = &publish->look;
	look->runs = false;
	look_take(publish);
	if (look->err.code && strcmp(publish->look_failed, look->err.text) != 0)
		log_warning("%s; it is tried again", look->err.text);
	snprintf(publish->look_failed, sizeof(publish->look_failed), "%s", look->err.code ? look->err.text : "");
	for (size_t i = 0; i < look->found_count; i++)
		log_info("device %s is there: mappings are being registered on it", device_tag(look->found[i]->device));
	publish->devices_changed |= look->found_count != 0;
	publish_settle_soon(publish);
	devices_look(publish);
}

static void on_look_timer(void *data)
{
	struct publish *publish = data;
	struct look *look = &publish->look;
	if (publish->phase != PHASE_SERVING || look->runs)
		return;
	/* What is being closed may be what is looked for. */
	if (publish->closing) {
		devices_look(publish);
		return;
	}
	look_prepare(publish);
	look->runs = true;
	look->job = (struct job){ .run = look_run, .done = look_done };
	worker_pool_submit(publish->destroyer, &look->job);
}

void devices_look(struct publish *publish)
{
	if (is_missing(publish))
		event_timer_set(publish->look_timer, LOOK_MS);
	else if (any_wildcard(publish))
		event_timer_set(publish->look_timer, LOOK_MORE_MS);
}

/* A wrong address would look like a missing device. */
static void warn_of_missing(const struct publish *publish)
{
	bool has_cm = publish->channel || cm_is_there();
	if (!has_cm)
		log_warning("cannot use rdma_cm: there is no /dev/infiniband/rdma_cm: load its module (modprobe "
			    "rdma_ucm); mappings are made, but published only when it and an RDMA device are there, "
			    "which are looked for once a second");
	for (size_t i = 0; i < publish->listener_count; i++) {
		const struct listener *listener = &publish->listeners[i];
		if (listener->listens && (!listener->is_wildcard || publish->device_count))
			continue;
		struct address_text text = address_format((const struct sockaddr *)&listener->address);
		if (address_is_foreign(&listener->address))
			log_warning("%s " FOREIGN_ADDRESS "; nothing is published there until it is one", text.text);
		else if (has_cm)
			log_warning("there is no RDMA device at %s: mappings are made, but published there only when "
				    "one comes, which is looked for once a second: " NO_DEVICE_REMEDY,
				text.text);
	}
}

int devices_open(struct publish *publish, struct err *err)
{
	const struct publish_config *config = publish->config;
	struct look *look = &publish->look;
	publish->look_timer = event_timer_new(publish->loop, on_look_timer, publish);
	publish->listeners = calloc(config->listen_count, sizeof(*publish->listeners));
	look->listeners = calloc(config->listen_count, sizeof(*look->listeners));
	if (!publish->look_timer || !publish->listeners || !look->listeners)
		return err_set(err, -ENOMEM, "out of memory");
	publish->listener_count = config->listen_count;
	for (size_t i = 0; i < config->listen_count; i++) {
		publish->listeners[i].address = config->listen[i];
		publish->listeners[i].is_wildcard = address_is_wildcard(&config->listen[i]);
	}

	look_prepare(publish);
	look_run(&look->job);
	look_take(publish);
	if (look->err.code) {
		*err = look->err;
		return err->code;
	}
	for (size_t i = 0; i < publish->device_count; i++)
		publish->devices[i]->serves = true;
	warn_of_missing(publish);
	if (!config->allow_count)
		log_info("peers are admitted from this host's own addresses only: --allow names others");
	devices_look(publish);
	return 0;
}

void devices_close(struct publish *publish)
{
	event_source_free(&publish->look_timer);
	for (size_t i = 0; i < publish->device_count; i++)
		publish_device_free(publish->devices[i]);
	/* These hold contexts open that the devices were on. */
	for (size_t i = 0; i < publish->listener_count; i++)
		cm_id_free(&publish->listeners[i].id);
	free(publish->listeners);
	free(publish->look.listeners);
}
