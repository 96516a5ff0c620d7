/* pipeline.c: wires the stages together. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stages do not know each other: each calls to its right through a table of functions that is filled here. What a
 * mapping goes through is in life.h.
 */
#include "daemon/life.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/guest.h"
#include "vhost/listen.h"

enum {
	/* What one client can make hang at a time: a provider its request and a close; a front-end a close and a table;
	 * a listener its refusals. So what hangs never takes the last worker. */
	WORKERS_PROVIDER = 2,
	WORKERS_FRONTEND = 2,
	WORKERS_SPARE = 8,
	WORKERS_BIG = 2, /* that pin much memory at a time */
	CONNECTORS = 2,  /* that make queue pairs */
	DESTROYERS = 4,  /* of queue pairs and ids; the end of an id can take a minute */
	DESTROYERS_BIG = 3,
};

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
	life->uid = provider_uid(provider);
	life_begin(life);
	return 0;
}

static int on_unmap(void *data, struct provider *provider, const struct mrshare_mmap *mmap, struct err *err)
{
	struct pipeline *pipeline = data;
	struct mapping *mapping;
	int r = regions_find(pipeline->regions, mmap, provider_id(provider), &mapping, err);
	if (r < 0)
		return r;

	struct life *life = life_of_mapping(mapping);
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
	.added = life_added,
	.withdrawn = life_withdrawn,
	.devices_changed = life_devices_changed,
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

/* A guest flushes region 0. What is being taken from it may still hold what it wrote. */
static int on_collect(void *data, struct syncer *syncer, uint64_t below, struct err *err)
{
	const struct pipeline *pipeline = data;
	int r = 1;
	/* The list's order is that of falling ids. */
	for (const struct life *life = pipeline->lives; r > 0 && life; life = life->next) {
		const struct mapping *mapping = &life->mapping;
		if (!life_is_dirty(life) || mapping->shmid != 0 || !mapping->writable || !life->on_disk ||
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
	.released = life_released,
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
		r = pool_new(pipeline, "mrshared-cm", 1, 1, &pipeline->taker, err);
	if (r == 0)
		r = pool_new(pipeline, "mrshared-conn", CONNECTORS, 1, &pipeline->connector, err);
	if (r == 0)
		r = pool_new(pipeline, "mrshared-destr", DESTROYERS, DESTROYERS_BIG, &pipeline->destroyer, err);
	if (r < 0)
		return r;
	pipeline->publish_config = *config->publish;
	pipeline->publish_config.memlock = &pipeline->memlock;
	return publish_new(loop, &pipeline->publish_config, pipeline->taker, pipeline->connector, pipeline->destroyer,
		&publish_ops, pipeline, &pipeline->publish, err);
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
	life_begin(life);
	return 0;
}

void pipeline_unmap_static(struct pipeline *pipeline, uint64_t mapping_id, pipeline_static_fn *ended, void *data)
{
	struct life *life = life_find(pipeline, mapping_id);
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

bool pipeline_registers_static(const struct pipeline *pipeline)
{
	for (const struct life *life = pipeline->lives; life; life = life->next) {
		bool runs = life->state == LIFE_REGISTERING || life->state == LIFE_DEREGISTERING ||
			    life->state == LIFE_DROPPING;
		if (runs && life->mapping.owner == 0)
			return true;
	}
	return false;
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
