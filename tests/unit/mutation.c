/* mutation.c: bytes changed at random through every reader: each refuses, or what it read is in bounds. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/range.h"
#include "mrshare.h"
#include "unit.h"
#include "wire/catalog.h"
#include "wire/peer.h"
#include "wire/vhost_user.h"

enum { ROUNDS = 100000, SLOT_ENTRIES = 3, BUFFER_SIZE = 320 };

static const uint64_t seed = 0x6d72736861726531;
static uint64_t random_state;

/* splitmix64. */
static uint64_t random_u64(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static size_t random_below(size_t bound)
{
	return (size_t)(random_u64() % bound);
}

/* Changes up to 4 places, mostly to what fields break at, and sometimes the size. Returns the size. */
static size_t mutate(uint8_t *bytes, size_t size)
{
	static const uint8_t favourites[] = { 0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xfe, 0xff };
	for (size_t n = 1 + random_below(4); n; n--) {
		size_t at = random_below(size);
		switch (random_below(4)) {
		case 0:
			bytes[at] ^= (uint8_t)(1u << random_below(8));
			break;
		case 1:
			bytes[at] = (uint8_t)random_u64();
			break;
		case 2:
			bytes[at] = favourites[random_below(sizeof(favourites))];
			break;
		default:
			memset(bytes + at, favourites[random_below(sizeof(favourites))], 1 + random_below(size - at));
			break;
		}
	}
	return random_below(4) ? size : random_below(BUFFER_SIZE + 1);
}

static void assert_view_in_bounds(const struct mrshare_view *view)
{
	ASSERT_QUICK(memchr(view->device_name, '\0', sizeof(view->device_name)));
	uint8_t buf[MRSHARE_VIEW_SIZE_MAX];
	ASSERT_QUICK(mrshare_view_encode(view, buf, sizeof(buf)) > 0);
}

static void assert_entry_in_bounds(const struct mrshare_entry *entry)
{
	assert_view_in_bounds(&entry->view);
	ASSERT_QUICK(!range_overflows(entry->view.addr, entry->view.size));
	ASSERT_QUICK(!range_overflows(entry->shm_offset, entry->view.size));
}

static int try_mmap(const uint8_t *bytes, size_t size)
{
	struct mrshare_mmap mmap;
	size_t left;
	bool exact = mrshare_mmap_read(bytes, size, &mmap) == 0;
	bool prefix = mrshare_mmap_read_prefix(bytes, size, &mmap, &left) == 0;
	bool suffix = mrshare_mmap_read_suffix(bytes, size, &mmap, &left) == 0;
	ASSERT_QUICK(exact == (size == MRSHARE_MMAP_SIZE));
	ASSERT_QUICK(prefix == (size >= MRSHARE_MMAP_SIZE));
	ASSERT_QUICK(suffix == prefix);
	if (suffix)
		ASSERT_QUICK(left == size - MRSHARE_MMAP_SIZE);
	return suffix && mrshare_mmap_is_valid(&mmap);
}

static int try_vhost_user(const uint8_t *bytes, size_t size)
{
	if (size < VHOST_USER_REPLY_SIZE)
		return 0;
	struct vhost_user_header header = vhost_user_header_read(bytes);
	int64_t result;
	bool reply = vhost_user_reply_read(bytes, header.request, &result) == 0;
	ASSERT_QUICK(!reply || !vhost_user_request_is_valid(&header));
	return reply;
}

static int try_view(const uint8_t *bytes, size_t size)
{
	struct mrshare_view view;
	ssize_t n = mrshare_view_decode(bytes, size, &view);
	if (n < 0)
		return 0;
	ASSERT_QUICK((size_t)n <= size);
	assert_view_in_bounds(&view);
	uint8_t again[MRSHARE_VIEW_SIZE_MAX];
	ASSERT_QUICK(mrshare_view_encode(&view, again, sizeof(again)) == n);
	ASSERT_QUICK(memcmp(again, bytes, (size_t)n) == 0);
	return 1;
}

static int try_json(const uint8_t *bytes, size_t size)
{
	char *json = strndup((const char *)bytes, size);
	ASSERT_QUICK(json);
	struct mrshare_view view;
	int r = mrshare_view_from_json(json, &view);
	free(json);
	if (r < 0)
		return 0;
	assert_view_in_bounds(&view);
	return 1;
}

static int try_root(const uint8_t *bytes, size_t size)
{
	struct catalog_root root;
	if (size < CATALOG_ROOT_SIZE || catalog_root_read(bytes, 4096, &root) < 0)
		return 0;
	ASSERT_QUICK(range_fits(root.slot_offset, root.slot_size, 4096) && root.slot_offset >= CATALOG_ROOT_SIZE);
	return 1;
}

static int try_entry(const uint8_t *bytes, size_t size)
{
	struct mrshare_entry entry;
	ssize_t n = catalog_entry_read(bytes, size, &entry);
	if (n < 0)
		return 0;
	ASSERT_QUICK((size_t)n <= size);
	assert_entry_in_bounds(&entry);
	return 1;
}

static int try_slot(const uint8_t *bytes, size_t size)
{
	struct catalog_root root = {
		.slot_size = (uint32_t)size,
		.view_count = random_below(4) ? SLOT_ENTRIES : (uint32_t)random_u64(),
		.slot_crc = catalog_crc(bytes, size),
	};
	struct mrshare_entry *entries;
	if (catalog_slot_read(bytes, &root, &entries) < 0)
		return 0;
	for (uint32_t i = 0; i < root.view_count; i++)
		assert_entry_in_bounds(&entries[i]);
	free(entries);
	return 1;
}

static int try_private_data(const uint8_t *bytes, size_t size)
{
	struct peer_request request;
	struct peer_accept accept;
	struct peer_reject reject;
	int taken = 0;
	if (peer_request_read(bytes, size, &request) == 0) {
		ASSERT_QUICK(request.version_min <= request.version_max);
		taken = 1;
	}
	if (peer_accept_read(bytes, size, &accept) == 0) {
		ASSERT_QUICK(accept.keepalive > 0);
		taken = 1;
	}
	if (peer_reject_read(bytes, size, &reject) == 0) {
		const char *end = memchr(reject.text, '\0', sizeof(reject.text));
		ASSERT_QUICK(end);
		for (const char *c = reject.text; c < end; c++)
			ASSERT_QUICK((unsigned char)*c >= 0x20 && *c != 0x7f);
		taken = 1;
	}
	return taken;
}

static int try_frame(const uint8_t *bytes, size_t size)
{
	struct peer_frame frame;
	if (peer_frame_read(bytes, size, &frame) < 0)
		return 0;
	if (frame.type == PEER_FRAME_WELCOME)
		assert_view_in_bounds(&frame.welcome.catalog);
	if (frame.type == PEER_FRAME_NOTICE)
		ASSERT_QUICK(frame.notice.withdrawn_count <= PEER_NOTICE_IDS_MAX ||
			     frame.notice.withdrawn_count == PEER_WITHDRAWN_ALL);
	return 1;
}

/* A buffer that the readers take, and which of them. */
struct sample {
	const char *name;
	int (*try)(const uint8_t *bytes, size_t size);
	uint8_t bytes[BUFFER_SIZE];
	size_t size;
	unsigned int taken, refused;
};

static struct mrshare_entry make_entry(uint64_t id)
{
	return (struct mrshare_entry){
		.mapping_id = id,
		.shm_offset = id << 30,
		.access = MRSHARE_READ,
		.view = { .rkey = 1, .addr = id << 30, .size = 1 << 30, .device_name = "rxe\xc3\xa4" },
	};
}

static size_t make_slot(uint8_t bytes[BUFFER_SIZE])
{
	size_t size = 0;
	for (uint64_t i = 0; i < SLOT_ENTRIES; i++) {
		struct mrshare_entry entry = make_entry(i);
		size += (size_t)catalog_entry_write(&entry, bytes + size, BUFFER_SIZE - size);
	}
	return size;
}

static void make_samples(struct sample samples[10])
{
	struct mrshare_mmap mmap = { .shm_offset = 4096, .len = 4096, .flags = 1 };
	samples[0] = (struct sample){ .name = "mmap", .try = try_mmap, .size = MRSHARE_MMAP_SIZE };
	mrshare_mmap_write(&mmap, samples[0].bytes, MRSHARE_MMAP_SIZE);

	samples[1] = (struct sample){ .name = "reply", .try = try_vhost_user, .size = VHOST_USER_REPLY_SIZE };
	vhost_user_reply_write(9, 0, samples[1].bytes);

	struct mrshare_entry entry = make_entry(1);
	samples[2] = (struct sample){ .name = "view", .try = try_view };
	samples[2].size = (size_t)mrshare_view_encode(&entry.view, samples[2].bytes, BUFFER_SIZE);

	char *json = NULL;
	mrshare_view_to_json(&entry.view, &json);
	samples[3] = (struct sample){ .name = "json", .try = try_json, .size = strlen(json) };
	memcpy(samples[3].bytes, json, samples[3].size);
	free(json);

	struct catalog_root root = { .slot_offset = 64, .slot_size = 200, .view_count = 3 };
	samples[4] = (struct sample){ .name = "root", .try = try_root, .size = CATALOG_ROOT_SIZE };
	catalog_root_write(&root, samples[4].bytes);

	samples[5] = (struct sample){ .name = "entry", .try = try_entry };
	samples[5].size = (size_t)catalog_entry_write(&entry, samples[5].bytes, BUFFER_SIZE);

	samples[6] = (struct sample){ .name = "slot", .try = try_slot };
	samples[6].size = make_slot(samples[6].bytes);

	struct peer_request request = { .version_min = 1, .version_max = 1 };
	samples[7] = (struct sample){ .name = "private data", .try = try_private_data, .size = PEER_REQUEST_SIZE };
	peer_request_write(&request, samples[7].bytes);

	struct peer_frame frame = { .type = PEER_FRAME_WELCOME, .welcome = { .granted = 1, .catalog = entry.view } };
	samples[8] = (struct sample){ .name = "welcome", .try = try_frame };
	samples[8].size = (size_t)peer_frame_write(&frame, samples[8].bytes);

	frame = (struct peer_frame){ .type = PEER_FRAME_NOTICE, .notice = { .withdrawn_count = 3, .slot_offset = 64 } };
	samples[9] = (struct sample){ .name = "notice", .try = try_frame };
	samples[9].size = (size_t)peer_frame_write(&frame, samples[9].bytes);
}

/* Makes a root's CRC right, so that the checks behind it are reached. */
static void repair_root(uint8_t *bytes)
{
	memset(bytes + 36, 0, 4);
	struct writer w = writer_init(bytes + 36, 4);
	write_u32(&w, catalog_crc(bytes, CATALOG_ROOT_SIZE));
}

START_TEST(each_reader)
{
	static struct sample samples[10];
	make_samples(samples);
	random_state = seed;
	printf("mutation: seed %#llx, %d rounds\n", (unsigned long long)seed, ROUNDS);
	for (size_t i = 0; i < 10; i++)
		ck_assert_msg(samples[i].try(samples[i].bytes, samples[i].size) == 1, "%s: refused unchanged",
			samples[i].name);

	for (unsigned int round = 0; round < ROUNDS; round++) {
		struct sample *sample = &samples[round % 10];
		uint8_t bytes[BUFFER_SIZE];
		memcpy(bytes, sample->bytes, BUFFER_SIZE);
		size_t size = mutate(bytes, sample->size);
		if (sample->try == try_root && random_below(2))
			repair_root(bytes);
		uint8_t *copy = exact_copy(bytes, size);
		if (sample->try(copy, size))
			sample->taken++;
		else
			sample->refused++;
		for (size_t i = 0; i < 10; i++)
			samples[i].try(copy, size);
		free(copy);
	}
	/* Neither a reader that takes everything nor one that takes nothing has been tested. */
	for (size_t i = 0; i < 10; i++) {
		printf("mutation: %s: %u taken, %u refused\n", samples[i].name, samples[i].taken, samples[i].refused);
		ck_assert_uint_gt(samples[i].taken, 0);
		ck_assert_uint_gt(samples[i].refused, 0);
	}
	fflush(stdout);
}
END_TEST

Suite *suite_mutation(void)
{
	const TTest *const tests[] = { each_reader };
	return suite_of("mutation", tests, sizeof(tests) / sizeof(tests[0]));
}
