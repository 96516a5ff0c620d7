/* frontend_announce.c: tells a front-end what to map, one request at a time; frontend_sets.c says which. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * QEMU 11.1 does not survive a request outside of a start, so requests go out between SET_VRING_ENABLE 1 and the stop
 * only, and one that no byte was written of is taken back at the stop. The answer comes over the same channel; nothing
 * waits for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/size.h"
#include "vhost/frontend_internal.h"

static struct mrshare_mmap_text {
	char text[128];
} describe(const struct sets_entry *entry)
{
	struct mrshare_mmap_text out;
	const struct mrshare_mmap *mmap = &entry->mmap;
	snprintf(out.text, sizeof(out.text), "region %u [%#" PRIx64 ", %#" PRIx64 "), mapping %" PRIu64, mmap->shmid,
		mmap->shm_offset, mmap->shm_offset + mmap->len, entry->id);
	return out;
}

/*
 * The channel.
 */

static void channel_end(struct frontend *frontend)
{
	event_source_free(&frontend->back_io);
	session_close_fds_later(frontend, &frontend->back);
	session_close_later(frontend, &frontend->back.fd);
	frontend->back.out_left = 0;
}

/* Nothing more can be announced over it. What it held is uncertain. */
static void channel_lost(struct frontend *frontend, int cause)
{
	bool is_plain = channel_was_left(cause);
	/* The connection itself may be about to end as well. */
	log_line(is_plain ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING, "%s: its back-end request channel has ended%s%s",
		frontend_tag(frontend), is_plain ? "" : ": ",
		is_plain ? "" : channel_describe(&frontend->back, cause).text);
	channel_end(frontend);
	sets_lose(&frontend->sets);
}

static void take_answer(struct frontend *frontend)
{
	static const char *const words[] = {
		[SETS_ANNOUNCED] = "announced",
		[SETS_THERE_STILL] = "there still",
		[SETS_WAS_REFUSED] = "refused by it",
		[SETS_TAKEN_BACK] = "taken back",
	};
	const struct channel *back = &frontend->back;
	struct sets *sets = &frontend->sets;
	uint64_t result;
	uint32_t asked = sets->asked_unmap ? VHOST_USER_BACKEND_SHMEM_UNMAP : VHOST_USER_BACKEND_SHMEM_MAP;
	if (!sets->asked || back->out_left || back->header.request != asked ||
		vhost_user_u64_read(back->payload, back->header.size, &result) < 0) {
		frontend->end_cause = err_set(&frontend->end_err, -EBADMSG,
			"what came over its back-end request channel answers nothing (request %u, %u bytes)",
			back->header.request, back->header.size);
		return;
	}
	struct mrshare_mmap_text text = describe(sets->asked);
	uint64_t id = sets->asked->id;
	uint8_t shmid = sets->asked->mmap.shmid;
	uint64_t took_ms = event_now_ms(frontend->frontends->loop) - frontend->asked_ms;
	bool forgotten;
	enum sets_outcome outcome = sets_answer(sets, result, &forgotten);
	const char *name = frontend_tag(frontend);
	log_field("MRSHARE_MAPPING_ID", "%" PRIu64, id);
	log_field("MRSHARE_SHMID", "%u", shmid);
	log_line(outcome == SETS_WAS_REFUSED ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
		"%s: %s %s (answer %" PRIu64 " after %" PRIu64 " ms)", name, text.text, words[outcome], result,
		took_ms);
	if (forgotten)
		frontends_settle(frontend->frontends);
}

/* An answer may be whole before the fds that came with it are closed: then it is still due. */
void announce_take_answers(struct frontend *frontend)
{
	if (!frontend->back_due || !frontend->back_io || !session_may_take_fds(frontend))
		return;
	int r = channel_read(&frontend->back);
	frontend->back_due = r == CHANNEL_SURPLUS;
	if (r == CHANNEL_SURPLUS) {
		session_close_fds_later(frontend, &frontend->back);
	} else if (r == CHANNEL_MESSAGE) {
		take_answer(frontend);
		channel_next(&frontend->back);
	} else if (r < 0) {
		channel_lost(frontend, r);
	}
}

static void on_channel(void *data, unsigned int events)
{
	struct frontend *frontend = data;
	if (events & EVENT_READ)
		frontend->back_due = true;
	session_pump(frontend);
}

int request_set_backend_req_fd(struct frontend *frontend, struct err *err)
{
	int *fd = &frontend->channel.fds[0];
	int domain = 0, type = 0;
	socklen_t size = sizeof(int);
	if (frontend->back.fd >= 0)
		return err_set(err, -EBUSY, "it has a back-end request channel already");
	if (getsockopt(*fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_UNIX ||
		getsockopt(*fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_STREAM)
		return err_set(err, -EINVAL, "its file descriptor is no Unix stream socket");
	frontend->back_io = event_io_new(frontend->frontends->loop, *fd, on_channel, frontend);
	if (!frontend->back_io)
		return err_set(err, -ENOMEM, "out of memory");
	channel_init(&frontend->back, *fd, CHANNEL_REPLIES, 0);
	*fd = -1;
	return REQUEST_DONE;
}

/*
 * Announcing.
 */

/* Once a start, when all was announced. */
static void say_holes(struct frontend *frontend)
{
	if (!frontend->holes_due)
		return;
	frontend->holes_due = false;
	for (unsigned int shmid = 0; shmid < 256; shmid++) {
		uint64_t size = frontend->socket->sizes[shmid];
		if (!size)
			continue;
		uint64_t bytes = sets_held_bytes(&frontend->sets, (uint8_t)shmid);
		if (bytes < size)
			log_warning("%s: of the %s of region %u it has %s: the rest reads as zeros, and what its "
				    "guest writes there is lost",
				frontend_tag(frontend), size_format(size).text, shmid, size_format(bytes).text);
	}
}

void announce_start(struct frontend *frontend)
{
	if (frontend->sets.running)
		return;
	sets_start(&frontend->sets);
	frontend->said_surplus = 0;
	log_info("%s: started", frontend_tag(frontend));
	if (!frontend->back_io && device_has_shmem(frontend))
		log_warning(
			"%s: it has no back-end request channel: nothing is announced to it", frontend_tag(frontend));
	frontend->holes_due = true;
	if (!frontend->back_io || !device_has_shmem(frontend))
		say_holes(frontend);
}

void announce_stop(struct frontend *frontend, const char *why)
{
	struct sets *sets = &frontend->sets;
	if (!sets->running)
		return;
	sets_stop(sets);
	if (sets->asked && channel_unsend(&frontend->back))
		sets_unask(sets);
	log_info("%s: stopped (%s)", frontend_tag(frontend), why);
}

static void say_surplus(struct frontend *frontend)
{
	unsigned int surplus = sets_surplus(&frontend->sets);
	if (surplus > frontend->said_surplus)
		log_warning("%s: %u mapping%s not announced to it: its memory table has %d entries, %u of which are "
			    "its own; peers have them all the same",
			frontend_tag(frontend), surplus, surplus == 1 ? " is" : "s are", SETS_TABLE_MAX,
			frontend->sets.foreign);
	frontend->said_surplus = surplus;
}

static void ask_next(struct frontend *frontend)
{
	const struct sets_entry *entry;
	bool was_settled = frontend->sets.settled;
	enum sets_request request = sets_next(&frontend->sets, &entry);
	if (request == SETS_NOTHING) {
		if (frontend->sets.settled && !was_settled) {
			say_surplus(frontend);
			say_holes(frontend);
		}
		return;
	}
	struct vhost_user_header header = {
		.request = request == SETS_MAP ? VHOST_USER_BACKEND_SHMEM_MAP : VHOST_USER_BACKEND_SHMEM_UNMAP,
		.flags = VHOST_USER_VERSION | VHOST_USER_NEED_REPLY,
		.size = MRSHARE_MMAP_SIZE,
	};
	uint8_t payload[MRSHARE_MMAP_SIZE];
	mrshare_mmap_write(&entry->mmap, payload, sizeof(payload));
	channel_send(&frontend->back, &header, payload, request == SETS_MAP ? entry->fd : -1);
	frontend->asked_ms = event_now_ms(frontend->frontends->loop);
}

void announce_pump(struct frontend *frontend, bool may_ask)
{
	if (!frontend->back_io)
		return;
	if (may_ask && !frontend->back.out_left && device_has_shmem(frontend))
		ask_next(frontend);
	int r = channel_write(&frontend->back);
	if (r < 0) {
		channel_lost(frontend, r);
		return;
	}
	event_io_set(frontend->back_io,
		(session_may_take_fds(frontend) ? EVENT_READ : 0u) | (frontend->back.out_left ? EVENT_WRITE : 0u));
}

bool announce_withdraw(struct frontend *frontend, uint64_t id)
{
	struct sets *sets = &frontend->sets;
	/* A map request that is still unsent needs no answer. */
	if (sets->asked && sets->asked->id == id && !sets->asked_unmap && channel_unsend(&frontend->back))
		sets_unask(sets);
	return sets_withdraw(sets, id);
}

void announce_end(struct frontend *frontend)
{
	channel_end(frontend);
	sets_free(&frontend->sets);
}
