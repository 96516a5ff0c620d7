/* options.c: the flags of mrshared: one table feeds parsing and --help. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/size.h"
#include "daemon/options_values.h"
#include "mrshare.h"

typedef int option_fn(struct options *options, const char *value, struct err *err);

/* One more element, of zeros, of an array that an option fills. NULL: out of memory. */
static void *append(void *array_variable, size_t *count, size_t element_size)
{
	void *array;
	memcpy(&array, array_variable, sizeof(array));
	array = reallocarray(array, *count + 1, element_size);
	if (!array)
		return NULL;
	memcpy(array_variable, &array, sizeof(array));
	void *element = (char *)array + *count * element_size;
	memset(element, 0, element_size);
	(*count)++;
	return element;
}

#define APPEND(array, count) append(&(array), &(count), sizeof(*(array)))

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int on_provider_socket(struct options *options, const char *value, struct err *err)
{
	int r = value_socket_path(value, err);
	if (r == 0)
		options->provider_socket = value;
	return r;
}

static int on_socket_mode(struct options *options, const char *value, struct err *err)
{
	return value_mode(value, &options->socket_mode, err);
}

static int on_socket_group(struct options *options, const char *value, struct err *err)
{
	return value_group(value, &options->socket_group, err);
}

static int on_shmem(struct options *options, const char *value, struct err *err)
{
	struct options_shmem *out = APPEND(options->shmem, options->shmem_count);
	int r = out ? value_shmem(value, out, err) : no_memory(err);
	for (size_t i = 0; r == 0 && &options->shmem[i] < out; i++) {
		if (options->shmem[i].shmid == out->shmid)
			r = err_set(err, -EINVAL, "region %u is given twice", out->shmid);
	}
	return r;
}

static int on_socket_path(struct options *options, const char *value, struct err *err)
{
	struct options_socket *out = APPEND(options->sockets, options->socket_count);
	int r = out ? value_socket(value, out, err) : no_memory(err);
	for (size_t i = 0; r == 0 && &options->sockets[i] < out; i++) {
		if (options->sockets[i].path && strcmp(options->sockets[i].path, out->path) == 0)
			r = err_set(err, -EINVAL, "'%s' is given twice", out->path);
	}
	return r;
}

static int on_fd(struct options *options, const char *value, struct err *err)
{
	struct options_socket *out = APPEND(options->sockets, options->socket_count);
	int r = out ? value_fd(value, &out->fd, err) : no_memory(err);
	for (size_t i = 0; r == 0 && &options->sockets[i] < out; i++) {
		if (!options->sockets[i].path && fd_is_same_file(options->sockets[i].fd, out->fd))
			r = err_set(err, -EINVAL, "file descriptor %d is given twice, as --fd %d too", out->fd,
				options->sockets[i].fd);
	}
	return r;
}

static int on_device(struct options *options, const char *value, struct err *err)
{
	if (strcmp(value, "pmem") != 0)
		return err_set(err, -EINVAL, "'%s': wanted pmem", value);
	return 0;
}

static int on_gpa_addresses(struct options *options, const char *value, struct err *err)
{
	options->gpa_addresses = true;
	return 0;
}

/* Found before anything else is looked at. */
static int on_print_capabilities(struct options *options, const char *value, struct err *err)
{
	return err_set(err, -EINVAL, "takes no value");
}

static int on_map(struct options *options, const char *value, struct err *err)
{
	struct options_map *out = APPEND(options->maps, options->map_count);
	return out ? value_map(value, out, err) : no_memory(err);
}

static int on_map_file(struct options *options, const char *value, struct err *err)
{
	if (!*value)
		return err_set(err, -EINVAL, "wanted the path of a file");
	options->map_file = value;
	return 0;
}

static int on_rdma_listen(struct options *options, const char *value, struct err *err)
{
	struct host_port *out = APPEND(options->listen, options->listen_count);
	return out ? host_port_parse(value, MRSHARE_DEFAULT_PORT, out, err) : no_memory(err);
}

static int on_no_rdma(struct options *options, const char *value, struct err *err)
{
	options->no_rdma = true;
	return 0;
}

static int on_allow(struct options *options, const char *value, struct err *err)
{
	struct publish_allow *out = APPEND(options->allow, options->allow_count);
	return out ? value_allow(value, out, err) : no_memory(err);
}

static int on_revoke_timeout(struct options *options, const char *value, struct err *err)
{
	return value_seconds(value, 1, &options->revoke_timeout_ms, err);
}

static int on_keepalive(struct options *options, const char *value, struct err *err)
{
	uint64_t seconds = 0;
	int r = value_count(value, VALUE_SECONDS_MAX, &seconds, err);
	if (r == 0)
		options->keepalive_s = (uint32_t)seconds;
	return r;
}

static int on_max_mappings(struct options *options, const char *value, struct err *err)
{
	return value_total_each(value, value_plain_count, &options->max_mappings, &options->max_mappings_each, err);
}

static int on_max_bytes(struct options *options, const char *value, struct err *err)
{
	return value_total_each(value, size_parse, &options->max_bytes, &options->max_bytes_each, err);
}

static int on_max_extents(struct options *options, const char *value, struct err *err)
{
	/* More would be a catalog that libmrshare does not read: 64 MiB. */
	return value_count(value, 1 << 19, &options->max_extents, err);
}

static int on_max_peers(struct options *options, const char *value, struct err *err)
{
	return value_count(value, 1 << 20, &options->max_peers, err);
}

static int on_max_providers(struct options *options, const char *value, struct err *err)
{
	return value_count(value, 1 << 20, &options->max_providers, err);
}

static int on_max_front_ends(struct options *options, const char *value, struct err *err)
{
	return value_count(value, 1 << 16, &options->max_frontends, err);
}

static int on_max_mr_size(struct options *options, const char *value, struct err *err)
{
	int r = value_page_multiple("size", value, &options->max_mr_size, err);
	if (r == 0 && options->max_mr_size == 0)
		return err_set(err, -EINVAL, "the size must be above 0");
	return r;
}

static int on_unsealed(struct options *options, const char *value, struct err *err)
{
	options->refuse_unsealed = strcmp(value, "refuse") == 0;
	if (!options->refuse_unsealed && strcmp(value, "allow") != 0)
		return err_set(err, -EINVAL, "'%s': wanted allow or refuse", value);
	return 0;
}

static int on_odp(struct options *options, const char *value, struct err *err)
{
	options->odp = true;
	return 0;
}

static int on_any_filesystem(struct options *options, const char *value, struct err *err)
{
	options->any_filesystem = true;
	return 0;
}

static int on_log_level(struct options *options, const char *value, struct err *err)
{
	if (log_level_parse(value, &options->log_level) < 0)
		return err_set(err, -EINVAL, "'%s': wanted error, warning, info or debug", value);
	return 0;
}

static int on_log_json(struct options *options, const char *value, struct err *err)
{
	options->log_json = true;
	return 0;
}

static int on_version(struct options *options, const char *value, struct err *err)
{
	options->version = true;
	return 0;
}

static int on_help(struct options *options, const char *value, struct err *err)
{
	options->help = true;
	return 0;
}

static const struct option_spec {
	const char *name;
	const char *argument; /* NULL: takes none */
	option_fn *parse;
	const char *help;
	bool is_setting; /* a map file may have it too */
} specs[] = {
	{ "provider-socket", "PATH", on_provider_socket, "take mappings from local programs on this Unix socket" },
	{ "socket-path", "PATH[,shmid=N]...", on_socket_path,
		"take front-ends such as QEMU on this Unix socket, and offer them these regions (default: all; "
		"repeatable)" },
	{ "fd", "N", on_fd,
		"the same on a socket that was passed: a listening one, or a connected one, with whose front-end the "
		"daemon ends (repeatable; one connection at most)" },
	{ "socket-mode", "MODE", on_socket_mode, "the mode of these sockets (default 0600)" },
	{ "socket-group", "GROUP", on_socket_group, "their group, a name or number (default: the daemon's)" },
	{ "device", "pmem", on_device, "the device that guests see (default pmem)" },
	{ "gpa-addresses", NULL, on_gpa_addresses, "let front-ends name queues by guest addresses" },
	{ "shmem", "ID:SIZE", on_shmem, "a shared memory region: ID 0 to 255 (repeatable)" },
	{ "map", "shmid=N,path=FILE[,offset=][,len=][,shm-offset=][,ro]", on_map,
		"map a file for as long as the daemon runs (repeatable)" },
	{ "map-file", "PATH", on_map_file,
		"map what the lines of this file say, as --map does, and read it anew upon SIGHUP; it may also have "
		"log-level and max-..." },
	{ "rdma-listen", "ADDR[:PORT]", on_rdma_listen,
		"take peers on this address: IPv4, [IPv6] or a name; port 7471 (repeatable)" },
	{ "no-rdma", NULL, on_no_rdma, "use no RDMA device: nothing is published to peers" },
	{ "allow", "CIDR[,rw|ro]", on_allow,
		"admit peers from this network, with read-write (default) or read-only access; the first match "
		"wins (repeatable; default: only this host's own addresses)" },
	{ "revoke-timeout", "SECONDS", on_revoke_timeout,
		"how long peers and front-ends have to let go of a mapping that is removed (default 1)" },
	{ "keepalive", "SECONDS", on_keepalive, "how often peers hear from the daemon (default 5)" },
	{ "max-mappings", "TOTAL[,EACH]", on_max_mappings, "mappings, in total and per provider (default 4096)", true },
	{ "max-bytes", "TOTAL[,EACH]", on_max_bytes, "bytes mapped, in total and per provider (default: no limit)",
		true },
	{ "max-extents", "N", on_max_extents, "memory registrations per device (default 65536)" },
	{ "max-peers", "N", on_max_peers, "peers connected at a time (default 1024)", true },
	{ "max-providers", "N", on_max_providers, "providers connected at a time (default 32)", true },
	{ "max-front-ends", "N", on_max_front_ends, "front-ends connected at a time (default 16)", true },
	{ "max-mr-size", "SIZE", on_max_mr_size, "bytes per memory registration (default: what the device allows)" },
	{ "odp", NULL, on_odp, "pin no mapped memory: on-demand paging of the device" },
	{ "unsealed", "allow|refuse", on_unsealed, "files that can be truncated while mapped (default allow)" },
	{ "any-filesystem", NULL, on_any_filesystem, "also map files of FUSE, NFS, 9p, CIFS and their like" },
	{ "log-level", "LEVEL", on_log_level, "error, warning, info or debug (default info)", true },
	{ "log-json", NULL, on_log_json, "write the log as JSON, one object a line" },
	{ "print-capabilities", NULL, on_print_capabilities,
		"print what kind of vhost-user back-end this is, as JSON" },
	{ "version", NULL, on_version, "print the version" },
	{ "help", NULL, on_help, "print this text" },
};

enum { SPEC_COUNT = sizeof(specs) / sizeof(specs[0]) };

void options_help(void)
{
	printf("Usage: mrshared --shmem ID:SIZE... [--provider-socket PATH] [--map MAPPING]... [--map-file PATH]\n"
	       "           [--socket-path PATH]... {--rdma-listen ADDR... | --no-rdma} [OPTION]...\n"
	       "Shares memory of local programs with QEMU guests and, over RDMA, with programs on other hosts.\n\n");
	for (size_t i = 0; i < SPEC_COUNT; i++)
		printf("  --%s%s%s\n        %s\n", specs[i].name, specs[i].argument ? " " : "",
			specs[i].argument ? specs[i].argument : "", specs[i].help);
	printf("\nSizes take K, M, G and T (powers of 1024) and 0x. See mrshared(8).\n");
}

int options_pass_frontends(struct options *options, int fd, struct err *err)
{
	struct options_socket *out = APPEND(options->sockets, options->socket_count);
	if (!out)
		return no_memory(err);
	out->fd = fd;
	out->passed = true;
	return 0;
}

int options_pass_providers(struct options *options, int fd, struct err *err)
{
	if (options->provider_socket)
		return err_set(err, -EEXIST, "there is --provider-socket %s as well: leave out one of them",
			options->provider_socket);
	if (options->provider_fd >= 0)
		return err_set(err, -EEXIST, "there is another for providers: pass one");
	options->provider_fd = fd;
	return 0;
}

static int parse_setting(const struct option_spec *spec, const char *value, struct options *settings, struct err *err)
{
	int r = -EINVAL;
	if (!spec->is_setting)
		err_set(err, r, "it cannot change while mrshared runs: give it as a flag");
	else if (!value)
		err_set(err, r, "wanted %s=%s", spec->name, spec->argument);
	else
		r = spec->parse(settings, value, err);
	if (r < 0)
		err_prefix(err, "%s", spec->name);
	return r;
}

int options_parse_line(const char *line, struct options *settings, struct options_map *ret_map, struct err *err)
{
	const char *equals = strchr(line, '=');
	size_t len = equals ? (size_t)(equals - line) : strlen(line);
	ret_map->path = NULL;
	for (size_t i = 0; i < SPEC_COUNT; i++) {
		if (strlen(specs[i].name) == len && strncmp(specs[i].name, line, len) == 0)
			return parse_setting(&specs[i], equals ? equals + 1 : NULL, settings, err);
	}
	if (!strstr(line, "shmid=") && !strstr(line, "path="))
		return err_set(err, -EINVAL,
			"'%.100s' is neither a mapping (shmid=N,path=FILE...) nor a setting (NAME=VALUE without "
			"blanks, such as log-level=debug)",
			line);
	struct options_map map;
	int r = value_map(line, &map, err);
	if (r < 0)
		return r;
	r = options_check_map(settings, &map, err);
	if (r < 0)
		free(map.path);
	else
		*ret_map = map;
	return r;
}

static void long_options_fill(struct option long_options[SPEC_COUNT + 1])
{
	memset(long_options, 0, (SPEC_COUNT + 1) * sizeof(*long_options));
	for (size_t i = 0; i < SPEC_COUNT; i++) {
		long_options[i].name = specs[i].name;
		long_options[i].has_arg = specs[i].argument ? required_argument : no_argument;
		long_options[i].val = (int)i;
	}
}

int options_parse(int argc, char **argv, struct options *ret_options, struct err *err)
{
	*ret_options = (struct options){
		.provider_fd = -1,
		.socket_mode = 0600,
		.socket_group = (gid_t)-1,
		.revoke_timeout_ms = 1000,
		.keepalive_s = 5,
		.max_mappings = 4096,
		.max_mappings_each = 4096,
		.max_bytes = UINT64_MAX,
		.max_bytes_each = UINT64_MAX,
		.max_extents = 65536,
		.max_peers = 1024,
		.max_providers = 32,
		.max_frontends = 16,
		.log_level = LOG_LEVEL_INFO,
	};
	/* QEMU's conventions: whatever else is there is ignored. */
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--print-capabilities") == 0) {
			ret_options->print_capabilities = true;
			return 0;
		}
	}
	struct option long_options[SPEC_COUNT + 1];
	long_options_fill(long_options);

	opterr = 0;
	optind = 0; /* begin anew */
	for (;;) {
		int at = optind ? optind : 1;
		int c = getopt_long(argc, argv, ":", long_options, NULL);
		if (c == -1)
			break;
		if (c == ':')
			return err_set(err, -EINVAL, "%s wants %s", argv[optind - 1], specs[optopt].argument);
		if (c == '?')
			return err_set(
				err, -EINVAL, "'%s' is no flag, or takes no value: see mrshared --help", argv[at]);
		int r = specs[c].parse(ret_options, optarg, err);
		if (r < 0) {
			err_prefix(err, "--%s", specs[c].name);
			return r;
		}
		if (ret_options->help || ret_options->version)
			return 0;
	}
	if (optind < argc)
		return err_set(err, -EINVAL, "'%s' is no flag: see mrshared --help", argv[optind]);
	return 0;
}
