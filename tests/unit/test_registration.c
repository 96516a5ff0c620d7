/* test_registration.c: extents, the undoing of what failed, the budget of locked memory. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fake_rdma.h"
#include "verbs/registration.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static struct device *open_device(unsigned int index, uint64_t max_mr_size)
{
	struct device *device;
	struct err err;
	ck_assert_int_eq(device_new(fake_context(index), max_mr_size, false, &device, &err), 0);
	return device;
}

static uint64_t extent_max(uint32_t vendor, uint64_t device_max, uint64_t flag)
{
	fake_attr[0].vendor_id = vendor;
	fake_attr[0].max_mr_size = device_max;
	struct device *device = open_device(0, flag);
	uint64_t max = device->extent_max;
	device_free(&device);
	return max;
}

START_TEST(extents_are_bounded_by_device_driver_and_flag)
{
	ck_assert_uint_eq(extent_max(0x15b3, UINT64_MAX, 0), 64 * GIB);
	ck_assert_uint_eq(extent_max(0xffffff, UINT64_MAX, 0), GIB);
	ck_assert_uint_eq(extent_max(0x15b3, 0xffffffff, 0), 3 * GIB);
	ck_assert_uint_eq(extent_max(0x15b3, UINT64_MAX, 1 * MIB), MIB);
	ck_assert_uint_eq(extent_max(0x15b3, UINT64_MAX, 5 * MIB), 4 * MIB);
	ck_assert_uint_eq(extent_max(0x15b3, UINT64_MAX, 5000), 4096);
	ck_assert_uint_eq(extent_max(0xffffff, UINT64_MAX, 2 * GIB), GIB);
}
END_TEST

START_TEST(a_device_without_room_for_a_page_is_refused)
{
	fake_attr[0].max_mr_size = 100;
	struct device *device = NULL;
	struct err err;
	ck_assert_int_eq(device_new(fake_context(0), 0, false, &device, &err), -EINVAL);
	ck_assert_ptr_null(device);
	ck_assert_int_eq(fake_counts().pds, 0);
}
END_TEST

START_TEST(extents_are_counted_rounding_up)
{
	struct device *device = open_device(0, 1 * MIB);
	ck_assert_uint_eq(device_extent_count(device, 4096), 1);
	ck_assert_uint_eq(device_extent_count(device, MIB), 1);
	ck_assert_uint_eq(device_extent_count(device, MIB + 4096), 2);
	ck_assert_uint_eq(device_extent_count(device, UINT64_MAX), UINT64_MAX / MIB + 1);
	device_free(&device);
}
END_TEST

static void *memory(uint64_t len)
{
	void *addr = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(addr, MAP_FAILED);
	return addr;
}

static struct device *two[2];

static void open_two(uint64_t max_mr_size)
{
	two[0] = open_device(0, max_mr_size);
	two[1] = open_device(1, max_mr_size);
}

static void close_two(void)
{
	ck_assert_int_eq(fake_counts().mrs, 0);
	device_free(&two[0]);
	device_free(&two[1]);
	ck_assert_int_eq(fake_counts().pds, 0);
}

static int register_two(
	const struct registration_request *request, struct registration **ret_registration, struct err *err)
{
	return registration_new(two, 2, request, ret_registration, err);
}

START_TEST(extents_cover_the_mapping_on_each_device)
{
	open_two(1 * MIB);
	uint64_t len = 2 * MIB + 4096, start = 3 * MIB;
	char *addr = memory(len);
	struct registration_request request = { .addr = addr, .len = len, .shm_offset = start, .writable = true };
	struct registration *registration;
	struct err err;
	ck_assert_int_eq(register_two(&request, &registration, &err), 0);
	for (unsigned int i = 0; i < 6; i++) {
		const struct extent *extent = &registration->devices[i / 3].extents[i % 3];
		const struct fake_mr *mr = fake_mr(i);
		ck_assert_ptr_eq(extent->mr, &mr->base);
		ck_assert_uint_eq(mr->iova, start + i % 3 * MIB);
		ck_assert_uint_eq(extent->shm_offset, mr->iova);
		ck_assert_uint_eq(extent->len, i % 3 == 2 ? 4096 : MIB);
		ck_assert_ptr_eq(mr->base.addr, addr + i % 3 * MIB);
		ck_assert_int_eq(mr->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						     IBV_ACCESS_REMOTE_ATOMIC);
	}
	ck_assert_int_eq(registration_free(&registration, &err), 0);
	ck_assert_ptr_null(registration);
	close_two();
}
END_TEST

START_TEST(rights_are_those_of_mapping_and_device)
{
	fake_attr[1].atomic_cap = IBV_ATOMIC_NONE;
	open_two(0);
	struct registration_request request = { .addr = memory(4096), .len = 4096 };
	struct registration *registration;
	ck_assert_int_eq(register_two(&request, &registration, NULL), 0);
	ck_assert_int_eq(fake_mr(0)->access, IBV_ACCESS_REMOTE_READ);
	registration_free(&registration, NULL);

	request.writable = true;
	ck_assert_int_eq(register_two(&request, &registration, NULL), 0);
	ck_assert_int_eq(fake_mr(1)->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	registration_free(&registration, NULL);
	close_two();
}
END_TEST

/* Each of the six MRs fails in turn: nothing is left, and the error is that one. */
START_TEST(what_fails_is_undone)
{
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(3 * MIB), .len = 3 * MIB, .writable = _i % 2 };
	struct registration *registration = NULL;
	struct err err;
	fake_fail("verbs_reg_mr_iova", (unsigned int)_i, 1, -EFAULT);
	ck_assert_int_eq(register_two(&request, &registration, &err), -EFAULT);
	ck_assert_ptr_null(registration);
	ck_assert_ptr_nonnull(strstr(err.text, request.writable ? "map it read-only" : "Linux 6.2"));
	close_two();
}
END_TEST

START_TEST(an_undo_that_fails_leaves_what_is_registered)
{
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB };
	struct registration *registration = NULL;
	struct err err;
	fake_fail("verbs_reg_mr_iova", 3, 1, -ENOSPC);
	fake_fail("verbs_dereg_mr", 1, 1, -EBUSY);
	ck_assert_int_eq(register_two(&request, &registration, &err), -ENOSPC);
	ck_assert_ptr_nonnull(registration);
	ck_assert_int_eq(fake_counts().mrs, 1);
	ck_assert_int_eq(registration_free(&registration, &err), 0);
	ck_assert_ptr_null(registration);
	close_two();
}
END_TEST

START_TEST(what_is_not_deregistered_can_be_tried_again)
{
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB };
	struct registration *registration;
	struct err err;
	ck_assert_int_eq(register_two(&request, &registration, &err), 0);
	fake_fail("verbs_dereg_mr", 0, 2, -EBUSY);
	ck_assert_int_eq(registration_free(&registration, &err), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "fake1"));
	ck_assert_ptr_nonnull(registration);
	ck_assert_int_eq(fake_counts().mrs, 2);
	fake_fail("verbs_dereg_mr", 0, 1, -EBUSY);
	ck_assert_int_eq(registration_free(&registration, &err), -EBUSY);
	ck_assert_int_eq(fake_counts().mrs, 1);
	ck_assert_int_eq(registration_free(&registration, &err), 0);
	close_two();
}
END_TEST

START_TEST(of_a_removed_device_nothing_is_left)
{
	open_two(0);
	struct registration_request request = { .addr = memory(4096), .len = 4096 };
	struct registration *registration;
	struct err err;
	ck_assert_int_eq(register_two(&request, &registration, &err), 0);
	fake_fail("verbs_dereg_mr", 0, 2, -EIO);
	ck_assert_int_eq(registration_free(&registration, &err), -EIO);
	atomic_store(&two[0]->gone, true);
	atomic_store(&two[1]->gone, true);
	fake_fail("verbs_dereg_mr", 0, 2, -EIO);
	ck_assert_int_eq(registration_free(&registration, &err), 0);
	ck_assert_ptr_null(registration);
}
END_TEST

START_TEST(extents_are_halved_for_want_of_memory_alone)
{
	struct device *device = open_device(0, 0);
	uint64_t len = 300 * MIB;
	void *addr = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct registration_request request = { .addr = addr, .len = len };
	struct registration *registration = NULL;
	struct err err;
	fake_fail("verbs_reg_mr_iova", 0, 2, -ENOMEM);
	ck_assert_int_eq(registration_new(&device, 1, &request, &registration, &err), 0);
	/* 300, 150, then 76 each: where huge pages end. */
	ck_assert_uint_eq(registration->devices[0].count, 4);
	ck_assert_uint_eq(registration->devices[0].extents[0].len, 76 * MIB);
	ck_assert_uint_eq(registration->devices[0].extents[3].len, 72 * MIB);
	ck_assert_int_eq(registration_free(&registration, &err), 0);

	fake_fail("verbs_reg_mr_iova", 0, 4, -ENOMEM);
	registration = NULL;
	ck_assert_int_eq(registration_new(&device, 1, &request, &registration, &err), -ENOMEM);
	ck_assert_str_eq(err.text, "kernel or device fake0 out of memory for 64 MiB");
	fake_fail("verbs_reg_mr_iova", 0, 1, -EINVAL);
	ck_assert_int_eq(registration_new(&device, 1, &request, &registration, &err), -EINVAL);
	ck_assert_ptr_null(registration);
	ck_assert_int_eq(fake_counts().mrs, 0);
	device_free(&device);
}
END_TEST

START_TEST(a_cancelled_registration_leaves_nothing)
{
	open_two(0);
	atomic_bool cancelled = true;
	struct registration_request request = { .addr = memory(4096), .len = 4096, .cancelled = &cancelled };
	struct registration *registration = NULL;
	struct err err;
	ck_assert_int_eq(register_two(&request, &registration, &err), -ECANCELED);
	ck_assert_ptr_null(registration);
	close_two();
}
END_TEST

START_TEST(a_file_that_is_too_short_is_told_before_anything_is_pinned)
{
	open_two(0);
	int fd = memfd_create("short", MFD_CLOEXEC);
	void *addr = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct registration_request request = { .addr = addr, .len = 8192, .writable = true };
	struct registration *registration = NULL;
	struct err err;
	ck_assert_int_eq(register_two(&request, &registration, &err), -EFAULT);
	ck_assert_ptr_nonnull(strstr(err.text, "shortened"));
	close_two();
}
END_TEST

START_TEST(the_budget_is_kept)
{
	struct memlock memlock = { .limit = 8 * MIB };
	struct err err;
	ck_assert_int_eq(memlock_take(&memlock, 2 * MIB, 2, &err), 0);
	ck_assert_int_eq(memlock_take(&memlock, 4 * MIB + 4096, 1, &err), -ENOMEM);
	ck_assert_ptr_nonnull(strstr(err.text, "8 MiB"));
	ck_assert_ptr_nonnull(strstr(err.text, "LimitMEMLOCK"));
	ck_assert_int_eq(memlock_take(&memlock, 4 * MIB, 1, &err), 0);
	ck_assert_int_eq(memlock_take(&memlock, 4096, 1, &err), -ENOMEM);
	memlock_give_back(&memlock, 2 * MIB, 2);
	ck_assert_uint_eq(memlock.pinned, 4 * MIB);
	ck_assert_int_eq(memlock_take(&memlock, UINT64_MAX, 2, &err), -ENOMEM);
	ck_assert_int_eq(memlock_take(&memlock, UINT64_MAX, 1, &err), -ENOMEM);
}
END_TEST

START_TEST(on_demand_is_for_devices_that_can)
{
	static const uint32_t all = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_ATOMIC;
	static const struct {
		uint32_t vendor, caps;
		const char *text;
	} refused[] = {
		{ 0xffffff, all, "soft-RoCE" },
		{ 0x15b3, 0, "--odp" },
		{ 0x15b3, IBV_ODP_SUPPORT_READ, "--odp" },
		{ 0x15b3, IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_ATOMIC, "--odp" },
	};
	struct device *device = NULL;
	struct err err;
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		fake_attr[0].vendor_id = refused[i].vendor;
		fake_odp_caps = refused[i].caps;
		ck_assert_int_eq(device_new(fake_context(0), 0, true, &device, &err), -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(err.text, refused[i].text));
		ck_assert_ptr_nonnull(strstr(err.text, "without --odp"));
		ck_assert_int_eq(fake_counts().pds, 0);
	}
	fake_odp_caps = all & ~(uint32_t)IBV_ODP_SUPPORT_ATOMIC;
	ck_assert_int_eq(device_new(fake_context(0), 0, true, &device, &err), 0);
	ck_assert(!device->has_atomics);

	/* Nothing is faulted in: not even pages that cannot be. */
	int fd = memfd_create("short", MFD_CLOEXEC);
	void *addr = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct registration_request request = { .addr = addr, .len = 8192, .writable = true };
	struct registration *registration;
	ck_assert_int_eq(registration_new(&device, 1, &request, &registration, &err), 0);
	ck_assert_int_eq(fake_mr(0)->access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
						     IBV_ACCESS_ON_DEMAND);
	registration_free(&registration, NULL);
	request.writable = false;
	ck_assert_int_eq(registration_new(&device, 1, &request, &registration, &err), 0);
	ck_assert_int_eq(fake_mr(0)->access, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	registration_free(&registration, NULL);
	device_free(&device);
}
END_TEST

/* A device that goes is none that a mapping fails for; one that fails otherwise is. */
START_TEST(a_device_that_goes_is_left_out)
{
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB };
	struct registration *registration = NULL;
	struct err err = { 0 };
	atomic_store(&two[_i]->gone, true);
	fake_fail("verbs_reg_mr_iova", _i ? 3 : 0, 1, -EIO); /* after one extent, where it is the second */
	fake_fail("verbs_dereg_mr", 0, _i ? 1 : 0, -EIO);
	ck_assert_int_eq(register_two(&request, &registration, &err), 0);
	ck_assert_int_eq(err.code, 0);
	ck_assert_uint_eq(registration_on(registration, two[_i])->count, 0);
	ck_assert_uint_eq(registration_on(registration, two[1 - _i])->count, 2);
	ck_assert_int_eq(registration_drop(registration, two[_i], &err), 0);
	ck_assert_ptr_null(registration_on(registration, two[_i]));
	ck_assert_int_eq(registration_free(&registration, &err), 0);
}
END_TEST

START_TEST(devices_are_added_and_dropped)
{
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB, .shm_offset = 4 * MIB };
	struct registration *registration;
	struct err err;
	ck_assert_int_eq(registration_new(two, 0, &request, &registration, &err), 0);
	fake_fail("verbs_reg_mr_iova", 1, 1, -EINVAL);
	ck_assert_int_eq(registration_add(registration, two[1], &request, &err), -EINVAL);
	ck_assert_int_eq(fake_counts().mrs, 0);
	ck_assert_int_eq(registration_drop(registration, two[1], &err), 0);
	ck_assert_int_eq(registration_add(registration, two[1], &request, &err), 0);
	ck_assert_int_eq(registration_add(registration, two[0], &request, &err), 0);
	ck_assert_int_eq(fake_counts().mrs, 4);
	ck_assert_uint_eq(registration_on(registration, two[0])->extents[1].shm_offset, 5 * MIB);

	fake_fail("verbs_dereg_mr", 0, 1, -EBUSY);
	ck_assert_int_eq(registration_drop(registration, two[1], &err), -EBUSY);
	ck_assert_ptr_nonnull(registration_on(registration, two[1]));
	ck_assert_int_eq(registration_drop(registration, two[1], &err), 0);
	ck_assert_ptr_null(registration_on(registration, two[1]));
	ck_assert_int_eq(fake_counts().mrs, 2);
	ck_assert_int_eq(registration_free(&registration, &err), 0);
	close_two();
}
END_TEST

/* In the place of libc's, for all stages: time is counted only. */
static unsigned int naps;
static void (*after_nap)(void);

int nanosleep(const struct timespec *time, struct timespec *ret_left)
{
	naps++;
	if (after_nap)
		after_nap();
	return 0;
}

static void second_device_is_told_gone(void)
{
	if (naps == 5)
		atomic_store(&two[1]->gone, true);
}

/* The kernel refuses before it tells that the device goes. */
START_TEST(a_device_that_refuses_before_it_goes_is_left_out)
{
	static const int codes[] = { -EIO, -ENODEV };
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB };
	struct registration *registration = NULL;
	struct err err = { 0 };
	after_nap = second_device_is_told_gone;
	fake_fail("verbs_reg_mr_iova", 2, 1, codes[_i]);
	ck_assert_int_eq(register_two(&request, &registration, &err), 0);
	ck_assert_uint_eq(naps, 5);
	ck_assert_uint_eq(registration_on(registration, two[0])->count, 2);
	ck_assert_uint_eq(registration_on(registration, two[1])->count, 0);
	ck_assert_int_eq(registration_free(&registration, &err), 0);
}
END_TEST

static atomic_bool cancelled;

static void cancel(void)
{
	atomic_store(&cancelled, naps == 5);
}

START_TEST(one_that_refuses_and_does_not_go_fails_in_bounded_time)
{
	bool cancels = _i;
	open_two(1 * MIB);
	struct registration_request request = { .addr = memory(2 * MIB), .len = 2 * MIB, .cancelled = &cancelled };
	struct registration *registration = NULL;
	struct err err = { 0 };
	after_nap = cancels ? cancel : NULL;
	fake_fail("verbs_reg_mr_iova", 3, 1, -EIO);
	ck_assert_int_eq(register_two(&request, &registration, &err), -EIO);
	ck_assert_uint_eq(naps, cancels ? 5 : 1000);
	ck_assert_ptr_nonnull(strstr(err.text, "device fake1 fails or has gone: try again"));
	ck_assert_ptr_null(registration);
	close_two();
}
END_TEST

/* What each refusal of the kernel means is said with the way out. */
START_TEST(what_the_kernel_refuses_is_said_with_a_remedy)
{
	static const struct {
		int code;
		bool writable;
		const char *remedy;
	} rows[] = {
		{ -EFAULT, true, "use a memfd, tmpfs, hugetlbfs or device DAX, or map it read-only" },
		{ -EFAULT, false, "older than Linux 6.2" },
		{ -ENOMEM, true, "kernel or device fake0 out of memory for 4 KiB" },
		{ -EIO, true, "try again" },
		{ -ENODEV, false, "try again" },
		{ -EPERM, true, "device fake0: cannot register 4 KiB" },
	};
	open_two(0);
	struct registration_request request = { .addr = memory(4096), .len = 4096, .writable = rows[_i].writable };
	struct registration *registration = NULL;
	struct err err;
	fake_fail("verbs_reg_mr_iova", 0, 1, rows[_i].code);
	ck_assert_int_eq(register_two(&request, &registration, &err), rows[_i].code);
	if (!strstr(err.text, rows[_i].remedy))
		ck_abort_msg("wanted '%s' in '%s'", rows[_i].remedy, err.text);
	close_two();
}
END_TEST

void add_registration_tests(Suite *suite)
{
	TCase *tcase = tcase_create("registration");
	tcase_add_test(tcase, extents_are_bounded_by_device_driver_and_flag);
	tcase_add_test(tcase, a_device_without_room_for_a_page_is_refused);
	tcase_add_test(tcase, extents_are_counted_rounding_up);
	tcase_add_test(tcase, extents_cover_the_mapping_on_each_device);
	tcase_add_test(tcase, rights_are_those_of_mapping_and_device);
	tcase_add_loop_test(tcase, what_fails_is_undone, 0, 6);
	tcase_add_test(tcase, an_undo_that_fails_leaves_what_is_registered);
	tcase_add_test(tcase, what_is_not_deregistered_can_be_tried_again);
	tcase_add_test(tcase, of_a_removed_device_nothing_is_left);
	tcase_add_test(tcase, extents_are_halved_for_want_of_memory_alone);
	tcase_add_test(tcase, a_cancelled_registration_leaves_nothing);
	tcase_add_test(tcase, a_file_that_is_too_short_is_told_before_anything_is_pinned);
	tcase_add_test(tcase, the_budget_is_kept);
	tcase_add_test(tcase, on_demand_is_for_devices_that_can);
	tcase_add_loop_test(tcase, a_device_that_goes_is_left_out, 0, 2);
	tcase_add_loop_test(tcase, a_device_that_refuses_before_it_goes_is_left_out, 0, 2);
	tcase_add_loop_test(tcase, one_that_refuses_and_does_not_go_fails_in_bounded_time, 0, 2);
	tcase_add_test(tcase, devices_are_added_and_dropped);
	tcase_add_loop_test(tcase, what_the_kernel_refuses_is_said_with_a_remedy, 0, 6);
	suite_add_tcase(suite, tcase);
}
