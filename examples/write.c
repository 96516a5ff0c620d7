/* write.c: writes a text into shared memory, then adds 1 to a counter behind it.
 * Usage: write HOST[:PORT] SHMID OFFSET TEXT [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mrshare.h>

static int write_and_count(struct mrshare *conn, unsigned char shmid, uint64_t offset, const char *text)
{
	size_t size = strlen(text) + 1;
	uint64_t before;
	int r = mrshare_write(conn, shmid, offset, text, size);
	/* -ESTALE, -ECONNRESET: memory or connection went meanwhile. A write may be repeated, and connects anew. */
	if (r == -ESTALE || r == -ECONNRESET)
		r = mrshare_write(conn, shmid, offset, text, size);
	if (r < 0)
		return r;

	/* The first multiple of 8 behind the text. An addition that failed must not be repeated: it may have been done.
	 */
	uint64_t counter = (offset + size + 7) / 8 * 8;
	r = mrshare_fetch_add(conn, shmid, counter, 1, &before);
	if (r < 0)
		return r;
	printf("the counter at 0x%" PRIx64 " was %" PRIu64 "\n", counter, before);
	return 0;
}

int main(int argc, char **argv)
{
	struct mrshare *conn = NULL;
	if (argc < 5) {
		fprintf(stderr, "usage: write HOST[:PORT] SHMID OFFSET TEXT [SOURCE]\n");
		return 2;
	}
	int r = mrshare_new(&conn);
	if (r == 0)
		r = mrshare_set_source(conn, argc > 5 ? argv[5] : NULL);
	if (r == 0)
		r = mrshare_set_write(conn, true); /* else only reading is granted */
	if (r == 0)
		r = mrshare_connect(conn, argv[1]);
	if (r == 0)
		r = write_and_count(conn, (unsigned char)atoi(argv[2]), strtoull(argv[3], NULL, 0), argv[4]);
	if (r < 0)
		fprintf(stderr, "write: %s: %s\n", mrshare_error_call(), mrshare_error());
	mrshare_close(&conn);
	return r < 0 ? 1 : 0;
}
