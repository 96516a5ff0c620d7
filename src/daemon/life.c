/* life.c: the life of a mapping: what all its steps share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/life.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/range.h"

const char *life_tag(const struct life *life)
{
	const struct mapping *mapping = &life->mapping;
	if (life->pid) {
		log_field("MRSHARE_PROVIDER_UID", "%u", life->uid); /* first: repetitions are counted by user */
		log_field("MRSHARE_PROVIDER_PID", "%d", life->pid);
		log_field("MRSHARE_PROVIDER", "%" PRIu64, mapping->owner);
	}
	log_field("MRSHARE_MAPPING_ID", "%" PRIu64, mapping->id);
	log_field("MRSHARE_SHMID", "%u", mapping->shmid);
	log_field("MRSHARE_SHM_OFFSET", "%" PRIu64, mapping->shm_offset);
	log_field("MRSHARE_LEN", "%" PRIu64, mapping->len);
	return life->name;
}

struct life *life_find(struct pipeline *pipeline, uint64_t mapping_id)
{
	struct life *life = pipeline->lives;
	while (life && life->mapping.id != mapping_id)
		life = life->next;
	return life;
}

void life_submit(struct life *life, struct worker_pool *pool, enum life_state state, void (*run)(struct job *),
	void (*done)(struct job *), bool big)
{
	life->state = state;
	life->job = (struct job){ .run = run, .done = done, .big = big };
	worker_pool_submit(pool, &life->job);
}

void life_hold_device(struct life *life, struct device *device)
{
	publish_hold(life->pipeline->publish, device);
	life->devices[life->device_count++] = device;
}

uint64_t life_pinned_len(const struct life *life)
{
	return life->pipeline->publish_config.on_demand ? 0 : life->mapping.len;
}

void life_unpin(struct life *life, size_t i)
{
	if (life->pinned[i])
		memlock_give_back(&life->pipeline->memlock, life_pinned_len(life), 1);
	life->pinned[i] = false;
}

void life_release_device(struct life *life, struct device *device)
{
	size_t i = 0;
	while (life->devices[i] != device)
		i++;
	life_unpin(life, i);
	life->device_count--;
	life->devices[i] = life->devices[life->device_count];
	life->pinned[i] = life->pinned[life->device_count];
	life->pinned[life->device_count] = false;
	life->stays[i] = life->stays[life->device_count];
	life->stays[life->device_count] = false;
	publish_release(life->pipeline->publish, device);
}

bool life_has_device(const struct life *life, const struct device *device)
{
	for (size_t i = 0; i < life->device_count; i++) {
		if (life->devices[i] == device)
			return true;
	}
	return false;
}

/* A range can be taken by what is removed already. */
static void add_holder(const struct pipeline *pipeline, const struct mrshare_mmap *mmap, struct err *err)
{
	for (const struct life *life = pipeline->lives; life; life = life->next) {
		const struct mapping *mapping = &life->mapping;
		if (life->state != LIFE_HELD || mapping->shmid != mmap->shmid ||
			!ranges_overlap(mmap->shm_offset, mmap->len, mapping->shm_offset, mapping->len))
			continue;
		char holder[128], text[sizeof(err->text)];
		frontends_who_holds(pipeline->frontends, mapping->id, holder, sizeof(holder));
		snprintf(text, sizeof(text), "%s", err->text);
		err_set(err, err->code, "%s; it is removed, but %s has it still", text, holder);
		return;
	}
}

int life_new(struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, uint64_t owner, const char *name,
	struct life **ret_life, struct err *err)
{
	struct life *life = calloc(1, sizeof(*life));
	if (!life)
		return err_set(err, -ENOMEM, "out of memory");
	life->pipeline = pipeline;
	snprintf(life->name, sizeof(life->name), "%s", name);

	int r = regions_claim(pipeline->regions, mmap, owner, &life->mapping, err);
	if (r == -EEXIST)
		add_holder(pipeline, mmap, err);
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

void life_answer(struct life *life)
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

void life_free(struct life *life)
{
	event_source_free(&life->frontends_late);
	*life->link = life->next;
	if (life->next)
		life->next->link = life->link;
	free(life);
}
