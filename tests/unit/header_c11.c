/* header_c11.c: the public header compiles alone as C11, and its names link. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "mrshare.h"

static int result;
static void done(struct mrshare *conn, const struct mrshare_completion *completion)
{
	(void)conn;
	result = completion->result;
}

int main(void)
{
	struct mrshare_how how = { .done = done };
	struct mrshare *conn;
	if (mrshare_new(&conn) < 0 || mrshare_post_read(conn, 0, 0, NULL, 0, &how, NULL) < 0)
		return 1;
	mrshare_close(&conn);
	if (result == 0)
		return 1; /* not connected */
	struct mrshare_mmap mmap = mrshare_mmap_zero();
	struct mrshare_view view = { .rkey = 1, .addr = 2, .size = 3, .device_name = "rxe0" };
	unsigned char bytes[MRSHARE_VIEW_SIZE_MAX];
	mmap.len = 4096;
	mmap.flags = MRSHARE_MMAP_WRITABLE;
	return mrshare_mmap_is_valid(&mmap) && mrshare_view_encode(&view, bytes, sizeof(bytes)) == 32 ? 0 : 1;
}
