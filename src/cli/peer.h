/* peer.h: what the subcommands share that connect to a daemon. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef CLI_PEER_H
#define CLI_PEER_H

#include <json-c/json.h>

#include "cli/cli.h"

/* Each takes some of these. */
struct peer_settings {
	const char *source;
	unsigned int timeout_s;
	bool json;
	const char *output;
	bool resume;
};

#define PEER_OPTIONS                                                                                                   \
	{ "source", "ADDRESS", "connect from this local address", option_text, offsetof(struct peer_settings, source), \
		0 },                                                                                                   \
	{                                                                                                              \
		"timeout", "SECONDS", "give up after this long without an answer (10)", option_seconds,                \
			offsetof(struct peer_settings, timeout_s), 0                                                   \
	}
#define PEER_OPTION_JSON(what)                                                             \
	{                                                                                  \
		"json", NULL, what, option_switch, offsetof(struct peer_settings, json), 0 \
	}

/* The operands of a subcommand: HOST[:PORT], SHMID:OFFSET if it has a position, and others. */
struct peer_operands {
	const char *wanted; /* all of them in words */
	bool position;
	int others_min, others_max;
};

/* One run of such a subcommand. */
struct peer {
	const struct cli_command *command;
	struct peer_settings settings;
	const char *address;
	uint8_t shmid;
	uint64_t offset;
	char **others;
	int other_count;
	struct mrshare *conn; /* NULL before peer_connect() */
};

/* peer.c */
/* Parses options and operands. 0; or -1 with `*ret_exit` as the exit code: the usage error was said, or the help. */
int peer_begin(const struct cli_command *command, const struct peer_operands *operands, int argc, char **argv,
	struct peer *ret_peer, int *ret_exit);
/* CLI_OK, or the failure was said. */
int peer_connect(struct peer *peer, bool write);
void peer_end(struct peer *peer);
#define CLEANUP_PEER __attribute__((cleanup(peer_end)))

/* entry.c: views as text and as JSON. */
enum { ACCESS_TEXT_SIZE = 4 };
const char *access_text(unsigned int access, char text[ACCESS_TEXT_SIZE]); /* such as "rw-" */
void entry_print_header(void);
void entry_print(const struct mrshare_entry *entry);
/* The caller puts them; NULL: out of memory. */
struct json_object *access_to_json(unsigned int access);
struct json_object *entry_to_json(const struct mrshare_entry *entry);
/* Of the daemon that the views were read of, in hexadecimal; NULL also where there are none. */
struct json_object *daemon_id_to_json(struct mrshare *conn);
/* Adds a value, which it takes in any case. Whether it did: not where the value is NULL. */
bool json_add(struct json_object *object, const char *key, struct json_object *value);
/* Prints the object in one line and puts it; NULL is out of memory. CLI_OK, or the failure was said. */
int json_print(struct json_object *object);

/* transfer.c: memory for `size` bytes at a time, up to TRANSFER_PIECE, registered with the connection's device. */
enum { TRANSFER_PIECE = 4 << 20 }; /* with what the library needs below the usual 8 MiB of locked memory */
struct transfer_buffer {
	void *memory;
	size_t size;
	struct mrshare_buffer *registration;
};
int transfer_buffer_open(struct mrshare *conn, uint64_t size, struct transfer_buffer *ret_buffer);
void transfer_buffer_close(struct transfer_buffer *buffer);
#define CLEANUP_TRANSFER __attribute__((cleanup(transfer_buffer_close)))

/* origin.c: what is mapped in a range, so that the bytes of two mappings are not taken for those of one. */
/* One line of JSON, without its end: the daemon's address and id, the range, and its views with their keys. The caller
 * frees it. CLI_OK, or the failure was said. */
int origin_take(const struct peer *peer, uint64_t offset, uint64_t len, char **ret_origin);
/* Looks again. CLI_OK where it is the same; otherwise that was said. */
int origin_check(const struct peer *peer, uint64_t offset, uint64_t len, const char *origin);

/* output.c: the file that is read into, with what it is a copy of in a file beside it until all is there. */
struct output {
	const char *name; /* NULL: standard output */
	int fd;           /* -1: not open yet */
	char *notes;      /* the name of the file beside it, where there is one */
};
/* Goes on with a file: says how much it has of the `len` bytes of `origin`. CLI_OK, or why that cannot be was said. */
int output_resume(struct output *output, const char *origin, uint64_t len, uint64_t *ret_done);
/* Opens the file with the first bytes, since a failed read must not empty it. `origin`: NULL where these are all. */
int output_write(struct output *output, const char *origin, const char *bytes, size_t size);
/* After success or failure. CLI_OK, or the failure was said. */
int output_close(struct output *output, bool complete);

/* progress.c: a line on standard error, where that is a terminal and the transfer takes longer than a second. */
/* `total` bytes, 0 where it is not known; `hidden`: none in any case. */
void progress_start(uint64_t total, bool hidden);
void progress_add(uint64_t bytes);
/* Takes the line away. */
void progress_end(void);

#endif
