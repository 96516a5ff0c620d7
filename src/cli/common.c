/* common.c: what the subcommands share: errors for people, connecting, positions, memory for transfers. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "cli/cli.h"

enum { PAGE = 4096 };

const struct cli_option peer_options[PEER_OPTION_COUNT] = {
	{ "source", "ADDRESS", "connect from this local address", option_text, offsetof(struct peer_settings, source) },
	{ "timeout", "SECONDS", "give up after this long without an answer (10)", option_seconds,
		offsetof(struct peer_settings, timeout_s) },
};

int cli_fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("mrshare: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	return CLI_FAILED;
}

int cli_usage(const struct cli_command *command, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "mrshare %s: ", command->name);
	vfprintf(stderr, format, args);
	fprintf(stderr, " (see: mrshare %s --help)\n", command->name);
	va_end(args);
	return CLI_USAGE;
}

int cli_connect(const char *address, const struct peer_settings *settings, bool write, struct mrshare **ret_conn)
{
	struct mrshare *conn;
	if (mrshare_new(&conn) < 0)
		return cli_fail("%s", mrshare_error());
	if (mrshare_set_source(conn, settings->source) < 0 ||
		mrshare_set_timeout(conn, settings->timeout_s * 1000) < 0 || mrshare_set_write(conn, write) < 0 ||
		mrshare_connect(conn, address) < 0) {
		cli_fail("%s", mrshare_error());
		mrshare_close(&conn);
		return CLI_FAILED;
	}
	*ret_conn = conn;
	return CLI_OK;
}

bool position_parse(const char *text, uint8_t *ret_shmid, uint64_t *ret_offset)
{
	char shmid_text[16];
	const char *colon = strchr(text, ':');
	if (!colon || (size_t)(colon - text) >= sizeof(shmid_text))
		return false;
	memcpy(shmid_text, text, (size_t)(colon - text));
	shmid_text[colon - text] = '\0';

	uint64_t shmid, offset;
	if (number_parse(shmid_text, UINT8_MAX, &shmid) < 0 || size_parse(colon + 1, &offset) < 0)
		return false;
	*ret_shmid = (uint8_t)shmid;
	*ret_offset = offset;
	return true;
}

int transfer_buffer_open(struct mrshare *conn, uint64_t size, struct transfer_buffer *ret_buffer)
{
	struct transfer_buffer buffer = { .size = size < TRANSFER_PIECE ? (size_t)size : TRANSFER_PIECE };
	buffer.memory = aligned_alloc(PAGE, (buffer.size + PAGE) / PAGE * PAGE);
	if (!buffer.memory)
		return cli_fail("out of memory for %s", size_format(buffer.size).text);
	if (buffer.size && mrshare_buffer_register(conn, buffer.memory, buffer.size, &buffer.registration) < 0) {
		free(buffer.memory);
		return cli_fail("%s", mrshare_error());
	}
	*ret_buffer = buffer;
	return CLI_OK;
}

void transfer_buffer_close(struct transfer_buffer *buffer)
{
	mrshare_buffer_unregister(&buffer->registration);
	free(buffer->memory);
	buffer->memory = NULL;
}
