/* changes.c: what is new between two lists of views. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libmrshare/conn.h"

/* By place, and there by mapping. */
static int compare(const struct mrshare_entry *a, const struct mrshare_entry *b)
{
	if (a->shmid != b->shmid)
		return a->shmid < b->shmid ? -1 : 1;
	if (a->shm_offset != b->shm_offset)
		return a->shm_offset < b->shm_offset ? -1 : 1;
	return 0;
}

static bool same(const struct mrshare_entry *a, const struct mrshare_entry *b)
{
	return a->access == b->access && mrshare_view_equal(&a->view, &b->view);
}

int mrshare_changes(const struct mrshare_entry *before, size_t before_count, const struct mrshare_entry *now,
	size_t now_count, struct mrshare_change **ret_changes, size_t *ret_count)
{
	struct err err;
	error_enter(__func__);
	struct mrshare_change *changes = calloc(before_count + now_count + 1, sizeof(*changes));
	if (!changes) {
		err_set(&err, -ENOMEM, "out of memory for %zu changes", before_count + now_count);
		return error_publish(&err);
	}
	size_t i = 0, k = 0, count = 0;
	while (i < before_count || k < now_count) {
		int order = i == before_count ? 1 : k == now_count ? -1 : compare(&before[i], &now[k]);
		if (order < 0) {
			changes[count++] = (struct mrshare_change){ .kind = MRSHARE_WITHDRAWN, .before = before[i++] };
		} else if (order > 0) {
			changes[count++] = (struct mrshare_change){ .kind = MRSHARE_ADDED, .now = now[k++] };
		} else if (before[i].mapping_id != now[k].mapping_id) {
			changes[count++] = (struct mrshare_change){ .kind = MRSHARE_WITHDRAWN, .before = before[i++] };
			changes[count++] = (struct mrshare_change){ .kind = MRSHARE_ADDED, .now = now[k++] };
		} else {
			if (!same(&before[i], &now[k]))
				changes[count++] = (struct mrshare_change){
					.kind = MRSHARE_CHANGED, .before = before[i], .now = now[k]
				};
			i++;
			k++;
		}
	}
	*ret_changes = changes;
	*ret_count = count;
	return 0;
}
