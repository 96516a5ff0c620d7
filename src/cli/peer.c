/* peer.c: what every subcommand that connects to a daemon begins with. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "base/address.h"
#include "base/size.h"
#include "cli/peer.h"

/* SHMID:OFFSET. Whether it is one. */
static bool position_parse(const char *text, uint8_t *ret_shmid, uint64_t *ret_offset)
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

/* Whether both are addresses, by their looks; otherwise that was said. */
static bool check_addresses(const struct peer *peer, int *ret_exit)
{
	struct host_port parsed;
	struct err err;
	int r = host_port_parse(peer->address, MRSHARE_DEFAULT_PORT, &parsed, &err);
	if (r == 0 && peer->settings.source) {
		r = host_port_parse(peer->settings.source, MRSHARE_DEFAULT_PORT, &parsed, &err);
		if (r < 0)
			err_prefix(&err, "--source");
	}
	if (r < 0)
		*ret_exit = cli_usage(peer->command, "%s", err.text);
	return r == 0;
}

int peer_begin(const struct cli_command *command, const struct peer_operands *operands, int argc, char **argv,
	struct peer *ret_peer, int *ret_exit)
{
	struct peer peer = { .command = command };
	struct cli_arguments arguments;
	if (options_parse(command, argc, argv, &peer.settings, &arguments, ret_exit) < 0)
		return -1;

	int first = operands->position ? 2 : 1;
	peer.other_count = arguments.count - first;
	if (peer.other_count < operands->others_min || peer.other_count > operands->others_max) {
		*ret_exit = cli_usage(command, "wanted %s", operands->wanted);
		return -1;
	}
	peer.address = arguments.values[0];
	peer.others = arguments.values + first;
	if (operands->position && !position_parse(arguments.values[1], &peer.shmid, &peer.offset)) {
		*ret_exit = cli_usage(
			command, "%s: wanted is SHMID:OFFSET, such as 0:0x1000 or 0:64M", arguments.values[1]);
		return -1;
	}
	if (!check_addresses(&peer, ret_exit))
		return -1;
	*ret_peer = peer;
	return 0;
}

int peer_connect(struct peer *peer, bool write)
{
	const struct peer_settings *settings = &peer->settings;
	if (mrshare_new(&peer->conn) < 0 || mrshare_set_source(peer->conn, settings->source) < 0 ||
		mrshare_set_timeout(peer->conn, settings->timeout_s * 1000) < 0 ||
		mrshare_set_write(peer->conn, write) < 0 || mrshare_connect(peer->conn, peer->address) < 0)
		return cli_fail("%s", mrshare_error());
	return CLI_OK;
}

void peer_end(struct peer *peer)
{
	mrshare_close(&peer->conn);
}
