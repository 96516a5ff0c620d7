/* pipeline.c: wires the stages together and holds the life of a mapping. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stages do not know each other: each calls to its right through a table of functions that is filled here. What a
 * mapping goes through is one struct, `life`, whose state says who has it: a worker (CHECKING, REGISTERING,
 * DEREGISTERING, CLEARING, SYNCING, CLOSING), publish (PUBLISHING, DROPPING), publish and the front-ends (WITHDRAWING),
 * a front-end (HELD), or nobody (LIVE, STUCK). Up to LIVE it is all or nothing: what fails, or whose provider goes
 * away, is undone by the same steps that remove a live mapping, entered where it stands.
 */
#include "daemon/pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/container.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "base/worker.h"
#include "daemon/guest.h"
#include "daemon/sync.h"
#include "verbs/registration.h"
#include "vhost/listen.h"

enum {
	/* What one client can make hang at a time: a provider its request and a close; a front-end a close and a table;
	 * a listener its refusals. So what hangs never takes the last worker. */
	WORKERS_PROVIDER = 2,
	WORKERS_FRONTEND = 2,
	WORKERS_SPARE = 8,
	WORKERS_BIG = 2, /* that pin much memory at a time */
	BIG_BYTES = 256 << 20,
	JOINS_MAX =
		4, /* mappings being registered on a device that came, so that nobody's request waits for them all */
	CONNECTORS = 2, /* that make queue pairs */
	DESTROYERS = 4, /* of queue pairs and ids; the end of an id can take a minute */
	DESTROYERS_BIG = 3,
};

enum life_state {
	LIFE_CHECKING,      /* the file is looked at and mapped -> REGISTERING, LIVE (no RDMA), CLEARING (failed) */
	LIFE_REGISTERING,   /* -> PUBLISHING, DEREGISTERING (cancelled), CLEARING (failed) */
	LIFE_PUBLISHING,    /* -> LIVE, WITHDRAWING (cancelled) */
	LIFE_LIVE,          /* devices come and go -> WITHDRAWING */
	LIFE_WITHDRAWING,   /* no peer has it any more, no front-end or its time is over -> DEREGISTERING, CLEARING (no
			       RDMA) */
	LIFE_DEREGISTERING, /* -> CLEARING, DROPPING (failed), STUCK (failed again) */
	LIFE_DROPPING,      /* the peers of its devices go -> DEREGISTERING */
	LIFE_STUCK,         /* a device does not let go: stays mapped for good */
	LIFE_CLEARING,      /* unmapped and closed, then gone -> HELD (a front-end has not let go), SYNCING */
	LIFE_HELD,          /* its range is left of it, and its file on a disk, until that front-end lets go ->
			       SYNCING */
	LIFE_SYNCING,       /* a file on a disk that guests may have written to is made durable -> CLOSING */
	LIFE_CLOSING,       /* that file is closed, then it is gone */
};

struct life {
	struct pipeline *pipeline;
	struct life *next, **link; /* the pipeline's list */
	struct mapping mapping;
	enum life_state state;
	char name[96];              /* whose it is, for logs */
	pid_t pid;                  /* of the provider; 0: static */
	struct provider *requester; /* whose map or unmap request runs; NULL: none */
	pipeline_static_fn *ended;  /* the same of a static mapping */
	void *ended_data;
	struct err err;      /* why it failed; code 0: it did not */
	struct err undo_err; /* why the last step of removing it failed */

	int fd;
	bool placed;    /* mapped over the reservation */
	bool announced; /* to front-ends */
	bool keeps_fd;  /* CLEARING leaves it open: what guests wrote is synced */
	bool was_held;
	bool unsealed, on_disk;
	dev_t dev; /* of its file, once it is placed */
	ino_t ino;
	bool reserved; /* has room in the catalogs, but no entries */
	atomic_bool cancelled;
	struct registration *registration;
	struct device *devices[PUBLISH_DEVICES_MAX]; /* held: it is, is to be, or could not be registered there */
	bool pinned[PUBLISH_DEVICES_MAX];            /* has its share of the memlock budget for that one */
	size_t device_count;
	struct device *change; /* LIVE, WITHDRAWING: the device that a job registers it on or drops; NULL: none */
	struct err change_err;
	bool with_peers;     /* WITHDRAWING: publish has not told that no peer has it */
	bool with_frontends; /* a front-end may have it */
	struct event_source *frontends_late;
	size_t devices_dropping;
	bool dropped; /* DROPPING was tried */
	struct job job;
	struct publish_drop drops[PUBLISH_DEVICES_MAX];
};

struct pipeline {
	struct event_loop *loop;
	const struct pipeline_config *config;
	struct regions *regions;
	struct worker_pool *workers, *deregisterer, *connector, *destroyer;
	struct publish *publish; /* NULL: --no-rdma */
	struct publish_config publish_config;
	struct providers *providers;
	struct frontends *frontends; /* NULL: none */
	struct syncer *syncer;
	struct memlock memlock;
	struct life *lives;
	unsigned int joins; /* jobs that register a live mapping on one more device */

	unsigned int stopping; /* what has not stopped yet */
	void (*stopped)(void *data);
	void *stopped_data;
};

static void life_clear(struct life *life);
static void life_deregister(struct life *life);
static void life_follow_devices(struct life *life);
static void follow_devices(struct pipeline *pipeline);
static void life_register(struct life *life);
static void life_withdraw(struct life *life);

/* The name of a mapping in a line of the log, which gets its fields. */
static const char *life_tag(const struct life *life)
{
	const struct mapping *mapping = &life->mapping;
	if (life->pid)
		log_field("MRSHARE_PROVIDER_PID", "%d", life->pid);
	log_field("MRSHARE_MAPPING_ID", "%" PRIu64, mapping->id);
	log_field("MRSHARE_SHMID", "%u", mapping->shmid);
	log_field("MRSHARE_SHM_OFFSET", "%" PRIu64, mapping->shm_offset);
	log_field("MRSHARE_LEN", "%" PRIu64, mapping->len);
	return life->name;
}

static struct life *of_job(struct job *job)
{
	return container_of(job, struct life, job);
}

static struct life *of_mapping(struct mapping *mapping)
{
	return container_of(mapping, struct life, mapping);
}

static struct life *find_life(struct pipeline *pipeline, uint64_t mapping_id)
{
	struct life *life = pipeline->lives;
	while (life && life->mapping.id != mapping_id)
		life = life->next;
	return life;
}

static void submit(struct life *life, struct worker_pool *pool, enum life_state state, void (*run)(struct job *),
	void (*done)(struct job *), bool big)
{
	life->state = state;
	life->job = (struct job){ .run = run, .done = done, .big = big };
	worker_pool_submit(pool, &life->job);
}

static void hold_device(struct life *life, struct device *device)
{
	publish_hold(life->pipeline->publish, device);
	life->devices[life->device_count++] = device;
}

static uint64_t pinned_len(const struct life *life)
{
	return life->pipeline->publish_config.on_demand ? 0 : life->mapping.len;
}

static void unpin(struct life *life, size_t i)
{
	if (life->pinned[i])
		memlock_give_back(&life->pipeline->memlock, pinned_len(life), 1);
	life->pinned[i] = false;
}

static void release_device(struct life *life, struct device *device)
{
	size_t i = 0;
	while (life->devices[i] != device)
		i++;
	unpin(life, i);
	life->device_count--;
	life->devices[i] = life->devices[life->device_count];
	life->pinned[i] = life->pinned[life->device_count];
	life->pinned[life->device_count] = false;
	publish_release(life->pipeline->publish, device);
}

static bool has_device(const struct life *life, const struct device *device)
{
	for (size_t i = 0; i < life->device_count; i++) {
		if (life->devices[i] == device)
			return true;
	}
	return false;
}

/*
 * Beginning and end.
 */

/* Takes the range and all else that is known at once. `fd` becomes the life's when this succeeds. */
static int life_new(struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, uint64_t owner,
	const char *name, struct life **ret_life, struct err *err)
{
	struct life *life = calloc(1, sizeof(*life));
	if (!life)
		return err_set(err, -ENOMEM, "out of memory");
	life->pipeline = pipeline;
	snprintf(life->name, sizeof(life->name), "%s", name);

	int r = regions_claim(pipeline->regions, mmap, owner, &life->mapping, err);
	if (r < 0)
		goto fail;
	if (pipeline->publish) {
		life->device_count = publish_devices(pipeline->publish, life->devices);
		r = publish_reserve(pipeline->publish, life->devices, life->device_count, mmap->len, err);
		if (r < 0)
			goto fail_release;
		life->reserved = true;
	}
	r = admission_check_fd(fd, life->mapping.writable, err);
	if (r < 0)
		goto fail_unreserve;
	for (size_t i = 0; i < life->device_count; i++)
		publish_hold(pipeline->publish, life->devices[i]);

	life->fd = fd;
	life->next = pipeline->lives;
	life->link = &pipeline->lives;
	if (life->next)
		life->next->link = &life->next;
	pipeline->lives = life;
	*ret_life = life;
	return 0;

fail_unreserve:
	if (life->reserved)
		publish_unreserve(pipeline->publish, life->devices, life->device_count, mmap->len);
fail_release:
	regions_release(pipeline->regions, &life->mapping);
fail:
	free(life);
	return r;
}

/* Answers the running request, once. */
static void life_answer(struct life *life)
{
	struct provider *requester = life->requester;
	pipeline_static_fn *ended = life->ended;
	life->requester = NULL;
	life->ended = NULL;
	if (requester)
		provider_answer(requester, life->err.code, &life->err);
	else if (ended)
		ended(life->ended_data, life->mapping.id, life->err.code, &life->err);
}

static void life_free(struct life *life)
{
	event_source_free(&life->frontends_late);
	*life->link = life->next;
	if (life->next)
		life->next->link = life->link;
	free(life);
}

/* What failed is undone from where it stands. Its error is the first one. */
static void life_fail(struct life *life, const struct err *err)
{
	if (!life->err.code)
		life->err = *err;
	if (life->registration)
		life_deregister(life);
	else
		life_clear(life);
}

/* True where the provider went away meanwhile: then undoing has begun. */
static bool fail_if_cancelled(struct life *life)
{
	if (!atomic_load(&life->cancelled))
		return false;
	struct err err;
	err_set(&err, -ECANCELED, "the provider has gone");
	life_fail(life, &err);
	return true;
}

/*
 * Adding: checked, mapped, registered, published.
 */

/* Read-only mappings are for peers only: a front-end would let its guest write. */
static void life_announce(struct life *life)
{
	const struct mapping *mapping = &life->mapping;
	struct pipeline *pipeline = life->pipeline;
	if (!pipeline->frontends || !mapping->writable)
		return;
	struct mrshare_mmap mmap = {
		.shmid = mapping->shmid,
		.fd_offset = mapping->fd_offset,
		.shm_offset = mapping->shm_offset,
		.len = mapping->len,
		.flags = MRSHARE_MMAP_WRITABLE,
	};
	struct err err;
	life->announced = true;
	if (frontends_add(pipeline->frontends, mapping->id, &mmap, life->fd, mapping->owner == 0, &err) < 0)
		log_error("%s: mapping %" PRIu64 " is not announced to every front-end: %s", life_tag(life),
			mapping->id, err.text);
}

static void life_is_live(struct life *life)
{
	char devices[160] = "";
	size_t used = 0;
	for (size_t i = 0; life->registration && i < life->registration->device_count; i++) {
		const struct device_extents *extents = &life->registration->devices[i];
		int n = snprintf(devices + used, sizeof(devices) - used, "%s%s (%zu view%s)", i ? ", " : ", on ",
			extents->device->name, extents->count, extents->count == 1 ? "" : "s");
		used += (size_t)n < sizeof(devices) - used ? (size_t)n : 0;
		device_tag(extents->device);
	}

	const struct mapping *mapping = &life->mapping;
	log_message_id("a03d18c5a45b4bf1a7c2daf206a203a0");
	log_info("%s: mapped %s, %s, %s, mapping %" PRIu64 "%s", life_tag(life), mapping_format(mapping).text,
		size_format(mapping->len).text, mapping->writable ? "read-write" : "read-only", mapping->id, devices);
	if (life->unsealed)
		log_warning("%s: the file of mapping %" PRIu64
			    " can be truncated, which kills every QEMU that maps it and "
			    "detaches what peers see: use a memfd that can be sealed (--unsealed=refuse insists)",
			life_tag(life), mapping->id);
	life->state = LIFE_LIVE;
	life_announce(life);
	life_answer(life);
	life_follow_devices(life);
}

static void check_run(struct job *job)
{
	struct life *life = of_job(job);
	const struct mapping *mapping = &life->mapping;
	struct admission_request request = {
		.shm_offset = mapping->shm_offset,
		.fd_offset = mapping->fd_offset,
		.len = mapping->len,
		.writable = mapping->writable,
	};
	struct admission_result result;
	if (admission_check_file(life->fd, &request, &life->pipeline->config->rules, &result, &life->err) < 0)
		return;
	life->unsealed = result.unsealed;
	life->on_disk = result.on_disk;
	life->dev = result.dev;
	life->ino = result.ino;
	int r = mapping_place(mapping, life->fd, result.prot);
	if (r == -ENOMEM)
		err_set(&life->err, r,
			"mmap of %s: out of memory, of huge pages (vm.nr_hugepages) or of maps (vm.max_map_count)",
			size_format(mapping->len).text);
	else if (r < 0)
		err_set(&life->err, r, "mmap of %s: %s", size_format(mapping->len).text, strerror(-r));
	else
		life->placed = true;
}

static void check_done(struct job *job)
{
	struct life *life = of_job(job);
	if (life->err.code)
		life_fail(life, &life->err);
	else if (!fail_if_cancelled(life)) {
		if (life->pipeline->publish)
			life_register(life);
		else
			life_is_live(life);
	}
}

static struct registration_request registration_request(const struct life *life)
{
	return (struct registration_request){
		.addr = life->mapping.addr,
		.len = life->mapping.len,
		.shm_offset = life->mapping.shm_offset,
		.writable = life->mapping.writable,
		.cancelled = &life->cancelled,
	};
}

static void register_run(struct job *job)
{
	struct life *life = of_job(job);
	struct registration_request request = registration_request(life);
	registration_new(life->devices, life->device_count, &request, &life->registration, &life->err);
}

static void register_done(struct job *job)
{
	struct life *life = of_job(job);
	const struct mapping *mapping = &life->mapping;
	if (life->err.code) {
		life_fail(life, &life->err);
		return;
	}
	if (fail_if_cancelled(life))
		return;

	struct err err;
	life->state = LIFE_PUBLISHING;
	if (publish_add(life->pipeline->publish, mapping->id, mapping->shmid, mapping->writable, mapping->len,
		    life->registration, &err) < 0)
		life_fail(life, &err);
	else
		life->reserved = false;
}

static void life_register(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	struct err err;
	if (memlock_take(&pipeline->memlock, pinned_len(life), life->device_count, &err) < 0) {
		life_fail(life, &err);
		return;
	}
	for (size_t i = 0; i < life->device_count; i++)
		life->pinned[i] = true;
	submit(life, pipeline->workers, LIFE_REGISTERING, register_run, register_done, life->mapping.len > BIG_BYTES);
}

static void on_added(void *data, uint64_t mapping_id)
{
	struct life *life = find_life(data, mapping_id);
	if (!atomic_load(&life->cancelled)) {
		life_is_live(life);
		return;
	}
	err_set(&life->err, -ECANCELED, "the provider has gone");
	life_withdraw(life);
}

/*
 * Removing: withdrawn, deregistered, unmapped and closed.
 */

/* Goes on when no peer has it any more, and no front-end or their time is over. */
static void withdraw_check(struct life *life)
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
	withdraw_check(life);
}

static void life_withdraw(struct life *life)
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
		withdraw_check(life);
}

static void on_withdrawn(void *data, uint64_t mapping_id)
{
	struct life *life = find_life(data, mapping_id);
	life->with_peers = false;
	withdraw_check(life);
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
	fd_close(&of_job(job)->fd);
}

static void close_done(struct job *job)
{
	life_is_gone(of_job(job));
}

static void sync_run(struct job *job)
{
	struct life *life = of_job(job);
	if (fdatasync(life->fd) < 0)
		err_set(&life->undo_err, -errno, "%s", strerror(errno));
}

static void sync_done(struct job *job)
{
	struct life *life = of_job(job);
	if (life->undo_err.code)
		log_error("%s: cannot sync the file of mapping %" PRIu64
			  ", which is removed: what a guest wrote there may be lost: %s",
			life_tag(life), life->mapping.id, life->undo_err.text);
	submit(life, life->pipeline->workers, LIFE_CLOSING, close_run, close_done, false);
}

/* Flushes of a guest that come later do not know of it any more. */
static void life_sync(struct life *life)
{
	life->undo_err.code = 0;
	submit(life, life->pipeline->workers, LIFE_SYNCING, sync_run, sync_done, false);
}

/* The last front-end that had it let go. */
static void on_released(void *data, uint64_t mapping_id)
{
	struct pipeline *pipeline = data;
	struct life *life = find_life(pipeline, mapping_id);
	life->with_frontends = false;
	if (life->state == LIFE_WITHDRAWING)
		withdraw_check(life);
	else if (life->state == LIFE_HELD && life->keeps_fd)
		life_sync(life);
	else if (life->state == LIFE_HELD)
		life_is_gone(life);
}

static void deregister_run(struct job *job)
{
	struct life *life = of_job(job);
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
	struct life *life = of_job(job);
	for (size_t i = 0; i < PUBLISH_DEVICES_MAX; i++)
		publish_drop_end(&life->drops[i]);

	if (!life->registration)
		life_clear(life);
	else if (!life->dropped)
		life_drop_peers(life);
	else
		life_is_stuck(life);
}

static void life_deregister(struct life *life)
{
	submit(life, life->pipeline->deregisterer, LIFE_DEREGISTERING, deregister_run, deregister_done, false);
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
	struct life *life = of_job(job);
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
	struct life *life = of_job(job);
	struct pipeline *pipeline = life->pipeline;
	const struct mapping *mapping = &life->mapping;
	if (life->reserved)
		publish_unreserve(pipeline->publish, life->devices, life->device_count, mapping->len);
	life->reserved = false;
	while (life->device_count)
		release_device(life, life->devices[0]);
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
	submit(life, life->pipeline->workers, LIFE_CLEARING, clear_run, clear_done, false);
}

/*
 * Devices that come and go while it is live: it leaves those that are gone and is registered on those that came, one
 * at a time. Who keeps it from one that came is logged, and it is not in that device's catalog.
 */

static void left_out(const struct life *life, const struct device *device, const struct err *err)
{
	if (atomic_load(&device->gone) || life->pipeline->stopping)
		return;
	const char *name = life_tag(life);
	log_error("%s: %s, mapping %" PRIu64 ", is not published on device %s: %s", name,
		mapping_format(&life->mapping).text, life->mapping.id, device_tag(device), err->text);
}

/* A device serves when no live mapping has still to be tried there. */
static void serve_devices(struct pipeline *pipeline)
{
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t count = publish_devices(pipeline->publish, devices);
	for (size_t i = 0; i < count; i++) {
		bool is_settled = !publish_serves(pipeline->publish, devices[i]);
		for (const struct life *life = pipeline->lives; life && is_settled; life = life->next)
			is_settled = life->state != LIFE_LIVE ||
				     (has_device(life, devices[i]) && life->change != devices[i]);
		if (is_settled)
			publish_serve(pipeline->publish, devices[i]);
	}
}

static void change_ended(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	if (life->state == LIFE_WITHDRAWING)
		withdraw_check(life);
	serve_devices(pipeline);
}

static void leave_run(struct job *job)
{
	struct life *life = of_job(job);
	life->change_err.code = 0;
	registration_drop(life->registration, life->change, &life->change_err);
}

static void leave_done(struct job *job)
{
	struct life *life = of_job(job);
	struct device *device = life->change;
	life->change = NULL;
	if (life->change_err.code) {
		log_error("%s: mapping %" PRIu64 ": %s: restart mrshared to use that device again", life_tag(life),
			life->mapping.id, life->change_err.text);
	} else {
		release_device(life, device);
		life_follow_devices(life);
	}
	change_ended(life);
}

static void join_run(struct job *job)
{
	struct life *life = of_job(job);
	struct registration_request request = registration_request(life);
	life->change_err.code = 0;
	registration_add(life->registration, life->change, &request, &life->change_err);
}

static void join_done(struct job *job)
{
	struct life *life = of_job(job);
	struct pipeline *pipeline = life->pipeline;
	const struct mapping *mapping = &life->mapping;
	struct device *device = life->change;
	struct err *err = &life->change_err;
	life->change = NULL;
	pipeline->joins--;
	if (life->state == LIFE_LIVE && err->code == 0)
		publish_add_on(pipeline->publish, device, mapping->id, mapping->shmid, mapping->writable, mapping->len,
			life->registration, err);
	if (life->state == LIFE_WITHDRAWING || err->code)
		publish_unreserve(pipeline->publish, &device, 1, mapping->len);
	if (life->state == LIFE_LIVE && err->code) {
		const struct device_extents *extents = registration_on(life->registration, device);
		if (!extents || extents->count == 0)
			unpin(life, life->device_count - 1);
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
	hold_device(life, device);
	if (publish_reserve(pipeline->publish, &device, 1, len, &err) == 0) {
		if (memlock_take(&pipeline->memlock, pinned_len(life), 1, &err) == 0) {
			life->pinned[life->device_count - 1] = true;
			pipeline->joins++;
			life_change(life, device, pipeline->workers, join_run, join_done, len > BIG_BYTES);
			return true;
		}
		publish_unreserve(pipeline->publish, &device, 1, len);
	}
	left_out(life, device, &err);
	return false;
}

static void life_follow_devices(struct life *life)
{
	struct pipeline *pipeline = life->pipeline;
	if (!pipeline->publish || life->state != LIFE_LIVE || life->change)
		return;
	for (size_t i = 0; i < life->device_count; i++) {
		if (atomic_load(&life->devices[i]->gone)) {
			life_change(life, life->devices[i], pipeline->deregisterer, leave_run, leave_done, false);
			return;
		}
	}
	struct device *devices[PUBLISH_DEVICES_MAX];
	size_t count = publish_devices(pipeline->publish, devices);
	for (size_t i = 0; i < count; i++) {
		if (!has_device(life, devices[i]) && life_join(life, devices[i]))
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

static void on_devices_changed(void *data)
{
	struct pipeline *pipeline = data;
	for (struct life *life = pipeline->lives; life; life = life->next) {
		if (is_stuck_on_lost(life))
			life_deregister(life);
	}
	follow_devices(pipeline);
	serve_devices(pipeline);
}

/*
 * What providers ask.
 */

static int on_map(void *data, struct provider *provider, const struct mrshare_mmap *mmap, int fd, struct err *err)
{
	struct pipeline *pipeline = data;
	struct life *life;
	int r = life_new(pipeline, mmap, fd, provider_id(provider), provider_name(provider), &life, err);
	if (r < 0)
		return r;
	life->requester = provider;
	life->pid = provider_pid(provider);
	submit(life, pipeline->workers, LIFE_CHECKING, check_run, check_done, false);
	return 0;
}

static int on_unmap(void *data, struct provider *provider, const struct mrshare_mmap *mmap, struct err *err)
{
	struct pipeline *pipeline = data;
	struct mapping *mapping;
	int r = regions_find(pipeline->regions, mmap, provider_id(provider), &mapping, err);
	if (r < 0)
		return r;

	struct life *life = of_mapping(mapping);
	if (life->state == LIFE_HELD)
		return err_set(err, -EINPROGRESS, "%s", life->err.text);
	if (life->state != LIFE_LIVE)
		return err_set(err, -EBUSY, "%s could not be removed before: %s", mapping_format(mapping).text,
			life->err.text);
	life->requester = provider;
	life_withdraw(life);
	return 0;
}

static void on_gone(void *data, struct provider *provider)
{
	struct pipeline *pipeline = data;
	for (struct life *life = pipeline->lives; life; life = life->next) {
		if (life->mapping.owner != provider_id(provider))
			continue;
		if (life->state == LIFE_LIVE)
			life_withdraw(life);
		else
			atomic_store(&life->cancelled, true);
	}
}

static const struct provider_ops provider_ops = { .map = on_map, .unmap = on_unmap, .gone = on_gone };
static const struct publish_ops publish_ops = {
	.added = on_added,
	.withdrawn = on_withdrawn,
	.devices_changed = on_devices_changed,
};

/*
 * What front-ends ask.
 */

static bool on_is_own_file(void *data, dev_t dev, ino_t ino)
{
	const struct pipeline *pipeline = data;
	for (const struct life *life = pipeline->lives; life; life = life->next) {
		/* While it is being looked at, its file is not known, nor announced. */
		if (life->state != LIFE_CHECKING && life->ino == ino && life->dev == dev)
			return true;
	}
	return false;
}

/* Whether a guest may have written to its file since it was synced, and our fd of it is open. */
static bool is_dirty(const struct life *life)
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

/* A guest flushes region 0. What is being taken from it may still hold what it wrote. */
static int on_collect(void *data, struct syncer *syncer, uint64_t below, struct err *err)
{
	const struct pipeline *pipeline = data;
	int r = 1;
	/* The list's order is that of falling ids. */
	for (const struct life *life = pipeline->lives; r > 0 && life; life = life->next) {
		const struct mapping *mapping = &life->mapping;
		if (!is_dirty(life) || mapping->shmid != 0 || !mapping->writable || !life->on_disk ||
			mapping->id >= below)
			continue;
		char name[200];
		snprintf(name, sizeof(name), "%s, %s", life->name, mapping_format(mapping).text);
		r = sync_add(syncer, mapping->id, life->fd, name, err);
	}
	return r < 0 ? r : 0;
}

static int on_device_new(void *data, struct frontend *frontend, void **ret_device)
{
	struct pipeline *pipeline = data;
	return guest_new(pipeline->loop, pipeline->syncer, frontend, ret_device);
}

static void on_left(void *data, bool was_dropped)
{
	const struct pipeline *pipeline = data;
	pipeline->config->frontend_left(was_dropped);
}

static const struct frontend_ops frontend_ops = {
	.device_new = on_device_new,
	.device_free = guest_free,
	.queue_start = guest_queue_start,
	.queue_stop = guest_queue_stop,
	.queue_kick = guest_queue_kick,
	.device_fail = guest_fail,
	.is_own_file = on_is_own_file,
	.released = on_released,
	.left = on_left,
};

/*
 * The daemon's calls.
 */

static void on_results(void *data, unsigned int events)
{
	worker_pool_collect(data);
}

static int pool_new(struct pipeline *pipeline, const char *name, unsigned int max_threads, unsigned int max_big,
	struct worker_pool **ret_pool, struct err *err)
{
	struct worker_pool *pool;
	int r = worker_pool_new(name, max_threads, max_big, &pool);
	if (r < 0)
		return err_set(err, r, "cannot start a worker thread: %s", strerror(-r));
	struct event_source *results = event_io_new(pipeline->loop, worker_pool_fd(pool), on_results, pool);
	if (!results)
		return err_set(err, -ENOMEM, "out of memory");
	event_io_set(results, EVENT_READ);
	*ret_pool = pool;
	return 0;
}

static int new_frontends(struct pipeline *pipeline, struct err *err)
{
	if (!pipeline->config->frontends)
		return 0;
	if (syncer_new(pipeline->workers, on_collect, pipeline, &pipeline->syncer) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	return frontends_new(pipeline->loop, pipeline->config->frontends, pipeline->workers, &frontend_ops, pipeline,
		&pipeline->frontends, err);
}

static unsigned int max_workers(const struct pipeline_config *config)
{
	unsigned int frontends = config->frontends ? config->frontends->max_frontends : 0;
	size_t listeners = 1 + config->socket_count;
	return WORKERS_PROVIDER * config->max_providers + WORKERS_FRONTEND * frontends +
	       (unsigned int)listeners * LISTENER_REFUSALS_MAX + WORKERS_SPARE;
}

int pipeline_new(
	struct event_loop *loop, const struct pipeline_config *config, struct pipeline **ret_pipeline, struct err *err)
{
	struct pipeline *pipeline = calloc(1, sizeof(*pipeline));
	if (!pipeline)
		return err_set(err, -ENOMEM, "out of memory");
	*ret_pipeline = pipeline;
	pipeline->loop = loop;
	pipeline->config = config;
	memlock_init(&pipeline->memlock);
	int r = regions_new(&config->limits, &pipeline->regions);
	if (r < 0)
		return err_set(err, r, "out of memory");
	r = pool_new(pipeline, "mrshared-worker", max_workers(config), WORKERS_BIG, &pipeline->workers, err);
	if (r == 0)
		r = new_frontends(pipeline, err);
	if (r < 0 || !config->publish)
		return r;
	r = pool_new(pipeline, "mrshared-dereg", 1, 1, &pipeline->deregisterer, err);
	if (r == 0)
		r = pool_new(pipeline, "mrshared-conn", CONNECTORS, 1, &pipeline->connector, err);
	if (r == 0)
		r = pool_new(pipeline, "mrshared-destr", DESTROYERS, DESTROYERS_BIG, &pipeline->destroyer, err);
	if (r < 0)
		return r;
	pipeline->publish_config = *config->publish;
	pipeline->publish_config.memlock = &pipeline->memlock;
	return publish_new(loop, &pipeline->publish_config, pipeline->connector, pipeline->destroyer, &publish_ops,
		pipeline, &pipeline->publish, err);
}

int pipeline_add_region(struct pipeline *pipeline, uint8_t shmid, uint64_t size, struct err *err)
{
	return regions_add(pipeline->regions, shmid, size, err);
}

int pipeline_map_static(struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, const char *name,
	pipeline_static_fn *ended, void *data, struct err *err)
{
	struct life *life;
	int r = life_new(pipeline, mmap, fd, 0, name, &life, err);
	if (r < 0)
		return r;
	life->ended = ended;
	life->ended_data = data;
	submit(life, pipeline->workers, LIFE_CHECKING, check_run, check_done, false);
	return 0;
}

void pipeline_unmap_static(struct pipeline *pipeline, uint64_t mapping_id, pipeline_static_fn *ended, void *data)
{
	struct life *life = find_life(pipeline, mapping_id);
	life->ended = ended;
	life->ended_data = data;
	life_withdraw(life);
}

int pipeline_open_providers(struct pipeline *pipeline, const struct providers_config *providers, struct err *err)
{
	return providers_new(
		pipeline->loop, providers, pipeline->workers, &provider_ops, pipeline, &pipeline->providers, err);
}

int pipeline_open_frontends(struct pipeline *pipeline, struct err *err)
{
	int r = 0;
	for (size_t i = 0; r == 0 && i < pipeline->config->socket_count; i++)
		r = frontends_open(pipeline->frontends, &pipeline->config->sockets[i], err);
	return r;
}

void pipeline_limits_changed(struct pipeline *pipeline)
{
	regions_set_limits(pipeline->regions, &pipeline->config->limits);
	if (pipeline->config->publish)
		pipeline->publish_config.max_peers = pipeline->config->publish->max_peers;
	worker_pool_raise_max(pipeline->workers, max_workers(pipeline->config));
}

void pipeline_submit(struct pipeline *pipeline, struct job *job)
{
	worker_pool_submit(pipeline->workers, job);
}

struct pipeline_counts pipeline_counts(const struct pipeline *pipeline)
{
	return (struct pipeline_counts){
		.providers = pipeline->providers ? providers_count(pipeline->providers) : 0,
		.frontends = pipeline->frontends ? frontends_count(pipeline->frontends) : 0,
		.mappings = regions_count(pipeline->regions),
		.peers = pipeline->publish ? publish_snapshot(pipeline->publish).peers : 0,
	};
}

static void on_one_stopped(void *data)
{
	struct pipeline *pipeline = data;
	if (--pipeline->stopping == 0)
		pipeline->stopped(pipeline->stopped_data);
}

void pipeline_stop(struct pipeline *pipeline, void (*done)(void *data), void *data)
{
	pipeline->stopped = done;
	pipeline->stopped_data = data;
	pipeline->stopping = 1 + (pipeline->frontends != NULL) + (pipeline->publish != NULL);
	if (pipeline->providers)
		providers_stop(pipeline->providers);
	if (pipeline->frontends)
		frontends_stop(pipeline->frontends, on_one_stopped, pipeline);
	if (pipeline->publish)
		publish_stop(pipeline->publish, on_one_stopped, pipeline);
	on_one_stopped(pipeline);
}
