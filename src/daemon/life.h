/* life.h: what a mapping goes through, from a map request to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_LIFE_H
#define DAEMON_LIFE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/container.h"
#include "base/worker.h"
#include "daemon/pipeline.h"
#include "daemon/sync.h"
#include "verbs/registration.h"

/*
 * The state says who has it: a worker (CHECKING, REGISTERING, DEREGISTERING, CLEARING, SYNCING, CLOSING), publish
 * (PUBLISHING, DROPPING), publish and the front-ends (WITHDRAWING), a front-end (HELD), or nobody (LIVE, STUCK). Up to
 * LIVE it is all or nothing: what fails, or whose provider goes away, is undone by the same steps that remove a live
 * mapping, entered where it stands.
 */

enum { LIFE_BIG_BYTES = 256 << 20 }; /* more is registered by big jobs */

enum life_state {
	LIFE_CHECKING,      /* the file is looked at and mapped -> REGISTERING, LIVE (no RDMA), CLEARING (failed) */
	LIFE_REGISTERING,   /* -> PUBLISHING, DEREGISTERING (cancelled), CLEARING (failed) */
	LIFE_PUBLISHING,    /* -> LIVE, WITHDRAWING (cancelled) */
	LIFE_LIVE,          /* devices come and go -> WITHDRAWING */
	LIFE_WITHDRAWING,   /* no peer has it any more, no front-end or its time is over -> DEREGISTERING, CLEARING (no
			       RDMA) */
	LIFE_DEREGISTERING, /* -> CLEARING, DROPPING (failed), STUCK (failed again) */
	LIFE_DROPPING,      /* the peers of its devices go -> DEREGISTERING */
	LIFE_STUCK,         /* a device does not let go: stays mapped for good */
	LIFE_CLEARING,      /* unmapped and closed, then gone -> HELD (a front-end has not let go), SYNCING */
	LIFE_HELD,          /* its range is left of it, and its file on a disk, until that front-end lets go ->
			       SYNCING */
	LIFE_SYNCING,       /* a file on a disk that guests may have written to is made durable -> CLOSING */
	LIFE_CLOSING,       /* that file is closed, then it is gone */
};

struct life {
	struct pipeline *pipeline;
	struct life *next, **link; /* the pipeline's list */
	struct mapping mapping;
	enum life_state state;
	char name[96];              /* whose it is, for logs */
	pid_t pid;                  /* of the provider; 0: static */
	uid_t uid;                  /* likewise */
	struct provider *requester; /* whose map or unmap request runs; NULL: none */
	pipeline_static_fn *ended;  /* the same of a static mapping */
	void *ended_data;
	struct err err;      /* why it failed; code 0: it did not */
	struct err undo_err; /* why the last step of removing it failed */

	int fd;
	bool placed;    /* mapped over the reservation */
	bool announced; /* to front-ends */
	bool keeps_fd;  /* CLEARING leaves it open: what guests wrote is synced */
	bool was_held;
	bool unsealed, on_disk;
	dev_t dev; /* of its file, once it is placed */
	ino_t ino;
	bool reserved; /* has room in the catalogs, but no entries */
	atomic_bool cancelled;
	struct registration *registration;
	struct device *devices[PUBLISH_DEVICES_MAX]; /* held: it is, is to be, or could not be registered there */
	bool pinned[PUBLISH_DEVICES_MAX];            /* has its share of the memlock budget for that one */
	bool stays[PUBLISH_DEVICES_MAX];             /* could not leave that one, which is gone */
	size_t device_count;
	struct device *change; /* LIVE, WITHDRAWING: the device that a job registers it on or drops; NULL: none */
	struct err change_err;
	struct event_source *change_timer; /* of one that registers, until it is over or */
	bool change_is_late;               /* so late that nobody waits for it */
	bool with_peers;                   /* WITHDRAWING: publish has not told that no peer has it */
	bool with_frontends;               /* a front-end may have it */
	struct event_source *frontends_late;
	size_t devices_dropping;
	bool dropped; /* DROPPING was tried */
	struct job job;
	struct publish_drop drops[PUBLISH_DEVICES_MAX];
};

struct pipeline {
	struct event_loop *loop;
	const struct pipeline_config *config;
	struct regions *regions;
	struct worker_pool *workers, *deregisterer, *taker, *connector, *destroyer;
	struct publish *publish; /* NULL: --no-rdma */
	struct publish_config publish_config;
	struct providers *providers;
	struct frontends *frontends; /* NULL: none */
	struct syncer *syncer;
	struct memlock memlock;
	struct life *lives;
	unsigned int joins; /* jobs that register a live mapping on one more device, late ones not counted */

	unsigned int stopping; /* what has not stopped yet */
	void (*stopped)(void *data);
	void *stopped_data;
};

/* life.c */

static inline struct life *life_of_job(struct job *job)
{
	return container_of(job, struct life, job);
}

static inline struct life *life_of_mapping(struct mapping *mapping)
{
	return container_of(mapping, struct life, mapping);
}

/* The name of a mapping in a line of the log, which gets its fields. */
const char *life_tag(const struct life *life);
/* NULL: there is none. */
struct life *life_find(struct pipeline *pipeline, uint64_t mapping_id);
/* Takes the range and all else that is known at once. `fd` becomes the life's when this succeeds. */
int life_new(struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, uint64_t owner, const char *name,
	struct life **ret_life, struct err *err);
void life_free(struct life *life);
/* Answers the running request, once. */
void life_answer(struct life *life);
void life_submit(struct life *life, struct worker_pool *pool, enum life_state state, void (*run)(struct job *),
	void (*done)(struct job *), bool big);
/* The devices that it is, is to be, or could not be registered on. */
void life_hold_device(struct life *life, struct device *device);
void life_release_device(struct life *life, struct device *device);
bool life_has_device(const struct life *life, const struct device *device);
/* Bytes that each of them pins. */
uint64_t life_pinned_len(const struct life *life);
/* Gives back the share that the i-th of them has in the budget. */
void life_unpin(struct life *life, size_t i);

/* life_add.c */
void life_begin(struct life *life);
struct registration_request life_registration_request(const struct life *life);
/* Publish has it: peers see it. */
void life_added(void *data, uint64_t mapping_id);

/* life_remove.c */
/* What failed is undone from where it stands. Its error is the first one. */
void life_fail(struct life *life, const struct err *err);
void life_withdraw(struct life *life);
/* Goes on when no peer has it any more, and no front-end or their time is over. */
void life_withdraw_check(struct life *life);
/* No peer has it any more. */
void life_withdrawn(void *data, uint64_t mapping_id);
/* The last front-end that had it let go. */
void life_released(void *data, uint64_t mapping_id);
void life_deregister(struct life *life);
/* Whether a guest may have written to its file since it was synced, and our fd of it is open. */
bool life_is_dirty(const struct life *life);

/* life_devices.c */
/* Leaves devices that are gone and joins those that came, where it is live. */
void life_follow_devices(struct life *life);
void life_devices_changed(void *data);

#endif
