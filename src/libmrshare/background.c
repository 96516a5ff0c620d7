/* background.c: what may take long and has no other way: name look-ups, and the end of rdma_cm ids. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "libmrshare/background.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/address.h"
#include "base/fd.h"
#include "mrshare.h"

/* Two parties have it, and the last one to leave frees it. */
struct lookup {
	pthread_mutex_t mutex;
	unsigned int parties;
	bool over;
	int fd;
	char address[300];
	char *source;
	struct addrinfo *dests, *sources;
	int result;
	struct err err;
};

/* A thread that nobody joins, with all signals blocked: they are the application's. */
static int detach(void *(*function)(void *), void *data)
{
	sigset_t all, old;
	pthread_t thread;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int r = pthread_create(&thread, &attr, function, data);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

static void leave(struct lookup *lookup)
{
	pthread_mutex_lock(&lookup->mutex);
	bool last = --lookup->parties == 0;
	pthread_mutex_unlock(&lookup->mutex);
	if (!last)
		return;
	if (lookup->dests)
		freeaddrinfo(lookup->dests);
	if (lookup->sources)
		freeaddrinfo(lookup->sources);
	fd_close(&lookup->fd);
	pthread_mutex_destroy(&lookup->mutex);
	free(lookup->source);
	free(lookup);
}

static int look_up(const char *text, uint16_t default_port, struct addrinfo **ret_list, struct err *err)
{
	struct host_port host_port;
	int r = host_port_parse(text, default_port, &host_port, err);
	return r < 0 ? r : host_port_resolve(&host_port, ret_list, err);
}

static void run(struct lookup *lookup)
{
	struct addrinfo *dests = NULL, *sources = NULL;
	struct err err;
	int r = look_up(lookup->address, MRSHARE_DEFAULT_PORT, &dests, &err);
	if (r == 0 && lookup->source) {
		r = look_up(lookup->source, 0, &sources, &err);
		if (r < 0)
			err_prefix(&err, "source address");
	}

	pthread_mutex_lock(&lookup->mutex);
	lookup->dests = dests;
	lookup->sources = sources;
	lookup->result = r;
	if (r < 0)
		lookup->err = err;
	lookup->over = true;
	uint64_t one = 1;
	ssize_t ignored = write(lookup->fd, &one, sizeof(one));
	(void)ignored;
	pthread_mutex_unlock(&lookup->mutex);
}

static void *lookup_main(void *data)
{
	struct lookup *lookup = data;
	run(lookup);
	leave(lookup);
	return NULL;
}

/* Whether the resolver has nothing to ask anybody for. */
static bool is_numeric(const char *text)
{
	struct host_port host_port;
	uint8_t bytes[sizeof(struct in6_addr)];
	if (!text || host_port_parse(text, 1, &host_port, NULL) < 0)
		return true;
	host_port.host[strcspn(host_port.host, "%")] = '\0';
	return inet_pton(AF_INET, host_port.host, bytes) == 1 || inet_pton(AF_INET6, host_port.host, bytes) == 1;
}

int lookup_start(const char *address, const char *source, struct lookup **ret_lookup, struct err *err)
{
	struct lookup *lookup = calloc(1, sizeof(*lookup));
	if (!lookup)
		return err_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&lookup->mutex, NULL);
	lookup->parties = 1;
	snprintf(lookup->address, sizeof(lookup->address), "%s", address);
	lookup->source = source ? strdup(source) : NULL;
	lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (lookup->fd < 0 || (source && !lookup->source)) {
		int code = lookup->fd < 0 ? -errno : -ENOMEM;
		leave(lookup);
		return err_set(err, code, "cannot look up a name: %s", strerror(-code));
	}

	if (is_numeric(address) && is_numeric(source)) {
		run(lookup);
	} else {
		lookup->parties = 2;
		int r = detach(lookup_main, lookup);
		if (r < 0) {
			lookup->parties = 1;
			leave(lookup);
			return err_set(err, r, "cannot start a thread: %s", strerror(-r));
		}
	}
	*ret_lookup = lookup;
	return 0;
}

int lookup_fd(const struct lookup *lookup)
{
	return lookup->fd;
}

int lookup_result(struct lookup *lookup, struct addrinfo **ret_dests, struct addrinfo **ret_sources, struct err *err)
{
	pthread_mutex_lock(&lookup->mutex);
	int r = lookup->over ? lookup->result : -EINPROGRESS;
	if (r == 0) {
		*ret_dests = lookup->dests;
		*ret_sources = lookup->sources;
		lookup->dests = lookup->sources = NULL;
	} else if (lookup->over && err) {
		*err = lookup->err;
	}
	pthread_mutex_unlock(&lookup->mutex);
	return r;
}

void lookup_free(struct lookup **lookup)
{
	if (*lookup)
		leave(*lookup);
	*lookup = NULL;
}

struct farewell {
	struct rdma_cm_id *id;
	struct rdma_event_channel *channel;
};

static void *farewell_main(void *data)
{
	struct farewell *farewell = data;
	cm_id_free(&farewell->id);
	/* An id that could not be destroyed still uses its channel. */
	if (!farewell->id)
		cm_channel_free(&farewell->channel);
	free(farewell);
	return NULL;
}

void background_free_id(struct rdma_cm_id **id, struct rdma_event_channel **channel)
{
	struct farewell *farewell = *id ? malloc(sizeof(*farewell)) : NULL;
	if (farewell)
		*farewell = (struct farewell){ .id = *id, .channel = *channel };
	if (farewell && detach(farewell_main, farewell) == 0) {
		*id = NULL;
		*channel = NULL;
		return;
	}
	free(farewell);
	cm_id_free(id);
	if (!*id)
		cm_channel_free(channel);
	*id = NULL;
	*channel = NULL;
}
