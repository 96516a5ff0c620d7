/* test_frontend.c: what is announced to a front-end, against a model of one, in every order of events. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "stages.h"
#include "vhost/frontend_sets.h"

enum { MAPPINGS = 12, ROOM_SMALL = 2, DEPTH = 9 };

/* A front-end as QEMU 11.1 is one: it keeps mappings over a stop, drops them at a reset, and tells neither; MAP of what
 * it holds is refused, UNMAP of what it does not hold as well. */
struct model {
	struct sets sets;
	bool exists[MAPPINGS + 1]; /* the mapping was added, and not forgotten since */
	bool used[MAPPINGS + 1];   /* its id was used */
	bool wanted[MAPPINGS + 1];
	bool mapped[MAPPINGS + 1]; /* by the front-end */
	bool running;              /* what the front-end thinks */
	unsigned int room;
	enum sets_request in_flight; /* not seen by the front-end yet */
	uint64_t in_flight_id;
	bool has_answer; /* not seen by us yet */
	uint64_t answer;
	bool lost; /* the channel was, since the start */
};

#define WANT(condition)                                         \
	do {                                                    \
		if (!(condition))                               \
			ck_abort_msg("wanted: %s", #condition); \
	} while (0)

static unsigned int count(const bool flags[MAPPINGS + 1])
{
	unsigned int n = 0;
	for (unsigned int i = 1; i <= MAPPINGS; i++)
		n += flags[i];
	return n;
}

/* Nothing is forgotten that the front-end has or is about to have. */
static void forgotten(struct model *model, uint64_t id)
{
	WANT(!model->wanted[id]);
	WANT(!model->mapped[id]);
	WANT(model->in_flight_id != id);
	model->exists[id] = false;
}

static unsigned int may_be_held(const struct sets *sets)
{
	unsigned int n = 0;
	for (const struct sets_entry *entry = sets->entries; entry; entry = entry->next)
		n += entry->held == SETS_HELD || entry->held == SETS_UNCERTAIN;
	return n;
}

/* What the session does after each event. */
static void pump(struct model *model)
{
	bool was_asked = model->sets.asked != NULL;
	const struct sets_entry *entry = NULL;
	enum sets_request request = sets_next(&model->sets, &entry);
	if (request == SETS_NOTHING)
		return;
	WANT(!was_asked && model->in_flight == SETS_NOTHING && !model->has_answer);
	WANT(model->running);
	if (request == SETS_UNMAP)
		WANT(!model->wanted[entry->id] || may_be_held(&model->sets) > model->room);
	else
		WANT(model->wanted[entry->id]);
	model->in_flight = request;
	model->in_flight_id = entry->id;
}

static bool add(struct model *model, uint64_t id)
{
	if (model->used[id])
		return false;
	struct mrshare_mmap mmap = { .shm_offset = id * 4096, .len = 4096 };
	WANT(sets_add(&model->sets, id, &mmap, -1, id % 5 == 0) == 0);
	model->exists[id] = model->used[id] = model->wanted[id] = true;
	return true;
}

static bool withdraw(struct model *model, uint64_t id)
{
	if (!model->wanted[id])
		return false;
	model->wanted[id] = false;
	if (sets_withdraw(&model->sets, id))
		forgotten(model, id);
	return true;
}

static bool start(struct model *model)
{
	if (model->running)
		return false;
	model->running = true;
	model->lost = false;
	sets_start(&model->sets);
	return true;
}

static bool stop(struct model *model)
{
	if (!model->running)
		return false;
	model->running = false;
	sets_stop(&model->sets);
	return true;
}

/* The guest boots anew; its memory may have become another. */
static bool reset(struct model *model, unsigned int room)
{
	if (model->running)
		return false;
	memset(model->mapped, 0, sizeof(model->mapped));
	model->room = room;
	model->sets.foreign = SETS_TABLE_MAX - room;
	return true;
}

/* The front-end reads the request and answers: also one that it had not read when it stopped. */
static bool process(struct model *model)
{
	if (model->in_flight == SETS_NOTHING)
		return false;
	uint64_t id = model->in_flight_id;
	bool maps = model->in_flight == SETS_MAP;
	model->answer = model->mapped[id] == maps;
	model->mapped[id] = maps;
	model->has_answer = true;
	model->in_flight = SETS_NOTHING;
	model->in_flight_id = 0;
	return true;
}

static bool deliver(struct model *model)
{
	if (!model->has_answer)
		return false;
	model->has_answer = false;
	uint64_t id = model->sets.asked->id;
	bool is_forgotten;
	sets_answer(&model->sets, model->answer, &is_forgotten);
	if (is_forgotten)
		forgotten(model, id);
	return true;
}

/* The channel is lost, with what was on its way, and a new one comes. */
static bool lose(struct model *model)
{
	if (!model->sets.asked)
		return false;
	process(model);
	model->has_answer = false;
	model->lost = true;
	sets_lose(&model->sets);
	return true;
}

static void pump_to_the_end(struct model *model)
{
	do
		pump(model);
	while (process(model) || deliver(model));
}

/* In the end the front-end has what is wanted, as far as there is room, and all else is forgotten. */
static void want_settled(struct model *model)
{
	start(model);
	pump_to_the_end(model);
	/* What a lost channel left uncertain may be settled by the next start only. */
	if (model->lost) {
		stop(model);
		start(model);
		pump_to_the_end(model);
	}
	unsigned int wanted = count(model->wanted), room = model->room;
	WANT(count(model->mapped) == (wanted < room ? wanted : room));
	WANT(sets_surplus(&model->sets) == (wanted > room ? wanted - room : 0));
	for (unsigned int id = 1; id <= MAPPINGS; id++) {
		WANT(!model->mapped[id] || model->wanted[id]);
		WANT(model->exists[id] == model->wanted[id]);
	}
}

static void model_init(struct model *model, unsigned int room)
{
	memset(model, 0, sizeof(*model));
	model->room = room;
	model->sets.foreign = SETS_TABLE_MAX - room;
}

static void model_copy(const struct model *from, struct model *to)
{
	*to = *from;
	to->sets.entries = NULL;
	struct sets_entry **link = &to->sets.entries;
	for (const struct sets_entry *entry = from->sets.entries; entry; entry = entry->next) {
		*link = malloc(sizeof(**link));
		**link = *entry;
		if (from->sets.asked == entry)
			to->sets.asked = *link;
		link = &(*link)->next;
	}
	*link = NULL;
}

static bool act(struct model *model, unsigned int action)
{
	switch (action) {
	case 0:
	case 1:
	case 2:
		return add(model, action + 1);
	case 3:
	case 4:
		return withdraw(model, action - 2);
	case 5:
		return start(model);
	case 6:
		return stop(model);
	case 7:
		return reset(model, ROOM_SMALL);
	case 8:
		return reset(model, ROOM_SMALL - 1);
	case 9:
		return process(model);
	case 10:
		return deliver(model);
	default:
		return lose(model);
	}
}

enum { ACTIONS = 12 };

static unsigned long explored;

static void explore(const struct model *from, unsigned int depth)
{
	struct model model;
	model_copy(from, &model);
	want_settled(&model);
	sets_free(&model.sets);
	explored++;
	for (unsigned int action = 0; depth && action < ACTIONS; action++) {
		model_copy(from, &model);
		if (act(&model, action)) {
			pump(&model);
			explore(&model, depth - 1);
		}
		sets_free(&model.sets);
	}
}

START_TEST(every_order_of_events_ends_well)
{
	struct model model;
	model_init(&model, ROOM_SMALL);
	explore(&model, _i ? DEPTH : DEPTH - 3);
	ck_assert_uint_gt(explored, 1000);
}
END_TEST

START_TEST(long_lives_end_well)
{
	srand((unsigned int)_i);
	for (unsigned int life = 0; life < 300; life++) {
		struct model model;
		model_init(&model, 1 + (unsigned int)rand() % SETS_TABLE_MAX);
		for (unsigned int i = 0; i < 300; i++) {
			unsigned int action = (unsigned int)rand() % 10;
			uint64_t id = 1 + (unsigned int)rand() % MAPPINGS;
			if (action < 2)
				add(&model, id);
			else if (action == 2)
				withdraw(&model, id);
			else if (action == 3 && rand() % 4 == 0)
				stop(&model);
			else if (action == 4 && rand() % 2)
				reset(&model, model.room);
			else
				act(&model, 5 + (unsigned int)rand() % 6 * (action > 4));
			/* Ids are never used again; here they are once the mapping is forgotten. */
			if (!model.exists[id])
				model.used[id] = false;
			pump(&model);
		}
		want_settled(&model);
		sets_free(&model.sets);
	}
}
END_TEST

static struct sets sets;

static void add_one(uint64_t id, bool is_static)
{
	struct mrshare_mmap mmap = { .shmid = (uint8_t)(id % 2), .len = 4096 * id };
	ck_assert_int_eq(sets_add(&sets, id, &mmap, -1, is_static), 0);
}

static uint64_t next_map(void)
{
	const struct sets_entry *entry;
	ck_assert_int_eq(sets_next(&sets, &entry), SETS_MAP);
	return entry->id;
}

static enum sets_outcome answer_with(uint64_t result)
{
	bool is_forgotten;
	return sets_answer(&sets, result, &is_forgotten);
}

START_TEST(static_mappings_go_first_then_the_oldest)
{
	const uint64_t order[] = { 3, 5, 1, 2, 4 };
	add_one(4, false);
	add_one(1, false);
	add_one(5, true);
	add_one(2, false);
	add_one(3, true);
	sets_start(&sets);
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		ck_assert_uint_eq(next_map(), order[i]);
		ck_assert_int_eq(answer_with(0), SETS_ANNOUNCED);
	}
	ck_assert_uint_eq(sets_held_bytes(&sets, 1), 4096 * (1 + 3 + 5));
	sets_free(&sets);
}
END_TEST

START_TEST(a_refused_mapping_is_tried_again_at_the_next_start_only)
{
	const struct sets_entry *entry;
	add_one(1, false);
	sets_start(&sets);
	ck_assert_uint_eq(next_map(), 1);
	ck_assert_int_eq(answer_with(1), SETS_WAS_REFUSED);
	ck_assert_int_eq(sets_next(&sets, &entry), SETS_NOTHING);
	sets_stop(&sets);
	sets_start(&sets);
	ck_assert_uint_eq(next_map(), 1);
	ck_assert_int_eq(answer_with(UINT64_MAX), SETS_WAS_REFUSED);
	ck_assert(sets_withdraw(&sets, 1));
	ck_assert(sets_withdraw(&sets, 1));
	sets_free(&sets);
}
END_TEST

START_TEST(a_refusal_older_than_the_start_says_nothing)
{
	add_one(1, false);
	sets_start(&sets);
	ck_assert_uint_eq(next_map(), 1);
	sets_stop(&sets);
	sets_start(&sets);
	ck_assert_int_eq(answer_with(1), SETS_WAS_REFUSED);
	ck_assert_uint_eq(next_map(), 1);
	sets_free(&sets);
}
END_TEST

START_TEST(what_was_held_is_announced_again_and_believed_to_be_there)
{
	const struct sets_entry *entry;
	add_one(1, false);
	sets_start(&sets);
	ck_assert_uint_eq(next_map(), 1);
	ck_assert_int_eq(answer_with(0), SETS_ANNOUNCED);
	sets_stop(&sets);
	ck_assert_int_eq(sets_next(&sets, &entry), SETS_NOTHING);
	sets_start(&sets);
	ck_assert_uint_eq(next_map(), 1);
	ck_assert_int_eq(answer_with(1), SETS_THERE_STILL);
	ck_assert_int_eq(sets_next(&sets, &entry), SETS_NOTHING);
	sets_free(&sets);
}
END_TEST

START_TEST(a_full_table_of_its_own_leaves_no_room)
{
	const struct sets_entry *entry;
	add_one(1, false);
	for (sets.foreign = SETS_TABLE_MAX; sets.foreign < 300; sets.foreign += 97) {
		sets_start(&sets);
		ck_assert_int_eq(sets_next(&sets, &entry), SETS_NOTHING);
		ck_assert_uint_eq(sets_surplus(&sets), 1);
	}
	sets_free(&sets);
}
END_TEST

void add_frontend_tests(Suite *suite)
{
	TCase *tcase = tcase_create("front-end");
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, every_order_of_events_ends_well, 0, 2);
	tcase_add_loop_test(tcase, long_lives_end_well, 0, 4);
	tcase_add_test(tcase, static_mappings_go_first_then_the_oldest);
	tcase_add_test(tcase, a_refused_mapping_is_tried_again_at_the_next_start_only);
	tcase_add_test(tcase, a_refusal_older_than_the_start_says_nothing);
	tcase_add_test(tcase, what_was_held_is_announced_again_and_believed_to_be_there);
	tcase_add_test(tcase, a_full_table_of_its_own_leaves_no_room);
	suite_add_tcase(suite, tcase);
}
