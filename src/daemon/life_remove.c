/* life_remove.c: a mapping is removed: withdrawn, deregistered, unmapped and closed. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/life.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

static void life_clear(struct life *life);

void life_withdraw_check(struct life *life)
{
	if (life->change || life->with_peers || (life->with_frontends && life->frontends_late))
		return;
	event_source_free(&life->frontends_late);
	if (life->registration)
		life_deregister(life);
	else
		life_clear(life);
}

static void on_frontends_late(void *data)
{
	struct life *life = data;
	event_source_free(&life->frontends_late);
	life_withdraw_check(life);
}

void life_withdraw(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	life->state = LIFE_WITHDRAWING;
	atomic_store(&life->cancelled, true);
	life->with_frontends = pipeline->frontends && !frontends_withdraw(pipeline->frontends, life->mapping.id);
	if (life->with_frontends) {
		life->frontends_late = event_timer_new(pipeline->loop, on_frontends_late, life);
		if (life->frontends_late)
			event_timer_set(life->frontends_late, pipeline->config->revoke_timeout_ms);
	}
	life->with_peers = life->registration != NULL;
	if (life->with_peers)
		publish_withdraw(pipeline->publish, life->mapping.id);
	else
		life_withdraw_check(life);
}

void life_withdrawn(void *data, uint64_t mapping_id)
{
	struct life *life = life_find(data, mapping_id);
	life->with_peers = false;
	life_withdraw_check(life);
}

static void life_is_gone(struct life *life)
{
	regions_release(life->pipeline->regions, &life->mapping);
	if (life->err.code == 0) {
		log_message_id("eea8c04b6b3e404dab74e7b50b5d0fd8");
		log_info("%s: unmapped %s, mapping %" PRIu64, life_tag(life), mapping_format(&life->mapping).text,
			life->mapping.id);
	} else if (life->was_held) {
		log_info("%s: no front-end has mapping %" PRIu64 " any more: its range is free", life_tag(life),
			life->mapping.id);
	}
	life_answer(life);
	life_free(life);
}

static void close_run(struct job *job)
{
	fd_close(&life_of_job(job)->fd);
}

static void close_done(struct job *job)
{
	life_is_gone(life_of_job(job));
}

static void sync_run(struct job *job)
{
	struct life *life = life_of_job(job);
	if (fdatasync(life->fd) < 0)
		err_set(&life->undo_err, -errno, "%s", strerror(errno));
}

static void sync_done(struct job *job)
{
	struct life *life = life_of_job(job);
	if (life->undo_err.code)
		log_error("%s: cannot sync the file of mapping %" PRIu64
			  ", which is removed: what a guest wrote there may be lost: %s",
			life_tag(life), life->mapping.id, life->undo_err.text);
	life_submit(life, life->pipeline->workers, LIFE_CLOSING, close_run, close_done, false);
}

/* Flushes of a guest that come later do not know of it any more. */
static void life_sync(struct life *life)
{
	life->undo_err.code = 0;
	life_submit(life, life->pipeline->workers, LIFE_SYNCING, sync_run, sync_done, false);
}

void life_released(void *data, uint64_t mapping_id)
{
	struct pipeline *pipeline = data;
	struct life *life = life_find(pipeline, mapping_id);
	life->with_frontends = false;
	if (life->state == LIFE_WITHDRAWING)
		life_withdraw_check(life);
	else if (life->state == LIFE_HELD && life->keeps_fd)
		life_sync(life);
	else if (life->state == LIFE_HELD)
		life_is_gone(life);
}

static void deregister_run(struct job *job)
{
	struct life *life = life_of_job(job);
	life->undo_err.code = 0;
	registration_free(&life->registration, &life->undo_err);
}

static void on_peers_dropped(void *data)
{
	struct life *life = data;
	if (--life->devices_dropping == 0)
		life_deregister(life);
}

/* The one thing that can hold a device back is its peers: they go, then it is tried once more. */
static void life_drop_peers(struct life *life)
{
	log_warning("%s: cannot deregister %s: %s; dropping the peers of its devices", life_tag(life),
		mapping_format(&life->mapping).text, life->undo_err.text);
	life->state = LIFE_DROPPING;
	life->dropped = true;
	struct registration *registration = life->registration;
	for (size_t i = 0; i < registration->device_count; i++)
		life->devices_dropping += registration->devices[i].count != 0;
	for (size_t i = 0; i < registration->device_count; i++) {
		if (registration->devices[i].count == 0)
			continue;
		life->drops[i] = (struct publish_drop){ .done = on_peers_dropped, .data = life };
		publish_drop_peers(life->pipeline->publish, registration->devices[i].device, &life->drops[i]);
	}
}

/* What could not be removed stays until the daemon ends. */
static void life_is_stuck(struct life *life)
{
	log_error("%s: %s: %s; its range stays taken until mrshared ends", life_tag(life),
		mapping_format(&life->mapping).text, life->undo_err.text);
	life->state = LIFE_STUCK;
	if (!life->err.code)
		life->err = life->undo_err;
	life_answer(life);
}

static void deregister_done(struct job *job)
{
	struct life *life = life_of_job(job);
	for (size_t i = 0; i < PUBLISH_DEVICES_MAX; i++)
		publish_drop_end(&life->drops[i]);

	if (!life->registration)
		life_clear(life);
	else if (!life->dropped)
		life_drop_peers(life);
	else
		life_is_stuck(life);
}

void life_deregister(struct life *life)
{
	life_submit(life, life->pipeline->deregisterer, LIFE_DEREGISTERING, deregister_run, deregister_done, false);
}

/* No peer has it any more, and neither have we; a guest may. */
static void life_is_held(struct life *life)
{
	char holder[128];
	frontends_who_holds(life->pipeline->frontends, life->mapping.id, holder, sizeof(holder));
	err_set(&life->err, -EINPROGRESS,
		"no peer reaches %s any more, but %s has it still: its range stays taken until that lets go",
		mapping_format(&life->mapping).text, holder);
	if (!life->requester)
		log_warning("%s: %s", life_tag(life), life->err.text);
	life->state = LIFE_HELD;
	life->was_held = true;
	life_answer(life);
}

static void clear_run(struct job *job)
{
	struct life *life = life_of_job(job);
	if (life->placed) {
		int r = mapping_clear(&life->mapping);
		if (r < 0) {
			err_set(&life->undo_err, r, "cannot unmap: %s", strerror(-r));
			return;
		}
		life->placed = false;
	}
	if (!life->keeps_fd)
		fd_close(&life->fd);
}

static void clear_done(struct job *job)
{
	struct life *life = life_of_job(job);
	struct pipeline *pipeline = life->pipeline;
	const struct mapping *mapping = &life->mapping;
	if (life->reserved)
		publish_unreserve(pipeline->publish, life->devices, life->device_count, mapping->len);
	life->reserved = false;
	while (life->device_count)
		life_release_device(life, life->devices[0]);
	if (life->placed) {
		life_is_stuck(life);
		return;
	}
	if (life->with_frontends) {
		life_is_held(life);
		return;
	}
	if (life->keeps_fd)
		life_sync(life);
	else
		life_is_gone(life);
}

static void life_clear(struct life *life)
{
	life->keeps_fd = life->announced && life->on_disk;
	life_submit(life, life->pipeline->workers, LIFE_CLEARING, clear_run, clear_done, false);
}

void life_fail(struct life *life, const struct err *err)
{
	if (!life->err.code)
		life->err = *err;
	if (life->registration)
		life_deregister(life);
	else
		life_clear(life);
}

bool life_is_dirty(const struct life *life)
{
	switch (life->state) {
	case LIFE_LIVE:
	case LIFE_WITHDRAWING:
		return true;
	case LIFE_DEREGISTERING:
	case LIFE_DROPPING:
	case LIFE_STUCK:
		return life->announced;
	case LIFE_CLEARING:
	case LIFE_HELD:
	case LIFE_SYNCING:
		return life->keeps_fd;
	default:
		return false;
	}
}
