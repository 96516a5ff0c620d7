/* test_commands.c: subcommands of mrshare, and what they are made of, with a daemon in the same process. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/peer.h"
#include "fake_daemon.h"

static struct peer peer = { .address = "10.0.0.1" };
static FILE *printed;

/* What is printed from here on goes into a file. */
static void capture(void)
{
	printed = tmpfile();
	ck_assert_ptr_nonnull(printed);
	ck_assert_int_ge(dup2(fileno(printed), STDOUT_FILENO), 0);
}

static const char *captured(void)
{
	static char text[65536];
	fflush(stdout);
	rewind(printed);
	text[fread(text, 1, sizeof(text) - 1, printed)] = '\0';
	return text;
}

/* A command line: words with a space between them. */
static int run(const struct cli_command *command, const char *line)
{
	char copy[256], *words[16];
	int count = 0;
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	return command->run(command, count, words);
}

/* Until the loss of a connection was noticed and made good. */
static void lose_connection(void)
{
	int r;
	fake_disconnect();
	while ((r = mrshare_refresh(peer.conn)) == -ECONNRESET)
		continue;
	ck_assert_int_eq(r, 0);
}

/* A daemon that is started anew gives the same numbers, and perhaps the same keys. */
START_TEST(the_origin_is_of_one_run_of_a_daemon)
{
	char *origin;
	peer.conn = fake_connected(true);
	ck_assert_int_eq(origin_take(&peer, 0, FAKE_PAGE, &origin), CLI_OK);
	lose_connection();
	ck_assert_int_eq(origin_check(&peer, 0, FAKE_PAGE, origin), CLI_OK);
	fake.server_id++;
	lose_connection();
	ck_assert_int_eq(origin_check(&peer, 0, FAKE_PAGE, origin), CLI_FAILED);
	free(origin);
	mrshare_close(&peer.conn);
}
END_TEST

static void write_file(const char *name, const char *text, const char *end)
{
	FILE *file = fopen(name, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fprintf(file, "%s%s", text, end), 0);
	ck_assert_int_eq(fclose(file), 0);
}

/* Half a copy that an earlier command left, of this run of the daemon or of the one before. */
START_TEST(a_copy_goes_on_with_one_run_of_a_daemon)
{
	char folder[] = "/tmp/mrshare-XXXXXX", *origin, bytes[FAKE_PAGE + 1] = "";
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	peer.conn = fake_connected(true);
	memset(fake.region, 'r', FAKE_PAGE);
	ck_assert_int_eq(origin_take(&peer, 0, FAKE_PAGE, &origin), CLI_OK);
	mrshare_close(&peer.conn);
	memset(bytes, 'f', FAKE_PAGE / 2);
	write_file("copy", bytes, "");
	write_file("copy.mrshare-part", origin, "\n");
	free(origin);

	fake.server_id = (uint8_t)_i;
	int status = run(&cli_read, "read -o copy --continue 10.0.0.1 0:0 4096");
	ck_assert_int_eq(status, _i ? CLI_FAILED : CLI_OK);
	FILE *copy = fopen("copy", "r");
	size_t size = fread(bytes, 1, sizeof(bytes), copy);
	fclose(copy);
	ck_assert_uint_eq(size, _i ? FAKE_PAGE / 2 : FAKE_PAGE);
	ck_assert_int_eq(bytes[FAKE_PAGE / 2 - 1], 'f');
	ck_assert(_i || bytes[FAKE_PAGE / 2] == 'r');
	ck_assert_int_eq(access("copy.mrshare-part", F_OK), _i ? 0 : -1);
	unlink("copy");
	unlink("copy.mrshare-part");
	ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(the_id_is_that_of_the_views)
{
	uint8_t id[MRSHARE_DAEMON_ID_SIZE] = { 0 }, wanted[MRSHARE_DAEMON_ID_SIZE] = { 0 };
	struct mrshare *fresh;
	ck_assert_int_eq(mrshare_new(&fresh), 0);
	ck_assert_int_eq(mrshare_daemon_id(fresh, id), -ENOTCONN);
	ck_assert_mem_eq(id, wanted, sizeof(id));
	mrshare_close(&fresh);

	peer.conn = fake_connected(true);
	fake.server_id = 7;
	ck_assert_int_eq(mrshare_daemon_id(peer.conn, id), 0);
	ck_assert_mem_eq(id, wanted, sizeof(id));
	lose_connection();
	wanted[0] = 7;
	ck_assert_int_eq(mrshare_daemon_id(peer.conn, id), 0);
	ck_assert_mem_eq(id, wanted, sizeof(id));

	/* One that welcomed us, and of which no views could be read, is not yet the one. */
	const struct mrshare_entry empty = fake_entry(1, 0, 0, MRSHARE_READ);
	fake_publish(1, &empty, 1);
	fake.server_id = 8;
	fake_disconnect();
	while (mrshare_refresh(peer.conn) == -ECONNRESET)
		continue;
	ck_assert_int_eq(mrshare_daemon_id(peer.conn, id), 0);
	ck_assert_mem_eq(id, wanted, sizeof(id));
	mrshare_close(&peer.conn);
}
END_TEST

START_TEST(a_list_says_whose_it_is)
{
	fake_reset();
	fake.server_id = 0xa5;
	capture();
	ck_assert_int_eq(run(&cli_list, "list --json 10.0.0.1"), CLI_OK);
	const char *wanted = "{\"daemon_id\":\"a5000000000000000000000000000000\",\"generation\":1,";
	ck_assert_msg(strncmp(captured(), wanted, strlen(wanted)) == 0, "wanted %s..., got %s", wanted, captured());
}
END_TEST

START_TEST(a_daemon_says_nothing_to_the_terminal)
{
	struct mrshare_entry entry = fake_entry(1, 0, FAKE_PAGE, MRSHARE_READ);
	fake_reset();
	strcpy(entry.view.device_name, "a\x1b[2J\x7f\xc2\x9b"
				       "2J\xc2\x80z");
	fake_publish(1, &entry, 1);
	capture();
	ck_assert_int_eq(run(&cli_list, "list 10.0.0.1"), CLI_OK);
	ck_assert_int_eq(run(&cli_list, "list --json 10.0.0.1"), CLI_OK);
	const char *text = captured();
	ck_assert_ptr_nonnull(strchr(text, 'z'));
	for (const unsigned char *byte = (const unsigned char *)text; *byte; byte++)
		ck_assert_msg((*byte >= 0x20 && *byte != 0x7f && *byte != 0xc2) || *byte == '\n',
			"wanted no control character, got 0x%02x in %s", *byte, text);
}
END_TEST

/* More than fits into a buffer, which goes out on the way, and less. */
START_TEST(output_that_fails_is_a_failure)
{
	static const struct {
		const struct cli_command *command;
		const char *line;
		size_t views;
	} runs[] = {
		{ &cli_list, "list 10.0.0.1", 1 },
		{ &cli_list, "list 10.0.0.1", 200 },
		{ &cli_list, "list --json 10.0.0.1", 1 },
		{ &cli_list, "list --json 10.0.0.1", 200 },
		{ &cli_watch, "watch 10.0.0.1", 1 },
		{ &cli_watch, "watch 10.0.0.1", 200 },
		{ &cli_watch, "watch --json 10.0.0.1", 200 },
		{ &cli_atomic, "atomic 10.0.0.1 0:0 fetch-and-add 1", 1 },
		{ &cli_atomic, "atomic 10.0.0.1 0:0 compare-and-swap 5 6", 1 },
		{ &cli_list, "list --help", 1 },
	};
	struct mrshare_entry entries[200];
	fake_reset();
	for (size_t i = 0; i < 200; i++)
		entries[i] = fake_entry(i + 1, i * FAKE_PAGE, FAKE_PAGE, MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC);
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		fake_publish(1, entries, runs[i].views);
		ck_assert_ptr_nonnull(freopen("/dev/full", "w", stdout));
		int status = cli_end(run(runs[i].command, runs[i].line));
		ck_assert_msg(status == CLI_FAILED, "%s, %zu views: wanted %d, got %d", runs[i].line, runs[i].views,
			CLI_FAILED, status);
	}
}
END_TEST

static const char *watch_line = "watch 10.0.0.1";
static int watch_status;

static void *watch(void *data)
{
	watch_status = run(&cli_watch, watch_line);
	fflush(stdout);
	close(STDOUT_FILENO);
	return NULL;
}

/* While a reader of the output takes its time the daemon is started anew: its numbers are not those of before. */
START_TEST(a_watch_ends_with_its_daemon)
{
	enum { COUNT = 200 };
	static struct mrshare_entry entries[COUNT];
	static char text[2 * COUNT * 200];
	int pipe_fds[2], filled = 0;
	pthread_t watcher;
	fake_reset();
	for (size_t i = 0; i < COUNT; i++)
		entries[i] = fake_entry(i + 1, i * FAKE_PAGE, FAKE_PAGE, MRSHARE_READ);
	fake_publish(1, entries, COUNT);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_gt(fcntl(pipe_fds[0], F_SETPIPE_SZ, 4096), 0);
	ck_assert_int_ge(dup2(pipe_fds[1], STDOUT_FILENO), 0);
	close(pipe_fds[1]);
	ck_assert_int_eq(pthread_create(&watcher, NULL, watch, NULL), 0);
	for (int i = 0; i < 5000 && filled < 4096; i++) {
		usleep(1000);
		ck_assert_int_eq(ioctl(pipe_fds[0], FIONREAD, &filled), 0);
	}
	ck_assert_int_eq(filled, 4096);
	for (size_t i = 0; i < COUNT; i++)
		entries[i].view.rkey++;
	fake_publish(1, entries, COUNT);
	fake.server_id++;
	fake_disconnect();
	usleep(50000);

	size_t size = 0;
	ssize_t n;
	while ((n = read(pipe_fds[0], text + size, sizeof(text) - 1 - size)) > 0)
		size += (size_t)n;
	pthread_join(watcher, NULL);
	ck_assert_int_eq(watch_status, CLI_FAILED);
	unsigned int lines = 0;
	for (const char *line = text; (line = strchr(line, '\n')); line++)
		lines++;
	ck_assert_msg(lines == 1 + COUNT, "wanted a line for each of %d views, got %u lines", COUNT, lines);
	ck_assert_ptr_null(strstr(text, "changed"));
}
END_TEST

/* Reads until there is a line that begins with `wanted`, 5 s at most, and returns it with what follows. */
static const char *await_line(int fd, char *text, size_t size, const char *wanted)
{
	size_t used = strlen(text);
	struct pollfd readable = { .fd = fd, .events = POLLIN };
	for (;;) {
		const char *line = text;
		while (line && strncmp(line, wanted, strlen(wanted)) != 0)
			line = (line = strchr(line, '\n')) ? line + 1 : NULL;
		if (line && strchr(line, '\n'))
			return line;
		ssize_t n = poll(&readable, 1, 5000) == 1 ? read(fd, text + used, size - 1 - used) : 0;
		ck_assert_msg(n > 0, "wanted a line that begins with %s, got %s", wanted, text);
		used += (size_t)n;
		text[used] = '\0';
	}
}

/* The same mapping at the same place, with another key and another right. */
START_TEST(a_watch_shows_what_has_changed)
{
	static const struct {
		const char *line, *first, *changed, *before;
	} forms[] = {
		{ "watch 10.0.0.1", "         1  added          0  0x0             4 KiB           r--     0x00000065",
			"         2  changed        0  0x0             4 KiB           rw-     0x00000066", "\n" },
		{ "watch --json 10.0.0.1", "{\"rkey\":101,", "{\"rkey\":102,",
			"\"access\":[\"read\",\"write\"],\"change\":\"changed\",\"generation\":2,\"before\":{\"rkey\":"
			"101," },
	};
	struct mrshare_entry entry = fake_entry(1, 0, FAKE_PAGE, MRSHARE_READ);
	char text[4096] = "";
	int pipe_fds[2];
	pthread_t watcher;
	fake_reset();
	fake_publish(1, &entry, 1);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_ge(dup2(pipe_fds[1], STDOUT_FILENO), 0);
	close(pipe_fds[1]);
	watch_line = forms[_i].line;
	ck_assert_int_eq(pthread_create(&watcher, NULL, watch, NULL), 0);
	await_line(pipe_fds[0], text, sizeof(text), forms[_i].first);

	entry.access |= MRSHARE_WRITE;
	entry.view.rkey++;
	fake_publish(2, &entry, 1);
	fake_notice(1, 2, NULL, 0);
	const char *line = await_line(pipe_fds[0], text, sizeof(text), forms[_i].changed);
	ck_assert_msg(strstr(line, forms[_i].before) != NULL, "wanted %s in %s", forms[_i].before, line);
	const char *end = _i ? strrchr(line, '{') : NULL;
	ck_assert_msg(!end || strstr(end, "\"access\":[\"read\"]}}\n"), "wanted the right of before, got %s", line);

	fake.server_id++;
	fake_disconnect();
	pthread_join(watcher, NULL);
	ck_assert_int_eq(watch_status, CLI_FAILED);
}
END_TEST

void add_commands_tests(Suite *suite)
{
	TCase *tcase = tcase_create("commands");
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, the_origin_is_of_one_run_of_a_daemon);
	tcase_add_loop_test(tcase, a_copy_goes_on_with_one_run_of_a_daemon, 0, 2);
	tcase_add_test(tcase, the_id_is_that_of_the_views);
	tcase_add_test(tcase, a_list_says_whose_it_is);
	tcase_add_test(tcase, a_daemon_says_nothing_to_the_terminal);
	tcase_add_test(tcase, output_that_fails_is_a_failure);
	tcase_add_test(tcase, a_watch_ends_with_its_daemon);
	tcase_add_loop_test(tcase, a_watch_shows_what_has_changed, 0, 2);
	suite_add_tcase(suite, tcase);
}
