/* options.c: one table of options feeds getopt_long() and --help. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/cli.h"

enum { OPTIONS_MAX = 16, HELP_COLUMN = 24 };

const char *option_text(const char *value, void *field)
{
	*(const char **)field = value;
	return *value ? NULL : "a value that is not empty";
}

const char *option_switch(const char *value, void *field)
{
	(void)value;
	*(bool *)field = true;
	return NULL;
}

const char *option_size(const char *value, void *field)
{
	struct optional_size *size = field;
	size->given = true;
	return size_parse(value, &size->value) < 0 ? "a size such as 4096, 64M or 0x1000" : NULL;
}

const char *option_shmid(const char *value, void *field)
{
	struct optional_size *shmid = field;
	shmid->given = true;
	return number_parse(value, UINT8_MAX, &shmid->value) < 0 ? "a number from 0 to 255" : NULL;
}

const char *option_seconds(const char *value, void *field)
{
	uint64_t seconds;
	if (number_parse(value, 86400, &seconds) < 0 || seconds == 0)
		return "a number from 1 to 86400";
	*(unsigned int *)field = (unsigned int)seconds;
	return NULL;
}

static void print_option(const struct cli_option *option)
{
	char letter[] = ", -?", text[64];
	letter[3] = option->letter;
	snprintf(text, sizeof(text), "--%s%s%s%s", option->name, option->letter ? letter : "",
		option->argument ? " " : "", option->argument ? option->argument : "");
	printf("  %-*s %s\n", HELP_COLUMN, text, option->help);
}

void options_help(const struct cli_command *command)
{
	printf("Usage: mrshare %s %s\n%s.\n\n", command->name, command->synopsis, command->summary);
	for (size_t i = 0; i < command->option_count; i++)
		print_option(&command->options[i]);
	print_option(&(struct cli_option){ .name = "help", .help = "show this" });
	printf("\nSizes and offsets take K, M, G, T and 0x. More in mrshare(1).\n");
}

/* Cuts off what stands behind "--", and returns it. */
static char **cut_program(int *argc, char **argv)
{
	for (int i = 1; i < *argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			*argc = i;
			argv[i] = NULL;
			return argv + i + 1;
		}
	}
	return NULL;
}

/* What getopt_long() found: a number from `first` on, or a letter. NULL: what is no option. */
static const struct cli_option *option_of(const struct cli_command *command, int c, int first)
{
	for (size_t i = 0; i < command->option_count; i++) {
		if (c == first + (int)i || (c == command->options[i].letter && c))
			return &command->options[i];
	}
	return NULL;
}

int options_parse(const struct cli_command *command, int argc, char **argv, void *settings,
	struct cli_arguments *ret_arguments, int *ret_exit)
{
	enum { HELP = 'h', FIRST = 256 };
	struct option table[OPTIONS_MAX + 1] = { 0 };
	char letters[2 * OPTIONS_MAX + 3] = ":h", *letter = letters + 2;
	for (size_t i = 0; i < command->option_count; i++) {
		const struct cli_option *option = &command->options[i];
		table[i] = (struct option){ option->name, option->argument ? required_argument : no_argument, NULL,
			FIRST + (int)i };
		if (option->letter)
			*letter++ = option->letter;
		if (option->letter && option->argument)
			*letter++ = ':';
	}
	table[command->option_count] = (struct option){ "help", no_argument, NULL, HELP };

	char **program = command->takes_program ? cut_program(&argc, argv) : NULL;
	int c;
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, letters, table, NULL)) != -1) {
		if (c == HELP) {
			options_help(command);
			*ret_exit = CLI_OK;
			return -1;
		}
		const struct cli_option *option = option_of(command, c, FIRST);
		if (!option) {
			*ret_exit = cli_usage(
				command, c == ':' ? "%s needs a value" : "%s: no such option", argv[optind - 1]);
			return -1;
		}
		const char *wanted = option->parse(optarg, (char *)settings + option->offset);
		if (wanted) {
			*ret_exit = cli_usage(command, "--%s %s: wanted is %s", option->name, optarg, wanted);
			return -1;
		}
	}
	*ret_arguments = (struct cli_arguments){ .count = argc - optind, .values = argv + optind, .program = program };
	return 0;
}
