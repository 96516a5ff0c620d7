/* admission.h: whether a file may be mapped. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef REGION_ADMISSION_H
#define REGION_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* What the daemon's flags and devices say. */
struct admission_rules {
	bool pinned;          /* mappings are registered, so their pages are pinned */
	bool any_filesystem;  /* --any-filesystem: also files that another process serves */
	bool refuse_unsealed; /* --unsealed=refuse */
	bool pins_read_only;  /* the kernel pins PROT_READ mappings: Linux 6.2 and newer */
};

/* The rules that the running kernel sets. */
bool admission_kernel_pins_read_only(void);

/* What may be asked of an fd on the loop, since it never blocks: -EBADF for O_PATH, -EACCES where the access mode or
 * the seals do not allow what is asked. */
int admission_check_fd(int fd, bool writable, struct err *err);

/* Whether it is of a kind that can be mapped at all, else -ENODEV; may block, as below. */
int admission_check_kind(int fd, struct err *err);

struct admission_request {
	uint64_t shm_offset, fd_offset, len;
	bool writable;
};

struct admission_result {
	int prot;      /* for mmap() */
	bool unsealed; /* the file can be truncated under the mapping */
	bool on_disk;  /* what is written is durable after a sync only */
	dev_t dev;     /* which file it is */
	ino_t ino;
};

/* The rest, which may block for as long as whoever serves the file likes: workers only. Seals a memfd against
 * shrinking. -ENODEV, -EINVAL, -EFBIG, -EOPNOTSUPP, -EPERM (unsealed), or what the system says. */
int admission_check_file(int fd, const struct admission_request *request, const struct admission_rules *rules,
	struct admission_result *ret_result, struct err *err);

#endif
