/* test_life.c: the life of a mapping, from a provider's socket to the devices, with each step failing in turn. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "stages.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/pipeline.h"
#include "fake_loop.h"
#include "fake_rdma.h"
#include "wire/vhost_user.h"

enum { MIB = 1 << 20, OWN_MRS = 2 * FAKE_DEVICES /* catalogs, frames */, NO_ANSWER = 1 };

static char directory[] = "/tmp/mrshare-life-XXXXXX";
static char socket_path[64];
static struct event_loop *loop;
static struct pipeline *pipeline;
static int started_result = NO_ANSWER;
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

static void on_started(void *data, int result, const struct err *err)
{
	started_result = result;
}

static void listen_address(unsigned int index, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(MRSHARE_DEFAULT_PORT) };
	inet_pton(AF_INET, address, &in.sin_addr);
	memcpy(&listen_on[index], &in, sizeof(in));
}

static void set_up(void)
{
	struct err err;
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(socket_path, sizeof(socket_path), "%s/sock", directory);
	listen_address(0, "10.0.0.1");
	listen_address(1, "10.0.0.2");
	loop = fake_loop_new();
	if (pipeline_new(loop, &config, &pipeline, &err) < 0)
		ck_abort_msg("pipeline_new: %s", err.text);
	ck_assert_int_eq(pipeline_add_region(pipeline, 0, 64 * MIB, &err), 0);
}

static void serve(void)
{
	struct err err;
	if (pipeline_start(pipeline, &providers_config, on_started, NULL, &err) < 0)
		ck_abort_msg("pipeline_start: %s", err.text);
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

static bool is_started(int result)
{
	return started_result == result;
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

START_TEST(static_mappings_stand_before_the_daemon_is_ready)
{
	struct err err;
	struct mrshare_mmap mmap = { .shm_offset = MIB, .len = MIB, .flags = MRSHARE_MMAP_WRITABLE };
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "FILE", &err), 0);
	ck_assert_int_eq(started_result, NO_ANSWER);
	serve();
	wait_until(is_started, 0);
	ck_assert_int_eq(fake_counts().mrs, OWN_MRS + FAKE_DEVICES);

	int provider = provider_connect();
	ck_assert_int_eq(unmap(provider, MIB, MIB), -EPERM);
	ck_assert_int_eq(map(provider, MIB, MIB), -EEXIST);
	close(provider);
}
END_TEST

START_TEST(a_static_mapping_that_fails_is_told_once)
{
	struct err err;
	struct mrshare_mmap mmap = { .len = MIB, .flags = MRSHARE_MMAP_WRITABLE };
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "FILE", &err), 0);
	mmap.shm_offset = MIB;
	mmap.len = 2 * MIB;
	ck_assert_int_eq(pipeline_map_static(pipeline, &mmap, memfd(MIB), "SHORT", &err), 0);
	serve();
	wait_until(is_started, -EFBIG);
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
	tcase_add_test(tcase, static_mappings_stand_before_the_daemon_is_ready);
	tcase_add_test(tcase, a_static_mapping_that_fails_is_told_once);
	suite_add_tcase(suite, tcase);

	TCase *small = tcase_create("life with a small catalog");
	tcase_add_test(small, a_full_catalog_refuses_before_it_registers);
	suite_add_tcase(suite, small);
}
