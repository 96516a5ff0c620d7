/* hold.c: keeps a mapping until interrupted, or while a command runs that has its memory. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/size.h"
#include "cli/cli.h"

/* As a shell ends that runs a command. */
enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNALLED = 128 };

/* In the child: becomes the command. It finds the memory under a number that its environment tells. */
static void exec_program(char **program, int fd, const struct mrshare_mmap *mmap, const sigset_t *mask, pid_t parent)
{
	/* However we end, the command does not go on with memory that nobody shares. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		raise(SIGTERM);
	const struct {
		const char *name;
		uint64_t value;
	} variables[] = {
		{ "MRSHARE_FD", (uint64_t)fd },
		{ "MRSHARE_SHMID", mmap->shmid },
		{ "MRSHARE_SHM_OFFSET", mmap->shm_offset },
		{ "MRSHARE_OFFSET", mmap->fd_offset },
		{ "MRSHARE_LEN", mmap->len },
	};
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		char value[24];
		snprintf(value, sizeof(value), "%" PRIu64, variables[i].value);
		setenv(variables[i].name, value, 1);
	}
	fcntl(fd, F_SETFD, 0);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(program[0], program);
	int error = errno;
	cli_fail("%s: %s", program[0], strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

/* What is waited for: the daemon, signals, the command. */
struct hold {
	struct mrshare_provider *provider;
	int signal_fd;
	pid_t child; /* 0: none */
	int status;  /* the exit code so far */
	bool lost;   /* the daemon has gone */
	bool interrupted;
};

static void take_signal(struct hold *hold)
{
	struct signalfd_siginfo info;
	if (read(hold->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	int wait_status;
	if (info.ssi_signo == SIGCHLD) {
		if (hold->child && waitpid(hold->child, &wait_status, WNOHANG) == hold->child) {
			hold->child = 0;
			if (!hold->lost)
				hold->status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status)
								      : EXIT_SIGNALLED + WTERMSIG(wait_status);
		}
		return;
	}
	hold->interrupted = true;
	/* What is typed at a terminal reaches the command by itself. A hangup may be for the session's leader alone. */
	if (hold->child && (info.ssi_code != SI_KERNEL || info.ssi_signo == SIGHUP))
		kill(hold->child, (int)info.ssi_signo);
}

static void lose_daemon(struct hold *hold)
{
	hold->lost = true;
	hold->status = cli_fail("the daemon has gone: nothing is shared any more%s",
		hold->child ? "; the command is asked to end (SIGTERM)" : "");
	if (hold->child)
		kill(hold->child, SIGTERM);
}

/* Until the command ends; without one, until a signal comes or the daemon goes. */
static void wait_for_end(struct hold *hold, bool has_program)
{
	while (has_program ? hold->child != 0 : !hold->interrupted && !hold->lost) {
		struct pollfd fds[] = {
			{ .fd = hold->signal_fd, .events = POLLIN },
			{ .fd = hold->lost ? -1 : mrshare_provider_fd(hold->provider), .events = POLLIN },
		};
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[0].revents)
			take_signal(hold);
		if (fds[1].revents)
			lose_daemon(hold);
	}
}

/* Those that end us come through a descriptor from now on. What was ignored stays so, as under nohup(1); but for
 * SIGCHLD, without which the command's end is not seen. */
static void block_signals(sigset_t *ret_mask, sigset_t *ret_old)
{
	static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	sigemptyset(ret_mask);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct sigaction action;
		if (sigaction(ends[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(ret_mask, ends[i]);
	}
	signal(SIGCHLD, SIG_DFL);
	sigaddset(ret_mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, ret_mask, ret_old);
}

/* Whoever waits for this line must not wait for ever. */
static int print_mapped(const struct mrshare_mmap *mmap)
{
	printf("mapped region %u at 0x%" PRIx64 ", %s, %s\n", mmap->shmid, mmap->shm_offset,
		size_format(mmap->len).text, mmap->flags & MRSHARE_MMAP_WRITABLE ? "read-write" : "read-only");
	return cli_flush();
}

int hold_mapping(struct mrshare_provider *provider, const struct mrshare_mmap *mmap, int fd, char **program)
{
	sigset_t mask, old;
	block_signals(&mask, &old);
	CLEANUP_CLOSE int signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		return cli_fail("signalfd: %s", strerror(errno));
	if (print_mapped(mmap) != CLI_OK)
		return CLI_FAILED;

	struct hold hold = { .provider = provider, .signal_fd = signal_fd };
	if (program) {
		pid_t own = getpid();
		hold.child = fork();
		if (hold.child == 0)
			exec_program(program, fd, mmap, &old, own);
		if (hold.child < 0)
			return cli_fail("cannot start %s: %s", program[0], strerror(errno));
	}
	wait_for_end(&hold, program != NULL);
	/* From here a second signal ends us at once. */
	sigprocmask(SIG_SETMASK, &old, NULL);
	/* Asked for, so that no peer reaches the memory any more when we have ended. */
	cli_wait_begin("until no peer reaches the memory any more; a signal ends this at once");
	int r = hold.lost ? 0 : mrshare_provider_unmap(provider, mmap);
	cli_wait_end();
	if (r < 0 && hold.status == CLI_OK)
		hold.status = cli_fail("%s", mrshare_error());
	return hold.status;
}
