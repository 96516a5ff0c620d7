/* op.c: operations from posting to their end, and the ids by which they are known. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "libmrshare/op.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libmrshare/conn.h"

enum { TABLE_FIRST = 64 };

/* A free slot of the table chains to the next one. */
static int table_grow(struct mrshare *conn)
{
	unsigned int size = conn->table_size ? conn->table_size * 2 : TABLE_FIRST;
	if (size > MRSHARE_OPERATIONS_MAX)
		return -EAGAIN;
	struct op_slot *table = realloc(conn->table, size * sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (unsigned int i = conn->table_size; i < size; i++)
		table[i] = (struct op_slot){ .next_free = i + 1 < size ? i + 1 : OP_NO_SLOT };
	conn->free_slot = conn->table_size;
	conn->table = table;
	conn->table_size = size;
	return 0;
}

static int table_add(struct mrshare *conn, struct op *op)
{
	int r = conn->table_size == 0 || conn->free_slot == OP_NO_SLOT ? table_grow(conn) : 0;
	if (r < 0)
		return r;
	uint32_t slot = conn->free_slot;
	conn->free_slot = conn->table[slot].next_free;
	conn->table[slot].op = op;
	op->id = ++conn->next_serial << OP_TABLE_BITS | slot;
	return 0;
}

static void table_remove(struct mrshare *conn, struct op *op)
{
	uint32_t slot = op->id & (MRSHARE_OPERATIONS_MAX - 1);
	conn->table[slot] = (struct op_slot){ .next_free = conn->free_slot };
	conn->free_slot = slot;
}

struct op *op_find(struct mrshare *conn, uint64_t id)
{
	uint32_t slot = id & (MRSHARE_OPERATIONS_MAX - 1);
	struct op *op = slot < conn->table_size ? conn->table[slot].op : NULL;
	return op && op->id == id ? op : NULL;
}

int op_new(struct mrshare *conn, enum op_type type, const char *call, const struct mrshare_how *how, bool waited,
	struct op **ret_op, struct err *err)
{
	static const struct mrshare_how plain;
	how = how ? how : &plain;
	if (memcmp(how->reserved, plain.reserved, sizeof(how->reserved)) != 0)
		return err_set(err, -EINVAL, "the reserved fields of struct mrshare_how must be 0");
	if (conn->closing)
		return err_set(err, -ECANCELED, "the connection is being closed");
	/* It connects, or has nothing else to run callbacks on. */
	int r = conn->threaded && (type == OP_CONNECTING || how->done) ? service_start(conn, err) : 0;
	if (r < 0)
		return r;
	struct op *op = calloc(1, sizeof(*op));
	if (!op)
		return err_set(err, -ENOMEM, "out of memory");
	op->place = OP_NOWHERE;
	op->type = type;
	op->call = call;
	op->callback = how->done;
	op->data = how->data;
	op->waited = waited;
	op->deadline_ms = how->timeout_ms ? clock_ms() + how->timeout_ms : UINT64_MAX;
	r = waited ? 0 : table_add(conn, op);
	if (r < 0) {
		free(op);
		return r == -EAGAIN ? err_set(err, r, "%d operations are outstanding already", MRSHARE_OPERATIONS_MAX)
				    : err_set(err, r, "out of memory");
	}
	if (op->deadline_ms != UINT64_MAX) {
		conn->timed_count++;
		time_due(conn, op->deadline_ms);
	}
	*ret_op = op;
	return 0;
}

void op_free(struct mrshare *conn, struct op *op)
{
	op_move(conn, op, OP_NOWHERE);
	if (op->id)
		table_remove(conn, op);
	free(op->text);
	free(op);
}

void op_move(struct mrshare *conn, struct op *op, enum op_place place)
{
	if (op->place != OP_NOWHERE)
		TAILQ_REMOVE(&conn->lists[op->place], op, link);
	op->place = place;
	if (place == OP_NOWHERE)
		return;
	/* The catalog waits for no transfer: others wait for it, and it has a time limit. */
	if (op->type == OP_CATALOG)
		TAILQ_INSERT_HEAD(&conn->lists[place], op, link);
	else
		TAILQ_INSERT_TAIL(&conn->lists[place], op, link);
}

void op_start(struct mrshare *conn, struct op *op)
{
	switch (op->type) {
	case OP_CONNECTING:
		if (conn->snapshot && conn->snapshot->connect == conn->connect_serial) {
			op_finish(conn, op);
			return;
		}
		op_move(conn, op, OP_VIEWS);
		views_need(conn);
		return;
	case OP_REFRESHING:
		op->known = conn->refresh.serial + 1;
		op_move(conn, op, OP_VIEWS);
		views_need(conn);
		return;
	case OP_WATCHING:
		op_move(conn, op, OP_WATCH);
		views_watch(conn, op);
		return;
	default:
		if (op->left == 0)
			op_finish(conn, op);
		else
			op_move(conn, op, OP_QUEUED);
		return;
	}
}

void op_post(struct mrshare *conn, struct op *op)
{
	if (conn->state == CONN_UP) {
		op_start(conn, op);
	} else if (!conn->connected && op->type != OP_CONNECTING &&
		   (conn->state == CONN_IDLE || conn->state == CONN_DRAINING)) {
		op_end(conn, op, -ENOTCONN, "not connected");
	} else {
		op_move(conn, op, OP_CONNECT);
		if (conn->state == CONN_IDLE || conn->state == CONN_DOWN)
			connect_begin(conn);
	}
	service_posted(conn, op->waited);
}

void op_end(struct mrshare *conn, struct op *op, int result, const char *text)
{
	if (op->ended)
		return;
	op->ended = true;
	op->result = result;
	op->text = result < 0 ? strdup(text) : NULL;
	if (op->on_wire && !op->zero_copy)
		sendq_detach(conn, op);
	if (op->on_wire)
		op_move(conn, op, OP_WIRE);
	else
		op_finish(conn, op);
}

void op_finish(struct mrshare *conn, struct op *op)
{
	op->ended = true;
	snapshot_unref(conn, &op->snapshot);
	if (op->deadline_ms != UINT64_MAX)
		conn->timed_count--;
	if (op->type == OP_CATALOG) {
		op_move(conn, op, OP_NOWHERE);
		views_read_done(conn);
		return;
	}
	op->done = true;
	op_move(conn, op, op->waited ? OP_NOWHERE : op->callback ? OP_CALLBACK : OP_POLLED);
	service_finished(conn, op);
}

void op_end_all(struct mrshare *conn, enum op_place place, int result, const char *text)
{
	struct op *op, *next;
	for (op = TAILQ_FIRST(&conn->lists[place]); op; op = next) {
		next = TAILQ_NEXT(op, link);
		/* A watch that is late says by that that there is nothing new. */
		bool ambiguous = op->type == OP_WATCHING && result == -ETIMEDOUT;
		op_end(conn, op, ambiguous ? -ECONNRESET : result, text);
	}
}

void op_give_up(struct mrshare *conn, struct op *op, int result, const char *text)
{
	bool first_connect = op->type == OP_CONNECTING && !conn->connected;
	op_end(conn, op, result, text);
	if (!op->done) {
		conn->timed_count += op->deadline_ms == UINT64_MAX;
		op->deadline_ms = clock_ms() + OP_GRACE_MS;
		time_due(conn, op->deadline_ms);
	}
	if (first_connect)
		conn_drop(conn, result, "%s", text);
}

/* Returns when to look at it again. */
static uint64_t check_time_of(struct mrshare *conn, struct op *op, uint64_t now)
{
	if (op->deadline_ms > now)
		return op->deadline_ms;
	/* Ended, but the device still has its memory. A wire that gives answers gives it back. */
	if (op->ended && now < conn->progress_ms + OP_GRACE_MS)
		return op->deadline_ms = conn->progress_ms + OP_GRACE_MS;
	if (op->ended) {
		conn_drop(conn, -ETIMEDOUT,
			"the device did not give back the memory of an operation that was cancelled or late");
		return UINT64_MAX;
	}
	op_give_up(conn, op, -ETIMEDOUT, "not done within its time limit");
	return op->done ? UINT64_MAX : op->deadline_ms;
}

uint64_t op_check_time(struct mrshare *conn, uint64_t now)
{
	uint64_t first = UINT64_MAX;
	for (int place = OP_CONNECT; conn->timed_count && place <= OP_WIRE; place++) {
		struct op *op, *next;
		for (op = TAILQ_FIRST(&conn->lists[place]); op; op = next) {
			next = TAILQ_NEXT(op, link);
			uint64_t due = op->deadline_ms == UINT64_MAX ? UINT64_MAX : check_time_of(conn, op, now);
			first = due < first ? due : first;
			/* One end may be that of others. */
			if (next && (int)next->place != place)
				return now;
		}
	}
	return first;
}

int op_wait(struct mrshare *conn, struct op *op, uint64_t *ret_value)
{
	service_wait(conn, op, UINT64_MAX);
	int r = op->result;
	if (r < 0)
		error_publish_of(op->call, r, op->text ? op->text : "out of memory for the words of an error");
	else if (ret_value)
		*ret_value = op->value;
	op_free(conn, op);
	pthread_mutex_unlock(&conn->mutex);
	return r;
}

int mrshare_cancel(struct mrshare *conn, uint64_t id)
{
	struct err err;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	struct op *op = op_find(conn, id);
	if (op && !op->ended)
		op_give_up(conn, op, -ECANCELED, "cancelled");
	else
		r = err_set(&err, -ENOENT, "no operation %" PRIu64 " is outstanding", id);
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}
