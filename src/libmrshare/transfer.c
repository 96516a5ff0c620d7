/* transfer.c: one blocking copy over the wire, as a pipeline of work requests. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

/* One work request of the pipeline. */
struct piece {
	struct op op;
	uint8_t *user; /* the caller's bytes */
	uint32_t size;
};

/* Pieces are a ring, done in the order of posting: [head, tail) is on the wire. A staged piece has the part of the
 * stage with its index in the ring. */
struct transfer {
	struct mrshare *conn;
	bool write;
	const struct mrshare_entry *entry; /* which has `offset` */
	const bool *withdrawn;             /* of `entry`, or NULL */
	uint64_t offset;
	uint8_t *user;
	size_t left; /* not posted yet */
	bool staged;
	uint32_t lkey;
	struct piece pieces[PIECES_MAX];
	unsigned int head, tail;
};

static uint8_t *piece_memory(const struct transfer *t, const struct piece *piece)
{
	return t->staged ? t->conn->stage + (size_t)(piece - t->pieces) * PIECE_SIZE : piece->user;
}

/* Posts [offset, offset + size) of the current entry. */
static int post_piece(struct transfer *t, struct piece *piece, uint32_t size, struct err *err)
{
	struct mrshare *conn = t->conn;
	const struct mrshare_view *view = &t->entry->view;
	struct mrshare_view part;
	if (mrshare_view_slice(view, t->offset - t->entry->shm_offset, size, &part) < 0)
		return err_set(err, -EBADMSG, "%s: the daemon's view is shorter than the transfer", conn->address);

	piece->user = t->user;
	piece->size = size;
	piece->op = (struct op){ .mapping_id = t->entry->mapping_id };
	uint8_t *memory = piece_memory(t, piece);
	if (t->staged && t->write)
		memcpy(memory, t->user, size);
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = size, .lkey = t->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = t->write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.wr.rdma = { .remote_addr = part.addr, .rkey = part.rkey },
	};

	pthread_mutex_lock(&conn->mutex);
	bool alive = conn->state == CONN_UP, gone = t->withdrawn && *t->withdrawn;
	int r = alive && !gone ? sendq_post(conn, &piece->op, &wr) : 0;
	if (r < 0)
		conn_drop(conn, -ECONNRESET, "the device takes no work request: %s", strerror(-r));
	pthread_mutex_unlock(&conn->mutex);
	if (!alive || r < 0)
		return conn_cut(conn, err);
	if (gone)
		return err_set(err, -ESTALE, "%s: region %u at 0x%" PRIx64 ": removed while it was being used",
			conn->address, t->entry->shmid, t->offset);
	return 0;
}

static int post_next(struct transfer *t, struct err *err)
{
	uint64_t entry_left = t->entry->view.size - (t->offset - t->entry->shm_offset);
	if (entry_left == 0) {
		t->entry++;
		t->withdrawn += t->withdrawn ? 1 : 0;
		entry_left = t->entry->view.size;
	}
	uint64_t size = t->left < t->conn->piece_max ? t->left : t->conn->piece_max;
	if (size > entry_left)
		size = entry_left;

	int r = post_piece(t, &t->pieces[t->tail % PIECES_MAX], (uint32_t)size, err);
	if (r < 0)
		return r;
	t->tail++;
	t->offset += size;
	t->user += size;
	t->left -= size;
	return 0;
}

/* Waits for the oldest piece. */
static int finish_next(struct transfer *t, struct err *err)
{
	struct piece *piece = &t->pieces[t->head++ % PIECES_MAX];
	uint64_t limit = clock_ms() + t->conn->timeout_ms;
	sendq_wait(t->conn, &piece->op, limit < t->conn->deadline_ms ? limit : t->conn->deadline_ms);

	if (piece->op.status == IBV_WC_SUCCESS) {
		if (t->staged && !t->write)
			memcpy(piece->user, piece_memory(t, piece), piece->size);
		return 0;
	}
	/* Bounds and rights were checked before the wire, so the key itself is no longer good. */
	if (piece->op.status == IBV_WC_REM_ACCESS_ERR)
		return err_set(err, -ESTALE, "%s: the memory was removed while it was being used", t->conn->address);
	return conn_cut(t->conn, err);
}

int transfer_run(struct mrshare *conn, bool write, const struct mrshare_entry *entries, const bool *withdrawn,
	uint64_t offset, void *buf, size_t size, struct err *err)
{
	struct transfer t = {
		.conn = conn,
		.write = write,
		.entry = entries,
		.withdrawn = withdrawn,
		.offset = offset,
		.user = buf,
		.left = size,
	};
	if (!buffer_find(conn, buf, size, &t.lkey)) {
		int r = endpoint_need_stage(conn, err);
		if (r < 0)
			return r;
		t.staged = true;
		t.lkey = conn->stage_mr->lkey;
	}

	/* The first failure counts; what is on the wire is waited for in every case. */
	int result = 0;
	while ((t.left && result == 0) || t.head != t.tail) {
		if (t.left && result == 0 && t.tail - t.head < PIECES_MAX) {
			result = post_next(&t, err);
			continue;
		}
		int r = finish_next(&t, result == 0 ? err : NULL);
		if (result == 0)
			result = r;
	}
	return result;
}
