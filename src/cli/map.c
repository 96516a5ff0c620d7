/* map.c: `mrshare map`: shares a file or a memfd, for as long as it runs or a command does. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/range.h"
#include "base/size.h"
#include "cli/cli.h"

enum {
	PAGE = 4096, /* the unit of mappings, whatever the machine's page size is */
};

struct settings {
	const char *socket;
	struct optional_size shmid, shm_offset, memfd, offset, len;
	bool read_only;
};

static const struct cli_option options[] = {
	{ "socket", "PATH", "the daemon's provider socket (/run/mrshared/provider.sock)", option_text,
		offsetof(struct settings, socket), 0 },
	{ "shmid", "N", "the region to map into", option_shmid, offsetof(struct settings, shmid), 0 },
	{ "shm-offset", "OFFSET", "where in the region", option_size, offsetof(struct settings, shm_offset), 0 },
	{ "memfd", "SIZE", "share new memory of this size instead of a file", option_size,
		offsetof(struct settings, memfd), 0 },
	{ "offset", "OFFSET", "where in the file (0)", option_size, offsetof(struct settings, offset), 0 },
	{ "len", "LEN", "how much (to the end of the file)", option_size, offsetof(struct settings, len), 0 },
	{ "read-only", NULL, "peers may only read", option_switch, offsetof(struct settings, read_only), 0 },
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
		int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY; /* a FIFO would be waited for */
		int fd = open(file, (settings->read_only ? O_RDONLY : O_RDWR) | flags);
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
	struct stat st;
	if (fstat(fd, &st) < 0)
		return cli_fail("%s: %s", name, strerror(errno));
	if (!S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode))
		return cli_fail("%s: it is no regular file, memfd or DAX device", name);

	uint64_t len = settings->len.value;
	if (!settings->len.given) {
		if (!S_ISREG(st.st_mode))
			return cli_fail("%s: its size is not known: give --len", name);
		uint64_t size = (uint64_t)st.st_size, offset = settings->offset.value;
		if (size == 0)
			return cli_fail("%s: it is empty", name);
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

/* Waits for as long as it takes: pinning much memory takes long. */
static int share(const char *socket, const struct mrshare_mmap *mmap, int fd, char **program)
{
	struct mrshare_provider *provider = NULL;
	cli_wait_begin("for the daemon at %s to map %s", socket, size_format(mmap->len).text);
	int r = mrshare_provider_open(socket, &provider);
	if (r == 0)
		r = mrshare_provider_map(provider, mmap, fd);
	cli_wait_end();
	int status = r < 0 ? cli_fail("%s", mrshare_error()) : hold_mapping(provider, mmap, fd, program);
	mrshare_provider_close(&provider);
	return status;
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
	return status == CLI_OK ? share(settings.socket, &mmap, fd, arguments.program) : status;
}
