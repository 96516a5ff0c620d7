/* test_mapfile.c: the map file: what its lines say, and the line that is named where one is wrong. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/mapfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages.h"

static struct options flags;
static struct mapfile file;
static struct err err;

static int parse_bytes(const char *bytes, size_t size)
{
	/* Exactly as large as it must be, so that a sanitizer sees what is beyond. */
	char *text = malloc(size + 1);
	memcpy(text, bytes, size);
	text[size] = 'x';
	int r = mapfile_parse("maps", text, size, &flags, &file, &err);
	free(text);
	return r;
}

static int parse(const char *text)
{
	return parse_bytes(text, strlen(text));
}

static void set_up(void)
{
	static char arguments[][48] = { "mrshared", "--no-rdma", "--shmem", "0:64M", "--shmem", "7:1M", "--map",
		"shmid=0,path=/flag,shm-offset=32M,len=1M", "--max-mappings", "6", "--max-peers", "9" };
	char *argv[sizeof(arguments) / sizeof(arguments[0])];
	int argc = 0;
	while ((size_t)argc < sizeof(argv) / sizeof(argv[0])) {
		argv[argc] = arguments[argc];
		argc++;
	}
	ck_assert_int_eq(options_parse(argc, argv, &flags, &err), 0);
}

START_TEST(takes_lines)
{
	ck_assert_int_eq(
		parse("# shmid=0\n\n \t# x\n  shmid=0,path=/a,,b c,len=4K,ro \r\n\tpath=/d#e,shmid=7,offset=8K"), 0);
	ck_assert_uint_eq(file.count, 2);
	ck_assert_uint_eq(file.lines[0].number, 4);
	ck_assert_str_eq(file.lines[0].map.path, "/a,b c");
	ck_assert_uint_eq(file.lines[0].map.len, 4096);
	ck_assert(file.lines[0].map.read_only);
	ck_assert_uint_eq(file.lines[1].number, 5);
	ck_assert_str_eq(file.lines[1].map.path, "/d#e");
	ck_assert_uint_eq(file.lines[1].map.shmid, 7);
	ck_assert_uint_eq(file.lines[1].map.offset, 8192);
	ck_assert_uint_eq(file.lines[1].map.len, 0);
	mapfile_free(&file);
	ck_assert_uint_eq(file.count, 0);
}
END_TEST

START_TEST(takes_what_is_empty)
{
	static const char *const texts[] = { "", "\n", "\n\n", "#", " ", "#\n# x" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_int_eq(parse(texts[i]), 0);
		ck_assert_uint_eq(file.count, 0);
		ck_assert_uint_eq(file.settings.max_mappings, 6);
		mapfile_free(&file);
	}
}
END_TEST

START_TEST(settings_take_the_place_of_flags)
{
	ck_assert_int_eq(parse("log-level=debug\nmax-mappings=8,2\nmax-bytes=1M\nmax-providers=3\nmax-front-ends=4\n"
			       "max-peers=1\nmax-peers=5"),
		0);
	ck_assert_int_eq(file.settings.log_level, LOG_LEVEL_DEBUG);
	ck_assert_uint_eq(file.settings.max_mappings, 8);
	ck_assert_uint_eq(file.settings.max_mappings_each, 2);
	ck_assert_uint_eq(file.settings.max_bytes, 1 << 20);
	ck_assert_uint_eq(file.settings.max_providers, 3);
	ck_assert_uint_eq(file.settings.max_frontends, 4);
	ck_assert_uint_eq(file.settings.max_peers, 5);
	mapfile_free(&file);
	/* The flags themselves stay. */
	ck_assert_uint_eq(flags.max_mappings, 6);
	ck_assert_int_eq(flags.log_level, LOG_LEVEL_INFO);
	ck_assert_int_eq(parse("max-mappings=7"), 0);
	ck_assert_uint_eq(file.settings.max_peers, 9);
	mapfile_free(&file);
}
END_TEST

/* A file, and what its error must name. */
static const struct {
	const char *text, *named;
} wrong[] = {
	{ "x", "maps:1: 'x' is neither a mapping (shmid=N,path=FILE...) nor a setting (NAME=VALUE without blanks" },
	{ "\n\n shmid=0", "maps:3: wanted at least" },
	{ "shmid=1,path=/a", "maps:1: region 1 is not given" },
	{ "shmid=7,path=/a,len=2M", "maps:1: /a does not fit into region 7" },
	{ "shmid=0,path=/a\nshmid=0,path=/a", "maps:2: /a and /a of line 1 overlap in region 0" },
	{ "shmid=0,path=/b,shm-offset=4K\nshmid=0,path=/a,len=8K", "maps:2: /a and /b of line 1" },
	{ "shmid=0,path=/a,shm-offset=33550336,len=8K", "maps:1: /a and --map /flag overlap" },
	{ "shmid=0,path=/a,shm-offset=32M", "maps:1: /a and --map /flag overlap" },
	{ "shmid=0,path=/a,shm-offset=33M\nshmid=0,path=/b\nmax-mappings=2", "there are 3, and --max-mappings is 2" },
	{ "shmid=0,path=/a\nlog-level=loud", "maps:2: log-level: 'loud'" },
	{ "log-level", "maps:1: log-level: wanted log-level=LEVEL" },
	{ "shmem=9:1M", "maps:1: shmem: it cannot change" },
	{ "help", "maps:1: help: it cannot change" },
	{ "log-level =debug", "maps:1: 'log-level =debug' is neither" },
	{ "\nlog-level = info", "maps:2: 'log-level = info' is neither" },
	{ "shmid=0,path=/a,x", "maps:1: 'x' is unknown: wanted shmid=N,path=FILE[" },
	{ "max-mappings=", "maps:1: max-mappings" },
	{ "max-mappings=6,7", "maps:1: max-mappings: '6,7': EACH" },
	{ "\nmax-bytes=4K,8K", "maps:2: max-bytes: '4K,8K': EACH" },
	{ "shmid=0,path=/a,offset=4K,offset=0", "maps:1: offset= is given twice" },
};

START_TEST(names_the_line_that_is_wrong)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err.text[0] = '\0';
		if (parse(wrong[i].text) >= 0)
			ck_abort_msg("'%s': wanted an error, it was taken", wrong[i].text);
		if (!strstr(err.text, wrong[i].named))
			ck_abort_msg("'%s': wanted an error that names \"%s\", got \"%s\"", wrong[i].text,
				wrong[i].named, err.text);
	}
}
END_TEST

START_TEST(neighbours_do_not_overlap)
{
	ck_assert_int_eq(parse("shmid=0,path=/a,len=31M,shm-offset=1M\nshmid=0,path=/b,len=1M\n"
			       "shmid=0,path=/c,shm-offset=33M,len=31M\nshmid=7,path=/d,len=1M"),
		0);
	ck_assert_uint_eq(file.count, 4);
	mapfile_free(&file);
}
END_TEST

START_TEST(a_nul_byte_is_no_text)
{
	static const char text[] = "shmid=0,path=/a\0,len=4K";
	ck_assert_int_eq(parse_bytes(text, sizeof(text) - 1), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "maps:1: the line has a NUL byte"));
	ck_assert_int_eq(parse_bytes("\n\0", 2), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "maps:2: "));
}
END_TEST

START_TEST(long_lines)
{
	static char text[200000];
	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(parse_bytes(text, sizeof(text)), -EINVAL);
	memcpy(text, "shmid=0,path=/", 14);
	ck_assert_int_eq(parse_bytes(text, sizeof(text)), -ENAMETOOLONG);
	text[0] = '#';
	ck_assert_int_eq(parse_bytes(text, sizeof(text)), 0);
	mapfile_free(&file);
}
END_TEST

void add_mapfile_tests(Suite *suite)
{
	TCase *tcase = tcase_create("mapfile");
	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, takes_lines);
	tcase_add_test(tcase, takes_what_is_empty);
	tcase_add_test(tcase, settings_take_the_place_of_flags);
	tcase_add_test(tcase, names_the_line_that_is_wrong);
	tcase_add_test(tcase, neighbours_do_not_overlap);
	tcase_add_test(tcase, a_nul_byte_is_no_text);
	tcase_add_test(tcase, long_lines);
	suite_add_tcase(suite, tcase);
}
