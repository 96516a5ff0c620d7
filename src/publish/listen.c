/* listen.c: the addresses that are listened on. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/fd.h"
#include "publish/internal.h"

bool address_is_wildcard(const struct sockaddr_storage *address)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	memcpy(&in, address, sizeof(in));
	memcpy(&in6, address, sizeof(in6));
	if (address->ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
	return in.sin_addr.s_addr == htonl(INADDR_ANY);
}

bool address_is_foreign(const struct sockaddr_storage *address)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	memcpy(&in, address, sizeof(in));
	memcpy(&in6, address, sizeof(in6));
	in.sin_port = in6.sin6_port = 0;
	bool is_in6 = address->ss_family == AF_INET6;
	CLEANUP_CLOSE int fd = socket(address->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int r = is_in6 ? bind(fd, (const struct sockaddr *)&in6, sizeof(in6))
		       : bind(fd, (const struct sockaddr *)&in, sizeof(in));
	return r < 0 && errno == EADDRNOTAVAIL;
}

static int explain_listen(const struct sockaddr_storage *address, int code, struct err *err)
{
	struct address_text text = address_format((const struct sockaddr *)address);
	switch (-code) {
	case ENODEV:
		return err_set(err, code, "there is no RDMA device at %s: " NO_DEVICE_REMEDY, text.text);
	case EADDRNOTAVAIL:
		return err_set(err, code, "%s " FOREIGN_ADDRESS, text.text);
	case EADDRINUSE:
		return err_set(
			err, code, "%s is in use: another daemon listens there, or choose another port", text.text);
	default:
		return err_set(err, code, "cannot listen on %s: %s", text.text, strerror(-code));
	}
}

int listener_bind(struct rdma_event_channel *channel, const struct sockaddr_storage *address,
	struct rdma_cm_id **ret_id, struct err *err)
{
	struct sockaddr_storage copy = *address;
	struct rdma_cm_id *id;
	int r = cm_id_new(channel, NULL, &id);
	if (r < 0)
		return explain_listen(address, r, err);
	r = cm_bind(id, (struct sockaddr *)&copy);
	if (r == 0 && !id->verbs && !address_is_wildcard(address))
		r = -ENODEV;
	if (r < 0) {
		cm_id_free(&id);
		return explain_listen(address, r, err);
	}
	*ret_id = id;
	return 0;
}

int listener_listen(struct rdma_cm_id *id, const struct sockaddr_storage *address, struct err *err)
{
	int r = cm_listen(id, LISTEN_BACKLOG);
	return r < 0 ? explain_listen(address, r, err) : 0;
}
