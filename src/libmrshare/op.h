/* op.h: an operation, from posting to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LIBMRSHARE_OP_H
#define LIBMRSHARE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "mrshare.h"

/*
 * Where an operation is: in one list of its connection. CONNECT -> VIEWS or QUEUED when the connection is up; QUEUED ->
 * VIEWS when it needs views that are newer, and back when they were read; QUEUED -> WIRE when all of it is posted.
 * op_end() fixes the result; op_finish() makes it CALLBACK, POLLED, or `done` for one who waits, as soon as the device
 * has no memory of the caller's any more.
 */
enum op_place { OP_CONNECT, OP_VIEWS, OP_WATCH, OP_QUEUED, OP_WIRE, OP_CALLBACK, OP_POLLED, OP_PLACES, OP_NOWHERE };

enum op_type {
	OP_READ,
	OP_WRITE,
	OP_FETCH_ADD,
	OP_COMPARE_SWAP,
	OP_CONNECTING,
	OP_REFRESHING,
	OP_WATCHING,
	OP_CATALOG, /* our own reading of the catalog */
};

enum {
	OP_TABLE_BITS = 16,
	OP_GRACE_MS = 250, /* as mrshare.h says of mrshare_cancel() */
};
#define OP_NO_SLOT UINT32_MAX

struct mrshare;
struct snapshot;

struct op {
	TAILQ_ENTRY(op) link;
	enum op_place place;
	enum op_type type;
	const char *call; /* for mrshare_error_call() */
	uint64_t id;      /* 0: never given out */

	uint8_t shmid;
	uint64_t offset; /* of what is not posted yet; CATALOG: in the catalog */
	uint8_t *user;   /* the caller's bytes of it */
	size_t left;     /* bytes of it */
	uint64_t operand, expected;
	uint64_t known; /* WATCHING: the generation; REFRESHING: the first reading that will do */

	struct snapshot *snapshot; /* that its range was checked against; NULL: not yet */
	size_t entry;              /* that holds `offset` */
	unsigned int on_wire;      /* work requests */
	bool zero_copy;            /* of these some use the caller's memory */

	uint64_t deadline_ms; /* UINT64_MAX: none */
	bool ended;           /* nothing more is posted; the result stands */
	int result;
	char *text; /* of a failure; NULL: out of memory for it */
	uint64_t value;

	mrshare_done callback;
	void *data;
	bool waited; /* a caller waits for it, who frees it */
	bool done;
};

TAILQ_HEAD(op_list, op);

/* Of the table by which ids are found. */
struct op_slot {
	struct op *op;
	uint32_t next_free;
};

/* A new one in no list; `waited` where the caller will wait. Starts the library's thread where it needs that. -EINVAL,
 * -ECANCELED, -EAGAIN, -ENOMEM. */
int op_new(struct mrshare *conn, enum op_type type, const char *call, const struct mrshare_how *how, bool waited,
	struct op **ret_op, struct err *err);
void op_free(struct mrshare *conn, struct op *op);
void op_move(struct mrshare *conn, struct op *op, enum op_place place);
/* Posts: to the wire, to the views, or to what connects. */
void op_post(struct mrshare *conn, struct op *op);
/* Goes on with it once the connection is up. */
void op_start(struct mrshare *conn, struct op *op);
/* The result stands, the first one counts; `text` is for failures. */
void op_end(struct mrshare *conn, struct op *op, int result, const char *text);
/* op_end() at the wish of the application. Memory of the caller's that the device has then is to come back within
 * OP_GRACE_MS; with the first connect goes what it has come to. */
void op_give_up(struct mrshare *conn, struct op *op, int result, const char *text);
/* The last work request has gone: ends, with success where nothing else stood. */
void op_finish(struct mrshare *conn, struct op *op);
/* Ends all that is in a list. */
void op_end_all(struct mrshare *conn, enum op_place place, int result, const char *text);
struct op *op_find(struct mrshare *conn, uint64_t id);
/* Ends what is over its time limit. Returns the next one. */
uint64_t op_check_time(struct mrshare *conn, uint64_t now);
/* Waits for its end, publishes its failure, frees it. Unlocks the connection. */
int op_wait(struct mrshare *conn, struct op *op, uint64_t *ret_value);

#endif
