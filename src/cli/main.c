/* main.c: the `mrshare` command: finds the subcommand. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "cli/cli.h"

static const struct cli_command *const commands[] = { &cli_map, &cli_list, &cli_watch, &cli_read, &cli_write,
	&cli_atomic };

enum { COMMAND_COUNT = sizeof(commands) / sizeof(commands[0]) };

static int help(void)
{
	puts("Usage: mrshare COMMAND [OPTION]... [ARGUMENT]...\nShare memory through an mrshared daemon, or reach what "
	     "one shares.\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
	puts("\n  mrshare COMMAND --help    the options of a command\n  mrshare --version         the version");
	return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2)
		return cli_usage(NULL, "a command is wanted");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return help();
	if (strcmp(argv[1], "--version") == 0) {
		printf("mrshare %s\n", mrshare_version());
		return CLI_OK;
	}
	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(commands[i], argc - 1, argv + 1);
	}
	return cli_usage(NULL, "'%s' is no command", argv[1]);
}

int main(int argc, char **argv)
{
	fd_occupy_standard_streams();
	return cli_end(dispatch(argc, argv));
}
