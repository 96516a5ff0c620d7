/* half_open.c: peers between request and admission, of which one host cannot take all places. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "publish/peer.h"

static struct half_open_host *host_of(struct publish *publish, const struct host_address *address)
{
	struct half_open_host *unused = NULL;
	for (size_t i = 0; i < sizeof(publish->half_open_hosts) / sizeof(publish->half_open_hosts[0]); i++) {
		struct half_open_host *host = &publish->half_open_hosts[i];
		if (host->count && host_address_equal(&host->address, address))
			return host;
		if (!host->count && !unused)
			unused = host;
	}
	unused->address = *address;
	return unused;
}

void half_open_enter(struct peer *peer)
{
	struct publish *publish = peer->publish;
	struct host_address address = host_address_of(cm_peer_addr(peer->id));
	peer->host = host_of(publish, &address);
	peer->host->count++;
	publish->half_open++;
	TAILQ_INSERT_TAIL(&publish->half_open_peers, peer, half_open_link);
}

void half_open_leave(struct peer *peer)
{
	TAILQ_REMOVE(&peer->publish->half_open_peers, peer, half_open_link);
	peer->publish->half_open--;
	peer->host->count--;
	peer->host = NULL;
}

bool half_open_make_room(struct peer *newcomer)
{
	struct publish *publish = newcomer->publish;
	struct half_open_host *most = newcomer->host;
	for (size_t i = 0; i < sizeof(publish->half_open_hosts) / sizeof(publish->half_open_hosts[0]); i++) {
		if (publish->half_open_hosts[i].count > most->count)
			most = &publish->half_open_hosts[i];
	}
	unsigned int max_peers = publish->config->max_peers;
	if (most == newcomer->host || most->count <= (max_peers < HALF_OPEN_MAX ? max_peers : HALF_OPEN_MAX) / 4)
		return false;

	struct peer *oldest = TAILQ_FIRST(&publish->half_open_peers);
	while (oldest->host != most)
		oldest = TAILQ_NEXT(oldest, half_open_link);
	peer_end(oldest, "dropped: %u peers of its host had not completed the connection, and another host's comes",
		most->count);
	return true;
}
