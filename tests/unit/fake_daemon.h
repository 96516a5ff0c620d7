/* fake_daemon.h: stands in for base/rdma.c under the library: a daemon in the same process that does as a test says. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/rdma.h"
#include "mrshare.h"
#include "wire/peer.h"

void add_changes_tests(Suite *suite);
void add_commands_tests(Suite *suite);
void add_connect_tests(Suite *suite);
void add_notices_tests(Suite *suite);
void add_provider_tests(Suite *suite);
void add_transfers_tests(Suite *suite);
void add_waiting_tests(Suite *suite);

enum { FAKE_REGION_SIZE = 4 << 20, FAKE_PAGE = 4096 };

/* Where a connect ends, if not with a welcome. */
enum fake_step { FAKE_NO_STEP, FAKE_ADDRESS, FAKE_ROUTE, FAKE_REQUEST, FAKE_WELCOME };

struct fake_daemon {
	/* What a test sets. */
	enum fake_step silent, failing; /* no answer, or an error, at that step */
	unsigned int address_timeouts;  /* before an address is resolved */
	const char *reject;             /* the daemon's text; "": rejected by something else */
	unsigned int granted, keepalive_s;
	bool hold; /* what is posted stays on the wire */
	bool no_inline;
	bool gone;         /* the device: nothing of it can be destroyed any more; until there is a PD on a new one */
	unsigned int torn; /* readings of a slot that are torn */
	uint8_t server_id;
	void (*on_reg)(size_t size); /* runs while memory is registered */
	void (*on_dereg)(void);      /* and deregistered */

	/* What it saw. */
	unsigned int posts, signals, inlines, staged, on_wire, on_wire_max, reads;
	_Atomic unsigned int connects, acks;
	struct peer_ack ack; /* the last one */
	uint32_t request_flags;
	uint64_t generation;
	uint8_t region[FAKE_REGION_SIZE]; /* region 0, of which entries list parts */
};
extern struct fake_daemon fake;

/* As new, with one writable mapping of the first half of region 0. */
void fake_reset(void);
/* The catalog lists this generation. Mapping N has the key 100 + N. */
void fake_publish(uint64_t generation, const struct mrshare_entry *entries, size_t count);
/* The root says so many views and bytes more than there are. */
void fake_spoil_root(uint32_t views, uint32_t bytes);
struct mrshare_entry fake_entry(uint64_t mapping_id, uint64_t offset, uint64_t size, uint8_t access);
/* Sends a frame to the peer. */
void fake_notice(uint32_t sequence, uint64_t generation, const uint64_t *withdrawn, uint32_t count);
void fake_send(const void *bytes, size_t size);
/* Sends the welcome that a silent daemon owes; false where no one has asked for one yet. */
bool fake_welcome(void);
/* Accesses with the key of that mapping are refused from now on. */
void fake_revoke(uint64_t mapping_id);
/* The first `count` held work requests complete. */
void fake_release(unsigned int count);
/* The first one fails, and with it the queue pair. */
void fake_fail_first(enum ibv_wc_status status);
void fake_disconnect(void);
/* The call after the next `skip` to that function fails. */
void fake_fail(const char *function, unsigned int skip, int code);
/* Verbs and rdma_cm objects there are; waits for those that end in the background. */
int fake_objects(void);

/* A connected handle, with the right to write. */
struct mrshare *fake_connected(bool thread);
/* Dispatches until the condition holds; fails after 5 s. */
#define DISPATCH_UNTIL(conn, condition)                                        \
	do {                                                                   \
		for (int tries_ = 0; !(condition); tries_++) {                 \
			ck_assert_msg(tries_ < 5000, "never: %s", #condition); \
			fake_wait_dispatch(conn);                              \
		}                                                              \
	} while (0)
/* Waits for the connection's descriptor, 1 ms at most, and dispatches. */
void fake_wait_dispatch(struct mrshare *conn);

#endif
