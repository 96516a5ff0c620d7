/* view.c: the view of registered memory: made from an MR, sliced, and in its wire, JSON and readable forms. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "base/cursor.h"
#include "base/err.h"
#include "base/json.h"
#include "base/range.h"
#include "mrshare.h"

enum {
	HEADER_SIZE = 28, /* of the wire form, before the name */
	JSON_DEPTH_MAX = 8,
	JSON_SIZE_MAX = 65536,
};

/* Whether `name` can be a device name: UTF-8 without a NUL, and not too long. */
static bool name_is_valid(const void *name, size_t len)
{
	if (len > MRSHARE_DEVICE_NAME_MAX || memchr(name, '\0', len))
		return false;
	for (size_t i = 0; i < len;) {
		size_t n = text_utf8_sequence((const char *)name + i, len - i);
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

static size_t view_name_len(const struct mrshare_view *view)
{
	return strnlen(view->device_name, sizeof(view->device_name));
}

int mrshare_view_from_mr(const struct ibv_mr *mr, uint64_t iova, struct mrshare_view *ret_view)
{
	const char *name = mr->context->device->name;
	size_t len = strnlen(name, sizeof(mr->context->device->name));
	if (!name_is_valid(name, len))
		return -EINVAL;

	struct mrshare_view view = { .rkey = mr->rkey, .addr = iova, .size = mr->length };
	memcpy(view.device_name, name, len);
	*ret_view = view;
	return 0;
}

int mrshare_view_slice(const struct mrshare_view *view, uint64_t offset, uint64_t size, struct mrshare_view *ret_slice)
{
	if (!range_fits(offset, size, view->size) || range_overflows(view->addr, offset))
		return -ERANGE;
	struct mrshare_view slice = *view;
	slice.addr += offset;
	slice.size = size;
	*ret_slice = slice;
	return 0;
}

bool mrshare_view_equal(const struct mrshare_view *a, const struct mrshare_view *b)
{
	return a->rkey == b->rkey && a->addr == b->addr && a->size == b->size &&
	       strncmp(a->device_name, b->device_name, sizeof(a->device_name)) == 0;
}

int mrshare_view_format(const struct mrshare_view *view, char *buf, size_t size)
{
	char name[sizeof(view->device_name) + 1] = "";
	memcpy(name, view->device_name, view_name_len(view));
	text_sanitize(name);
	return snprintf(buf, size, "rkey 0x%08" PRIx32 ", addr 0x%" PRIx64 ", size 0x%" PRIx64 ", device %s",
		view->rkey, view->addr, view->size, name);
}

ssize_t mrshare_view_encode(const struct mrshare_view *view, void *buf, size_t size)
{
	size_t len = view_name_len(view);
	if (!name_is_valid(view->device_name, len))
		return -EINVAL;
	if (size < HEADER_SIZE + len)
		return -ENOSPC;

	struct writer w = writer_init(buf, size);
	write_u32(&w, view->rkey);
	write_u64(&w, view->addr);
	write_u64(&w, view->size);
	write_u64(&w, len);
	write_bytes(&w, view->device_name, len);
	return (ssize_t)(HEADER_SIZE + len);
}

ssize_t mrshare_view_decode(const void *buf, size_t size, struct mrshare_view *ret_view)
{
	struct reader r = reader_init(buf, size);
	struct mrshare_view view = { .rkey = read_u32(&r) };
	view.addr = read_u64(&r);
	view.size = read_u64(&r);
	uint64_t len = read_u64(&r);
	if (r.failed)
		return -EMSGSIZE;
	if (len > MRSHARE_DEVICE_NAME_MAX)
		return -EBADMSG;
	read_bytes(&r, view.device_name, (size_t)len);
	if (r.failed)
		return -EMSGSIZE;
	if (!name_is_valid(view.device_name, (size_t)len))
		return -EBADMSG;
	*ret_view = view;
	return (ssize_t)(HEADER_SIZE + len);
}

/* Adds a value that the object then owns; false where there is no memory for it. */
static bool add(struct json_object *object, const char *key, struct json_object *value)
{
	if (value && json_object_object_add(object, key, value) == 0)
		return true;
	json_object_put(value);
	return false;
}

int mrshare_view_to_json(const struct mrshare_view *view, char **ret_json)
{
	size_t len = view_name_len(view);
	if (!name_is_valid(view->device_name, len))
		return -EINVAL;
	struct json_object *object = json_object_new_object();
	if (!object)
		return -ENOMEM;

	char *json = NULL;
	if (add(object, "rkey", json_object_new_uint64(view->rkey)) &&
		add(object, "addr", json_object_new_uint64(view->addr)) &&
		add(object, "size", json_object_new_uint64(view->size)) &&
		add(object, "device_name", json_object_new_string_len(view->device_name, (int)len)))
		json = json_text(object);
	json_object_put(object);
	if (!json)
		return -ENOMEM;
	*ret_json = json;
	return 0;
}

/* Looks at what json-c lets pass in its strict mode. Returns the number of keys of the outermost object, equal ones
 * counted each, of which json-c keeps the last; -1 where there is an integer beyond 64 bits, which it cuts to the
 * largest, a string in single quotes, or a control character in a string. */
static int scan_json(const char *json)
{
	int keys = 0, depth = 0;
	bool in_string = false;
	for (const char *c = json; *c; c++) {
		if (in_string && (unsigned char)*c < 0x20)
			return -1;
		if (in_string && *c == '\\' && c[1])
			c++;
		else if (*c == '"')
			in_string = !in_string;
		else if (in_string)
			continue;
		else if (*c == '\'')
			return -1;
		else if (*c == '{' || *c == '[')
			depth++;
		else if (*c == '}' || *c == ']')
			depth--;
		else if (*c == ':' && depth == 1)
			keys++;
		else if (*c >= '0' && *c <= '9') {
			char *end;
			errno = 0;
			strtoull(c, &end, 10);
			if (errno)
				return -1;
			c = end - 1;
		}
	}
	return keys;
}

/* What a text of `len` bytes is, or NULL. */
static struct json_object *parse(const char *json, size_t len, int flags)
{
	struct json_tokener *tokener = json_tokener_new_ex(JSON_DEPTH_MAX);
	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, flags);
	/* With its NUL, so that the parser sees the end. */
	struct json_object *object = json_tokener_parse_ex(tokener, json, (int)len + 1);
	json_tokener_free(tokener);
	return object;
}

/* json-c's strict mode takes bytes above 0x7f for control characters from 0.17 on: it is shown the text without them.
 */
static bool is_strict(const char *json, size_t len)
{
	char ascii[JSON_SIZE_MAX];
	for (size_t i = 0; i <= len; i++)
		ascii[i] = (unsigned char)json[i] < 0x80 ? json[i] : 'x';
	struct json_object *object = parse(ascii, len, JSON_TOKENER_STRICT);
	json_object_put(object);
	return object != NULL;
}

/* The object that a text is, or NULL. */
static struct json_object *parse_object(const char *json)
{
	size_t len = strnlen(json, JSON_SIZE_MAX);
	if (len == JSON_SIZE_MAX || !is_strict(json, len))
		return NULL;
	struct json_object *object = parse(json, len, JSON_TOKENER_VALIDATE_UTF8);
	if (object && json_object_is_type(object, json_type_object) &&
		json_object_object_length(object) == scan_json(json))
		return object;
	json_object_put(object);
	return NULL;
}

static bool get_uint(const struct json_object *object, const char *key, uint64_t max, uint64_t *ret_value)
{
	struct json_object *value;
	/* get_int64 saturates above INT64_MAX: negative is what was written with a minus. */
	if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_int) ||
		json_object_get_int64(value) < 0 || json_object_get_uint64(value) > max)
		return false;
	*ret_value = json_object_get_uint64(value);
	return true;
}

static bool get_name(const struct json_object *object, const char *key, char ret_name[MRSHARE_DEVICE_NAME_MAX + 1])
{
	struct json_object *value;
	if (!json_object_object_get_ex(object, key, &value) || !json_object_is_type(value, json_type_string))
		return false;
	size_t len = (size_t)json_object_get_string_len(value);
	if (!name_is_valid(json_object_get_string(value), len))
		return false;
	memcpy(ret_name, json_object_get_string(value), len);
	ret_name[len] = '\0';
	return true;
}

int mrshare_view_from_json(const char *json, struct mrshare_view *ret_view)
{
	struct json_object *object = parse_object(json);
	if (!object)
		return -EBADMSG;
	struct mrshare_view view = { 0 };
	uint64_t rkey;
	bool ok = get_uint(object, "rkey", UINT32_MAX, &rkey) && get_uint(object, "addr", UINT64_MAX, &view.addr) &&
		  get_uint(object, "size", UINT64_MAX, &view.size) && get_name(object, "device_name", view.device_name);
	json_object_put(object);
	if (!ok)
		return -EBADMSG;
	view.rkey = (uint32_t)rkey;
	*ret_view = view;
	return 0;
}
