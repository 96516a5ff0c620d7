/* log_send.c: hands lines to something that may block, on a thread of its own. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/log_send.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct line {
	struct line *next;
	struct log_record record;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, sent = PTHREAD_COND_INITIALIZER;
static log_send_fn *send_fn;
static struct line *head, **tail = &head;
static size_t waiting; /* the one that is being sent included */
static unsigned long long lost;

/* With the lock held. */
static void push(const struct log_record *record)
{
	struct line *line = waiting < LOG_SEND_LINES_MAX ? malloc(sizeof(*line)) : NULL;
	if (!line) {
		lost++;
		return;
	}
	line->next = NULL;
	line->record = *record;
	*tail = line;
	tail = &line->next;
	waiting++;
	pthread_cond_signal(&wake);
}

/* What was lost is said behind what was not, so the gap is where it happened. */
static void push_lost(void)
{
	if (!lost || waiting >= LOG_SEND_LINES_MAX)
		return;
	struct log_record record = { .level = LOG_LEVEL_WARNING };
	clock_gettime(CLOCK_REALTIME, &record.when);
	snprintf(record.text, sizeof(record.text), "%llu lines of the log were lost here: it did not take them in time",
		lost);
	lost = 0;
	push(&record);
}

static void *send_main(void *arg)
{
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!head)
			pthread_cond_wait(&wake, &lock);
		struct line *line = head;
		head = line->next;
		if (!head)
			tail = &head;
		pthread_mutex_unlock(&lock);
		send_fn(&line->record);
		free(line);
		pthread_mutex_lock(&lock);
		waiting--;
		push_lost();
		pthread_cond_signal(&sent);
	}
	return NULL;
}

int log_send_start(log_send_fn *send)
{
	send_fn = send;
	/* Signals are for the loop's thread. */
	sigset_t all, saved;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	pthread_t thread;
	int r = pthread_create(&thread, NULL, send_main, NULL);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (r == 0) {
		pthread_setname_np(thread, "mrshared-log");
		pthread_detach(thread);
	}
	return -r;
}

void log_send(const struct log_record *record)
{
	pthread_mutex_lock(&lock);
	push(record);
	pthread_mutex_unlock(&lock);
}

void log_send_end(void)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOG_SEND_END_S;
	pthread_mutex_lock(&lock);
	while (waiting && pthread_cond_timedwait(&sent, &lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&lock);
}
