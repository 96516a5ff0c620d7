/* test_life.c: the life of a mapping, from a provider's socket to the devices, with each step failing in turn. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/pipeline.h"
#include "fake_loop.h"
#include "fake_rdma.h"
#include "wire/catalog.h"
#include "wire/peer.h"
#include "wire/vhost_user.h"

enum { MIB = 1 << 20, OWN_MRS = 2 * FAKE_DEVICES /* catalogs, frames */, NO_ANSWER = 1 };

static char directory[] = "/tmp/mrshare-life-XXXXXX";
static char socket_path[64];
static struct event_loop *loop;
/* What the pipeline gets in place of `loop`: it notes the first source, that of the workers' results. */
static struct event_loop noting_loop;
static struct event_loop_ops noting_ops;
static struct {
	struct event_source *source;
	event_io_fn *fn;
	void *data;
} workers;
static struct pipeline *pipeline;
static int static_result = NO_ANSWER;
static struct sockaddr_storage listen_on[FAKE_DEVICES];
static struct publish_config publish_config = {
	.listen = listen_on,
	.listen_count = FAKE_DEVICES,
	.keepalive_s = 3600,
	.revoke_timeout_ms = 1000,
	.max_peers = 8,
	.max_extents = 64,
	.max_mr_size = 0,
};
static struct pipeline_config config = {
	.limits = { 100, 100, UINT64_MAX, UINT64_MAX },
	.rules = { .pinned = true, .pins_read_only = true },
	.max_providers = 4,
	.publish = &publish_config,
};
static struct providers_config providers_config = {
	.path = socket_path, .mode = 0600, .group = (gid_t)-1, .max_providers = 4
};

static void on_static(void *data, uint64_t mapping_id, int result, const struct err *err)
{
	if (result < 0 || static_result == NO_ANSWER)
		static_result = result;
}

static void listen_address(unsigned int index, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(MRSHARE_DEFAULT_PORT) };
	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&listen_on[index], &in, sizeof(in));
}

static struct event_source *noting_io_new(struct event_loop *noting, int fd, event_io_fn *fn, void *data)
{
	struct event_source *source = event_io_new(loop, fd, fn, data);
	if (!workers.source) {
		workers.source = source;
		workers.fn = fn;
		workers.data = data;
	}
	return source;
}

static struct event_source *noting_timer_new(struct event_loop *noting, event_timer_fn *fn, void *data)
{
	return event_timer_new(loop, fn, data);
}

static uint64_t noting_now_ms(struct event_loop *noting)
{
	return event_now_ms(loop);
}

/* From now on workers do nothing but what workers_step() tells them. */
static void workers_hold(void)
{
	event_io_set(workers.source, 0);
}

/* They do the jobs that they have, but not those that come of them. */
static void workers_step(void)
{
	workers.fn(workers.data, EVENT_READ);
}

static void workers_go_on(void)
{
	event_io_set(workers.source, EVENT_READ);
}

static void set_up(void)
{
	struct err err;
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(socket_path, sizeof(socket_path), "%s/sock", directory);
	listen_address(0, "10.0.0.1");
	listen_address(1, "10.0.0.2");
	loop = fake_loop_new();
	noting_ops = *loop->ops;
	noting_ops.io_new = noting_io_new;
	noting_ops.timer_new = noting_timer_new;
	noting_ops.now_ms = noting_now_ms;
	noting_loop.ops = &noting_ops;
	if (pipeline_new(&noting_loop, &config, &pipeline, &err) < 0)
		ck_abort_msg("pipeline_new: %s", err.text);
	ck_assert_int_eq(pipeline_add_region(pipeline, 0, 128 * MIB, &err), 0);
}

static void serve(void)
{
	struct err err;
	if (pipeline_open_providers(pipeline, &providers_config, &err) < 0)
		ck_abort_msg("pipeline_open_providers: %s", err.text);
	fake_loop_run(loop, 10);
}

/* A provider that is connected. */
static int provider_connect(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	fake_loop_run(loop, 10);
	return fd;
}

static int memfd(size_t size)
{
	int fd = memfd_create("life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static void provider_send(int provider, uint32_t request, uint64_t shm_offset, uint64_t len, int fd)
{
	uint8_t bytes[VHOST_USER_HEADER_SIZE + MRSHARE_MMAP_SIZE];
	vhost_user_header_write(
		&(struct vhost_user_header){ request, VHOST_USER_VERSION | VHOST_USER_NEED_REPLY, MRSHARE_MMAP_SIZE },
		bytes);
	struct mrshare_mmap mmap = { .shm_offset = shm_offset, .len = len, .flags = MRSHARE_MMAP_WRITABLE };
	mrshare_mmap_write(&mmap, bytes + VHOST_USER_HEADER_SIZE, MRSHARE_MMAP_SIZE);

	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	struct iovec iov = { bytes, sizeof(bytes) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
	}
	ck_assert_int_eq(sendmsg(provider, &msg, 0), sizeof(bytes));
}

static int open_fds(void)
{
	int count = 0;
	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* Workers take real time, of which the loop's clock knows nothing. */
static void wait_until(bool (*is_true)(int value), int value)
{
	for (int i = 0; i < 1000 && !is_true(value); i++)
		fake_loop_run(loop, 20);
	ck_assert(is_true(value));
}

static bool is_readable(int fd)
{
	uint8_t byte;
	return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
}

static bool is_mr_count(int count)
{
	return fake_counts().mrs == count;
}

static bool is_fd_count(int count)
{
	return open_fds() == count;
}

static bool is_static_ended(int result)
{
	return static_result == result;
}

static bool stopped;

static void on_stopped(void *data)
{
	stopped = true;
}

static bool is_stopped(int value)
{
	return stopped == value;
}

static void tear_down(void)
{
	pipeline_stop(pipeline, on_stopped, NULL);
	wait_until(is_stopped, true);
	ck_assert_int_eq(rmdir(directory), 0);
}

static int provider_answer_to(int provider, uint32_t request)
{
	uint8_t bytes[VHOST_USER_REPLY_SIZE];
	int64_t result;
	wait_until(is_readable, provider);
	ck_assert_int_eq(recv(provider, bytes, sizeof(bytes), MSG_DONTWAIT), sizeof(bytes));
	ck_assert_int_eq(vhost_user_reply_read(bytes, request, &result), 0);
	return (int)result;
}

static int map_file(int provider, uint64_t shm_offset, uint64_t len, int fd)
{
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, shm_offset, len, fd);
	return provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_MAP);
}

static int map(int provider, uint64_t shm_offset, uint64_t len)
{
	int fd = memfd(len);
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, shm_offset, len, fd);
	close(fd);
	return provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_MAP);
}

static int unmap(int provider, uint64_t shm_offset, uint64_t len)
{
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, shm_offset, len, -1);
	return provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP);
}

START_TEST(a_mapping_is_registered_on_every_device_and_removed_from_each)
{
	serve();
	int provider = provider_connect(), fds = open_fds();
	ck_assert_int_eq(map(provider, 4 * MIB, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	const struct fake_mr *mr = fake_mr(OWN_MRS);
	ck_assert_uint_eq(mr->iova, 4 * MIB);
	ck_assert_int_eq(mr->access,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	ck_assert_int_eq(open_fds(), fds + 1);

	ck_assert_int_eq(unmap(provider, 4 * MIB, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	ck_assert_int_eq(open_fds(), fds);
	close(provider);
}
END_TEST

/* Every way in which adding fails: afterwards nothing is left, and the same range can be mapped. */
static const struct failing_step {
	const char *function;
	unsigned int skip, times;
	int code;   /* of the call */
	int answer; /* to the provider */
} failing_steps[] = {
	{ "verbs_reg_mr_iova", 0, 1, -EINVAL, -EINVAL },
	{ "verbs_reg_mr_iova", 0, 1, -ENOMEM, -ENOMEM },
	{ "verbs_reg_mr_iova", 0, 1, -EFAULT, -EFAULT },
	{ "verbs_reg_mr_iova", 1, 1, -EINVAL, -EINVAL },
	{ "verbs_reg_mr_iova", 1, 1, -EIO, -EIO },
};

START_TEST(adding_that_fails_leaves_nothing)
{
	const struct failing_step *step = &failing_steps[_i];
	serve();
	int provider = provider_connect(), fds = open_fds();
	fake_fail(step->function, step->skip, step->times, step->code);
	ck_assert_int_eq(map(provider, 0, MIB), step->answer);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	ck_assert_int_eq(open_fds(), fds);

	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	close(provider);
}
END_TEST

START_TEST(a_file_that_is_refused_leaves_nothing)
{
	serve();
	int provider = provider_connect(), fds = open_fds();
	int fd = memfd(MIB);
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, 0, 2 * MIB, fd);
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_MAP), -EFBIG);
	close(fd);
	ck_assert_int_eq(open_fds(), fds);
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	close(provider);
}
END_TEST

START_TEST(a_full_catalog_refuses_before_it_registers)
{
	publish_config.max_extents = 2;
	publish_config.max_mr_size = MIB;
	set_up();
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, 3 * MIB), -EDQUOT);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	ck_assert_int_eq(map(provider, 0, 2 * MIB), 0);
	ck_assert_int_eq(map(provider, 8 * MIB, MIB), -EDQUOT);
	ck_assert_int_eq(unmap(provider, 0, 2 * MIB), 0);
	ck_assert_int_eq(map(provider, 8 * MIB, MIB), 0);
	close(provider);
	tear_down();
}
END_TEST

START_TEST(a_provider_that_goes_takes_its_mappings)
{
	serve();
	int provider = provider_connect(), other = provider_connect(), fds = open_fds();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(map(provider, 2 * MIB, MIB), 0);
	ck_assert_int_eq(map(other, 4 * MIB, MIB), 0);
	ck_assert_int_eq(map(other, 0, MIB), -EEXIST);
	ck_assert_int_eq(unmap(other, 0, MIB), -EPERM);
	close(provider);
	wait_until(is_mr_count, OWN_MRS + FAKE_DEVICES);
	wait_until(is_fd_count, fds + 1 - 2);
	ck_assert_int_eq(map(other, 0, MIB), 0);
	close(other);
}
END_TEST

START_TEST(a_provider_that_goes_while_its_map_runs_leaves_nothing)
{
	serve();
	int provider = provider_connect(), other = provider_connect(), fds = open_fds(), fd = memfd(MIB);
	for (int i = 0; i < 20; i++)
		provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, (uint64_t)i * MIB, MIB, fd);
	close(fd);
	close(provider);
	wait_until(is_fd_count, fds - 2);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(map(other, (uint64_t)i * MIB, MIB), 0);
	close(other);
}
END_TEST

START_TEST(deregistration_that_fails_once_drops_the_peers_and_succeeds)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	fake_fail("verbs_dereg_mr", 0, 1, -EBUSY);
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	close(provider);
}
END_TEST

START_TEST(deregistration_that_fails_twice_is_never_acknowledged)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	fake_fail("verbs_dereg_mr", 0, 2 * FAKE_DEVICES, -EBUSY);
	ck_assert_int_eq(unmap(provider, 0, MIB), -EBUSY);
	ck_assert_int_gt(fake_counts().mrs, OWN_MRS);
	ck_assert_int_eq(map(provider, 0, MIB), -EEXIST);
	ck_assert_int_eq(unmap(provider, 0, MIB), -EBUSY);
	ck_assert_int_eq(map(provider, MIB, MIB), 0);
	close(provider);
}
END_TEST

START_TEST(deregistration_that_fails_while_undoing_keeps_the_range)
{
	serve();
	int provider = provider_connect();
	fake_fail("verbs_reg_mr_iova", 1, 1, -EIO);
	fake_fail("verbs_dereg_mr", 0, 3, -EBUSY);
	ck_assert_int_lt(map(provider, 0, MIB), 0);
	int again = map(provider, 0, MIB);
	/* It was undone after all, or its range stays taken: never a range that is free while its memory is registered.
	 */
	ck_assert_int_eq(again, fake_counts().mrs == OWN_MRS + FAKE_DEVICES ? 0 : -EEXIST);
	close(provider);
}
END_TEST

/* What there is before a test does something, and what is to be left of it. */
static struct {
	int mrs, fds;
} before;

static void note(void)
{
	before.mrs = fake_counts().mrs;
	before.fds = open_fds();
}

static bool is_as_noted(int ignored)
{
	return fake_counts().mrs == before.mrs && open_fds() == before.fds;
}

static void assert_as_noted(void)
{
	ck_assert_int_eq(fake_counts().mrs, before.mrs);
	ck_assert_int_eq(open_fds(), before.fds);
}

/* What peers of a device find in its catalog. */
static struct catalog_root published(unsigned int device)
{
	for (unsigned int i = 0; fake_mr(i); i++) {
		const struct fake_mr *mr = fake_mr(i);
		struct catalog_root root;
		if (mr->base.context != fake_context(device) || mr->access != IBV_ACCESS_REMOTE_READ)
			continue;
		ck_assert_int_eq(catalog_root_read(mr->base.addr, mr->base.length, &root), 0);
		return root;
	}
	ck_abort_msg("no catalog");
}

/* Another provider can have the range. */
static void assert_range_is_free(uint64_t shm_offset, uint64_t len)
{
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, shm_offset, len), 0);
	ck_assert_int_eq(unmap(provider, shm_offset, len), 0);
	close(provider);
	wait_until(is_as_noted, 0);
}

/* From now on mmap() of that length and protection fails in this process; other calls do not. */
static void refuse_mmap(uint32_t len, uint32_t prot)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, len, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 16),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, prot, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(a_file_that_cannot_be_mapped_leaves_nothing)
{
	serve();
	int provider = provider_connect();
	note();
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	refuse_mmap(3 * MIB, PROT_READ | PROT_WRITE);
	ck_assert_int_eq(map(provider, 0, 3 * MIB), -ENOMEM);
	assert_as_noted();
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered);
	assert_range_is_free(0, 2 * MIB);
	close(provider);
}
END_TEST

START_TEST(a_file_shortened_before_it_is_faulted_in_leaves_nothing)
{
	serve();
	int provider = provider_connect(), fd = memfd_create("unsealable", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, MIB), 0);
	note();
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	workers_hold();
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, 0, MIB, fd);
	fake_loop_run(loop, 10);
	workers_step(); /* looks at the file and maps it */
	ck_assert_int_eq(ftruncate(fd, MIB / 2), 0);
	workers_go_on();
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_MAP), -EFAULT);
	assert_as_noted();
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered);
	assert_range_is_free(0, MIB);
	close(provider);
	close(fd);
}
END_TEST

/* No MR of it is left, and what it took of the budget and the catalogs is given back; it stays mapped, and open. */
START_TEST(memory_that_cannot_be_unmapped_keeps_its_range)
{
	serve();
	int provider = provider_connect();
	note();
	ck_assert_int_eq(map(provider, 0, 3 * MIB), 0);
	refuse_mmap(3 * MIB, PROT_NONE);
	ck_assert_int_eq(unmap(provider, 0, 3 * MIB), -ENOMEM);
	ck_assert_int_eq(fake_counts().mrs, before.mrs);
	ck_assert_int_eq(open_fds(), before.fds + 1);
	ck_assert_int_eq(map(provider, 2 * MIB, MIB), -EEXIST);
	ck_assert_int_eq(unmap(provider, 0, 3 * MIB), -EBUSY);
	before.fds++;
	assert_range_is_free(3 * MIB, MIB);
	close(provider);
}
END_TEST

START_TEST(more_extents_than_reserved_leave_nothing)
{
	/* A device has no memory for 66 MiB in one piece, so it gets two, of which the catalog lists one. */
	publish_config.max_extents = 1;
	set_up();
	serve();
	int provider = provider_connect();
	note();
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	fake_fail("verbs_reg_mr_iova", (unsigned int)_i, 1, -ENOMEM);
	ck_assert_int_eq(map(provider, 0, 66 * MIB), -EDQUOT);
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered + FAKE_DEVICES + 2);
	assert_as_noted();
	/* The room in each catalog was given back, and no view is left in one. */
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	for (unsigned int i = 0; i < FAKE_DEVICES; i++)
		ck_assert_uint_eq(published(i).view_count, 1);
	ck_assert_int_eq(map(provider, MIB, MIB), -EDQUOT);
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	assert_as_noted();
	close(provider);
	tear_down();
}
END_TEST

/* As a daemon without CAP_IPC_LOCK. */
static void limit_locked_memory(uint64_t bytes)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	ck_assert_int_eq(syscall(SYS_capget, &header, data), 0);
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~(uint32_t)CAP_TO_MASK(CAP_IPC_LOCK);
	ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
	struct rlimit limit;
	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	limit.rlim_cur = bytes;
	if (limit.rlim_max < bytes)
		limit.rlim_max = bytes; /* as root, in a container with little */
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

START_TEST(a_spent_budget_refuses_before_anything_is_pinned)
{
	limit_locked_memory(4 * MIB);
	set_up();
	serve();
	int provider = provider_connect(), fd = memfd(2 * MIB);
	note();
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	/* The catalogs have taken some already. */
	ck_assert_int_eq(map_file(provider, 0, 2 * MIB, fd), -ENOMEM);
	assert_as_noted();
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered);
	struct stat st;
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_blocks, 0);

	/* What was refused took nothing of it, and what is unmapped gives back its part. */
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(map(provider, 0, MIB), 0);
		ck_assert_int_eq(map(provider, MIB, MIB), -ENOMEM);
		ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	}
	assert_as_noted();
	close(provider);
	close(fd);
	tear_down();
}
END_TEST

/* A provider that goes can still be told something, and is not. */
static void provider_leave(int provider)
{
	ck_assert_int_eq(shutdown(provider, SHUT_WR), 0);
	fake_loop_run(loop, 0);
}

static void assert_was_never_answered(int provider)
{
	uint8_t byte;
	ck_assert_int_eq(recv(provider, &byte, 1, MSG_DONTWAIT), 0);
	close(provider);
}

static int leaving;
static unsigned int leaves_at_call;

static void leave_in_call(void)
{
	if (fake_calls("verbs_reg_mr_iova") == leaves_at_call)
		provider_leave(leaving);
}

/* Nothing is left but the provider's end of its connection. */
static bool is_forgotten(int ignored)
{
	return fake_counts().mrs == before.mrs && open_fds() == before.fds + 1;
}

START_TEST(a_provider_that_goes_while_its_file_is_checked_leaves_nothing)
{
	serve();
	int fd = memfd(MIB);
	note();
	int provider = provider_connect();
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	workers_hold();
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, 0, MIB, fd);
	fake_loop_run(loop, 10);
	ck_assert_int_eq(open_fds(), before.fds + 3); /* the connection's two, and the file */
	provider_leave(provider);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS), 0);
	workers_go_on();
	wait_until(is_forgotten, 0);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK); /* it was checked to the end */
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered);
	assert_was_never_answered(provider);
	assert_as_noted();
	assert_range_is_free(0, MIB);
	close(fd);
}
END_TEST

START_TEST(a_provider_that_goes_while_it_is_registered_leaves_nothing)
{
	serve();
	note();
	leaving = provider_connect();
	unsigned int registered = fake_calls("verbs_reg_mr_iova"), deregistered = fake_calls("verbs_dereg_mr");
	uint64_t generation = published(0).generation;
	leaves_at_call = registered + 1 + (unsigned int)_i;
	fake_on_call("verbs_reg_mr_iova", leave_in_call);
	int fd = memfd(MIB);
	workers_hold();
	provider_send(leaving, VHOST_USER_BACKEND_SHMEM_MAP, 0, MIB, fd);
	close(fd);
	fake_loop_run(loop, 10);
	workers_step();
	workers_step(); /* registers, and meanwhile the provider goes */
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), leaves_at_call);
	workers_go_on();
	wait_until(is_forgotten, 0);
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), leaves_at_call);
	ck_assert_uint_eq(fake_calls("verbs_dereg_mr"), deregistered + 1 + (unsigned int)_i);
	ck_assert_uint_eq(published(0).generation, generation);
	assert_was_never_answered(leaving);
	assert_as_noted();
	assert_range_is_free(0, MIB);
}
END_TEST

/*
 * With a peer.
 */

static struct peer_frame sent(const struct fake_connection *peer)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK };
	ck_assert_ptr_nonnull(peer->qp);
	ck_assert_uint_ne(peer->qp->sent_size, 0);
	ck_assert_int_eq(peer_frame_read(peer->qp->sent, peer->qp->sent_size, &frame), 0);
	return frame;
}

static struct fake_connection *peer_connect(unsigned int device)
{
	struct peer_request hello = { .version_min = 1, .version_max = 1, .flags = PEER_WANTS_WRITE };
	uint8_t bytes[PEER_REQUEST_SIZE];
	peer_request_write(&hello, bytes);
	struct fake_connection *peer = fake_request(device, "127.0.0.1", bytes, sizeof(bytes), 4);
	fake_loop_run(loop, 0);
	ck_assert(peer->accepted);
	fake_event(peer, RDMA_CM_EVENT_ESTABLISHED);
	fake_loop_run(loop, 0);
	ck_assert_int_eq(sent(peer).type, PEER_FRAME_WELCOME);
	fake_complete_send(peer, IBV_WC_SUCCESS);
	fake_loop_run(loop, 10);
	return peer;
}

static void peer_leave(struct fake_connection *peer)
{
	fake_event(peer, RDMA_CM_EVENT_DISCONNECTED);
	fake_loop_run(loop, 10);
	ck_assert_ptr_null(peer->qp);
}

/* The notice on its way to the peer arrives. */
static struct peer_notice peer_take_notice(struct fake_connection *peer)
{
	struct peer_frame frame = sent(peer);
	ck_assert_int_eq(frame.type, PEER_FRAME_NOTICE);
	fake_complete_send(peer, IBV_WC_SUCCESS);
	fake_loop_run(loop, 0);
	return frame.notice;
}

static void peer_ack(struct fake_connection *peer, const struct peer_notice *notice)
{
	struct peer_frame frame = { .type = PEER_FRAME_ACK, .ack = { notice->sequence, notice->generation } };
	uint8_t bytes[PEER_FRAME_SIZE_MAX];
	ssize_t size = peer_frame_write(&frame, bytes);
	fake_receive(peer, bytes, (size_t)size, IBV_WC_RECV);
	fake_loop_run(loop, 10);
}

/* A mapping that the peer knows of. */
static void map_with_peer(int provider, struct fake_connection *peer)
{
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	struct peer_notice notice = peer_take_notice(peer);
	ck_assert_uint_eq(notice.withdrawn_count, 0);
	peer_ack(peer, &notice);
}

/* Unmapped, and the peer is told. */
static struct peer_notice unmap_with_peer(int provider, struct fake_connection *peer)
{
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, 0, MIB, -1);
	fake_loop_run(loop, 10);
	struct peer_notice notice = peer_take_notice(peer);
	ck_assert_uint_eq(notice.withdrawn_count, 1);
	return notice;
}

START_TEST(a_provider_that_goes_while_it_is_published_leaves_nothing)
{
	serve();
	struct fake_connection *peer = peer_connect(0);
	note();
	int provider = provider_connect(), fd = memfd(MIB);
	unsigned int registered = fake_calls("verbs_reg_mr_iova");
	workers_hold();
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_MAP, 0, MIB, fd);
	close(fd);
	fake_loop_run(loop, 10);
	workers_step();
	workers_step();
	/* It is registered, and the generation that lists it not written yet. */
	ck_assert_uint_eq(fake_calls("verbs_reg_mr_iova"), registered + FAKE_DEVICES);
	ck_assert_uint_eq(peer->qp->sent_size, 0);
	workers_go_on();
	provider_leave(provider);
	fake_loop_run(loop, 10);
	/* The peer may have seen it: so it is withdrawn as one that was live. */
	struct peer_notice notice = peer_take_notice(peer);
	peer_ack(peer, &notice);
	if (notice.withdrawn_count == 0) {
		notice = peer_take_notice(peer);
		ck_assert_uint_eq(notice.withdrawn_count, 1);
		ck_assert_int_eq(fake_counts().mrs, before.mrs + FAKE_DEVICES);
		peer_ack(peer, &notice);
	}
	wait_until(is_forgotten, 0);
	assert_was_never_answered(provider);
	assert_as_noted();
	peer_leave(peer);
	assert_range_is_free(0, MIB);
}
END_TEST

START_TEST(an_unmap_is_answered_after_the_peers_acknowledgement)
{
	serve();
	struct fake_connection *peer = peer_connect(0);
	int provider = provider_connect();
	note();
	map_with_peer(provider, peer);
	unsigned int deregistered = fake_calls("verbs_dereg_mr");
	struct peer_notice notice = unmap_with_peer(provider, peer);
	fake_loop_run(loop, publish_config.revoke_timeout_ms - 100);
	ck_assert(!is_readable(provider));
	ck_assert_uint_eq(fake_calls("verbs_dereg_mr"), deregistered);
	ck_assert_int_eq(map(provider_connect(), 0, MIB), -EEXIST);
	before.fds += 2; /* that one stays connected */
	peer_ack(peer, &notice);
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	assert_as_noted();
	ck_assert_ptr_nonnull(peer->qp);
	ck_assert_int_eq(peer->qp->state, IBV_QPS_RTS);
	peer_leave(peer);
	assert_range_is_free(0, MIB);
	close(provider);
}
END_TEST

/* Who must not reach memory when its deregistration begins, or is tried again. */
static struct fake_connection *watched_peer;
static unsigned int first_call_without;

static void assert_cut_in_time(void)
{
	bool reaches = watched_peer->qp && watched_peer->qp->state != IBV_QPS_ERR;
	ck_assert_int_eq(reaches, fake_calls("verbs_dereg_mr") < first_call_without);
}

static void watch_deregistration(struct fake_connection *peer, unsigned int calls_with_peer)
{
	watched_peer = peer;
	first_call_without = fake_calls("verbs_dereg_mr") + calls_with_peer + 1;
	fake_on_call("verbs_dereg_mr", assert_cut_in_time);
}

START_TEST(a_late_peer_is_cut_before_deregistration)
{
	serve();
	struct fake_connection *late = peer_connect(0);
	int provider = provider_connect();
	note();
	map_with_peer(provider, late);
	watch_deregistration(late, 0);
	unmap_with_peer(provider, late);
	fake_loop_run(loop, publish_config.revoke_timeout_ms - 100);
	ck_assert(!is_readable(provider));
	ck_assert_uint_eq(fake_calls("verbs_dereg_mr"), first_call_without - 1);
	fake_loop_run(loop, 200);
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	ck_assert_uint_eq(fake_calls("verbs_dereg_mr"), first_call_without - 1 + FAKE_DEVICES);
	fake_on_call("verbs_dereg_mr", NULL);
	ck_assert_ptr_null(late->qp);
	assert_as_noted();
	assert_range_is_free(0, MIB);
	close(provider);
}
END_TEST

START_TEST(a_device_that_does_not_let_go_loses_its_peers_first)
{
	serve();
	struct fake_connection *peer = peer_connect(0);
	int provider = provider_connect();
	note();
	map_with_peer(provider, peer);
	/* The last device's is the first to go; this one has the peer. */
	fake_fail("verbs_dereg_mr", 1, 1, -EBUSY);
	watch_deregistration(peer, FAKE_DEVICES);
	struct peer_notice notice = unmap_with_peer(provider, peer);
	peer_ack(peer, &notice);
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	fake_on_call("verbs_dereg_mr", NULL);
	ck_assert_ptr_null(peer->qp);
	assert_as_noted();
	assert_range_is_free(0, MIB);
	peer_leave(peer_connect(0)); /* the device takes peers again */
	close(provider);
}
END_TEST

START_TEST(a_device_that_never_lets_go_gives_no_false_answer)
{
	serve();
	struct fake_connection *peer = peer_connect(0);
	int provider = provider_connect();
	note();
	map_with_peer(provider, peer);
	fake_fail("verbs_dereg_mr", 1, 2, -EBUSY);
	watch_deregistration(peer, FAKE_DEVICES);
	struct peer_notice notice = unmap_with_peer(provider, peer);
	peer_ack(peer, &notice);
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), -EBUSY);
	fake_on_call("verbs_dereg_mr", NULL);
	ck_assert_ptr_null(peer->qp);
	/* That device's MR, the memory and the file stay. */
	ck_assert_int_eq(fake_counts().mrs, before.mrs + 1);
	ck_assert_int_eq(open_fds(), before.fds + 1);
	ck_assert_int_eq(unmap(provider, 0, MIB), -EBUSY);
	ck_assert_int_eq(map(provider, 0, MIB), -EEXIST);
	close(provider);
	fake_loop_run(loop, 1000);
	provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), -EEXIST);
	close(provider);
}
END_TEST

START_TEST(a_queue_pair_that_stays_holds_the_second_try_back)
{
	serve();
	struct fake_connection *peer = peer_connect(0);
	int provider = provider_connect();
	map_with_peer(provider, peer);
	fake_fail("verbs_dereg_mr", 1, 1, -EBUSY);
	fake_fail("verbs_destroy_qp", 0, 1, -EBUSY);
	unsigned int deregistered = fake_calls("verbs_dereg_mr");
	struct peer_notice notice = unmap_with_peer(provider, peer);
	peer_ack(peer, &notice);
	fake_loop_run(loop, 10 * publish_config.revoke_timeout_ms);
	ck_assert_ptr_nonnull(peer->qp);
	ck_assert_uint_eq(fake_calls("verbs_dereg_mr"), deregistered + FAKE_DEVICES);
	ck_assert(!is_readable(provider));
	close(provider);
}
END_TEST

START_TEST(static_mappings_are_nobody_elses)
{
	struct err err;
	struct mrshare_mmap mmap = { .shm_offset = MIB, .len = MIB, .flags = MRSHARE_MMAP_WRITABLE };
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "FILE", on_static, NULL, &err), 0);
	ck_assert_int_eq(static_result, NO_ANSWER);
	serve();
	wait_until(is_static_ended, 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);

	int provider = provider_connect();
	ck_assert_int_eq(unmap(provider, MIB, MIB), -EPERM);
	ck_assert_int_eq(map(provider, MIB, MIB), -EEXIST);
	close(provider);
}
END_TEST

START_TEST(a_static_mapping_that_fails_is_told)
{
	struct err err;
	struct mrshare_mmap mmap = { .len = MIB, .flags = MRSHARE_MMAP_WRITABLE };
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "FILE", on_static, NULL, &err), 0);
	mmap.shm_offset = MIB;
	mmap.len = 2 * MIB;
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "SHORT", on_static, NULL, &err), 0);
	serve();
	wait_until(is_static_ended, -EFBIG);
}
END_TEST

/*
 * Devices that go and come back.
 */

static void device_goes(unsigned int device)
{
	fake_absent(device, true);
	fake_async_event(device, IBV_EVENT_DEVICE_FATAL);
	fake_loop_run(loop, 10);
}

/* It is looked for once a second. */
static void device_comes(unsigned int device)
{
	fake_absent(device, false);
	fake_loop_run(loop, 1100);
}

static bool is_rejected(unsigned int device)
{
	struct peer_request hello = { .version_min = 1, .version_max = 1 };
	uint8_t bytes[PEER_REQUEST_SIZE];
	peer_request_write(&hello, bytes);
	const struct fake_connection *peer = fake_request(device, "127.0.0.1", bytes, sizeof(bytes), 4);
	fake_loop_run(loop, 10);
	return peer->rejected;
}

START_TEST(mappings_leave_a_device_and_come_back_to_it)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(map(provider, MIB, MIB), 0);
	note();
	struct fake_connection *other = peer_connect(1);
	for (int round = 0; round < 3; round++) {
		device_goes(0);
		ck_assert_int_eq(fake_counts().mrs, before.mrs / FAKE_DEVICES);
		workers_hold();
		device_comes(0);
		ck_assert(is_rejected(0));
		workers_go_on();
		fake_loop_run(loop, 10);
		assert_as_noted();
		ck_assert_uint_eq(published(0).view_count, 2);
		struct fake_connection *peer = peer_connect(0);
		peer_leave(peer);
		/* A notice that something was published there is one for all. */
		while (other->qp->sent_size) {
			struct peer_notice notice = peer_take_notice(other);
			peer_ack(other, &notice);
		}
	}
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	peer_leave(other);
	close(provider);
	wait_until(is_mr_count, OWN_MRS);
}
END_TEST

/* A few at a time, so that a provider's request is not behind all of them. */
START_TEST(many_mappings_come_back_while_providers_are_served)
{
	enum { MANY = 20 };
	serve();
	int provider = provider_connect();
	for (unsigned int i = 0; i < MANY; i++)
		ck_assert_int_eq(map(provider, i * MIB, MIB), 0);
	device_goes(0);
	workers_hold();
	device_comes(0);
	int registered = fake_counts().mrs;
	provider_send(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, 0, MIB, -1);
	fake_loop_run(loop, 10);
	workers_step();
	int joined = fake_counts().mrs - registered;
	ck_assert_int_gt(joined, 0);
	ck_assert_int_le(joined, 8);
	workers_step();
	ck_assert(is_rejected(0));
	workers_go_on();
	ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	fake_loop_run(loop, 10);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES * (MANY - 1));
	ck_assert_uint_eq(published(0).view_count, MANY - 1);
	ck_assert(!is_rejected(0));
	close(provider);
	wait_until(is_mr_count, OWN_MRS);
}
END_TEST

START_TEST(a_mapping_that_fails_on_a_device_is_left_out_there)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(map(provider, MIB, MIB), 0);
	note();
	device_goes(0);
	fake_fail("verbs_reg_mr_iova", 2, 1, -EINVAL); /* after the catalog and the frames */
	device_comes(0);
	ck_assert_int_eq(fake_counts().mrs, before.mrs - 1);
	ck_assert_uint_eq(published(0).view_count, 1);
	ck_assert_uint_eq(published(1).view_count, 2);
	peer_leave(peer_connect(0));

	/* It is no worse for it, and the next time it is tried again. */
	device_goes(0);
	device_comes(0);
	assert_as_noted();
	ck_assert_uint_eq(published(0).view_count, 2);
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	ck_assert_int_eq(unmap(provider, MIB, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	close(provider);
}
END_TEST

/* Files whose server does not answer: for a while the device waits for them, and then others are served. */
START_TEST(a_mapping_that_takes_long_holds_up_its_device_in_bounded_time)
{
	enum { MANY = 6 };
	serve();
	int provider = provider_connect();
	for (unsigned int i = 0; i < MANY; i++)
		ck_assert_int_eq(map(provider, i * MIB, MIB), 0);
	note();
	device_goes(0);
	workers_hold();
	device_comes(0);
	fake_loop_run(loop, 9000);
	ck_assert(is_rejected(0));
	fake_loop_run(loop, 11000);
	struct fake_connection *peer = peer_connect(0);
	ck_assert_uint_eq(published(0).view_count, 0);
	if (_i) { /* it is removed before it is there */
		provider_send(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, 0, MIB, -1);
		fake_loop_run(loop, 10);
		ck_assert(!is_readable(provider));
		struct peer_notice notice = peer_take_notice(peer);
		peer_ack(peer, &notice);
	}
	workers_go_on();
	fake_loop_run(loop, 10);
	if (_i)
		ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	ck_assert_uint_eq(published(0).view_count, MANY - (unsigned int)_i);
	peer_leave(peer);

	/* The next time as many at a time as ever. */
	device_goes(0);
	workers_hold();
	device_comes(0);
	int registered = fake_counts().mrs;
	workers_step();
	ck_assert_int_eq(fake_counts().mrs, registered + 4);
	ck_assert(is_rejected(0));
	workers_go_on();
	fake_loop_run(loop, 10);
	ck_assert_uint_eq(published(0).view_count, MANY - (unsigned int)_i);
	close(provider);
	wait_until(is_mr_count, OWN_MRS);
}
END_TEST

START_TEST(a_device_that_does_not_let_go_keeps_nothing_from_others)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(map(provider, MIB, MIB), 0);
	enum { STAYS, FLAPS };
	fake_fail("verbs_dereg_mr", 0, 1, -EBUSY); /* of the first mapping that leaves it, whenever it tries */
	device_goes(STAYS);
	for (int round = 0; round < 2; round++) {
		fake_fail("verbs_dereg_mr", 0, 1, -EBUSY);
		device_goes(FLAPS);
		ck_assert_int_eq(fake_counts().mrs, OWN_MRS / FAKE_DEVICES + 1); /* of the one that stays */
		fake_fail("verbs_dereg_mr", 0, 1, -EBUSY);
		device_comes(FLAPS);
		ck_assert_uint_eq(published(FLAPS).view_count, 2);
		peer_leave(peer_connect(FLAPS));
	}
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	ck_assert_int_eq(unmap(provider, MIB, MIB), 0);
	/* Now nothing holds it any more. */
	device_comes(STAYS);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	peer_leave(peer_connect(STAYS));
	close(provider);
}
END_TEST

/* While it is to be registered on the device that came back: it is unmapped, its provider goes, the device goes again,
 * the daemon ends. */
START_TEST(anything_may_happen_while_a_mapping_comes_back)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	device_goes(0);
	workers_hold();
	device_comes(0);
	if (_i == 0) {
		provider_send(provider, VHOST_USER_BACKEND_SHMEM_UNMAP, 0, MIB, -1);
		fake_loop_run(loop, 10);
		ck_assert(!is_readable(provider));
	}
	if (_i == 1)
		close(provider);
	if (_i == 2)
		device_goes(0);
	if (_i == 3) {
		pipeline_stop(pipeline, on_stopped, NULL);
		fake_loop_run(loop, 10);
	}
	fake_loop_run(loop, 10);
	workers_go_on();
	fake_loop_run(loop, 10);
	if (_i == 0)
		ck_assert_int_eq(provider_answer_to(provider, VHOST_USER_BACKEND_SHMEM_UNMAP), 0);
	if (_i == 2) {
		ck_assert_int_eq(fake_counts().mrs, (OWN_MRS + FAKE_DEVICES) / FAKE_DEVICES);
		device_comes(0);
		ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	} else if (_i < 2) {
		wait_until(is_mr_count, OWN_MRS);
	}
	if (_i != 1)
		close(provider);
}
END_TEST

static void device_0_goes(void)
{
	if (fake_calls("verbs_reg_mr_iova") == leaves_at_call) {
		fake_absent(0, true);
		fake_async_event(0, IBV_EVENT_DEVICE_FATAL);
		fake_loop_run(loop, 0);
	}
}

/* What is registered counts on the devices that are left. */
START_TEST(a_device_that_goes_while_a_mapping_is_registered_fails_nothing)
{
	serve();
	int provider = provider_connect();
	leaves_at_call = fake_calls("verbs_reg_mr_iova") + 1 + (unsigned int)_i;
	fake_on_call("verbs_reg_mr_iova", device_0_goes);
	if (_i == 0)
		fake_fail("verbs_reg_mr_iova", 0, 1, -EIO);
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	fake_loop_run(loop, 10);
	ck_assert_int_eq(fake_counts().mrs, (OWN_MRS + FAKE_DEVICES) / FAKE_DEVICES);
	ck_assert_uint_eq(published(1).view_count, 1);
	device_comes(0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	ck_assert_uint_eq(published(0).view_count, 1);
	close(provider);
}
END_TEST

START_TEST(memory_that_a_device_did_not_let_go_is_free_when_it_is_gone)
{
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	fake_fail("verbs_dereg_mr", 0, 4, -EBUSY);
	ck_assert_int_eq(unmap(provider, 0, MIB), -EBUSY);
	ck_assert_int_eq(map(provider, 0, MIB), -EEXIST);
	device_goes(0);
	wait_until(is_mr_count, OWN_MRS / FAKE_DEVICES);
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	device_comes(0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	close(provider);
}
END_TEST

/* What is left out for want of memory that may be locked takes nothing of it, and what leaves a device gives it back.
 */
START_TEST(the_budget_is_kept_over_devices_that_come_and_go)
{
	limit_locked_memory(4 * MIB);
	set_up();
	serve();
	int provider = provider_connect();
	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(map(provider, 0, MIB), 0);
		ck_assert_int_eq(map(provider, 4 * MIB, 2 * MIB), -ENOMEM);
		device_goes(0);
		ck_assert_int_eq(map(provider, 4 * MIB, 2 * MIB), 0);
		ck_assert_int_eq(map(provider, 8 * MIB, MIB), -ENOMEM);
		device_comes(0);
		ck_assert_int_eq(fake_counts().mrs, OWN_MRS + 2);
		ck_assert_uint_eq(published(0).view_count, 0);
		ck_assert_int_eq(unmap(provider, 4 * MIB, 2 * MIB), 0);
		ck_assert_int_eq(unmap(provider, 0, MIB), 0);
		ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	}
	close(provider);
	tear_down();
}
END_TEST

START_TEST(without_a_device_mappings_are_made_and_published_when_one_comes)
{
	for (unsigned int i = 0; i < FAKE_DEVICES; i++)
		fake_absent(i, true);
	set_up();
	serve();
	int provider = provider_connect();
	ck_assert_int_eq(map(provider, 0, MIB), 0);
	ck_assert_int_eq(map(provider, MIB, MIB), 0);
	ck_assert_int_eq(unmap(provider, MIB, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, 0);
	device_comes(1);
	ck_assert_int_eq(fake_counts().mrs, (OWN_MRS + FAKE_DEVICES) / FAKE_DEVICES);
	ck_assert_uint_eq(published(1).view_count, 1);
	device_comes(0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);
	ck_assert_int_eq(unmap(provider, 0, MIB), 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS);
	close(provider);
	tear_down();
}
END_TEST

void add_mapping_life_tests(Suite *suite)
{
	TCase *tcase = tcase_create("life");
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, a_mapping_is_registered_on_every_device_and_removed_from_each);
	tcase_add_loop_test(
		tcase, adding_that_fails_leaves_nothing, 0, (int)(sizeof(failing_steps) / sizeof(failing_steps[0])));
	tcase_add_test(tcase, a_file_that_is_refused_leaves_nothing);
	tcase_add_test(tcase, a_provider_that_goes_takes_its_mappings);
	tcase_add_test(tcase, a_provider_that_goes_while_its_map_runs_leaves_nothing);
	tcase_add_test(tcase, deregistration_that_fails_once_drops_the_peers_and_succeeds);
	tcase_add_test(tcase, deregistration_that_fails_twice_is_never_acknowledged);
	tcase_add_test(tcase, deregistration_that_fails_while_undoing_keeps_the_range);
	tcase_add_test(tcase, a_file_that_cannot_be_mapped_leaves_nothing);
	tcase_add_test(tcase, a_file_shortened_before_it_is_faulted_in_leaves_nothing);
	tcase_add_test(tcase, memory_that_cannot_be_unmapped_keeps_its_range);
	tcase_add_test(tcase, a_provider_that_goes_while_its_file_is_checked_leaves_nothing);
	tcase_add_loop_test(tcase, a_provider_that_goes_while_it_is_registered_leaves_nothing, 0, FAKE_DEVICES);
	tcase_add_test(tcase, a_provider_that_goes_while_it_is_published_leaves_nothing);
	tcase_add_test(tcase, an_unmap_is_answered_after_the_peers_acknowledgement);
	tcase_add_test(tcase, a_late_peer_is_cut_before_deregistration);
	tcase_add_test(tcase, a_device_that_does_not_let_go_loses_its_peers_first);
	tcase_add_test(tcase, a_device_that_never_lets_go_gives_no_false_answer);
	tcase_add_test(tcase, a_queue_pair_that_stays_holds_the_second_try_back);
	tcase_add_test(tcase, static_mappings_are_nobody_elses);
	tcase_add_test(tcase, a_static_mapping_that_fails_is_told);
	tcase_add_test(tcase, mappings_leave_a_device_and_come_back_to_it);
	tcase_add_test(tcase, many_mappings_come_back_while_providers_are_served);
	tcase_add_test(tcase, a_mapping_that_fails_on_a_device_is_left_out_there);
	tcase_add_loop_test(tcase, a_mapping_that_takes_long_holds_up_its_device_in_bounded_time, 0, 2);
	tcase_add_test(tcase, a_device_that_does_not_let_go_keeps_nothing_from_others);
	tcase_add_loop_test(tcase, anything_may_happen_while_a_mapping_comes_back, 0, 4);
	tcase_add_loop_test(tcase, a_device_that_goes_while_a_mapping_is_registered_fails_nothing, 0, FAKE_DEVICES);
	tcase_add_test(tcase, memory_that_a_device_did_not_let_go_is_free_when_it_is_gone);
	suite_add_tcase(suite, tcase);

	TCase *bare = tcase_create("life without devices");
	tcase_add_test(bare, without_a_device_mappings_are_made_and_published_when_one_comes);
	suite_add_tcase(suite, bare);

	TCase *small = tcase_create("life with a small catalog");
	tcase_add_test(small, a_full_catalog_refuses_before_it_registers);
	tcase_add_loop_test(small, more_extents_than_reserved_leave_nothing, 0, FAKE_DEVICES);
	suite_add_tcase(suite, small);

	TCase *locked = tcase_create("life with little memory to lock");
	tcase_add_test(locked, a_spent_budget_refuses_before_anything_is_pinned);
	tcase_add_test(locked, the_budget_is_kept_over_devices_that_come_and_go);
	suite_add_tcase(suite, locked);
}
