/* conn.h: the connection to a daemon, as the files of the library share it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LIBMRSHARE_CONN_H
#define LIBMRSHARE_CONN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rdma.h"
#include "mrshare.h"
#include "wire/peer.h"

/*
 * Two parties use a connection: one call at a time (conn_begin() to conn_end()), and the service thread, from the
 * welcome to the end. The call owns the verbs objects, the snapshot and the buffers; what the two share is under
 * `mutex`: the state, the queue of ops, what the last notice said. The service thread never waits for a call while the
 * connection lives, so that acks and keep-alive go on.
 *
 * State: IDLE -> UP in mrshare_connect(), when the welcome was taken. UP -> DEAD by conn_drop(), from either party,
 * with the first cause; the queue pair is in error from then on. The service thread ends by giving all verbs objects
 * back, as if it were a call. A failed mrshare_connect() leads back to IDLE, nothing else leads out of DEAD.
 */
enum conn_state { CONN_IDLE, CONN_UP, CONN_DEAD };

enum {
	/* What a call has on the wire at once, PIECES_MAX of PIECE_SIZE, is what the ack of a withdrawal waits for:
	 * enough to fill any link, little enough to be through in a fraction of a second on a slow one. */
	PIECE_SIZE = 128 << 10,
	PIECES_MAX = 8,
	ACKS_MAX = PEER_RECEIVES,
	SENDS_MAX = PIECES_MAX + ACKS_MAX,
};

/* A signalled work request on the send queue. Its owner must keep it until `done`, or until the queue pair is gone. */
struct op {
	struct op *next;
	uint64_t mapping_id; /* what it touches; 0: nothing that can be withdrawn */
	enum ibv_wc_status status;
	bool done;
};

/* What the catalog said at one generation, sorted by (shmid, shm_offset). */
struct snapshot {
	uint64_t generation;
	size_t count;
	struct mrshare_entry *entries;
	bool *withdrawn; /* of each entry; under the mutex */
};

struct mrshare_buffer {
	struct mrshare *conn; /* NULL: closed before the buffer */
	struct mrshare_buffer *next;
	void *addr;
	size_t size;
	struct ibv_mr *mr; /* NULL: the connection is dead */
};

struct mrshare {
	char *source;
	unsigned int timeout_ms;
	bool want_write;

	pthread_mutex_t mutex;
	pthread_cond_t changed; /* a call ended, a notice came, the connection died */
	bool calling;

	/* Under the mutex. */
	enum conn_state state;
	struct err cause; /* of DEAD */
	struct op *ops;   /* on the wire */
	struct op acks[ACKS_MAX];
	bool ack_due; /* `notice` is not acknowledged yet */
	bool noticed; /* there was a notice: `notice` is the last one */
	struct peer_notice notice;
	uint64_t announced; /* the newest generation that we heard of */
	uint64_t heard_ms;  /* when the daemon was last heard */
	bool stopping;      /* the service thread shall end and leave the rest to us */

	/* From connect to the end; the verbs objects to endpoint_close(). */
	char address[300];    /* for messages: what mrshare_connect() was given */
	uint64_t deadline_ms; /* of the connect that runs; else UINT64_MAX */
	bool rejected;        /* by the daemon itself: no other address of it will do better */
	unsigned int granted;
	unsigned int keepalive_s;
	struct mrshare_view catalog;
	struct snapshot snapshot;
	struct mrshare_buffer *buffers;

	struct rdma_event_channel *cm_channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *send_channel, *recv_channel;
	struct ibv_cq *send_cq, *recv_cq;
	uint32_t piece_max; /* PIECE_SIZE, or what the port takes */
	uint8_t *frames;    /* PEER_RECEIVES that are received into, then ACKS_MAX that are sent */
	struct ibv_mr *frames_mr;
	uint8_t *stage; /* PIECES_MAX of PIECE_SIZE bytes, made when first needed */
	struct ibv_mr *stage_mr;

	pthread_t thread;
	bool thread_runs;
	int stop_fd; /* wakes the service thread */
	int dead_fd; /* readable once DEAD: wakes a call that waits for the wire */
};

/* conn.c: waits until `fd` or `fd2` (-1: none) is readable or the deadline (UINT64_MAX: none) passed, whichever comes
 * first. */
void wait_readable(int fd, int fd2, uint64_t deadline_ms);
/* Waits for the running call; from here to conn_end() there is no other. */
void conn_begin(struct mrshare *conn);
void conn_end(struct mrshare *conn);
/* conn_begin() where the connection is up; -ENOTCONN, with no call begun, where it is not. */
int conn_begin_up(struct mrshare *conn, struct err *err);
/* Under the mutex: UP -> DEAD with this cause. Nothing where it is not UP. What only follows from an error (a flushed
 * work request, a disconnect) calls sendq_reap() first, which may find the error itself. */
void conn_drop(struct mrshare *conn, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The failure of a call that a dead connection cut. */
int conn_cut(struct mrshare *conn, struct err *err);

/* error.c: keeps the text for mrshare_error() and returns the code. */
int error_publish(const struct err *err);

/* The ms until the deadline, 0 past it. */
static inline int time_left(uint64_t deadline)
{
	uint64_t now = clock_ms();
	return now < deadline ? (int)(deadline - now) : 0;
}

/* handshake.c: connects to one address, up to the welcome. Nothing is left where it fails. */
int handshake(struct mrshare *conn, struct sockaddr *source, struct sockaddr *dest, uint64_t deadline, struct err *err);

/* endpoint.c: the verbs objects, with the receives posted, on the device of conn->id. */
int endpoint_open(struct mrshare *conn, struct err *err);
/* Gives back every verbs and rdma_cm object; a part of them is fine. No op is on the wire afterwards. */
void endpoint_close(struct mrshare *conn);
int endpoint_post_receive(struct mrshare *conn, unsigned int slot);
/* The registered memory for calls on memory that is not. */
int endpoint_need_stage(struct mrshare *conn, struct err *err);

/* sendq.c, all but sendq_wait() under the mutex. */
int sendq_post(struct mrshare *conn, struct op *op, struct ibv_send_wr *wr);
/* Takes what has completed; a first error drops the connection. */
void sendq_reap(struct mrshare *conn);
/* Sends the ack that is due as soon as nothing on the wire touches what was withdrawn. */
void sendq_try_ack(struct mrshare *conn);
/* Waits until `op` is done. Without a completion by the deadline the connection is dropped, with -ETIMEDOUT. On return
 * the device has finished with the op's memory in every case. */
void sendq_wait(struct mrshare *conn, struct op *op, uint64_t deadline_ms);

/* transfer.c: copies between `buf` and [offset, offset + size) of what `entries` cover from the first on, one behind
 * the other. `withdrawn` (or NULL) is looked at before each work request. */
int transfer_run(struct mrshare *conn, bool write, const struct mrshare_entry *entries, const bool *withdrawn,
	uint64_t offset, void *buf, size_t size, struct err *err);

/* views.c: reads the catalog. With `stale_only` only where a newer one was announced. */
int views_refresh(struct mrshare *conn, bool stale_only, struct err *err);
void snapshot_free(struct snapshot *snapshot);

/* service.c */
int service_start(struct mrshare *conn, struct err *err);
/* Ends the thread, if there is one. */
void service_stop(struct mrshare *conn);

/* buffer.c: the key of the registered buffer that holds all of [addr, addr + size); false where there is none. */
bool buffer_find(const struct mrshare *conn, const void *addr, size_t size, uint32_t *ret_lkey);

#endif
