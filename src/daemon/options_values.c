/* options_values.c: what the values of flags mean. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/options_values.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/range.h"
#include "base/size.h"

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

int value_page_multiple(const char *what, const char *text, uint64_t *ret_size, struct err *err)
{
	uint64_t size;
	if (size_parse(text, &size) < 0 || !is_aligned(size, VALUE_PAGE) || size > INT64_MAX)
		return err_set(err, -EINVAL, "%s '%s': wanted a multiple of %d, such as 0x1000, 64M or 1G", what, text,
			VALUE_PAGE);
	*ret_size = size;
	return 0;
}

int value_count(const char *text, uint64_t max, uint64_t *ret_count, struct err *err)
{
	uint64_t count;
	if (number_parse(text, max, &count) < 0 || count == 0)
		return err_set(err, -EINVAL, "'%s': wanted a number from 1 to %" PRIu64, text, max);
	*ret_count = count;
	return 0;
}

int value_seconds(const char *text, uint32_t min_ms, uint32_t *ret_ms, struct err *err)
{
	char *end;
	double seconds = strtod(text, &end);
	if (strspn(text, "0123456789.") != strlen(text) || end == text || *end ||
		!(seconds * 1000 >= min_ms && seconds <= VALUE_SECONDS_MAX))
		return err_set(
			err, -EINVAL, "'%s': wanted seconds from %g to %d", text, min_ms / 1000., VALUE_SECONDS_MAX);
	*ret_ms = (uint32_t)(seconds * 1000);
	return 0;
}

int value_total_each(const char *text, int (*parse)(const char *, uint64_t *), uint64_t *ret_total, uint64_t *ret_each,
	struct err *err)
{
	char total[32], each[32];
	const char *comma = strchr(text, ',');
	snprintf(total, sizeof(total), "%.*s", comma ? (int)(comma - text) : (int)strlen(text), text);
	snprintf(each, sizeof(each), "%s", comma ? comma + 1 : total);
	if (strlen(text) >= sizeof(total) || parse(total, ret_total) < 0 || parse(each, ret_each) < 0 || !*ret_total ||
		!*ret_each)
		return err_set(err, -EINVAL, "'%s': wanted TOTAL[,EACH], both above 0", text);
	if (*ret_each > *ret_total)
		return err_set(err, -EINVAL, "'%s': EACH, of one provider, is above TOTAL: wanted TOTAL[,EACH]", text);
	return 0;
}

int value_plain_count(const char *text, uint64_t *ret_count)
{
	return number_parse(text, UINT32_MAX, ret_count);
}

int value_socket_path(const char *path, struct err *err)
{
	const size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;
	if (!*path || strlen(path) > max)
		return err_set(err, -EINVAL, "wanted a path of 1 to %zu bytes", max);
	return 0;
}

int value_mode(const char *text, mode_t *ret_mode, struct err *err)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);
	if (*text < '0' || *text > '7' || *end || mode > 0777)
		return err_set(err, -EINVAL, "'%s': wanted an octal mode such as 0660", text);
	*ret_mode = (mode_t)mode;
	return 0;
}

int value_group(const char *text, gid_t *ret_group, struct err *err)
{
	uint64_t number;
	if (number_parse(text, UINT32_MAX - 1, &number) == 0) {
		*ret_group = (gid_t)number;
		return 0;
	}
	const struct group *group = getgrnam(text);
	if (!group)
		return err_set(err, -EINVAL, "'%s': wanted the name or number of a group", text);
	*ret_group = group->gr_gid;
	return 0;
}

int value_shmem(const char *text, struct options_shmem *ret_shmem, struct err *err)
{
	char shmid_text[8];
	const char *colon = strchr(text, ':');
	if (!colon || (size_t)(colon - text) >= sizeof(shmid_text))
		return err_set(err, -EINVAL, "'%s': wanted ID:SIZE, such as 0:1G", text);
	snprintf(shmid_text, sizeof(shmid_text), "%.*s", (int)(colon - text), text);

	struct options_shmem shmem;
	int r = parse_shmid(shmid_text, &shmem.shmid, err);
	if (r == 0)
		r = value_page_multiple("size", colon + 1, &shmem.size, err);
	if (r < 0)
		return r;
	if (shmem.size == 0)
		return err_set(err, -EINVAL, "'%s': the size must be above 0", text);
	*ret_shmem = shmem;
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

enum map_key { KEY_SHMID, KEY_PATH, KEY_OFFSET, KEY_LEN, KEY_SHM_OFFSET, KEY_RO, KEY_COUNT };

static const char *const map_keys[KEY_COUNT] = { "shmid=", "path=", "offset=", "len=", "shm-offset=", "ro" };

static int parse_map_value(enum map_key key, const char *value, struct options_map *map, struct err *err)
{
	switch (key) {
	case KEY_SHMID:
		return parse_shmid(value, &map->shmid, err);
	case KEY_PATH:
		if (strlen(value) >= PATH_MAX)
			return err_set(err, -ENAMETOOLONG, "the path is longer than %d bytes", PATH_MAX - 1);
		map->path = strdup(value);
		return map->path ? 0 : no_memory(err);
	case KEY_OFFSET:
		return value_page_multiple("offset", value, &map->offset, err);
	case KEY_SHM_OFFSET:
		return value_page_multiple("shm-offset", value, &map->shm_offset, err);
	case KEY_LEN: {
		int r = value_page_multiple("len", value, &map->len, err);
		return r < 0 || map->len ? r : err_set(err, -EINVAL, "len must be above 0");
	}
	default:
		map->read_only = true;
		return 0;
	}
}

static int parse_map_key(struct options_map *map, bool have[KEY_COUNT], const char *word, struct err *err)
{
	for (enum map_key key = 0; key < KEY_COUNT; key++) {
		size_t len = strlen(map_keys[key]);
		if (strncmp(word, map_keys[key], len) != 0 || (key == KEY_RO && word[len]))
			continue;
		if (have[key])
			return err_set(err, -EINVAL, "%s is given twice", map_keys[key]);
		have[key] = true;
		return parse_map_value(key, word + len, map, err);
	}
	return err_set(
		err, -EINVAL, "'%s' is unknown: wanted shmid=N,path=FILE[,offset=][,len=][,shm-offset=][,ro]", word);
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

int value_socket(const char *text, struct options_socket *ret_socket, struct err *err)
{
	struct options_socket socket = { .fd = -1 };
	char path[4096 + 8] = "", key[16];
	next_key(&text, path, sizeof(path));
	int r = value_socket_path(path, err);
	while (r == 0 && next_key(&text, key, sizeof(key)))
		r = parse_socket_key(&socket, key, err);
	if (r < 0)
		return r;
	socket.path = strdup(path);
	if (!socket.path)
		return no_memory(err);
	*ret_socket = socket;
	return 0;
}

int value_fd(const char *text, int *ret_fd, struct err *err)
{
	uint64_t number;
	if (number_parse(text, INT32_MAX, &number) < 0)
		return err_set(err, -EINVAL, "'%s': wanted the number of a file descriptor", text);
	int fd = (int)number, domain = 0, type = 0;
	socklen_t size = sizeof(int);
	if (fcntl(fd, F_GETFD) < 0)
		return err_set(err, -EINVAL, "no file descriptor %d was passed to mrshared", fd);
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_UNIX ||
		getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
		return err_set(err, -EINVAL, "file descriptor %d is no Unix stream socket", fd);
	*ret_fd = fd;
	return 0;
}

int value_map(const char *text, struct options_map *ret_map, struct err *err)
{
	struct options_map map = { 0 };
	bool have[KEY_COUNT] = { false };
	char word[4096 + 8];
	int r = 0;
	while (r == 0 && next_key(&text, word, sizeof(word)))
		r = parse_map_key(&map, have, word, err);
	if (r == 0 && (!have[KEY_SHMID] || !map.path || !*map.path))
		r = err_set(err, -EINVAL, "wanted at least shmid=N,path=FILE");
	if (r < 0)
		free(map.path);
	else
		*ret_map = map;
	return r;
}

int value_allow(const char *text, struct publish_allow *ret_allow, struct err *err)
{
	char address[64];
	const char *rights = strchr(text, ',');
	size_t len = rights ? (size_t)(rights - text) : strlen(text);
	snprintf(address, sizeof(address), "%.*s", (int)len, text);
	char *slash = strchr(address, '/');
	if (slash)
		*slash = '\0';

	struct publish_allow allow = { .family = strchr(address, ':') ? AF_INET6 : AF_INET, .may_write = true };
	uint64_t bits = allow.family == AF_INET ? 32 : 128;
	if (len >= sizeof(address) || inet_pton(allow.family, address, allow.address) != 1 ||
		(slash && number_parse(slash + 1, bits, &bits) < 0) ||
		(rights && strcmp(rights, ",rw") != 0 && strcmp(rights, ",ro") != 0))
		return err_set(err, -EINVAL,
			"'%s': wanted an address or network, then rw or ro, such as 10.0.0.0/8 or fd00::/8,ro", text);
	/* An IPv4 network mapped into IPv6 is that IPv4 network. */
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	if (allow.family == AF_INET6 && bits >= 96 && memcmp(allow.address, mapped, sizeof(mapped)) == 0) {
		allow.family = AF_INET;
		memmove(allow.address, allow.address + sizeof(mapped), 4);
		bits -= 96;
	}
	allow.prefix_len = (unsigned int)bits;
	allow.may_write = !rights || strcmp(rights, ",rw") == 0;
	*ret_allow = allow;
	return 0;
}
