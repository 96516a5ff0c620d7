/* admission.c: who may connect, and with which rights. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/err.h"
#include "publish/peer.h"

/* An address without its port; an IPv4 address mapped into IPv6 is an IPv4 address. */
struct host_address {
	int family;
	uint8_t bytes[16]; /* network order */
};

static struct host_address host_address_of(const struct sockaddr *address)
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

static bool allow_matches(const struct publish_allow *allow, const struct host_address *host)
{
	unsigned int whole = allow->prefix_len / 8, rest = allow->prefix_len % 8;
	if (allow->family != host->family || memcmp(allow->address, host->bytes, whole) != 0)
		return false;
	return rest == 0 || (allow->address[whole] ^ host->bytes[whole]) >> (8 - rest) == 0;
}

/* Asked anew for each peer: addresses come and go. */
static bool is_own_address(const struct host_address *host)
{
	struct ifaddrs *list;
	if (getifaddrs(&list) < 0)
		return false;
	bool found = false;
	for (const struct ifaddrs *entry = list; entry && !found; entry = entry->ifa_next) {
		if (!entry->ifa_addr)
			continue;
		struct host_address own = host_address_of(entry->ifa_addr);
		found = own.family == host->family && memcmp(own.bytes, host->bytes, sizeof(own.bytes)) == 0;
	}
	freeifaddrs(list);
	return found;
}

/* Whether the address may connect at all; first match wins. */
static bool is_allowed(const struct publish_config *config, const struct sockaddr *address, bool *ret_may_write)
{
	struct host_address host = host_address_of(address);
	if (host.family != AF_INET && host.family != AF_INET6)
		return false;
	for (size_t i = 0; i < config->allow_count; i++) {
		if (allow_matches(&config->allow[i], &host)) {
			*ret_may_write = config->allow[i].may_write;
			return true;
		}
	}
	if (config->allow_count || !is_own_address(&host))
		return false;
	*ret_may_write = true;
	return true;
}

int reject_set(struct peer_reject *reject, enum peer_reject_code code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(reject->text, sizeof(reject->text), format, args);
	va_end(args);
	text_sanitize(reject->text);
	reject->code = (uint16_t)code;
	return -ECONNREFUSED;
}

static int check_request(const struct cm_event *event, struct peer_request *ret_request, struct peer_reject *reject)
{
	const struct rdma_conn_param *param = &event->param;
	if (peer_request_read(param->private_data, param->private_data_len, ret_request) < 0)
		return reject_set(
			reject, PEER_REJECT_MALFORMED, "this is mrshared, and the request is none of its protocol");
	if (ret_request->version_min > PEER_VERSION || ret_request->version_max < PEER_VERSION)
		return reject_set(reject, PEER_REJECT_VERSION,
			"mrshared speaks protocol version %d, the peer versions %u to %u", PEER_VERSION,
			ret_request->version_min, ret_request->version_max);
	/* The event says what the peer calls its initiator_depth: the READs that it may have outstanding. */
	if (param->responder_resources == 0)
		return reject_set(reject, PEER_REJECT_RESOURCES, "the peer's initiator_depth is 0: it could not read");
	return 0;
}

static int check_device(struct publish *publish, const struct ibv_context *context, struct publish_device **ret_device,
	struct peer_reject *reject)
{
	struct publish_device *device = publish_device_find(publish, context);
	if (!device)
		return reject_set(reject, PEER_REJECT_REGISTERING, "nothing is published on this device");
	if (device->drop_count || atomic_load(&device->device->gone))
		return reject_set(reject, PEER_REJECT_REGISTERING, "device %s is not published at the moment",
			device->device->name);
	if (!device->serves)
		return reject_set(reject, PEER_REJECT_REGISTERING,
			"device %s has come back, and mappings are being registered on it: try again",
			device->device->name);
	*ret_device = device;
	return 0;
}

static int check_room(const struct publish *publish, struct peer_reject *reject)
{
	if (publish->phase != PHASE_SERVING)
		return reject_set(reject, PEER_REJECT_RESOURCES, "mrshared is about to end");
	if (publish->admitted + publish->half_open >= publish->config->max_peers)
		return reject_set(reject, PEER_REJECT_FULL, "full: mrshared serves %u peers at most (--max-peers)",
			publish->config->max_peers);
	if (publish->half_open >= HALF_OPEN_MAX)
		return reject_set(
			reject, PEER_REJECT_FULL, "too many peers are connecting at the same time: try again");
	return 0;
}

int admission_check(
	struct publish *publish, const struct cm_event *event, struct terms *ret_terms, struct peer_reject *ret_reject)
{
	/* Whom we do not know learns nothing else. */
	const struct sockaddr *address = cm_peer_addr(event->id);
	bool may_write;
	if (!is_allowed(publish->config, address, &may_write))
		return reject_set(ret_reject, PEER_REJECT_DENIED, "%s is not allowed here (--allow)",
			address_format(address).text);

	struct peer_request request;
	struct publish_device *device = NULL;
	int r = check_request(event, &request, ret_reject);
	if (r == 0)
		r = check_room(publish, ret_reject);
	if (r == 0)
		r = check_device(publish, event->id->verbs, &device, ret_reject);
	if (r < 0)
		return r;

	uint32_t granted = MRSHARE_READ;
	if (may_write && request.flags & PEER_WANTS_WRITE)
		granted = device->rights;
	int max = device->device->attr.max_qp_rd_atom;
	uint8_t depth = event->param.responder_resources;
	*ret_terms = (struct terms){ device, granted, depth < max ? depth : (uint8_t)max };
	return 0;
}
