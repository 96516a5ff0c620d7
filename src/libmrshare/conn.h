/* conn.h: the connection to a daemon, as the files of the library share it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LIBMRSHARE_CONN_H
#define LIBMRSHARE_CONN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rdma.h"
#include "libmrshare/background.h"
#include "libmrshare/op.h"
#include "mrshare.h"
#include "wire/catalog.h"
#include "wire/peer.h"

/*
 * Everything of a connection is under its mutex. Whoever has that may move the connection on: the service thread, a
 * caller of mrshare_dispatch(), or one who waits for an operation. Nothing that is done under it waits for the daemon.
 *
 * State: IDLE -> NAMES by an operation, when there is an address. NAMES -> ADDRESS -> ROUTE -> REQUESTED -> WELCOME ->
 * UP by what rdma_cm and the daemon answer (connect.c); a step that fails leads back to ADDRESS while there are other
 * addresses, else to REST. UP -> DRAINING by conn_drop(), with the first cause; the queue pair is in error from then
 * on. DRAINING -> REST when the device has given back what it had, or lost its queue pair; all verbs objects go with
 * it. REST means IDLE, or DOWN where the handle has been connected: DOWN -> NAMES by the next operation.
 */
enum conn_state {
	CONN_IDLE,
	CONN_DOWN,
	CONN_NAMES,
	CONN_ADDRESS,
	CONN_ROUTE,
	CONN_REQUESTED,
	CONN_WELCOME,
	CONN_UP,
	CONN_DRAINING,
};

enum {
	/* What is on the wire at once, in all WIRE_BYTES, is what the ack of a withdrawal waits for: enough to fill
	 * any link, little enough to be through in a fraction of a second on a slow one. */
	PIECE_SIZE = 128 << 10,
	WIRE_BYTES = 1 << 20,
	ACKS_MAX = PEER_RECEIVES,
	OPS_ON_WIRE_MAX = 124,
	SENDS_MAX = OPS_ON_WIRE_MAX + ACKS_MAX,
	INLINE_WANTED = 220, /* bytes of a work request that many devices take without a DMA */
};

/* A work request on the send queue. They complete in the order of posting, so the records are a ring. */
struct record {
	struct op *op;       /* NULL: an ack, or its operation has ended without it */
	uint64_t mapping_id; /* what it touches; 0: nothing that can be withdrawn */
	uint64_t offset;     /* in the region */
	uint64_t generation; /* of the views that it was made by */
	uint8_t *user;       /* where the caller wants what was read to the stage; NULL: nowhere */
	const uint8_t *stage;
	uint32_t size;
	uint32_t stage_taken; /* bytes of the stage, with what was skipped at its end */
	bool ack;
};

/* What the catalog said at one generation, sorted by (shmid, shm_offset). */
struct snapshot {
	unsigned int refs;
	struct snapshot *next; /* of the connection's */
	uint64_t generation;
	uint64_t number;  /* the generation for the application, which counts on over daemons */
	uint64_t connect; /* the serial number of the connect */
	uint8_t daemon_id[PEER_ID_SIZE];
	size_t count;
	struct mrshare_entry *entries;
	bool *withdrawn; /* of each entry */
};

enum refresh_step { REFRESH_NONE, REFRESH_ROOT, REFRESH_SLOT, REFRESH_NOTICE };

/* The reading of the catalog that is under way: its root, then its slot, again where they were torn; after too many of
 * those the next notice is waited for. */
struct refresh {
	enum refresh_step step;
	uint64_t serial; /* of readings begun */
	unsigned int torn;
	uint64_t deadline_ms;
	uint8_t root_bytes[CATALOG_ROOT_SIZE];
	struct catalog_root root;
	void *slot;
	struct op op; /* which reads */
};

struct mrshare_buffer {
	struct mrshare *conn; /* NULL: closed before the buffer */
	struct mrshare_buffer *next;
	unsigned int forks;
	void *addr;
	size_t size;
	struct ibv_mr *mr; /* NULL: no connection, or it could not be registered */
};

/* A thread that waits for an operation, or for any that mrshare_poll() may return. */
struct waiter {
	TAILQ_ENTRY(waiter) link;
	pthread_cond_t wake;
	const struct op *op; /* NULL: any */
};

struct mrshare {
	unsigned int forks; /* of the process whose this is */
	char *source;
	unsigned int timeout_ms;
	bool want_write;
	bool threaded;

	pthread_mutex_t mutex;
	enum conn_state state;
	struct err cause; /* of DRAINING and DOWN */
	bool connected;   /* once: the handle stands for that daemon now */
	bool closing;

	/* op.c */
	struct op_list lists[OP_PLACES];
	struct op_slot *table; /* by the low bits of the id */
	unsigned int table_size, timed_count;
	uint32_t free_slot; /* OP_NO_SLOT: none */
	uint64_t next_serial;

	/* service.c */
	TAILQ_HEAD(, waiter) waiters;
	struct waiter *leader; /* it moves the connection on while it waits */
	bool leader_sleeps;
	bool calling_back;
	pthread_t caller_back; /* who runs the callback */
	pthread_t thread;
	bool thread_runs;
	bool thread_watches_sends;
	bool thread_waits; /* in a callback that makes a blocking call */
	int app_fd;        /* an epoll of ready_fd, and of all_fd where there is no thread */
	int all_fd;        /* an epoll of all that can happen */
	int ready_fd;      /* readable while there is something for the application */
	bool ready;
	int wake_fd;   /* wakes the service thread */
	int leader_fd; /* wakes the leader */
	int timer_fd;
	uint64_t timer_ms; /* when timer_fd is due; UINT64_MAX: not at all */

	/* connect.c */
	char address[300]; /* what mrshare_connect() was given */
	struct lookup *lookup;
	struct addrinfo *dests, *sources, *dest; /* `dest`: that is tried */
	uint64_t deadline_ms;                    /* of the connect */
	uint64_t attempt_ms;                     /* of the try of `dest` */
	uint64_t connect_serial;
	unsigned int granted;
	unsigned int keepalive_s;
	uint8_t daemon_id[PEER_ID_SIZE]; /* of the one that accepted */
	struct mrshare_view catalog;
	uint64_t drain_ms; /* when DRAINING ends */

	/* notice.c */
	struct peer_notice notice; /* the last one; before the first its sequence is 0 */
	bool repeated;             /* it has come a second time, or there is none */
	bool ack_due;              /* it is not acknowledged yet */
	uint64_t announced;        /* the newest generation that we heard of */
	uint64_t heard_ms;         /* when the daemon was last heard */

	/* views.c */
	struct snapshot *snapshot; /* the last one; NULL: none yet */
	struct snapshot *snapshots;
	uint64_t number_base; /* the number of this daemon's generation 0 */
	struct refresh refresh;

	/* sendq.c */
	struct record records[SENDS_MAX];
	uint32_t head, tail; /* [head, tail) is on the wire, modulo SENDS_MAX */
	uint32_t acks_on_wire, next_ack;
	uint32_t stage_head, stage_tail; /* of the stage's bytes, modulo WIRE_BYTES */
	uint32_t wire_bytes;
	uint64_t progress_ms; /* when the wire last gave an answer, or was last empty */
	bool sends_armed;

	/* endpoint.c */
	struct rdma_event_channel *cm_channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *send_channel, *recv_channel;
	struct ibv_cq *send_cq, *recv_cq;
	uint32_t piece_max; /* PIECE_SIZE, or what the port takes */
	uint32_t inline_max;
	uint32_t sends_max; /* SENDS_MAX, or what the device takes */
	uint8_t *memory;    /* the stage, PEER_RECEIVES frames that are received into, ACKS_MAX that are sent */
	struct ibv_mr *memory_mr;
	unsigned int pd_users; /* threads that register with `pd` outside of the mutex */
	struct mrshare_buffer *buffers;
};

/* error.c */
/* Begins a public call: its name goes with its errors. */
void error_enter(const char *call);
/* Keeps the failure for mrshare_error() and returns its code. */
int error_publish(const struct err *err);
int error_publish_of(const char *call, int code, const char *text);

/* conn.c */
/* The forks between the first process and this one: a handle with another number is not ours. */
unsigned int conn_forks(void);
/* Publishes that the connection is another process's. -ECHILD. */
int conn_is_foreign(void);
/* Begins a public call on a connection and locks it. -ECHILD, not locked, in a process that it does not belong to. */
int conn_enter(struct mrshare *conn, const char *call);
/* UP -> DRAINING with this cause; a connect that is under way fails by it. Nothing in other states. What only follows
 * from an error (a flushed work request, a disconnect) calls sendq_reap() first, which may find the error itself. */
void conn_drop(struct mrshare *conn, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* DRAINING -> REST as soon as the device has finished. */
void conn_drain(struct mrshare *conn);
/* REST, with everything given back. */
void conn_rest(struct mrshare *conn);

/* connect.c */
/* IDLE or DOWN -> NAMES. */
void connect_begin(struct mrshare *conn);
/* Goes on where the names are known. */
void connect_names(struct mrshare *conn);
void connect_event(struct mrshare *conn, const struct cm_event *event);
void connect_welcome(struct mrshare *conn, const struct ibv_wc *wc);
void connect_failed(struct mrshare *conn, const struct err *err);
/* Fails what is over its time limit, before UP. Returns the next one. */
uint64_t connect_check_time(struct mrshare *conn, uint64_t now);

/* endpoint.c: the verbs objects, with the receives posted, on the device of conn->id. */
int endpoint_open(struct mrshare *conn, struct err *err);
/* Gives back every verbs and rdma_cm object; a part of them is fine. */
void endpoint_close(struct mrshare *conn);
/* Takes the completion events of a channel (or NULL), so that its descriptor tells of the next. Whether there was any.
 * Drops the connection where they fail. */
bool endpoint_take_events(struct mrshare *conn, struct ibv_comp_channel *channel);
int endpoint_post_receive(struct mrshare *conn, unsigned int slot);
uint8_t *endpoint_receive_frame(const struct mrshare *conn, uint64_t slot);
uint8_t *endpoint_ack_frame(const struct mrshare *conn, unsigned int slot);

/* buffer.c */
/* The key of the registered buffer that holds all of [addr, addr + size); false where there is none. */
bool buffer_find(const struct mrshare *conn, const void *addr, size_t size, uint32_t *ret_lkey);
/* Those that are not yet, on the PD of a new connection. The time that it takes does not count for the connect's. */
void buffers_register(struct mrshare *conn);

/* sendq.c */
/* Its work requests go on without it. */
void sendq_detach(struct mrshare *conn, struct op *op);
bool sendq_empty(const struct mrshare *conn);
/* Takes what has completed; a first error drops the connection. */
void sendq_reap(struct mrshare *conn);
/* Posts the ack that is due as soon as nothing on the wire touches what was withdrawn. */
void sendq_try_ack(struct mrshare *conn);
/* Puts on the wire what there is room for. */
void sendq_pump(struct mrshare *conn);
/* All three. */
void sendq_step(struct mrshare *conn);
/* The device has lost its queue pair: what was on the wire is no more. */
void sendq_forget(struct mrshare *conn);
/* Asks for an event when something completes, and takes what has completed before. */
void sendq_arm(struct mrshare *conn);
/* Takes the events. */
void sendq_take_events(struct mrshare *conn);

/* notice.c */
void notice_drain(struct mrshare *conn);

/* io.c: whether the next part of an operation can go on the wire now. If not, the operation was ended, or waits for the
 * views. */
bool io_ready(struct mrshare *conn, struct op *op);

/* views.c */
bool views_stale(const struct mrshare *conn);
/* Begins to read the catalog, where that is not under way and the connection is up. */
void views_need(struct mrshare *conn);
/* The reading operation has ended. */
void views_read_done(struct mrshare *conn);
/* A notice came: what it withdraws is marked, and views are read where someone waits for them. */
void views_noticed(struct mrshare *conn, const struct peer_notice *notice);
/* The keys of all views are void. */
void views_void(struct mrshare *conn);
/* A daemon has welcomed us: where it is another one than before, generations count on. */
void views_daemon(struct mrshare *conn);
/* Ends the watching operation where there is news already. */
void views_watch(struct mrshare *conn, struct op *op);
/* Fails the reading that is under way. */
void views_failed(struct mrshare *conn, const struct err *err);
struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct mrshare *conn, struct snapshot **snapshot);

/* time.c */
/* Something is due at that time. */
void time_due(struct mrshare *conn, uint64_t when_ms);
/* Acts on what is due. */
void time_check(struct mrshare *conn);

/* service.c */
int service_init(struct mrshare *conn);
/* Closes descriptors; nothing else of the connection is looked at. */
void service_free(struct mrshare *conn);
int service_start(struct mrshare *conn, struct err *err);
/* Ends the thread, if there is one. */
void service_stop(struct mrshare *conn);
/* Does all that can be done now without waiting. */
void service_run(struct mrshare *conn);
/* After something was posted: sees to it that someone looks after it. */
void service_posted(struct mrshare *conn, bool waited);
/* An operation has ended: whoever wants to know is told. */
void service_finished(struct mrshare *conn, const struct op *op);
void service_wake_thread(struct mrshare *conn);
/* The leader has other descriptors to look at, or is done. */
void service_wake_leader(struct mrshare *conn);
/* Makes `ready_fd` say whether there is something for the application. */
void service_update_ready(struct mrshare *conn);
void service_watch_fd(struct mrshare *conn, int fd);
void service_unwatch_fd(struct mrshare *conn, int fd);
/* Waits until the operation has ended, or for one that mrshare_poll() may return (NULL); false at the deadline. */
bool service_wait(struct mrshare *conn, const struct op *op, uint64_t deadline_ms);
/* Runs callbacks that are due, without the mutex. False in a child that one of them forked: it has no mutex and must
 * not look at the connection any more, which it may have closed. */
bool service_call_back(struct mrshare *conn);

#endif
