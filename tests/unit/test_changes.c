/* test_changes.c: what is new between two lists of views. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>

#include "fake_daemon.h"

static const uint8_t rw = MRSHARE_READ | MRSHARE_WRITE;

/* The changes as text: "-1 +2 ~3" by mapping id. */
static const char *changes(
	const struct mrshare_entry *before, size_t before_count, const struct mrshare_entry *now, size_t now_count)
{
	static char text[200];
	struct mrshare_change *list;
	size_t count, used = 0;
	ck_assert_int_eq(mrshare_changes(before, before_count, now, now_count, &list, &count), 0);
	text[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		const struct mrshare_change *change = &list[i];
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%c%d", i ? " " : "",
			change->kind == MRSHARE_ADDED       ? '+'
			: change->kind == MRSHARE_WITHDRAWN ? '-'
							    : '~',
			(int)(change->kind == MRSHARE_WITHDRAWN ? change->before.mapping_id : change->now.mapping_id));
	}
	free(list);
	return text;
}

START_TEST(changes_are_found)
{
	struct mrshare_entry a = fake_entry(1, 0, 4096, rw), b = fake_entry(2, 4096, 4096, rw),
			     c = fake_entry(3, 8192, 4096, rw), replaced = fake_entry(4, 4096, 4096, rw), changed = c;
	changed.view.rkey++;
	struct mrshare_entry none[1], ab[] = { a, b }, bc[] = { b, c }, all[] = { a, replaced, changed },
				      abc[] = { a, b, c };
	ck_assert_str_eq(changes(none, 0, none, 0), "");
	ck_assert_str_eq(changes(NULL, 0, ab, 2), "+1 +2");
	ck_assert_str_eq(changes(ab, 2, NULL, 0), "-1 -2");
	ck_assert_str_eq(changes(ab, 2, ab, 2), "");
	ck_assert_str_eq(changes(ab, 2, bc, 2), "-1 +3");
	ck_assert_str_eq(changes(abc, 3, all, 3), "-2 +4 ~3");
}
END_TEST

START_TEST(regions_are_told_apart)
{
	struct mrshare_entry before = fake_entry(1, 0, 4096, rw), now = before;
	now.shmid = 1;
	ck_assert_str_eq(changes(&before, 1, &now, 1), "-1 +1");
	now = before;
	now.access = MRSHARE_READ;
	ck_assert_str_eq(changes(&before, 1, &now, 1), "~1");
}
END_TEST

void add_changes_tests(Suite *suite)
{
	TCase *tcase = tcase_create("changes");
	tcase_add_test(tcase, changes_are_found);
	tcase_add_test(tcase, regions_are_told_apart);
	suite_add_tcase(suite, tcase);
}
