/* header_cxx.cc: the public header compiles alone as C++, and its names link as those of C. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "mrshare.h"

static void done(mrshare *, const mrshare_completion *) {}

int main()
{
	mrshare_how how = {};
	mrshare *conn = nullptr;
	how.done = done;
	if (mrshare_new(&conn) < 0 || mrshare_post_read(conn, 0, 0, nullptr, 0, &how, nullptr) < 0)
		return 1;
	mrshare_close(&conn);
	mrshare_mmap mmap = mrshare_mmap_zero();
	mrshare_view view = {};
	unsigned char bytes[MRSHARE_VIEW_SIZE_MAX];
	mmap.len = 4096;
	mmap.flags = MRSHARE_MMAP_WRITABLE;
	return mrshare_mmap_is_valid(&mmap) && mrshare_view_encode(&view, bytes, sizeof(bytes)) == 28 ? 0 : 1;
}
