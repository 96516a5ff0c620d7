/* internal.h: what the files of this stage share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PUBLISH_INTERNAL_H
#define PUBLISH_INTERNAL_H

#include <sys/queue.h>

#include "base/rdma.h"
#include "catalog/catalog.h"
#include "publish/publish.h"
#include "verbs/device.h"
#include "wire/peer.h"

struct peer;
struct group;

enum {
	HALF_OPEN_MAX = 128,  /* peers between request and admission */
	HALF_OPEN_MS = 5000,  /* the time they have */
	LISTEN_BACKLOG = 128, /* requests that the kernel keeps for us */
	STOP_ACKS_MS = 300,
	STOP_END_MS = 200,
};

/* SERVING -> LAST_ACKS by publish_stop(); -> ENDING when each peer has acknowledged the empty catalog, or its time is
 * up;
 * -> ENDED when no peer is left, or its time is up. */
enum publish_phase { PHASE_SERVING, PHASE_LAST_ACKS, PHASE_ENDING, PHASE_ENDED };

/* ADDED -> WRITTEN by the write of a generation; -> LISTED when ops->added was called. From any of these -> WITHDRAWN
 * by publish_withdraw(); -> WAITING by the write of a generation; freed when no peer can reach the mapping any more. */
enum listing_state {
	LISTING_ADDED,
	LISTING_WRITTEN,
	LISTING_LISTED,
	LISTING_WITHDRAWN,
	LISTING_WAITING,
	LISTING_STATES,
};

/* A mapping as this stage knows it. */
struct listing {
	TAILQ_ENTRY(listing) link; /* in the queue of its state */
	enum listing_state state;
	uint64_t mapping_id;
	uint64_t generation;  /* WAITING: the first without it */
	uint64_t deadline_ms; /* WAITING: when peers that have not acknowledged are dropped */
};

TAILQ_HEAD(listing_queue, listing);
LIST_HEAD(peer_list, peer);

/* The mappings withdrawn last, in the order of their generations. */
struct history {
	struct {
		uint64_t generation, mapping_id;
	} last[PEER_NOTICE_IDS_MAX];
	unsigned int next; /* the oldest one, or an unused one */
	uint64_t lost;     /* the latest generation of which a mapping is no longer here */
};

struct publish_device {
	struct publish *publish;
	struct device *device;
	struct catalog *catalog;
	uint64_t catalog_locked; /* bytes taken from the budget */
	struct ibv_comp_channel *channel;
	struct event_source *channel_source, *async_source;
	struct group *groups;       /* one from the start */
	bool makes_group;           /* a worker makes one more */
	size_t queue_pairs;         /* not destroyed yet */
	struct publish_drop *drops; /* not told yet that the queue pairs are gone */
	size_t drop_count;          /* not ended yet: no new peer */
	uint32_t rights;            /* enum mrshare_access: what a peer of this device can be granted at most */
};

struct listener {
	struct rdma_cm_id *id;
	struct publish_device *device; /* NULL: a wildcard */
	struct sockaddr_storage address;
};

struct publish {
	struct event_loop *loop;
	const struct publish_config *config;
	struct worker_pool *destroyer;
	const struct publish_ops *ops;
	void *data;

	struct rdma_event_channel *channel;
	struct event_source *channel_source;
	struct ibv_context **contexts; /* holds the devices of a wildcard */
	struct listener *listeners;
	size_t listener_count;
	struct publish_device **devices;
	struct device **device_list; /* the same, for publish_devices() */
	size_t device_count;
	uint8_t server_id[PEER_ID_SIZE];

	uint64_t generation, written_ms;
	struct listing_queue listings[LISTING_STATES];
	void *listings_by_id; /* a tree of tsearch(3) */
	struct history history;
	struct event_source *write_timer, *revoke_timer, *settle_timer, *stop_timer;
	bool write_is_due;

	struct peer_list peers; /* in every state */
	size_t half_open, admitted, ending;
	size_t groups_in_making;

	enum publish_phase phase;
	void (*stopped)(void *data);
	void *stopped_data;
};

/* listen.c */

/* Binds the addresses, opens their devices, listens. */
int listeners_open(struct publish *publish, struct err *err);
/* Needs every peer gone. */
void listeners_close(struct publish *publish);
/* NULL: not opened at start. */
struct publish_device *publish_device_find(struct publish *publish, const struct ibv_context *context);

/* events.c */

void on_cm_channel(void *data, unsigned int events);
void on_async_event(void *data, unsigned int events);
/* The device was removed or failed: ends its peers, and never looks at it again. */
void publish_device_lost(struct publish_device *device, const char *why);

/* admission.c */

/* What a peer that may connect gets. */
struct terms {
	struct publish_device *device;
	uint32_t granted; /* enum mrshare_access */
	uint8_t responder_resources;
};

/* Whether the peer of a connection request may connect; else a negative errno with the reason that it is told. */
int admission_check(
	struct publish *publish, const struct cm_event *event, struct terms *ret_terms, struct peer_reject *ret_reject);
int reject_set(struct peer_reject *reject, enum peer_reject_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* generation.c */

int generation_init(struct publish *publish);
void generation_free(struct publish *publish);
int generation_list(struct publish *publish, uint64_t mapping_id);
void generation_withdraw(struct publish *publish, uint64_t mapping_id);
/* Publishes the empty catalog now, and forgets every mapping without a call to anybody. */
void generation_write_last(struct publish *publish);
/* What was withdrawn after generation `told`, as a notice says it. */
void generation_withdrawn_since(const struct publish *publish, uint64_t told, struct peer_notice *notice);
/* The newest generation that each reachable peer has acknowledged. */
uint64_t generation_acknowledged(const struct publish *publish);
/* Calls ops->withdrawn for each mapping that no peer can reach any more. */
void generation_settle(struct publish *publish);

/* publish.c */

/* Looks soon, from the loop, at all that waits for acknowledgements and for ends of peers. */
void publish_settle_soon(struct publish *publish);

#endif
