/* own_addresses.c: which addresses are this host's. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * They come and go, so they are read anew for a peer that comes a while after the last time. The kernel lists them
 * under a lock that the configuration of any interface holds, so a worker does it, once for all peers that wait for it.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/container.h"
#include "base/log.h"
#include "publish/peer.h"

struct host_address host_address_of(const struct sockaddr *address)
{
	struct host_address out = { .family = address->sa_family };
	if (address->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, address, sizeof(in));
		memcpy(out.bytes, &in.sin_addr, sizeof(in.sin_addr));
	} else if (address->sa_family == AF_INET6) {
		struct sockaddr_in6 in6;
		memcpy(&in6, address, sizeof(in6));
		memcpy(out.bytes, &in6.sin6_addr, sizeof(in6.sin6_addr));
		if (IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
			out = (struct host_address){ .family = AF_INET };
			memcpy(out.bytes, in6.sin6_addr.s6_addr + 12, 4);
		}
	}
	return out;
}

bool host_address_equal(const struct host_address *a, const struct host_address *b)
{
	return a->family == b->family && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

static int copy_addresses(struct own_addresses *own, const struct ifaddrs *list)
{
	size_t count = 0;
	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
		count += entry->ifa_addr != NULL;
	own->found_count = 0;
	own->found = calloc(count + 1, sizeof(*own->found));
	if (!own->found)
		return -ENOMEM;
	for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next) {
		if (entry->ifa_addr)
			own->found[own->found_count++] = host_address_of(entry->ifa_addr);
	}
	return 0;
}

static void read_run(struct job *job)
{
	struct own_addresses *own = container_of(job, struct own_addresses, job);
	struct ifaddrs *list;
	own->result = getifaddrs(&list) < 0 ? -errno : 0;
	if (own->result < 0)
		return;
	own->result = copy_addresses(own, list);
	freeifaddrs(list);
}

static void read_done(struct job *job)
{
	struct publish *publish = container_of(job, struct publish, own_addresses.job);
	struct own_addresses *own = &publish->own_addresses;
	own->runs = false;
	own->were_read = true;
	own->read_ms = event_now_ms(publish->loop);
	free(own->list);
	own->list = NULL;
	own->count = 0;
	if (own->result == 0) {
		own->list = own->found;
		own->count = own->found_count;
	} else {
		log_error("this host's addresses cannot be read, so no peer is admitted by them: %s",
			strerror(-own->result));
	}
	peers_go_on(publish);
	publish_settle_soon(publish);
}

int own_addresses_have(struct publish *publish, const struct host_address *host, bool *ret_have)
{
	struct own_addresses *own = &publish->own_addresses;
	if (!own->were_read || event_now_ms(publish->loop) - own->read_ms >= OWN_ADDRESSES_MS) {
		if (!own->runs) {
			own->runs = true;
			own->job = (struct job){ .run = read_run, .done = read_done };
			worker_pool_submit(publish->destroyer, &own->job);
		}
		return -EAGAIN;
	}
	*ret_have = false;
	for (size_t i = 0; i < own->count && !*ret_have; i++)
		*ret_have = host_address_equal(&own->list[i], host);
	return 0;
}
