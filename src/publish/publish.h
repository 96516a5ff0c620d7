/* publish.h: peers over librdmacm: listeners, admission, notices, revocation. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PUBLISH_PUBLISH_H
#define PUBLISH_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/event.h"
#include "base/worker.h"
#include "verbs/registration.h"

struct publish;

/* One --allow: addresses that start with the first `prefix_len` bits of `address`. */
struct publish_allow {
	int family;          /* AF_INET or AF_INET6 */
	uint8_t address[16]; /* network order; the first 4 bytes for AF_INET */
	unsigned int prefix_len;
	bool may_write;
};

struct publish_config {
	const struct sockaddr_storage *listen; /* addresses with ports */
	size_t listen_count;
	const struct publish_allow *allow; /* first match wins; none: the daemon's own addresses, read and write */
	size_t allow_count;
	unsigned int keepalive_s; /* 1 or more, and fits 16 bits */
	unsigned int revoke_timeout_ms;
	unsigned int max_peers;
	uint32_t max_extents;    /* a device's catalog */
	uint64_t max_mr_size;    /* 0: none */
	bool on_demand;          /* mappings are not pinned, nor counted by `memlock` */
	struct memlock *memlock; /* catalogs and frames are taken from it; NULL: not counted */
};

/* What publish calls to its right; never from inside a call into publish. */
struct publish_ops {
	/* What publish_add() added is in the catalog that peers read. */
	void (*added)(void *data, uint64_t mapping_id);
	/* Every peer that counts has acknowledged that the mapping is gone, or its queue pair is in error. */
	void (*withdrawn)(void *data, uint64_t mapping_id);
	/* A device is gone or has come: publish_devices() says something else. */
	void (*devices_changed)(void *data);
};

/* What publish_drop_peers() is asked for, embedded in what waits for it; publish's until publish_drop_end(). */
struct publish_drop {
	void (*done)(void *data);
	void *data;

	struct publish_device *device; /* NULL: not asked for; this and what follows are publish's */
	struct publish_drop *next;
};

/* Binds the addresses, opens their devices, makes their catalogs, listens. A device that is not there is no error: it is
 * looked for once a second, as is one that goes later. `taker` is a pool of one thread that takes events of
 * rdma_cm. `connector` is a pool that makes queue pairs. `destroyer` is a pool of its own for the ends of peers: small
 * jobs that destroy queue pairs, and big ones, rdma_destroy_id, which take a minute where a host is dead, so it needs
 * some threads, and fewer for big jobs. Small ones also make room for more peers, look for devices, open and close
 * them. All pools' fds are watched by the caller. `config` must outlive it. Peers are admitted at once. Errors name the
 * address and what to do. */
int publish_new(struct event_loop *loop, const struct publish_config *config, struct worker_pool *taker,
	struct worker_pool *connector, struct worker_pool *destroyer, const struct publish_ops *ops, void *data,
	struct publish **ret_publish, struct err *err);

enum { PUBLISH_DEVICES_MAX = REGISTRATION_DEVICES_MAX };

/* The devices that are there now, at most PUBLISH_DEVICES_MAX; returns how many. */
size_t publish_devices(const struct publish *publish, struct device **ret_devices);
/* A device lives, and what was made on it is let go of only once nobody holds it any more; one that has gone
 * (device->gone) comes back after that only. */
void publish_hold(struct publish *publish, struct device *device);
void publish_release(struct publish *publish, struct device *device);
/* A device that came back admits peers from now on, since every mapping stands on it. */
bool publish_serves(struct publish *publish, const struct device *device);
void publish_serve(struct publish *publish, struct device *device);

/* Room in the catalogs of these devices, which are held, for the extents of a mapping of `len` bytes: -EDQUOT (`err`
 * names the device and the flag). */
int publish_reserve(struct publish *publish, struct device *const *devices, size_t device_count, uint64_t len,
	struct err *err);
void publish_unreserve(struct publish *publish, struct device *const *devices, size_t device_count, uint64_t len);
/* Puts a registered mapping into the catalogs of the devices that it is registered on, at the next generation:
 * ops->added tells when. The room reserved there for `len` becomes the mapping's. Where it fails (-EDQUOT: more extents
 * than fit; -ENOMEM) the room is still reserved. */
int publish_add(struct publish *publish, uint64_t mapping_id, uint8_t shmid, bool writable, uint64_t len,
	struct registration *registration, struct err *err);
/* Puts an added one into the catalog of one more device, likewise; nothing tells when. */
int publish_add_on(struct publish *publish, struct device *device, uint64_t mapping_id, uint8_t shmid, bool writable,
	uint64_t len, struct registration *registration, struct err *err);
/* Takes it out, tells peers, waits for them until the revoke timeout, drops who is late: ops->withdrawn tells when,
 * never from inside this call. Its room is given back. */
void publish_withdraw(struct publish *publish, uint64_t mapping_id);
/* Drops every peer of a device and destroys their queue pairs, since an MR of it could not be deregistered:
 * drop->done is called when they are gone, never from inside this call. The device takes no new peer until
 * publish_drop_end(), which says that it was tried again, so none is there at the second try. It cannot fail. */
void publish_drop_peers(struct publish *publish, struct device *device, struct publish_drop *drop);
/* After drop->done; nothing for one that is not asked for. */
void publish_drop_end(struct publish_drop *drop);

/* Ends: rejects new peers, publishes the empty catalog with its notice, waits for acks for 300 ms at most, puts every
 * queue pair into error, gives their destruction 200 ms; then `done`, never from inside this call. No other op is
 * called any more. */
void publish_stop(struct publish *publish, void (*done)(void *data), void *data);
/* After publish_stop(), or when no peer has been served yet. Where a peer's end hangs, all that it needs is left to the
 * kernel at exit; the destroyer must not be collected any more. */
void publish_free(struct publish **publish);

/* Counts for logs and status. */
struct publish_snapshot {
	size_t peers;     /* admitted */
	size_t half_open; /* not admitted yet */
	uint64_t generation;
};
struct publish_snapshot publish_snapshot(const struct publish *publish);

#endif
