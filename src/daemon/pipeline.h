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
	void (*frontend_left)(void);
};

/* Called once: 0 when every static mapping stands, or the first failure. */
typedef void pipeline_started_fn(void *data, int result, const struct err *err);

/* Without regions and sockets. `config` must outlive it. A daemon has one, which ends with the process: what a worker
 * that hangs still uses is never freed under it. */
int pipeline_new(
	struct event_loop *loop, const struct pipeline_config *config, struct pipeline **ret_pipeline, struct err *err);
int pipeline_add_region(struct pipeline *pipeline, uint8_t shmid, uint64_t size, struct err *err);
/* Begins a static mapping of `fd`, which becomes the pipeline's when this succeeds. `name` is for logs and must live as
 * long as the pipeline. */
int pipeline_map_static(
	struct pipeline *pipeline, const struct mrshare_mmap *mmap, int fd, const char *name, struct err *err);
/* Opens the provider socket (`providers` may be NULL: none) and serves; front-ends, when every static mapping stands.
 * `started` may be called from inside. */
int pipeline_start(struct pipeline *pipeline, const struct providers_config *providers, pipeline_started_fn *started,
	void *data, struct err *err);
/* What there is now. */
struct pipeline_counts {
	size_t providers, frontends, mappings, peers;
};
struct pipeline_counts pipeline_counts(const struct pipeline *pipeline);
/* Removes the sockets, fails what guests wait for, tells peers, waits for them for a moment; then `done`. */
void pipeline_stop(struct pipeline *pipeline, void (*done)(void *data), void *data);

#endif
