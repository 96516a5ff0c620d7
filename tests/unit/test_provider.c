/* test_provider.c: a provider in a process that forks, and with signals. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "fake_daemon.h"
#include "wire/vhost_user.h"

static char directory[] = "/tmp/mrshare-provider-XXXXXX";
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listener;
static struct mrshare_provider *provider;
static const struct mrshare_mmap page = { .len = FAKE_PAGE };

static void listen_as_daemon(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	strcpy(address.sun_path, directory);
	strcat(address.sun_path, "/socket");
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 0), 0);
}

static void end_daemon(void)
{
	mrshare_provider_close(&provider);
	close(listener);
	unlink(address.sun_path);
	rmdir(directory);
}

/* A child that has the provider too, until a byte or the end comes through the pipe. */
static pid_t fork_child(int *ret_end)
{
	int ends[2];
	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		close(ends[1]);
		bool good = mrshare_provider_map(provider, &page, 0) == -ECHILD &&
			    mrshare_provider_unmap(provider, &page) == -ECHILD &&
			    strcmp(mrshare_error_call(), "mrshare_provider_unmap") == 0;
		bool told = read(ends[0], &byte, 1) == 1;
		if (told)
			mrshare_provider_close(&provider);
		_exit(good && (!told || !provider) ? 0 : 1);
	}
	close(ends[0]);
	*ret_end = ends[1];
	return pid;
}

static void expect_good(pid_t pid)
{
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

START_TEST(a_child_leaves_the_channel_alone)
{
	int end;
	ck_assert_int_eq(mrshare_provider_open(address.sun_path, &provider), 0);
	int daemon = accept(listener, NULL, NULL);
	pid_t pid = fork_child(&end);
	ck_assert_int_eq(write(end, "", 1), 1);
	expect_good(pid);
	close(end);
	/* No request, no end. */
	struct pollfd fd = { .fd = daemon, .events = POLLIN };
	ck_assert_int_eq(poll(&fd, 1, 0), 0);
	close(daemon);
}
END_TEST

START_TEST(a_close_ends_the_connection_while_a_child_lives)
{
	int end;
	char byte;
	ck_assert_int_eq(mrshare_provider_open(address.sun_path, &provider), 0);
	int daemon = accept(listener, NULL, NULL);
	pid_t pid = fork_child(&end);
	mrshare_provider_close(&provider);
	ck_assert_ptr_null(provider);
	struct pollfd fd = { .fd = daemon, .events = POLLIN };
	ck_assert_msg(poll(&fd, 1, 5000) == 1, "wanted the end of the connection, got nothing");
	ck_assert_int_eq(recv(daemon, &byte, 1, 0), 0);
	close(end);
	expect_good(pid);
	close(daemon);
}
END_TEST

static void ignore(int signal_number)
{
}

static void *accept_late(void *data)
{
	usleep(100000);
	for (int i = 0; i < 2; i++)
		close(accept(listener, NULL, NULL));
	return NULL;
}

START_TEST(signals_do_not_fail_an_open)
{
	const struct sigaction action = { .sa_handler = ignore };
	const struct itimerval often = { .it_interval = { .tv_usec = 5000 }, .it_value = { .tv_usec = 5000 } },
			       never = { 0 };
	struct mrshare_provider *first;
	pthread_t thread;
	sigset_t alarms;
	/* The queue of connections is full of one: the next one waits. */
	ck_assert_int_eq(mrshare_provider_open(address.sun_path, &first), 0);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, accept_late, NULL), 0);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &often, NULL), 0);
	int r = mrshare_provider_open(address.sun_path, &provider);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	ck_assert_msg(r == 0, "wanted 0, got %d: %s", r, mrshare_error());
	pthread_join(thread, NULL);
	mrshare_provider_close(&first);
}
END_TEST

/* Each wrong path has its code. */
START_TEST(wrong_paths_fail)
{
	char longest[sizeof(address.sun_path) + 1], no_file[] = "/nonexistent/socket";
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	struct mrshare_provider *none = NULL;
	ck_assert_int_eq(mrshare_provider_open("", &none), -EINVAL);
	ck_assert_int_eq(mrshare_provider_open(longest, &none), -ENAMETOOLONG);
	ck_assert_int_eq(mrshare_provider_open(no_file, &none), -ENOENT);
	fd_close(&listener);
	ck_assert_int_eq(mrshare_provider_open(address.sun_path, &none), -ECONNREFUSED);
	ck_assert_ptr_null(none);
}
END_TEST

static void *answer_once(void *data)
{
	uint8_t message[VHOST_USER_HEADER_SIZE + MRSHARE_MMAP_SIZE], reply[VHOST_USER_REPLY_SIZE];
	int daemon = accept(listener, NULL, NULL);
	vhost_user_reply_write(VHOST_USER_BACKEND_SHMEM_UNMAP, 0, reply);
	if (recv(daemon, message, sizeof(message), MSG_WAITALL) == sizeof(message) && data)
		send(daemon, reply, sizeof(reply), 0);
	close(daemon);
	return NULL;
}

/* Only before the first answer may the cause be that the daemon has enough providers. */
START_TEST(an_early_end_is_explained)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, answer_once, _i ? address.sun_path : NULL), 0);
	ck_assert_int_eq(mrshare_provider_open(address.sun_path, &provider), 0);
	if (_i)
		ck_assert_int_eq(mrshare_provider_unmap(provider, &page), 0);
	ck_assert_int_eq(mrshare_provider_unmap(provider, &page), -ECONNRESET);
	ck_assert_msg((strstr(mrshare_error(), "--max-providers") == NULL) == (_i == 1), "got: %s", mrshare_error());
	ck_assert_int_eq(mrshare_provider_unmap(provider, &page), -ENOTCONN);
	pthread_join(thread, NULL);
}
END_TEST

void add_provider_tests(Suite *suite)
{
	TCase *tcase = tcase_create("provider");
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, listen_as_daemon, end_daemon);
	tcase_add_test(tcase, a_child_leaves_the_channel_alone);
	tcase_add_test(tcase, a_close_ends_the_connection_while_a_child_lives);
	tcase_add_test(tcase, signals_do_not_fail_an_open);
	tcase_add_test(tcase, wrong_paths_fail);
	tcase_add_loop_test(tcase, an_early_end_is_explained, 0, 2);
	suite_add_tcase(suite, tcase);
}
