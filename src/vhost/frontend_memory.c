/* frontend_memory.c: memory tables: prepared by a worker, then put in the place of the one before. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>

#include "base/container.h"
#include "vhost/frontend_internal.h"

static struct frontend *of_job(struct job *job)
{
	return container_of(job, struct frontend, table.job);
}

/* Queues run on in the table before until here. */
static void table_swap(struct frontend *frontend)
{
	frontend->old_memory = frontend->memory;
	frontend->memory = frontend->table.memory;
	frontend->table.memory = NULL;
	queues_set_memory(frontend, frontend->memory);
	sets_set_foreign(&frontend->sets, memory_foreign_count(frontend->memory));
}

static void table_run(struct job *job)
{
	struct frontend_table *table = &of_job(job)->table;
	if (table->looked)
		memory_map(table->memory, table->max_bytes, &table->err);
	else
		memory_look(table->memory, &table->err);
}

static void table_done(struct job *job)
{
	struct frontend *frontend = of_job(job);
	struct frontends *frontends = frontend->frontends;
	struct frontend_table *table = &frontend->table;
	if (frontend->io && !table->err.code && !table->looked) {
		table->looked = true;
		memory_mark_own(table->memory, frontends->ops->is_own_file, frontends->data);
		worker_pool_submit(frontends->pool, &table->job);
		return;
	}
	table->running = false;
	if (frontend->io) {
		if (!table->err.code)
			table_swap(frontend);
		request_end(frontend, table->request, table->needs_ack, table->err.code, &table->err);
	}
	if (table->memory)
		frontend->old_memory = table->memory;
	table->memory = NULL;
	session_pump(frontend);
}

static int table_start(struct frontend *frontend, struct memory *memory)
{
	struct frontend_table *table = &frontend->table;
	*table = (struct frontend_table){
		.job = { .run = table_run, .done = table_done },
		.running = true,
		.memory = memory,
		.request = frontend->channel.header.request,
		.needs_ack = request_needs_ack(frontend),
		/* Two tables of each front-end exist at a time, and half of the address space is for all else. */
		.max_bytes = MEMORY_ADDRESS_SPACE / 4 / frontend->frontends->config->max_frontends,
	};
	worker_pool_submit(frontend->frontends->pool, &table->job);
	return REQUEST_LATER;
}

static bool has_same_addresses(const struct frontend *frontend)
{
	return frontend->protocol_features & VHOST_USER_PROTOCOL_GPA_ADDRESSES;
}

static struct memory_entry entry_of(const struct vhost_user_region *region)
{
	return (struct memory_entry){ region->guest_addr, region->size, region->user_addr, region->mmap_offset };
}

int request_set_mem_table(struct frontend *frontend, struct err *err)
{
	struct channel *channel = &frontend->channel;
	struct vhost_user_region regions[VHOST_USER_REGIONS_MAX];
	struct memory_entry entries[VHOST_USER_REGIONS_MAX];
	uint32_t count;
	if (vhost_user_regions_read(channel->payload, channel->header.size, regions, &count) < 0)
		return err_set(err, -EINVAL, "its %u bytes are no table of up to %d regions", channel->header.size,
			VHOST_USER_REGIONS_MAX);
	if (channel->fd_count != count)
		return err_set(err, -EBADF, "%u file descriptors came with %u regions", channel->fd_count, count);
	for (uint32_t i = 0; i < count; i++)
		entries[i] = entry_of(&regions[i]);

	struct memory *memory;
	int r = memory_new(entries, count, channel->fds, has_same_addresses(frontend), &memory, err);
	return r < 0 ? r : table_start(frontend, memory);
}

int request_add_mem_reg(struct frontend *frontend, struct err *err)
{
	struct channel *channel = &frontend->channel;
	struct vhost_user_region region;
	vhost_user_region_read(channel->payload, channel->header.size, &region);
	struct memory_entry entry = entry_of(&region);
	struct memory *memory;
	int r = memory_new_with(frontend->memory, &entry, &channel->fds[0], has_same_addresses(frontend), &memory, err);
	return r < 0 ? r : table_start(frontend, memory);
}

int request_rem_mem_reg(struct frontend *frontend, struct err *err)
{
	struct channel *channel = &frontend->channel;
	struct vhost_user_region region;
	vhost_user_region_read(channel->payload, channel->header.size, &region);
	struct memory_entry entry = entry_of(&region);
	if (!frontend->memory)
		return err_set(err, -ENOENT, "there is no memory table");
	struct memory *memory;
	int r = memory_new_without(frontend->memory, &entry, &memory, err);
	return r < 0 ? r : table_start(frontend, memory);
}
