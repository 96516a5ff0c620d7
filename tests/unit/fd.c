/* fd.c: file descriptors and memory that end with their scope. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(closing)
{
	int fd = dup(STDERR_FILENO), copy = fd;
	ck_assert_int_ge(fd, 0);
	errno = ENOTTY;
	fd_close(&fd);
	ck_assert_int_eq(errno, ENOTTY);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(is_open(copy), false);

	/* The number is somebody else's now. */
	ck_assert_int_eq(dup2(STDERR_FILENO, copy), copy);
	fd_close(&fd);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(is_open(copy), true);
}
END_TEST

static int close_at_scope_end(void)
{
	CLEANUP_CLOSE int fd = dup(STDERR_FILENO);
	CLEANUP_FREE char *memory = malloc(10);
	CLEANUP_FREE char *nothing = NULL;
	ck_assert_ptr_nonnull(memory);
	ck_assert_ptr_null(nothing);
	return is_open(fd) ? fd : -1;
}

START_TEST(scope)
{
	int fd = close_at_scope_end();
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(is_open(fd), false);
}
END_TEST

START_TEST(nonblocking)
{
	int fds[2];
	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(fd_set_nonblocking(fds[0]), 0);
	ck_assert_int_ne(fcntl(fds[0], F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(fd_set_nonblocking(-1), -EBADF);
}
END_TEST

Suite *suite_fd(void)
{
	const TTest *const tests[] = { closing, scope, nonblocking };
	return suite_of("fd", tests, sizeof(tests) / sizeof(tests[0]));
}
