/* read.c: copies shared memory to standard output, with several reads on the wire at once.
 * Usage: read HOST[:PORT] SHMID OFFSET LEN [SOURCE] */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>

#include <mrshare.h>

enum { DEPTH = 4, PIECE = 1 << 20 };

/* Posts the reads in turn, and writes their bytes in the order of posting as each has ended. */
static int copy(struct mrshare *conn, unsigned char shmid, uint64_t offset, uint64_t len, char *memory)
{
	struct slot {
		size_t size;
		int ended;
	} slots[DEPTH] = { { 0, 0 } };
	uint64_t posted = 0, written = 0;
	unsigned int head = 0, tail = 0;

	while (written < len) {
		if (posted < len && tail - head < DEPTH) {
			struct slot *slot = &slots[tail % DEPTH];
			struct mrshare_how how = { .data = slot }; /* no callback: mrshare_poll() returns it */
			slot->size = len - posted < PIECE ? (size_t)(len - posted) : PIECE;
			slot->ended = 0;
			int r = mrshare_post_read(
				conn, shmid, offset + posted, memory + tail % DEPTH * PIECE, slot->size, &how, NULL);
			if (r < 0)
				return r;
			posted += slot->size;
			tail++;
			continue;
		}
		struct mrshare_completion completion;
		int r = mrshare_poll(conn, -1, &completion);
		if (r < 0 || completion.result < 0)
			return r < 0 ? r : completion.result;
		((struct slot *)completion.data)->ended = 1;
		for (; head != tail && slots[head % DEPTH].ended; head++) {
			fwrite(memory + head % DEPTH * PIECE, 1, slots[head % DEPTH].size, stdout);
			written += slots[head % DEPTH].size;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static char memory[DEPTH * PIECE];
	struct mrshare_buffer *buffer = NULL;
	struct mrshare *conn = NULL;
	if (argc < 5) {
		fprintf(stderr, "usage: read HOST[:PORT] SHMID OFFSET LEN [SOURCE]\n");
		return 2;
	}
	int r = mrshare_new(&conn);
	if (r == 0)
		r = mrshare_set_source(conn, argc > 5 ? argv[5] : NULL);
	if (r == 0)
		r = mrshare_connect(conn, argv[1]);
	if (r == 0) /* not needed, but spares the library a copy */
		r = mrshare_buffer_register(conn, memory, sizeof(memory), &buffer);
	if (r == 0)
		r = copy(conn, (unsigned char)atoi(argv[2]), strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0),
			memory);
	if (r < 0)
		fprintf(stderr, "read: %s: %s\n", mrshare_error_call(), mrshare_error());
	mrshare_close(&conn); /* ends what is outstanding: only then may the memory go */
	mrshare_buffer_unregister(&buffer);
	return r < 0 ? 1 : 0;
}
