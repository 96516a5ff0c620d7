/* header_cxx.cc: the public header compiles alone as C++, and its names link as those of C. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "mrshare.h"

int main()
{
	mrshare_mmap mmap = mrshare_mmap_zero();
	mrshare_view view = {};
	unsigned char bytes[MRSHARE_VIEW_SIZE_MAX];
	mmap.len = 4096;
	mmap.flags = MRSHARE_MMAP_WRITABLE;
	return mrshare_mmap_is_valid(&mmap) && mrshare_view_encode(&view, bytes, sizeof(bytes)) == 28 ? 0 : 1;
}
