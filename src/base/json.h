/* json.h: JSON as text that may go to a terminal. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <json-c/json.h>

/* One line without its end and without a control character: they are escaped. The caller frees it. NULL where there is
 * no memory for it, or the object is NULL. */
char *json_text(struct json_object *object);

#endif
