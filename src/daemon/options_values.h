/* options_values.h: what the values of flags mean. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_OPTIONS_VALUES_H
#define DAEMON_OPTIONS_VALUES_H

#include "daemon/options.h"

enum { VALUE_PAGE = 4096, VALUE_SECONDS_MAX = 3600 };

/*
 * Each returns 0, or -EINVAL, in words that say what is allowed, and -ENOMEM; but not which flag it was.
 */

/* A size in bytes, 0 included; `what` it is of is in the words. */
int value_page_multiple(const char *what, const char *text, uint64_t *ret_size, struct err *err);
/* From 1 to max. */
int value_count(const char *text, uint64_t max, uint64_t *ret_count, struct err *err);
/* Any 32-bit number, in the form that value_total_each() takes. */
int value_plain_count(const char *text, uint64_t *ret_count);
/* TOTAL[,EACH], both above 0: where EACH is left out, one provider may have it all. */
int value_total_each(const char *text, int (*parse)(const char *, uint64_t *), uint64_t *ret_total, uint64_t *ret_each,
	struct err *err);
/* Seconds with decimals, as ms. */
int value_seconds(const char *text, uint32_t min_ms, uint32_t *ret_ms, struct err *err);
/* Whether it fits into a socket's address. */
int value_socket_path(const char *path, struct err *err);
int value_mode(const char *text, mode_t *ret_mode, struct err *err);
int value_group(const char *text, gid_t *ret_group, struct err *err);
/* The number of a socket that we were given. Only before anything is opened, which could have its number. */
int value_fd(const char *text, int *ret_fd, struct err *err);
int value_shmem(const char *text, struct options_shmem *ret_shmem, struct err *err);
int value_allow(const char *text, struct publish_allow *ret_allow, struct err *err);
/* The path of these two is the caller's. */
int value_socket(const char *text, struct options_socket *ret_socket, struct err *err);
int value_map(const char *text, struct options_map *ret_map, struct err *err);

#endif
