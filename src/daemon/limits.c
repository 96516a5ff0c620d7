/* limits.c: what the system must allow for the flags to hold. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "vhost/frontend.h"
#include "vhost/memory.h"
#include "vhost/provider.h"

enum {
	FILES_OWN = 128, /* log, loop, devices, sockets and the like, a sync */
	MAPS_OWN = 1024, /* libraries, threads' stacks, allocations */
	/* Two tables, and the stacks of two workers with their guards. */
	MAPS_FRONTEND = 2 * MEMORY_ENTRIES_MAX + 4,
};

static int check_files(const struct options *options, struct err *err)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_set(err, -errno, "getrlimit: %s", strerror(errno));
	/* Where it is raised already a system call filter may forbid it. */
	if (limit.rlim_cur != limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			return err_set(err, -errno, "setrlimit: %s", strerror(errno));
	}

	uint64_t frontends = options->socket_count ? options->max_frontends : 0;
	uint64_t needed = options->max_providers * PROVIDER_FDS_MAX + frontends * FRONTEND_FDS_MAX +
			  options->max_mappings + FILES_OWN;
	if (limit.rlim_max >= needed)
		return 0;
	char front_ends[48] = "";
	if (frontends)
		snprintf(front_ends, sizeof(front_ends), ", --max-front-ends %" PRIu64, frontends);
	return err_set(err, -ERANGE,
		"--max-providers %" PRIu64 "%s and --max-mappings %" PRIu64 " need %" PRIu64
		" open files, the limit is %" PRIu64 ": raise it (LimitNOFILE=, ulimit -n), or lower the flags",
		options->max_providers, front_ends, options->max_mappings, needed, (uint64_t)limit.rlim_max);
}

static int check_maps(const struct options *options, struct err *err)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	uint64_t limit = UINT64_MAX;
	if (file) {
		if (fscanf(file, "%" SCNu64, &limit) != 1)
			limit = UINT64_MAX;
		fclose(file);
	}

	/* A mapping splits the reservation around it. */
	uint64_t frontends = options->socket_count ? options->max_frontends : 0;
	uint64_t needed = 2 * options->max_mappings + frontends * MAPS_FRONTEND + MAPS_OWN;
	if (limit >= needed)
		return 0;
	char front_ends[48] = "";
	if (frontends)
		snprintf(front_ends, sizeof(front_ends), " with --max-front-ends %" PRIu64, frontends);
	return err_set(err, -ERANGE,
		"--max-mappings %" PRIu64 "%s needs vm.max_map_count = %" PRIu64 ", it is %" PRIu64
		": raise it (sysctl vm.max_map_count=%" PRIu64 "), or lower the flags",
		options->max_mappings, front_ends, needed, limit, needed);
}

int limits_check(const struct options *options, struct err *err)
{
	int r = check_maps(options, err);
	return r < 0 ? r : check_files(options, err);
}
