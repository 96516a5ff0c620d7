/* fd.c: file descriptors and memory that end with their scope. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int *fd)
{
	if (*fd < 0)
		return;
	int saved = errno;
	close(*fd);
	errno = saved;
	*fd = -1;
}

int fd_set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

bool fd_is_same_file(int a, int b)
{
	struct stat a_stat, b_stat;
	return fstat(a, &a_stat) == 0 && fstat(b, &b_stat) == 0 && a_stat.st_dev == b_stat.st_dev &&
	       a_stat.st_ino == b_stat.st_ino;
}

bool fd_is_hung_up(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLRDHUP };
	return poll(&poll_fd, 1, 0) > 0;
}

void ptr_free(void *pointer_variable)
{
	void *pointer;
	memcpy(&pointer, pointer_variable, sizeof(pointer));
	free(pointer);
}

void fd_occupy_standard_streams(void)
{
	/* The wrong way round, so that using one fails as it would without. */
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
	}
}
