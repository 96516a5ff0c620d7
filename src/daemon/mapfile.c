/* mapfile.c: the file of --map-file: static mappings, and settings that can change while mrshared runs. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/mapfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { PAGE = 4096 };

void mapfile_free(struct mapfile *file)
{
	for (size_t i = 0; i < file->count; i++)
		free(file->lines[i].map.path);
	free(file->lines);
	file->lines = NULL;
	file->count = 0;
}

/* By their place, then by their line. */
static int compare_places(const void *a_pointer, const void *b_pointer)
{
	const struct mapfile_line *a = a_pointer, *b = b_pointer;
	if (a->map.shmid != b->map.shmid)
		return a->map.shmid < b->map.shmid ? -1 : 1;
	if (a->map.shm_offset != b->map.shm_offset)
		return a->map.shm_offset < b->map.shm_offset ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

static int say_overlap(const char *name, const struct mapfile_line *a, const struct mapfile_line *b, struct err *err)
{
	const struct mapfile_line *later = a->number > b->number ? a : b, *other = later == a ? b : a;
	if (other->number == 0)
		return err_set(err, -EEXIST, "%s:%u: %s and --map %s overlap in region %u", name, later->number,
			later->map.path, other->map.path, later->map.shmid);
	return err_set(err, -EEXIST, "%s:%u: %s and %s of line %u overlap in region %u", name, later->number,
		later->map.path, other->map.path, other->number, later->map.shmid);
}

/* As far as it is known before files are opened: who gives no length takes a page at least. */
static int check_overlaps(const char *name, const struct options *flags, const struct mapfile *file, struct err *err)
{
	size_t count = file->count + flags->map_count;
	CLEANUP_FREE struct mapfile_line *sorted = calloc(count + 1, sizeof(*sorted));
	if (!sorted)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < file->count; i++)
		sorted[i] = file->lines[i];
	for (size_t i = 0; i < flags->map_count; i++)
		sorted[file->count + i].map = flags->maps[i];
	qsort(sorted, count, sizeof(*sorted), compare_places);

	for (size_t i = 1; i < count; i++) {
		const struct options_map *before = &sorted[i - 1].map, *map = &sorted[i].map;
		uint64_t len = before->len ? before->len : PAGE;
		/* Flags among themselves fail when they are mapped. */
		if (sorted[i - 1].number + sorted[i].number && before->shmid == map->shmid &&
			map->shm_offset - before->shm_offset < len)
			return say_overlap(name, &sorted[i - 1], &sorted[i], err);
	}
	return 0;
}

/* Without the blanks around it; NULL: there is nothing in it. */
static char *trim(char *line)
{
	line += strspn(line, " \t\r\v\f");
	for (size_t len = strlen(line); len && strchr(" \t\r\v\f", line[len - 1]); len--)
		line[len - 1] = '\0';
	return *line && *line != '#' ? line : NULL;
}

static int parse_line(const char *line, unsigned int number, struct mapfile *file, size_t *room, struct err *err)
{
	if (file->count == *room) {
		size_t more = *room ? 2 * *room : 16;
		struct mapfile_line *lines = reallocarray(file->lines, more, sizeof(*lines));
		if (!lines)
			return err_set(err, -ENOMEM, "out of memory");
		file->lines = lines;
		*room = more;
	}
	struct options_map map = { 0 };
	int r = options_parse_line(line, &file->settings, &map, err);
	if (r == 0 && map.path)
		file->lines[file->count++] = (struct mapfile_line){ .number = number, .map = map };
	return r;
}

static int parse_lines(const char *name, char *text, size_t size, struct mapfile *file, struct err *err)
{
	size_t room = 0;
	unsigned int number = 0;
	for (char *line = text, *end = text + size; line < end;) {
		char *line_end = memchr(line, '\n', (size_t)(end - line));
		line_end = line_end ? line_end : end;
		number++;
		if (memchr(line, '\0', (size_t)(line_end - line)))
			return err_set(err, -EINVAL, "%s:%u: the line has a NUL byte: wanted text", name, number);
		*line_end = '\0';
		const char *trimmed = trim(line);
		if (trimmed && parse_line(trimmed, number, file, &room, err) < 0) {
			err_prefix(err, "%s:%u", name, number);
			return err->code;
		}
		line = line_end + 1;
	}
	return 0;
}

int mapfile_parse(const char *name, char *text, size_t size, const struct options *flags, struct mapfile *ret_file,
	struct err *err)
{
	struct mapfile file = { .settings = *flags };
	int r = parse_lines(name, text, size, &file, err);
	if (r == 0)
		r = check_overlaps(name, flags, &file, err);
	if (r == 0 && file.count + flags->map_count > file.settings.max_mappings)
		r = err_set(err, -EDQUOT, "%s: with its %zu mappings there are %zu, and --max-mappings is %" PRIu64,
			name, file.count, file.count + flags->map_count, file.settings.max_mappings);
	if (r < 0)
		mapfile_free(&file);
	else
		*ret_file = file;
	return r;
}

/* All of a file into memory that ends with a NUL beyond `ret_size`. */
static int read_all(int fd, const char *path, char **ret_text, size_t *ret_size, struct err *err)
{
	size_t size = 0, room = 0;
	CLEANUP_FREE char *text = NULL;
	for (;;) {
		if (size + 1 >= room) {
			room = room ? 2 * room : 65536;
			char *more = realloc(text, room);
			if (!more)
				return err_set(err, -ENOMEM, "out of memory");
			text = more;
		}
		ssize_t n = read(fd, text + size, room - size - 1);
		if (n < 0)
			return err_set(err, -errno, "%s: %s", path, strerror(errno));
		if (n == 0)
			break;
		size += (size_t)n;
		if (size > MAPFILE_SIZE_MAX)
			return err_set(err, -EFBIG, "%s has more than %d MiB: that is no map file", path,
				MAPFILE_SIZE_MAX >> 20);
	}
	text[size] = '\0';
	*ret_text = text;
	*ret_size = size;
	text = NULL;
	return 0;
}

int mapfile_read(const char *path, const struct options *flags, struct mapfile *ret_file, struct err *err)
{
	/* A FIFO would wait for its other end. */
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, "--map-file %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "--map-file %s is no regular file", path);
	CLEANUP_FREE char *text = NULL;
	size_t size = 0;
	int r = read_all(fd, path, &text, &size, err);
	return r < 0 ? r : mapfile_parse(path, text, size, flags, ret_file, err);
}
