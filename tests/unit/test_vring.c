/* test_vring.c: a virtqueue with a driver that keeps the rules, and with many that do not. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/vring.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "stages.h"

enum { NUM = 16, NEXT = VRING_DESC_F_NEXT, WRITE = VRING_DESC_F_WRITE, INDIRECT = VRING_DESC_F_INDIRECT };

/* A place for indirect tables. */
#define TABLE (DRIVER_BUFFERS + 0x10000)
#define BUF DRIVER_BUFFERS

static struct driver driver;
static struct vring_request request;
static struct err err;

static void make(unsigned int num)
{
	driver_new(&driver, num, VRING_FEATURES);
}

static int pop(void)
{
	return vring_pop(driver.vq, &request, &err);
}

static void assert_broken(int code, const char *what)
{
	int r = pop();
	if (r != code)
		ck_abort_msg("%s: wanted %d, got %d", what, code, r);
	/* Said once; from then on there is nothing. */
	if (vring_is_running(driver.vq) || pop() != 0 || vring_push(driver.vq, 0, 0, &err) != 0 ||
		vring_needs_call(driver.vq, &err) != 0)
		ck_abort_msg("%s: it goes on", what);
	ck_assert_uint_eq(driver.ring.used->idx, 0);
}

START_TEST(pops_and_pushes)
{
	make(NUM);
	ck_assert_int_eq(pop(), 0);
	driver_desc(&driver, 5, BUF, 3, NEXT, 2);
	driver_desc(&driver, 2, BUF + 8, 2, NEXT, 15);
	driver_desc(&driver, 15, DRIVER_SECOND, 4, NEXT | WRITE, 0);
	driver_desc(&driver, 0, DRIVER_SECOND + DRIVER_SIZE - 5, 5, WRITE, 77);
	memcpy(driver_at(&driver, BUF), "abc-----de", 10);
	driver_offer(&driver, 5);

	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(request.head, 5);
	ck_assert_uint_eq(request.readable_count, 2);
	ck_assert_uint_eq(request.readable_len, 5);
	ck_assert_uint_eq(request.writable_count, 2);
	ck_assert_uint_eq(request.writable_len, 9);
	ck_assert_uint_eq(request.segments[3].addr, DRIVER_SECOND + DRIVER_SIZE - 5);
	ck_assert(request.segments[3].writable && !request.segments[1].writable);

	char text[6] = "";
	ck_assert_int_eq(vring_read(driver.vq, request.segments, text, 5, &err), 0);
	ck_assert_str_eq(text, "abcde");
	ck_assert_int_eq(vring_write(driver.vq, request.segments + 2, "123456789", 9, &err), 0);
	ck_assert_mem_eq(driver_at(&driver, DRIVER_SECOND), "1234", 4);
	ck_assert_mem_eq(driver_at(&driver, DRIVER_SECOND + DRIVER_SIZE - 5), "56789", 5);

	ck_assert_int_eq(vring_push(driver.vq, request.head, 9, &err), 0);
	ck_assert_uint_eq(driver.ring.used->idx, 1);
	ck_assert_uint_eq(driver.ring.used->ring[0].id, 5);
	ck_assert_uint_eq(driver.ring.used->ring[0].len, 9);
	ck_assert_uint_eq(vring_base(driver.vq), 1);
	ck_assert_int_eq(pop(), 0);
	driver_free(&driver);
}
END_TEST

START_TEST(pops_chains_that_end_in_an_indirect_table)
{
	make(NUM);
	driver_desc(&driver, 3, BUF, 1, NEXT, 4);
	driver_desc(&driver, 4, TABLE + 8, 3 * 16, INDIRECT, 9);
	driver_desc_at(&driver, TABLE + 8, 0, BUF, 2, NEXT, 2);
	driver_desc_at(&driver, TABLE + 8, 2, BUF, 3, NEXT | WRITE, 1);
	driver_desc_at(&driver, TABLE + 8, 1, BUF, 4, WRITE, 0);
	driver_offer(&driver, 3);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(request.readable_count, 2);
	ck_assert_uint_eq(request.readable_len, 3);
	ck_assert_uint_eq(request.writable_len, 7);
	driver_free(&driver);
}
END_TEST

START_TEST(pops_chains_as_long_as_the_ring)
{
	make(NUM);
	for (unsigned int i = 0; i < NUM; i++)
		driver_desc(&driver, i, BUF, 1, i < NUM - 1 ? NEXT : 0, (uint16_t)(i + 1));
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(request.readable_count, NUM);
	driver_free(&driver);
}
END_TEST

/* One descriptor, or one in an indirect table, that breaks the ring. */
struct bad_desc {
	const char *what;
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
	const char *says;
};

static const struct bad_desc bad_descs[] = {
	{ "a loop of one", BUF, 1, NEXT, 0, "without an end" },
	{ "a loop of one to write", BUF, 1, NEXT | WRITE, 0, "without an end" },
	{ "next beyond the end", BUF, 1, NEXT, NUM, "beyond the end" },
	{ "next far beyond the end", BUF, 1, NEXT, 65535, "beyond the end" },
	{ "no bytes", BUF, 0, 0, 0, "0 bytes" },
	{ "no bytes to write", BUF, 0, WRITE, 0, "0 bytes" },
	{ "2^32 - 1 bytes", BUF, UINT32_MAX, 0, 0, "not inside" },
	{ "2^32 - 1 bytes up to the end of the addresses", UINT64_MAX - UINT32_MAX + 1, UINT32_MAX, 0, 0,
		"not inside" },
	{ "an end beyond 64 bits", UINT64_MAX, 2, 0, 0, "not inside" },
	{ "below memory", DRIVER_GUEST - 1, 2, 0, 0, "not inside" },
	{ "over two regions", DRIVER_SECOND - 1, 2, WRITE, 0, "not inside" },
	{ "over the last region", DRIVER_SECOND + DRIVER_SIZE - 1, 2, WRITE, 0, "not inside" },
	{ "in an own file", DRIVER_OWN, 4, WRITE, 0, "not inside" },
	{ "a user address", DRIVER_USER, 4, WRITE, 0, "not inside" },
	{ "address 0", 0, 4, WRITE, 0, "not inside" },
	{ "an indirect table that has a next", TABLE, 16, INDIRECT | NEXT, 1, "has a next" },
	{ "an indirect table of no bytes", TABLE, 0, INDIRECT, 0, "of 0 bytes" },
	{ "an indirect table of 17 bytes", TABLE, 17, INDIRECT, 0, "of 17 bytes" },
	{ "an indirect table of 2^32 - 1 bytes", TABLE, UINT32_MAX, INDIRECT, 0, "of 4294967295 bytes" },
	{ "an indirect table of 2^32 - 16 bytes", TABLE, UINT32_MAX - 15, INDIRECT, 0, "not inside" },
	{ "an indirect table over two regions", DRIVER_SECOND - 16, 32, INDIRECT, 0, "not inside" },
	{ "an indirect table in an own file", DRIVER_OWN, 16, INDIRECT, 0, "not inside" },
};
enum { BAD_DESCS = sizeof(bad_descs) / sizeof(bad_descs[0]) };

START_TEST(breaks_on_bad_descriptors)
{
	const struct bad_desc *bad = &bad_descs[_i / 2];
	make(NUM);
	if (_i % 2) {
		driver_desc(&driver, 0, TABLE + 64, NUM * 16, INDIRECT, 0);
		driver_desc_at(&driver, TABLE + 64, 0, bad->addr, bad->len, bad->flags, bad->next);
	} else {
		driver_desc(&driver, 0, bad->addr, bad->len, bad->flags, bad->next);
	}
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, bad->what);
	const char *says = _i % 2 && bad->flags & INDIRECT ? "in an indirect table" : bad->says;
	if (!strstr(err.text, says))
		ck_abort_msg("%s: wanted \"%s\", got \"%s\"", bad->what, says, err.text);
	driver_free(&driver);
}
END_TEST

START_TEST(breaks_on_bad_chains)
{
	make(NUM);
	driver_offer(&driver, NUM);
	assert_broken(-EPROTO, "a head beyond the end");
	driver_free(&driver);

	make(NUM);
	driver_desc(&driver, 0, BUF, 1, NEXT, 1);
	driver_desc(&driver, 1, BUF, 1, NEXT, 0);
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "a loop of two");
	driver_free(&driver);

	make(NUM);
	driver_desc(&driver, 0, BUF, 1, WRITE | NEXT, 1);
	driver_desc(&driver, 1, BUF, 1, 0, 0);
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "one to read after one to write");
	driver_free(&driver);

	make(NUM);
	driver_desc(&driver, 0, TABLE, 16, INDIRECT, 0);
	driver_desc_at(&driver, TABLE, 0, TABLE, 16, INDIRECT, 0);
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "an indirect table in itself");
	driver_free(&driver);

	make(NUM);
	driver_desc(&driver, 0, TABLE, (NUM + 1) * 16, INDIRECT, 0);
	for (unsigned int i = 0; i < NUM + 1; i++)
		driver_desc_at(&driver, TABLE, i, BUF, 1, i < NUM ? NEXT : 0, (uint16_t)(i + 1));
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "more descriptors than the ring has");
	driver_free(&driver);

	make(2048);
	for (unsigned int i = 0; i < 1024; i++)
		driver_desc(&driver, i, DRIVER_SECOND, DRIVER_SIZE, i < 1023 ? NEXT : 0, (uint16_t)(i + 1));
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "2^32 bytes in one chain");
	driver_free(&driver);

	driver_new(&driver, NUM, UINT64_C(1) << VIRTIO_F_VERSION_1);
	driver_desc(&driver, 0, TABLE, 16, INDIRECT, 0);
	driver_desc_at(&driver, TABLE, 0, BUF, 1, 0, 0);
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "an indirect table that was not acknowledged");
	driver_free(&driver);
}
END_TEST

START_TEST(breaks_when_the_avail_index_jumps)
{
	make(NUM);
	driver.ring.avail->idx = NUM + 1;
	assert_broken(-EPROTO, "one more than there is room for");
	driver_free(&driver);

	make(NUM);
	driver.ring.avail->idx = 65535;
	assert_broken(-EPROTO, "backwards");
	driver_free(&driver);

	/* Requests without an answer have their room. */
	make(NUM);
	driver_desc(&driver, 0, BUF, 1, 0, 0);
	for (unsigned int i = 0; i < NUM; i++)
		driver_offer(&driver, 0);
	for (unsigned int i = 0; i < NUM; i++)
		ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 0);
	driver_offer(&driver, 0);
	assert_broken(-EPROTO, "more than were answered");
	driver_free(&driver);
}
END_TEST

START_TEST(goes_round_and_gives_back_what_has_no_answer)
{
	make(NUM);
	vring_stop(driver.vq);
	ck_assert_int_eq(vring_set_base(driver.vq, 65530, &err), 0);
	driver.ring.avail->idx = driver.ring.used->idx = 65530;
	driver_start(&driver);
	ck_assert_int_eq(vring_set_base(driver.vq, 0, &err), -EBUSY);
	for (uint16_t i = 0; i < NUM; i++) {
		driver_desc(&driver, i, BUF, 1, 0, 0);
		driver_offer(&driver, i);
	}
	for (uint16_t i = 0; i < NUM; i++) {
		ck_assert_int_eq(pop(), 1);
		ck_assert_uint_eq(request.head, i);
	}
	ck_assert_int_eq(pop(), 0);
	for (uint16_t i = 0; i < 10; i++)
		ck_assert_int_eq(vring_push(driver.vq, i, 0, &err), 0);
	ck_assert_uint_eq(driver.ring.used->idx, 4);

	vring_stop(driver.vq);
	ck_assert_uint_eq(vring_base(driver.vq), 4);
	ck_assert_int_eq(pop(), 0);
	driver_start(&driver);
	for (uint16_t i = 10; i < NUM; i++) {
		ck_assert_int_eq(pop(), 1);
		ck_assert_uint_eq(request.head, i);
		ck_assert_int_eq(vring_push(driver.vq, i, 0, &err), 0);
	}
	ck_assert_int_eq(pop(), 0);
	ck_assert_uint_eq(driver.ring.used->idx, (uint16_t)(65530 + NUM));
	driver_free(&driver);
}
END_TEST

static int push_and_ask(void)
{
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(vring_push(driver.vq, 0, 0, &err), 0);
	return vring_needs_call(driver.vq, &err);
}

START_TEST(calls_as_the_driver_wants)
{
	driver_new(&driver, NUM, UINT64_C(1) << VIRTIO_F_VERSION_1);
	driver_desc(&driver, 0, BUF, 1, 0, 0);
	ck_assert_int_eq(vring_needs_call(driver.vq, &err), 0);
	ck_assert_int_eq(push_and_ask(), 1);
	ck_assert_int_eq(vring_needs_call(driver.vq, &err), 0);
	driver.ring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	ck_assert_int_eq(push_and_ask(), 0);
	driver.ring.avail->flags = 0;
	ck_assert_int_eq(push_and_ask(), 1);
	driver_free(&driver);

	make(NUM);
	driver_desc(&driver, 0, BUF, 1, 0, 0);
	driver.ring.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	vring_used_event(&driver.ring) = 100;
	ck_assert_int_eq(push_and_ask(), 1); /* the first one after a start */
	vring_used_event(&driver.ring) = 2;
	ck_assert_int_eq(push_and_ask(), 0);
	ck_assert_int_eq(push_and_ask(), 1);
	ck_assert_int_eq(push_and_ask(), 0);
	driver_free(&driver);
}
END_TEST

START_TEST(asks_to_be_kicked_when_empty)
{
	make(NUM);
	driver_desc(&driver, 0, BUF, 1, 0, 0);
	vring_avail_event(&driver.ring) = 99;
	ck_assert_int_eq(pop(), 0);
	ck_assert_uint_eq(vring_avail_event(&driver.ring), 0);
	driver_offer(&driver, 0);
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_uint_eq(vring_avail_event(&driver.ring), 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 0);
	ck_assert_uint_eq(vring_avail_event(&driver.ring), 2);

	/* Whoever served the ring before did not want kicks. */
	vring_stop(driver.vq);
	driver.ring.used->flags = VRING_USED_F_NO_NOTIFY;
	driver_start(&driver);
	ck_assert_uint_eq(driver.ring.used->flags, 0);
	driver_free(&driver);
}
END_TEST

START_TEST(refuses_what_it_cannot_be_set_to)
{
	static const uint32_t nums[] = { 0, 3, NUM - 1, 2 * NUM, 65536, UINT32_C(1) << 31, UINT32_MAX };
	make(NUM);
	ck_assert_int_eq(vring_set_num(driver.vq, NUM, &err), -EBUSY);
	vring_stop(driver.vq);
	for (unsigned int i = 0; i < sizeof(nums) / sizeof(nums[0]); i++)
		ck_assert_int_eq(vring_set_num(driver.vq, nums[i], &err), -EINVAL);
	ck_assert_int_eq(vring_set_base(driver.vq, 65536, &err), -EINVAL);
	ck_assert_int_eq(vring_set_base(driver.vq, 65535, &err), 0);

	const struct vring_addrs good = driver_addrs(&driver, MEMORY_GUEST_ADDR);
	struct vring_addrs addrs[] = { good, good, good };
	addrs[0].desc += 8;
	addrs[1].avail += 1;
	addrs[2].used += 2;
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(vring_set_addrs(driver.vq, &addrs[i], &err), -EINVAL);

	struct virtqueue *fresh;
	ck_assert_int_eq(vring_new(NUM, &fresh), 0);
	ck_assert_int_eq(vring_start(fresh, driver.memory, MEMORY_GUEST_ADDR, 0, &err), -EINVAL);
	ck_assert_int_eq(vring_set_num(fresh, NUM, &err), 0);
	ck_assert_int_eq(vring_start(fresh, driver.memory, MEMORY_GUEST_ADDR, 0, &err), -EINVAL);
	ck_assert_int_eq(vring_set_addrs(fresh, &good, &err), 0);
	ck_assert_int_eq(vring_start(fresh, NULL, MEMORY_GUEST_ADDR, 0, &err), -EINVAL);
	ck_assert_int_eq(vring_start(fresh, driver.memory, MEMORY_GUEST_ADDR, 0, &err), 0);
	vring_free(&fresh);
	driver_free(&driver);
}
END_TEST

START_TEST(refuses_to_start_outside_memory)
{
	make(NUM);
	vring_stop(driver.vq);
	const uint64_t bad[] = { 0, DRIVER_OWN, DRIVER_SECOND - 16, UINT64_MAX - 15, DRIVER_USER };
	for (unsigned int i = 0; i < 3 * sizeof(bad) / sizeof(bad[0]); i++) {
		struct vring_addrs addrs = driver_addrs(&driver, MEMORY_GUEST_ADDR);
		*(i % 3 == 0 ? &addrs.desc : i % 3 == 1 ? &addrs.avail : &addrs.used) = bad[i / 3];
		ck_assert_int_eq(vring_set_addrs(driver.vq, &addrs, &err), 0);
		int r = vring_start(driver.vq, driver.memory, MEMORY_GUEST_ADDR, VRING_FEATURES, &err);
		if (r != -EFAULT || vring_is_running(driver.vq))
			ck_abort_msg("row %u: got %d", i, r);
	}
	/* With the last byte inside, but not the event index. */
	struct vring_addrs addrs = driver_addrs(&driver, MEMORY_GUEST_ADDR);
	addrs.avail = DRIVER_SECOND - 4 - 2 * NUM;
	ck_assert_int_eq(vring_set_addrs(driver.vq, &addrs, &err), 0);
	ck_assert_int_eq(vring_start(driver.vq, driver.memory, MEMORY_GUEST_ADDR, VRING_FEATURES, &err), -EFAULT);
	ck_assert_int_eq(vring_start(driver.vq, driver.memory, MEMORY_GUEST_ADDR, 0, &err), 0);
	driver_free(&driver);
}
END_TEST

START_TEST(finds_the_ring_by_user_addresses)
{
	make(NUM);
	vring_stop(driver.vq);
	struct vring_addrs addrs = driver_addrs(&driver, MEMORY_USER_ADDR);
	ck_assert_int_eq(vring_set_addrs(driver.vq, &addrs, &err), 0);
	ck_assert_int_eq(vring_start(driver.vq, driver.memory, MEMORY_GUEST_ADDR, VRING_FEATURES, &err), -EFAULT);
	ck_assert_int_eq(vring_start(driver.vq, driver.memory, MEMORY_USER_ADDR, VRING_FEATURES, &err), 0);
	driver_desc(&driver, 0, TABLE, 16, INDIRECT, 0);
	driver_desc_at(&driver, TABLE, 0, BUF, 1, WRITE, 0);
	ck_assert_int_eq(push_and_ask(), 1);
	ck_assert_uint_eq(request.segments[0].addr, BUF);
	driver_free(&driver);
}
END_TEST

/* Case 19: between two requests, one of which has no answer yet. */
START_TEST(goes_on_in_another_table)
{
	make(NUM);
	driver_desc(&driver, 0, BUF, 4, WRITE, 0);
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	struct memory *other = driver_table(&driver);
	vring_set_memory(driver.vq, other);
	memory_free(&driver.memory);
	driver.memory = other;
	ck_assert_int_eq(vring_write(driver.vq, request.segments, "done", 4, &err), 0);
	ck_assert_int_eq(vring_push(driver.vq, 0, 4, &err), 0);
	ck_assert_mem_eq(driver_at(&driver, BUF), "done", 4);

	/* One that lacks what the ring is in. */
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(memory_new(NULL, 0, NULL, false, &other, &err), 0);
	vring_set_memory(driver.vq, other);
	ck_assert_int_eq(vring_push(driver.vq, 0, 4, &err), -EPROTO);
	memory_free(&other);
	driver_free(&driver);
}
END_TEST

START_TEST(breaks_when_its_memory_goes)
{
	make(NUM);
	driver_offer(&driver, 0);
	ck_assert_int_eq(ftruncate(driver.fd, 0), 0);
	ck_assert_int_eq(pop(), -EIO);
	ck_assert_int_eq(pop(), 0);
	ck_assert(memory_is_broken(driver.memory));
	ck_assert_int_eq(vring_start(driver.vq, driver.memory, MEMORY_GUEST_ADDR, VRING_FEATURES, &err), -EIO);
	driver_free(&driver);

	/* The buffers alone, while a request waits. */
	make(NUM);
	driver_desc(&driver, 0, DRIVER_SECOND, 4, WRITE, 0);
	driver_offer(&driver, 0);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(ftruncate(driver.fd, DRIVER_SIZE), 0);
	ck_assert_int_eq(vring_write(driver.vq, request.segments, "none", 4, &err), -EIO);
	ck_assert_int_eq(vring_push(driver.vq, 0, 4, &err), 0);
	ck_assert(!vring_is_running(driver.vq));
	driver_free(&driver);
}
END_TEST

/*
 * Random rings.
 */

static uint64_t random_state = 0x6d72736861726532;

/* splitmix64. */
static uint64_t random_u64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void random_desc(struct vring_desc *desc)
{
	static const uint64_t addrs[] = { BUF, TABLE, DRIVER_SECOND - 8, DRIVER_SECOND, DRIVER_OWN, 0, UINT64_MAX };
	static const uint32_t lens[] = { 1, 4, 16, 64, 17, 0, UINT32_MAX };
	/* Mostly what passes, or no chain would become long. */
	uint64_t bits = random_u64();
	unsigned int addr = bits & 1 ? bits >> 8 & 1 : (bits >> 8 & 0xff) % 7;
	unsigned int len = bits & 2 ? bits >> 16 & 3 : (bits >> 16 & 0xff) % 7;
	*desc = (struct vring_desc){ addrs[addr], lens[len], (uint16_t)(bits >> 24 & 7),
		(uint16_t)(bits >> 32) % (NUM + 1) };
	if (bits & 4)
		desc->flags &= NEXT;
}

static void assert_in_bounds(void)
{
	unsigned int count = request.readable_count + request.writable_count;
	uint64_t total = 0;
	ck_assert(count >= 1 && count <= NUM && request.head < NUM);
	for (unsigned int i = 0; i < count; i++) {
		const struct vring_segment *segment = &request.segments[i];
		total += segment->len;
		if (segment->writable != (i >= request.readable_count) ||
			memory_check(driver.memory, MEMORY_GUEST_ADDR, segment->addr, segment->len) != 0)
			ck_abort_msg("segment %u of a request is out of bounds", i);
	}
	ck_assert_uint_eq(total, request.readable_len + request.writable_len);
}

/* Returns whether a request was popped. */
static bool serve_random_ring(void)
{
	bool popped = false;
	for (unsigned int i = 0; i < NUM && pop() == 1; i++) {
		popped = true;
		assert_in_bounds();
		if (request.writable_len)
			vring_write(driver.vq, request.segments + request.readable_count, "x", 1, &err);
		vring_push(driver.vq, request.head, 1, &err);
		vring_needs_call(driver.vq, &err);
	}
	return popped;
}

START_TEST(stands_50000_random_rings)
{
	unsigned int popped = 0, broken = 0;
	make(NUM);
	struct timespec start, end;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	for (unsigned int round = 0; round < 50000; round++) {
		for (unsigned int i = 0; i < 4; i++) {
			random_desc(&driver.ring.desc[random_u64() % NUM]);
			random_desc((struct vring_desc *)driver_at(&driver, TABLE) + random_u64() % 4);
			driver.ring.avail->ring[random_u64() % NUM] = (uint16_t)(random_u64() % (NUM + 1));
		}
		driver.ring.avail->idx = (uint16_t)(vring_base(driver.vq) + random_u64() % (NUM + 2));
		vring_used_event(&driver.ring) = (uint16_t)random_u64();
		/* Anything anywhere, now and then. */
		if (round % 8 == 0)
			driver.bytes[random_u64() % 1024] = (uint8_t)random_u64();
		popped += serve_random_ring();
		if (!vring_is_running(driver.vq)) {
			broken++;
			driver_start(&driver);
		}
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	double seconds = (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
	/* Both have to be frequent, or the rounds test nothing. */
	if (popped < 5000 || broken < 5000 || seconds >= 2)
		ck_abort_msg("popped %u, broken %u, in %.2f s", popped, broken, seconds);
	driver_free(&driver);
}
END_TEST

void add_vring_tests(Suite *suite)
{
	TCase *tcase = tcase_create("vring");
	tcase_add_test(tcase, pops_and_pushes);
	tcase_add_test(tcase, pops_chains_that_end_in_an_indirect_table);
	tcase_add_test(tcase, pops_chains_as_long_as_the_ring);
	tcase_add_loop_test(tcase, breaks_on_bad_descriptors, 0, 2 * BAD_DESCS);
	tcase_add_test(tcase, breaks_on_bad_chains);
	tcase_add_test(tcase, breaks_when_the_avail_index_jumps);
	tcase_add_test(tcase, goes_round_and_gives_back_what_has_no_answer);
	tcase_add_test(tcase, calls_as_the_driver_wants);
	tcase_add_test(tcase, asks_to_be_kicked_when_empty);
	tcase_add_test(tcase, refuses_what_it_cannot_be_set_to);
	tcase_add_test(tcase, refuses_to_start_outside_memory);
	tcase_add_test(tcase, finds_the_ring_by_user_addresses);
	tcase_add_test(tcase, goes_on_in_another_table);
	tcase_add_test(tcase, breaks_when_its_memory_goes);
	tcase_add_test(tcase, stands_50000_random_rings);
	suite_add_tcase(suite, tcase);
}
