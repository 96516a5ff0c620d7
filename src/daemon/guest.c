/* guest.c: the pmem device of a front-end, between its queue and the files that its flushes make durable. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/guest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/pmem.h"

_Static_assert((int)PMEM_QUEUES <= (int)FRONTEND_QUEUES_MAX, "a front-end has room for the device's queues");

struct guest {
	struct syncer *syncer;
	struct frontend *frontend;
	struct pmem *pmem;
	struct sync_waiter waiter;
};

struct frontend_device guest_device(void)
{
	return (struct frontend_device){
		.features = PMEM_FEATURES, .queues = PMEM_QUEUES, .queue_num_max = PMEM_QUEUE_NUM_MAX
	};
}

void guest_config(uint64_t region_size, uint8_t ret_config[VHOST_USER_CONFIG_MAX])
{
	struct virtio_pmem_config config = pmem_config(region_size);
	memset(ret_config, 0, VHOST_USER_CONFIG_MAX);
	memcpy(ret_config, &config, sizeof(config));
}

static void on_synced(void *data, int result, const struct err *err)
{
	struct guest *guest = data;
	pmem_synced(guest->pmem, result, err);
}

static int on_sync(void *data, struct err *err)
{
	struct guest *guest = data;
	guest->waiter = (struct sync_waiter){ .done = on_synced, .data = guest };
	return sync_ask(guest->syncer, &guest->waiter, err);
}

static const char *on_sync_waits_for(void *data)
{
	const struct guest *guest = data;
	return sync_waits_for(guest->syncer);
}

static void on_call(void *data)
{
	const struct guest *guest = data;
	frontend_call(guest->frontend, 0);
}

static void on_broken(void *data, const struct err *err)
{
	const struct guest *guest = data;
	frontend_broken(guest->frontend, 0, err);
}

static const struct pmem_ops pmem_ops = {
	.sync = on_sync, .sync_waits_for = on_sync_waits_for, .call = on_call, .broken = on_broken
};

int guest_new(struct event_loop *loop, struct syncer *syncer, struct frontend *frontend, void **ret_guest)
{
	struct guest *guest = calloc(1, sizeof(*guest));
	if (!guest)
		return -ENOMEM;
	*guest = (struct guest){ .syncer = syncer, .frontend = frontend };
	if (pmem_new(loop, frontend_name(frontend), &pmem_ops, guest, &guest->pmem) < 0) {
		free(guest);
		return -ENOMEM;
	}
	*ret_guest = guest;
	return 0;
}

void guest_free(void *data)
{
	struct guest *guest = data;
	sync_forget(guest->syncer, &guest->waiter);
	pmem_free(&guest->pmem);
	free(guest);
}

void guest_queue_start(void *data, unsigned int queue, struct virtqueue *vq)
{
	struct guest *guest = data;
	pmem_start(guest->pmem, vq);
}

void guest_queue_stop(void *data, unsigned int queue)
{
	struct guest *guest = data;
	pmem_stop(guest->pmem);
}

void guest_queue_kick(void *data, unsigned int queue)
{
	struct guest *guest = data;
	pmem_kick(guest->pmem);
}

void guest_fail(void *data)
{
	struct guest *guest = data;
	pmem_fail_all(guest->pmem);
}
