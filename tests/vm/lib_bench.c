/* lib_bench.c: how fast libmrshare reads and writes here: whole transfers, and small operations one by one. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: lib_bench ADDRESS SOURCE. Wants region 0 with 64 MiB. Prints a line a measurement: its name, its value, its
 * unit.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mrshare.h"

enum { BULK = 64 << 20, SMALL = 4096, SMALL_COUNT = 2000, DEPTH = 32 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void must(int r)
{
	if (r < 0) {
		fprintf(stderr, "lib_bench: %s\n", mrshare_error());
		exit(1);
	}
}

static void bulk(struct mrshare *conn, char *memory, const char *name)
{
	double start = now();
	must(mrshare_read(conn, 0, 0, memory, BULK));
	printf("%s-read %.1f MiB/s\n", name, BULK / 1048576 / (now() - start));
	start = now();
	must(mrshare_write(conn, 0, 0, memory, BULK));
	printf("%s-write %.1f MiB/s\n", name, BULK / 1048576 / (now() - start));
}

static void one_by_one(struct mrshare *conn, char *memory, const char *name)
{
	double start = now();
	for (int i = 0; i < SMALL_COUNT; i++)
		must(mrshare_read(conn, 0, (uint64_t)i * SMALL, memory + i * SMALL, SMALL));
	printf("%s-4k-read-1 %.1f us\n", name, (now() - start) * 1e6 / SMALL_COUNT);
	start = now();
	for (int i = 0; i < SMALL_COUNT; i++)
		must(mrshare_write(conn, 0, (uint64_t)i * SMALL, memory + i * SMALL, 64));
	printf("%s-64-write-1 %.1f us\n", name, (now() - start) * 1e6 / SMALL_COUNT);
}

/* 32 at once, and another for each that ends. */
static void posted(struct mrshare *conn, char *memory, const char *name)
{
	struct mrshare_completion completion;
	double start = now();
	for (int i = 0; i < SMALL_COUNT + DEPTH; i++) {
		if (i >= DEPTH) {
			must(mrshare_poll(conn, -1, &completion));
			must(completion.result);
		}
		if (i < SMALL_COUNT)
			must(mrshare_post_read(conn, 0, (uint64_t)i * SMALL, memory + i * SMALL, SMALL, NULL, NULL));
	}
	printf("%s-4k-read-%d %.1f us\n", name, DEPTH, (now() - start) * 1e6 / SMALL_COUNT);
}

int main(int argc, char **argv)
{
	struct mrshare *conn;
	struct mrshare_buffer *buffer;
	char *memory = aligned_alloc(4096, BULK);
	if (argc != 3 || !memory)
		return 2;
	for (size_t i = 0; i < BULK; i += SMALL)
		memory[i] = (char)i;
	must(mrshare_new(&conn));
	must(mrshare_set_source(conn, argv[2]));
	must(mrshare_set_write(conn, true));
	must(mrshare_connect(conn, argv[1]));

	bulk(conn, memory, "copied");
	one_by_one(conn, memory, "copied");
	posted(conn, memory, "copied");
	must(mrshare_buffer_register(conn, memory, BULK, &buffer));
	bulk(conn, memory, "registered");
	one_by_one(conn, memory, "registered");
	posted(conn, memory, "registered");
	mrshare_buffer_unregister(&buffer);
	mrshare_close(&conn);
	free(memory);
	return 0;
}
