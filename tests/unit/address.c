/* address.c: network addresses as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "unit.h"

static void assert_address(const char *text, const char *host, uint16_t port)
{
	struct host_port out;
	struct err err = { 0 };
	ck_assert_msg(host_port_parse(text, 7471, &out, &err) == 0, "'%s': %s", text, err.text);
	ck_assert_str_eq(out.host, host);
	ck_assert_uint_eq(out.port, port);
}

START_TEST(addresses)
{
	assert_address("10.0.0.1", "10.0.0.1", 7471);
	assert_address("10.0.0.1:1", "10.0.0.1", 1);
	assert_address("host.example:65535", "host.example", 65535);
	assert_address("fe80::1", "fe80::1", 7471);
	assert_address("::", "::", 7471);
	assert_address("[fe80::1%eth0]", "fe80::1%eth0", 7471);
	assert_address("[::1]:80", "::1", 80);
}
END_TEST

START_TEST(no_addresses)
{
	const char *const texts[] = { "", ":", ":80", "[", "[]", "[]:80", "[::1", "[::1]x", "[::1]:", "h:", "h:0",
		"h:65536", "h:-1", "h:x", "h: 1", "h:1 ", "[::1]:0" };
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct host_port out = { .host = "untouched", .port = 9 };
		struct err err = { 0 };
		int r = host_port_parse(texts[i], 7471, &out, &err);
		ck_assert_msg(r == -EINVAL, "'%s': wanted -EINVAL, got %d", texts[i], r);
		ck_assert_str_eq(out.host, "untouched");
		ck_assert_str_ne(err.text, "");
	}
	char text[400];
	memset(text, 'h', sizeof(text));
	text[256] = '\0';
	struct host_port out;
	ck_assert_int_eq(host_port_parse(text, 1, &out, NULL), -EINVAL);
	text[255] = '\0';
	ck_assert_int_eq(host_port_parse(text, 1, &out, NULL), 0);
	ck_assert_uint_eq(strlen(out.host), 255);
}
END_TEST

START_TEST(resolving)
{
	struct host_port v4 = { .host = "127.0.0.1", .port = 7471 }, v6 = { .host = "::1", .port = 1 };
	struct host_port none = { .host = "a..b", .port = 1 };
	struct addrinfo *list;
	struct err err = { 0 };
	ck_assert_int_eq(host_port_resolve(&v4, &list, &err), 0);
	ck_assert_str_eq(address_format(list->ai_addr).text, "127.0.0.1:7471");
	freeaddrinfo(list);
	ck_assert_int_eq(host_port_resolve(&v6, &list, &err), 0);
	ck_assert_str_eq(address_format(list->ai_addr).text, "[::1]:1");
	freeaddrinfo(list);
	ck_assert_int_eq(host_port_resolve(&none, &list, &err), -EHOSTUNREACH);
	ck_assert_ptr_nonnull(strstr(err.text, "a..b"));
}
END_TEST

START_TEST(formats)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001) };
	ck_assert_str_eq(address_format((struct sockaddr *)&in).text, "10.0.0.1");
	in.sin_port = htons(7471);
	ck_assert_str_eq(address_format((struct sockaddr *)&in).text, "10.0.0.1:7471");

	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	ck_assert_int_eq(inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr), 1);
	ck_assert_str_eq(address_format((struct sockaddr *)&in6).text, "[fe80::1]");
	in6.sin6_port = htons(1);
	ck_assert_str_eq(address_format((struct sockaddr *)&in6).text, "[fe80::1]:1");

	struct sockaddr other = { .sa_family = AF_UNIX };
	ck_assert_str_eq(address_format(&other).text, "unknown address");
	ck_assert_str_eq(address_format(NULL).text, "unknown address");
}
END_TEST

Suite *suite_address(void)
{
	const TTest *const tests[] = { addresses, no_addresses, resolving, formats };
	return suite_of("address", tests, sizeof(tests) / sizeof(tests[0]));
}
