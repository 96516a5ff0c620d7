/* log_send.h: hands lines to something that may block, on a thread of its own. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef BASE_LOG_SEND_H
#define BASE_LOG_SEND_H

#include "base/log.h"

enum {
	LOG_SEND_LINES_MAX = 1024, /* that wait */
	LOG_SEND_END_S = 1,        /* that the end waits for them */
};

/* Starts the thread; once a process. -EAGAIN. */
int log_send_start(log_send_fn *send);
/* Queues a copy of a line. Where too many wait, it is counted instead: how many were lost is said when there is room.
 */
void log_send(const struct log_record *record);
/* Returns when all were sent, or after LOG_SEND_END_S. */
void log_send_end(void);

#endif
