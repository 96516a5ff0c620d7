/* address.c: network addresses as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

int host_port_parse(const char *text, uint16_t default_port, struct host_port *ret_host_port, struct err *err)
{
	const char *host = text, *end, *port = NULL;
	if (*text == '[') {
		host = text + 1;
		end = strchr(host, ']');
		if (!end || (end[1] && end[1] != ':'))
			return err_set(err, -EINVAL, "'%s' is no address: wanted [IPV6] or [IPV6]:PORT", text);
		if (end[1])
			port = end + 2;
	} else {
		end = strchr(text, ':');
		if (end && strchr(end + 1, ':'))
			end = NULL; /* a bare IPv6 address */
		if (end)
			port = end + 1;
		else
			end = text + strlen(text);
	}

	struct host_port out = { .port = default_port };
	size_t len = (size_t)(end - host);
	if (len == 0 || len >= sizeof(out.host))
		return err_set(err, -EINVAL, "'%s' is no address: wanted HOST, HOST:PORT, [IPV6] or [IPV6]:PORT", text);
	memcpy(out.host, host, len);
	if (port) {
		uint64_t number;
		if (number_parse(port, UINT16_MAX, &number) < 0 || number == 0)
			return err_set(err, -EINVAL, "'%s': the port must be a number from 1 to 65535", text);
		out.port = (uint16_t)number;
	}
	*ret_host_port = out;
	return 0;
}

int host_port_resolve(const struct host_port *host_port, struct addrinfo **ret_list, struct err *err)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	char port[8];
	snprintf(port, sizeof(port), "%u", host_port->port);
	int r = getaddrinfo(host_port->host, port, &hints, ret_list);
	if (r != 0)
		return err_set(err, -EHOSTUNREACH, "%s: %s", host_port->host, gai_strerror(r));
	return 0;
}

struct address_text address_format(const struct sockaddr *address)
{
	struct address_text out = { "unknown address" };
	char host[INET6_ADDRSTRLEN];
	if (address && address->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, address, sizeof(in));
		inet_ntop(AF_INET, &in.sin_addr, host, sizeof(host));
		if (in.sin_port)
			snprintf(out.text, sizeof(out.text), "%s:%u", host, ntohs(in.sin_port));
		else
			snprintf(out.text, sizeof(out.text), "%s", host);
	} else if (address && address->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;
		memcpy(&in6, address, sizeof(in6));
		inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof(host));
		if (in6.sin6_port)
			snprintf(out.text, sizeof(out.text), "[%s]:%u", host, ntohs(in6.sin6_port));
		else
			snprintf(out.text, sizeof(out.text), "[%s]", host);
	}
	return out;
}
