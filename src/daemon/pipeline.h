/* pipeline.h: wires the stages together and holds the life of a mapping. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_PIPELINE_H
#define DAEMON_PIPELINE_H

#include "base/err.h"
#include "base/event.h"
#include "publish/publish.h"
#include "region/admission.h"
#include "region/region.h"
#include "vhost/frontend.h"
#include "vhost/provider.h"

struct pipeline;

struct pipeline_config {
	struct regions_limits limits;
	struct admission_rules rules;
	unsigned int max_providers;
	uint32_t revoke_timeout_ms;
	const struct publish_config *publish;     /* NULL: --no-rdma */
	const struct frontends_config *frontends; /* NULL: no front-ends */
	const struct frontend_socket *sockets;    /* of front-ends */
	size_t socket_count;
	/* The front-end that came by a connected fd has left. */
	void (*frontend_left)(bool was_dropped);
};

/* What was asked for a static mapping has ended: 0, or a negative errno with `err` in words. */
typedef void pipeline_static_fn(void *data, uint64_t mapping_id, int result, const struct err *err);

/* Without regions and sockets. `config` must outlive it. A daemon has one, which ends with the process: what a worker
 * that hangs still uses is never freed under it. */
int pipeline_new(
	struct event_loop *loop, const struct pipeline_config *config, struct pipeline **ret_pipeline, struct err *err);
int pipeline_add_region(struct pipeline *pipeline, uint8_t shmid, uint64_t size, struct err *err);
/* Begins a static mapping of `fd`, which becomes the pipeline's when this succeeds; `ended` is called when it stands or
 * failed, never from inside. Its range is taken at once. `name` is for logs. */
int pipeline_map_static(struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, const char *name,
	pipeline_static_fn *ended, void *data, struct err *err);
/* Begins to remove one that stands. `ended` is told -EINPROGRESS where a guest still has it. */
void pipeline_unmap_static(struct pipeline *pipeline, uint64_t mapping_id, pipeline_static_fn *ended, void *data);
/* Opens the provider socket, and serves. */
int pipeline_open_providers(struct pipeline *pipeline, const struct providers_config *providers, struct err *err);
/* Opens the sockets for front-ends, and serves: a guest is not to find holes where static mappings are about to be. */
int pipeline_open_frontends(struct pipeline *pipeline, struct err *err);
/* The limits in the config, and in those that it points to, have changed. */
void pipeline_limits_changed(struct pipeline *pipeline);
/* Runs a job that may block. */
void pipeline_submit(struct pipeline *pipeline, struct job *job);
/* Whether a device takes or gives back the memory of a static mapping now, which may take minutes where it is much. */
bool pipeline_registers_static(const struct pipeline *pipeline);
/* What there is now. */
struct pipeline_counts {
	size_t providers, frontends, mappings, peers;
};
struct pipeline_counts pipeline_counts(const struct pipeline *pipeline);
/* Removes the sockets, fails what guests wait for, tells peers, waits for them for a moment; then `done`. */
void pipeline_stop(struct pipeline *pipeline, void (*done)(void *data), void *data);

#endif
