/* admission.c: whether a file may be mapped. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "region/admission.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/range.h"
#include "base/size.h"

/* File systems whose files another process or host serves: it can make any access wait. What linux/magic.h lacks is
 * from statfs(2). */
static const struct {
	uint32_t magic;
	const char *name;
	bool served;
} file_systems[] = {
	{ 0x65735546, "FUSE", true },
	{ 0x01021997, "9p", true },
	{ 0x00006969, "NFS", true },
	{ 0xff534d42, "CIFS", true },
	{ 0xfe534d42, "SMB2", true },
	{ 0x00c36400, "Ceph", true },
	{ 0x5346414f, "AFS", true },
	{ 0x73757245, "Coda", true },
	{ EXT4_SUPER_MAGIC, "ext4", false },
	{ XFS_SUPER_MAGIC, "xfs", false },
	{ BTRFS_SUPER_MAGIC, "btrfs", false },
	{ OVERLAYFS_SUPER_MAGIC, "overlayfs", false },
	{ RAMFS_MAGIC, "ramfs", false },
	{ TMPFS_MAGIC, "tmpfs", false },
	{ HUGETLBFS_MAGIC, "hugetlbfs", false },
};

/* What a check needs to know of the file. */
struct file_facts {
	const char *fs_name;
	bool served;
	bool can_shrink;
	bool pins_writable; /* the kernel pins its pages writable */
	bool on_disk;
	dev_t dev;
	ino_t ino;
	uint64_t page; /* offsets and len are multiples of it */
	uint64_t size;
};

bool admission_kernel_pins_read_only(void)
{
	struct utsname name;
	unsigned int major, minor;
	if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return true;
	return major > 6 || (major == 6 && minor >= 2);
}

int admission_check_fd(int fd, bool writable, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return err_set(err, -errno, "the file descriptor's flags: %s", strerror(errno));
	if (flags & O_PATH)
		return err_set(err, -EBADF, "the file was opened with O_PATH: open it for reading or writing");

	int mode = flags & O_ACCMODE;
	if (writable && mode != O_RDWR)
		return err_set(err, -EACCES,
			"a writable mapping was asked for, but the file is not open for reading and "
			"writing: open it O_RDWR, or map it read-only");
	if (mode == O_WRONLY)
		return err_set(err, -EACCES, "the file is open for writing only: open it O_RDWR");

	int seals = fcntl(fd, F_GET_SEALS);
	if (writable && seals >= 0 && seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return err_set(err, -EACCES,
			"a writable mapping was asked for, but the memfd is sealed against writing: "
			"map it read-only");
	return 0;
}

/* Reads a number from sysfs; 0 where there is none. */
static uint64_t read_sysfs(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32] = "";
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return 0;
	return strtoull(text, NULL, 0);
}

/* Device DAX tells its size and page size in sysfs: Documentation/ABI/testing/sysfs-bus-dax. */
static bool look_at_device_dax(const struct stat *st, struct file_facts *facts)
{
	char path[96], target[256];
	unsigned int major_number = major(st->st_rdev), minor_number = minor(st->st_rdev);
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/subsystem", major_number, minor_number);
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	const char *name = strrchr(target, '/');
	if (!name || strcmp(name, "/dax") != 0)
		return false;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major_number, minor_number);
	uint64_t size = read_sysfs(path);
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/align", major_number, minor_number);
	uint64_t align = read_sysfs(path);
	*facts = (struct file_facts){
		.fs_name = "device DAX",
		.pins_writable = true,
		.page = align ? align : (uint64_t)2 << 20,
		.size = size,
		.dev = st->st_dev,
		.ino = st->st_ino,
	};
	return true;
}

static int look_at_file(int fd, struct file_facts *ret_facts, struct err *err)
{
	struct stat st;
	if (fstat(fd, &st) < 0)
		return err_set(err, -errno, "fstat: %s", strerror(errno));
	if (S_ISCHR(st.st_mode) && look_at_device_dax(&st, ret_facts))
		return 0;
	if (!S_ISREG(st.st_mode))
		return err_set(err, -ENODEV,
			"it is no regular file, memfd or device-DAX device: use a memfd, or a file on "
			"tmpfs, hugetlbfs or a disk");

	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return err_set(err, -errno, "fstatfs: %s", strerror(errno));
	uint32_t magic = (uint32_t)fs.f_type;
	*ret_facts = (struct file_facts){
		.fs_name = "this file system",
		.can_shrink = true,
		.pins_writable = magic == TMPFS_MAGIC || magic == HUGETLBFS_MAGIC,
		.page = magic == HUGETLBFS_MAGIC ? (uint64_t)fs.f_bsize : (uint64_t)sysconf(_SC_PAGESIZE),
		.size = (uint64_t)st.st_size,
		.on_disk = magic != TMPFS_MAGIC && magic != HUGETLBFS_MAGIC && magic != RAMFS_MAGIC,
		.dev = st.st_dev,
		.ino = st.st_ino,
	};
	for (size_t i = 0; i < sizeof(file_systems) / sizeof(file_systems[0]); i++) {
		if (file_systems[i].magic == magic) {
			ret_facts->fs_name = file_systems[i].name;
			ret_facts->served = file_systems[i].served;
		}
	}
	return 0;
}

int admission_check_kind(int fd, struct err *err)
{
	struct file_facts facts;
	return look_at_file(fd, &facts, err);
}

/* Seals the file against shrinking if it takes seals; says whether it can still shrink. */
static bool is_unsealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0 && !(seals & (F_SEAL_SHRINK | F_SEAL_SEAL)) && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		return false;
	return seals < 0 || !(seals & F_SEAL_SHRINK);
}

static int check_size(uint64_t size, const struct admission_request *request, struct err *err)
{
	if (range_fits(request->fd_offset, request->len, size))
		return 0;
	return err_set(err, -EFBIG, "the file has %" PRIu64 " bytes, shorter than fd_offset + len = %" PRIu64, size,
		request->fd_offset + request->len);
}

/* Before Linux 6.2 only what is mapped writable can be pinned. */
static int choose_prot(int fd, const struct admission_request *request, const struct admission_rules *rules,
	int *ret_prot, struct err *err)
{
	*ret_prot = PROT_READ | (request->writable ? PROT_WRITE : 0);
	if (request->writable || !rules->pinned || rules->pins_read_only)
		return 0;
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return err_set(err, -EOPNOTSUPP,
			"this kernel (before Linux 6.2) does not pin a file that is open read-only: let a provider "
			"open it O_RDWR (peers get read access only all the same), or run Linux 6.2 or newer");
	*ret_prot |= PROT_WRITE;
	return 0;
}

int admission_check_file(int fd, const struct admission_request *request, const struct admission_rules *rules,
	struct admission_result *ret_result, struct err *err)
{
	struct file_facts facts = { 0 };
	int r = look_at_file(fd, &facts, err);
	if (r < 0)
		return r;
	if (facts.served && !rules->any_filesystem)
		return err_set(err, -ENODEV,
			"the file is on %s, whose server can make us wait: use a memfd, or a file on "
			"tmpfs, hugetlbfs or a disk (or start mrshared with --any-filesystem)",
			facts.fs_name);
	if (!is_aligned(request->fd_offset | request->shm_offset | request->len, facts.page))
		return err_set(err, -EINVAL, "offsets and len must be multiples of %s, the page size of %s",
			size_format(facts.page).text, facts.fs_name);
	r = check_size(facts.size, request, err);
	if (r < 0)
		return r;
	if (request->writable && rules->pinned && !facts.pins_writable)
		return err_set(err, -EOPNOTSUPP,
			"the kernel does not pin writable pages of %s: use a memfd, tmpfs, "
			"hugetlbfs or device DAX, or map it read-only",
			facts.fs_name);

	struct admission_result result = { .on_disk = facts.on_disk, .dev = facts.dev, .ino = facts.ino };
	r = choose_prot(fd, request, rules, &result.prot, err);
	if (r < 0)
		return r;
	result.unsealed = facts.can_shrink && is_unsealed(fd);
	if (result.unsealed && rules->refuse_unsealed)
		return err_set(err, -EPERM,
			"the file can be truncated, and --unsealed=refuse is set: use a memfd made with "
			"MFD_ALLOW_SEALING, or device DAX");
	/* It may have shrunk before the seal. */
	struct stat st;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		r = check_size((uint64_t)st.st_size, request, err);
	if (r == 0)
		*ret_result = result;
	return r;
}
