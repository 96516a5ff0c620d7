/* io.c: read and write by (region, offset): what may be refused is refused before the wire. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>

#include "base/range.h"
#include "base/size.h"
#include "libmrshare/conn.h"

/* The first entry that ends behind (shmid, offset), or the number of entries. */
static size_t find_entry(const struct snapshot *snapshot, uint8_t shmid, uint64_t offset)
{
	size_t low = 0, high = snapshot->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct mrshare_entry *entry = &snapshot->entries[middle];
		if (entry->shmid < shmid || (entry->shmid == shmid && entry->shm_offset + entry->view.size <= offset))
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

/* Whether entries from `first` on cover [offset, end) without a hole, each with the right wanted. */
static int check_range(const struct mrshare *conn, bool write, uint8_t shmid, uint64_t offset, uint64_t end,
	size_t first, struct err *err)
{
	const struct snapshot *snapshot = &conn->snapshot;
	unsigned int right = write ? MRSHARE_WRITE : MRSHARE_READ;
	uint64_t pos = offset;
	for (size_t i = first; pos < end; i++) {
		const struct mrshare_entry *entry = i < snapshot->count ? &snapshot->entries[i] : NULL;
		if (!entry || entry->shmid != shmid || entry->shm_offset >= end)
			return hole(conn, shmid, pos, end, err);
		if (entry->shm_offset > pos)
			return hole(conn, shmid, pos, entry->shm_offset, err);
		if (!(entry->access & right))
			return err_set(err, -EACCES, "%s: region %u: the mapping at 0x%" PRIx64 " is %s", conn->address,
				shmid, pos, write ? "read-only" : "not readable");
		pos = entry->shm_offset + entry->view.size;
	}
	return 0;
}

static int run(
	struct mrshare *conn, bool write, uint8_t shmid, uint64_t offset, void *buf, size_t size, struct err *err)
{
	if (range_overflows(offset, size))
		return err_set(err, -EOVERFLOW, "region %u: 0x%" PRIx64 " + %zu bytes is beyond every address", shmid,
			offset, size);
	if (!(conn->granted & (write ? MRSHARE_WRITE : MRSHARE_READ)))
		return err_set(err, -EACCES, "%s: the daemon does not let this peer %s%s", conn->address,
			write ? "write" : "read", write && !conn->want_write ? ": the right was not asked for" : "");

	int r = views_refresh(conn, true, err);
	if (r < 0)
		return r;
	size_t first = find_entry(&conn->snapshot, shmid, offset);
	r = check_range(conn, write, shmid, offset, offset + size, first, err);
	if (r < 0)
		return r;
	return transfer_run(
		conn, write, conn->snapshot.entries + first, conn->snapshot.withdrawn + first, offset, buf, size, err);
}

static int call(struct mrshare *conn, bool write, uint8_t shmid, uint64_t offset, void *buf, size_t size)
{
	struct err err;
	int r = conn_begin_up(conn, &err);
	if (r < 0)
		return error_publish(&err);
	r = size ? run(conn, write, shmid, offset, buf, size, &err) : 0;
	conn_end(conn);
	return r < 0 ? error_publish(&err) : 0;
}

int mrshare_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size)
{
	return call(conn, false, shmid, shm_offset, buf, size);
}

int mrshare_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size)
{
	/* The device only reads from it. */
	return call(conn, true, shmid, shm_offset, (void *)(uintptr_t)buf, size);
}
