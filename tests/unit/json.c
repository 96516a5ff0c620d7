/* json.c: the view's JSON form, both ways, and what is none. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mrshare.h"
#include "unit.h"

static const struct mrshare_view value = {
	.rkey = 0x01020304,
	.addr = 0x1122334455667788,
	.size = 0x4000,
	.device_name = "mlx5_0",
};

static const char *const golden =
	"{\"rkey\":16909060,\"addr\":1234605616436508552,\"size\":16384,\"device_name\":\"mlx5_0\"}";

static void assert_json(const char *json, const struct mrshare_view *wanted)
{
	struct mrshare_view view;
	int r = mrshare_view_from_json(json, &view);
	ck_assert_msg(r == 0, "%s: wanted 0, got %d", json, r);
	ck_assert_uint_eq(view.rkey, wanted->rkey);
	ck_assert_uint_eq(view.addr, wanted->addr);
	ck_assert_uint_eq(view.size, wanted->size);
	ck_assert_str_eq(view.device_name, wanted->device_name);
}

static void assert_no_json(const char *json)
{
	struct mrshare_view view, untouched;
	memset(&view, 0xa5, sizeof(view));
	memset(&untouched, 0xa5, sizeof(untouched));
	int r = mrshare_view_from_json(json, &view);
	ck_assert_msg(r == -EBADMSG, "%.200s: wanted -EBADMSG, got %d", json, r);
	ck_assert_mem_eq(&view, &untouched, sizeof(view));
}

START_TEST(both_ways)
{
	char *json;
	ck_assert_int_eq(mrshare_view_to_json(&value, &json), 0);
	ck_assert_str_eq(json, golden);
	assert_json(json, &value);
	free(json);
}
END_TEST

/* Terminals obey DEL and U+0080 to U+009F as they do what is below U+0020. */
START_TEST(nothing_in_it_that_a_terminal_obeys)
{
	for (unsigned int c = 1; c < 0x100; c++) {
		struct mrshare_view view = value;
		char *json;
		if (c < 0x80)
			snprintf(view.device_name, sizeof(view.device_name), "a%cb", (int)c);
		else
			snprintf(view.device_name, sizeof(view.device_name), "a%c%cb", 0xc0 | (int)(c >> 6),
				0x80 | (int)(c & 0x3f));
		ck_assert_int_eq(mrshare_view_to_json(&view, &json), 0);
		for (const unsigned char *byte = (unsigned char *)json; *byte; byte++) {
			bool is_control = *byte < 0x20 || *byte == 0x7f || (*byte == 0xc2 && byte[1] <= 0x9f);
			ck_assert_msg(!is_control, "U+%04X: wanted it escaped, got %s", c, json);
		}
		assert_json(json, &view);
		free(json);
	}
}
END_TEST

START_TEST(extremes)
{
	struct mrshare_view views[] = {
		{ .rkey = UINT32_MAX, .addr = UINT64_MAX, .size = UINT64_MAX, .device_name = "" },
		{ .rkey = 0, .addr = (1ull << 53) + 1, .size = 1ull << 63, .device_name = "a\"b\\c/d e\x01\x7f" },
		{ .addr = INT64_MAX, .size = UINT64_MAX - 1, .device_name = "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80" },
	};
	for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
		char *json;
		ck_assert_int_eq(mrshare_view_to_json(&views[i], &json), 0);
		assert_json(json, &views[i]);
		free(json);
	}
	memset(views[0].device_name, 'n', 63);
	char *json;
	ck_assert_int_eq(mrshare_view_to_json(&views[0], &json), 0);
	assert_json(json, &views[0]);
	free(json);

	json = NULL;
	views[0].device_name[63] = 'n';
	ck_assert_int_eq(mrshare_view_to_json(&views[0], &json), -EINVAL);
	strcpy(views[1].device_name, "\xff");
	ck_assert_int_eq(mrshare_view_to_json(&views[1], &json), -EINVAL);
	ck_assert_ptr_null(json);
}
END_TEST

START_TEST(written_otherwise)
{
	assert_json(" {\n \"device_name\" : \"mlx5\\u005f0\", \"size\" : 16384,\t\"addr\" : 1234605616436508552,"
		    "\r\n \"\\u0072key\" : 16909060 }\n ",
		&value);
	/* Other keys are ignored, whatever is in them. */
	assert_json("{\"rkey\":16909060,\"addr\":1234605616436508552,\"size\":16384,\"device_name\":\"mlx5_0\","
		    "\"more\":{\"rkey\":[1,{\"addr\":null}],\"size\":-1,\"f\":1.5e3}}",
		&value);
	struct mrshare_view view = value;
	strcpy(view.device_name, "a\":{b:[");
	assert_json("{\"rkey\":16909060,\"addr\":1234605616436508552,\"size\":16384,\"device_name\":\"a\\\":{b:[\"}",
		&view);
}
END_TEST

/* Each with one value that must not pass, `%s` the place of it. */
START_TEST(no_numbers)
{
	const char *const forms[] = {
		"{\"rkey\":%s,\"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":%s,\"size\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"size\":%s,\"device_name\":\"d\"}",
	};
	const char *const numbers[] = { "-1", "-9223372036854775808", "-99999999999999999999", "18446744073709551616",
		"99999999999999999999999", "1.0", "1e0", "1E2", "0.5", "1e400", "NaN", "Infinity", "-Infinity", "01",
		"+1", "0x1", "\"1\"", "null", "true", "[]", "[1]", "{}", "", "1 2", "'1'" };
	for (size_t form = 0; form < sizeof(forms) / sizeof(forms[0]); form++) {
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
			char *json;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
			ck_assert_int_gt(asprintf(&json, forms[form], numbers[i]), 0);
#pragma GCC diagnostic pop
			assert_no_json(json);
			free(json);
		}
	}
	assert_no_json("{\"rkey\":4294967296,\"addr\":1,\"size\":1,\"device_name\":\"d\"}");
}
END_TEST

START_TEST(no_names)
{
	char long_name[] =
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
		"nnnnnnnnnnnnnnn\"}";
	assert_no_json(long_name);
	const char *const names[] = { "1", "null", "[\"d\"]", "{\"d\":1}", "\"a\\u0000b\"", "\"\\u0000\"", "\"\xff\"",
		"\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "'d'", "\"a\nb\"", "\"a\x01-b\"",
		"\"\\x41\"", "\"d", "d", "" };
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *json;
		ck_assert_int_gt(asprintf(&json, "{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":%s}", names[i]), 0);
		assert_no_json(json);
		free(json);
	}
}
END_TEST

START_TEST(no_objects)
{
	const char *const texts[] = { "", " ", "null", "1", "\"rkey\"", "[]", "{}", "{", "}", "{}{}", "\xef\xbb\xbf{}",
		"{\"addr\":1,\"size\":1,\"device_name\":\"d\"}", "{\"rkey\":1,\"size\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"device_name\":\"d\"}", "{\"rkey\":1,\"addr\":1,\"size\":1}",
		"{\"rkey\":1,\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"addr\":2,\"size\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"s\\u0069ze\":1,\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\",\"device_name\":\"d\"}",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\",\"x\":1,\"x\":1}",
		"{\"Rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"[{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}]",
		"{\"view\":{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}}",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"} x",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}{}",
		"{\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\",}",
		"{\"rkey\":1 \"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"{rkey:1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"{'rkey':1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}",
		"{/* 1 */\"rkey\":1,\"addr\":1,\"size\":1,\"device_name\":\"d\"}" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_no_json(texts[i]);

	/* Cut at each place. */
	for (size_t len = 0; len < strlen(golden); len++) {
		char *json = strndup(golden, len);
		assert_no_json(json);
		free(json);
	}
}
END_TEST

START_TEST(too_deep_or_long)
{
	enum { SIZE = 200000 };
	char *json = malloc(SIZE + 1);
	ck_assert_ptr_nonnull(json);
	memset(json, '[', SIZE);
	json[SIZE] = '\0';
	assert_no_json(json);
	json[1000] = '\0';
	assert_no_json(json);

	snprintf(json, SIZE, "{\"x\":[[[[[[[[1]]]]]]]],%s", golden + 1);
	assert_no_json(json);
	snprintf(json, SIZE, "{\"x\":[[[[1]]]],%s", golden + 1);
	assert_json(json, &value);

	/* A valid view behind more white space than any text of one has. */
	memset(json, ' ', SIZE);
	strcpy(json + SIZE - strlen(golden), golden);
	assert_no_json(json);
	assert_json(json + SIZE - 1000, &value);
	free(json);
}
END_TEST

Suite *suite_json(void)
{
	const TTest *const tests[] = { both_ways, nothing_in_it_that_a_terminal_obeys, extremes, written_otherwise,
		no_numbers, no_names, no_objects, too_deep_or_long };
	return suite_of("json", tests, sizeof(tests) / sizeof(tests[0]));
}
