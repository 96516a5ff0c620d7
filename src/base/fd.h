/* fd.h: file descriptors and memory that end with their scope. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>

/* Closes *fd unless it is negative, and sets it to -1. errno stays. */
void fd_close(int *fd);
/* 0 or a negative errno. */
int fd_set_nonblocking(int fd);

/* Whether both are the same file: of sockets, the same socket. */
bool fd_is_same_file(int a, int b);

/* Whether the other end of a stream socket has hung up, or somebody shut it down. Does not wait, and reads nothing. */
bool fd_is_hung_up(int fd);

/* What a program opens must not get the number of a standard stream that it was started without. */
void fd_occupy_standard_streams(void);

#define CLEANUP_CLOSE __attribute__((cleanup(fd_close)))

/* For `cleanup`: frees what the pointer variable points at. */
void ptr_free(void *pointer_variable);

#define CLEANUP_FREE __attribute__((cleanup(ptr_free)))

#endif
