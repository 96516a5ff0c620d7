/* main.c: mrshared, from its flags to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "config.h"
#include "daemon/guest.h"
#include "daemon/limits.h"
#include "daemon/loop.h"
#include "daemon/options.h"
#include "daemon/pipeline.h"
#include "daemon/service.h"

enum { EXIT_USAGE = 2, TICK_MS = 1000 };

/* Everything that lives as long as the process: what a worker that hangs still uses must not be on main's stack. */
static struct {
	struct options options;
	struct sockaddr_storage *listen;
	struct publish_config publish;
	struct providers_config providers;
	struct frontends_config frontends;
	struct frontend_socket *sockets;
	struct pipeline_config config;
	struct event_loop *loop;
	struct event_source *tick;
	struct pipeline *pipeline;
	bool started, stopping;
	int exit_code;
} self;

static void on_stopped(void *data)
{
	loop_stop(self.loop);
}

static void stop(int exit_code)
{
	self.stopping = true;
	self.exit_code = exit_code;
	service_stopping();
	pipeline_stop(self.pipeline, on_stopped, NULL);
}

static void on_end_signal(void *data)
{
	if (self.stopping)
		_exit(EXIT_FAILURE);
	log_info("ending");
	stop(EXIT_SUCCESS);
}

static void on_frontend_left(void)
{
	if (self.stopping)
		return;
	log_info("ending with the front-end of --fd");
	stop(EXIT_SUCCESS);
}

static void on_started(void *data, int result, const struct err *err)
{
	if (self.stopping)
		return;
	if (result < 0) {
		log_error("%s", err->text);
		service_failed(err);
		stop(EXIT_FAILURE);
		return;
	}
	self.started = true;
	log_info("ready: mrshared %s", PACKAGE_VERSION);
	service_ready();
}

static void on_status(char *ret_text, size_t size)
{
	struct pipeline_counts counts = { 0 };
	if (self.pipeline)
		counts = pipeline_counts(self.pipeline);
	snprintf(ret_text, size, "%sfront-ends: %zu, providers: %zu, mappings: %zu, peers: %zu",
		self.started ? "" : "starting; ", counts.frontends, counts.providers, counts.mappings, counts.peers);
}

static void on_tick(void *data)
{
	log_tick();
	service_tick();
	event_timer_set(self.tick, TICK_MS);
}

/* Names are resolved once, at the start; of a name's addresses the first is taken. */
static int resolve_listen(struct err *err)
{
	const struct options *options = &self.options;
	self.listen = calloc(options->listen_count + 1, sizeof(*self.listen));
	if (!self.listen)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < options->listen_count; i++) {
		struct addrinfo *list;
		int r = host_port_resolve(&options->listen[i], &list, err);
		if (r < 0) {
			err_prefix(err, "--rdma-listen");
			return r;
		}
		memcpy(&self.listen[i], list->ai_addr, list->ai_addrlen);
		freeaddrinfo(list);
	}
	return 0;
}

static int configure_frontends(struct err *err)
{
	const struct options *options = &self.options;
	self.frontends = (struct frontends_config){
		.mode = options->socket_mode,
		.group = options->socket_group,
		.max_frontends = (unsigned int)options->max_frontends,
		.gpa_addresses = options->gpa_addresses,
		.device = guest_device(),
	};
	self.sockets = calloc(options->socket_count + 1, sizeof(*self.sockets));
	if (!self.sockets)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < options->socket_count; i++) {
		struct frontend_socket *socket = &self.sockets[i];
		socket->path = options->sockets[i].path;
		socket->fd = options->sockets[i].fd;
		options_offered(options, &options->sockets[i], socket->sizes);
		guest_config(socket->sizes[0], socket->config);
		if (!socket->path && fcntl(socket->fd, F_SETFD, FD_CLOEXEC) < 0)
			return err_set(err, -errno, "--fd %d: %s", socket->fd, strerror(errno));
	}
	return 0;
}

static int configure(struct err *err)
{
	const struct options *options = &self.options;
	int r = resolve_listen(err);
	if (r == 0)
		r = configure_frontends(err);
	if (r < 0)
		return r;
	self.publish = (struct publish_config){
		.listen = self.listen,
		.listen_count = options->listen_count,
		.allow = options->allow,
		.allow_count = options->allow_count,
		.keepalive_s = options->keepalive_s,
		.revoke_timeout_ms = options->revoke_timeout_ms,
		.max_peers = (unsigned int)options->max_peers,
		.max_extents = (uint32_t)options->max_extents,
		.max_mr_size = options->max_mr_size,
	};
	self.providers = (struct providers_config){
		.path = options->provider_socket,
		.fd = options->provider_fd,
		.mode = options->socket_mode,
		.group = options->socket_group,
		.max_providers = (unsigned int)options->max_providers,
	};
	self.config = (struct pipeline_config){
		.limits = {
			.max_mappings = options->max_mappings,
			.max_mappings_each = options->max_mappings_each,
			.max_bytes = options->max_bytes,
			.max_bytes_each = options->max_bytes_each,
		},
		.rules = {
			.pinned = !options->no_rdma,
			.any_filesystem = options->any_filesystem,
			.refuse_unsealed = options->refuse_unsealed,
			.pins_read_only = admission_kernel_pins_read_only(),
		},
		.max_providers = (unsigned int)options->max_providers,
		.revoke_timeout_ms = options->revoke_timeout_ms,
		.publish = options->no_rdma ? NULL : &self.publish,
		.frontends = options->socket_count ? &self.frontends : NULL,
		.sockets = self.sockets,
		.socket_count = options->socket_count,
		.frontend_left = on_frontend_left,
	};
	return 0;
}

static int map_static(const struct options_map *map, struct err *err)
{
	int flags = (map->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
	CLEANUP_CLOSE int fd = open(map->path, flags);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, "--map %s: %s", map->path, strerror(errno));

	uint64_t size = (uint64_t)st.st_size;
	if (!map->len && (size <= map->offset || size % 4096))
		return err_set(err, -EINVAL, "--map %s: the file has %s: give a len that is a multiple of 4096",
			map->path, size_format(size).text);
	struct mrshare_mmap mmap = {
		.shmid = map->shmid,
		.fd_offset = map->offset,
		.shm_offset = map->shm_offset,
		.len = map->len ? map->len : size - map->offset,
		.flags = map->read_only ? 0 : MRSHARE_MMAP_WRITABLE,
	};
	int r = pipeline_map_static(self.pipeline, &mmap, fd, map->path, err);
	if (r < 0) {
		err_prefix(err, "--map %s", map->path);
		return r;
	}
	fd = -1;
	return 0;
}

static bool has_providers(void)
{
	return self.options.provider_socket || self.options.provider_fd >= 0;
}

static int start_log(struct err *err)
{
	log_set_level(self.options.log_level);
	if (self.options.log_json) {
		log_set_json();
		return 0;
	}
	int r = service_log();
	return r < 0 ? err_set(err, r, "cannot start the log's thread: %s", strerror(-r)) : 0;
}

static int start(struct err *err)
{
	const struct options *options = &self.options;
	int r = start_log(err);
	if (r == 0)
		r = limits_check(options, err);
	if (r == 0)
		r = configure(err);
	if (r < 0)
		return r;

	self.loop = loop_new();
	self.tick = self.loop ? event_timer_new(self.loop, on_tick, NULL) : NULL;
	if (!self.tick || !loop_signal_new(self.loop, SIGTERM, on_end_signal, NULL) ||
		!loop_signal_new(self.loop, SIGINT, on_end_signal, NULL))
		return err_set(err, -ENOMEM, "cannot make the event loop");
	if (service_start(self.loop, on_status) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	on_tick(NULL);
	r = pipeline_new(self.loop, &self.config, &self.pipeline, err);
	for (size_t i = 0; r == 0 && i < options->shmem_count; i++)
		r = pipeline_add_region(self.pipeline, options->shmem[i].shmid, options->shmem[i].size, err);
	for (size_t i = 0; r == 0 && i < options->map_count; i++)
		r = map_static(&options->maps[i], err);
	if (r == 0)
		r = pipeline_start(self.pipeline, has_providers() ? &self.providers : NULL, on_started, NULL, err);
	return r;
}

/* What is asked for on standard output, instead of anything else. */
static int print_and_exit(void)
{
	if (self.options.help)
		options_help();
	else if (self.options.version)
		printf("mrshared %s\n", PACKAGE_VERSION);
	else
		printf("{\n  \"type\": \"pmem\"\n}\n");
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	struct err err;
	fd_occupy_standard_streams();
	if (options_parse(argc, argv, &self.options, &err) < 0) {
		fprintf(stderr, "mrshared: %s\n", err.text);
		return EXIT_USAGE;
	}
	if (self.options.help || self.options.version || self.options.print_capabilities)
		return print_and_exit();
	if (service_take_sockets(&self.options, &err) < 0 || options_check(&self.options, &err) < 0) {
		fprintf(stderr, "mrshared: %s\n", err.text);
		return EXIT_USAGE;
	}
	signal(SIGPIPE, SIG_IGN);

	if (start(&err) < 0) {
		log_error("%s", err.text);
		service_failed(&err);
		log_finish();
		return EXIT_FAILURE;
	}
	loop_run(self.loop);
	log_finish();
	return self.exit_code;
}
