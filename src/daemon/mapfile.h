/* mapfile.h: the file of --map-file: static mappings, and settings that can change while mrshared runs. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_MAPFILE_H
#define DAEMON_MAPFILE_H

#include <stddef.h>

#include "base/err.h"
#include "daemon/options.h"

enum { MAPFILE_SIZE_MAX = 4 << 20 };

struct mapfile_line {
	unsigned int number;
	struct options_map map;
};

struct mapfile {
	struct options settings; /* the flags, with the file's settings in place of theirs; its arrays are the flags' */
	struct mapfile_line *lines;
	size_t count;
};

/* Reads and checks the whole file; opens none that it names. May block: workers only, or before the loop turns. `err`
 * says which file and line is wrong; then nothing is returned. */
int mapfile_read(const char *path, const struct options *flags, struct mapfile *ret_file, struct err *err);
/* The same of text, which is written to, its end included. `name` is for errors. */
int mapfile_parse(const char *name, char *text, size_t size, const struct options *flags, struct mapfile *ret_file,
	struct err *err);
/* Frees what is left of it. */
void mapfile_free(struct mapfile *file);

#endif
