/* connect.c: from a name to the views of a daemon, within one time limit. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/clock.h"
#include "libmrshare/conn.h"

/* Each address in turn gets its share of the time left. A daemon's own rejection is final. */
static int try_addresses(struct mrshare *conn, struct addrinfo *sources, struct addrinfo *dests, struct err *err)
{
	int r = 0, count = 0;
	for (struct addrinfo *dest = dests; dest; dest = dest->ai_next)
		count++;
	for (struct addrinfo *dest = dests; dest; dest = dest->ai_next, count--) {
		struct addrinfo *source = sources;
		while (source && source->ai_family != dest->ai_family)
			source = source->ai_next;
		if (sources && !source) {
			r = r < 0 ? r : err_set(err, -EAFNOSUPPORT, "the source is of another address family");
			continue;
		}
		uint64_t share = clock_ms() + (uint64_t)time_left(conn->deadline_ms) / (uint64_t)count;
		r = handshake(conn, source ? source->ai_addr : NULL, dest->ai_addr, share, err);
		if (r == 0 || conn->rejected)
			return r;
	}
	return r;
}

/* Up from here: the service thread runs, the views are read. */
static int come_up(struct mrshare *conn, struct err *err)
{
	conn->heard_ms = clock_ms();
	conn->noticed = conn->ack_due = false;
	conn->notice = (struct peer_notice){ 0 };
	conn->state = CONN_UP;
	int r = service_start(conn, err);
	if (r == 0)
		r = views_refresh(conn, false, err);
	if (r < 0) {
		service_stop(conn);
		endpoint_close(conn);
		snapshot_free(&conn->snapshot);
		uint64_t count;
		ssize_t ignored = read(conn->dead_fd, &count, sizeof(count));
		(void)ignored;
		conn->granted = 0;
		conn->state = CONN_IDLE;
	}
	return r;
}

static int resolve_name(const char *text, uint16_t default_port, struct addrinfo **ret_list, struct err *err)
{
	struct host_port host_port;
	int r = host_port_parse(text, default_port, &host_port, err);
	return r < 0 ? r : host_port_resolve(&host_port, ret_list, err);
}

static int connect_to(struct mrshare *conn, const char *address, struct err *err)
{
	struct addrinfo *dests = NULL, *sources = NULL;
	snprintf(conn->address, sizeof(conn->address), "%s", address);
	conn->deadline_ms = clock_ms() + conn->timeout_ms;
	conn->rejected = false;
	int r = resolve_name(address, MRSHARE_DEFAULT_PORT, &dests, err);
	if (r == 0 && conn->source) {
		r = resolve_name(conn->source, 0, &sources, err);
		if (r < 0)
			err_prefix(err, "source address");
	}
	if (r == 0) {
		r = try_addresses(conn, sources, dests, err);
		if (r < 0)
			err_prefix(err, "%s", address);
	}
	if (r == 0)
		r = come_up(conn, err);
	if (dests)
		freeaddrinfo(dests);
	if (sources)
		freeaddrinfo(sources);
	conn->deadline_ms = UINT64_MAX;
	return r;
}

int mrshare_connect(struct mrshare *conn, const char *address)
{
	struct err err;
	conn_begin(conn);
	int r = conn->state == CONN_IDLE ? connect_to(conn, address, &err)
					 : err_set(&err, -EISCONN, "connected before: a handle connects once");
	conn_end(conn);
	return r < 0 ? error_publish(&err) : 0;
}
