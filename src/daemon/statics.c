/* statics.c: the static mappings: those of --map, and those of --map-file, which a reload changes. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The start and a reload are the same: there is a set of mappings that are to be; what is there and not in it is
 * removed; then what is in it and not there is opened and mapped, each for itself. A file is read, opened and looked at
 * on a worker, since its server may never answer: such a one holds up the start, or its reload, and nobody else.
 */
#include "daemon/statics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/container.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "daemon/limits.h"

struct static_map {
	struct statics *statics;
	struct options_map map;
	unsigned int line; /* of the map file; 0: --map */
	uint64_t id;       /* of its mapping; 0: it is not there */
	dev_t dev;         /* of the file that is mapped */
	ino_t ino;

	/* A worker's. */
	int fd;
	uint64_t size;
	bool is_device; /* DAX, which has no size */
	bool kept;    /* in the next set too */
	bool changed; /* another file is under its name, or none */
	int look_err; /* errno of what kept us from seeing that; 0: nothing */
	struct err err;
};

struct set {
	struct static_map *maps;
	size_t count;
};

/* IDLE -> READING by a reload; -> REMOVING, or IDLE where the file is wrong; -> ADDING, which the start begins with; ->
 * IDLE. */
enum state { STATICS_IDLE, STATICS_READING, STATICS_REMOVING, STATICS_ADDING };

struct statics {
	struct pipeline *pipeline;
	const struct options *flags;
	const struct statics_ops *ops;
	enum state state;
	bool starting, stopped;
	bool again;       /* a reload was asked for meanwhile */
	struct set there; /* or failed */
	struct set next;
	struct mapfile file;
	struct job job;
	struct err err; /* of reading; of what failed last */
	size_t at;      /* of `next`: which one is added */
	size_t pending; /* that the pipeline adds or removes */
	size_t added, removed, held, failed;
	bool progressed; /* since somebody asked */
};

static void add_next(struct statics *statics);
static void reload(struct statics *statics);

/* What a line, or a flag, is called in messages. */
static int prefix(struct err *err, const struct statics *statics, const struct static_map *map)
{
	return map->line ? err_prefix(err, "%s:%u: %s", statics->flags->map_file, map->line, map->map.path)
			 : err_prefix(err, "--map %s", map->map.path);
}

/* The fields of the next line, which is about that mapping. The path is first: repetitions are counted by file. */
static void map_fields(const struct static_map *map)
{
	const char *path = map->map.path;
	size_t len = strlen(path);
	log_field("MRSHARE_MAP_PATH", "%s", len < LOG_VALUE_MAX ? path : path + len - (LOG_VALUE_MAX - 1));
	log_field("MRSHARE_SHMID", "%u", map->map.shmid);
	log_field("MRSHARE_SHM_OFFSET", "%" PRIu64, map->map.shm_offset);
}

static void set_free(struct set *set)
{
	for (size_t i = 0; i < set->count; i++) {
		if (set->maps[i].line)
			free(set->maps[i].map.path);
	}
	free(set->maps);
	*set = (struct set){ 0 };
}

/* The set of the flags' mappings and the file's, whose lines are taken over. -ENOMEM. */
static int set_new(struct statics *statics, struct mapfile *file, struct set *ret_set)
{
	const struct options *flags = statics->flags;
	struct set set = { calloc(flags->map_count + file->count + 1, sizeof(*set.maps)), 0 };
	if (!set.maps)
		return -ENOMEM;
	for (size_t i = 0; i < flags->map_count; i++)
		set.maps[set.count++] = (struct static_map){ .statics = statics, .map = flags->maps[i], .fd = -1 };
	for (size_t i = 0; i < file->count; i++) {
		set.maps[set.count++] = (struct static_map){
			.statics = statics, .map = file->lines[i].map, .line = file->lines[i].number, .fd = -1
		};
	}
	file->count = 0;
	mapfile_free(file);
	*ret_set = set;
	return 0;
}

/*
 * The end.
 */

static void reload_ends(struct statics *statics)
{
	set_free(&statics->there);
	statics->there = statics->next;
	statics->next = (struct set){ 0 };
	char held[64] = "";
	if (statics->held)
		snprintf(held, sizeof(held), ", %zu no longer, but held by a guest", statics->held);
	log_info("%s: read anew: %zu added, %zu removed, %zu failed, %zu in all%s", statics->flags->map_file,
		statics->added, statics->removed, statics->failed, statics->there.count - statics->failed, held);
	if (statics->failed)
		err_prefix(&statics->err, "%zu failed, such as", statics->failed);
	if (!statics->again)
		statics->ops->reloaded(statics->failed ? &statics->err : NULL);
}

static void end(struct statics *statics)
{
	statics->state = STATICS_IDLE;
	if (statics->starting) {
		statics->starting = false;
		statics->there = statics->next;
		statics->next = (struct set){ 0 };
		statics->ops->started(0, NULL);
	} else {
		reload_ends(statics);
	}
	if (statics->again)
		reload(statics);
}

/* One of them cannot be: that ends the start, and leaves the rest of a reload. */
static void fail(struct static_map *map, const struct err *err)
{
	struct statics *statics = map->statics;
	statics->err = *err;
	prefix(&statics->err, statics, map);
	if (statics->starting) {
		statics->stopped = true;
		statics->ops->started(err->code, &statics->err);
		return;
	}
	statics->failed++;
	map_fields(map);
	log_error("%s", statics->err.text);
}

/*
 * Adding.
 */

static void on_added(void *data, uint64_t mapping_id, int result, const struct err *err)
{
	struct static_map *map = data;
	struct statics *statics = map->statics;
	statics->pending--;
	statics->progressed = true;
	if (statics->stopped)
		return;
	if (result < 0) {
		fail(map, err);
	} else {
		map->id = mapping_id;
		statics->added++;
	}
	if (!statics->stopped && statics->pending == 0 && statics->at == statics->next.count)
		end(statics);
}

/* Of one without a len, which goes to the end of the file. */
static int check_end(const struct static_map *map, struct err *err)
{
	if (map->is_device)
		return err_set(err, -EINVAL, "device DAX tells no length: give a len");
	if (map->size == 0)
		return err_set(err, -EINVAL, "the file is empty");
	if (map->size <= map->map.offset)
		return err_set(err, -EINVAL, "the file has %s, none of it from offset on", size_format(map->size).text);
	if (map->size % 4096)
		return err_set(err, -EINVAL, "the file has %s: give a len that is a multiple of 4096",
			size_format(map->size).text);
	return 0;
}

static int begin(struct static_map *map, struct err *err)
{
	const struct options_map *wanted = &map->map;
	if (!wanted->len && check_end(map, err) < 0)
		return err->code;
	struct mrshare_mmap mmap = {
		.shmid = wanted->shmid,
		.fd_offset = wanted->offset,
		.shm_offset = wanted->shm_offset,
		.len = wanted->len ? wanted->len : map->size - wanted->offset,
		.flags = wanted->read_only ? 0 : MRSHARE_MMAP_WRITABLE,
	};
	return pipeline_map_static(map->statics->pipeline, &mmap, map->fd, wanted->path, on_added, map, err);
}

static int explain_open(const struct static_map *map, int code, struct err *err)
{
	if (code == -EROFS)
		return err_set(err, code, "%s (under systemd, ReadWritePaths=%s in the unit lets mrshared write there)",
			strerror(-code), map->map.path);
	return err_set(err, code, "%s", strerror(-code));
}

static void open_run(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	struct static_map *map = &statics->next.maps[statics->at];
	struct stat st;
	map->fd = open(map->map.path, (map->map.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (map->fd < 0 || fstat(map->fd, &st) < 0) {
		explain_open(map, -errno, &map->err);
		fd_close(&map->fd);
		return;
	}
	if (admission_check_kind(map->fd, &map->err) < 0) {
		fd_close(&map->fd);
		return;
	}
	map->is_device = !S_ISREG(st.st_mode);
	map->size = (uint64_t)st.st_size;
	map->dev = st.st_dev;
	map->ino = st.st_ino;
}

static void close_run(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	fd_close(&statics->next.maps[statics->at].fd);
}

static void close_done(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	statics->at++;
	add_next(statics);
}

static void open_done(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	struct static_map *map = &statics->next.maps[statics->at];
	statics->progressed = true;
	if (statics->stopped)
		return;
	if (map->fd >= 0 && begin(map, &map->err) == 0) {
		map->fd = -1;
		statics->pending++;
	} else {
		fail(map, &map->err);
	}
	if (map->fd < 0) {
		statics->at++;
		add_next(statics);
		return;
	}
	statics->job = (struct job){ .run = close_run, .done = close_done };
	pipeline_submit(statics->pipeline, &statics->job);
}

static void add_next(struct statics *statics)
{
	if (statics->stopped)
		return;
	while (statics->at < statics->next.count && statics->next.maps[statics->at].id)
		statics->at++;
	if (statics->at < statics->next.count) {
		statics->job = (struct job){ .run = open_run, .done = open_done };
		pipeline_submit(statics->pipeline, &statics->job);
		return;
	}
	if (statics->starting)
		statics->ops->claimed();
	if (statics->pending == 0)
		end(statics);
}

/*
 * Removing.
 */

static void add_all(struct statics *statics)
{
	statics->state = STATICS_ADDING;
	statics->at = 0;
	add_next(statics);
}

/* One that a guest still has, or a device, is no longer ours: the pipeline has said why. */
static void on_removed(void *data, uint64_t mapping_id, int result, const struct err *err)
{
	struct statics *statics = data;
	statics->progressed = true;
	if (result == -EINPROGRESS)
		statics->held++;
	else
		statics->removed++;
	if (--statics->pending == 0)
		add_all(statics);
}

static void remove_all(struct statics *statics)
{
	statics->state = STATICS_REMOVING;
	for (size_t i = 0; i < statics->there.count; i++) {
		const struct static_map *map = &statics->there.maps[i];
		if (map->id && !map->kept) {
			statics->pending++;
			pipeline_unmap_static(statics->pipeline, map->id, on_removed, statics);
		}
	}
	if (statics->pending == 0)
		add_all(statics);
}

/*
 * Reading.
 */

static bool is_equal(const struct static_map *a, const struct static_map *b)
{
	return a->map.shm_offset == b->map.shm_offset && a->map.shmid == b->map.shmid &&
	       a->map.offset == b->map.offset && a->map.len == b->map.len && a->map.read_only == b->map.read_only &&
	       !a->line == !b->line && strcmp(a->map.path, b->map.path) == 0;
}

/* What is there already keeps its mapping, also where its name leads elsewhere by now. */
static void keep(struct static_map *map, struct static_map *there)
{
	struct stat st;
	there->kept = true;
	map->id = there->id;
	map->dev = there->dev;
	map->ino = there->ino;
	if (stat(map->map.path, &st) == 0)
		map->changed = st.st_dev != map->dev || st.st_ino != map->ino;
	else if (errno == ENOENT || errno == ENOTDIR)
		map->changed = true;
	else
		map->look_err = errno;
}

static void read_run(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	struct err *err = &statics->err;
	if (mapfile_read(statics->flags->map_file, statics->flags, &statics->file, err) < 0)
		return;
	if (limits_check(&statics->file.settings, err) < 0) {
		err_prefix(err, "%s", statics->flags->map_file);
	} else if (set_new(statics, &statics->file, &statics->next) < 0) {
		err_set(err, -ENOMEM, "out of memory");
	} else {
		for (size_t i = 0; i < statics->next.count; i++) {
			struct static_map *map = &statics->next.maps[i];
			for (size_t j = 0; j < statics->there.count && !map->id; j++) {
				if (statics->there.maps[j].id && is_equal(map, &statics->there.maps[j]))
					keep(map, &statics->there.maps[j]);
			}
		}
	}
	mapfile_free(&statics->file);
}

static void read_done(struct job *job)
{
	struct statics *statics = container_of(job, struct statics, job);
	if (statics->stopped)
		return;
	if (statics->err.code) {
		log_error("%s; nothing was changed", statics->err.text);
		statics->state = STATICS_IDLE;
		if (statics->again)
			reload(statics);
		else
			statics->ops->reloaded(&statics->err);
		return;
	}
	for (size_t i = 0; i < statics->next.count; i++) {
		const struct static_map *map = &statics->next.maps[i];
		if (map->changed || map->look_err)
			map_fields(map);
		if (map->look_err)
			log_warning("%s: cannot see whether that is still the file that is mapped, which stays: %s",
				map->map.path, strerror(map->look_err));
		if (map->changed)
			log_warning("%s is no longer the file that is mapped, which stays: to map the new one, take it "
				    "out of %s, reload, put it back, and reload",
				map->map.path, statics->flags->map_file);
	}
	statics->ops->settings(&statics->file.settings);
	remove_all(statics);
}

static void reload(struct statics *statics)
{
	statics->again = false;
	if (statics->stopped)
		return;
	statics->state = STATICS_READING;
	statics->err.code = 0;
	statics->added = statics->removed = statics->held = statics->failed = 0;
	statics->ops->reloading();
	statics->job = (struct job){ .run = read_run, .done = read_done };
	pipeline_submit(statics->pipeline, &statics->job);
}

void statics_reload(struct statics *statics)
{
	if (statics->state == STATICS_IDLE)
		reload(statics);
	else
		statics->again = true;
}

int statics_start(struct pipeline *pipeline, const struct options *flags, struct mapfile *file,
	const struct statics_ops *ops, struct statics **ret_statics, struct err *err)
{
	struct statics *statics = calloc(1, sizeof(*statics));
	if (!statics)
		return err_set(err, -ENOMEM, "out of memory");
	statics->pipeline = pipeline;
	statics->flags = flags;
	statics->ops = ops;
	statics->starting = true;
	if (set_new(statics, file, &statics->next) < 0) {
		free(statics);
		return err_set(err, -ENOMEM, "out of memory");
	}
	*ret_statics = statics;
	add_all(statics);
	return 0;
}

bool statics_progressed(struct statics *statics)
{
	bool progressed = statics->progressed || pipeline_registers_static(statics->pipeline);
	statics->progressed = false;
	return progressed;
}

void statics_stop(struct statics *statics)
{
	statics->stopped = true;
}
