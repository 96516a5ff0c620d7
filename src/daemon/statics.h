/* statics.h: the static mappings: those of --map, and those of --map-file, which a reload changes. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_STATICS_H
#define DAEMON_STATICS_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/mapfile.h"
#include "daemon/options.h"
#include "daemon/pipeline.h"

struct statics;

struct statics_ops {
	/* At the start, every file was opened and its range taken: others may ask for ranges. */
	void (*claimed)(void);
	/* At the start, every one stands (0), or one failed; called once. */
	void (*started)(int result, const struct err *err);
	/* A reload has begun; what the map file says holds from now on; it has ended, with what it had to say (NULL:
	 * nothing). */
	void (*reloading)(void);
	void (*settings)(const struct options *settings);
	void (*reloaded)(const struct err *err);
};

/* Begins the mappings of `flags`, and of `file`, which is taken over. Files are opened on workers. What is given must
 * outlive it; it lives as long as the process. Calls come from inside where there is nothing to map. -ENOMEM. */
int statics_start(struct pipeline *pipeline, const struct options *flags, struct mapfile *file,
	const struct statics_ops *ops, struct statics **ret_statics, struct err *err);
/* Reads the map file anew, after a reload that runs: what is no longer in it is removed, what is new is mapped, what is
 * the same is left alone. A file that is wrong changes nothing. */
void statics_reload(struct statics *statics);
/* Whether the start or a reload has come further since the last call, or what it waits for may take its time. One that
 * waits for a file's server does neither. */
bool statics_progressed(struct statics *statics);
/* The daemon ends: nothing is begun any more. */
void statics_stop(struct statics *statics);

#endif
