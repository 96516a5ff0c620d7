/* lib_peer.c: a peer on libmrshare that stays connected and does what it reads from standard input. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Usage: lib_peer ADDRESS SOURCE. A line of input is "list", "read SHMID OFFSET SIZE" or "write SHMID OFFSET TEXT";
 * each is answered by one line that starts with the same word, then "ok" or the error's name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mrshare.h"

static void answer(const char *what, int r, const char *result)
{
	if (r == 0)
		printf("%s ok %s\n", what, result);
	else
		printf("%s %s %s\n", what, strerrorname_np(-r), mrshare_error());
}

static void do_list(struct mrshare *conn)
{
	struct mrshare_entry *entries = NULL;
	size_t count = 0;
	char result[64] = "";
	int r = mrshare_refresh(conn);
	if (r == 0)
		r = mrshare_views(conn, &entries, &count, NULL);
	snprintf(result, sizeof(result), "%zu", count);
	free(entries);
	answer("list", r, result);
}

static void do_read(struct mrshare *conn, const char *args)
{
	unsigned int shmid;
	uint64_t offset;
	size_t size;
	if (sscanf(args, "%u %" SCNi64 " %zi", &shmid, &offset, &size) != 3)
		return;
	char *buf = calloc(1, size + 1);
	int r = mrshare_read(conn, (uint8_t)shmid, offset, buf, size);
	buf[strcspn(buf, "\n")] = '\0';
	answer("read", r, buf);
	free(buf);
}

static void do_write(struct mrshare *conn, const char *args)
{
	unsigned int shmid;
	uint64_t offset;
	int text_at;
	if (sscanf(args, "%u %" SCNi64 " %n", &shmid, &offset, &text_at) != 2)
		return;
	answer("write", mrshare_write(conn, (uint8_t)shmid, offset, args + text_at, strlen(args + text_at) + 1), "");
}

int main(int argc, char **argv)
{
	struct mrshare *conn;
	if (argc != 3 || mrshare_new(&conn) < 0)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	mrshare_set_source(conn, argv[2]);
	mrshare_set_write(conn, true);
	answer("connect", mrshare_connect(conn, argv[1]), "");

	char line[4096];
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "list", 4) == 0)
			do_list(conn);
		else if (strncmp(line, "read ", 5) == 0)
			do_read(conn, line + 5);
		else if (strncmp(line, "write ", 6) == 0)
			do_write(conn, line + 6);
	}
	mrshare_close(&conn);
	return 0;
}
