/* sendq.c: the send queue: operations cut into work requests, their completions, acks in between. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "libmrshare/conn.h"

enum {
	SIGNAL_EVERY = 4, /* of work requests that are posted behind one another */
	STAGE_ALIGN = 64,
};

/* What goes on the wire as one work request. */
struct piece {
	uint32_t size;
	uint32_t lkey;  /* of the caller's memory, where it is registered */
	bool inlined;   /* the device takes the bytes with the work request */
	bool staged;    /* they go through our memory */
	uint32_t taken; /* of the stage */
};

static struct record *record_at(struct mrshare *conn, uint32_t index)
{
	return &conn->records[index % SENDS_MAX];
}

bool sendq_empty(const struct mrshare *conn)
{
	return conn->head == conn->tail;
}

static bool is_atomic(const struct op *op)
{
	return op->type == OP_FETCH_ADD || op->type == OP_COMPARE_SWAP;
}

static uint32_t piece_size(const struct mrshare *conn, const struct op *op)
{
	uint64_t size = op->left < conn->piece_max ? op->left : conn->piece_max;
	if (op->snapshot) {
		const struct mrshare_entry *entry = &op->snapshot->entries[op->entry];
		uint64_t entry_left = entry->view.size - (op->offset - entry->shm_offset);
		size = entry_left < size ? entry_left : size;
	}
	return (uint32_t)size;
}

/* The bytes of the stage that `size` bytes take, the rest before its end included where they do not fit there. */
static uint32_t stage_need(const struct mrshare *conn, uint32_t size)
{
	uint32_t at = conn->stage_tail % WIRE_BYTES, whole = (size + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
	return at + whole <= WIRE_BYTES ? whole : WIRE_BYTES - at + whole;
}

/* Cuts the next piece. Whether there is room for it. */
static bool cut_piece(const struct mrshare *conn, const struct op *op, struct piece *ret_piece)
{
	if (conn->tail - conn->head - conn->acks_on_wire >= conn->sends_max - ACKS_MAX)
		return false;
	struct piece piece = { .size = piece_size(conn, op) };
	piece.inlined = op->type == OP_WRITE && piece.size <= conn->inline_max;
	piece.staged = !piece.inlined && (is_atomic(op) || !buffer_find(conn, op->user, piece.size, &piece.lkey));
	if (piece.staged) {
		piece.taken = stage_need(conn, piece.size);
		if (conn->stage_tail - conn->stage_head + piece.taken > WIRE_BYTES)
			return false;
	}
	if (conn->wire_bytes + piece.size > WIRE_BYTES)
		return false;
	*ret_piece = piece;
	return true;
}

/* The first operation that can go on, and its next piece. */
static struct op *next_piece(struct mrshare *conn, struct piece *ret_piece)
{
	struct op *op;
	while (conn->state == CONN_UP && (op = TAILQ_FIRST(&conn->lists[OP_QUEUED]))) {
		if (io_ready(conn, op))
			return cut_piece(conn, op, ret_piece) ? op : NULL;
	}
	return NULL;
}

static enum ibv_wr_opcode opcode_of(const struct op *op)
{
	switch (op->type) {
	case OP_WRITE:
		return IBV_WR_RDMA_WRITE;
	case OP_FETCH_ADD:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	case OP_COMPARE_SWAP:
		return IBV_WR_ATOMIC_CMP_AND_SWP;
	default:
		return IBV_WR_RDMA_READ;
	}
}

static uint8_t *take_stage(struct mrshare *conn, const struct piece *piece)
{
	conn->stage_tail += piece->taken;
	uint32_t whole = (piece->size + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
	return conn->memory + (conn->stage_tail - whole) % WIRE_BYTES;
}

static void remote_part(const struct mrshare *conn, const struct op *op, struct ibv_send_wr *wr)
{
	const struct mrshare_entry *entry = op->snapshot ? &op->snapshot->entries[op->entry] : NULL;
	uint64_t addr = entry ? entry->view.addr + (op->offset - entry->shm_offset) : conn->catalog.addr + op->offset;
	uint32_t rkey = entry ? entry->view.rkey : conn->catalog.rkey;
	if (is_atomic(op)) {
		wr->wr.atomic.remote_addr = addr;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = op->type == OP_FETCH_ADD ? op->operand : op->expected;
		wr->wr.atomic.swap = op->operand;
	} else {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
	}
}

/* Makes the record and the work request of a piece, and advances its operation. */
static void take_piece(struct mrshare *conn, struct op *op, const struct piece *piece, struct ibv_send_wr *ret_wr,
	struct ibv_sge *ret_sge)
{
	uint8_t *memory = piece->staged ? take_stage(conn, piece) : op->user;
	if (piece->staged && op->type == OP_WRITE)
		memcpy(memory, op->user, piece->size);
	const struct mrshare_entry *entry = op->snapshot ? &op->snapshot->entries[op->entry] : NULL;
	*record_at(conn, conn->tail) = (struct record){
		.op = op,
		.mapping_id = entry ? entry->mapping_id : 0,
		.offset = op->offset,
		.generation = entry ? op->snapshot->generation : 0,
		.user = piece->staged && op->type != OP_WRITE ? op->user : NULL,
		.stage = memory,
		.size = piece->size,
		.stage_taken = piece->taken,
	};
	*ret_sge = (struct ibv_sge){
		.addr = (uintptr_t)memory,
		.length = piece->size,
		.lkey = piece->staged ? conn->memory_mr->lkey : piece->lkey,
	};
	*ret_wr = (struct ibv_send_wr){
		.wr_id = conn->tail++,
		.sg_list = ret_sge,
		.num_sge = 1,
		.opcode = opcode_of(op),
		.send_flags = piece->inlined ? IBV_SEND_INLINE : 0,
	};
	remote_part(conn, op, ret_wr);

	conn->wire_bytes += piece->size;
	op->on_wire++;
	op->zero_copy |= !piece->staged && !piece->inlined;
	op->offset += piece->size;
	op->user += is_atomic(op) ? 0 : piece->size;
	op->left -= piece->size;
	/* Behind the others: a long transfer and a short one share the wire. */
	op_move(conn, op, op->left ? OP_QUEUED : OP_WIRE);
}

static void mark_progress(struct mrshare *conn)
{
	conn->progress_ms = clock_ms();
	time_due(conn, conn->progress_ms + conn->timeout_ms);
}

/* The last piece taken did not go on the wire. */
static void untake_piece(struct mrshare *conn)
{
	const struct record *record = record_at(conn, --conn->tail);
	struct op *op = record->op;
	conn->stage_tail -= record->stage_taken;
	conn->wire_bytes -= record->size;
	if (op)
		op->on_wire--;
	if (op && op->ended && op->on_wire == 0)
		op_finish(conn, op);
}

void sendq_pump(struct mrshare *conn)
{
	struct piece piece;
	unsigned int unsignalled = 0;
	for (struct op *op = next_piece(conn, &piece); op;) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		if (sendq_empty(conn))
			mark_progress(conn);
		take_piece(conn, op, &piece, &wr, &sge);
		/* The completion of a work request tells of those before it: one that is followed needs none. */
		op = next_piece(conn, &piece);
		if (!op || ++unsignalled == SIGNAL_EVERY) {
			wr.send_flags |= IBV_SEND_SIGNALED;
			unsignalled = 0;
		}
		int r = verbs_post_send(conn->id->qp, &wr);
		if (r < 0) {
			untake_piece(conn);
			conn_drop(conn, -ECONNRESET, "the device takes no work request: %s", strerror(-r));
			return;
		}
	}
}

void sendq_detach(struct mrshare *conn, struct op *op)
{
	for (uint32_t i = conn->head; i != conn->tail; i++) {
		struct record *record = record_at(conn, i);
		if (record->op == op) {
			record->op = NULL;
			op->on_wire--;
		}
	}
}

static const char *status_words(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
		/* Without an error before it: rdma_cm has heard of the other side's end. */
		return "the daemon closed the connection";
	case IBV_WC_RETRY_EXC_ERR:
		return "the daemon's host does not answer";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the daemon takes no messages any more";
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return "the daemon's device refused an access: the memory was removed meanwhile";
	default:
		return verbs_wc_status_name(status);
	}
}

static void take_result(const struct record *record)
{
	struct op *op = record->op;
	if (is_atomic(op))
		memcpy(&op->value, record->stage, sizeof(op->value));
	else if (record->user)
		memcpy(record->user, record->stage, record->size);
}

/* The first work request on the wire is over. */
static void complete_first(struct mrshare *conn, enum ibv_wc_status status)
{
	struct record record = *record_at(conn, conn->head++);
	conn->stage_head += record.stage_taken;
	conn->wire_bytes -= record.ack ? 0 : record.size;
	conn->acks_on_wire -= record.ack ? 1 : 0;
	/* Begun anew where it can be: the same bytes again and again are in the cache. */
	if (sendq_empty(conn))
		conn->stage_head = conn->stage_tail = 0;
	struct op *op = record.op;
	if (!op)
		return;
	if (status == IBV_WC_SUCCESS)
		take_result(&record);
	op->on_wire--;
	if (op->left && !op->ended)
		return;
	/* What fails has been ended by conn_drop(). */
	if (op->on_wire == 0)
		op_finish(conn, op);
}

/* Bounds and rights were checked before the wire, so the key itself is no longer good. */
static void end_removed(struct mrshare *conn, uint32_t index)
{
	const struct record *record = record_at(conn, index);
	struct op *op = record->op;
	struct err err;
	if (!op || !op->snapshot)
		return;
	err_set(&err, -ESTALE, "%s: region %u: the memory at 0x%" PRIx64 " was removed while it was being used",
		conn->address, op->shmid, record->offset);
	op_end(conn, op, err.code, err.text);
}

static void take_completion(struct mrshare *conn, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	if (index - conn->head >= conn->tail - conn->head) {
		conn_drop(conn, -EIO, "the device reports a completion of something that was not posted");
		return;
	}
	while (conn->head != index)
		complete_first(conn, IBV_WC_SUCCESS);
	if (wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_REM_INV_REQ_ERR)
		end_removed(conn, index);
	if (wc->status != IBV_WC_SUCCESS)
		conn_drop(conn, -ECONNRESET, "%s", status_words(wc->status));
	complete_first(conn, wc->status);
}

void sendq_reap(struct mrshare *conn)
{
	struct ibv_wc wc[SENDS_MAX / SIGNAL_EVERY];
	enum { WC_MAX = sizeof(wc) / sizeof(wc[0]) };
	int n = WC_MAX;
	bool had_some = !sendq_empty(conn);
	while (conn->send_cq && n == WC_MAX) {
		n = verbs_poll_cq(conn->send_cq, WC_MAX, wc);
		if (n < 0)
			conn_drop(conn, n, "the device's completion queue fails: %s", strerror(-n));
		if (n > 0)
			conn->progress_ms = clock_ms();
		for (int i = 0; i < n; i++)
			take_completion(conn, &wc[i]);
	}
	/* The thread ends the connection then; whoever reaps this need not be it. */
	if (had_some && conn->state == CONN_DRAINING && sendq_empty(conn))
		service_wake_thread(conn);
}

void sendq_forget(struct mrshare *conn)
{
	while (!sendq_empty(conn))
		complete_first(conn, IBV_WC_WR_FLUSH_ERR);
}

/* Whether a work request on the wire touches what the notice withdraws. */
static bool is_withdrawn(const struct peer_notice *notice, const struct record *record)
{
	/* Views of that generation or a later one do not have what it withdrew. */
	if (record->mapping_id == 0 || record->generation >= notice->generation)
		return false;
	if (notice->withdrawn_count == PEER_WITHDRAWN_ALL)
		return true;
	for (uint32_t i = 0; i < notice->withdrawn_count; i++) {
		if (notice->withdrawn[i] == record->mapping_id)
			return true;
	}
	return false;
}

static int post_ack(struct mrshare *conn)
{
	uint8_t *bytes = endpoint_ack_frame(conn, conn->next_ack++ % ACKS_MAX);
	const struct peer_frame frame = {
		.type = PEER_FRAME_ACK,
		.ack = { .sequence = conn->notice.sequence, .generation = conn->notice.generation },
	};
	ssize_t size = peer_frame_write(&frame, bytes);
	if (size < 0)
		return (int)size;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = (uint32_t)size, .lkey = conn->memory_mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = conn->tail,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	if (sendq_empty(conn))
		mark_progress(conn);
	int r = verbs_post_send(conn->id->qp, &wr);
	if (r < 0)
		return r;
	*record_at(conn, conn->tail++) = (struct record){ .ack = true };
	conn->acks_on_wire++;
	return 0;
}

void sendq_try_ack(struct mrshare *conn)
{
	/* The daemon may have acks before the device tells us of it. */
	if (!conn->ack_due || conn->state != CONN_UP || conn->acks_on_wire == ACKS_MAX)
		return;
	for (uint32_t i = conn->head; i != conn->tail; i++) {
		if (is_withdrawn(&conn->notice, record_at(conn, i)))
			return;
	}
	int r = post_ack(conn);
	if (r < 0)
		conn_drop(conn, r, "an answer to the daemon cannot be sent: %s", strerror(-r));
	conn->ack_due = false;
}

void sendq_step(struct mrshare *conn)
{
	sendq_reap(conn);
	sendq_try_ack(conn);
	sendq_pump(conn);
	/* A leader that sleeps did not ask for an event if there was nothing on the wire. */
	if (conn->leader_sleeps)
		sendq_arm(conn);
}

void sendq_take_events(struct mrshare *conn)
{
	if (endpoint_take_events(conn, conn->send_channel))
		conn->sends_armed = false;
}

void sendq_arm(struct mrshare *conn)
{
	if (!conn->send_cq || conn->sends_armed || sendq_empty(conn))
		return;
	conn->sends_armed = true;
	int r = verbs_req_notify_cq(conn->send_cq);
	if (r < 0)
		conn_drop(conn, r, "the device's completion queue fails: %s", strerror(-r));
	/* What completed before made no event. */
	sendq_step(conn);
}
