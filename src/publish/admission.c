/* admission.c: who may connect, and with which rights. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/err.h"
#include "publish/peer.h"

static bool allow_matches(const struct publish_allow *allow, const struct host_address *host)
{
	unsigned int whole = allow->prefix_len / 8, rest = allow->prefix_len % 8;
	if (allow->family != host->family || memcmp(allow->address, host->bytes, whole) != 0)
		return false;
	return rest == 0 || (allow->address[whole] ^ host->bytes[whole]) >> (8 - rest) == 0;
}

/* Whether the address may connect at all; first match wins. -EAGAIN: not known yet. */
static int find_rights(struct publish *publish, const struct host_address *host, bool *ret_allowed, bool *ret_may_write)
{
	const struct publish_config *config = publish->config;
	*ret_allowed = false;
	if (host->family != AF_INET && host->family != AF_INET6)
		return 0;
	for (size_t i = 0; i < config->allow_count && !*ret_allowed; i++) {
		*ret_allowed = allow_matches(&config->allow[i], host);
		*ret_may_write = config->allow[i].may_write;
	}
	if (config->allow_count)
		return 0;
	*ret_may_write = true;
	return own_addresses_have(publish, host, ret_allowed);
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
	if (!device && !publish->unknown_device) {
		publish->unknown_device = true;
		devices_look(publish);
	}
	if (!device)
		return reject_set(reject, PEER_REJECT_REGISTERING, "this device is not published yet: try again");
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

static bool has_room(const struct publish *publish)
{
	return publish->admitted + publish->half_open <= publish->config->max_peers &&
	       publish->half_open <= HALF_OPEN_MAX;
}

/* The peer is counted already. One that has waited makes nobody leave: those that wait with it are being looked at. */
static int check_room(struct peer *peer, struct peer_reject *reject)
{
	const struct publish *publish = peer->publish;
	if (publish->phase != PHASE_SERVING)
		return reject_set(reject, PEER_REJECT_RESOURCES, "mrshared is about to end");
	if (has_room(publish) || (!peer->waits && half_open_make_room(peer)))
		return 0;
	if (publish->admitted + publish->half_open > publish->config->max_peers)
		return reject_set(reject, PEER_REJECT_FULL, "full: mrshared serves %u peers at most (--max-peers)",
			publish->config->max_peers);
	return reject_set(reject, PEER_REJECT_FULL, "too many peers are connecting at the same time: try again");
}

/* Whom we do not know learns nothing else. */
static int check_address(struct peer *peer, bool *ret_may_write, struct peer_reject *reject)
{
	const struct sockaddr *address = cm_peer_addr(peer->id);
	struct host_address host = host_address_of(address);
	bool is_allowed;
	int r = find_rights(peer->publish, &host, &is_allowed, ret_may_write);
	if (r == 0 && !is_allowed)
		r = reject_set(
			reject, PEER_REJECT_DENIED, "%s is not allowed here (--allow)", address_format(address).text);
	else if (r == -EAGAIN && check_room(peer, reject) < 0)
		r = -ECONNREFUSED;
	return r;
}

int admission_check(struct peer *peer, struct terms *ret_terms, struct peer_reject *ret_reject)
{
	const struct cm_event *event = &peer->request;
	struct peer_request request;
	struct publish_device *device = NULL;
	bool may_write = false;
	int r = check_address(peer, &may_write, ret_reject);
	if (r == 0)
		r = check_request(event, &request, ret_reject);
	if (r == 0)
		r = check_room(peer, ret_reject);
	if (r == 0)
		r = check_device(peer->publish, event->id->verbs, &device, ret_reject);
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
