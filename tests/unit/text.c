/* text.c: errors with their context, and lines of the log. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "unit.h"

START_TEST(error_text)
{
	struct err err = { 0 };
	ck_assert_int_eq(err_set(&err, -EBUSY, "%s is busy: %d", "region 1", 7), -EBUSY);
	ck_assert_int_eq(err.code, -EBUSY);
	ck_assert_str_eq(err.text, "region 1 is busy: 7");
	ck_assert_int_eq(err_prefix(&err, "provider %d", 3), -EBUSY);
	ck_assert_str_eq(err.text, "provider 3: region 1 is busy: 7");
	ck_assert_int_eq(err_set(NULL, -EIO, "nobody listens"), -EIO);
}
END_TEST

START_TEST(long_error)
{
	struct err err = { 0 };
	char text[2000];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	err_set(&err, -EIO, "%s", text);
	ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
	ck_assert_int_eq(err_prefix(&err, "%s", text), -EIO);
	ck_assert_uint_eq(strlen(err.text), sizeof(err.text) - 1);
}
END_TEST

START_TEST(control_characters)
{
	for (int c = 1; c < 0x80; c++) {
		char text[] = { 'a', (char)c, 'b', '\0' };
		char wanted[] = { 'a', c < 0x20 || c == 0x7f ? '?' : (char)c, 'b', '\0' };
		struct err err;
		err_set(&err, -EIO, "%s", text);
		ck_assert_str_eq(err.text, wanted);
		text_sanitize(text);
		ck_assert_str_eq(text, wanted);
	}
	char text[] = "gr\xc3\xbc\xc3\x9f \xe2\x82\xac";
	text_sanitize(text);
	ck_assert_str_eq(text, "gr\xc3\xbc\xc3\x9f \xe2\x82\xac");
	char c1[] = "a\xc2\x9b"
		    "1m\xc2\xa0";
	text_sanitize(c1);
	ck_assert_str_eq(c1, "a??1m\xc2\xa0");
	char empty[] = "";
	text_sanitize(empty);
	ck_assert_str_eq(empty, "");
}
END_TEST

/* Sends standard error into a pipe for the rest of the test. Returns its other end. */
static int catch_stderr(void)
{
	int fds[2];
	ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	close(fds[1]);
	return fds[0];
}

static void assert_caught(int fd, const char *wanted)
{
	char got[4096] = "";
	ssize_t n = read(fd, got, sizeof(got) - 1);
	got[n > 0 ? n : 0] = '\0';
	ck_assert_str_eq(got, wanted);
}

START_TEST(log_lines)
{
	int fd = catch_stderr();
	log_error("no memory for %d bytes", 5);
	assert_caught(fd, "error: no memory for 5 bytes\n");
	log_warning("a\nerror: forged\x1b[31m");
	assert_caught(fd, "warning: a?error: forged?[31m\n");
	log_info("%s", "");
	assert_caught(fd, "info: \n");
	log_debug("not at the default level");
	assert_caught(fd, "");
}
END_TEST

START_TEST(log_levels)
{
	int fd = catch_stderr();
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("hidden");
	log_error("shown");
	assert_caught(fd, "error: shown\n");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("shown");
	assert_caught(fd, "debug: shown\n");

	enum log_level level = LOG_LEVEL_ERROR;
	ck_assert_int_eq(log_level_parse("debug", &level), 0);
	ck_assert_int_eq(level, LOG_LEVEL_DEBUG);
	ck_assert_int_eq(log_level_parse("error", &level), 0);
	ck_assert_int_eq(level, LOG_LEVEL_ERROR);
	ck_assert_int_eq(log_level_parse("warning", &level), 0);
	ck_assert_int_eq(level, LOG_LEVEL_WARNING);
	ck_assert_int_eq(log_level_parse("info", &level), 0);
	ck_assert_int_eq(level, LOG_LEVEL_INFO);
	const char *const names[] = { "", "Debug", "debug ", "debu", "4", "trace" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_int_eq(log_level_parse(names[i], &level), -EINVAL);
	ck_assert_int_eq(level, LOG_LEVEL_INFO);
}
END_TEST

START_TEST(log_long_line)
{
	int fd = catch_stderr();
	char text[5000];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_error("%s", text);
	char got[4096];
	ssize_t n = read(fd, got, sizeof(got));
	ck_assert_int_gt(n, 1000);
	ck_assert_int_le(n, 1024);
	ck_assert_ptr_eq(memchr(got, '\n', (size_t)n), got + n - 1);
}
END_TEST

START_TEST(log_unread)
{
	/* A full pipe must not block whoever logs. */
	int fd = catch_stderr();
	for (int i = 0; i < 10000; i++)
		log_error("line %d", i);
	ck_assert_int_ge(fd, 0);
}
END_TEST

Suite *suite_text(void)
{
	const TTest *const tests[] = { error_text, long_error, control_characters, log_lines, log_levels, log_long_line,
		log_unread };
	return suite_of("text", tests, sizeof(tests) / sizeof(tests[0]));
}
