/* entry.c: views as lines of text and as JSON. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/size.h"
#include "cli/peer.h"

const char *access_text(unsigned int access, char text[ACCESS_TEXT_SIZE])
{
	text[0] = access & MRSHARE_READ ? 'r' : '-';
	text[1] = access & MRSHARE_WRITE ? 'w' : '-';
	text[2] = access & MRSHARE_ATOMIC ? 'a' : '-';
	text[3] = '\0';
	return text;
}

void entry_print_header(void)
{
	printf("%5s  %-14s  %-14s  %-6s  %-10s  %7s  %s\n", "shmid", "shm_offset", "size", "access", "rkey", "mapping",
		"device");
}

void entry_print(const struct mrshare_entry *entry)
{
	struct mrshare_view view = entry->view;
	char offset[24], access[ACCESS_TEXT_SIZE];
	text_sanitize(view.device_name);
	snprintf(offset, sizeof(offset), "0x%" PRIx64, entry->shm_offset);
	printf("%5u  %-14s  %-14s  %-6s  0x%08" PRIx32 "  %7" PRIu64 "  %s\n", entry->shmid, offset,
		size_format(view.size).text, access_text(entry->access, access), view.rkey, entry->mapping_id,
		view.device_name);
}

bool json_add(struct json_object *object, const char *key, struct json_object *value)
{
	if (value && json_object_object_add(object, key, value) == 0)
		return true;
	json_object_put(value);
	return false;
}

struct json_object *access_to_json(unsigned int access)
{
	static const struct {
		unsigned int access;
		const char *name;
	} names[] = { { MRSHARE_READ, "read" }, { MRSHARE_WRITE, "write" }, { MRSHARE_ATOMIC, "atomic" } };
	struct json_object *array = json_object_new_array();
	for (size_t i = 0; array && i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(access & names[i].access))
			continue;
		struct json_object *name = json_object_new_string(names[i].name);
		if (!name || json_object_array_add(array, name) < 0) {
			json_object_put(name);
			json_object_put(array);
			return NULL;
		}
	}
	return array;
}

/* The view as the library writes it, and what else an entry has beside its keys. */
struct json_object *entry_to_json(const struct mrshare_entry *entry)
{
	char *view;
	if (mrshare_view_to_json(&entry->view, &view) < 0)
		return NULL;
	struct json_object *object = json_tokener_parse(view);
	free(view);
	if (object && json_add(object, "shmid", json_object_new_int(entry->shmid)) &&
		json_add(object, "shm_offset", json_object_new_uint64(entry->shm_offset)) &&
		json_add(object, "mapping_id", json_object_new_uint64(entry->mapping_id)) &&
		json_add(object, "access", access_to_json(entry->access)))
		return object;
	json_object_put(object);
	return NULL;
}

struct json_object *daemon_id_to_json(struct mrshare *conn)
{
	uint8_t id[MRSHARE_DAEMON_ID_SIZE];
	char text[2 * sizeof(id) + 1];
	if (mrshare_daemon_id(conn, id) < 0)
		return NULL;
	for (size_t i = 0; i < sizeof(id); i++)
		snprintf(text + 2 * i, 3, "%02x", id[i]);
	return json_object_new_string(text);
}

int json_print(struct json_object *object)
{
	CLEANUP_FREE char *text = json_text(object);
	int status = text ? CLI_OK : cli_fail("out of memory");
	if (text && puts(text) < 0)
		status = cli_fail("standard output: %s", strerror(errno));
	json_object_put(object);
	return status;
}
