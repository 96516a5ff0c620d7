/* map.c: `mrshare map`: shares a file or a memfd, for as long as it runs or a command does. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/range.h"
#include "base/size.h"
#include "cli/cli.h"

enum {
	PAGE = 4096, /* the unit of mappings, whatever the machine's page size is */
	EXIT_NOT_EXECUTABLE = 126,
	EXIT_NOT_FOUND = 127,
	EXIT_SIGNALLED = 128,
};

struct settings {
	const char *socket;
	struct optional_size shmid, shm_offset, memfd, offset, len;
	bool read_only;
};

static const struct cli_option options[] = {
	{ "socket", "PATH", "the daemon's provider socket (/run/mrshared/provider.sock)", option_text,
		offsetof(struct settings, socket) },
	{ "shmid", "N", "the region to map into", option_shmid, offsetof(struct settings, shmid) },
	{ "shm-offset", "OFFSET", "where in the region", option_size, offsetof(struct settings, shm_offset) },
	{ "memfd", "SIZE", "share new memory of this size instead of a file", option_size,
		offsetof(struct settings, memfd) },
	{ "offset", "OFFSET", "where in the file (0)", option_size, offsetof(struct settings, offset) },
	{ "len", "LEN", "how much (to the end of the file)", option_size, offsetof(struct settings, len) },
	{ "read-only", NULL, "peers may only read", option_switch, offsetof(struct settings, read_only) },
};

static int run(const struct cli_command *command, int argc, char **argv);

const struct cli_command cli_map = {
	.name = "map",
	.synopsis = "--shmid N --shm-offset OFFSET [OPTION]... (FILE | --memfd SIZE) [-- COMMAND [ARG]...]",
	.summary = "Share a file or new memory until interrupted, or while COMMAND runs",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.takes_program = true,
	.run = run,
};

/* Returns the descriptor, or -1 when the failure was said. */
static int open_memory(const struct settings *settings, const char *file)
{
	if (file) {
		int fd = open(file, (settings->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (fd < 0)
			cli_fail("%s: %s", file, strerror(errno));
		return fd;
	}

	uint64_t size = settings->memfd.value;
	CLEANUP_CLOSE int fd = memfd_create("mrshare", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* Shrinking it would kill whoever uses the mapping. */
	if (fd < 0 || size > INT64_MAX || ftruncate(fd, (off_t)size) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		cli_fail("a memfd of %s: %s", size_format(size).text, strerror(size > INT64_MAX ? EFBIG : errno));
		return -1;
	}
	int taken = fd;
	fd = -1;
	return taken;
}

/* Where no length was given: to the end of the file. */
static int choose_len(const struct settings *settings, int fd, const char *name, uint64_t *ret_len)
{
	uint64_t len = settings->len.value;
	if (!settings->len.given) {
		struct stat st;
		if (fstat(fd, &st) < 0)
			return cli_fail("%s: %s", name, strerror(errno));
		if (!S_ISREG(st.st_mode))
			return cli_fail("%s: its size is not known: give --len", name);
		uint64_t size = (uint64_t)st.st_size, offset = settings->offset.value;
		if (offset >= size)
			return cli_fail("%s: --offset is not before its end (%s)", name, size_format(size).text);
		len = size - offset;
	}
	if (len == 0 || !is_aligned(len, PAGE))
		return cli_fail("%s: the length, %s, is not a multiple of %d: give --len%s", name,
			size_format(len).text, PAGE,
			settings->len.given ? " such a value" : ", or make the file longer");
	*ret_len = len;
	return CLI_OK;
}

/* In the child: becomes the command. It finds the memory under a number that its environment tells. */
static void exec_program(char **program, int fd, const struct mrshare_mmap *mmap, const sigset_t *mask)
{
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
	/* What a terminal sends reaches the command by itself. */
	if (hold->child && info.ssi_code != SI_KERNEL)
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

static int share(struct mrshare_provider *provider, const struct mrshare_mmap *mmap, int fd, char **program)
{
	sigset_t mask, old;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, &old);
	CLEANUP_CLOSE int signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		return cli_fail("signalfd: %s", strerror(errno));

	if (mrshare_provider_map(provider, mmap, fd) < 0)
		return cli_fail("%s", mrshare_error());
	printf("mapped region %u at 0x%" PRIx64 ", %s, %s\n", mmap->shmid, mmap->shm_offset,
		size_format(mmap->len).text, mmap->flags & MRSHARE_MMAP_WRITABLE ? "read-write" : "read-only");
	fflush(stdout);

	struct hold hold = { .provider = provider, .signal_fd = signal_fd };
	if (program) {
		hold.child = fork();
		if (hold.child == 0)
			exec_program(program, fd, mmap, &old);
		if (hold.child < 0)
			return cli_fail("cannot start %s: %s", program[0], strerror(errno));
	}
	wait_for_end(&hold, program != NULL);
	/* Asked for, so that no peer reaches the memory any more when we have ended. */
	if (!hold.lost && mrshare_provider_unmap(provider, mmap) < 0 && hold.status == CLI_OK)
		hold.status = cli_fail("%s", mrshare_error());
	return hold.status;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	struct settings settings = { .socket = "/run/mrshared/provider.sock" };
	struct cli_arguments arguments;
	int status;
	if (options_parse(command, argc, argv, &settings, &arguments, &status) < 0)
		return status;
	if (!settings.shmid.given || !settings.shm_offset.given)
		return cli_usage(command, "--shmid and --shm-offset say where to map, and are both wanted");
	if (arguments.count != (settings.memfd.given ? 0 : 1))
		return cli_usage(command, "wanted is either one FILE or --memfd SIZE");
	if (arguments.program && !arguments.program[0])
		return cli_usage(command, "a command is wanted after --");

	const char *file = settings.memfd.given ? NULL : arguments.values[0];
	struct mrshare_mmap mmap = {
		.shmid = (uint8_t)settings.shmid.value,
		.fd_offset = settings.offset.value,
		.shm_offset = settings.shm_offset.value,
		.flags = settings.read_only ? 0 : MRSHARE_MMAP_WRITABLE,
	};
	CLEANUP_CLOSE int fd = open_memory(&settings, file);
	if (fd < 0)
		return CLI_FAILED;
	status = choose_len(&settings, fd, file ? file : "--memfd", &mmap.len);
	if (status != CLI_OK)
		return status;

	struct mrshare_provider *provider;
	if (mrshare_provider_open(settings.socket, &provider) < 0)
		return cli_fail("%s", mrshare_error());
	status = share(provider, &mmap, fd, arguments.program);
	mrshare_provider_close(&provider);
	return status;
}
