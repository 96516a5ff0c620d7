/* views.c: reading the daemon's catalog, which changes while it is read. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/range.h"
#include "libmrshare/conn.h"
#include "wire/catalog.h"

enum {
	TORN_READS_MAX = 8,       /* in a row, before the next notice is waited for */
	SLOT_SIZE_MAX = 64 << 20, /* ours: more views than any daemon lists */
};

struct snapshot *snapshot_ref(struct snapshot *snapshot)
{
	snapshot->refs++;
	return snapshot;
}

void snapshot_unref(struct mrshare *conn, struct snapshot **snapshot_ptr)
{
	struct snapshot *snapshot = *snapshot_ptr;
	*snapshot_ptr = NULL;
	if (!snapshot || --snapshot->refs)
		return;
	for (struct snapshot **link = &conn->snapshots; *link; link = &(*link)->next) {
		if (*link == snapshot) {
			*link = snapshot->next;
			break;
		}
	}
	free(snapshot->entries);
	free(snapshot->withdrawn);
	free(snapshot);
}

bool views_stale(const struct mrshare *conn)
{
	const struct snapshot *snapshot = conn->snapshot;
	return !snapshot || snapshot->connect != conn->connect_serial || snapshot->generation < conn->announced;
}

static int compare_entries(const void *a_ptr, const void *b_ptr)
{
	const struct mrshare_entry *a = a_ptr, *b = b_ptr;
	if (a->shmid != b->shmid)
		return a->shmid < b->shmid ? -1 : 1;
	return a->shm_offset < b->shm_offset ? -1 : a->shm_offset > b->shm_offset;
}

/* Sorts, and refuses what a transfer could not rely on: overlapping or empty extents. */
static int sort_entries(struct mrshare_entry *entries, size_t count)
{
	if (count)
		qsort(entries, count, sizeof(*entries), compare_entries);
	for (size_t i = 0; i < count; i++) {
		const struct mrshare_entry *entry = &entries[i], *before = i ? entry - 1 : NULL;
		if (entry->view.size == 0)
			return -EBADMSG;
		if (before && before->shmid == entry->shmid &&
			entry->shm_offset - before->shm_offset < before->view.size)
			return -EBADMSG;
	}
	return 0;
}

static int bad_catalog(struct mrshare *conn, int code, struct err *err)
{
	if (code == -EPROTONOSUPPORT)
		return err_set(err, code, "%s: the daemon's catalog has a version that this library does not know",
			conn->address);
	if (code == -ENOMEM)
		return err_set(err, code, "out of memory for the catalog of %s", conn->address);
	return err_set(err, code, "%s: the daemon's catalog makes no sense", conn->address);
}

static void read_catalog(struct mrshare *conn, enum refresh_step step, uint64_t offset, void *buf, size_t size)
{
	struct refresh *refresh = &conn->refresh;
	refresh->step = step;
	refresh->op = (struct op){
		.place = OP_NOWHERE,
		.type = OP_CATALOG,
		.offset = offset,
		.user = buf,
		.left = size,
		.deadline_ms = UINT64_MAX,
	};
	op_move(conn, &refresh->op, OP_QUEUED);
	if (size == 0)
		op_finish(conn, &refresh->op);
}

static void read_root(struct mrshare *conn)
{
	read_catalog(conn, REFRESH_ROOT, 0, conn->refresh.root_bytes, sizeof(conn->refresh.root_bytes));
}

void views_need(struct mrshare *conn)
{
	struct refresh *refresh = &conn->refresh;
	if (refresh->step != REFRESH_NONE || conn->state != CONN_UP)
		return;
	refresh->serial++;
	refresh->torn = 0;
	refresh->deadline_ms = clock_ms() + conn->timeout_ms;
	time_due(conn, refresh->deadline_ms);
	read_root(conn);
}

/* Nothing of a reading stays. */
static void end_reading(struct mrshare *conn)
{
	conn->refresh.step = REFRESH_NONE;
	free(conn->refresh.slot);
	conn->refresh.slot = NULL;
}

void views_failed(struct mrshare *conn, const struct err *err)
{
	struct err copy = *err;
	if (conn->refresh.op.place != OP_NOWHERE && conn->refresh.step != REFRESH_NONE &&
		conn->refresh.step != REFRESH_NOTICE) {
		/* Comes back here when the wire has let go of it. */
		op_end(conn, &conn->refresh.op, copy.code, copy.text);
		return;
	}
	end_reading(conn);
	op_end_all(conn, OP_VIEWS, copy.code, copy.text);
	op_end_all(conn, OP_WATCH, copy.code, copy.text);
	/* Without views of this connection it is of no use. */
	if (!conn->snapshot || conn->snapshot->connect != conn->connect_serial)
		conn_drop(conn, copy.code, "%s", copy.text);
}

/* Something newer than what the operation knows has been read. */
static bool has_news(const struct mrshare *conn, const struct op *op)
{
	return !views_stale(conn) && (op->known == 0 || conn->snapshot->number != op->known);
}

void views_watch(struct mrshare *conn, struct op *op)
{
	if (has_news(conn, op))
		op_finish(conn, op);
	else if (views_stale(conn))
		views_need(conn);
}

/* Goes on with what waited for views. */
static void serve_waiting(struct mrshare *conn)
{
	bool again = false;
	struct op *op, *next;
	for (op = TAILQ_FIRST(&conn->lists[OP_VIEWS]); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (op->type == OP_REFRESHING && op->known > conn->refresh.serial)
			again = true;
		else if (op->type == OP_REFRESHING || op->type == OP_CONNECTING)
			op_finish(conn, op);
		else
			op_move(conn, op, OP_QUEUED);
	}
	for (op = TAILQ_FIRST(&conn->lists[OP_WATCH]); op; op = next) {
		next = TAILQ_NEXT(op, link);
		if (has_news(conn, op))
			op_finish(conn, op);
	}
	if (again)
		views_need(conn);
}

static struct snapshot *new_snapshot(struct mrshare *conn, int *ret_code)
{
	const struct refresh *refresh = &conn->refresh;
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
	*ret_code = -ENOMEM;
	if (!snapshot)
		return NULL;
	snapshot->generation = refresh->root.generation;
	snapshot->number = conn->number_base + snapshot->generation;
	snapshot->connect = conn->connect_serial;
	memcpy(snapshot->daemon_id, conn->daemon_id, sizeof(snapshot->daemon_id));
	snapshot->count = refresh->root.view_count;
	*ret_code = catalog_slot_read(refresh->slot, &refresh->root, &snapshot->entries);
	if (*ret_code == 0) {
		snapshot->withdrawn = calloc(snapshot->count ? snapshot->count : 1, sizeof(*snapshot->withdrawn));
		*ret_code = snapshot->withdrawn ? sort_entries(snapshot->entries, snapshot->count) : -ENOMEM;
	}
	if (*ret_code == 0)
		return snapshot;
	free(snapshot->entries);
	free(snapshot->withdrawn);
	free(snapshot);
	return NULL;
}

/* The slot was read. -EAGAIN: torn, or older than what was announced, whose withdrawals it does not know. */
static int take_slot(struct mrshare *conn, struct err *err)
{
	int r;
	if (conn->refresh.root.generation < conn->announced)
		return -EAGAIN;
	struct snapshot *snapshot = new_snapshot(conn, &r);
	if (!snapshot)
		return r == -EAGAIN ? r : bad_catalog(conn, r, err);
	snapshot_unref(conn, &conn->snapshot);
	snapshot->next = conn->snapshots;
	conn->snapshots = snapshot;
	conn->snapshot = snapshot_ref(snapshot);
	conn->connected = true;
	end_reading(conn);
	serve_waiting(conn);
	return 0;
}

static int take_root(struct mrshare *conn, struct err *err)
{
	struct refresh *refresh = &conn->refresh;
	int r = catalog_root_read(refresh->root_bytes, conn->catalog.size, &refresh->root);
	if (r < 0)
		return r == -EAGAIN ? r : bad_catalog(conn, r, err);
	/* No daemon counts from 0 or to the end: its numbers and those that go on from them are never equal. */
	uint64_t generation = refresh->root.generation;
	if (generation == 0 || range_overflows(conn->number_base, generation) ||
		conn->number_base + generation == UINT64_MAX)
		return bad_catalog(conn, -EBADMSG, err);
	if (refresh->root.slot_size > SLOT_SIZE_MAX)
		return err_set(err, -EMSGSIZE, "%s: the daemon's catalog has %" PRIu32 " bytes, more than %d MiB",
			conn->address, refresh->root.slot_size, SLOT_SIZE_MAX >> 20);
	free(refresh->slot);
	refresh->slot = malloc(refresh->root.slot_size ? refresh->root.slot_size : 1);
	if (!refresh->slot)
		return bad_catalog(conn, -ENOMEM, err);
	read_catalog(conn, REFRESH_SLOT, refresh->root.slot_offset, refresh->slot, refresh->root.slot_size);
	return 0;
}

void views_read_done(struct mrshare *conn)
{
	struct refresh *refresh = &conn->refresh;
	struct err err;
	char *text = refresh->op.text;
	refresh->op.text = NULL;
	int r = refresh->op.result;
	if (r < 0)
		err_set(&err, r, "%s", text ? text : "out of memory");
	free(text);
	if (conn->state != CONN_UP) {
		end_reading(conn);
		return;
	}
	if (r == 0)
		r = refresh->step == REFRESH_ROOT ? take_root(conn, &err) : take_slot(conn, &err);
	if (r == -EAGAIN && ++refresh->torn < TORN_READS_MAX)
		read_root(conn);
	else if (r == -EAGAIN)
		refresh->step = REFRESH_NOTICE;
	else if (r < 0)
		views_failed(conn, &err);
}

/* Marks what the notice withdraws, so that no new work request touches it. */
static void mark_withdrawn(struct snapshot *snapshot, const struct peer_notice *notice)
{
	/* Views read after the withdrawal do not have it any more; "all" means what was known before. */
	if (snapshot->generation >= notice->generation)
		return;
	bool all = notice->withdrawn_count == PEER_WITHDRAWN_ALL;
	for (size_t i = 0; notice->withdrawn_count && i < snapshot->count; i++) {
		bool hit = all;
		for (uint32_t k = 0; !hit && k < notice->withdrawn_count; k++)
			hit = notice->withdrawn[k] == snapshot->entries[i].mapping_id;
		snapshot->withdrawn[i] |= hit;
	}
}

void views_noticed(struct mrshare *conn, const struct peer_notice *notice)
{
	for (struct snapshot *snapshot = conn->snapshots; snapshot; snapshot = snapshot->next)
		mark_withdrawn(snapshot, notice);
	if (conn->refresh.step == REFRESH_NOTICE) {
		conn->refresh.torn = 0;
		read_root(conn);
	} else if (views_stale(conn) && !TAILQ_EMPTY(&conn->lists[OP_WATCH])) {
		views_need(conn);
	}
}

void views_void(struct mrshare *conn)
{
	for (struct snapshot *snapshot = conn->snapshots; snapshot; snapshot = snapshot->next)
		memset(snapshot->withdrawn, true, snapshot->count * sizeof(*snapshot->withdrawn));
	if (conn->refresh.step == REFRESH_NOTICE)
		end_reading(conn);
}

void views_daemon(struct mrshare *conn)
{
	/* No number is given twice, or a watch would take a daemon that was started anew for the one before. */
	if (conn->snapshot && memcmp(conn->snapshot->daemon_id, conn->daemon_id, sizeof(conn->daemon_id)) != 0)
		conn->number_base = conn->snapshot->number + 1;
}

int mrshare_views(struct mrshare *conn, struct mrshare_entry **ret_entries, size_t *ret_count, uint64_t *ret_generation)
{
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	struct err err;
	const struct snapshot *snapshot = conn->snapshot;
	struct mrshare_entry *copy = snapshot ? calloc(snapshot->count ? snapshot->count : 1, sizeof(*copy)) : NULL;
	if (copy) {
		if (snapshot->count)
			memcpy(copy, snapshot->entries, snapshot->count * sizeof(*copy));
		*ret_entries = copy;
		*ret_count = snapshot->count;
		if (ret_generation)
			*ret_generation = snapshot->number;
	} else if (snapshot) {
		r = err_set(&err, -ENOMEM, "out of memory for %zu views", snapshot->count);
	} else {
		r = err_set(&err, -ENOTCONN, "not connected");
	}
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}

int mrshare_daemon_id(struct mrshare *conn, uint8_t ret_id[MRSHARE_DAEMON_ID_SIZE])
{
	_Static_assert((int)MRSHARE_DAEMON_ID_SIZE == (int)PEER_ID_SIZE, "of the protocol");
	struct err err;
	int r = conn_enter(conn, __func__);
	if (r < 0)
		return r;
	if (conn->snapshot)
		memcpy(ret_id, conn->snapshot->daemon_id, MRSHARE_DAEMON_ID_SIZE);
	else
		r = err_set(&err, -ENOTCONN, "not connected");
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}

static int post(struct mrshare *conn, enum op_type type, const char *call, uint64_t known,
	const struct mrshare_how *how, uint64_t *ret_id)
{
	struct err err;
	struct op *op;
	int r = conn_enter(conn, call);
	if (r < 0)
		return r;
	r = op_new(conn, type, call, how, false, &op, &err);
	if (r == 0) {
		op->known = known;
		if (ret_id)
			*ret_id = op->id;
		op_post(conn, op);
	}
	pthread_mutex_unlock(&conn->mutex);
	return r < 0 ? error_publish(&err) : 0;
}

static int run(struct mrshare *conn, enum op_type type, const char *call, uint64_t known, unsigned int timeout_ms)
{
	const struct mrshare_how how = { .timeout_ms = timeout_ms };
	struct err err;
	struct op *op;
	int r = conn_enter(conn, call);
	if (r < 0)
		return r;
	r = op_new(conn, type, call, &how, true, &op, &err);
	if (r < 0) {
		pthread_mutex_unlock(&conn->mutex);
		return error_publish(&err);
	}
	op->known = known;
	op_post(conn, op);
	return op_wait(conn, op, NULL);
}

int mrshare_post_refresh(struct mrshare *conn, const struct mrshare_how *how, uint64_t *ret_id)
{
	return post(conn, OP_REFRESHING, __func__, 0, how, ret_id);
}

int mrshare_refresh(struct mrshare *conn)
{
	return run(conn, OP_REFRESHING, __func__, 0, 0);
}

int mrshare_post_watch(struct mrshare *conn, uint64_t generation, const struct mrshare_how *how, uint64_t *ret_id)
{
	return post(conn, OP_WATCHING, __func__, generation, how, ret_id);
}

int mrshare_watch(struct mrshare *conn, uint64_t generation, unsigned int timeout_ms)
{
	return run(conn, OP_WATCHING, __func__, generation, timeout_ms);
}
