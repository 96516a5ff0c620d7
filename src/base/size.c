/* size.c: sizes as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char units[] = "KMGT";

/* Parses the digits and says where they end. */
static int digits_parse(const char *text, uint64_t *ret_number, const char **ret_end)
{
	int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
	const char *digits = base == 16 ? text + 2 : text;
	/* strtoull() would take a sign, white space and a second 0x. */
	if (base == 16 ? !isxdigit((unsigned char)*digits) : !isdigit((unsigned char)*digits))
		return -EINVAL;

	char *end;
	errno = 0;
	unsigned long long number = strtoull(text, &end, base);
	if (errno)
		return -errno;
	*ret_number = number;
	*ret_end = end;
	return 0;
}

int number_parse(const char *text, uint64_t max, uint64_t *ret_number)
{
	uint64_t number;
	const char *end;
	int r = digits_parse(text, &number, &end);
	if (r < 0)
		return r;
	if (*end)
		return -EINVAL;
	if (number > max)
		return -ERANGE;
	*ret_number = number;
	return 0;
}

int size_parse(const char *text, uint64_t *ret_size)
{
	uint64_t size;
	const char *end;
	int r = digits_parse(text, &size, &end);
	if (r < 0)
		return r;
	if (*end) {
		const char *unit = strchr(units, toupper((unsigned char)*end));
		if (!unit || end[1])
			return -EINVAL;
		unsigned int shift = 10 * ((unsigned int)(unit - units) + 1);
		if (size > UINT64_MAX >> shift)
			return -ERANGE;
		size <<= shift;
	}
	*ret_size = size;
	return 0;
}

struct size_text size_format(uint64_t size)
{
	int unit = -1;
	while (size && size % 1024 == 0 && units[unit + 1]) {
		size /= 1024;
		unit++;
	}

	struct size_text out;
	if (unit < 0)
		snprintf(out.text, sizeof(out.text), "%" PRIu64 " bytes", size);
	else
		snprintf(out.text, sizeof(out.text), "%" PRIu64 " %ciB", size, units[unit]);
	return out;
}
