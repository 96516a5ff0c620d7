/* test_pmem.c: the pmem device: which regions it takes, and that every flush is answered, once its sync has ended. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/pmem.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"
#include "fake_loop.h"
#include "stages.h"

enum { NUM = 256, NEXT = VRING_DESC_F_NEXT, WRITE = VRING_DESC_F_WRITE };

#define MIB (UINT64_C(1) << 20)
#define REQUESTS DRIVER_BUFFERS
#define ANSWERS (DRIVER_BUFFERS + 0x100000)

static struct driver driver;
static struct event_loop *loop;
static struct pmem *pmem;
static struct err err;
static int sync_result; /* of the table's sync() */
static unsigned int syncs, calls, breaks;
static int break_code;
static uint16_t offered;

static int on_sync(void *data, struct err *ret_err)
{
	syncs++;
	return sync_result < 0 ? err_set(ret_err, sync_result, "no sync") : sync_result;
}

static const char *on_waits_for(void *data)
{
	return "disk.img";
}

static void on_call(void *data)
{
	calls++;
}

static void on_broken(void *data, const struct err *broken)
{
	breaks++;
	break_code = broken->code;
}

static const struct pmem_ops ops = { on_sync, on_waits_for, on_call, on_broken };

static void make(int result)
{
	sync_result = result;
	driver_new(&driver, NUM, UINT64_C(1) << VIRTIO_F_VERSION_1);
	loop = fake_loop_new();
	ck_assert_int_eq(pmem_new(loop, "front-end 1", &ops, NULL, &pmem), 0);
	pmem_start(pmem, driver.vq);
}

static void unmake(void)
{
	pmem_free(&pmem);
	fake_loop_free(&loop);
	driver_free(&driver);
}

static uint8_t *answer_of(unsigned int i)
{
	return driver_at(&driver, ANSWERS + 8 * i);
}

/* A request with these lengths in the driver's next two descriptors. Returns its number. */
static unsigned int offer_form(uint32_t type, uint32_t request_len, uint32_t answer_len)
{
	unsigned int i = offered++, head = 2 * i % NUM;
	memcpy(driver_at(&driver, REQUESTS + 8 * i), &type, sizeof(type));
	memset(answer_of(i), 0xee, 8);
	if (request_len) {
		driver_desc(&driver, head, REQUESTS + 8 * i, request_len, answer_len ? NEXT : 0, (uint16_t)(head + 1));
		driver_desc(&driver, head + 1, ANSWERS + 8 * i, answer_len, WRITE, 0);
	} else {
		driver_desc(&driver, head, ANSWERS + 8 * i, answer_len, WRITE, 0);
	}
	driver_offer(&driver, (uint16_t)head);
	return i;
}

static unsigned int offer(void)
{
	return offer_form(VIRTIO_PMEM_REQ_TYPE_FLUSH, 4, 4);
}

static unsigned int answered(void)
{
	return driver.ring.used->idx;
}

static void assert_answer(unsigned int i, uint32_t wanted)
{
	uint32_t got;
	memcpy(&got, answer_of(i), sizeof(got));
	if (answered() <= i || driver.ring.used->ring[i % NUM].id != 2 * i % NUM || got != wanted)
		ck_abort_msg("request %u: wanted %u, got %#x, with %u answered", i, wanted, got, answered());
}

START_TEST(describes_itself)
{
	struct virtio_pmem_config config = pmem_config(128 * MIB);
	const uint8_t bytes[16] = { [11] = 8 };
	ck_assert_mem_eq(&config, bytes, 16);
	ck_assert_int_eq(PMEM_VIRTIO_ID, 27);
	ck_assert_uint_eq(PMEM_FEATURES, 1);
}
END_TEST

/* Case 28, and what makes QEMU end. */
START_TEST(takes_regions_that_qemu_and_guests_take)
{
	static const struct {
		uint64_t size, other;
		const char *says; /* NULL: good */
	} rows[] = {
		{ 128 * MIB, 0, NULL },
		{ 2 * MIB, 0, NULL },
		{ 2 * MIB, 2 * MIB, NULL },
		{ 6 * MIB, 2 * MIB, NULL },
		{ 0, 64 * MIB, "add --shmem 0:SIZE" },
		{ 1 * MIB, 0, "the next good size is 2 MiB" },
		{ 3 * MIB, 1 * MIB, "the next good size is 4 MiB" },
		{ 4096, 0, "the next good size is 2 MiB" },
		{ 96 * MIB, 0, "the next good sum is 128 MiB, 32 MiB more" },
		{ 64 * MIB, 4096, "the next good sum is 128 MiB" },
		{ 2 * MIB, UINT64_MAX - MIB, "more than 2^62" },
		{ UINT64_MAX, UINT64_MAX, "more than 2^62" },
	};
	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t sizes[256] = { rows[i].size, [255] = rows[i].other };
		int r = pmem_check_regions(sizes, &err);
		if (r != (rows[i].says ? -EINVAL : 0) || (rows[i].says && !strstr(err.text, rows[i].says)))
			ck_abort_msg("row %u: got %d: %s", i, r, r < 0 ? err.text : "");
	}
}
END_TEST

START_TEST(answers_at_once_where_there_is_nothing_to_sync)
{
	make(1);
	offer();
	offer();
	pmem_kick(pmem);
	assert_answer(0, 0);
	assert_answer(1, 0);
	ck_assert_uint_eq(driver.ring.used->ring[0].len, 4);
	ck_assert_uint_eq(syncs, 1);
	ck_assert_uint_eq(calls, 1);
	ck_assert_uint_eq(pmem_waiting(pmem), 0);
	unmake();
}
END_TEST

START_TEST(covers_a_flush_by_a_sync_that_starts_after_it)
{
	make(0);
	offer();
	pmem_kick(pmem);
	ck_assert_uint_eq(syncs, 1);
	offer();
	pmem_kick(pmem);
	offer();
	pmem_kick(pmem);
	ck_assert_uint_eq(syncs, 1);
	ck_assert_uint_eq(answered(), 0);

	pmem_synced(pmem, 0, NULL);
	assert_answer(0, 0);
	ck_assert_uint_eq(answered(), 1);
	ck_assert_uint_eq(syncs, 2);
	pmem_synced(pmem, 0, NULL);
	assert_answer(1, 0);
	assert_answer(2, 0);
	ck_assert_uint_eq(syncs, 2);
	ck_assert_uint_eq(calls, 2);
	unmake();
}
END_TEST

START_TEST(answers_1_where_a_sync_fails)
{
	make(0);
	offer();
	pmem_kick(pmem);
	offer();
	pmem_kick(pmem);
	err_set(&err, -EIO, "disk.img: Input/output error");
	pmem_synced(pmem, -EIO, &err);
	assert_answer(0, 1);
	ck_assert_uint_eq(answered(), 1);
	pmem_synced(pmem, 0, NULL);
	assert_answer(1, 0);

	sync_result = -ENOMEM;
	offer();
	pmem_kick(pmem);
	assert_answer(2, 1);
	unmake();
}
END_TEST

START_TEST(answers_1_after_30_seconds)
{
	make(0);
	offer();
	pmem_kick(pmem);
	fake_loop_run(loop, 20000);
	offer();
	pmem_kick(pmem);
	fake_loop_run(loop, 9999);
	ck_assert_uint_eq(answered(), 0);
	fake_loop_run(loop, 1);
	assert_answer(0, 1);
	ck_assert_uint_eq(answered(), 1);
	fake_loop_run(loop, 19999);
	ck_assert_uint_eq(answered(), 1);
	fake_loop_run(loop, 1);
	assert_answer(1, 1);

	/* The next one has a chance as soon as the sync ends that hung. */
	offer();
	pmem_kick(pmem);
	ck_assert_uint_eq(syncs, 1);
	pmem_synced(pmem, 0, NULL);
	ck_assert_uint_eq(answered(), 2);
	ck_assert_uint_eq(syncs, 2);
	pmem_synced(pmem, 0, NULL);
	assert_answer(2, 0);
	unmake();
}
END_TEST

/* Case 27: also behind a flush that waits, in whose turn they are. */
START_TEST(answers_every_form_of_request)
{
	static const struct {
		uint32_t type, request_len, answer_len, wanted;
	} rows[] = {
		{ 0, 4, 4, 0 },
		{ 0, 4, 8, 0 },
		{ 1, 4, 4, 1 },
		{ 0x01000000, 4, 4, 1 },
		{ 0, 3, 4, 1 },
		{ 0, 5, 4, 1 },
		{ 0, 0, 4, 1 },
		{ 0, 4, 3, 0xee000001 },
		{ 0, 4, 1, 0xeeeeee01 },
		{ 0, 4, 0, 0xeeeeeeee },
	};
	enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
	make(0);
	for (unsigned int i = 0; i < ROWS; i++)
		offer_form(rows[i].type, rows[i].request_len, rows[i].answer_len);
	pmem_kick(pmem);
	ck_assert_uint_eq(answered(), 0);
	ck_assert_uint_eq(pmem_waiting(pmem), ROWS);
	pmem_synced(pmem, 0, NULL);
	for (unsigned int i = 0; i < ROWS; i++) {
		assert_answer(i, rows[i].wanted);
		ck_assert_uint_eq(driver.ring.used->ring[i].len, rows[i].answer_len < 4 ? rows[i].answer_len : 4);
	}
	ck_assert_uint_eq(breaks, 0);
	unmake();
}
END_TEST

START_TEST(takes_requests_in_pieces)
{
	make(1);
	memset(driver_at(&driver, ANSWERS), 0xee, 8);
	for (uint16_t i = 0; i < 8; i++) {
		uint64_t addr = i < 4 ? REQUESTS + i : ANSWERS + 4 + 3 - i + 4;
		driver_desc(
			&driver, i, addr, 1, (uint16_t)((i < 7 ? NEXT : 0) | (i < 4 ? 0 : WRITE)), (uint16_t)(i + 1));
	}
	driver_offer(&driver, 0);
	pmem_kick(pmem);
	ck_assert_uint_eq(answered(), 1);
	const uint8_t zeros[4] = { 0 };
	ck_assert_mem_eq(answer_of(0) + 4, zeros, 4);
	ck_assert_uint_eq(answer_of(0)[3], 0xee);
	unmake();
}
END_TEST

START_TEST(gives_back_what_waits_at_a_stop)
{
	make(0);
	offer();
	offer_form(7, 4, 4);
	pmem_kick(pmem);
	pmem_stop(pmem);
	vring_stop(driver.vq);
	ck_assert_uint_eq(vring_base(driver.vq), 0);
	/* The old sync covers nothing of the next start. */
	driver_start(&driver);
	pmem_start(pmem, driver.vq);
	ck_assert_uint_eq(pmem_waiting(pmem), 2);
	ck_assert_uint_eq(syncs, 1);
	pmem_synced(pmem, 0, NULL);
	ck_assert_uint_eq(answered(), 0);
	ck_assert_uint_eq(syncs, 2);

	pmem_stop(pmem);
	vring_stop(driver.vq);
	pmem_synced(pmem, 0, NULL);
	pmem_kick(pmem);
	fake_loop_run(loop, 60000);
	ck_assert_uint_eq(answered(), 0);
	driver_start(&driver);
	pmem_start(pmem, driver.vq);
	pmem_synced(pmem, 0, NULL);
	assert_answer(0, 0);
	assert_answer(1, 1);
	unmake();
}
END_TEST

START_TEST(answers_everything_when_the_daemon_ends)
{
	make(0);
	offer();
	pmem_kick(pmem);
	offer();
	pmem_fail_all(pmem);
	assert_answer(0, 1);
	assert_answer(1, 1);
	/* One that comes between this and the end. */
	offer();
	pmem_kick(pmem);
	assert_answer(2, 1);
	unmake();
}
END_TEST

START_TEST(answers_a_full_ring_when_the_daemon_ends)
{
	make(0);
	for (unsigned int i = 0; i < NUM / 2; i++)
		offer();
	pmem_fail_all(pmem);
	for (unsigned int i = 0; i < NUM / 2; i++)
		assert_answer((uint16_t)i, 1);
	unmake();
}
END_TEST

START_TEST(serves_a_full_ring_in_bursts)
{
	make(1);
	for (unsigned int i = 0; i < NUM / 2; i++)
		offer();
	pmem_kick(pmem);
	ck_assert_uint_eq(answered(), 64);
	fake_loop_run(loop, 1);
	ck_assert_uint_eq(answered(), NUM / 2);
	for (unsigned int i = 0; i < NUM / 2; i++)
		assert_answer(i, 0);
	unmake();
}
END_TEST

START_TEST(reports_a_broken_ring_once)
{
	make(0);
	offer();
	pmem_kick(pmem);
	driver_offer(&driver, NUM);
	pmem_kick(pmem);
	ck_assert_uint_eq(breaks, 1);
	ck_assert_int_eq(break_code, -EPROTO);
	pmem_kick(pmem);
	pmem_synced(pmem, 0, NULL);
	fake_loop_run(loop, 60000);
	ck_assert_uint_eq(breaks, 1);
	ck_assert_uint_eq(answered(), 0);
	unmake();

	make(0);
	offered = 0;
	offer();
	pmem_kick(pmem);
	ck_assert_int_eq(ftruncate(driver.fd, 0), 0);
	pmem_synced(pmem, 0, NULL);
	ck_assert_uint_eq(breaks, 2);
	ck_assert_int_eq(break_code, -EIO);
	ck_assert(memory_is_broken(driver.memory));
	unmake();
}
END_TEST

void add_pmem_tests(Suite *suite)
{
	TCase *tcase = tcase_create("pmem");
	tcase_add_test(tcase, describes_itself);
	tcase_add_test(tcase, takes_regions_that_qemu_and_guests_take);
	tcase_add_test(tcase, answers_at_once_where_there_is_nothing_to_sync);
	tcase_add_test(tcase, covers_a_flush_by_a_sync_that_starts_after_it);
	tcase_add_test(tcase, answers_1_where_a_sync_fails);
	tcase_add_test(tcase, answers_1_after_30_seconds);
	tcase_add_test(tcase, answers_every_form_of_request);
	tcase_add_test(tcase, takes_requests_in_pieces);
	tcase_add_test(tcase, gives_back_what_waits_at_a_stop);
	tcase_add_test(tcase, answers_everything_when_the_daemon_ends);
	tcase_add_test(tcase, answers_a_full_ring_when_the_daemon_ends);
	tcase_add_test(tcase, serves_a_full_ring_in_bursts);
	tcase_add_test(tcase, reports_a_broken_ring_once);
	suite_add_tcase(suite, tcase);
}
