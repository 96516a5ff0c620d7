/* peer.c: private data and frames between daemon and peer. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/peer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include <xxhash.h>

#include "base/cursor.h"
#include "base/err.h"
#include "base/range.h"
#include "wire/catalog.h"

static const uint8_t magic[4] = { 'M', 'R', 'S', '1' };

enum {
	ACCESS_KNOWN = MRSHARE_READ | MRSHARE_WRITE | MRSHARE_ATOMIC,
	WELCOME_SIZE_MAX = 20 + MRSHARE_VIEW_SIZE_MAX,
	NOTICE_SIZE_MAX = 40 + 8 * PEER_NOTICE_IDS_MAX,
};
static_assert((int)WELCOME_SIZE_MAX <= PEER_FRAME_SIZE_MAX, "the longest welcome is a frame");
static_assert((int)NOTICE_SIZE_MAX <= PEER_FRAME_SIZE_MAX, "the longest notice is a frame");

static void read_magic(struct reader *r)
{
	uint8_t seen[sizeof(magic)];
	read_bytes(r, seen, sizeof(seen));
	if (memcmp(seen, magic, sizeof(magic)) != 0)
		r->failed = true;
}

void peer_request_write(const struct peer_request *request, uint8_t ret_bytes[PEER_REQUEST_SIZE])
{
	struct writer w = writer_init(ret_bytes, PEER_REQUEST_SIZE);
	write_bytes(&w, magic, sizeof(magic));
	write_u16(&w, request->version_min);
	write_u16(&w, request->version_max);
	write_u32(&w, request->flags);
	write_bytes(&w, request->nonce, sizeof(request->nonce));
	write_zeros(&w, w.left);
}

int peer_request_read(const void *data, size_t size, struct peer_request *ret_request)
{
	struct reader r = reader_init(data, size);
	read_magic(&r);
	struct peer_request request = { .version_min = read_u16(&r) };
	request.version_max = read_u16(&r);
	request.flags = read_u32(&r);
	read_bytes(&r, request.nonce, sizeof(request.nonce));
	if (r.failed || size < PEER_REQUEST_SIZE || request.version_min > request.version_max)
		return -EBADMSG;
	*ret_request = request;
	return 0;
}

void peer_accept_write(const struct peer_accept *accept, uint8_t ret_bytes[PEER_ACCEPT_SIZE])
{
	struct writer w = writer_init(ret_bytes, PEER_ACCEPT_SIZE);
	write_bytes(&w, magic, sizeof(magic));
	write_u16(&w, accept->version);
	write_u16(&w, accept->flags);
	write_u16(&w, accept->keepalive);
	write_u16(&w, 0);
	write_bytes(&w, accept->server_id, sizeof(accept->server_id));
	write_bytes(&w, accept->nonce, sizeof(accept->nonce));
}

int peer_accept_read(const void *data, size_t size, struct peer_accept *ret_accept)
{
	struct reader r = reader_init(data, size);
	read_magic(&r);
	struct peer_accept accept = { .version = read_u16(&r) };
	accept.flags = read_u16(&r);
	accept.keepalive = read_u16(&r);
	read_skip(&r, sizeof(uint16_t));
	read_bytes(&r, accept.server_id, sizeof(accept.server_id));
	read_bytes(&r, accept.nonce, sizeof(accept.nonce));
	/* An interval of 0 would let the peer drop the daemon at once. */
	if (r.failed || accept.keepalive == 0)
		return -EBADMSG;
	*ret_accept = accept;
	return 0;
}

size_t peer_reject_write(const struct peer_reject *reject, uint8_t ret_bytes[PEER_REJECT_SIZE_MAX])
{
	size_t len = strnlen(reject->text, PEER_REJECT_TEXT_MAX);
	struct writer w = writer_init(ret_bytes, PEER_REJECT_SIZE_MAX);
	write_bytes(&w, magic, sizeof(magic));
	write_u16(&w, reject->code);
	write_u16(&w, (uint16_t)len);
	write_bytes(&w, reject->text, len);
	return PEER_REJECT_SIZE_MAX - w.left;
}

int peer_reject_read(const void *data, size_t size, struct peer_reject *ret_reject)
{
	struct reader r = reader_init(data, size);
	read_magic(&r);
	struct peer_reject reject = { .code = read_u16(&r), .text = "" };
	size_t len = read_u16(&r);
	if (len > PEER_REJECT_TEXT_MAX)
		return -EBADMSG;
	read_bytes(&r, reject.text, len);
	if (r.failed)
		return -EBADMSG;

	for (size_t i = 0; i < len; i++) {
		if (reject.text[i] == '\0')
			reject.text[i] = '?';
	}
	text_sanitize(reject.text);
	*ret_reject = reject;
	return 0;
}

static int welcome_write(const struct peer_frame *frame, struct writer *w)
{
	const struct peer_welcome *welcome = &frame->welcome;
	write_u32(w, welcome->granted);
	write_u64(w, welcome->generation);
	ssize_t n = mrshare_view_encode(&welcome->catalog, w->pos, w->left);
	if (n < 0)
		return -EINVAL;
	w->pos += n;
	w->left -= (size_t)n;
	return 0;
}

static int welcome_read(struct reader *r, struct peer_frame *frame)
{
	struct peer_welcome *welcome = &frame->welcome;
	welcome->granted = read_u32(r) & ACCESS_KNOWN;
	welcome->generation = read_u64(r);
	const struct mrshare_view *catalog = &welcome->catalog;
	if (r->failed || mrshare_view_decode(r->pos, r->left, &welcome->catalog) < 0 ||
		catalog->size < CATALOG_ROOT_SIZE || range_overflows(catalog->addr, catalog->size))
		return -EBADMSG;
	return 0;
}

/* How many ids stand in a notice with this count, or -1 where the count is impossible. */
static int notice_ids(uint32_t withdrawn_count)
{
	if (withdrawn_count == PEER_WITHDRAWN_ALL)
		return 0;
	return withdrawn_count <= PEER_NOTICE_IDS_MAX ? (int)withdrawn_count : -1;
}

static int notice_write(const struct peer_frame *frame, struct writer *w)
{
	const struct peer_notice *notice = &frame->notice;
	int ids = notice_ids(notice->withdrawn_count);
	if (ids < 0)
		return -EINVAL;
	write_u32(w, notice->sequence);
	write_u32(w, notice->withdrawn_count);
	write_u64(w, notice->generation);
	write_u64(w, notice->slot_offset);
	write_u32(w, notice->slot_size);
	write_u32(w, notice->slot_crc);
	for (int i = 0; i < ids; i++)
		write_u64(w, notice->withdrawn[i]);
	return 0;
}

static int notice_read(struct reader *r, struct peer_frame *frame)
{
	struct peer_notice *notice = &frame->notice;
	notice->sequence = read_u32(r);
	notice->withdrawn_count = read_u32(r);
	notice->generation = read_u64(r);
	notice->slot_offset = read_u64(r);
	notice->slot_size = read_u32(r);
	notice->slot_crc = read_u32(r);
	int ids = notice_ids(notice->withdrawn_count);
	for (int i = 0; i < ids; i++)
		notice->withdrawn[i] = read_u64(r);
	if (r->failed || ids < 0 || notice->slot_offset < CATALOG_ROOT_SIZE ||
		range_overflows(notice->slot_offset, notice->slot_size))
		return -EBADMSG;
	return 0;
}

static int ack_write(const struct peer_frame *frame, struct writer *w)
{
	write_u32(w, frame->ack.sequence);
	write_u32(w, 0);
	write_u64(w, frame->ack.generation);
	return 0;
}

static int ack_read(struct reader *r, struct peer_frame *frame)
{
	frame->ack.sequence = read_u32(r);
	read_skip(r, sizeof(uint32_t));
	frame->ack.generation = read_u64(r);
	return r->failed ? -EBADMSG : 0;
}

static const struct {
	const char *name;
	int (*write)(const struct peer_frame *frame, struct writer *w);
	int (*read)(struct reader *r, struct peer_frame *frame);
} types[] = {
	[PEER_FRAME_WELCOME] = { "mrshare.welcome.v1", welcome_write, welcome_read },
	[PEER_FRAME_NOTICE] = { "mrshare.notice.v1", notice_write, notice_read },
	[PEER_FRAME_ACK] = { "mrshare.ack.v1", ack_write, ack_read },
};

enum { TYPE_COUNT = sizeof(types) / sizeof(types[0]) };

const char *peer_frame_type_name(enum peer_frame_type type)
{
	return types[type].name;
}

uint64_t peer_frame_type_hash(enum peer_frame_type type)
{
	return XXH64(types[type].name, strlen(types[type].name), 0);
}

ssize_t peer_frame_write(const struct peer_frame *frame, uint8_t ret_bytes[PEER_FRAME_SIZE_MAX])
{
	struct writer w = writer_init(ret_bytes, PEER_FRAME_SIZE_MAX);
	write_u64(&w, peer_frame_type_hash(frame->type));
	int r = types[frame->type].write(frame, &w);
	return r < 0 ? r : (ssize_t)(PEER_FRAME_SIZE_MAX - w.left);
}

int peer_frame_read(const void *bytes, size_t size, struct peer_frame *ret_frame)
{
	struct reader r = reader_init(bytes, size);
	uint64_t hash = read_u64(&r);
	if (r.failed || size > PEER_FRAME_SIZE_MAX)
		return -EBADMSG;

	struct peer_frame frame = { 0 };
	for (int type = 0; type < TYPE_COUNT; type++) {
		if (peer_frame_type_hash((enum peer_frame_type)type) != hash)
			continue;
		frame.type = (enum peer_frame_type)type;
		int result = types[type].read(&r, &frame);
		if (result == 0)
			*ret_frame = frame;
		return result;
	}
	return -EPROTONOSUPPORT;
}
