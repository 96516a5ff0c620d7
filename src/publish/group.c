/* group.c: a completion queue and the frames of the peers that share it. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues cannot grow with every driver, so each serves a group of peers, and groups come with the peers. A
 * device has its first group from the start. Making one registers memory, which waits for whoever holds the lock of our
 * address space, so the next one is made on a worker, before the last slots are taken.
 *
 * A group's frames are one registered block; a peer has a slot in it with its receives and one frame to send. Slots are
 * used again, so the id of a work request names the use of the slot, and a late completion of the peer before is
 * dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/container.h"
#include "base/log.h"
#include "publish/peer.h"

enum {
	GROUP_PEERS = 64,
	FRAMES = PEER_RECEIVES + 1, /* of a slot; the last one is to be sent */
	COMPLETIONS = 8,            /* room for what a peer can have outstanding, FRAMES */
	POLL_BATCH = 16,
};

struct group {
	struct group *next;
	struct publish_device *device;
	struct ibv_cq *cq;
	uint8_t *frames;
	size_t frames_size;
	struct ibv_mr *mr;
	unsigned int size, used;
	struct job job;
	struct err err; /* why it could not be made; code 0: it could */
	struct {
		struct peer *peer;
		uint32_t serial;
	} slots[GROUP_PEERS];
};

static uint64_t wr_id(const struct peer *peer, unsigned int frame)
{
	return (uint64_t)peer->serial << 32 | frame << 16 | peer->slot;
}

static uint8_t *frame_at(const struct group *group, unsigned int slot, unsigned int frame)
{
	return group->frames + ((size_t)slot * FRAMES + frame) * PEER_FRAME_SIZE_MAX;
}

/* The frames stay where the device does not let go. */
static void group_unmake(struct group *group)
{
	int r = verbs_destroy_cq(&group->cq);
	if (r == 0)
		r = verbs_dereg_mr(&group->mr);
	if (group->frames && (r == 0 || atomic_load(&group->device->device->gone))) {
		munmap(group->frames, group->frames_size);
		group->frames = NULL;
	}
}

static int group_make(struct group *group, struct err *err)
{
	const struct publish_device *device = group->device;
	uint8_t *frames = mmap(NULL, group->frames_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (frames == MAP_FAILED)
		return err_set(err, -errno, "out of memory");
	group->frames = frames;
	int r = verbs_reg_mr(device->device->pd, frames, group->frames_size, IBV_ACCESS_LOCAL_WRITE, &group->mr);
	if (r < 0)
		return err_set(err, r, "cannot register frames: %s", strerror(-r));
	r = verbs_create_cq(
		device->device->context, (int)group->size * COMPLETIONS, group, device->channel, &group->cq);
	if (r == 0)
		r = verbs_req_notify_cq(group->cq);
	if (r < 0)
		return err_set(err, r, "cannot make a completion queue: %s", strerror(-r));
	return 0;
}

/* With its share of the budget, which is the loop's, and nothing else. */
static int group_new(struct publish_device *device, struct group **ret_group, struct err *err)
{
	struct group *group = calloc(1, sizeof(*group));
	if (!group)
		return err_set(err, -ENOMEM, "out of memory");
	group->device = device;
	int fit = device->device->attr.max_cqe / COMPLETIONS;
	group->size = fit < 1 ? 1 : fit < GROUP_PEERS ? (unsigned int)fit : GROUP_PEERS;
	group->frames_size = (size_t)group->size * FRAMES * PEER_FRAME_SIZE_MAX;

	struct memlock *memlock = device->publish->config->memlock;
	int r = memlock ? memlock_take(memlock, group->frames_size, 1, err) : 0;
	if (r < 0) {
		free(group);
		return r;
	}
	*ret_group = group;
	return 0;
}

/* Of one that is not made any more. */
static void group_free(struct group *group)
{
	struct memlock *memlock = group->device->publish->config->memlock;
	if (memlock && !group->frames)
		memlock_give_back(memlock, group->frames_size, 1);
	free(group);
}

static void group_add(struct group *group)
{
	group->next = group->device->groups;
	group->device->groups = group;
}

int groups_open(struct publish_device *device, struct err *err)
{
	struct group *group;
	if (group_new(device, &group, err) < 0)
		return err_prefix(err, "device %s", device->device->name);
	if (group_make(group, err) < 0) {
		group_unmake(group);
		group_free(group);
		return err_prefix(err, "device %s", device->device->name);
	}
	group_add(group);
	return 0;
}

static void make_run(struct job *job)
{
	struct group *group = container_of(job, struct group, job);
	if (group_make(group, &group->err) < 0)
		group_unmake(group);
}

static void make_done(struct job *job)
{
	struct group *group = container_of(job, struct group, job);
	struct publish_device *device = group->device;
	device->makes_group = false;
	device->publish->groups_in_making--;
	publish_settle_soon(device->publish);
	if (group->err.code == 0) {
		group_add(group);
		peers_go_on(device->publish);
		return;
	}
	/* The next peer tries again. */
	log_warning("device %s: no room for more peers: %s", device_tag(device->device), group->err.text);
	peers_have_no_room(device, &group->err);
	group_free(group);
}

/* Starts to make a group unless one is being made. */
static int make_next(struct publish_device *device, struct err *err)
{
	if (device->makes_group)
		return 0;
	struct group *group;
	int r = group_new(device, &group, err);
	if (r < 0)
		return r;
	device->makes_group = true;
	device->publish->groups_in_making++;
	group->job = (struct job){ .run = make_run, .done = make_done };
	worker_pool_submit(device->publish->destroyer, &group->job);
	return 0;
}

static void make_next_in_time(struct publish_device *device)
{
	unsigned int free_slots = 0;
	for (const struct group *group = device->groups; group; group = group->next)
		free_slots += group->size - group->used;
	struct err err;
	if (free_slots <= device->groups->size / 4 && make_next(device, &err) < 0)
		log_warning("device %s: no room for more peers: %s", device_tag(device->device), err.text);
}

int group_join(struct peer *peer, struct err *err)
{
	struct publish_device *device = peer->device;
	struct group *group = device->groups;
	while (group && group->used == group->size)
		group = group->next;
	if (!group) {
		int r = make_next(device, err);
		return r < 0 ? r : -EAGAIN;
	}

	unsigned int slot = 0;
	while (group->slots[slot].peer)
		slot++;
	group->slots[slot].peer = peer;
	group->used++;
	peer->group = group;
	peer->slot = slot;
	peer->serial = ++group->slots[slot].serial;
	make_next_in_time(device);
	return 0;
}

struct ibv_cq *group_cq(const struct peer *peer)
{
	return peer->group->cq;
}

static int post_receive(struct peer *peer, unsigned int frame)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)frame_at(peer->group, peer->slot, frame),
		.length = PEER_FRAME_SIZE_MAX,
		.lkey = peer->group->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id(peer, frame), .sg_list = &sge, .num_sge = 1 };
	return verbs_post_recv(peer->qp, &wr);
}

int group_post_receives(struct peer *peer)
{
	int r = 0;
	for (unsigned int frame = 0; r == 0 && frame < PEER_RECEIVES; frame++)
		r = post_receive(peer, frame);
	return r;
}

uint8_t *group_send_buffer(const struct peer *peer)
{
	return frame_at(peer->group, peer->slot, PEER_RECEIVES);
}

int group_post_send(struct peer *peer, size_t size)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)group_send_buffer(peer),
		.length = (uint32_t)size,
		.lkey = peer->group->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id(peer, PEER_RECEIVES),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	return verbs_post_send(peer->qp, &wr);
}

static void received(struct peer *peer, unsigned int frame, const struct ibv_wc *wc)
{
	/* A peer that may write can also use up a receive by a WRITE with immediate data, which puts nothing there. */
	if (wc->opcode != IBV_WC_RECV || wc->byte_len > PEER_FRAME_SIZE_MAX) {
		peer_end(peer, "dropped: it used up a receive by something other than a frame");
		return;
	}
	uint8_t bytes[PEER_FRAME_SIZE_MAX];
	memcpy(bytes, frame_at(peer->group, peer->slot, frame), wc->byte_len);
	int r = post_receive(peer, frame);
	if (r < 0)
		peer_end(peer, "dropped: cannot post a receive: %s", strerror(-r));
	else
		peer_received(peer, bytes, wc->byte_len);
}

static void completed(struct group *group, const struct ibv_wc *wc)
{
	unsigned int slot = wc->wr_id & 0xffff, frame = wc->wr_id >> 16 & 0xffff;
	struct peer *peer = group->slots[slot].peer;
	/* What a queue pair in error flushes follows an error that was told already. */
	if (!peer || peer->serial != wc->wr_id >> 32 || peer->state == PEER_ENDING)
		return;

	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		peer_end(peer,
			"disconnected: an access that it may not make, or a failing device, broke the connection");
	else if (wc->status != IBV_WC_SUCCESS)
		peer_end(peer, "disconnected: %s: %s",
			frame == PEER_RECEIVES ? "it does not take a frame" : "receiving failed",
			verbs_wc_status_name(wc->status));
	else if (frame == PEER_RECEIVES)
		peer_sent(peer);
	else
		received(peer, frame, wc);
}

static void group_poll(struct group *group)
{
	struct ibv_wc wc[POLL_BATCH];
	int n;
	while ((n = verbs_poll_cq(group->cq, POLL_BATCH, wc)) > 0) {
		for (int i = 0; i < n; i++)
			completed(group, &wc[i]);
	}
	if (n < 0)
		publish_device_lost(group->device, "it was removed, or its completion queue fails");
}

void on_completion_channel(void *data, unsigned int events)
{
	struct publish_device *device = data;
	struct ibv_cq *cq;
	int r;
	while ((r = verbs_next_cq_event(device->channel, &cq)) == 0) {
		/* What completes between the last poll and this would otherwise tell nobody. */
		r = verbs_req_notify_cq(cq);
		if (r < 0)
			break;
		group_poll(cq->cq_context);
		if (atomic_load(&device->device->gone))
			return;
	}
	if (r != -EAGAIN && r != -EINTR)
		publish_device_lost(device, "it was removed, or its completion channel fails");
}

void completions_take(struct publish *publish)
{
	for (size_t i = 0; i < publish->device_count; i++) {
		struct publish_device *device = publish->devices[i];
		for (struct group *group = device->groups; group; group = group->next) {
			if (!atomic_load(&device->device->gone))
				group_poll(group);
		}
	}
}

void group_leave(struct peer *peer)
{
	struct group *group = peer->group;
	if (!group)
		return;
	/* The next peer in the slot must find room in the queue. */
	if (!atomic_load(&group->device->device->gone))
		group_poll(group);
	group->slots[peer->slot].peer = NULL;
	group->used--;
	peer->group = NULL;
}

void groups_free(struct publish_device *device)
{
	struct group *group;
	while ((group = device->groups)) {
		device->groups = group->next;
		group_unmake(group);
		group_free(group);
	}
}
