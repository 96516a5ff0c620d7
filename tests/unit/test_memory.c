/* test_memory.c: tables of a front-end's memory: checks, whose the fds are, accesses, files that are truncated. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "vhost/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "stages.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

#define TOP UINT64_C(0xfffffffffffff000)

static struct err err;
static struct memory *memory;

static int memfd(size_t size, unsigned int flags)
{
	int fd = memfd_create("test", MFD_CLOEXEC | flags);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static bool is_none(void *data, dev_t dev, ino_t ino)
{
	return false;
}

static bool is_that_file(void *data, dev_t dev, ino_t ino)
{
	const struct stat *st = data;
	return st->st_dev == dev && st->st_ino == ino;
}

/* All steps; the first that fails ends it and frees the table. */
static int make(const struct memory_entry *entries, unsigned int count, int *fds)
{
	int r = memory_new(entries, count, fds, false, &memory, &err);
	if (r < 0)
		return r;
	r = memory_look(memory, &err);
	if (r == 0) {
		memory_mark_own(memory, is_none, NULL);
		r = memory_map(memory, UINT64_MAX, &err);
	}
	if (r < 0)
		memory_free(&memory);
	return r;
}

static int make_one(uint64_t guest_addr, uint64_t size, int fd)
{
	const struct memory_entry entry = { guest_addr, size, guest_addr, 0 };
	return make(&entry, 1, &fd);
}

START_TEST(refuses_entries_that_cannot_be)
{
	static const struct {
		struct memory_entry entry;
		bool same;
	} bad[] = {
		{ { 0, 0, 0, 0 } },
		{ { TOP, 2 * PAGE, 0, 0 } },
		{ { 0, 2 * PAGE, TOP, 0 } },
		{ { 0, 2 * PAGE, 0, TOP } },
		{ { PAGE, TOP, 0, 0 } },
		{ { 1, PAGE, 0, 0 } },
		{ { 0, PAGE + 1, 0, 0 } },
		{ { 0, PAGE, 512, 0 } },
		{ { 0, PAGE, 0, 2048 } },
		{ { 0, PAGE, PAGE, 0 }, true },
		/* With the other entry. */
		{ { 0x10000, PAGE, 0, 0 } },
		{ { 0xf000, 2 * PAGE, 0, 0 } },
		{ { 0x11000, PAGE, 0, 0 } },
		{ { 0, PAGE, 0x21000, 0 } },
		{ { 0, 0x100000, 0x100000, 0 } },
	};
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct memory_entry entries[] = { { 0x10000, 2 * PAGE, bad[i].same ? 0x10000 : 0x20000, 0 },
			bad[i].entry };
		int fds[] = { 100, 101 };
		int r = memory_new(entries, 2, fds, bad[i].same, &memory, &err);
		if (r != -EINVAL || fds[0] != 100 || fds[1] != 101)
			ck_abort_msg("row %u: got %d, fds %d and %d", i, r, fds[0], fds[1]);
	}
}
END_TEST

START_TEST(takes_eight_entries_and_none)
{
	struct memory_entry entries[9];
	int fds[9];
	for (unsigned int i = 0; i < 9; i++) {
		entries[i] = (struct memory_entry){ i * PAGE, PAGE, (8 - i) * PAGE, 0 };
		fds[i] = memfd(PAGE, 0);
	}
	unsigned int open_fds = count_fds();
	ck_assert_int_eq(memory_new(entries, 9, fds, false, &memory, &err), -ENOSPC);
	ck_assert_uint_eq(count_fds(), open_fds);
	ck_assert_int_eq(make(entries, 8, fds), 0);
	ck_assert_uint_eq(count_fds(), open_fds - 8);
	ck_assert_uint_eq(memory_foreign_count(memory), 8);
	memory_free(&memory);

	ck_assert_int_eq(make(NULL, 0, NULL), 0);
	ck_assert_int_eq(memory_check(memory, MEMORY_GUEST_ADDR, 0, 1), -EFAULT);
	memory_free(&memory);
	close(fds[8]);
}
END_TEST

/* Case 4: all or nothing, and each fd is closed once. */
START_TEST(refuses_a_table_whose_second_file_is_unfit)
{
	const struct memory_entry entries[] = { { 0, PAGE, 0, 0 }, { PAGE, PAGE, PAGE, 0 },
		{ 2 * PAGE, PAGE, 2 * PAGE, 0 } };
	int pipes[2];
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	char path[64];
	int writable = memfd(PAGE, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", writable);
	const struct {
		int fd, wanted;
	} unfit[] = {
		{ pipes[0], -ENODEV },
		{ memfd(PAGE - 1, 0), -EFBIG },
		{ open("/proc/self", O_RDONLY | O_CLOEXEC | O_DIRECTORY), -ENODEV },
		{ open(path, O_RDONLY | O_CLOEXEC), -EACCES },
		{ 1000000, -EBADF },
	};
	for (unsigned int i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
		unsigned int open_fds = count_fds();
		int fds[] = { memfd(PAGE, 0), unfit[i].fd, memfd(PAGE, 0) };
		int r = make(entries, 3, fds);
		if (r != unfit[i].wanted)
			ck_abort_msg("row %u: wanted %d, got %d: %s", i, unfit[i].wanted, r, err.text);
		ck_assert_uint_eq(count_fds(), unfit[i].wanted == -EBADF ? open_fds : open_fds - 1);
		ck_assert_int_eq(fds[0], -1);
		ck_assert_ptr_nonnull(strstr(err.text, "memory entry 1"));
	}
	close(pipes[1]);
	close(writable);
}
END_TEST

START_TEST(never_maps_own_files_and_files_on_disks)
{
	struct stat own;
	int fds[] = { memfd(PAGE, 0), memfd(PAGE, 0), open("/dev/null", O_RDWR | O_CLOEXEC) };
	ck_assert_int_eq(fstat(fds[1], &own), 0);
	const struct memory_entry entries[] = { { 0, PAGE, 0, 0 }, { PAGE, PAGE, PAGE, 0 },
		{ 2 * PAGE, PAGE, 2 * PAGE, 0 } };
	unsigned int open_fds = count_fds();
	ck_assert_int_eq(memory_new(entries, 3, fds, true, &memory, &err), 0);
	ck_assert_int_eq(memory_look(memory, &err), 0);
	memory_mark_own(memory, is_that_file, &own);
	ck_assert_int_eq(memory_map(memory, UINT64_MAX, &err), 0);
	ck_assert_uint_eq(count_fds(), open_fds - 3);

	ck_assert_int_eq(memory_check(memory, MEMORY_GUEST_ADDR, 0, PAGE), 0);
	ck_assert_int_eq(memory_check(memory, MEMORY_GUEST_ADDR, PAGE, 1), -EFAULT);
	ck_assert_int_eq(memory_check(memory, MEMORY_USER_ADDR, PAGE, 1), -EFAULT);
	ck_assert_int_eq(memory_check(memory, MEMORY_GUEST_ADDR, 2 * PAGE, 1), -EFAULT);
	ck_assert_uint_eq(memory_foreign_count(memory), 2);
	memory_free(&memory);
}
END_TEST

START_TEST(translates_one_kind_within_one_entry)
{
	int fd = memfd(4 * PAGE, 0), fds[] = { dup(fd), dup(fd) };
	const struct memory_entry entries[] = { { 0, PAGE, 0x100000, PAGE },
		{ PAGE, 2 * PAGE, TOP - 2 * PAGE, 2 * PAGE } };
	ck_assert_int_eq(make(entries, 2, fds), 0);
	ck_assert_int_eq(pwrite(fd, "first", 5, PAGE), 5);
	ck_assert_int_eq(pwrite(fd, "last", 4, 4 * PAGE - 4), 4);

	char buf[6] = "";
	ck_assert_int_eq(memory_read(memory, MEMORY_GUEST_ADDR, 0, buf, 5), 0);
	ck_assert_str_eq(buf, "first");
	ck_assert_int_eq(memory_read(memory, MEMORY_USER_ADDR, 0x100000, buf, 5), 0);
	ck_assert_str_eq(buf, "first");
	ck_assert_int_eq(memory_read(memory, MEMORY_GUEST_ADDR, 3 * PAGE - 4, buf, 4), 0);
	ck_assert_mem_eq(buf, "last", 4);
	ck_assert_int_eq(memory_write(memory, MEMORY_USER_ADDR, TOP - 5, "mine!", 5), 0);
	ck_assert_int_eq(pread(fd, buf, 5, 4 * PAGE - 5), 5);
	ck_assert_mem_eq(buf, "mine!", 5);

	static const struct {
		enum memory_kind kind;
		uint64_t addr, len;
	} bad[] = {
		{ MEMORY_GUEST_ADDR, PAGE - 1, 2 },
		{ MEMORY_GUEST_ADDR, 3 * PAGE, 1 },
		{ MEMORY_GUEST_ADDR, 3 * PAGE - 1, 2 },
		{ MEMORY_GUEST_ADDR, PAGE, UINT64_MAX },
		{ MEMORY_GUEST_ADDR, PAGE, UINT64_MAX - PAGE + 1 },
		{ MEMORY_GUEST_ADDR, UINT64_MAX, 1 },
		{ MEMORY_GUEST_ADDR, 0x100000, 1 },
		{ MEMORY_USER_ADDR, 0, 1 },
		{ MEMORY_USER_ADDR, TOP - 1, 2 },
		{ MEMORY_USER_ADDR, TOP - 1, UINT64_MAX },
	};
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (memory_check(memory, bad[i].kind, bad[i].addr, bad[i].len) != -EFAULT)
			ck_abort_msg("row %u is not refused", i);
	}
	uint16_t number;
	ck_assert_int_eq(memory_store_u16(memory, MEMORY_GUEST_ADDR, 2, 0x1234), 0);
	ck_assert_int_eq(memory_load_u16(memory, MEMORY_USER_ADDR, 0x100002, &number), 0);
	ck_assert_uint_eq(number, 0x1234);
	ck_assert_int_eq(memory_load_u16(memory, MEMORY_GUEST_ADDR, 1, &number), -EFAULT);
	ck_assert_int_eq(memory_store_u16(memory, MEMORY_GUEST_ADDR, 3 * PAGE, 1), -EFAULT);
	memory_free(&memory);
	close(fd);
}
END_TEST

START_TEST(adds_and_takes_away_entries)
{
	int fd = memfd(PAGE, 0), added = memfd(PAGE, 0);
	unsigned int open_fds = count_fds();
	const struct memory_entry first = { 0, PAGE, 0, 0 }, second = { PAGE, PAGE, PAGE, 0 };
	struct memory *one, *two, *last;
	ck_assert_int_eq(memory_new_with(NULL, &first, &fd, true, &one, &err), 0);
	ck_assert_int_eq(memory_look(one, &err), 0);
	ck_assert_int_eq(memory_map(one, UINT64_MAX, &err), 0);
	ck_assert_int_eq(memory_write(one, MEMORY_GUEST_ADDR, 8, "one", 4), 0);

	ck_assert_int_eq(memory_new_with(one, &first, &added, true, &two, &err), -EINVAL);
	ck_assert_int_ge(added, 0);
	ck_assert_int_eq(memory_new_with(one, &second, &added, true, &two, &err), 0);
	ck_assert_int_eq(memory_look(two, &err), 0);
	ck_assert_int_eq(memory_map(two, UINT64_MAX, &err), 0);
	ck_assert_uint_eq(count_fds(), open_fds - 2);
	memory_free(&one);

	char text[4];
	ck_assert_int_eq(memory_read(two, MEMORY_GUEST_ADDR, 8, text, 4), 0);
	ck_assert_str_eq(text, "one");
	ck_assert_int_eq(memory_check(two, MEMORY_GUEST_ADDR, PAGE, PAGE), 0);

	const struct memory_entry neither = { 0, 2 * PAGE, 0, 0 };
	ck_assert_int_eq(memory_new_without(two, &neither, &last, &err), -ENOENT);
	ck_assert_int_eq(memory_new_without(two, &first, &last, &err), 0);
	memory_free(&two);
	ck_assert_int_eq(memory_check(last, MEMORY_GUEST_ADDR, 0, 1), -EFAULT);
	ck_assert_int_eq(memory_check(last, MEMORY_GUEST_ADDR, PAGE, PAGE), 0);
	memory_free(&last);
}
END_TEST

/* Case 36. */
START_TEST(breaks_where_a_file_is_truncated)
{
	int fd = memfd(4 * PAGE, 0);
	ck_assert_int_eq(make_one(0, 4 * PAGE, dup(fd)), 0);
	struct memory *broken = memory;
	ck_assert_int_eq(make_one(0, PAGE, memfd(PAGE, 0)), 0);

	/* A hole reads as zeros and breaks nothing. */
	uint16_t number = 1;
	ck_assert_int_eq(memory_store_u16(broken, MEMORY_GUEST_ADDR, PAGE, 7), 0);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4 * PAGE), 0);
	ck_assert_int_eq(memory_load_u16(broken, MEMORY_GUEST_ADDR, PAGE, &number), 0);
	ck_assert_uint_eq(number, 0);

	ck_assert_int_eq(ftruncate(fd, PAGE), 0);
	ck_assert(!memory_is_broken(broken));
	ck_assert_int_eq(memory_write(broken, MEMORY_GUEST_ADDR, 0, "here", 4), 0);
	char buf[3 * PAGE];
	memset(buf, 1, sizeof(buf));
	ck_assert_int_eq(memory_read(broken, MEMORY_GUEST_ADDR, PAGE - 10, buf, sizeof(buf)), -EIO);
	ck_assert_int_eq(buf[sizeof(buf) - 1], 0);
	ck_assert(memory_is_broken(broken));
	ck_assert_int_eq(memory_read(broken, MEMORY_GUEST_ADDR, 0, buf, 4), -EIO);
	ck_assert_int_eq(memory_check(broken, MEMORY_GUEST_ADDR, 0, 4), -EIO);

	/* Nobody else's is. */
	ck_assert(!memory_is_broken(memory));
	ck_assert_int_eq(memory_read(memory, MEMORY_GUEST_ADDR, 0, buf, 4), 0);
	memory_free(&memory);
	memory_free(&broken);
	close(fd);
}
END_TEST

START_TEST(breaks_on_each_kind_of_access)
{
	for (unsigned int kind = 0; kind < 3; kind++) {
		int fd = memfd(PAGE, 0), r;
		uint16_t number;
		ck_assert_int_eq(make_one(0, PAGE, dup(fd)), 0);
		ck_assert_int_eq(ftruncate(fd, 0), 0);
		if (kind == 0)
			r = memory_write(memory, MEMORY_GUEST_ADDR, PAGE - 8, "gone", 5);
		else if (kind == 1)
			r = memory_store_u16(memory, MEMORY_GUEST_ADDR, 16, 1);
		else
			r = memory_load_u16(memory, MEMORY_GUEST_ADDR, 16, &number);
		ck_assert_int_eq(r, -EIO);

		/* What is derived from a broken table is broken. */
		const struct memory_entry entry = { 0, PAGE, 0, 0 };
		struct memory *less;
		ck_assert_int_eq(memory_new_without(memory, &entry, &less, &err), 0);
		ck_assert(memory_is_broken(less));
		memory_free(&less);
		memory_free(&memory);
		close(fd);
	}
}
END_TEST

/* Where there are no huge pages to be had, their first use is an access to what is not there. */
START_TEST(breaks_and_maps_whole_huge_pages)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	if (fd < 0 || ftruncate(fd, 2 * HUGE_PAGE) < 0)
		return;
	/* In the middle of the file, over the edge between two pages. */
	const struct memory_entry entry = { 0x200000, HUGE_PAGE, 0x200000, HUGE_PAGE / 2 };
	int passed = dup(fd);
	ck_assert_int_eq(make(&entry, 1, &passed), 0);
	ck_assert_int_eq(memory_check(memory, MEMORY_GUEST_ADDR, 0x200000, HUGE_PAGE), 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	char buf[2 * PAGE];
	ck_assert_int_eq(memory_read(memory, MEMORY_GUEST_ADDR, 0x300000 - PAGE, buf, sizeof(buf)), -EIO);
	memory_free(&memory);
	close(fd);
}
END_TEST

static void fault(void)
{
	int fd = memfd(PAGE, 0);
	volatile char *at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	(void)*at;
}

START_TEST(leaves_other_faults_alone)
{
	ck_assert_int_eq(make_one(0, PAGE, memfd(PAGE, 0)), 0);
	fault();
}
END_TEST

START_TEST(leaves_signals_that_are_no_faults_alone)
{
	ck_assert_int_eq(make_one(0, PAGE, memfd(PAGE, 0)), 0);
	kill(getpid(), SIGBUS);
	pause();
}
END_TEST

void add_memory_tests(Suite *suite)
{
	TCase *tcase = tcase_create("memory");
	tcase_add_test(tcase, refuses_entries_that_cannot_be);
	tcase_add_test(tcase, takes_eight_entries_and_none);
	tcase_add_test(tcase, refuses_a_table_whose_second_file_is_unfit);
	tcase_add_test(tcase, never_maps_own_files_and_files_on_disks);
	tcase_add_test(tcase, translates_one_kind_within_one_entry);
	tcase_add_test(tcase, adds_and_takes_away_entries);
	tcase_add_test(tcase, breaks_where_a_file_is_truncated);
	tcase_add_test(tcase, breaks_on_each_kind_of_access);
	tcase_add_test(tcase, breaks_and_maps_whole_huge_pages);
	tcase_add_test_raise_signal(tcase, leaves_other_faults_alone, SIGBUS);
	tcase_add_test_raise_signal(tcase, leaves_signals_that_are_no_faults_alone, SIGBUS);
	suite_add_tcase(suite, tcase);
}
