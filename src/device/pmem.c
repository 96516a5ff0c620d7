/* pmem.c: the virtio persistent memory device: its configuration, and its queue of flushes. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Source: VIRTIO 1.4, "PMEM Device". A flush is covered by a sync that starts after it was popped. One sync runs at a
 * time; the flushes that come meanwhile share the next one. All requests, those that are no flush included, are
 * answered in the order in which they came, as the ring wants it.
 */
#include "device/pmem.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"

enum {
	BURST = 64, /* requests after which the loop does something else */
	ANSWER_SIZE = sizeof(struct virtio_pmem_resp),
};

static const uint64_t MIB2 = UINT64_C(2) << 20;

struct request {
	uint16_t head;
	bool done;
	uint32_t ret;  /* once done */
	uint64_t sync; /* the number of the sync that covers it */
	uint64_t arrived_ms;
	uint32_t answer_len; /* less than ANSWER_SIZE where there is no room */
	/* Where the answer goes: no segment is empty. */
	struct vring_segment answer[ANSWER_SIZE];
};

struct pmem {
	struct event_loop *loop;
	const char *name;
	const struct pmem_ops *ops;
	void *data;
	struct event_source *timer; /* for what is left after a burst, else for the oldest flush */
	struct virtqueue *vq;       /* NULL: stopped */

	uint64_t syncs; /* started so far */
	bool sync_runs;
	bool ending; /* every flush fails */

	unsigned int first, count; /* of `requests`, a ring */
	struct request requests[PMEM_QUEUE_NUM_MAX];
};

/*
 * What the device is.
 */

static int check_sum(const uint64_t sizes[256], uint64_t *ret_sum, struct err *err)
{
	*ret_sum = 0;
	for (unsigned int shmid = 0; shmid < 256; shmid++) {
		if (sizes[shmid] > (UINT64_C(1) << 62) - *ret_sum)
			return err_set(err, -EINVAL, "the sizes of the regions sum to more than 2^62 bytes");
		*ret_sum += sizes[shmid];
	}
	return 0;
}

int pmem_check_regions(const uint64_t sizes[256], struct err *err)
{
	uint64_t sum;
	int r = check_sum(sizes, &sum, err);
	if (r < 0)
		return r;
	if (!sizes[0])
		return err_set(err, -EINVAL, "a pmem device is region 0, and there is none: add --shmem 0:SIZE");
	if (sizes[0] % MIB2)
		return err_set(err, -EINVAL,
			"region 0 has %s, but a guest takes multiples of 2 MiB only: the next good size is %s",
			size_format(sizes[0]).text, size_format((sizes[0] / MIB2 + 1) * MIB2).text);
	uint64_t good = 1;
	while (good < sum)
		good *= 2;
	if (sum != good)
		return err_set(err, -EINVAL,
			"the sizes of the regions of one socket sum to %s, but QEMU takes powers of two only: the next "
			"good sum is %s, %s more",
			size_format(sum).text, size_format(good).text, size_format(good - sum).text);
	return 0;
}

struct virtio_pmem_config pmem_config(uint64_t region_size)
{
	return (struct virtio_pmem_config){ .start = htole64(0), .size = htole64(region_size) };
}

/*
 * Requests.
 */

static struct request *nth(struct pmem *pmem, unsigned int i)
{
	return &pmem->requests[(pmem->first + i) % PMEM_QUEUE_NUM_MAX];
}

static void forget_all(struct pmem *pmem)
{
	pmem->first = pmem->count = 0;
	event_timer_stop(pmem->timer);
}

static void on_broken(struct pmem *pmem, const struct err *err)
{
	forget_all(pmem);
	pmem->ops->broken(pmem->data, err);
}

/* Whether it is a flush that can be answered; or the ring broke. */
static int is_flush(struct pmem *pmem, const struct vring_request *popped, struct err *err)
{
	struct virtio_pmem_req req;
	if (popped->readable_len != sizeof(req) || popped->writable_len < ANSWER_SIZE)
		return 0;
	int r = vring_read(pmem->vq, popped->segments, &req, sizeof(req), err);
	return r < 0 ? r : le32toh(req.type) == VIRTIO_PMEM_REQ_TYPE_FLUSH;
}

static int take_one(struct pmem *pmem, struct err *err)
{
	struct vring_request popped;
	int r = vring_pop(pmem->vq, &popped, err);
	if (r <= 0)
		return r;
	r = is_flush(pmem, &popped, err);
	if (r < 0)
		return r;
	struct request *request = nth(pmem, pmem->count++);
	*request = (struct request){
		.head = popped.head,
		.done = !r || pmem->ending,
		.ret = 1,
		.sync = pmem->syncs + 1,
		.arrived_ms = event_now_ms(pmem->loop),
		.answer_len = popped.writable_len < ANSWER_SIZE ? (uint32_t)popped.writable_len : ANSWER_SIZE,
	};
	unsigned int segments = popped.writable_count < ANSWER_SIZE ? popped.writable_count : ANSWER_SIZE;
	memcpy(request->answer, popped.segments + popped.readable_count, segments * sizeof(request->answer[0]));
	return 1;
}

/* Takes what the driver offers. 1: there may be more; or the ring broke. */
static int take(struct pmem *pmem, struct err *err)
{
	for (unsigned int i = 0; i < BURST; i++) {
		if (pmem->count == PMEM_QUEUE_NUM_MAX)
			return 0;
		int r = take_one(pmem, err);
		if (r <= 0)
			return r;
	}
	return 1;
}

/* Answers from the oldest on what is done. 0, or the ring broke. */
static int answer(struct pmem *pmem, struct err *err)
{
	while (pmem->count && nth(pmem, 0)->done) {
		const struct request *request = nth(pmem, 0);
		struct virtio_pmem_resp resp = { htole32(request->ret) };
		int r = vring_write(pmem->vq, request->answer, &resp, request->answer_len, err);
		if (r == 0)
			r = vring_push(pmem->vq, request->head, request->answer_len, err);
		if (r < 0)
			return r;
		pmem->first = (pmem->first + 1) % PMEM_QUEUE_NUM_MAX;
		pmem->count--;
	}
	int r = vring_needs_call(pmem->vq, err);
	if (r > 0)
		pmem->ops->call(pmem->data);
	return r < 0 ? r : 0;
}

/*
 * Flushes.
 */

static void finish_sync(struct pmem *pmem, int result, const struct err *err)
{
	unsigned int finished = 0;
	for (unsigned int i = 0; i < pmem->count; i++) {
		struct request *request = nth(pmem, i);
		if (request->done || request->sync > pmem->syncs)
			continue;
		request->done = true;
		request->ret = result < 0;
		finished++;
	}
	if (result < 0 && finished)
		log_error("%s: flush failed, for %u request%s: %s", pmem->name, finished, finished == 1 ? "" : "s",
			err->text);
}

static struct request *oldest_flush(struct pmem *pmem)
{
	for (unsigned int i = 0; i < pmem->count; i++) {
		if (!nth(pmem, i)->done)
			return nth(pmem, i);
	}
	return NULL;
}

static void start_sync(struct pmem *pmem)
{
	if (pmem->sync_runs || !oldest_flush(pmem))
		return;
	struct err err = { 0 };
	pmem->syncs++;
	int r = pmem->ops->sync(pmem->data, &err);
	if (r == 0)
		pmem->sync_runs = true;
	else
		finish_sync(pmem, r, &err);
}

static void fail_late_ones(struct pmem *pmem)
{
	uint64_t now = event_now_ms(pmem->loop);
	unsigned int late = 0;
	for (unsigned int i = 0; i < pmem->count; i++) {
		struct request *request = nth(pmem, i);
		if (request->done || now - request->arrived_ms < PMEM_FLUSH_TIMEOUT_MS)
			continue;
		request->done = true;
		late++;
	}
	if (late)
		log_error("%s: flush failed, for %u request%s: after %d s the disk still has not taken all of %s",
			pmem->name, late, late == 1 ? "" : "s", PMEM_FLUSH_TIMEOUT_MS / 1000,
			pmem->ops->sync_waits_for(pmem->data));
}

static void set_timer(struct pmem *pmem, bool has_more)
{
	const struct request *oldest = oldest_flush(pmem);
	if (has_more) {
		event_timer_set(pmem->timer, 0);
	} else if (oldest) {
		uint64_t age = event_now_ms(pmem->loop) - oldest->arrived_ms;
		event_timer_set(pmem->timer, age < PMEM_FLUSH_TIMEOUT_MS ? PMEM_FLUSH_TIMEOUT_MS - age : 0);
	} else {
		event_timer_stop(pmem->timer);
	}
}

/* Does what can be done now. */
static void run(struct pmem *pmem)
{
	if (!pmem->vq)
		return;
	struct err err = { 0 };
	int more = take(pmem, &err);
	if (more >= 0) {
		start_sync(pmem);
		fail_late_ones(pmem);
	}
	bool was_full = pmem->count == PMEM_QUEUE_NUM_MAX;
	int r = more < 0 ? more : answer(pmem, &err);
	if (r < 0)
		on_broken(pmem, &err);
	else
		set_timer(pmem, more > 0 || (was_full && pmem->count < PMEM_QUEUE_NUM_MAX));
}

static void on_timer(void *data)
{
	run(data);
}

void pmem_kick(struct pmem *pmem)
{
	run(pmem);
}

void pmem_synced(struct pmem *pmem, int result, const struct err *err)
{
	pmem->sync_runs = false;
	finish_sync(pmem, result, err);
	run(pmem);
}

void pmem_fail_all(struct pmem *pmem)
{
	pmem->ending = true;
	for (unsigned int i = 0; i < pmem->count; i++)
		nth(pmem, i)->done = true;
	/* As much as a ring holds, however fast its driver refills it. */
	for (unsigned int i = 0; pmem->vq && i <= PMEM_QUEUE_NUM_MAX / BURST; i++)
		run(pmem);
}

unsigned int pmem_waiting(const struct pmem *pmem)
{
	return pmem->count;
}

/*
 * Its life.
 */

void pmem_start(struct pmem *pmem, struct virtqueue *vq)
{
	pmem->vq = vq;
	run(pmem);
}

void pmem_stop(struct pmem *pmem)
{
	pmem->vq = NULL;
	forget_all(pmem);
}

int pmem_new(struct event_loop *loop, const char *name, const struct pmem_ops *ops, void *data, struct pmem **ret_pmem)
{
	struct pmem *pmem = calloc(1, sizeof(*pmem));
	if (!pmem)
		return -ENOMEM;
	*pmem = (struct pmem){ .loop = loop, .name = name, .ops = ops, .data = data };
	pmem->timer = event_timer_new(loop, on_timer, pmem);
	if (!pmem->timer) {
		free(pmem);
		return -ENOMEM;
	}
	*ret_pmem = pmem;
	return 0;
}

void pmem_free(struct pmem **pmem)
{
	if (*pmem)
		event_source_free(&(*pmem)->timer);
	free(*pmem);
	*pmem = NULL;
}
