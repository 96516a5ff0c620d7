/* test_options.c: the flags of mrshared: what each takes, and the one line that says what is wrong. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "daemon/options.h"

#include <stdio.h>
#include <string.h>

#include "stages.h"

/* One a command line: what was parsed is never freed, and must stay in reach. */
static struct options parsed[160];
static size_t parsed_count;
#define options parsed[parsed_count - 1]
static struct err err;

/* Parses "mrshared WORDS", where the words are separated by blanks. */
static int parse(const char *words)
{
	static char line[1024];
	char *argv[80] = { (char *)(uintptr_t) "mrshared" };
	int argc = 1;
	ck_assert_uint_lt(parsed_count, sizeof(parsed) / sizeof(parsed[0]));
	parsed_count++;
	snprintf(line, sizeof(line), "%s", words);
	for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	int r = options_parse(argc, argv, &options, &err);
	return r < 0 || options.help || options.version || options.print_capabilities ? r
										      : options_check(&options, &err);
}

#define BASE "--no-rdma --shmem 0:64M --provider-socket /s "

START_TEST(takes_every_flag)
{
	ck_assert_int_eq(parse("--rdma-listen 10.0.0.1 --rdma-listen [fd00::1]:99 --rdma-listen host:0x10 "
			       "--shmem 0:64M --shmem 255:0x1000 --provider-socket /run/s --socket-mode 0660 "
			       "--socket-group 7 --map shmid=0,path=/a,,b,offset=4K,len=8K,shm-offset=1M,ro "
			       "--map path=/c,shmid=255 --allow 10.0.0.0/8,ro --allow fd00::1 "
			       "--revoke-timeout 0.25 --keepalive 9 --max-mappings 100,10 --max-bytes 1G "
			       "--max-extents 5 --max-peers 6 --max-providers 7 --max-mr-size 2M --unsealed=refuse "
			       "--any-filesystem --odp --log-level debug --socket-path /f,,g,shmid=0 --max-front-ends 3 "
			       "--device pmem --gpa-addresses --log-json --map-file /m"),
		0);
	ck_assert_uint_eq(options.listen_count, 3);
	ck_assert_str_eq(options.listen[0].host, "10.0.0.1");
	ck_assert_uint_eq(options.listen[0].port, 7471);
	ck_assert_str_eq(options.listen[1].host, "fd00::1");
	ck_assert_uint_eq(options.listen[1].port, 99);
	ck_assert_uint_eq(options.listen[2].port, 16);
	ck_assert_uint_eq(options.shmem_count, 2);
	ck_assert_uint_eq(options.shmem[1].shmid, 255);
	ck_assert_uint_eq(options.shmem[1].size, 4096);
	ck_assert_str_eq(options.provider_socket, "/run/s");
	ck_assert_uint_eq(options.socket_mode, 0660);
	ck_assert_uint_eq(options.socket_group, 7);
	ck_assert_uint_eq(options.map_count, 2);
	ck_assert_str_eq(options.maps[0].path, "/a,b");
	ck_assert_uint_eq(options.maps[0].offset, 4096);
	ck_assert_uint_eq(options.maps[0].len, 8192);
	ck_assert_uint_eq(options.maps[0].shm_offset, 1 << 20);
	ck_assert(options.maps[0].read_only);
	ck_assert_uint_eq(options.maps[1].len, 0);
	ck_assert(!options.maps[1].read_only);
	ck_assert_uint_eq(options.allow_count, 2);
	ck_assert_uint_eq(options.allow[0].prefix_len, 8);
	ck_assert(!options.allow[0].may_write);
	ck_assert_uint_eq(options.allow[1].prefix_len, 128);
	ck_assert(options.allow[1].may_write);
	ck_assert_uint_eq(options.revoke_timeout_ms, 250);
	ck_assert_uint_eq(options.keepalive_s, 9);
	ck_assert_uint_eq(options.max_mappings, 100);
	ck_assert_uint_eq(options.max_mappings_each, 10);
	ck_assert_uint_eq(options.max_bytes, 1 << 30);
	ck_assert_uint_eq(options.max_bytes_each, 1 << 30);
	ck_assert_uint_eq(options.max_extents, 5);
	ck_assert_uint_eq(options.max_peers, 6);
	ck_assert_uint_eq(options.max_providers, 7);
	ck_assert_uint_eq(options.max_mr_size, 2 << 20);
	ck_assert(options.refuse_unsealed && options.any_filesystem && options.odp);
	ck_assert_int_eq(options.log_level, LOG_LEVEL_DEBUG);
	ck_assert_uint_eq(options.socket_count, 1);
	ck_assert_str_eq(options.sockets[0].path, "/f,g");
	ck_assert(options.sockets[0].shmids[0] && !options.sockets[0].shmids[255]);
	ck_assert_uint_eq(options.max_frontends, 3);
	ck_assert(options.gpa_addresses && options.log_json);
	ck_assert_str_eq(options.map_file, "/m");
}
END_TEST

/* A wrong command line, and what its error must name. */
static const struct {
	const char *words, *named;
} wrong[] = {
	{ "", "--rdma-listen" },
	{ "--no-rdma --provider-socket /s", "--shmem" },
	{ "--no-rdma --shmem 0:4K", "--provider-socket" },
	{ BASE "--rdma-listen 10.0.0.1", "exclude" },
	{ "--no-rdma --shmem 0:4K --provider-socket "
	  "/0123456789012345678901234567890123456789012345678901234567890123456789"
	  "01234567890123456789012345678901234567",
		"--provider-socket" },
	{ BASE "--unknown", "'--unknown'" },
	{ BASE "-x", "'-x'" },
	{ BASE "word", "'word'" },
	{ BASE "--no-rdma=yes", "'--no-rdma=yes'" },
	{ BASE "--shmem", "--shmem wants ID:SIZE" },
	{ BASE "--shmem 0:4K", "twice" },
	{ BASE "--shmem 256:4K", "0 to 255" },
	{ BASE "--shmem -1:4K", "0 to 255" },
	{ BASE "--shmem 1:0", "above 0" },
	{ BASE "--shmem 1:5000", "multiple of 4096" },
	{ BASE "--shmem 1:4X", "multiple of 4096" },
	{ BASE "--shmem 1:99999999T", "multiple of 4096" },
	{ BASE "--shmem 1", "ID:SIZE" },
	{ BASE "--map shmid=0", "path=FILE" },
	{ BASE "--map path=/a", "shmid=N" },
	{ BASE "--map shmid=1,path=/a", "region 1" },
	{ BASE "--map shmid=0,path=/a,len=65M", "does not fit" },
	{ BASE "--map shmid=0,path=/a,shm-offset=64M", "does not fit" },
	{ BASE "--map shmid=0,path=/a,len=0", "above 0" },
	{ BASE "--map shmid=0,path=/a,offset=1", "multiple of 4096" },
	{ BASE "--map shmid=0,path=/a,rw", "'rw'" },
	{ BASE "--map shmid=0,path=/a,ro=1", "'ro=1'" },
	{ BASE "--map shmid=0,path=/a,shmid=0", "shmid= is given twice" },
	{ BASE "--map path=/b,shmid=0,path=/a", "path= is given twice" },
	{ BASE "--map shmid=0,path=/a,offset=4K,offset=0", "offset= is given twice" },
	{ BASE "--map shmid=0,path=/a,len=4K,len=8K", "len= is given twice" },
	{ BASE "--map shmid=0,path=/a,shm-offset=0,shm-offset=4K", "shm-offset= is given twice" },
	{ BASE "--map shmid=0,path=/a,ro,ro", "ro is given twice" },
	{ "--shmem 0:4K --provider-socket /s --rdma-listen a:b", "--rdma-listen" },
	{ "--shmem 0:4K --provider-socket /s --rdma-listen a:0", "1 to 65535" },
	{ "--shmem 0:4K --provider-socket /s --rdma-listen a:65536", "1 to 65535" },
	{ "--shmem 0:4K --provider-socket /s --rdma-listen [::1", "--rdma-listen" },
	{ BASE "--allow 10.0.0.0/33", "--allow" },
	{ BASE "--allow 10.0.0/8", "--allow" },
	{ BASE "--allow fd00::/129", "--allow" },
	{ BASE "--allow 10.0.0.0/8,wo", "rw or ro" },
	{ BASE "--allow host", "--allow" },
	{ BASE "--revoke-timeout 0", "--revoke-timeout" },
	{ BASE "--revoke-timeout -1", "--revoke-timeout" },
	{ BASE "--revoke-timeout nan", "--revoke-timeout" },
	{ BASE "--revoke-timeout 0x1", "--revoke-timeout" },
	{ BASE "--socket-mode +0600", "octal" },
	{ BASE "--max-extents 524289", "524288" },
	{ BASE "--revoke-timeout 1e9", "--revoke-timeout" },
	{ BASE "--keepalive 0", "--keepalive" },
	{ BASE "--keepalive 3601", "3600" },
	{ BASE "--max-mappings 0", "--max-mappings" },
	{ BASE "--max-mappings 5,", "--max-mappings" },
	{ BASE "--max-mappings 5,0", "above 0" },
	{ BASE "--max-mappings 1M", "--max-mappings" },
	{ BASE "--max-mappings 4,8", "--max-mappings: '4,8': EACH, of one provider, is above TOTAL" },
	{ BASE "--max-bytes 4K,8K", "--max-bytes: '4K,8K': EACH, of one provider, is above TOTAL" },
	{ BASE "--max-bytes 1G,2G,", "wanted TOTAL[,EACH]" },
	{ BASE "--max-bytes 1G,x", "--max-bytes" },
	{ BASE "--max-extents 0", "--max-extents" },
	{ BASE "--max-peers many", "--max-peers" },
	{ BASE "--max-providers -3", "--max-providers" },
	{ BASE "--max-mr-size 0", "above 0" },
	{ BASE "--unsealed perhaps", "allow or refuse" },
	{ BASE "--socket-mode 999", "octal" },
	{ BASE "--socket-mode 7777", "octal" },
	{ BASE "--socket-group no-such-group-here", "group" },
	{ BASE "--log-level loud", "debug" },
	{ BASE "--socket-path /f,shmid=1", "region 1" },
	{ BASE "--socket-path /f,shmid=256", "0 to 255" },
	{ BASE "--socket-path /f,ro", "'ro'" },
	{ BASE "--socket-path ,shmid=0", "--socket-path" },
	{ BASE "--socket-path /f --socket-path /f,shmid=0", "twice" },
	{ BASE "--socket-path /s", "the same" },
	{ BASE "--shmem 1:32M --socket-path /f", "128 MiB" },
	{ "--no-rdma --shmem 0:3M --provider-socket /s --socket-path /f", "4 MiB" },
	{ "--no-rdma --shmem 1:4M --provider-socket /s --socket-path /f", "region 0" },
	{ BASE "--fd x", "--fd" },
	{ BASE "--fd 999", "999" },
	{ BASE "--max-front-ends 0", "--max-front-ends" },
	{ BASE "--device blk", "pmem" },
};

START_TEST(names_what_is_wrong)
{
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err.text[0] = '\0';
		if (parse(wrong[i].words) >= 0)
			ck_abort_msg("'%s': wanted an error, it was taken", wrong[i].words);
		if (!strstr(err.text, wrong[i].named))
			ck_abort_msg("'%s': wanted an error that names \"%s\", got \"%s\"", wrong[i].words,
				wrong[i].named, err.text);
	}
}
END_TEST

START_TEST(a_mapped_network_is_its_ipv4_network)
{
	ck_assert_int_eq(parse(BASE "--allow ::ffff:10.0.0.0/104,ro"), 0);
	ck_assert_int_eq(options.allow[0].family, AF_INET);
	ck_assert_uint_eq(options.allow[0].prefix_len, 8);
	ck_assert_uint_eq(options.allow[0].address[0], 10);
	ck_assert(!options.allow[0].may_write);
}
END_TEST

START_TEST(help_and_version_need_nothing_else)
{
	ck_assert_int_eq(parse("--help"), 0);
	ck_assert(options.help);
	ck_assert_int_eq(parse("--version"), 0);
	ck_assert(options.version);
	ck_assert_int_eq(parse("--bogus --print-capabilities --fd 999"), 0);
	ck_assert(options.print_capabilities);
}
END_TEST

void add_options_tests(Suite *suite)
{
	TCase *tcase = tcase_create("options");
	tcase_add_test(tcase, takes_every_flag);
	tcase_add_test(tcase, names_what_is_wrong);
	tcase_add_test(tcase, a_mapped_network_is_its_ipv4_network);
	tcase_add_test(tcase, help_and_version_need_nothing_else);
	suite_add_tcase(suite, tcase);
}
