/* frontend_internal.h: what the files of front-end sessions share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef VHOST_FRONTEND_INTERNAL_H
#define VHOST_FRONTEND_INTERNAL_H

#include <sys/socket.h>

#include "vhost/channel.h"
#include "vhost/frontend.h"
#include "vhost/frontend_sets.h"
#include "vhost/memory.h"

enum {
	/* What can wait to be closed: what one message or one read brings, and what a session holds when it ends. */
	FRONTEND_CLOSING_MAX = FRONTEND_FDS_MAX + 1,
};

struct frontends {
	struct event_loop *loop;
	const struct frontends_config *config;
	struct worker_pool *pool;
	const struct frontend_ops *ops;
	void *data;
	struct frontend_door *doors; /* sockets that listen */
	struct frontend *list;
	unsigned int count;
	bool has_sole; /* a connected --fd was given */
	uint64_t last_id;
	struct frontend_mapping *mappings; /* live, and withdrawn but held somewhere */
	struct event_source *wake;         /* pumps every session: what was asked from outside is done on the loop */
	struct event_source *stop_timer;
	void (*stopped)(void *data);
	void *stopped_data;
};

struct frontend_queue {
	struct virtqueue *vq;
	int kick, call, err; /* eventfds; -1: none */
	struct event_source *kick_io;
	bool enabled;  /* by SET_VRING_ENABLE */
	bool call_due; /* the driver is to be told */
	bool err_due;
	bool broken; /* since its start */
};

/* What a worker does for a session: one at a time. */
struct frontend_chores {
	struct job job;
	bool running;
	int notify[2 * FRONTEND_QUEUES_MAX];
	unsigned int notify_count;
	int close[FRONTEND_CLOSING_MAX];
	unsigned int close_count;
	struct memory *memory; /* to be freed */
};

/* A memory table being prepared by a worker. */
struct frontend_table {
	struct job job;
	bool running;
	bool looked; /* the first of its two jobs is done */
	struct memory *memory;
	struct err err;
	uint32_t request;
	bool needs_ack;
	uint64_t max_bytes;
};

struct frontend {
	struct frontends *frontends;
	struct frontend *next, **link;
	const struct frontend_socket *socket;
	uint64_t id;
	struct ucred cred;
	char name[64];
	bool is_sole; /* it came by a connected --fd */

	struct channel channel;
	struct event_source *io;    /* NULL: the connection has ended */
	bool has_message;           /* in the channel, not handled yet */
	struct event_source *check; /* see frontend_session.c */
	bool check_set;
	bool due; /* to be pumped */

	uint64_t features, protocol_features; /* acknowledged */
	bool protocol_set;
	bool owned;
	uint8_t status;

	struct memory *memory, *old_memory; /* in use; to be freed */
	struct frontend_table table;
	struct frontend_queue queues[FRONTEND_QUEUES_MAX];
	void *device;
	int end_cause; /* what was found wrong from outside; 0: nothing */
	struct err end_err;

	struct channel back; /* to the front-end */
	struct event_source *back_io;
	bool back_due; /* there may be something to read */
	struct sets sets;
	uint64_t asked_ms; /* when the request without an answer was sent */
	unsigned int said_surplus;
	bool holes_due; /* to be said */

	int closing[FRONTEND_CLOSING_MAX];
	unsigned int closing_count;
	struct frontend_chores chores;
};

/* A mapping that front-ends are to have, or still have. */
struct frontend_mapping {
	struct frontend_mapping *next;
	uint64_t id;
	struct mrshare_mmap mmap;
	int fd;
	bool is_static;
	bool withdrawn;
};

/* frontend.c */

/* The name of a front-end in a line of the log, which gets its fields. */
const char *frontend_tag(const struct frontend *frontend);
void frontend_free(struct frontend *frontend);
/* Releases the withdrawn mappings that no front-end holds any more. */
void frontends_settle(struct frontends *frontends);
/* Each session is pumped soon. */
void frontends_wake(struct frontends *frontends);

/* frontend_session.c */
int session_new(struct frontends *frontends, const struct frontend_socket *socket, int fd, bool is_sole,
	struct frontend **ret_frontend, struct err *err);
/* The readable event source calls it, and whoever changed what the session waits for. It may free the session. */
void session_pump(struct frontend *frontend);
/* The connection ends; `err` may be NULL. The next session_pump() frees what no worker has. */
void session_end(struct frontend *frontend, int cause, const struct err *err);
void session_close_later(struct frontend *frontend, int *fd);
/* All that a channel has received and nobody took. */
void session_close_fds_later(struct frontend *frontend, struct channel *channel);
/* It is pumped soon. */
void session_wake(struct frontend *frontend);
/* Whether fds may be received. */
bool session_may_take_fds(const struct frontend *frontend);

/*
 * Requests. A handler finds its message in the channel, with size and number of fds as its row says, and takes the fds
 * that it keeps. It returns a negative errno with `err` in words, or one of these.
 */
enum request_result {
	REQUEST_DONE,    /* to be acknowledged, if that is wanted */
	REQUEST_REPLIED, /* its reply is on the way */
	REQUEST_LATER,   /* request_end() follows */
};
typedef int request_fn(struct frontend *frontend, struct err *err);

/* frontend_requests.c */
void request_dispatch(struct frontend *frontend);
/* Whether the message in the channel is to be acknowledged. */
bool request_needs_ack(const struct frontend *frontend);
void request_end(struct frontend *frontend, uint32_t request, bool needs_ack, int result, const struct err *err);
void request_reply(struct frontend *frontend, const void *payload, uint32_t size);

/* frontend_device.c */
request_fn request_get_features, request_set_features, request_get_protocol_features, request_set_protocol_features;
request_fn request_set_owner, request_reset_owner, request_reset_device, request_get_queue_num;
request_fn request_get_config, request_set_config, request_get_status, request_set_status;
request_fn request_get_shmem_config, request_get_max_mem_slots;
/* Whether mappings can be announced, by what was acknowledged. */
bool device_has_shmem(const struct frontend *frontend);

/* frontend_memory.c */
request_fn request_set_mem_table, request_add_mem_reg, request_rem_mem_reg;

/* frontend_queue.c */
request_fn request_set_vring_num, request_set_vring_addr, request_set_vring_base, request_get_vring_base;
request_fn request_set_vring_kick, request_set_vring_call, request_set_vring_err, request_set_vring_enable;
int queues_new(struct frontend *frontend);
bool queue_any_runs(const struct frontend *frontend);
/* Stops and disables them, and sets them to their beginning. */
void queues_stop(struct frontend *frontend);
/* The same, for good: their fds are closed. */
void queues_end(struct frontend *frontend);
void queues_free(struct frontend *frontend);
void queues_set_memory(struct frontend *frontend, struct memory *memory);

/* frontend_announce.c */
request_fn request_set_backend_req_fd;
void announce_start(struct frontend *frontend);
void announce_stop(struct frontend *frontend, const char *why);
/* Takes an answer that has arrived. */
void announce_take_answers(struct frontend *frontend);
/* Sends what is to be sent, and the next request if it `may_ask`: QEMU 11.1 does not survive one that meets a stop, so
 * none goes out while a request of its own is not handled. */
void announce_pump(struct frontend *frontend, bool may_ask);
/* The front-end has ended: it holds nothing. */
void announce_end(struct frontend *frontend);
/* True: it is not held by this front-end. */
bool announce_withdraw(struct frontend *frontend, uint64_t id);

#endif
