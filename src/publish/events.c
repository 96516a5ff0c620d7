/* events.c: what rdma_cm and the devices report. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "base/container.h"
#include "base/log.h"
#include "publish/peer.h"

static struct peer *peer_of_qp(struct publish *publish, const struct ibv_qp *qp)
{
	struct peer *peer;
	LIST_FOREACH(peer, &publish->peers, link) {
		if (!peer->connecting && peer->qp == qp)
			return peer;
	}
	return NULL;
}

/* The queue pair is in error, which its completions say too if it has any. */
static void qp_failed(struct publish_device *device, const struct ibv_async_event *event)
{
	struct peer *peer = peer_of_qp(device->publish, event->element.qp);
	if (peer)
		peer_end(peer, "disconnected: its queue pair failed: %s", verbs_event_name(event->event_type));
}

static void async_event(struct publish_device *device, const struct ibv_async_event *event)
{
	const char *name = verbs_event_name(event->event_type);
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		publish_device_lost(device, "it was removed or failed");
		break;
	case IBV_EVENT_CQ_ERR:
		publish_device_lost(device, "a completion queue failed");
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp_failed(device, event);
		break;
	case IBV_EVENT_PORT_ERR:
		log_warning("device %s: port %d is down: its peers are dropped if it stays so",
			device_tag(device->device), event->element.port_num);
		break;
	case IBV_EVENT_PORT_ACTIVE:
		log_info("device %s: port %d is up", device_tag(device->device), event->element.port_num);
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		log_debug("device %s: %s", device_tag(device->device), name);
		break;
	default:
		/* GIDs and the like are rdma_cm's, and what is connected stays so. */
		log_info("device %s: %s", device_tag(device->device), name);
	}
}

void on_async_event(void *data, unsigned int events)
{
	struct publish_device *device = data;
	struct ibv_async_event event;
	int r;
	while ((r = verbs_next_async_event(device->device->context, &event)) == 0) {
		async_event(device, &event);
		verbs_ack_async_event(&event);
		if (atomic_load(&device->device->gone))
			return;
	}
	if (r != -EAGAIN && r != -EINTR)
		publish_device_lost(device, "it was removed, or its events cannot be read");
}

static struct listener *listener_of(struct publish *publish, const struct rdma_cm_id *id)
{
	for (size_t i = 0; i < publish->listener_count; i++) {
		if (publish->listeners[i].id == id)
			return &publish->listeners[i];
	}
	return NULL;
}

static void listener_event(const struct listener *listener, const struct cm_event *event)
{
	if (event->type == RDMA_CM_EVENT_DEVICE_REMOVAL && listener->device)
		publish_device_lost(listener->device, "it was removed");
	else
		log_debug("listener: %s", cm_event_name(event->type));
}

/* Any event comes in any state: DISCONNECTED before ESTABLISHED, and everything for a peer that is ENDING. */
static void peer_event(struct peer *peer, const struct cm_event *event)
{
	switch (event->type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		peer_admit(peer);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		peer_end(peer, "disconnected: it closed the connection");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		if (peer->device)
			publish_device_lost(peer->device, "it was removed");
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		peer_end(peer, "gave up before it was admitted: %s", cm_event_name(event->type));
		break;
	default:
		/* TIMEWAIT_EXIT follows each end; ADDR_CHANGE breaks nothing that stands. */
		log_debug("peer %s: %s", peer_tag(peer), cm_event_name(event->type));
	}
}

/* So many peers may be on their way out until requests wait, of which the kernel keeps a bounded number. */
static size_t ending_max(const struct publish *publish)
{
	return publish->config->max_peers + 2 * HALF_OPEN_MAX;
}

static void pause_events(struct publish *publish)
{
	publish->paused = true;
	log_error("no peer can connect: %zu connections are ending, which takes up to a minute where a host is dead; "
		  "where it takes longer restart mrshared",
		publish->ending);
}

void cm_channel_resume(struct publish *publish)
{
	if (!publish->paused || publish->ending > ending_max(publish) - HALF_OPEN_MAX)
		return;
	publish->paused = false;
	event_io_set(publish->channel_source, EVENT_READ);
	log_info("peers can connect again");
}

static void cm_event(struct publish *publish, const struct cm_event *event)
{
	struct listener *listener = listener_of(publish, event->id);
	if (event->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		peer_request(publish, event);
	else if (listener)
		listener_event(listener, event);
	else if (event->context)
		peer_event(event->context, event);
}

static void take_run(struct job *job)
{
	struct publish *publish = container_of(job, struct publish, take.job);
	struct take *take = &publish->take;
	take->count = 0;
	take->result = 0;
	while (take->count < TAKE_MAX && take->result == 0) {
		take->result = cm_take_event(publish->channel, &take->events[take->count]);
		take->count += take->result == 0;
	}
}

/* All that were taken are looked at, since the end of their ids waits for that. */
static void take_done(struct job *job)
{
	struct publish *publish = container_of(job, struct publish, take.job);
	struct take *take = &publish->take;
	take->runs = false;
	for (unsigned int i = 0; i < take->count; i++) {
		struct cm_event event;
		cm_ack_event(take->events[i], &event);
		cm_event(publish, &event);
	}
	if (take->result < 0 && take->result != -EAGAIN && take->result != -EINTR)
		log_error("rdma_cm: events cannot be read, so no peer can connect any more: %s: restart mrshared",
			strerror(-take->result));
	else if (publish->ending >= ending_max(publish))
		pause_events(publish);
	else
		event_io_set(publish->channel_source, EVENT_READ);
	publish_settle_soon(publish);
}

void on_cm_channel(void *data, unsigned int events)
{
	struct publish *publish = data;
	event_io_set(publish->channel_source, 0);
	publish->take.runs = true;
	publish->take.job = (struct job){ .run = take_run, .done = take_done };
	worker_pool_submit(publish->taker, &publish->take.job);
}
