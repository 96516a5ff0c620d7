/* device.c: an RDMA device, and how long its extents may be. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stage "verbs" turns mapped memory into MRs. A mapping is registered on every device or on none, each MR (an
 * extent) at the iova that is its offset in the region, so that guest, provider and peer name a byte alike. How long an
 * extent may be is known beforehand, since the room for its entry in the catalog is set aside before anything is
 * pinned.
 */
#include "verbs/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rdma.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

enum {
	/* drivers/infiniband/sw/rxe/rxe_param.h, RXE_VENDOR_ID: no hardware has this OUI. A device's name says nothing:
	 * it is the user's choice. */
	VENDOR_RXE = 0xffffff,
	/* Intel's PCI vendor id: irdma, which enables what any MR allows and never takes it back from a queue pair. */
	VENDOR_INTEL = 0x8086,
};

/* Extents start where huge pages start if they can: a NIC then needs one table entry for each of them. */
static uint64_t extent_limit(const struct device *device, uint64_t max_mr_size)
{
	/* rxe fails beyond 1 GiB, and only after it has pinned everything. */
	uint64_t limit = device->attr.vendor_id == VENDOR_RXE ? GIB : 64 * GIB;
	if (device->attr.max_mr_size < limit)
		limit = device->attr.max_mr_size;
	if (max_mr_size && max_mr_size < limit)
		limit = max_mr_size;

	uint64_t unit = (uint64_t)sysconf(_SC_PAGESIZE);
	if (limit >= GIB)
		unit = GIB;
	else if (limit >= 2 * MIB)
		unit = 2 * MIB;
	return limit - limit % unit;
}

static int set_name(struct device *device, struct err *err)
{
	const char *name = verbs_device_name(device->context);
	struct mrshare_view view = { .device_name = "" };
	uint8_t wire[MRSHARE_VIEW_SIZE_MAX];
	int n = snprintf(view.device_name, sizeof(view.device_name), "%s", name);
	if (n < 0 || (size_t)n >= sizeof(view.device_name) || mrshare_view_encode(&view, wire, sizeof(wire)) < 0)
		return err_set(err, -EINVAL,
			"device %s: its name must be UTF-8 of at most %d bytes: rename it with `rdma dev set`", name,
			MRSHARE_DEVICE_NAME_MAX);
	memcpy(device->name, view.device_name, sizeof(device->name));
	return 0;
}

static int set_on_demand(struct device *device, struct err *err)
{
	uint32_t caps = 0;
	if (device->attr.vendor_id == VENDOR_RXE)
		return err_set(err, -EOPNOTSUPP,
			"device %s is soft-RoCE, whose on-demand registrations answer at their virtual address only: "
			"start mrshared without --odp",
			device->name);
	int r = verbs_query_odp(device->context, &caps);
	if (r < 0)
		return err_set(err, r, "device %s: cannot be queried: %s", device->name, strerror(-r));
	if (!(caps & IBV_ODP_SUPPORT_READ) || !(caps & IBV_ODP_SUPPORT_WRITE))
		return err_set(err, -EOPNOTSUPP,
			"device %s has no on-demand paging for what peers do: start mrshared without --odp",
			device->name);
	if (!(caps & IBV_ODP_SUPPORT_ATOMIC))
		device->has_atomics = false;
	device->on_demand = true;
	return 0;
}

static int device_open(struct device *device, uint64_t max_mr_size, bool on_demand, struct err *err)
{
	int r = set_name(device, err);
	if (r < 0)
		return r;
	r = verbs_query_device(device->context, &device->attr);
	if (r < 0)
		return err_set(err, r, "device %s: cannot be queried: %s", device->name, strerror(-r));

	device->extent_max = extent_limit(device, max_mr_size);
	if (device->extent_max == 0)
		return err_set(err, -EINVAL, "device %s: an MR must hold a page at least", device->name);
	device->has_atomics = device->attr.atomic_cap != IBV_ATOMIC_NONE;
	device->enforces_access_flags = device->attr.vendor_id != VENDOR_INTEL;
	r = on_demand ? set_on_demand(device, err) : 0;
	if (r < 0)
		return r;
	r = verbs_alloc_pd(device->context, &device->pd);
	if (r < 0)
		return err_set(err, r, "device %s: cannot make a protection domain: %s", device->name, strerror(-r));
	return 0;
}

int device_new(
	struct ibv_context *context, uint64_t max_mr_size, bool on_demand, struct device **ret_device, struct err *err)
{
	struct device *device = calloc(1, sizeof(*device));
	if (!device)
		return err_set(err, -ENOMEM, "out of memory");
	device->context = context;
	int r = device_open(device, max_mr_size, on_demand, err);
	if (r < 0) {
		device_free(&device);
		return r;
	}
	*ret_device = device;
	return 0;
}

const char *device_tag(const struct device *device)
{
	log_field("MRSHARE_DEVICE", "%s", device->name);
	return device->name;
}

void device_free(struct device **device)
{
	if (!*device)
		return;
	verbs_dealloc_pd(&(*device)->pd);
	free(*device);
	*device = NULL;
}

size_t device_extent_count(const struct device *device, uint64_t len)
{
	return (size_t)(len / device->extent_max + (len % device->extent_max != 0));
}
