/* vring.c: a split virtqueue in memory that may be hostile. */
/* SPDX-License-Identifier: BSD-2-Clause */
/* Source: VIRTIO 1.3, "Split Virtqueues". */
#include "vhost/vring.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"

struct virtqueue {
	unsigned int max_num, num; /* num 0: not set */
	struct vring_addrs addrs;
	bool has_addrs;

	bool running;
	struct memory *memory;
	enum memory_kind kind; /* of addrs */
	uint64_t features;

	uint16_t next_avail, next_used; /* free-running, as in the ring */
	unsigned int unanswered;
	uint16_t called_at; /* next_used when vring_needs_call() was last asked */
	bool has_called_at; /* it was asked since the start */

	struct vring_segment segments[]; /* of the request popped last; max_num of them */
};

/* Where a chain's descriptors are read from: the ring's table or an indirect one. */
struct table {
	enum memory_kind kind;
	uint64_t addr;
	uint32_t count;
	bool is_indirect;
};

int vring_new(unsigned int max_num, struct virtqueue **ret_vq)
{
	struct virtqueue *vq = calloc(1, sizeof(*vq) + max_num * sizeof(vq->segments[0]));
	if (!vq)
		return -ENOMEM;
	vq->max_num = max_num;
	*ret_vq = vq;
	return 0;
}

void vring_free(struct virtqueue **vq)
{
	free(*vq);
	*vq = NULL;
}

/*
 * Setting up.
 */

static int check_stopped(const struct virtqueue *vq, struct err *err)
{
	return vq->running ? err_set(err, -EBUSY, "the ring is running: stop it first") : 0;
}

int vring_set_num(struct virtqueue *vq, uint32_t num, struct err *err)
{
	int r = check_stopped(vq, err);
	if (r < 0)
		return r;
	if (num == 0 || num & (num - 1) || num > vq->max_num)
		return err_set(
			err, -EINVAL, "a ring of %u descriptors: it must be a power of two up to %u", num, vq->max_num);
	vq->num = num;
	return 0;
}

int vring_set_addrs(struct virtqueue *vq, const struct vring_addrs *addrs, struct err *err)
{
	int r = check_stopped(vq, err);
	if (r < 0)
		return r;
	if (!is_aligned(addrs->desc, VRING_DESC_ALIGN_SIZE) || !is_aligned(addrs->avail, VRING_AVAIL_ALIGN_SIZE) ||
		!is_aligned(addrs->used, VRING_USED_ALIGN_SIZE))
		return err_set(err, -EINVAL,
			"the ring's addresses %#llx, %#llx and %#llx are not aligned to %d, %d and %d",
			(unsigned long long)addrs->desc, (unsigned long long)addrs->avail,
			(unsigned long long)addrs->used, VRING_DESC_ALIGN_SIZE, VRING_AVAIL_ALIGN_SIZE,
			VRING_USED_ALIGN_SIZE);
	vq->addrs = *addrs;
	vq->has_addrs = true;
	return 0;
}

int vring_set_base(struct virtqueue *vq, uint32_t base, struct err *err)
{
	int r = check_stopped(vq, err);
	if (r < 0)
		return r;
	if (base > UINT16_MAX)
		return err_set(err, -EINVAL, "the ring's base %u is no 16-bit index", base);
	vq->next_avail = (uint16_t)base;
	vq->unanswered = 0;
	return 0;
}

uint16_t vring_base(const struct virtqueue *vq)
{
	return (uint16_t)(vq->next_avail - vq->unanswered);
}

static bool has_feature(const struct virtqueue *vq, unsigned int bit)
{
	return vq->features & (UINT64_C(1) << bit);
}

/* The size of the avail and the used ring: flags, index, entries, and the event index where there is one. */
static uint64_t ring_size(const struct virtqueue *vq, size_t entry_size)
{
	return 4 + vq->num * entry_size + (has_feature(vq, VIRTIO_RING_F_EVENT_IDX) ? 2 : 0);
}

static int check_place(struct virtqueue *vq, const char *what, uint64_t addr, uint64_t size, struct err *err)
{
	int r = memory_check(vq->memory, vq->kind, addr, size);
	return r < 0 ? err_set(err, r,
			       "the ring's %s at %#llx is not inside one region of the memory table that we may "
			       "access",
			       what, (unsigned long long)addr)
		     : 0;
}

static int check_places(struct virtqueue *vq, struct err *err)
{
	const struct vring_addrs *addrs = &vq->addrs;
	int r = check_place(vq, "descriptor table", addrs->desc, vq->num * sizeof(struct vring_desc), err);
	if (r == 0)
		r = check_place(vq, "avail ring", addrs->avail, ring_size(vq, sizeof(uint16_t)), err);
	if (r == 0)
		r = check_place(vq, "used ring", addrs->used, ring_size(vq, sizeof(struct vring_used_elem)), err);
	return r;
}

int vring_start(struct virtqueue *vq, struct memory *memory, enum memory_kind kind, uint64_t features, struct err *err)
{
	int r = check_stopped(vq, err);
	if (r < 0)
		return r;
	if (!vq->num || !vq->has_addrs || !memory)
		return err_set(err, -EINVAL, "the ring was started before its %s",
			!memory    ? "memory table was sent"
			: !vq->num ? "number of descriptors was set"
				   : "addresses were set");
	vring_stop(vq);
	vq->memory = memory;
	vq->kind = kind;
	vq->features = features;
	r = check_places(vq, err);
	if (r < 0)
		return r;
	/* We never ask the driver not to kick, but who served the ring before may have. */
	r = memory_store_u16(memory, kind, vq->addrs.used + offsetof(struct vring_used, flags), 0);
	if (r == 0)
		r = memory_load_u16(memory, kind, vq->addrs.used + offsetof(struct vring_used, idx), &vq->next_used);
	if (r < 0)
		return err_set(err, r, "the ring's memory has gone");
	vq->has_called_at = false;
	vq->called_at = vq->next_used;
	vq->running = true;
	return 0;
}

void vring_stop(struct virtqueue *vq)
{
	vq->running = false;
	vq->next_avail = vring_base(vq);
	vq->unanswered = 0;
}

bool vring_is_running(const struct virtqueue *vq)
{
	return vq->running;
}

void vring_set_memory(struct virtqueue *vq, struct memory *memory)
{
	vq->memory = memory;
}

/*
 * Breaking.
 */

static int ring_break(struct virtqueue *vq, struct err *err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static int ring_break(struct virtqueue *vq, struct err *err, const char *format, ...)
{
	char text[200];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	vq->running = false;
	return err_set(err, -EPROTO, "%s", text);
}

/* After a failed access. */
static int access_break(struct virtqueue *vq, int code, const char *what, uint64_t addr, struct err *err)
{
	if (code != -EIO)
		return ring_break(vq, err,
			"%s at %#llx is not inside one region of the memory table that we may access", what,
			(unsigned long long)addr);
	vq->running = false;
	return err_set(err, code, "%s at %#llx: the file of that memory was truncated, or its file system is full",
		what, (unsigned long long)addr);
}

static int load_u16(struct virtqueue *vq, uint64_t addr, uint16_t *ret_value, struct err *err)
{
	int r = memory_load_u16(vq->memory, vq->kind, addr, ret_value);
	return r < 0 ? access_break(vq, r, "the ring", addr, err) : 0;
}

static int store_u16(struct virtqueue *vq, uint64_t addr, uint16_t value, struct err *err)
{
	int r = memory_store_u16(vq->memory, vq->kind, addr, value);
	return r < 0 ? access_break(vq, r, "the ring", addr, err) : 0;
}

static int load_avail(struct virtqueue *vq, size_t offset, uint16_t *ret_value, struct err *err)
{
	return load_u16(vq, vq->addrs.avail + offset, ret_value, err);
}

/*
 * Requests.
 */

static int read_desc(
	struct virtqueue *vq, const struct table *table, uint32_t index, struct vring_desc *ret_desc, struct err *err)
{
	if (index >= table->count)
		return ring_break(
			vq, err, "descriptor %u is beyond the end of its table, which has %u", index, table->count);
	struct vring_desc desc;
	uint64_t addr = table->addr + index * sizeof(desc);
	int r = memory_read(vq->memory, table->kind, addr, &desc, sizeof(desc));
	if (r < 0)
		return access_break(vq, r, "a descriptor", addr, err);
	*ret_desc =
		(struct vring_desc){ le64toh(desc.addr), le32toh(desc.len), le16toh(desc.flags), le16toh(desc.next) };
	return 0;
}

/* Goes on in the indirect table that a descriptor names. */
static int enter_indirect(struct virtqueue *vq, const struct vring_desc *desc, struct table *table, struct err *err)
{
	if (!has_feature(vq, VIRTIO_RING_F_INDIRECT_DESC))
		return ring_break(vq, err, "an indirect descriptor, though the feature is not acknowledged");
	if (table->is_indirect)
		return ring_break(vq, err, "an indirect descriptor in an indirect table");
	if (desc->flags & VRING_DESC_F_NEXT)
		return ring_break(vq, err, "an indirect descriptor that has a next one");
	if (desc->len == 0 || desc->len % sizeof(struct vring_desc))
		return ring_break(vq, err, "an indirect table of %u bytes", desc->len);
	int r = memory_check(vq->memory, MEMORY_GUEST_ADDR, desc->addr, desc->len);
	if (r < 0)
		return access_break(vq, r, "an indirect table", desc->addr, err);
	*table = (struct table){ MEMORY_GUEST_ADDR, desc->addr, desc->len / sizeof(struct vring_desc), true };
	return 0;
}

static int add_segment(
	struct virtqueue *vq, const struct vring_desc *desc, struct vring_request *request, struct err *err)
{
	bool writable = desc->flags & VRING_DESC_F_WRITE;
	unsigned int count = request->readable_count + request->writable_count;
	uint64_t total = request->readable_len + request->writable_len;
	if (count == vq->num)
		return ring_break(vq, err, "a chain of more than %u descriptors, or without an end", vq->num);
	if (desc->len == 0)
		return ring_break(vq, err, "a buffer of 0 bytes");
	if (desc->len > UINT32_MAX - total)
		return ring_break(vq, err, "buffers of more than 2^32 - 1 bytes in one chain");
	if (!writable && request->writable_count)
		return ring_break(vq, err, "a buffer to read after one to write");
	int r = memory_check(vq->memory, MEMORY_GUEST_ADDR, desc->addr, desc->len);
	if (r < 0)
		return access_break(vq, r, "a buffer", desc->addr, err);

	vq->segments[count] = (struct vring_segment){ desc->addr, desc->len, writable };
	*(writable ? &request->writable_count : &request->readable_count) += 1;
	*(writable ? &request->writable_len : &request->readable_len) += desc->len;
	return 0;
}

static int walk_chain(struct virtqueue *vq, struct vring_request *request, struct err *err)
{
	struct table table = { vq->kind, vq->addrs.desc, vq->num, false };
	struct vring_desc desc = { .next = request->head };
	do {
		int r = read_desc(vq, &table, desc.next, &desc, err);
		if (r < 0)
			return r;
		if (desc.flags & VRING_DESC_F_INDIRECT) {
			r = enter_indirect(vq, &desc, &table, err);
			desc = (struct vring_desc){ .flags = VRING_DESC_F_NEXT, .next = 0 };
		} else {
			r = add_segment(vq, &desc, request, err);
		}
		if (r < 0)
			return r;
	} while (desc.flags & VRING_DESC_F_NEXT);
	return 0;
}

/* How many requests the driver offers. Where there are none it is asked to kick for the next. */
static int count_offered(struct virtqueue *vq, struct err *err)
{
	uint16_t idx;
	int r = load_avail(vq, offsetof(struct vring_avail, idx), &idx, err);
	if (r == 0 && idx == vq->next_avail && has_feature(vq, VIRTIO_RING_F_EVENT_IDX)) {
		uint64_t avail_event =
			vq->addrs.used + offsetof(struct vring_used, ring) + vq->num * sizeof(struct vring_used_elem);
		r = store_u16(vq, avail_event, idx, err);
		/* One that came meanwhile may not be kicked for. */
		atomic_thread_fence(memory_order_seq_cst);
		if (r == 0)
			r = load_avail(vq, offsetof(struct vring_avail, idx), &idx, err);
	}
	if (r < 0)
		return r;
	uint16_t offered = (uint16_t)(idx - vq->next_avail);
	if (offered > vq->num - vq->unanswered)
		return ring_break(vq, err,
			"the avail index jumps from %u to %u, with %u requests unanswered, in a ring of %u",
			vq->next_avail, idx, vq->unanswered, vq->num);
	return offered;
}

int vring_pop(struct virtqueue *vq, struct vring_request *ret_request, struct err *err)
{
	if (!vq->running)
		return 0;
	int r = count_offered(vq, err);
	if (r <= 0)
		return r;
	struct vring_request request = { .segments = vq->segments };
	size_t entry = vq->next_avail % vq->num;
	r = load_avail(vq, offsetof(struct vring_avail, ring) + entry * sizeof(uint16_t), &request.head, err);
	if (r == 0)
		r = walk_chain(vq, &request, err);
	if (r < 0)
		return r;
	vq->next_avail++;
	vq->unanswered++;
	*ret_request = request;
	return 1;
}

int vring_push(struct virtqueue *vq, uint16_t head, uint32_t written, struct err *err)
{
	if (!vq->running)
		return 0;
	struct vring_used_elem elem = { htole32(head), htole32(written) };
	size_t entry = vq->next_used % vq->num;
	uint64_t addr = vq->addrs.used + offsetof(struct vring_used, ring) + entry * sizeof(elem);
	int r = memory_write(vq->memory, vq->kind, addr, &elem, sizeof(elem));
	if (r < 0)
		return access_break(vq, r, "the ring", addr, err);
	r = store_u16(vq, vq->addrs.used + offsetof(struct vring_used, idx), (uint16_t)(vq->next_used + 1), err);
	if (r < 0)
		return r;
	vq->next_used++;
	vq->unanswered--;
	return 0;
}

int vring_needs_call(struct virtqueue *vq, struct err *err)
{
	if (!vq->running || vq->next_used == vq->called_at)
		return 0;
	/* The used index is out before we look at what the driver wants. */
	atomic_thread_fence(memory_order_seq_cst);
	bool by_index = has_feature(vq, VIRTIO_RING_F_EVENT_IDX);
	uint16_t wanted, old = vq->called_at;
	int r = load_avail(vq,
		by_index ? offsetof(struct vring_avail, ring) + vq->num * sizeof(uint16_t)
			 : offsetof(struct vring_avail, flags),
		&wanted, err);
	if (r < 0)
		return r;
	bool first = !vq->has_called_at;
	vq->called_at = vq->next_used;
	vq->has_called_at = true;
	if (!by_index)
		return !(wanted & VRING_AVAIL_F_NO_INTERRUPT);
	/* What was pushed before the start may not have been called for. */
	return first || vring_need_event(wanted, vq->next_used, old);
}

/*
 * Buffers.
 */

int vring_read(struct virtqueue *vq, const struct vring_segment *segments, void *ret_buf, size_t len, struct err *err)
{
	char *buf = ret_buf;
	for (size_t done = 0, n; done < len; done += n, segments++) {
		n = segments->len < len - done ? segments->len : len - done;
		int r = memory_read(vq->memory, MEMORY_GUEST_ADDR, segments->addr, buf + done, n);
		if (r < 0)
			return access_break(vq, r, "a buffer", segments->addr, err);
	}
	return 0;
}

int vring_write(
	struct virtqueue *vq, const struct vring_segment *segments, const void *buf, size_t len, struct err *err)
{
	const char *bytes = buf;
	for (size_t done = 0, n; done < len; done += n, segments++) {
		n = segments->len < len - done ? segments->len : len - done;
		int r = memory_write(vq->memory, MEMORY_GUEST_ADDR, segments->addr, bytes + done, n);
		if (r < 0)
			return access_break(vq, r, "a buffer", segments->addr, err);
	}
	return 0;
}
