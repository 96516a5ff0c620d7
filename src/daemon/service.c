/* service.c: what the service manager is told, and what it passes; the only file that knows libsystemd. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The manager hears from the loop only, so its watchdog bites when the loop does not turn.
 */
#include "daemon/service.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "config.h"

#ifdef HAVE_SYSTEMD
#define SD_JOURNAL_SUPPRESS_LOCATION /* it would always be here */
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>

#define EXTEND_US "30000000" /* said every second in which something goes on */

static struct {
	int notify_fd; /* -1: no manager */
	struct sockaddr_un notify_address;
	socklen_t notify_size;
	char state[64]; /* that the manager did not take */
	service_status_fn *status;
	char said[256];
	bool ready; /* neither starting nor reloading */
	bool stopping;
	struct event_source *watchdog;
	uint64_t watchdog_ms;
} self = { .notify_fd = -1 };

/*
 * The log.
 */

/* Where standard error is the journal's, $JOURNAL_STREAM says which file that is; see systemd.exec(5). */
static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uint64_t dev, ino;
	struct stat st;
	return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &dev, &ino) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino && access("/run/systemd/journal/socket", W_OK) == 0;
}

static int priority_of(enum log_level level)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	return priorities[level];
}

/* On the log's own thread: it waits for a journal that is busy. */
static void send_to_journal(const struct log_record *record)
{
	char priority[16], message[8 + LOG_TEXT_MAX], fields[LOG_FIELDS_MAX][32 + sizeof(record->fields[0].value)];
	char message_id[64];
	struct iovec iov[3 + LOG_FIELDS_MAX];
	int count = 0, n = snprintf(priority, sizeof(priority), "PRIORITY=%d", priority_of(record->level));
	iov[count++] = (struct iovec){ priority, (size_t)n };
	n = snprintf(message, sizeof(message), "MESSAGE=%s", record->text);
	iov[count++] = (struct iovec){ message, (size_t)n };
	if (record->message_id) {
		n = snprintf(message_id, sizeof(message_id), "MESSAGE_ID=%s", record->message_id);
		iov[count++] = (struct iovec){ message_id, (size_t)n };
	}
	for (size_t i = 0; i < record->field_count; i++) {
		const struct log_field *field = &record->fields[i];
		n = snprintf(fields[i], sizeof(fields[i]), "%s=%s", field->name, field->value);
		iov[count++] = (struct iovec){ fields[i], (size_t)n };
	}
	if (sd_journal_sendv(iov, count) < 0)
		dprintf(STDERR_FILENO, "<%d>%s\n", priority_of(record->level), record->text);
}

int service_log(void)
{
	return log_start(is_journal() ? send_to_journal : NULL);
}

const char *service_error_prefix(void)
{
	return is_journal() ? SD_ERR : "";
}

/*
 * Sockets.
 */

/* A Unix socket's address, as people and the file system know it; an abstract one's with '@' in front. */
static void address_text(int fd, char ret_text[sizeof(((struct sockaddr_un *)0)->sun_path) + 2])
{
	struct sockaddr_un address = { 0 };
	socklen_t size = sizeof(address);
	*ret_text = '\0';
	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0 || address.sun_family != AF_UNIX ||
		size <= offsetof(struct sockaddr_un, sun_path))
		return;
	size_t len = size - offsetof(struct sockaddr_un, sun_path);
	bool is_abstract = address.sun_path[0] == '\0';
	snprintf(ret_text, sizeof(address.sun_path) + 2, "%s%.*s", is_abstract ? "@" : "", (int)len - is_abstract,
		address.sun_path + is_abstract);
}

static bool is_same_path(const char *a, const char *b)
{
	struct stat a_stat, b_stat;
	return a && b &&
	       (strcmp(a, b) == 0 || (stat(a, &a_stat) == 0 && stat(b, &b_stat) == 0 &&
					     a_stat.st_dev == b_stat.st_dev && a_stat.st_ino == b_stat.st_ino));
}

/* Two would take connections from the same queue, or from different ones of which one is never reached. */
static int check_unique(const struct options *options, int fd, const char *path, struct err *err)
{
	if (is_same_path(path, options->provider_socket))
		return err_set(err, -EEXIST, "it is --provider-socket as well: leave out the flag");
	for (size_t i = 0; i < options->socket_count; i++) {
		const struct options_socket *socket = &options->sockets[i];
		if (is_same_path(path, socket->path))
			return err_set(
				err, -EEXIST, "it is --socket-path %s as well: leave out the flag", socket->path);
		if (!socket->path && !socket->passed && fd_is_same_file(fd, socket->fd))
			return err_set(err, -EEXIST, "it is --fd %d as well: leave out the flag", socket->fd);
	}
	for (int other = SD_LISTEN_FDS_START; other < fd; other++) {
		char other_path[sizeof(((struct sockaddr_un *)0)->sun_path) + 2];
		address_text(other, other_path);
		if (is_same_path(path, other_path) || fd_is_same_file(fd, other))
			return err_set(
				err, -EEXIST, "it was passed as file descriptor %d as well: pass it once", other);
	}
	return 0;
}

static int take_socket(struct options *options, int fd, const char *name, const char *path, struct err *err)
{
	bool is_provider = strcmp(name, "provider") == 0;
	if (!is_provider && strcmp(name, "vhost") != 0)
		return err_set(err, -EINVAL,
			"wanted the name vhost (for front-ends) or provider: give it by FileDescriptorName= in the "
			"socket unit");
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0)
		return err_set(err, -EINVAL,
			"it is no listening Unix stream socket: wanted ListenStream=PATH and Accept=no in the socket "
			"unit");
	int r = check_unique(options, fd, path, err);
	if (r < 0)
		return r;
	return is_provider ? options_pass_providers(options, fd, err) : options_pass_frontends(options, fd, err);
}

int service_take_sockets(struct options *options, struct err *err)
{
	char **names = NULL;
	int count = sd_listen_fds_with_names(true, &names), r = 0;
	if (count < 0)
		return err_set(err, count, "the sockets that systemd passed (LISTEN_FDS) cannot be taken: %s",
			strerror(-count));
	for (int i = 0; r == 0 && i < count; i++) {
		char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 2];
		int fd = SD_LISTEN_FDS_START + i;
		address_text(fd, path);
		r = take_socket(options, fd, names[i], path, err);
		if (r < 0)
			err_prefix(err, "file descriptor %d from systemd, '%s' %s", fd, names[i], path);
	}
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	return r;
}

/*
 * Notices: the protocol of sd_notify(3), whose own function waits for a manager that does not read.
 */

static int notify(const char *text)
{
	if (self.notify_fd < 0)
		return 0;
	ssize_t n = sendto(self.notify_fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
		(struct sockaddr *)&self.notify_address, self.notify_size);
	return n < 0 ? -errno : 0;
}

/* What must not be lost is said again until the manager has it. */
static void retry_state(void)
{
	if (self.state[0] && notify(self.state) == 0)
		self.state[0] = '\0';
}

static void notify_state(const char *text)
{
	snprintf(self.state, sizeof(self.state), "%s", text);
	retry_state();
}

/* Where there is a manager, once. */
static int open_notify(void)
{
	const char *path = getenv("NOTIFY_SOCKET");
	if (!path || !*path || self.notify_fd >= 0)
		return 0;
	struct sockaddr_un *address = &self.notify_address;
	size_t len = strlen(path);
	if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof(address->sun_path))
		return -EINVAL;
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path, path, len);
	if (*path == '@')
		address->sun_path[0] = '\0';
	self.notify_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'));
	self.notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return self.notify_fd < 0 ? -errno : 0;
}

static void on_watchdog(void *data)
{
	notify("WATCHDOG=1");
	event_timer_set(self.watchdog, self.watchdog_ms);
}

static void tell_status(void)
{
	char text[sizeof(self.said)], message[16 + sizeof(text)];
	self.status(text, sizeof(text));
	text_sanitize(text); /* systemd takes no character that was cut */
	if (strcmp(text, self.said) == 0)
		return;
	snprintf(message, sizeof(message), "STATUS=%s", text);
	if (notify(message) == 0)
		memcpy(self.said, text, sizeof(text));
}

void service_tick(bool progressed)
{
	if (!self.status || self.stopping)
		return;
	retry_state();
	if (!self.ready && progressed)
		notify("EXTEND_TIMEOUT_USEC=" EXTEND_US);
	tell_status();
}

int service_start(struct event_loop *loop, service_status_fn *status, struct err *err)
{
	int r = open_notify();
	if (r < 0)
		return err_set(err, r, "NOTIFY_SOCKET=%s: %s", getenv("NOTIFY_SOCKET"), strerror(-r));
	if (self.notify_fd < 0)
		return 0;
	self.status = status;
	uint64_t watchdog_us = 0;
	if (sd_watchdog_enabled(false, &watchdog_us) > 0 && watchdog_us) {
		self.watchdog = event_timer_new(loop, on_watchdog, NULL);
		if (!self.watchdog)
			return err_set(err, -ENOMEM, "out of memory");
		self.watchdog_ms = watchdog_us / 2000 + (watchdog_us < 2000);
		on_watchdog(NULL);
	}
	service_tick(false);
	return 0;
}

void service_ready(void)
{
	self.ready = true;
	notify_state("READY=1");
	service_tick(false);
}

void service_reloading(void)
{
	struct timespec now;
	char text[64];
	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
		(uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
	self.ready = false;
	notify_state(text);
}

void service_stopping(void)
{
	if (!self.stopping)
		notify("STOPPING=1\nSTATUS=ending");
	self.stopping = true;
}

void service_failed(const struct err *err)
{
	char text[64 + sizeof(err->text)];
	snprintf(text, sizeof(text), "STOPPING=1\nERRNO=%d\nSTATUS=cannot start: %s", -err->code, err->text);
	self.stopping = true;
	open_notify();
	notify(text);
}

#else

int service_log(void)
{
	return log_start(NULL);
}

const char *service_error_prefix(void)
{
	return "";
}

int service_take_sockets(struct options *options, struct err *err)
{
	return 0;
}

int service_start(struct event_loop *loop, service_status_fn *status, struct err *err)
{
	return 0;
}

void service_tick(bool progressed)
{
}

void service_ready(void)
{
}

void service_reloading(void)
{
}

void service_stopping(void)
{
}

void service_failed(const struct err *err)
{
}

#endif
