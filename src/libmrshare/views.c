/* views.c: reading the daemon's catalog, which changes while it is read. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "libmrshare/conn.h"
#include "wire/catalog.h"

enum {
	TORN_READS_MAX = 8,       /* in a row, before the next notice is waited for */
	SLOT_SIZE_MAX = 64 << 20, /* ours: more views than any daemon lists */
};

void snapshot_free(struct snapshot *snapshot)
{
	free(snapshot->entries);
	free(snapshot->withdrawn);
	*snapshot = (struct snapshot){ 0 };
}

static int read_catalog(struct mrshare *conn, uint64_t offset, void *buf, size_t size, struct err *err)
{
	const struct mrshare_entry whole = { .view = conn->catalog };
	return transfer_run(conn, false, &whole, NULL, offset, buf, size, err);
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

/* Reads it once. -EAGAIN: it changed under us. */
static int read_once(struct mrshare *conn, struct snapshot *ret_snapshot, struct err *err)
{
	uint8_t bytes[CATALOG_ROOT_SIZE];
	struct catalog_root root;
	int r = read_catalog(conn, 0, bytes, sizeof(bytes), err);
	if (r < 0)
		return r;
	r = catalog_root_read(bytes, conn->catalog.size, &root);
	if (r < 0)
		return r == -EAGAIN ? r : bad_catalog(conn, r, err);
	if (root.slot_size > SLOT_SIZE_MAX)
		return err_set(err, -EMSGSIZE, "%s: the daemon's catalog has %" PRIu32 " bytes, more than %d MiB",
			conn->address, root.slot_size, SLOT_SIZE_MAX >> 20);

	CLEANUP_FREE void *slot = malloc(root.slot_size ? root.slot_size : 1);
	if (!slot)
		return bad_catalog(conn, -ENOMEM, err);
	r = read_catalog(conn, root.slot_offset, slot, root.slot_size, err);
	if (r < 0)
		return r;
	struct snapshot snapshot = { .generation = root.generation, .count = root.view_count };
	r = catalog_slot_read(slot, &root, &snapshot.entries);
	if (r < 0)
		return r == -EAGAIN ? r : bad_catalog(conn, r, err);

	snapshot.withdrawn = calloc(snapshot.count ? snapshot.count : 1, sizeof(*snapshot.withdrawn));
	r = snapshot.withdrawn ? sort_entries(snapshot.entries, snapshot.count) : -ENOMEM;
	if (r < 0) {
		snapshot_free(&snapshot);
		return bad_catalog(conn, r, err);
	}
	*ret_snapshot = snapshot;
	return 0;
}

/* Makes it the one in force. -EAGAIN: by now something newer was announced, whose withdrawals it does not know. */
static int install(struct mrshare *conn, struct snapshot *snapshot)
{
	struct snapshot old = *snapshot;
	pthread_mutex_lock(&conn->mutex);
	bool current = snapshot->generation >= conn->announced;
	if (current) {
		old = conn->snapshot;
		conn->snapshot = *snapshot;
	}
	pthread_mutex_unlock(&conn->mutex);
	snapshot_free(&old);
	return current ? 0 : -EAGAIN;
}

/* What the last notice said; 0 before the first. */
static uint32_t last_sequence(struct mrshare *conn, bool *ret_stale)
{
	pthread_mutex_lock(&conn->mutex);
	uint32_t sequence = conn->notice.sequence;
	*ret_stale = conn->snapshot.generation < conn->announced;
	pthread_mutex_unlock(&conn->mutex);
	return sequence;
}

/* Waits until a notice newer than `sequence` came or the connection died; false: the deadline passed. */
static bool wait_for_notice(struct mrshare *conn, uint32_t sequence, uint64_t deadline)
{
	struct timespec until = { .tv_sec = (time_t)(deadline / 1000), .tv_nsec = (long)(deadline % 1000) * 1000000 };
	pthread_mutex_lock(&conn->mutex);
	int r = clock_ms() < deadline ? 0 : ETIMEDOUT;
	while (r == 0 && conn->state == CONN_UP && conn->notice.sequence == sequence)
		r = pthread_cond_timedwait(&conn->changed, &conn->mutex, &until);
	pthread_mutex_unlock(&conn->mutex);
	return r == 0;
}

int views_refresh(struct mrshare *conn, bool stale_only, struct err *err)
{
	uint64_t limit = clock_ms() + conn->timeout_ms,
		 deadline = limit < conn->deadline_ms ? limit : conn->deadline_ms;
	uint32_t sequence;
	do {
		bool stale;
		sequence = last_sequence(conn, &stale);
		if (stale_only && !stale)
			return 0;
		for (int torn = 0; torn < TORN_READS_MAX; torn++) {
			struct snapshot snapshot;
			int r = read_once(conn, &snapshot, err);
			if (r == 0)
				r = install(conn, &snapshot);
			if (r != -EAGAIN)
				return r;
		}
	} while (wait_for_notice(conn, sequence, deadline));
	return err_set(err, -ETIMEDOUT, "%s: the daemon's catalog could not be read whole within the time limit",
		conn->address);
}

/* Begins a call with the views as new as the daemon's last notice. */
static int begin_refreshed(struct mrshare *conn, bool stale_only, struct err *err)
{
	int r = conn_begin_up(conn, err);
	if (r < 0)
		return r;
	r = views_refresh(conn, stale_only, err);
	if (r < 0)
		conn_end(conn);
	return r;
}

int mrshare_refresh(struct mrshare *conn)
{
	struct err err;
	if (begin_refreshed(conn, false, &err) < 0)
		return error_publish(&err);
	conn_end(conn);
	return 0;
}

int mrshare_views(
	struct mrshare *conn, struct mrshare_entry **ret_entries, size_t *ret_count, uint64_t *ret_generation)
{
	struct err err;
	if (begin_refreshed(conn, true, &err) < 0)
		return error_publish(&err);

	const struct snapshot *snapshot = &conn->snapshot;
	struct mrshare_entry *copy = calloc(snapshot->count ? snapshot->count : 1, sizeof(*copy));
	if (!copy) {
		conn_end(conn);
		err_set(&err, -ENOMEM, "out of memory for %zu views", snapshot->count);
		return error_publish(&err);
	}
	if (snapshot->count)
		memcpy(copy, snapshot->entries, snapshot->count * sizeof(*copy));
	*ret_entries = copy;
	*ret_count = snapshot->count;
	if (ret_generation)
		*ret_generation = snapshot->generation;
	conn_end(conn);
	return 0;
}
