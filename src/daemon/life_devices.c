/* life_devices.c: devices that come and go while a mapping is live. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A mapping leaves those that are gone and is registered on those that came, one at a time. What keeps it from one that
 * came is logged, and it is not in that device's catalog.
 */
#include "daemon/life.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

enum {
	JOINS_MAX = 4,        /* being registered on a device that came, so that nobody's request waits for them all */
	JOIN_LATE_MS = 10000, /* so long a device, and the next ones, wait for one of them */
};

static void follow_devices(struct pipeline *pipeline);

static void left_out(const struct life *life, const struct device *device, const struct err *err)
{
	if (atomic_load(&device->gone) || life->pipeline->stopping)
		return;
	const char *name = life_tag(life);
	log_error("%s: %s, mapping %" PRIu64 ", is not published on device %s: %s", name,
		mapping_format(&life->mapping).text, life->mapping.id, device_tag(device), err->text);
}

/* A device serves when no live mapping has still to be tried there, but for those that take long. */
static void serve_devices(struct pipeline *pipeline)
{
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t count = publish_devices(pipeline->publish, devices);
	for (size_t i = 0; i < count; i++) {
		bool is_settled = !publish_serves(pipeline->publish, devices[i]);
		for (const struct life *life = pipeline->lives; life && is_settled; life = life->next)
			is_settled = life->state != LIFE_LIVE ||
				     (life_has_device(life, devices[i]) &&
					     (life->change != devices[i] || life->change_is_late));
		if (is_settled)
			publish_serve(pipeline->publish, devices[i]);
	}
}

static void change_ended(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	if (life->state == LIFE_WITHDRAWING)
		life_withdraw_check(life);
	serve_devices(pipeline);
}

static void leave_run(struct job *job)
{
	struct life *life = life_of_job(job);
	life->change_err.code = 0;
	registration_drop(life->registration, life->change, &life->change_err);
}

static void leave_done(struct job *job)
{
	struct life *life = life_of_job(job);
	struct device *device = life->change;
	life->change = NULL;
	if (life->change_err.code) {
		log_error("%s: mapping %" PRIu64 ": %s: restart mrshared to use that device again", life_tag(life),
			life->mapping.id, life->change_err.text);
		for (size_t i = 0; i < life->device_count; i++)
			life->stays[i] |= life->devices[i] == device;
	} else {
		life_release_device(life, device);
	}
	life_follow_devices(life);
	change_ended(life);
}

static void on_join_late(void *data)
{
	struct life *life = data;
	struct pipeline *pipeline = life->pipeline;
	const char *name = life_tag(life);
	log_warning("%s: mapping %" PRIu64
		    " is still being registered on device %s, where peers do not have it until then",
		name, life->mapping.id, device_tag(life->change));
	event_source_free(&life->change_timer);
	life->change_is_late = true;
	pipeline->joins--;
	follow_devices(pipeline);
	serve_devices(pipeline);
}

static void join_run(struct job *job)
{
	struct life *life = life_of_job(job);
	struct registration_request request = life_registration_request(life);
	life->change_err.code = 0;
	registration_add(life->registration, life->change, &request, &life->change_err);
}

static void join_done(struct job *job)
{
	struct life *life = life_of_job(job);
	struct pipeline *pipeline = life->pipeline;
	const struct mapping *mapping = &life->mapping;
	struct device *device = life->change;
	struct err *err = &life->change_err;
	life->change = NULL;
	event_source_free(&life->change_timer);
	pipeline->joins -= !life->change_is_late;
	life->change_is_late = false;
	if (life->state == LIFE_LIVE && err->code == 0)
		publish_add_on(pipeline->publish, device, mapping->id, mapping->shmid, mapping->writable, mapping->len,
			life->registration, err);
	if (life->state == LIFE_WITHDRAWING || err->code)
		publish_unreserve(pipeline->publish, &device, 1, mapping->len);
	if (life->state == LIFE_LIVE && err->code) {
		const struct device_extents *extents = registration_on(life->registration, device);
		if (!extents || extents->count == 0)
			life_unpin(life, life->device_count - 1);
		left_out(life, device, err);
	}
	follow_devices(pipeline);
	change_ended(life);
}

static void life_change(struct life *life, struct device *device, struct worker_pool *pool, void (*run)(struct job *),
	void (*done)(struct job *), bool big)
{
	life->change = device;
	life->job = (struct job){ .run = run, .done = done, .big = big };
	worker_pool_submit(pool, &life->job);
}

/* True where a job has begun, or has to wait for others. */
static bool life_join(struct life *life, struct device *device)
{
	struct pipeline *pipeline = life->pipeline;
	uint64_t len = life->mapping.len;
	struct err err;
	if (pipeline->joins == JOINS_MAX)
		return true;
	life_hold_device(life, device);
	if (publish_reserve(pipeline->publish, &device, 1, len, &err) == 0) {
		if (memlock_take(&pipeline->memlock, life_pinned_len(life), 1, &err) == 0) {
			life->pinned[life->device_count - 1] = true;
			pipeline->joins++;
			life->change_timer = event_timer_new(pipeline->loop, on_join_late, life);
			if (life->change_timer)
				event_timer_set(life->change_timer, JOIN_LATE_MS);
			life_change(life, device, pipeline->workers, join_run, join_done, len > LIFE_BIG_BYTES);
			return true;
		}
		publish_unreserve(pipeline->publish, &device, 1, len);
	}
	left_out(life, device, &err);
	return false;
}

void life_follow_devices(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	if (!pipeline->publish || life->state != LIFE_LIVE || life->change)
		return;
	for (size_t i = 0; i < life->device_count; i++) {
		if (atomic_load(&life->devices[i]->gone) && !life->stays[i]) {
			life_change(life, life->devices[i], pipeline->deregisterer, leave_run, leave_done, false);
			return;
		}
	}
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t count = publish_devices(pipeline->publish, devices);
	for (size_t i = 0; i < count; i++) {
		if (!life_has_device(life, devices[i]) && life_join(life, devices[i]))
			return;
	}
}

static void follow_devices(struct pipeline *pipeline)
{
	for (struct life *life = pipeline->lives; life; life = life->next)
		life_follow_devices(life);
}

/* What a device did not let go of may be free when the device is gone. */
static bool is_stuck_on_lost(const struct life *life)
{
	for (size_t i = 0; life->state == LIFE_STUCK && life->registration && i < life->device_count; i++) {
		if (atomic_load(&life->devices[i]->gone))
			return true;
	}
	return false;
}

void life_devices_changed(void *data)
{
	struct pipeline *pipeline = data;
	for (struct life *life = pipeline->lives; life; life = life->next) {
		if (is_stuck_on_lost(life))
			life_deregister(life);
		/* Once more. */
		memset(life->stays, 0, sizeof(life->stays));
	}
	follow_devices(pipeline);
	serve_devices(pipeline);
}
