/* background.h: what may take long and has no other way: name look-ups, and the end of rdma_cm ids. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef LIBMRSHARE_BACKGROUND_H
#define LIBMRSHARE_BACKGROUND_H

#include <netdb.h>

#include "base/err.h"
#include "base/rdma.h"

struct lookup;

/* Looks up HOST[:PORT], and the source (NULL: none), in a thread of its own where they are names. */
int lookup_start(const char *address, const char *source, struct lookup **ret_lookup, struct err *err);
/* Readable when it is over. */
int lookup_fd(const struct lookup *lookup);
/* -EINPROGRESS, or its outcome: lists for freeaddrinfo(), that of sources NULL where there is no source. */
int lookup_result(struct lookup *lookup, struct addrinfo **ret_dests, struct addrinfo **ret_sources, struct err *err);
/* Also while it is under way. */
void lookup_free(struct lookup **lookup);

/* Destroys them at leisure. */
void background_free_id(struct rdma_cm_id **id, struct rdma_event_channel **channel);

#endif
