/* test_admission.c: which files may be mapped how, by what the kernel pins. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <linux/magic.h>
#include <unistd.h>

#include "region/admission.h"

enum { SIZE = 8192 };

static int memfd(int flags)
{
	char path[64];
	int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	if (flags == O_RDWR)
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int again = open(path, flags | O_CLOEXEC);
	ck_assert_int_ge(again, 0);
	close(fd);
	return again;
}

/* What is asked of a file that is open like that, on a kernel and for a use like that, and what comes of it. */
static const struct {
	int flags;
	bool writable, pinned, pins_read_only;
	int result, prot;
} rows[] = {
	{ O_RDWR, true, true, true, 0, PROT_READ | PROT_WRITE },
	{ O_RDWR, false, true, true, 0, PROT_READ },
	{ O_RDONLY, false, true, true, 0, PROT_READ },
	/* before Linux 6.2 */
	{ O_RDWR, true, true, false, 0, PROT_READ | PROT_WRITE },
	{ O_RDWR, false, true, false, 0, PROT_READ | PROT_WRITE },
	{ O_RDONLY, false, true, false, -EOPNOTSUPP, 0 },
	/* nothing is pinned: --no-rdma, --odp */
	{ O_RDWR, false, false, false, 0, PROT_READ },
	{ O_RDONLY, false, false, false, 0, PROT_READ },
};

START_TEST(a_file_is_mapped_as_the_kernel_can_pin_it)
{
	int fd = memfd(rows[_i].flags);
	struct admission_request request = { .len = SIZE, .writable = rows[_i].writable };
	struct admission_rules rules = { .pinned = rows[_i].pinned, .pins_read_only = rows[_i].pins_read_only };
	struct admission_result result = { 0 };
	struct err err;
	ck_assert_int_eq(admission_check_fd(fd, request.writable, &err), 0);
	ck_assert_int_eq(admission_check_file(fd, &request, &rules, &result, &err), rows[_i].result);
	ck_assert_int_eq(result.prot, rows[_i].prot);
	if (rows[_i].result < 0) {
		ck_assert_ptr_nonnull(strstr(err.text, "before Linux 6.2"));
		ck_assert_ptr_nonnull(strstr(err.text, "open it O_RDWR"));
	}
	close(fd);
}
END_TEST

/* Whatever the kernel at hand would let through: it could not write the pages back. */
START_TEST(a_writable_file_on_a_disk_is_refused_where_it_would_be_pinned)
{
	char path[] = "/var/tmp/mrshare-admission-XXXXXX";
	int fd = mkostemp(path, O_CLOEXEC);
	struct statfs fs;
	ck_assert_int_ge(fd, 0);
	unlink(path);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	ck_assert_int_eq(fstatfs(fd, &fs), 0);
	if (fs.f_type != TMPFS_MAGIC) {
		struct admission_request request = { .len = SIZE, .writable = true };
		struct admission_rules rules = { .pinned = true, .pins_read_only = _i };
		struct admission_result result;
		struct err err;
		ck_assert_int_eq(admission_check_file(fd, &request, &rules, &result, &err), -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(err.text, "use a memfd, tmpfs, hugetlbfs or device DAX, or map it read-only"));
		rules.pinned = false;
		ck_assert_int_eq(admission_check_file(fd, &request, &rules, &result, &err), 0);
	}
	close(fd);
}
END_TEST

void add_admission_tests(Suite *suite)
{
	TCase *tcase = tcase_create("admission");
	tcase_add_loop_test(tcase, a_file_is_mapped_as_the_kernel_can_pin_it, 0, (int)(sizeof(rows) / sizeof(rows[0])));
	tcase_add_loop_test(tcase, a_writable_file_on_a_disk_is_refused_where_it_would_be_pinned, 0, 2);
	suite_add_tcase(suite, tcase);
}
