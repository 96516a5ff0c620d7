/* catalog.h: the list of views that a device publishes, in memory that peers READ. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CATALOG_CATALOG_H
#define CATALOG_CATALOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "mrshare.h"
#include "verbs/device.h"
#include "verbs/registration.h"
#include "wire/catalog.h"

struct catalog;

/* The bytes that a catalog for `max_extents` entries of this device locks; 0 where it would be too large. */
uint64_t catalog_memory_size(const struct device *device, uint32_t max_extents);
/* Sized once for `max_extents` entries of this device; registered for remote read only, at iova 0. Starts empty, with
 * generation 1 written. */
int catalog_new(struct device *device, uint32_t max_extents, struct catalog **ret_catalog, struct err *err);
void catalog_free(struct catalog **catalog);

/* Room for `count` more entries is set aside before they are registered, so that adding cannot fail: -EDQUOT. */
int catalog_reserve(struct catalog *catalog, size_t count);
void catalog_unreserve(struct catalog *catalog, size_t count);
/* Adds the extents of one mapping; their room takes the place of `reserved`. -EDQUOT where they turned out more and do
 * not fit, -ENOMEM: `reserved` stays reserved. Nothing is visible before catalog_write(). */
int catalog_add(struct catalog *catalog, uint64_t mapping_id, uint8_t shmid, uint8_t access,
	const struct device_extents *extents, size_t reserved);
/* Takes a mapping's entries out and gives their room back. Unknown ids are fine. */
void catalog_remove(struct catalog *catalog, uint64_t mapping_id);
/* Writes `generation` into the next slot, then the root. */
void catalog_write(struct catalog *catalog, uint64_t generation);

/* The bytes that a slot with the entries as they are now takes. */
uint32_t catalog_slot_size(const struct catalog *catalog);
/* What was written last. */
const struct catalog_root *catalog_last_root(const struct catalog *catalog);
/* The view of the whole catalog, for the welcome. */
const struct mrshare_view *catalog_view(const struct catalog *catalog);

#endif
