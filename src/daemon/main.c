/* main.c: mrshared, from its flags to its end. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
#include "daemon/statics.h"

enum { EXIT_USAGE = 2, TICK_MS = 1000 };

/* Everything that lives as long as the process: what a worker that hangs still uses must not be on main's stack. */
static struct {
	struct options options;  /* the flags */
	struct mapfile map_file; /* with the settings that hold at the start */
	struct sockaddr_storage *listen;
	struct publish_config publish;
	struct providers_config providers;
	struct frontends_config frontends;
	struct frontend_socket *sockets;
	struct pipeline_config config;
	struct event_loop *loop;
	struct event_source *tick;
	struct pipeline *pipeline;
	struct statics *statics;
	char limits_text[320];
	struct err reload_err; /* of the last reload; code 0: it went well */
	bool started, stopping, stopped;
	int exit_code;
} self;

static void on_stopped(void *data)
{
	self.stopped = true;
	loop_stop(self.loop);
}

static void stop(int exit_code)
{
	self.stopping = true;
	self.exit_code = exit_code;
	service_stopping();
	if (self.statics)
		statics_stop(self.statics);
	pipeline_stop(self.pipeline, on_stopped, NULL);
}

static void on_end_signal(void *data)
{
	if (self.stopping)
		_exit(EXIT_FAILURE);
	log_info("ending");
	stop(EXIT_SUCCESS);
}

static void on_frontend_left(bool was_dropped)
{
	if (self.stopping)
		return;
	log_info("ending with the front-end of --fd");
	stop(was_dropped ? EXIT_FAILURE : EXIT_SUCCESS);
}

static void fail(const struct err *err)
{
	log_error("%s", err->text);
	service_failed(err);
	stop(EXIT_FAILURE);
}

static void on_status(char *ret_text, size_t size)
{
	struct pipeline_counts counts = { 0 };
	if (self.pipeline)
		counts = pipeline_counts(self.pipeline);
	snprintf(ret_text, size, "%sfront-ends: %zu, providers: %zu, mappings: %zu, peers: %zu%s%s",
		self.started ? "" : "starting; ", counts.frontends, counts.providers, counts.mappings, counts.peers,
		self.reload_err.code ? "; the last reload failed: " : "",
		self.reload_err.code ? self.reload_err.text : "");
}

static void on_tick(void *data)
{
	log_tick();
	service_tick(self.statics && statics_progressed(self.statics));
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

/* Those that read the limits do so through pointers, each time. */
static void set_limits(const struct options *settings)
{
	char text[sizeof(self.limits_text)], bytes[80] = "any number of bytes";
	if (settings->max_bytes != UINT64_MAX || settings->max_bytes_each != UINT64_MAX)
		snprintf(bytes, sizeof(bytes), "%s (%s a provider)", size_format(settings->max_bytes).text,
			size_format(settings->max_bytes_each).text);
	snprintf(text, sizeof(text),
		"log level %s; at most %" PRIu64 " mappings (%" PRIu64 " a provider), %s, %" PRIu64
		" providers, %" PRIu64 " front-ends, %" PRIu64 " peers",
		log_level_name(settings->log_level), settings->max_mappings, settings->max_mappings_each, bytes,
		settings->max_providers, settings->max_frontends, settings->max_peers);
	if (self.started && strcmp(text, self.limits_text) != 0)
		log_info("%s: %s", self.options.map_file, text);
	memcpy(self.limits_text, text, sizeof(text));

	log_set_level(settings->log_level);
	self.publish.max_peers = (unsigned int)settings->max_peers;
	self.providers.max_providers = (unsigned int)settings->max_providers;
	self.frontends.max_frontends = (unsigned int)settings->max_frontends;
	self.config.max_providers = (unsigned int)settings->max_providers;
	self.config.limits = (struct regions_limits){
		.max_mappings = settings->max_mappings,
		.max_mappings_each = settings->max_mappings_each,
		.max_bytes = settings->max_bytes,
		.max_bytes_each = settings->max_bytes_each,
	};
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
		.max_extents = (uint32_t)options->max_extents,
		.max_mr_size = options->max_mr_size,
		.on_demand = options->odp,
	};
	self.providers = (struct providers_config){
		.path = options->provider_socket,
		.fd = options->provider_fd,
		.mode = options->socket_mode,
		.group = options->socket_group,
	};
	self.config = (struct pipeline_config){
		.rules = {
			.pinned = !options->no_rdma && !options->odp,
			.any_filesystem = options->any_filesystem,
			.refuse_unsealed = options->refuse_unsealed,
			.pins_read_only = admission_kernel_pins_read_only(),
		},
		.revoke_timeout_ms = options->revoke_timeout_ms,
		.publish = options->no_rdma ? NULL : &self.publish,
		.frontends = options->socket_count ? &self.frontends : NULL,
		.sockets = self.sockets,
		.socket_count = options->socket_count,
		.frontend_left = on_frontend_left,
	};
	set_limits(&self.map_file.settings);
	return 0;
}

/*
 * Static mappings, and what a reload changes.
 */

static bool has_providers(void)
{
	return self.options.provider_socket || self.options.provider_fd >= 0;
}

/* Before that a provider could take a range that is to be a static mapping's. */
static void on_claimed(void)
{
	struct err err;
	if (has_providers() && pipeline_open_providers(self.pipeline, &self.providers, &err) < 0)
		fail(&err);
}

static void on_started(int result, const struct err *err)
{
	struct err frontends_err;
	if (self.stopping)
		return;
	if (result == 0) {
		result = pipeline_open_frontends(self.pipeline, &frontends_err);
		err = &frontends_err;
	}
	if (result < 0) {
		fail(err);
		return;
	}
	self.started = true;
	log_info("ready: mrshared %s", PACKAGE_VERSION);
	service_ready();
}

static void on_settings(const struct options *settings)
{
	set_limits(settings);
	pipeline_limits_changed(self.pipeline);
}

static void on_reloaded(const struct err *err)
{
	self.reload_err = err ? *err : (struct err){ 0 };
	service_ready();
}

static const struct statics_ops statics_ops = {
	.claimed = on_claimed,
	.started = on_started,
	.reloading = service_reloading,
	.settings = on_settings,
	.reloaded = on_reloaded,
};

static void on_reload_signal(void *data)
{
	if (self.options.map_file)
		statics_reload(self.statics);
	else
		log_warning("there is nothing to reload upon SIGHUP: flags hold until mrshared ends, and there is no "
			    "--map-file");
}

static int start_log(struct err *err)
{
	if (self.options.log_json)
		log_set_json();
	int r = self.options.log_json ? log_start(NULL) : service_log();
	return r < 0 ? err_set(err, r, "cannot start the log's thread: %s", strerror(-r)) : 0;
}

static int start(struct err *err)
{
	const struct options *options = &self.options;
	self.map_file.settings = *options;
	int r = start_log(err);
	if (options->no_rdma && options->allow_count)
		log_warning("--allow admits nobody: with --no-rdma there are no peers");
	if (r == 0 && options->map_file)
		r = mapfile_read(options->map_file, options, &self.map_file, err);
	log_set_level(self.map_file.settings.log_level);
	if (r == 0)
		r = limits_check(&self.map_file.settings, err);
	if (r == 0)
		r = configure(err);
	if (r < 0)
		return r;

	self.loop = loop_new();
	self.tick = self.loop ? event_timer_new(self.loop, on_tick, NULL) : NULL;
	if (!self.tick || !loop_signal_new(self.loop, SIGTERM, on_end_signal, NULL) ||
		!loop_signal_new(self.loop, SIGINT, on_end_signal, NULL) ||
		!loop_signal_new(self.loop, SIGHUP, on_reload_signal, NULL))
		return err_set(err, -ENOMEM, "cannot make the event loop");
	r = service_start(self.loop, on_status, err);
	if (r < 0)
		return r;
	on_tick(NULL);
	r = pipeline_new(self.loop, &self.config, &self.pipeline, err);
	for (size_t i = 0; r == 0 && i < options->shmem_count; i++)
		r = pipeline_add_region(self.pipeline, options->shmem[i].shmid, options->shmem[i].size, err);
	if (r == 0)
		r = statics_start(self.pipeline, options, &self.map_file, &statics_ops, &self.statics, err);
	return r;
}

/* What is asked for on standard output, instead of anything else. */
static int print_and_exit(void)
{
	errno = 0;
	if (self.options.help)
		options_help();
	else if (self.options.version)
		printf("mrshared %s\n", PACKAGE_VERSION);
	else
		printf("{\n  \"type\": \"pmem\"\n}\n");
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EXIT_SUCCESS;
	fprintf(stderr, "mrshared: cannot write to standard output: %s\n", strerror(errno));
	return EXIT_FAILURE;
}

static int refuse(const struct err *err)
{
	fprintf(stderr, "%smrshared: %s\n", service_error_prefix(), err->text);
	service_failed(err);
	return EXIT_USAGE;
}

/* Before the loop takes it, it would end the process. Threads block all signals. */
static void hold_reload_signal(int how)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGHUP);
	sigprocmask(how, &signals, NULL);
}

int main(int argc, char **argv)
{
	struct err err;
	hold_reload_signal(SIG_BLOCK);
	fd_occupy_standard_streams();
	if (options_parse(argc, argv, &self.options, &err) < 0)
		return refuse(&err);
	if (self.options.help || self.options.version || self.options.print_capabilities)
		return print_and_exit();
	if (service_take_sockets(&self.options, &err) < 0 || options_check(&self.options, &err) < 0)
		return refuse(&err);
	signal(SIGPIPE, SIG_IGN);

	if (start(&err) < 0) {
		log_error("%s", err.text);
		service_failed(&err);
		log_finish();
		return EXIT_FAILURE;
	}
	hold_reload_signal(SIG_UNBLOCK);
	if (!self.stopped)
		loop_run(self.loop);
	log_finish();
	return self.exit_code;
}
