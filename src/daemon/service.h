/* service.h: what the service manager is told, and what it passes; sd_notify(3), sd_listen_fds(3), sd-daemon(3). */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef DAEMON_SERVICE_H
#define DAEMON_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/event.h"
#include "daemon/options.h"

/* Without a service manager, or built without libsystemd, none but service_log() does anything. */

/* Starts the log: where standard error is systemd's journal, it goes there with its fields. -ENOMEM, -EAGAIN. */
int service_log(void);

/* What an error begins with that is written before the log is there: its priority, for the journal. Constant. */
const char *service_error_prefix(void);

/* Adds the listening sockets that were passed (LISTEN_FDS) to the options, by their names (LISTEN_FDNAMES): "vhost" is
 * for front-ends, who are offered all regions, "provider" for providers. `err` says which socket is wrong, or given
 * twice, and what to do. */
int service_take_sockets(struct options *options, struct err *err);

/* Writes one line for `systemctl status`: what there is now. */
typedef void service_status_fn(char *ret_text, size_t size);

/* From now on the manager hears from the loop, as often as it wants to, that it turns. A manager that does not read
 * holds up nothing. -EINVAL: $NOTIFY_SOCKET is no path. */
int service_start(struct event_loop *loop, service_status_fn *status, struct err *err);
/* Call it once a second: tells what `status` writes where it has changed, and asks for more time for a start or reload
 * that has `progressed`: one that does not is the manager's to end. */
void service_tick(bool progressed);
/* It serves: at the start, and when a reload has ended. */
void service_ready(void);
void service_reloading(void);
void service_stopping(void);
/* It ends, because it could not start; also before service_start(). */
void service_failed(const struct err *err);

#endif
