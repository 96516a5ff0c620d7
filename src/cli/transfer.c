/* transfer.c: memory for transfers. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "base/size.h"
#include "cli/peer.h"

enum { PAGE = 4096 };

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
