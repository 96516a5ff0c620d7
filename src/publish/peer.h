/* peer.h: a peer from its request to its end, and the completion queues and frames that peers share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PUBLISH_PEER_H
#define PUBLISH_PEER_H

#include "publish/internal.h"

/* A request makes a peer CONNECTING, while it waits for what is not known or made yet, while a worker makes its queue
 * pair, and until then, or ENDING where it is rejected. CONNECTING -> ADMITTED when rdma_cm says ESTABLISHED. Any ->
 * ENDING by peer_end(), on an event, a completion, a timer, or a decision of ours. An ENDING peer is freed when a
 * worker has destroyed its queue pair, then its id. */
enum peer_state { PEER_CONNECTING, PEER_ADMITTED, PEER_ENDING };

struct peer {
	LIST_ENTRY(peer) link;
	struct publish *publish;
	struct publish_device *device; /* NULL: not known, or not used any more */
	enum peer_state state;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct cm_event request;
	bool waits;      /* for peers_go_on() */
	bool connecting; /* `qp`, `job` and `connect_result` are a worker's */
	int connect_result;
	uint8_t responder_resources;
	bool reachable; /* it reaches memory: from the first right that it gets until its queue pair is in error or gone
			 */
	uint32_t granted;
	TAILQ_ENTRY(peer) half_open_link; /* CONNECTING */
	struct half_open_host *host;      /* likewise */

	struct group *group;
	unsigned int slot; /* in the group */
	uint32_t serial;   /* of its use, so that a completion of an earlier peer there is told apart */

	bool sending;      /* a frame is on its way */
	bool unacked;      /* the last notice was not acknowledged yet */
	bool repeated;     /* its acknowledgement came twice */
	uint32_t sequence; /* of the last notice; the first has 1 */
	uint64_t told;     /* the newest generation that it was told of */
	uint64_t acked;    /* the newest one that it acknowledged */
	uint64_t sent_ms;  /* when the last frame was sent */
	struct event_source *timer;

	struct job job;
	char name[64]; /* its address */
};

/* peer.c */

/* The name of a peer in a line of the log, which gets its fields. */
const char *peer_tag(const struct peer *peer);

/* Takes a connection request: a new peer, or a rejection. */
void peer_request(struct publish *publish, const struct cm_event *event);
/* Something has come that peers may wait for. */
void peers_go_on(struct publish *publish);
/* Rejects those that wait for room on a device, where it cannot be made. */
void peers_have_no_room(struct publish_device *device, const struct err *err);
/* Its queue pair is made, or could not be. */
void peer_connected(struct peer *peer);
/* It may have its rights, and learns so. */
void peer_admit(struct peer *peer);
/* Puts the queue pair into error and starts the peer's end; `format` continues the log's "peer ADDRESS ". Nothing for
 * one that is ENDING. */
void peer_end(struct peer *peer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* connect.c */

/* Takes a slot in a group and starts to make the queue pair, after which peer_connected() is called. What was made
 * belongs to the peer, also where it fails. -EAGAIN: there is no slot yet, so peers_go_on() will be called. */
int peer_connect(struct peer *peer, struct peer_reject *reject);
/* The queue pair is there, and may be given to the peer. */
int peer_accept(struct peer *peer, struct peer_reject *reject);

/* half_open.c */

void half_open_enter(struct peer *peer);
void half_open_leave(struct peer *peer);
/* Makes the oldest peer of the host that has most half-open ones leave, for the sake of one of another host. False: no
 * host has so many. */
bool half_open_make_room(struct peer *newcomer);

/* notice.c */

void peer_send_welcome(struct peer *peer);
/* Sends a notice if one is due and the last one is acknowledged. */
void peer_pump(struct peer *peer);
void peer_sent(struct peer *peer);
void peer_received(struct peer *peer, const uint8_t *frame, size_t size);

/* group.c */

/* Makes a device's first group. Blocks: at the start only. */
int groups_open(struct publish_device *device, struct err *err);
/* Gives the peer a slot in a group of its device, and starts to make the next group where few are left. -EAGAIN: none
 * is left until that is made, and then peers_go_on() is called, or peers_have_no_room(). */
int group_join(struct peer *peer, struct err *err);
/* After the end of the queue pair. */
void group_leave(struct peer *peer);
struct ibv_cq *group_cq(const struct peer *peer);
int group_post_receives(struct peer *peer);
/* Where the next frame to be sent is written. */
uint8_t *group_send_buffer(const struct peer *peer);
int group_post_send(struct peer *peer, size_t size);
void on_completion_channel(void *data, unsigned int events);
/* Takes what has completed already: before somebody is dropped for being late, since it may be us who were. */
void completions_take(struct publish *publish);
/* None may be in the making. */
void groups_free(struct publish_device *device);

#endif
