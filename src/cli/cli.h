/* cli.h: what the subcommands share. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mrshare.h"

/* Exit codes, as mrshare(1) lists them. Beside these `mrshare map` ends with the code of its command. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_NOT_SWAPPED = 3 };

/* One option: its line of --help, and what it does to the settings of its subcommand. */
struct cli_option {
	const char *name;
	const char *argument; /* its name in --help; NULL: a switch */
	const char *help;
	/* Parses `value` into the field; returns NULL, or what is wanted instead. A switch gets a NULL value. */
	const char *(*parse)(const char *value, void *field);
	size_t offset; /* of the field in the settings */
	char letter;   /* its short form, if it has one */
};

struct cli_command {
	const char *name;
	const char *synopsis; /* behind the name */
	const char *summary;  /* one line */
	const struct cli_option *options;
	size_t option_count;
	bool takes_program; /* "-- COMMAND [ARG...]" at the end */
	int (*run)(const struct cli_command *command, int argc, char **argv);
};

extern const struct cli_command cli_atomic, cli_list, cli_map, cli_read, cli_watch, cli_write;

/* What stands behind the options. */
struct cli_arguments {
	int count;
	char **values;
	char **program; /* ends with NULL; NULL: there is none */
};

/* options.c: parses into `settings`. 0; or -1 with `*ret_exit` as the exit code: the usage error was said, or the help.
 */
int options_parse(const struct cli_command *command, int argc, char **argv, void *settings,
	struct cli_arguments *ret_arguments, int *ret_exit);
void options_help(const struct cli_command *command);
const char *option_text(const char *value, void *field);    /* const char * */
const char *option_switch(const char *value, void *field);  /* bool */
const char *option_size(const char *value, void *field);    /* struct optional_size */
const char *option_shmid(const char *value, void *field);   /* struct optional_size */
const char *option_seconds(const char *value, void *field); /* unsigned int */

struct optional_size {
	bool given;
	uint64_t value;
};

/* say.c */
/* "mrshare: ..." on standard error, control characters as '?'; returns CLI_FAILED. */
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes out what was printed. CLI_OK, or that it or something before did not go out was said. */
int cli_flush(void);
/* The exit code of a run: one that stands for what was printed only where that went out. */
int cli_end(int status);
/* "mrshare NAME: ...", and where the help is; NULL: of no subcommand. Returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "mrshare: waiting ..." on standard error, once, where five seconds pass before cli_wait_end(). */
void cli_wait_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_wait_end(void);

/* hold.c: keeps what is mapped until a signal comes or the daemon goes; with a program while that runs, which inherits
 * `fd`. Returns the exit code. */
int hold_mapping(struct mrshare_provider *provider, const struct mrshare_mmap *mmap, int fd, char **program);

#endif
