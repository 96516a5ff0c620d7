/* atomic.c: `mrshare atomic`: fetch-and-add, compare-and-swap on a word of a region. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "cli/peer.h"

static int run(const struct cli_command *command, int argc, char **argv);

static const struct cli_option options[] = { PEER_OPTIONS };

const struct cli_command cli_atomic = {
	.name = "atomic",
	.synopsis = "[OPTION]... HOST[:PORT] SHMID:OFFSET (fetch-and-add N | compare-and-swap EXPECTED NEW)",
	.summary = "Change a word of 8 bytes that a daemon shares, atomically, and print what was there",
	.options = options,
	.option_count = sizeof(options) / sizeof(options[0]),
	.run = run,
};

/* A u64; with a minus sign its two's complement, which adding takes away. */
static bool word_parse(const char *text, uint64_t *ret_word)
{
	bool minus = text[0] == '-';
	if (number_parse(text + minus, UINT64_MAX, ret_word) < 0)
		return false;
	if (minus)
		*ret_word = -*ret_word;
	return true;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
	static const struct peer_operands operands = {
		"are the daemon's address, SHMID:OFFSET, and fetch-and-add N or compare-and-swap EXPECTED NEW", true, 2,
		3
	};
	CLEANUP_PEER struct peer peer = { 0 };
	int status;
	if (peer_begin(command, &operands, argc, argv, &peer, &status) < 0)
		return status;
	bool swap = strcmp(peer.others[0], "compare-and-swap") == 0;
	if (!swap && strcmp(peer.others[0], "fetch-and-add") != 0)
		return cli_usage(command, "%s: wanted is fetch-and-add or compare-and-swap", peer.others[0]);
	if (peer.other_count != (swap ? 3 : 2))
		return cli_usage(command, "wanted %s", swap ? "are EXPECTED and NEW" : "is one number to add");
	uint64_t words[2] = { 0 }, old;
	for (int i = 1; i < peer.other_count; i++) {
		if (!word_parse(peer.others[i], &words[i - 1]))
			return cli_usage(
				command, "%s: wanted is a number of 64 bits, such as 1, -1 or 0x1000", peer.others[i]);
	}

	status = peer_connect(&peer, true);
	if (status != CLI_OK)
		return status;
	int r = swap ? mrshare_compare_swap(peer.conn, peer.shmid, peer.offset, words[0], words[1], &old)
		     : mrshare_fetch_add(peer.conn, peer.shmid, peer.offset, words[0], &old);
	if (r < 0)
		return cli_fail("%s", mrshare_error());
	printf("%" PRIu64 "\n", old);
	return swap && old != words[0] ? CLI_NOT_SWAPPED : CLI_OK;
}
