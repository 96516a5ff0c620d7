/* registration.c: the MRs of one mapping on every device, all or nothing. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "verbs/registration.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/rdma.h"
#include "base/size.h"

/* How much is faulted in between two looks at the cancel flag. */
#define POPULATE_CHUNK (16ull << 20)
/* Extents are not halved below this: a device that has no room for it has none for the next size either. */
#define EXTENT_HALVED_MIN (64ull << 20)
#define HUGE_PAGE (2ull << 20)

enum { GONE_WAIT_MS = 10000, GONE_STEP_MS = 10 };

static bool is_cancelled(const struct registration_request *request)
{
	return request->cancelled && atomic_load(request->cancelled);
}

static int explain_populate(int code, struct err *err)
{
	switch (-code) {
	case EFAULT:
		return err_set(err, code,
			"a page of the file is not to be had: its file system or the pool of huge pages is full, or "
			"the file was "
			"shortened");
	case ENOMEM:
		return err_set(err, code, "out of memory while the file's pages were faulted in");
	case EHWPOISON:
		return err_set(err, code, "a page of the file has a memory error: replace the file");
	default:
		return err_set(err, code, "cannot fault the file's pages in: %s", strerror(-code));
	}
}

/* Faults the pages in before they are pinned: cheaper than leaving it to the registration, can be cancelled, and tells
 * a full file system from one whose pages cannot be pinned. */
static int populate(const struct registration_request *request, struct err *err)
{
	int advice = request->writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	for (uint64_t done = 0; done < request->len;) {
		if (is_cancelled(request))
			return err_set(err, -ECANCELED, "cancelled");
		uint64_t left = request->len - done;
		uint64_t chunk = left < POPULATE_CHUNK ? left : POPULATE_CHUNK;
		if (madvise((char *)request->addr + done, chunk, advice) < 0) {
			/* A kernel before 5.14 leaves it to the registration. */
			if (errno == EINVAL)
				return 0;
			if (errno != EINTR)
				return explain_populate(-errno, err);
			continue;
		}
		done += chunk;
	}
	return 0;
}

static int explain_register(const struct device *device, uint64_t len, bool writable, int code, struct err *err)
{
	if (atomic_load(&device->gone) || code == -ENODEV || code == -EIO)
		return err_set(err, code, "device %s fails or has gone: try again", device->name);
	switch (-code) {
	case ENOMEM:
		return err_set(
			err, code, "kernel or device %s out of memory for %s", device->name, size_format(len).text);
	case EFAULT:
		if (writable)
			return err_set(err, code,
				"the kernel does not pin writable pages of this file: use a memfd, tmpfs, hugetlbfs or "
				"device DAX, or map "
				"it read-only");
		return err_set(err, code,
			"the kernel does not pin pages of this file: it was shortened, or the kernel is older than "
			"Linux 6.2, which pins "
			"no read-only mapping");
	default:
		return err_set(err, code, "device %s: cannot register %s: %s", device->name, size_format(len).text,
			strerror(-code));
	}
}

static int access_flags(const struct device *device, bool writable)
{
	int access = IBV_ACCESS_REMOTE_READ | (device->on_demand ? IBV_ACCESS_ON_DEMAND : 0);
	if (!writable)
		return access;
	access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	return device->has_atomics ? access | IBV_ACCESS_REMOTE_ATOMIC : access;
}

/* Room for one more extent; only halving needs more than were counted beforehand. */
static int extents_grow(struct device_extents *extents, size_t *capacity)
{
	if (extents->count < *capacity)
		return 0;
	size_t wanted = *capacity * 2;
	struct extent *grown = reallocarray(extents->extents, wanted, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	extents->extents = grown;
	*capacity = wanted;
	return 0;
}

/* Half of an extent that found no memory, where huge pages end. */
static uint64_t halve(uint64_t len)
{
	uint64_t half = (len / 2 + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	return half > EXTENT_HALVED_MIN ? half : EXTENT_HALVED_MIN;
}

/* The kernel refuses on a device that is being removed, and only later tells that it is, which the loop hears. */
static void wait_until_gone(const struct device *device, const struct registration_request *request)
{
	struct timespec step = { .tv_nsec = GONE_STEP_MS * 1000000L };
	for (int ms = 0; ms < GONE_WAIT_MS && !atomic_load(&device->gone) && !is_cancelled(request); ms += GONE_STEP_MS)
		nanosleep(&step, NULL);
}

static int register_on(struct device_extents *extents, const struct registration_request *request, struct err *err)
{
	const struct device *device = extents->device;
	int access = access_flags(device, request->writable);
	size_t capacity = device_extent_count(device, request->len);
	extents->extents = calloc(capacity, sizeof(*extents->extents));
	if (!extents->extents)
		return err_set(err, -ENOMEM, "out of memory");

	uint64_t longest = device->extent_max;
	for (uint64_t done = 0; done < request->len;) {
		if (is_cancelled(request))
			return err_set(err, -ECANCELED, "cancelled");
		if (extents_grow(extents, &capacity) < 0)
			return err_set(err, -ENOMEM, "out of memory");
		uint64_t left = request->len - done;
		struct extent extent = { request->shm_offset + done, left < longest ? left : longest, NULL };
		int r = verbs_reg_mr_iova(
			device->pd, (char *)request->addr + done, extent.len, extent.shm_offset, access, &extent.mr);
		if (r == -ENOMEM && extent.len > EXTENT_HALVED_MIN) {
			longest = halve(extent.len);
			continue;
		}
		if (r == -EIO || r == -ENODEV)
			wait_until_gone(device, request);
		if (r < 0)
			return explain_register(device, extent.len, request->writable, r, err);
		extents->extents[extents->count++] = extent;
		done += extent.len;
	}
	return 0;
}

static int extents_free(struct device_extents *extents, struct err *err)
{
	int result = 0;
	for (size_t i = extents->count; i-- > 0;) {
		struct extent *extent = &extents->extents[i];
		int r = verbs_dereg_mr(&extent->mr);
		/* Of a removed device the kernel has released everything already, and says no more than this. */
		if (r == -EIO && atomic_load(&extents->device->gone)) {
			extent->mr = NULL;
			r = 0;
		}
		if (r < 0 && result == 0)
			result = err_set(err, r, "device %s: cannot deregister [0x%" PRIx64 ", +%s]: %s",
				extents->device->name, extent->shm_offset, size_format(extent->len).text, strerror(-r));
	}
	if (result == 0) {
		free(extents->extents);
		*extents = (struct device_extents){ .device = extents->device };
	}
	return result;
}

static int add_device(struct registration *registration, struct device *device,
	const struct registration_request *request, struct err *err)
{
	struct device_extents *extents = &registration->devices[registration->device_count++];
	*extents = (struct device_extents){ .device = device };
	int r = register_on(extents, request, err);
	/* The first error is the cause; one of the undoing only leaves something behind. */
	if (r < 0)
		extents_free(extents, NULL);
	return r;
}

int registration_add(struct registration *registration, struct device *device,
	const struct registration_request *request, struct err *err)
{
	int r = device->on_demand ? 0 : populate(request, err);
	return r < 0 ? r : add_device(registration, device, request, err);
}

int registration_new(struct device *const *devices, size_t device_count, const struct registration_request *request,
	struct registration **ret_registration, struct err *err)
{
	struct registration *registration = calloc(1, sizeof(*registration));
	if (!registration)
		return err_set(err, -ENOMEM, "out of memory");

	int r = device_count && !devices[0]->on_demand ? populate(request, err) : 0;
	for (size_t i = 0; r == 0 && i < device_count; i++) {
		struct err why;
		r = add_device(registration, devices[i], request, &why);
		if (r < 0 && atomic_load(&devices[i]->gone) && registration->devices[i].count == 0)
			r = 0;
		else if (r < 0 && err)
			*err = why;
	}
	if (r < 0 && registration_free(&registration, NULL) == 0)
		return r;
	*ret_registration = registration;
	return r;
}

struct device_extents *registration_on(struct registration *registration, const struct device *device)
{
	for (size_t i = 0; i < registration->device_count; i++) {
		if (registration->devices[i].device == device)
			return &registration->devices[i];
	}
	return NULL;
}

int registration_drop(struct registration *registration, const struct device *device, struct err *err)
{
	struct device_extents *extents = registration_on(registration, device);
	int r = extents ? extents_free(extents, err) : 0;
	if (r == 0 && extents)
		*extents = registration->devices[--registration->device_count];
	return r;
}

int registration_free(struct registration **registration, struct err *err)
{
	if (!*registration)
		return 0;
	int result = 0;
	for (size_t i = (*registration)->device_count; i-- > 0;) {
		int r = extents_free(&(*registration)->devices[i], result == 0 ? err : NULL);
		if (result == 0)
			result = r;
	}
	if (result == 0) {
		free(*registration);
		*registration = NULL;
	}
	return result;
}
