/* origin.c: what is mapped in a range, so that the bytes of two mappings are not taken for those of one. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The number of a mapping is never used again while its daemon runs, so the memory was the same all the time between
 * two looks at which the numbers are. A daemon that was started anew counts anew, with another id.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/peer.h"

static bool overlaps(const struct mrshare_entry *entry, uint8_t shmid, uint64_t offset, uint64_t len)
{
	if (entry->shmid != shmid)
		return false;
	return entry->shm_offset < offset ? offset - entry->shm_offset < entry->view.size
					  : entry->shm_offset - offset < len;
}

static bool add_views(struct json_object *views, const struct peer *peer, uint64_t offset, uint64_t len,
	const struct mrshare_entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!overlaps(&entries[i], peer->shmid, offset, len))
			continue;
		struct json_object *view = entry_to_json(&entries[i]);
		if (!view || json_object_array_add(views, view) < 0) {
			json_object_put(view);
			return false;
		}
	}
	return true;
}

int origin_take(const struct peer *peer, uint64_t offset, uint64_t len, char **ret_origin)
{
	CLEANUP_FREE struct mrshare_entry *entries = NULL;
	size_t count;
	if (mrshare_refresh(peer->conn) < 0 || mrshare_views(peer->conn, &entries, &count, NULL) < 0)
		return cli_fail("%s", mrshare_error());

	char *origin = NULL;
	struct json_object *object = json_object_new_object(), *views = json_object_new_array();
	bool added = views && add_views(views, peer, offset, len, entries, count);
	if (object && json_add(object, "daemon", json_object_new_string(peer->address)) &&
		json_add(object, "daemon_id", daemon_id_to_json(peer->conn)) &&
		json_add(object, "shmid", json_object_new_int(peer->shmid)) &&
		json_add(object, "offset", json_object_new_uint64(offset)) &&
		json_add(object, "len", json_object_new_uint64(len)) && added &&
		json_add(object, "views", json_object_get(views)))
		origin = json_text(object);
	json_object_put(views);
	json_object_put(object);
	if (!origin)
		return cli_fail("out of memory");
	*ret_origin = origin;
	return CLI_OK;
}

int origin_check(const struct peer *peer, uint64_t offset, uint64_t len, const char *origin)
{
	CLEANUP_FREE char *now = NULL;
	int status = origin_take(peer, offset, len, &now);
	if (status == CLI_OK && strcmp(now, origin) != 0)
		status = cli_fail("%s: region %u: what is mapped from 0x%" PRIx64 " on was replaced meanwhile",
			peer->address, peer->shmid, offset);
	return status;
}
