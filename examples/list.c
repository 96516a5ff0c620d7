/* list.c: lists the memory that a daemon shares. Usage: list HOST[:PORT] [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <mrshare.h>

static int list(struct mrshare *conn)
{
	struct mrshare_entry *entries;
	size_t count;
	uint64_t generation;
	int r = mrshare_views(conn, &entries, &count, &generation);
	if (r < 0)
		return r;

	printf("generation %" PRIu64 "\n", generation);
	for (size_t i = 0; i < count; i++) {
		char view[200];
		mrshare_view_format(&entries[i].view, view, sizeof(view));
		printf("region %u at 0x%" PRIx64 ", %s: %s\n", entries[i].shmid, entries[i].shm_offset,
			entries[i].access & MRSHARE_WRITE ? "read-write" : "read-only", view);
	}
	free(entries);
	return 0;
}

int main(int argc, char **argv)
{
	struct mrshare *conn = NULL;
	if (argc < 2) {
		fprintf(stderr, "usage: list HOST[:PORT] [SOURCE]\n");
		return 2;
	}
	int r = mrshare_new(&conn);
	if (r == 0)
		r = mrshare_set_source(conn, argc > 2 ? argv[2] : NULL);
	if (r == 0)
		r = mrshare_connect(conn, argv[1]); /* which reads the views, too */
	if (r == 0)
		r = list(conn);
	if (r < 0)
		fprintf(stderr, "list: %s: %s\n", mrshare_error_call(), mrshare_error());
	mrshare_close(&conn);
	return r < 0 ? 1 : 0;
}
