/* provider.c: shares memory of its own through the daemon on this host, until its standard input ends.
 * Usage: provider SOCKET SHMID OFFSET TEXT */
/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE 1 /* memfd_create() */
#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mrshare.h>

enum { SIZE = 1 << 20 };

/* A memfd that can be sealed: then the daemon sees to it that nobody shortens it under a peer. */
static char *make_memory(int *ret_fd)
{
	int fd = memfd_create("shared", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, SIZE) < 0)
		return NULL;
	char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	*ret_fd = fd;
	return memory == MAP_FAILED ? NULL : memory;
}

/* A decimal or 0x number and nothing else. */
static bool parse(const char *text, unsigned long long max, unsigned long long *ret_number)
{
	char *end;
	errno = 0;
	*ret_number = strtoull(text, &end, 0);
	return isdigit((unsigned char)*text) && !*end && !errno && *ret_number <= max;
}

int main(int argc, char **argv)
{
	struct mrshare_provider *provider = NULL;
	unsigned long long shmid, offset;
	int fd, r;
	if (argc != 5 || !parse(argv[2], UINT8_MAX, &shmid) || !parse(argv[3], UINT64_MAX, &offset)) {
		fprintf(stderr, "usage: provider SOCKET SHMID OFFSET TEXT, with an offset in bytes such as 0x100000\n");
		return 2;
	}
	char *memory = make_memory(&fd);
	if (!memory) {
		perror("provider: memory");
		return 1;
	}
	snprintf(memory, SIZE, "%s", argv[4]);

	struct mrshare_mmap mmap = mrshare_mmap_zero();
	mmap.shmid = (uint8_t)shmid;
	mmap.shm_offset = offset;
	mmap.len = SIZE;
	mmap.flags = MRSHARE_MMAP_WRITABLE;
	r = mrshare_provider_open(argv[1], &provider);
	if (r == 0)
		r = mrshare_provider_map(provider, &mmap, fd);
	if (r == 0) {
		printf("shared\n");
		fflush(stdout);
		struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
			{ .fd = mrshare_provider_fd(provider), .events = POLLIN } };
		poll(fds, 2, -1);
		r = mrshare_provider_unmap(provider, &mmap); /* 0: no peer reaches the memory any more */
	}
	if (r < 0)
		fprintf(stderr, "provider: %s: %s\n", mrshare_error_call(), mrshare_error());
	else
		printf("at the end: %.*s\n", SIZE, memory);
	mrshare_provider_close(&provider);
	return r < 0 ? 1 : 0;
}
