/* peer.c: private data and frames: golden bytes, every size, every flag, fields out of bounds. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "unit.h"

static const char *const golden_request = "4d525331 0100 0203 01000000 000102030405060708090a0b0c0d0e0f"
					  "00000000000000000000000000000000000000000000000000000000";
static const char *const golden_accept = "4d525331 0100 0100 0500 0000 101112131415161718191a1b1c1d1e1f"
					 "000102030405060708090a0b0c0d0e0f";
static const char *const golden_reject = "4d525331 0400 0400 66756c6c";
static const char *const golden_welcome = "f822205fbfb15b7b 03000000 0807060504030201"
					  "04030201 0000000000000000 0000100000000000 0600000000000000 6d6c78355f30";
static const char *const golden_notice = "2ae093fadae09119 07000000 02000000 0807060504030201 4000000000000000"
					 "8b000000 44332211 1100000000000000 1222000000000080";
static const char *const golden_notice_all = "2ae093fadae09119 07000000 ffffffff 0807060504030201 4000000000000000"
					     "8b000000 44332211";
static const char *const golden_ack = "b0e8b38b1a1ab380 07000000 00000000 0807060504030201";

static void fill(uint8_t id[PEER_ID_SIZE], uint8_t first)
{
	for (uint8_t i = 0; i < PEER_ID_SIZE; i++)
		id[i] = first + i;
}

static int read_request(const void *buf, size_t size, void *ret)
{
	return peer_request_read(buf, size, ret);
}

static int read_accept(const void *buf, size_t size, void *ret)
{
	return peer_accept_read(buf, size, ret);
}

static int read_reject(const void *buf, size_t size, void *ret)
{
	return peer_reject_read(buf, size, ret);
}

static int read_frame(const void *buf, size_t size, void *ret)
{
	return peer_frame_read(buf, size, ret);
}

START_TEST(request_golden)
{
	struct peer_request value = { .version_min = 1, .version_max = 0x0302, .flags = PEER_WANTS_WRITE };
	fill(value.nonce, 0);
	uint8_t buf[PEER_REQUEST_SIZE];
	memset(buf, 0xa5, sizeof(buf));
	peer_request_write(&value, buf);
	assert_bytes_eq(buf, sizeof(buf), golden_request);

	struct bytes bytes = from_hex(golden_request);
	assert_truncated(read_request, &bytes, sizeof(value), -EBADMSG);
	/* What is reserved, and what follows, is ignored. */
	memset(bytes.data + 28, 0xff, sizeof(bytes.data) - 28);
	for (size_t size = PEER_REQUEST_SIZE; size < 256; size++) {
		struct peer_request got;
		ck_assert_int_eq(peer_request_read(bytes.data, size, &got), 0);
		ck_assert_uint_eq(got.version_min, 1);
		ck_assert_uint_eq(got.version_max, 0x0302);
		ck_assert_uint_eq(got.flags, 1);
		ck_assert_mem_eq(got.nonce, value.nonce, PEER_ID_SIZE);
	}
}
END_TEST

START_TEST(request_fields)
{
	struct peer_request value = { 0 }, got;
	uint8_t buf[PEER_REQUEST_SIZE];
	for (unsigned int bit = 0; bit < 32; bit++) {
		value.flags = 1u << bit;
		peer_request_write(&value, buf);
		ck_assert_int_eq(peer_request_read(buf, sizeof(buf), &got), 0);
		ck_assert_uint_eq(got.flags, value.flags);
	}
	const uint16_t ranges[][2] = { { 0, 0 }, { 0, 65535 }, { 1, 1 }, { 65535, 65535 }, { 2, 3 } };
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		value.version_min = ranges[i][0];
		value.version_max = ranges[i][1];
		peer_request_write(&value, buf);
		ck_assert_int_eq(peer_request_read(buf, sizeof(buf), &got), 0);
		ck_assert_uint_eq(got.version_min, ranges[i][0]);
		ck_assert_uint_eq(got.version_max, ranges[i][1]);
		if (ranges[i][0] == ranges[i][1])
			continue;
		value.version_min = ranges[i][1];
		value.version_max = ranges[i][0];
		peer_request_write(&value, buf);
		assert_refused(read_request, buf, sizeof(buf), sizeof(got), -EBADMSG);
	}
}
END_TEST

/* Each bit of the magic flipped, all zero, all ones. */
static void assert_needs_magic(read_fn *read, const char *golden, size_t ret_size)
{
	for (unsigned int bit = 0; bit < 32; bit++) {
		struct bytes bytes = from_hex(golden);
		bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_refused(read, bytes.data, bytes.size, ret_size, -EBADMSG);
	}
	uint8_t buf[256] = { 0 };
	assert_refused(read, buf, sizeof(buf), ret_size, -EBADMSG);
	memset(buf, 0xff, sizeof(buf));
	assert_refused(read, buf, sizeof(buf), ret_size, -EBADMSG);
}

START_TEST(magic)
{
	assert_needs_magic(read_request, golden_request, sizeof(struct peer_request));
	assert_needs_magic(read_accept, golden_accept, sizeof(struct peer_accept));
	assert_needs_magic(read_reject, golden_reject, sizeof(struct peer_reject));
}
END_TEST

START_TEST(acceptance)
{
	struct peer_accept value = { .version = 1, .flags = PEER_AUTHENTICATES, .keepalive = 5 };
	fill(value.server_id, 0x10);
	fill(value.nonce, 0);
	uint8_t buf[PEER_ACCEPT_SIZE];
	memset(buf, 0xa5, sizeof(buf));
	peer_accept_write(&value, buf);
	assert_bytes_eq(buf, sizeof(buf), golden_accept);

	struct bytes bytes = from_hex(golden_accept);
	assert_truncated(read_accept, &bytes, sizeof(value), -EBADMSG);
	bytes.data[10] = bytes.data[11] = 0xff;
	memset(bytes.data + bytes.size, 0xff, sizeof(bytes.data) - bytes.size);
	for (size_t size = PEER_ACCEPT_SIZE; size < 256; size++) {
		struct peer_accept got;
		ck_assert_int_eq(peer_accept_read(bytes.data, size, &got), 0);
		ck_assert_uint_eq(got.version, 1);
		ck_assert_uint_eq(got.flags, 1);
		ck_assert_uint_eq(got.keepalive, 5);
		ck_assert_mem_eq(got.server_id, value.server_id, PEER_ID_SIZE);
		ck_assert_mem_eq(got.nonce, value.nonce, PEER_ID_SIZE);
	}
	for (unsigned int bit = 0; bit < 16; bit++) {
		struct peer_accept got;
		value.flags = value.version = value.keepalive = (uint16_t)(1u << bit);
		peer_accept_write(&value, buf);
		ck_assert_int_eq(peer_accept_read(buf, sizeof(buf), &got), 0);
		ck_assert_uint_eq(got.flags, value.flags);
		ck_assert_uint_eq(got.version, value.version);
		ck_assert_uint_eq(got.keepalive, value.keepalive);
	}
	value.keepalive = 0;
	peer_accept_write(&value, buf);
	assert_refused(read_accept, buf, sizeof(buf), sizeof(value), -EBADMSG);
}
END_TEST

START_TEST(rejection)
{
	struct peer_reject value = { .code = PEER_REJECT_FULL, .text = "full" };
	uint8_t buf[PEER_REJECT_SIZE_MAX];
	ck_assert_uint_eq(peer_reject_write(&value, buf), 12);
	assert_bytes_eq(buf, 12, golden_reject);

	struct bytes bytes = from_hex(golden_reject);
	assert_truncated(read_reject, &bytes, sizeof(value), -EBADMSG);
	memset(bytes.data + bytes.size, 0xff, sizeof(bytes.data) - bytes.size);
	for (size_t size = bytes.size; size < 256; size++) {
		struct peer_reject got;
		ck_assert_int_eq(peer_reject_read(bytes.data, size, &got), 0);
		ck_assert_uint_eq(got.code, PEER_REJECT_FULL);
		ck_assert_str_eq(got.text, "full");
	}
}
END_TEST

START_TEST(rejection_text)
{
	struct peer_reject value = { .code = 0xffff }, got;
	uint8_t buf[PEER_REJECT_SIZE_MAX];
	for (size_t len = 0; len <= PEER_REJECT_TEXT_MAX; len++) {
		memset(value.text, 0, sizeof(value.text));
		memset(value.text, 't', len);
		ck_assert_uint_eq(peer_reject_write(&value, buf), 8 + len);
		ck_assert_int_eq(peer_reject_read(buf, 8 + len, &got), 0);
		ck_assert_uint_eq(got.code, 0xffff);
		ck_assert_str_eq(got.text, value.text);
	}
	/* A text without an end is cut. */
	memset(value.text, 't', sizeof(value.text));
	ck_assert_uint_eq(peer_reject_write(&value, buf), PEER_REJECT_SIZE_MAX);
	ck_assert_int_eq(peer_reject_read(buf, PEER_REJECT_SIZE_MAX, &got), 0);
	ck_assert_uint_eq(strlen(got.text), PEER_REJECT_TEXT_MAX);

	/* Longer than the data, than the longest; with control characters and a NUL. */
	const uint16_t lengths[] = { 5, 140, 141, 255, 256, 65535 };
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct bytes bytes = from_hex(golden_reject);
		struct writer w = writer_init(bytes.data + 6, 2);
		write_u16(&w, lengths[i]);
		assert_refused(read_reject, bytes.data, bytes.size, sizeof(got), -EBADMSG);
		if (lengths[i] > PEER_REJECT_TEXT_MAX)
			assert_refused(read_reject, bytes.data, sizeof(bytes.data), sizeof(got), -EBADMSG);
	}
	struct bytes bytes = from_hex("4d525331 0100 0800 61 00 0a 1b 7f 20 c3a4");
	ck_assert_int_eq(peer_reject_read(bytes.data, bytes.size, &got), 0);
	ck_assert_str_eq(got.text, "a???? \xc3\xa4");
}
END_TEST

START_TEST(types)
{
	ck_assert_str_eq(peer_frame_type_name(PEER_FRAME_WELCOME), "mrshare.welcome.v1");
	ck_assert_str_eq(peer_frame_type_name(PEER_FRAME_NOTICE), "mrshare.notice.v1");
	ck_assert_str_eq(peer_frame_type_name(PEER_FRAME_ACK), "mrshare.ack.v1");
	/* Computed by another implementation of XXH64. */
	ck_assert_uint_eq(peer_frame_type_hash(PEER_FRAME_WELCOME), 0x7b5bb1bf5f2022f8);
	ck_assert_uint_eq(peer_frame_type_hash(PEER_FRAME_NOTICE), 0x1991e0dafa93e02a);
	ck_assert_uint_eq(peer_frame_type_hash(PEER_FRAME_ACK), 0x80b31a1a8bb3e8b0);

	const char *const golden[] = { golden_welcome, golden_notice, golden_ack };
	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
		for (unsigned int bit = 0; bit < 64; bit++) {
			struct bytes bytes = from_hex(golden[i]);
			bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_refused(read_frame, bytes.data, bytes.size, sizeof(struct peer_frame), -EPROTONOSUPPORT);
		}
	}
	const uint8_t zeros[PEER_FRAME_SIZE_MAX] = { 0 };
	assert_refused(read_frame, zeros, sizeof(zeros), sizeof(struct peer_frame), -EPROTONOSUPPORT);
}
END_TEST

/* Reads a frame's golden bytes, alone and with others behind them up to the longest frame. */
static struct peer_frame read_golden(const char *golden)
{
	struct bytes bytes = from_hex(golden);
	assert_truncated(read_frame, &bytes, sizeof(struct peer_frame), -EBADMSG);
	memset(bytes.data + bytes.size, 0xff, sizeof(bytes.data) - bytes.size);
	assert_refused(read_frame, bytes.data, PEER_FRAME_SIZE_MAX + 1, sizeof(struct peer_frame), -EBADMSG);

	struct peer_frame frame;
	for (size_t size = bytes.size; size <= PEER_FRAME_SIZE_MAX; size++)
		ck_assert_int_eq(peer_frame_read(bytes.data, size, &frame), 0);
	uint8_t buf[PEER_FRAME_SIZE_MAX];
	ck_assert_int_eq(peer_frame_write(&frame, buf), (ssize_t)bytes.size);
	assert_bytes_eq(buf, bytes.size, golden);
	return frame;
}

START_TEST(welcome_golden)
{
	struct peer_frame frame = read_golden(golden_welcome);
	ck_assert_int_eq(frame.type, PEER_FRAME_WELCOME);
	ck_assert_uint_eq(frame.welcome.granted, MRSHARE_READ | MRSHARE_WRITE);
	ck_assert_uint_eq(frame.welcome.generation, 0x0102030405060708);
	ck_assert_uint_eq(frame.welcome.catalog.rkey, 0x01020304);
	ck_assert_uint_eq(frame.welcome.catalog.addr, 0);
	ck_assert_uint_eq(frame.welcome.catalog.size, 1 << 20);
	ck_assert_str_eq(frame.welcome.catalog.device_name, "mlx5_0");
}
END_TEST

static void assert_frame(const struct peer_frame *frame, int wanted)
{
	uint8_t buf[PEER_FRAME_SIZE_MAX];
	ssize_t n = peer_frame_write(frame, buf);
	ck_assert_int_gt(n, 0);
	struct peer_frame got;
	if (wanted < 0)
		assert_refused(read_frame, buf, (size_t)n, sizeof(got), wanted);
	else
		ck_assert_int_eq(peer_frame_read(buf, (size_t)n, &got), 0);
}

START_TEST(welcome_fields)
{
	struct bytes bytes = from_hex(golden_welcome);
	struct peer_frame frame;
	for (unsigned int bit = 0; bit < 32; bit++) {
		struct writer w = writer_init(bytes.data + 8, 4);
		write_u32(&w, 1u << bit);
		ck_assert_int_eq(peer_frame_read(bytes.data, bytes.size, &frame), 0);
		ck_assert_uint_eq(frame.welcome.granted, bit < 3 ? 1u << bit : 0);
	}

	frame = read_golden(golden_welcome);
	frame.welcome.catalog.size = 64;
	assert_frame(&frame, 0);
	frame.welcome.catalog.size = 63;
	assert_frame(&frame, -EBADMSG);
	frame.welcome.catalog.size = 0;
	assert_frame(&frame, -EBADMSG);
	frame.welcome.catalog.size = UINT64_MAX;
	assert_frame(&frame, 0);
	frame.welcome.catalog.addr = 1;
	assert_frame(&frame, -EBADMSG);
	frame.welcome.catalog.addr = UINT64_MAX - 64;
	frame.welcome.catalog.size = 64;
	assert_frame(&frame, 0);
	frame.welcome.catalog.size = 65;
	assert_frame(&frame, -EBADMSG);

	/* The name: no UTF-8, too long by its length field; the longest. */
	bytes = from_hex(golden_welcome);
	bytes.data[bytes.size - 1] = 0xff;
	assert_refused(read_frame, bytes.data, bytes.size, sizeof(frame), -EBADMSG);
	bytes = from_hex(golden_welcome);
	bytes.data[40] = 64;
	assert_refused(read_frame, bytes.data, PEER_FRAME_SIZE_MAX, sizeof(frame), -EBADMSG);
	uint8_t buf[PEER_FRAME_SIZE_MAX];
	memset(frame.welcome.catalog.device_name, 'n', 64);
	ck_assert_int_eq(peer_frame_write(&frame, buf), -EINVAL);
	frame.welcome.catalog.device_name[63] = '\0';
	frame.welcome.catalog.size = 64;
	ck_assert_int_eq(peer_frame_write(&frame, buf), 111);
	ck_assert_int_eq(peer_frame_read(buf, 111, &frame), 0);
	ck_assert_uint_eq(strlen(frame.welcome.catalog.device_name), 63);
}
END_TEST

START_TEST(notice_golden)
{
	struct peer_frame frame = read_golden(golden_notice);
	ck_assert_int_eq(frame.type, PEER_FRAME_NOTICE);
	ck_assert_uint_eq(frame.notice.sequence, 7);
	ck_assert_uint_eq(frame.notice.withdrawn_count, 2);
	ck_assert_uint_eq(frame.notice.generation, 0x0102030405060708);
	ck_assert_uint_eq(frame.notice.slot_offset, 64);
	ck_assert_uint_eq(frame.notice.slot_size, 0x8b);
	ck_assert_uint_eq(frame.notice.slot_crc, 0x11223344);
	ck_assert_uint_eq(frame.notice.withdrawn[0], 0x11);
	ck_assert_uint_eq(frame.notice.withdrawn[1], 0x8000000000002212);

	frame = read_golden(golden_notice_all);
	ck_assert_uint_eq(frame.notice.withdrawn_count, PEER_WITHDRAWN_ALL);
}
END_TEST

START_TEST(notice_fields)
{
	struct peer_frame frame = read_golden(golden_notice);
	for (unsigned int count = 0; count <= PEER_NOTICE_IDS_MAX; count++) {
		frame.notice.withdrawn_count = count;
		for (unsigned int i = 0; i < count; i++)
			frame.notice.withdrawn[i] = UINT64_MAX - i;
		uint8_t buf[PEER_FRAME_SIZE_MAX];
		ck_assert_int_eq(peer_frame_write(&frame, buf), 40 + 8 * (int)count);
		struct bytes bytes = { .size = 40 + 8 * count };
		memcpy(bytes.data, buf, bytes.size);
		assert_truncated(read_frame, &bytes, sizeof(frame), -EBADMSG);
		struct peer_frame got;
		ck_assert_int_eq(peer_frame_read(buf, bytes.size, &got), 0);
		ck_assert_uint_eq(got.notice.withdrawn_count, count);
		ck_assert_mem_eq(got.notice.withdrawn, frame.notice.withdrawn, 8 * count);
	}

	const uint32_t counts[] = { 17, 31, 256, 0x7fffffff, 0x80000000, 0xfffffffe };
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct bytes bytes = from_hex(golden_notice);
		struct writer w = writer_init(bytes.data + 12, 4);
		write_u32(&w, counts[i]);
		assert_refused(read_frame, bytes.data, PEER_FRAME_SIZE_MAX, sizeof(frame), -EBADMSG);
		frame.notice.withdrawn_count = counts[i];
		ck_assert_int_eq(peer_frame_write(&frame, bytes.data), -EINVAL);
	}
}
END_TEST

START_TEST(notice_slot)
{
	struct peer_frame frame = read_golden(golden_notice);
	frame.notice.slot_offset = 63;
	assert_frame(&frame, -EBADMSG);
	frame.notice.slot_offset = 0;
	assert_frame(&frame, -EBADMSG);
	frame.notice.slot_offset = UINT64_MAX;
	assert_frame(&frame, -EBADMSG);
	frame.notice.slot_size = 0;
	assert_frame(&frame, 0);
	frame.notice.slot_size = UINT32_MAX;
	frame.notice.slot_offset = UINT64_MAX - UINT32_MAX;
	assert_frame(&frame, 0);
	frame.notice.slot_offset++;
	assert_frame(&frame, -EBADMSG);
}
END_TEST

START_TEST(ack_golden)
{
	struct peer_frame frame = read_golden(golden_ack);
	ck_assert_int_eq(frame.type, PEER_FRAME_ACK);
	ck_assert_uint_eq(frame.ack.sequence, 7);
	ck_assert_uint_eq(frame.ack.generation, 0x0102030405060708);

	struct bytes bytes = from_hex(golden_ack);
	memset(bytes.data + 12, 0xff, 4);
	ck_assert_int_eq(peer_frame_read(bytes.data, bytes.size, &frame), 0);
	ck_assert_uint_eq(frame.ack.generation, 0x0102030405060708);
}
END_TEST

Suite *suite_peer(void)
{
	const TTest *const tests[] = { request_golden, request_fields, magic, acceptance, rejection, rejection_text,
		types, welcome_golden, welcome_fields, notice_golden, notice_fields, notice_slot, ack_golden };
	return suite_of("peer", tests, sizeof(tests) / sizeof(tests[0]));
}
