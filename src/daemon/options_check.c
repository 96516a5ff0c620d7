/* options_check.c: what the flags of mrshared must agree on, and with the sockets that it was passed. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "base/range.h"
#include "base/size.h"
#include "daemon/options.h"
#include "daemon/options_values.h"
#include "device/pmem.h"

void options_offered(const struct options *options, const struct options_socket *socket, uint64_t ret_sizes[256])
{
	memset(ret_sizes, 0, 256 * sizeof(*ret_sizes));
	for (size_t i = 0; i < options->shmem_count; i++) {
		uint8_t shmid = options->shmem[i].shmid;
		if (!socket->chosen || socket->shmids[shmid])
			ret_sizes[shmid] = options->shmem[i].size;
	}
}

static int check_socket(const struct options *options, const struct options_socket *socket, struct err *err)
{
	uint64_t sizes[256];
	options_offered(options, socket, sizes);
	for (unsigned int shmid = 0; shmid < 256; shmid++) {
		if (socket->shmids[shmid] && !sizes[shmid])
			return err_set(err, -EINVAL, "region %u is not given by --shmem", shmid);
	}
	if (socket->chosen && !sizes[0])
		return err_set(err, -EINVAL,
			"a pmem device is region 0, which this socket does not offer: add shmid=0 to its regions");
	return pmem_check_regions(sizes, err);
}

static int check_sockets(const struct options *options, struct err *err)
{
	bool has_fd = false, has_path = false;
	for (size_t i = 0; i < options->socket_count; i++) {
		const struct options_socket *socket = &options->sockets[i];
		bool is_fd = !socket->path && !socket->passed;
		has_fd |= is_fd;
		has_path |= !is_fd;
		int r = check_socket(options, socket, err);
		if (r < 0) {
			err_prefix(err,
				socket->path ? "--socket-path %s"
				: is_fd      ? "--fd%s"
					     : "the vhost socket%s",
				socket->path ? socket->path : "");
			return r;
		}
		if (socket->path && options->provider_socket && strcmp(socket->path, options->provider_socket) == 0)
			return err_set(
				err, -EINVAL, "--socket-path and --provider-socket are the same, %s", socket->path);
	}
	if (has_fd && has_path)
		return err_set(err, -EINVAL, "--fd and other sockets for front-ends exclude each other");
	return 0;
}

int options_check_map(const struct options *options, const struct options_map *map, struct err *err)
{
	const struct options_shmem *shmem = NULL;
	for (size_t i = 0; i < options->shmem_count; i++) {
		if (options->shmem[i].shmid == map->shmid)
			shmem = &options->shmem[i];
	}
	if (!shmem)
		return err_set(err, -EINVAL, "region %u is not given by --shmem", map->shmid);
	if (!range_fits(map->shm_offset, map->len ? map->len : VALUE_PAGE, shmem->size))
		return err_set(err, -EINVAL, "%s does not fit into region %u, which has %s", map->path, map->shmid,
			size_format(shmem->size).text);
	return 0;
}

int options_check(const struct options *options, struct err *err)
{
	if (options->no_rdma && options->listen_count)
		return err_set(err, -EINVAL, "--no-rdma and --rdma-listen exclude each other");
	if (!options->no_rdma && !options->listen_count)
		return err_set(err, -EINVAL, "--rdma-listen ADDR[:PORT] is missing (or --no-rdma to publish nothing)");
	if (!options->shmem_count)
		return err_set(err, -EINVAL, "--shmem ID:SIZE is missing: at least one region is needed");
	if (!options->provider_socket && options->provider_fd < 0 && !options->map_count && !options->map_file)
		return err_set(err, -EINVAL,
			"--provider-socket PATH, --map or --map-file is missing: nothing could ever be mapped");

	for (size_t i = 0; i < options->map_count; i++) {
		int r = options_check_map(options, &options->maps[i], err);
		if (r < 0) {
			err_prefix(err, "--map");
			return r;
		}
	}
	return check_sockets(options, err);
}
