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
	OWN_ADDRESSES_MS = 1000,
	LISTEN_BACKLOG = 128, /* requests that the kernel keeps for us */
	TAKE_MAX = 64,        /* events of rdma_cm at a time */
	LOOK_MS = 1000,       /* between two looks for a device that is not there */
	LOOK_MORE_MS = 10000, /* where none is missing, for more to serve by a wildcard */
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
TAILQ_HEAD(peer_queue, peer);

/* The mappings withdrawn last, in the order of their generations. */
struct history {
	struct {
		uint64_t generation, mapping_id;
	} last[PEER_NOTICE_IDS_MAX];
	unsigned int next; /* the oldest one, or an unused one */
	uint64_t lost;     /* the latest generation of which a mapping is no longer here */
};

/* Opened by a look, on a worker; in publish->devices from then on. Serves at once when opened at the start, else from
 * publish_serve() on. Gone by publish_device_lost(): then its peers end, and when nobody holds it any more either, a
 * worker closes it, and it is looked for again. */
struct publish_device {
	struct publish *publish;
	struct device *device;
	bool listed; /* its context is held by cm_devices(), else by the id of its listener */
	bool serves;
	struct catalog *catalog;
	uint64_t catalog_locked; /* bytes taken from the budget */
	struct ibv_comp_channel *channel;
	struct event_source *channel_source, *async_source;
	struct group *groups;       /* one from the start */
	bool makes_group;           /* a worker makes one more */
	size_t queue_pairs;         /* not destroyed yet */
	size_t holds;               /* of publish_hold() */
	struct publish_drop *drops; /* not told yet that the queue pairs are gone */
	size_t drop_count;          /* not ended yet: no new peer */
	uint32_t rights;            /* enum mrshare_access: what a peer of this device can be granted at most */
	struct job job;             /* that closes it */
};

struct listener {
	struct rdma_cm_id *id;         /* NULL: not bound, since its device is missing or being closed */
	struct rdma_cm_id *dying;      /* goes with the device that is being closed */
	struct publish_device *device; /* NULL: a wildcard, or missing */
	struct sockaddr_storage address;
	bool is_wildcard, listens;
};

/* What a look for devices is asked and finds; the worker's while the job runs. */
struct look {
	struct job job;
	bool runs;
	struct rdma_event_channel *channel; /* also one that it made */
	struct ibv_context *known[PUBLISH_DEVICES_MAX];
	size_t known_count;
	struct listener_look {
		bool wanted, listens;
		struct rdma_cm_id *id; /* bound; it holds the context of the device that was opened for it */
	} *listeners;
	struct publish_device *found[PUBLISH_DEVICES_MAX];
	size_t found_count;
	bool missing;   /* something was not there */
	struct err err; /* the first thing that failed for another reason; code 0: nothing */
};

/* Events of rdma_cm, the worker's while the job runs. */
struct take {
	struct job job;
	bool runs;
	struct rdma_cm_event *events[TAKE_MAX];
	unsigned int count;
	int result; /* that there is no more, or why */
};

/* An address without its port; an IPv4 address mapped into IPv6 is an IPv4 address. */
struct host_address {
	int family;
	uint8_t bytes[16]; /* network order */
};

/* A host with half-open peers. */
struct half_open_host {
	struct host_address address;
	unsigned int count; /* 0: unused */
};

/* The host's own addresses, read by a job. */
struct own_addresses {
	struct job job;
	bool runs, were_read;
	uint64_t read_ms;
	struct host_address *list, *found; /* `found` and `result` are the job's */
	size_t count, found_count;
	int result;
};

struct publish {
	struct event_loop *loop;
	const struct publish_config *config;
	struct worker_pool *taker, *connector, *destroyer;
	const struct publish_ops *ops;
	void *data;

	struct rdma_event_channel *channel;
	struct event_source *channel_source;
	struct take take;
	bool paused; /* its events wait until peers that are on their way out are gone */
	struct listener *listeners;
	size_t listener_count;
	struct publish_device *devices[PUBLISH_DEVICES_MAX];
	size_t device_count, device_peak;
	size_t closing;        /* devices that a worker closes */
	char first_device[64]; /* the name of the one that has atomics */
	struct look look;
	char look_failed[480]; /* what was logged last of a look */
	bool unknown_device;   /* a peer came by one that is none of ours; the next look may find it */
	bool devices_changed;  /* ops->devices_changed is due */
	uint8_t server_id[PEER_ID_SIZE];

	uint64_t generation, written_ms;
	uint64_t revoked; /* the newest generation whose late peers were dropped */
	struct listing_queue listings[LISTING_STATES];
	void *listings_by_id; /* a tree of tsearch(3) */
	struct history history;
	struct event_source *write_timer, *revoke_timer, *settle_timer, *stop_timer, *look_timer;
	bool write_is_due;

	struct peer_list peers;            /* in every state */
	struct peer_queue half_open_peers; /* CONNECTING, in the order of their requests */
	struct half_open_host half_open_hosts[HALF_OPEN_MAX + 1];
	struct own_addresses own_addresses;
	size_t half_open, admitted, ending;
	size_t groups_in_making;

	enum publish_phase phase;
	void (*stopped)(void *data);
	void *stopped_data;
};

/* listen.c */

/* Of a look: binds an id to the address and sets *ret_id. -ENODEV: there is no device. On any thread. */
int listener_bind(struct rdma_event_channel *channel, const struct sockaddr_storage *address,
	struct rdma_cm_id **ret_id, struct err *err);
int listener_listen(struct rdma_cm_id *id, const struct sockaddr_storage *address, struct err *err);
bool address_is_wildcard(const struct sockaddr_storage *address);
/* Whether it is none of this host's, which the kernel also knows without RDMA. */
bool address_is_foreign(const struct sockaddr_storage *address);
#define FOREIGN_ADDRESS "is no address of this host: `ip address show` lists them"
#define NO_DEVICE_REMEDY \
	"`rdma link show` lists the devices, `rdma link add rxe0 type rxe netdev IFACE` makes a soft-RoCE one"

/* look.c */

/* Opens the devices that are there, and listens. */
int devices_open(struct publish *publish, struct err *err);
/* Looks for what is missing, soon and then again and again; more rarely where nothing is. */
void devices_look(struct publish *publish);
/* Needs every peer gone. */
void devices_close(struct publish *publish);

/* device.c */

/* On any thread. `listed`: the context is held for the device. */
int publish_device_open(struct publish *publish, struct ibv_context *context, bool listed,
	struct publish_device **ret_device, struct err *err);
/* On the loop: it is one of ours from now on. */
int publish_device_install(struct publish_device *device, struct err *err);
/* Frees all that is on the device, and its context. On any thread. */
void publish_device_free(struct publish_device *device);
/* The device was removed or failed: ends its peers, and never looks at it again. */
void publish_device_lost(struct publish_device *device, const char *why);
/* Begins to close those that are gone and that nothing needs any more. */
void devices_settle(struct publish *publish);
/* NULL: none of ours. */
struct publish_device *publish_device_find(struct publish *publish, const struct ibv_context *context);
struct publish_device *publish_device_of(struct publish *publish, const struct device *device);

/* events.c */

void on_cm_channel(void *data, unsigned int events);
/* A peer is gone: events that wait for that are taken again. */
void cm_channel_resume(struct publish *publish);
void on_async_event(void *data, unsigned int events);

/* admission.c */

/* What a peer that may connect gets. */
struct terms {
	struct publish_device *device;
	uint32_t granted; /* enum mrshare_access */
	uint8_t responder_resources;
};

/* Whether the peer may connect by its request; else a negative errno with the reason that it is told. -EAGAIN, without
 * one: not known yet, so peers_go_on() will be called. */
int admission_check(struct peer *peer, struct terms *ret_terms, struct peer_reject *ret_reject);
int reject_set(struct peer_reject *reject, enum peer_reject_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* own_addresses.c */

struct host_address host_address_of(const struct sockaddr *address);
bool host_address_equal(const struct host_address *a, const struct host_address *b);
/* Whether the address is one of this host's. -EAGAIN: they are being read, after which peers_go_on() is called. */
int own_addresses_have(struct publish *publish, const struct host_address *host, bool *ret_have);

/* generation.c */

int generation_init(struct publish *publish);
void generation_free(struct publish *publish);
int generation_list(struct publish *publish, uint64_t mapping_id);
/* The catalogs have changed: the next generation is due. */
void generation_write_soon(struct publish *publish);
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
