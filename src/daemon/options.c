/* options.c: the flags of mrshared: one table feeds parsing and --help. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/range.h"
#include "base/size.h"
#include "device/pmem.h"
#include "mrshare.h"

enum { PAGE = 4096, TIMEOUT_MAX_S = 3600 };

typedef int option_fn(struct options *options, const char *value, struct err *err);

/* Room for one more element in an array that an option fills. NULL: out of memory. */
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

static int parse_shmid(const char *text, uint8_t *ret_shmid, struct err *err)
{
	uint64_t shmid;
	if (number_parse(text, 255, &shmid) < 0)
		return err_set(err, -EINVAL, "'%s' is no region: wanted a number from 0 to 255", text);
	*ret_shmid = (uint8_t)shmid;
	return 0;
}

static int parse_page_multiple(const char *what, const char *text, uint64_t *ret_size, struct err *err)
{
	uint64_t size;
	if (size_parse(text, &size) < 0 || !is_aligned(size, PAGE) || size > INT64_MAX)
		return err_set(
			err, -EINVAL, "%s '%s': wanted a multiple of %d, such as 0x1000, 64M or 1G", what, text, PAGE);
	*ret_size = size;
	return 0;
}

static int parse_count(const char *text, uint64_t max, uint64_t *ret_count, struct err *err)
{
	uint64_t count;
	if (number_parse(text, max, &count) < 0 || count == 0)
		return err_set(err, -EINVAL, "'%s': wanted a number from 1 to %" PRIu64, text, max);
	*ret_count = count;
	return 0;
}

/* Seconds with decimals, as ms. */
static int parse_seconds(const char *text, uint32_t min_ms, uint32_t *ret_ms, struct err *err)
{
	char *end;
	double seconds = strtod(text, &end);
	if (strspn(text, "0123456789.") != strlen(text) || end == text || *end ||
		!(seconds * 1000 >= min_ms && seconds <= TIMEOUT_MAX_S))
		return err_set(err, -EINVAL, "'%s': wanted seconds from %g to %d", text, min_ms / 1000., TIMEOUT_MAX_S);
	*ret_ms = (uint32_t)(seconds * 1000);
	return 0;
}

/* TOTAL[,EACH]: where EACH is left out, one provider may have it all. */
static int parse_total_each(const char *text, int (*parse)(const char *, uint64_t *), uint64_t *ret_total,
	uint64_t *ret_each, struct err *err)
{
	char total[32], each[32];
	const char *comma = strchr(text, ',');
	snprintf(total, sizeof(total), "%.*s", comma ? (int)(comma - text) : (int)strlen(text), text);
	snprintf(each, sizeof(each), "%s", comma ? comma + 1 : total);
	if (strlen(text) >= sizeof(total) || parse(total, ret_total) < 0 || parse(each, ret_each) < 0 || !*ret_total ||
		!*ret_each)
		return err_set(err, -EINVAL, "'%s': wanted TOTAL or TOTAL,PER-PROVIDER, both above 0", text);
	return 0;
}

static int parse_plain_count(const char *text, uint64_t *ret_count)
{
	return number_parse(text, UINT32_MAX, ret_count);
}

static int check_path(const char *path, struct err *err)
{
	const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	if (!*path || strlen(path) > max)
		return err_set(err, -EINVAL, "wanted a path of 1 to %zu bytes", max);
	return 0;
}

static int on_provider_socket(struct options *options, const char *value, struct err *err)
{
	int r = check_path(value, err);
	if (r == 0)
		options->provider_socket = value;
	return r;
}

static int on_socket_mode(struct options *options, const char *value, struct err *err)
{
	char *end;
	unsigned long mode = strtoul(value, &end, 8);
	if (*value < '0' || *value > '7' || *end || mode > 0777)
		return err_set(err, -EINVAL, "'%s': wanted an octal mode such as 0660", value);
	options->socket_mode = (mode_t)mode;
	return 0;
}

static int on_socket_group(struct options *options, const char *value, struct err *err)
{
	uint64_t number;
	if (number_parse(value, UINT32_MAX - 1, &number) == 0) {
		options->socket_group = (gid_t)number;
		return 0;
	}
	const struct group *group = getgrnam(value);
	if (!group)
		return err_set(err, -EINVAL, "'%s': wanted the name or number of a group", value);
	options->socket_group = group->gr_gid;
	return 0;
}

static int on_shmem(struct options *options, const char *value, struct err *err)
{
	char shmid_text[8];
	const char *colon = strchr(value, ':');
	if (!colon || (size_t)(colon - value) >= sizeof(shmid_text))
		return err_set(err, -EINVAL, "'%s': wanted ID:SIZE, such as 0:1G", value);
	snprintf(shmid_text, sizeof(shmid_text), "%.*s", (int)(colon - value), value);

	struct options_shmem shmem;
	int r = parse_shmid(shmid_text, &shmem.shmid, err);
	if (r == 0)
		r = parse_page_multiple("size", colon + 1, &shmem.size, err);
	if (r < 0)
		return r;
	if (shmem.size == 0)
		return err_set(err, -EINVAL, "'%s': the size must be above 0", value);
	for (size_t i = 0; i < options->shmem_count; i++) {
		if (options->shmem[i].shmid == shmem.shmid)
			return err_set(err, -EINVAL, "region %u is given twice", shmem.shmid);
	}
	struct options_shmem *out = APPEND(options->shmem, options->shmem_count);
	if (!out)
		return no_memory(err);
	*out = shmem;
	return 0;
}

/* The next KEY[=VALUE] of a list with commas; a doubled comma stands for one, as in QEMU. */
static bool next_key(const char **text, char *ret_key, size_t size)
{
	size_t n = 0;
	const char *c = *text;
	if (!*c)
		return false;
	for (; *c; c++) {
		if (*c == ',' && *++c != ',')
			break;
		if (n + 1 < size)
			ret_key[n++] = *c;
	}
	ret_key[n] = '\0';
	*text = c;
	return true;
}

static int parse_map_key(struct options_map *map, bool *have_shmid, const char *key, struct err *err)
{
	const char *value = strchr(key, '=');
	size_t len = value ? (size_t)(value - key) : strlen(key);
	value = value ? value + 1 : "";

	if (strcmp(key, "ro") == 0) {
		map->read_only = true;
		return 0;
	}
	if (len == 5 && strncmp(key, "shmid", len) == 0) {
		*have_shmid = true;
		return parse_shmid(value, &map->shmid, err);
	}
	if (len == 4 && strncmp(key, "path", len) == 0) {
		if (strlen(value) >= PATH_MAX)
			return err_set(err, -ENAMETOOLONG, "the path is longer than %d bytes", PATH_MAX - 1);
		free(map->path);
		map->path = strdup(value);
		return map->path ? 0 : no_memory(err);
	}
	if (len == 6 && strncmp(key, "offset", len) == 0)
		return parse_page_multiple("offset", value, &map->offset, err);
	if (len == 10 && strncmp(key, "shm-offset", len) == 0)
		return parse_page_multiple("shm-offset", value, &map->shm_offset, err);
	if (len == 3 && strncmp(key, "len", len) == 0) {
		int r = parse_page_multiple("len", value, &map->len, err);
		if (r == 0 && map->len == 0)
			return err_set(err, -EINVAL, "len must be above 0");
		return r;
	}
	return err_set(
		err, -EINVAL, "'%s' is unknown: wanted shmid=N,path=FILE[,offset=][,len=][,shm-offset=][,ro]", key);
}

static int parse_socket_key(struct options_socket *socket, const char *key, struct err *err)
{
	uint8_t shmid = 0;
	if (strncmp(key, "shmid=", 6) != 0)
		return err_set(err, -EINVAL, "'%s' is unknown: wanted PATH[,shmid=N]...", key);
	int r = parse_shmid(key + 6, &shmid, err);
	if (r == 0)
		socket->chosen = socket->shmids[shmid] = true;
	return r;
}

static int on_socket_path(struct options *options, const char *value, struct err *err)
{
	struct options_socket socket = { .fd = -1 };
	char path[4096 + 8] = "", key[16];
	next_key(&value, path, sizeof(path));
	int r = check_path(path, err);
	while (r == 0 && next_key(&value, key, sizeof(key)))
		r = parse_socket_key(&socket, key, err);
	for (size_t i = 0; r == 0 && i < options->socket_count; i++) {
		if (options->sockets[i].path && strcmp(options->sockets[i].path, path) == 0)
			r = err_set(err, -EINVAL, "'%s' is given twice", path);
	}
	if (r < 0)
		return r;
	socket.path = strdup(path);
	struct options_socket *out = socket.path ? APPEND(options->sockets, options->socket_count) : NULL;
	if (!out) {
		free(socket.path);
		return no_memory(err);
	}
	*out = socket;
	return 0;
}

/* It is looked at here, where nothing else was opened that could have its number. */
static int on_fd(struct options *options, const char *value, struct err *err)
{
	uint64_t number;
	if (number_parse(value, INT32_MAX, &number) < 0)
		return err_set(err, -EINVAL, "'%s': wanted the number of a file descriptor", value);
	int fd = (int)number, domain = 0, type = 0;
	socklen_t size = sizeof(int);
	if (fcntl(fd, F_GETFD) < 0)
		return err_set(err, -EINVAL, "no file descriptor %d was passed to mrshared", fd);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_UNIX ||
		getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
		return err_set(err, -EINVAL, "file descriptor %d is no Unix stream socket", fd);
	for (size_t i = 0; i < options->socket_count; i++) {
		if (!options->sockets[i].path && fd_is_same_file(options->sockets[i].fd, fd))
			return err_set(err, -EINVAL, "file descriptor %d is given twice, as --fd %d too", fd,
				options->sockets[i].fd);
	}
	struct options_socket *out = APPEND(options->sockets, options->socket_count);
	if (!out)
		return no_memory(err);
	out->fd = fd;
	return 0;
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
	struct options_map map = { 0 };
	bool have_shmid = false;
	char key[4096 + 8];
	int r = 0;
	while (r == 0 && next_key(&value, key, sizeof(key)))
		r = parse_map_key(&map, &have_shmid, key, err);
	if (r == 0 && (!have_shmid || !map.path || !*map.path))
		r = err_set(err, -EINVAL, "wanted at least shmid=N,path=FILE");
	struct options_map *out = r == 0 ? APPEND(options->maps, options->map_count) : NULL;
	if (!out) {
		free(map.path);
		return r < 0 ? r : no_memory(err);
	}
	*out = map;
	return 0;
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
	struct host_port host_port;
	int r = host_port_parse(value, MRSHARE_DEFAULT_PORT, &host_port, err);
	if (r < 0)
		return r;
	struct host_port *out = APPEND(options->listen, options->listen_count);
	if (!out)
		return no_memory(err);
	*out = host_port;
	return 0;
}

static int on_no_rdma(struct options *options, const char *value, struct err *err)
{
	options->no_rdma = true;
	return 0;
}

static int on_allow(struct options *options, const char *value, struct err *err)
{
	char text[64];
	const char *rights = strchr(value, ',');
	size_t len = rights ? (size_t)(rights - value) : strlen(value);
	snprintf(text, sizeof(text), "%.*s", (int)len, value);
	char *slash = strchr(text, '/');
	if (slash)
		*slash = '\0';

	struct publish_allow allow = { .family = strchr(text, ':') ? AF_INET6 : AF_INET, .may_write = true };
	uint64_t bits = allow.family == AF_INET ? 32 : 128;
	if (len >= sizeof(text) || inet_pton(allow.family, text, allow.address) != 1 ||
		(slash && number_parse(slash + 1, bits, &bits) < 0) ||
		(rights && strcmp(rights, ",rw") != 0 && strcmp(rights, ",ro") != 0))
		return err_set(err, -EINVAL,
			"'%s': wanted an address or network, then rw or ro, such as 10.0.0.0/8 or fd00::/8,ro", value);
	/* An IPv4 network mapped into IPv6 is that IPv4 network. */
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (allow.family == AF_INET6 && bits >= 96 && memcmp(allow.address, mapped, sizeof(mapped)) == 0) {
		allow.family = AF_INET;
		memmove(allow.address, allow.address + sizeof(mapped), 4);
		bits -= 96;
	}
	allow.prefix_len = (unsigned int)bits;
	allow.may_write = !rights || strcmp(rights, ",rw") == 0;

	struct publish_allow *out = APPEND(options->allow, options->allow_count);
	if (!out)
		return no_memory(err);
	*out = allow;
	return 0;
}

static int on_revoke_timeout(struct options *options, const char *value, struct err *err)
{
	return parse_seconds(value, 1, &options->revoke_timeout_ms, err);
}

static int on_keepalive(struct options *options, const char *value, struct err *err)
{
	uint64_t seconds = 0;
	int r = parse_count(value, TIMEOUT_MAX_S, &seconds, err);
	if (r == 0)
		options->keepalive_s = (uint32_t)seconds;
	return r;
}

static int on_max_mappings(struct options *options, const char *value, struct err *err)
{
	return parse_total_each(value, parse_plain_count, &options->max_mappings, &options->max_mappings_each, err);
}

static int on_max_bytes(struct options *options, const char *value, struct err *err)
{
	return parse_total_each(value, size_parse, &options->max_bytes, &options->max_bytes_each, err);
}

static int on_max_extents(struct options *options, const char *value, struct err *err)
{
	/* More would be a catalog that libmrshare does not read: 64 MiB. */
	return parse_count(value, 1 << 19, &options->max_extents, err);
}

static int on_max_peers(struct options *options, const char *value, struct err *err)
{
	return parse_count(value, 1 << 20, &options->max_peers, err);
}

static int on_max_providers(struct options *options, const char *value, struct err *err)
{
	return parse_count(value, 1 << 20, &options->max_providers, err);
}

static int on_max_front_ends(struct options *options, const char *value, struct err *err)
{
	return parse_count(value, 1 << 16, &options->max_frontends, err);
}

static int on_max_mr_size(struct options *options, const char *value, struct err *err)
{
	int r = parse_page_multiple("size", value, &options->max_mr_size, err);
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

static int check_map(const struct options *options, const struct options_map *map, struct err *err)
{
	const struct options_shmem *shmem = NULL;
	for (size_t i = 0; i < options->shmem_count; i++) {
		if (options->shmem[i].shmid == map->shmid)
			shmem = &options->shmem[i];
	}
	if (!shmem)
		return err_set(err, -EINVAL, "region %u is not given by --shmem", map->shmid);
	if (!range_fits(map->shm_offset, map->len ? map->len : PAGE, shmem->size))
		return err_set(err, -EINVAL, "%s does not fit into region %u, which has %s", map->path, map->shmid,
			size_format(shmem->size).text);
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
	struct options parsed = { 0 };
	int r = on_map(&parsed, line, err);
	if (r < 0)
		return r;
	struct options_map map = parsed.maps[0];
	free(parsed.maps);
	r = check_map(settings, &map, err);
	if (r < 0)
		free(map.path);
	else
		*ret_map = map;
	return r;
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
		int r = check_map(options, &options->maps[i], err);
		if (r < 0) {
			err_prefix(err, "--map");
			return r;
		}
	}
	return check_sockets(options, err);
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
