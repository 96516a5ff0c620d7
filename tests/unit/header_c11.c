/* header_c11.c: the public header compiles alone as C11, and its names link. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "mrshare.h"

int main(void)
{
	struct mrshare_mmap mmap = mrshare_mmap_zero();
	struct mrshare_view view = { .rkey = 1, .addr = 2, .size = 3, .device_name = "rxe0" };
	unsigned char bytes[MRSHARE_VIEW_SIZE_MAX];
	mmap.len = 4096;
	mmap.flags = MRSHARE_MMAP_WRITABLE;
	return mrshare_mmap_is_valid(&mmap) && mrshare_view_encode(&view, bytes, sizeof(bytes)) == 32 ? 0 : 1;
}
