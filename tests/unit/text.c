/* text.c: errors with their context, and lines of the log. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/log_repeats.h"
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
	char no_utf8[] = "a\xff\xe2\x82"
			 "b\xc0\xafz\xf0\x9f\x98\x80\xe2\x82";
	text_sanitize(no_utf8);
	ck_assert_str_eq(no_utf8, "a???b??z\xf0\x9f\x98\x80??");
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
	ck_assert_int_eq(log_start(NULL), 0);
	for (int i = 0; i < 10000; i++)
		log_info("line %d", i);
	ck_assert_int_ge(fd, 0);
}
END_TEST

static char emitted[4000];

static void emit(const struct log_record *record)
{
	strcat(emitted, record->text);
	strcat(emitted, "|");
}

/* How many of the last `count` lines that are alike are written. */
static unsigned int pass(const char *subject, const char *text, unsigned int count)
{
	struct log_record record = { .level = LOG_LEVEL_WARNING, .field_count = 1 };
	snprintf(record.text, sizeof(record.text), "%s", text);
	record.fields[0].name = "SUBJECT";
	snprintf(record.fields[0].value, sizeof(record.fields[0].value), "%s", subject);
	unsigned int passed = 0;
	for (unsigned int i = 0; i < count; i++)
		passed += log_repeats_pass(&record, emit);
	return passed;
}

START_TEST(log_repeats)
{
	emitted[0] = '\0';
	ck_assert_uint_eq(pass("a", "region 7 at 0x10 is not there", 100), LOG_REPEATS_WRITTEN);
	/* Alike: other numbers. Not alike: another subject, another text. */
	ck_assert_uint_eq(pass("a", "region 12 at 0xffe0 is not there", 10), 0);
	ck_assert_uint_eq(pass("b", "region 7 at 0x10 is not there", 2), 2);
	ck_assert_uint_eq(pass("a", "region 7 at 0x10 is too short", 2), 2);
	log_repeats_tick(emit, false);
	ck_assert_str_eq(emitted, "");
	log_repeats_tick(emit, true);
	ck_assert_str_eq(emitted, "region 7 at 0x10 is not there (repeated 100 times in 0.0 s)|");
	/* Counting begins anew. */
	ck_assert_uint_eq(pass("a", "region 7 at 0x10 is not there", 100), LOG_REPEATS_WRITTEN);
}
END_TEST

START_TEST(log_repeats_of_many)
{
	/* More kinds than are kept: a count is written when its kind makes room. */
	emitted[0] = '\0';
	ck_assert_uint_eq(pass("first", "text", 13), LOG_REPEATS_WRITTEN);
	char subject[8];
	for (int i = 0; i < 200; i++) {
		snprintf(subject, sizeof(subject), "%d", i);
		ck_assert_uint_eq(pass(subject, "text", 1), 1);
	}
	ck_assert_str_eq(emitted, "text (repeated 3 times in 0.0 s)|");
}
END_TEST

START_TEST(log_repeats_of_long_lines)
{
	char text[LOG_TEXT_MAX];
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	emitted[0] = '\0';
	ck_assert_uint_eq(pass("a", text, 14), LOG_REPEATS_WRITTEN);
	log_repeats_tick(emit, true);
	ck_assert_uint_eq(strlen(emitted), LOG_TEXT_MAX);
	ck_assert_ptr_nonnull(strstr(emitted, "x (repeated 4 times in 0.0 s)|"));
}
END_TEST

START_TEST(log_fields)
{
	/* For one line, of which they say nothing where it is written plainly; what is too many is left out. */
	int fd = catch_stderr();
	for (int i = 0; i < 3 * LOG_FIELDS_MAX; i++)
		log_field("NAME", "%s", "value");
	log_info("with");
	log_info("without");
	assert_caught(fd, "info: with\ninfo: without\n");

	log_set_json();
	char name[100], text[LOG_TEXT_MAX];
	memset(name, '"', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	memset(text, '\\', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int i = 0; i < 8; i++) {
		static const char *const names[] = { "MRSHARE_PROVIDER_PID", "MRSHARE_PROVIDER_UID",
			"MRSHARE_FRONTEND_PID", "MRSHARE_FRONTEND_UID", "MRSHARE_SHM_OFFSET", "MRSHARE_MAPPING_ID",
			"MRSHARE_DEVICE", "MRSHARE_LEN" };
		log_field(names[i], "%s", name);
	}
	log_info("%s", text);
	char got[8192];
	ssize_t n = read(fd, got, sizeof(got));
	ck_assert_int_gt(n, 2 * (LOG_TEXT_MAX + 8 * 79));
	ck_assert_int_le(n, PIPE_BUF);
	ck_assert_int_eq(got[n - 1], '\n');
}
END_TEST

/* What terminals obey comes from peers in names, and goes out in no form of a line. */
START_TEST(log_json_is_harmless)
{
	static const char *const texts[] = { "\x7f", "\xc2\x80", "\xc2\x9bK", "\xc2\x9f", "\x1b[2J", "\n", "\xff",
		"\xc2" };
	int fd = catch_stderr();
	log_set_json();
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char got[4096] = "";
		log_field("MRSHARE_DEVICE", "a%sz", texts[i]);
		log_info("a%sz", texts[i]);
		ssize_t n = read(fd, got, sizeof(got) - 1);
		ck_assert_int_gt(n, 0);
		ck_assert_ptr_nonnull(strstr(got, "\"message\":\"a?"));
		ck_assert_ptr_nonnull(strstr(got, "\"MRSHARE_DEVICE\":\"a?"));
		for (const unsigned char *byte = (const unsigned char *)got; byte[1]; byte++)
			ck_assert_msg(*byte >= 0x20 && *byte < 0x7f, "text %zu: wanted plain text, got 0x%02x in %s", i,
				*byte, got);
	}
}
END_TEST

/* A character on the edge of what a count leaves room for. */
START_TEST(log_repeats_cut_no_character)
{
	for (size_t shift = 0; shift < 4; shift++) {
		char text[LOG_TEXT_MAX], wanted[LOG_TEXT_MAX];
		memset(text, 'x', shift);
		text[shift] = '\0';
		while (strlen(text) + 4 < sizeof(text))
			strcat(text, "\xf0\x9f\x98\x80");
		emitted[0] = '\0';
		ck_assert_uint_eq(pass("a", text, 14), LOG_REPEATS_WRITTEN);
		log_repeats_tick(emit, true);
		snprintf(wanted, sizeof(wanted), "%s", emitted);
		text_sanitize(wanted);
		ck_assert_mem_eq(emitted, wanted, strlen(wanted));
		ck_assert_ptr_nonnull(strstr(emitted, " (repeated 4 times in 0.0 s)|"));
	}
}
END_TEST

Suite *suite_text(void)
{
	const TTest *const tests[] = { error_text, long_error, control_characters, log_lines, log_levels, log_long_line,
		log_unread, log_repeats, log_repeats_of_many, log_repeats_of_long_lines, log_repeats_cut_no_character,
		log_fields, log_json_is_harmless };
	return suite_of("text", tests, sizeof(tests) / sizeof(tests[0]));
}
