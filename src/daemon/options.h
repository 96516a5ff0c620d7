/* options.h: the flags of mrshared. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/address.h"
#include "base/err.h"
#include "base/log.h"
#include "publish/publish.h"

struct options_shmem {
	uint8_t shmid;
	uint64_t size;
};

struct options_map {
	uint8_t shmid;
	char *path;
	uint64_t offset, shm_offset;
	uint64_t len; /* 0: to the end of the file */
	bool read_only;
};

/* Where front-ends come from: a path, or an fd that we were given. */
struct options_socket {
	char *path; /* NULL: fd */
	int fd;
	bool passed; /* the fd came from the service manager, not with --fd */
	bool chosen; /* only the regions in `shmids` are offered */
	bool shmids[256];
};

struct options {
	const char *provider_socket;
	int provider_fd; /* -1; else a listening socket that the service manager passed, which takes its place */
	struct options_socket *sockets;
	size_t socket_count;
	mode_t socket_mode;
	gid_t socket_group; /* -1: ours */

	struct options_shmem *shmem;
	size_t shmem_count;
	struct options_map *maps;
	size_t map_count;
	const char *map_file;

	bool no_rdma;
	struct host_port *listen;
	size_t listen_count;
	struct publish_allow *allow;
	size_t allow_count;
	uint32_t revoke_timeout_ms, keepalive_s;

	uint64_t max_mappings, max_mappings_each;
	uint64_t max_bytes, max_bytes_each;
	uint64_t max_extents, max_peers, max_providers, max_frontends;
	uint64_t max_mr_size; /* 0: none */
	bool refuse_unsealed, any_filesystem, gpa_addresses, odp;

	enum log_level log_level;
	bool log_json;
	bool help, version, print_capabilities;
};

/* The regions that front-ends of a socket are offered: sizes by shmid, 0 where there is none. */
void options_offered(const struct options *options, const struct options_socket *socket, uint64_t ret_sizes[256]);
/* Parses the command line, opening nothing. `err` is one line that says which flag is wrong and what is allowed.
 * Strings stay argv's. */
int options_parse(int argc, char **argv, struct options *ret_options, struct err *err);
/* Parses one line of a map file, without blanks around it: a mapping, whose path becomes the caller's, or a setting,
 * which goes to `settings`; then ret_map->path is NULL. The regions are those of `settings`. */
int options_parse_line(const char *line, struct options *settings, struct options_map *ret_map, struct err *err);
/* Adds a listening socket for front-ends, who are offered all regions; or the one for providers: -EEXIST, in words,
 * where there is one already. */
int options_pass_frontends(struct options *options, int fd, struct err *err);
int options_pass_providers(struct options *options, int fd, struct err *err);
/* Whether there is such a region, and room for the mapping in it. */
int options_check_map(const struct options *options, const struct options_map *map, struct err *err);
/* What flags and sockets must agree on. */
int options_check(const struct options *options, struct err *err);
/* The text of --help. */
void options_help(void);

#endif
