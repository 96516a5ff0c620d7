/* io.c: transfers by (region, offset): what may be refused is refused before the wire. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>

#include "base/range.h"
#include "base/size.h"
#include "libmrshare/conn.h"

static unsigned int right_for(const struct op *op)
{
	return op->type == OP_READ ? MRSHARE_READ : op->type == OP_WRITE ? MRSHARE_WRITE : MRSHARE_ATOMIC;
}

/* The first entry that ends behind (shmid, offset), or the number of entries. */
static size_t find_entry(const struct snapshot *snapshot, uint8_t shmid, uint64_t offset)
{
	size_t low = 0, high = snapshot->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct mrshare_entry *entry = &snapshot->entries[middle];
		/* Subtracted: a foreign offset and size may go beyond every number. */
		if (entry->shmid < shmid || (entry->shmid == shmid && offset >= entry->shm_offset &&
						    offset - entry->shm_offset >= entry->view.size))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int hole(const struct mrshare *conn, uint8_t shmid, uint64_t from, uint64_t to, struct err *err)
{
	return err_set(err, -ENXIO, "%s: region %u: nothing is mapped from 0x%" PRIx64 " to 0x%" PRIx64 " (%s)",
		conn->address, shmid, from, to, size_format(to - from).text);
}

/* Whether entries from `first` on cover the operation's range without a hole, each with the right wanted. */
static int check_range(const struct mrshare *conn, const struct op *op, size_t first, struct err *err)
{
	static const char *const lacks[] = {
		[MRSHARE_READ] = "not readable",
		[MRSHARE_WRITE] = "read-only",
		[MRSHARE_ATOMIC] = "not for atomics",
	};
	const struct snapshot *snapshot = conn->snapshot;
	uint64_t pos = op->offset, left = op->left;
	for (size_t i = first; left; i++) {
		const struct mrshare_entry *entry = i < snapshot->count ? &snapshot->entries[i] : NULL;
		if (!entry || snapshot->withdrawn[i] || entry->shmid != op->shmid || entry->shm_offset > pos) {
			bool before_next = entry && entry->shmid == op->shmid && entry->shm_offset > pos &&
					   entry->shm_offset - pos < left;
			return hole(conn, op->shmid, pos, before_next ? entry->shm_offset : pos + left, err);
		}
		if (!(entry->access & right_for(op)))
			return err_set(err, -EACCES, "%s: region %u: the mapping at 0x%" PRIx64 " is %s", conn->address,
				op->shmid, pos, lacks[right_for(op)]);
		uint64_t here = entry->view.size - (pos - entry->shm_offset);
		if (here >= left)
			return 0;
		pos += here;
		left -= here;
	}
	return 0;
}

static int check_granted(const struct mrshare *conn, const struct op *op, struct err *err)
{
	if (conn->granted & right_for(op))
		return 0;
	if (op->type != OP_READ && !conn->want_write)
		return err_set(err, -EACCES, "%s: the right to write was not asked for", conn->address);
	return err_set(err, -EACCES, "%s: the daemon does not let this peer %s", conn->address,
		op->type == OP_READ    ? "read"
		: op->type == OP_WRITE ? "write"
				       : "use atomics: its first device alone may have them");
}

/* Whether the range is all there and allowed; 1 where that has to wait for the views. */
static int check(struct mrshare *conn, struct op *op, struct err *err)
{
	int r = check_granted(conn, op, err);
	if (r < 0)
		return r;
	if (!conn->snapshot)
		return 1;
	size_t first = find_entry(conn->snapshot, op->shmid, op->offset);
	r = check_range(conn, op, first, err);
	/* What is not there may be in views that are newer. */
	if (r < 0)
		return views_stale(conn) ? 1 : r;
	op->snapshot = snapshot_ref(conn->snapshot);
	op->entry = first;
	return 0;
}

bool io_ready(struct mrshare *conn, struct op *op)
{
	struct err err;
	if (op->type == OP_CATALOG)
		return true;
	int r = op->snapshot ? 0 : check(conn, op, &err);
	if (r > 0) {
		op_move(conn, op, OP_VIEWS);
		views_need(conn);
		return false;
	}
	if (r == 0) {
		const struct mrshare_entry *entries = op->snapshot->entries;
		if (op->offset - entries[op->entry].shm_offset == entries[op->entry].view.size)
			op->entry++;
		if (op->snapshot->withdrawn[op->entry])
			r = err_set(&err, -ESTALE, "%s: region %u at 0x%" PRIx64 ": removed while it was being used",
				conn->address, op->shmid, op->offset);
	}
	if (r < 0)
		op_end(conn, op, err.code, err.text);
	return r == 0;
}

/*
 * Calls
 */

/* What a transfer is asked for with. */
struct transfer {
	enum op_type type;
	uint8_t shmid;
	uint64_t offset;
	void *buf;
	size_t size;
	uint64_t operand, expected;
};

static int check_arguments(const struct transfer *transfer, struct err *err)
{
	if (range_overflows(transfer->offset, transfer->size))
		return err_set(err, -EOVERFLOW, "region %u: 0x%" PRIx64 " + %zu bytes is beyond every address",
			transfer->shmid, transfer->offset, transfer->size);
	if (transfer->type != OP_READ && transfer->type != OP_WRITE && !is_aligned(transfer->offset, sizeof(uint64_t)))
		return err_set(err, -EINVAL,
			"region %u: atomics need an offset that is a multiple of 8, not 0x%" PRIx64, transfer->shmid,
			transfer->offset);
	return 0;
}

/* Leaves the connection locked where it succeeds. */
static int start(struct mrshare *conn, const char *call, const struct transfer *transfer, const struct mrshare_how *how,
	bool waited, struct op **ret_op)
{
	struct err err;
	struct op *op;
	int r = conn_enter(conn, call);
	if (r < 0)
		return r;
	r = check_arguments(transfer, &err);
	if (r == 0)
		r = op_new(conn, transfer->type, call, how, waited, &op, &err);
	if (r < 0) {
		pthread_mutex_unlock(&conn->mutex);
		return error_publish(&err);
	}
	op->shmid = transfer->shmid;
	op->offset = transfer->offset;
	op->user = transfer->buf;
	op->left = transfer->size;
	op->operand = transfer->operand;
	op->expected = transfer->expected;
	*ret_op = op;
	return 0;
}

static int post(struct mrshare *conn, const char *call, const struct transfer *transfer, const struct mrshare_how *how,
	uint64_t *ret_id)
{
	struct op *op;
	int r = start(conn, call, transfer, how, false, &op);
	if (r < 0)
		return r;
	if (ret_id)
		*ret_id = op->id;
	op_post(conn, op);
	pthread_mutex_unlock(&conn->mutex);
	return 0;
}

static int run(struct mrshare *conn, const char *call, const struct transfer *transfer, uint64_t *ret_value)
{
	struct op *op;
	int r = start(conn, call, transfer, NULL, true, &op);
	if (r < 0)
		return r;
	op_post(conn, op);
	return op_wait(conn, op, ret_value);
}

int mrshare_post_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size,
	const struct mrshare_how *how, uint64_t *ret_id)
{
	const struct transfer transfer = {
		.type = OP_READ, .shmid = shmid, .offset = shm_offset, .buf = buf, .size = size
	};
	return post(conn, __func__, &transfer, how, ret_id);
}

int mrshare_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size)
{
	const struct transfer transfer = {
		.type = OP_READ, .shmid = shmid, .offset = shm_offset, .buf = buf, .size = size
	};
	return run(conn, __func__, &transfer, NULL);
}

/* The device only reads from it. */
static struct transfer write_of(uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size)
{
	return (struct transfer){
		.type = OP_WRITE,
		.shmid = shmid,
		.offset = shm_offset,
		.buf = (void *)(uintptr_t)buf,
		.size = size,
	};
}

int mrshare_post_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size,
	const struct mrshare_how *how, uint64_t *ret_id)
{
	const struct transfer transfer = write_of(shmid, shm_offset, buf, size);
	return post(conn, __func__, &transfer, how, ret_id);
}

int mrshare_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size)
{
	const struct transfer transfer = write_of(shmid, shm_offset, buf, size);
	return run(conn, __func__, &transfer, NULL);
}

static struct transfer fetch_add_of(uint8_t shmid, uint64_t shm_offset, uint64_t add)
{
	return (struct transfer){
		.type = OP_FETCH_ADD,
		.shmid = shmid,
		.offset = shm_offset,
		.size = sizeof(uint64_t),
		.operand = add,
	};
}

int mrshare_post_fetch_add(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t add,
	const struct mrshare_how *how, uint64_t *ret_id)
{
	const struct transfer transfer = fetch_add_of(shmid, shm_offset, add);
	return post(conn, __func__, &transfer, how, ret_id);
}

int mrshare_fetch_add(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t add, uint64_t *ret_old)
{
	const struct transfer transfer = fetch_add_of(shmid, shm_offset, add);
	return run(conn, __func__, &transfer, ret_old);
}

static struct transfer compare_swap_of(uint8_t shmid, uint64_t shm_offset, uint64_t expected, uint64_t desired)
{
	return (struct transfer){
		.type = OP_COMPARE_SWAP,
		.shmid = shmid,
		.offset = shm_offset,
		.size = sizeof(uint64_t),
		.operand = desired,
		.expected = expected,
	};
}

int mrshare_post_compare_swap(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t expected,
	uint64_t desired, const struct mrshare_how *how, uint64_t *ret_id)
{
	const struct transfer transfer = compare_swap_of(shmid, shm_offset, expected, desired);
	return post(conn, __func__, &transfer, how, ret_id);
}

int mrshare_compare_swap(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t expected, uint64_t desired,
	uint64_t *ret_old)
{
	const struct transfer transfer = compare_swap_of(shmid, shm_offset, expected, desired);
	return run(conn, __func__, &transfer, ret_old);
}
