/* address.h: network addresses as people write them. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <netdb.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/err.h"

struct host_port {
	char host[256];
	uint16_t port;
};

/* HOST, HOST:PORT, [IPV6] or [IPV6]:PORT; a bare IPv6 address has no port. -EINVAL. */
int host_port_parse(const char *text, uint16_t default_port, struct host_port *ret_host_port, struct err *err);
/* The addresses of a host, for freeaddrinfo(). Asks the resolver: may block. -EINVAL, -EHOSTUNREACH. */
int host_port_resolve(const struct host_port *host_port, struct addrinfo **ret_list, struct err *err);

struct address_text {
	char text[64];
};
/* "10.0.0.1:7471", "[fe80::1]:7471"; without ":PORT" where the port is 0. */
struct address_text address_format(const struct sockaddr *address);

#endif
