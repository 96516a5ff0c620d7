/* life_add.c: a mapping is added: checked, mapped, registered, published. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/life.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

static void life_register(struct life *life);

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
	const char *name = life_tag(life); /* first: devices can be more than fields have room */
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
	log_info("%s: mapped %s, %s, %s, mapping %" PRIu64 "%s", name, mapping_format(mapping).text,
		size_format(mapping->len).text, mapping->writable ? "read-write" : "read-only", mapping->id, devices);
	if (life->unsealed)
		log_warning("%s: the file of mapping %" PRIu64
			    " can be truncated, which kills every QEMU that maps it and "
			    "detaches what peers see: %s",
			life_tag(life), mapping->id,
			mapping->owner ? "use a memfd that can be sealed (--unsealed=refuse insists)"
				       : "let nobody truncate it");
	life->state = LIFE_LIVE;
	life_announce(life);
	life_answer(life);
	life_follow_devices(life);
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

static void check_run(struct job *job)
{
	struct life *life = life_of_job(job);
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
	struct life *life = life_of_job(job);
	if (life->err.code)
		life_fail(life, &life->err);
	else if (!fail_if_cancelled(life)) {
		if (life->pipeline->publish)
			life_register(life);
		else
			life_is_live(life);
	}
}

void life_begin(struct life *life)
{
	life_submit(life, life->pipeline->workers, LIFE_CHECKING, check_run, check_done, false);
}

struct registration_request life_registration_request(const struct life *life)
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
	struct life *life = life_of_job(job);
	struct registration_request request = life_registration_request(life);
	registration_new(life->devices, life->device_count, &request, &life->registration, &life->err);
}

static void register_done(struct job *job)
{
	struct life *life = life_of_job(job);
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
	if (memlock_take(&pipeline->memlock, life_pinned_len(life), life->device_count, &err) < 0) {
		life_fail(life, &err);
		return;
	}
	for (size_t i = 0; i < life->device_count; i++)
		life->pinned[i] = true;
	life_submit(life, pipeline->workers, LIFE_REGISTERING, register_run, register_done,
		life->mapping.len > LIFE_BIG_BYTES);
}

void life_added(void *data, uint64_t mapping_id)
{
	struct life *life = life_find(data, mapping_id);
	if (!atomic_load(&life->cancelled)) {
		life_is_live(life);
		return;
	}
	err_set(&life->err, -ECANCELED, "the provider has gone");
	life_withdraw(life);
}
