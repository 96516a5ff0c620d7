/* progress.c: how far a transfer is, on the terminal of whoever waits for it. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/peer.h"

enum { FIRST_MS = 1000, EVERY_MS = 100, COLUMNS = 80, BAR_MIN = 10, BAR_MAX = 50 };

static struct {
	bool on, shown;
	uint64_t total, done;
	uint64_t start_ms, drawn_ms;
} progress;

void progress_start(uint64_t total, bool hidden)
{
	progress.on = !hidden && isatty(STDERR_FILENO);
	progress.total = total;
	progress.done = 0;
	progress.start_ms = clock_ms();
}

struct amount_text {
	char text[24];
};

/* With one decimal, since it changes all the time. */
static struct amount_text amount(double bytes)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB" };
	size_t unit = 0;
	while (bytes >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		bytes /= 1024;
		unit++;
	}
	struct amount_text out;
	snprintf(out.text, sizeof(out.text), "%.*f %s", unit ? 1 : 0, bytes, units[unit]);
	return out;
}

static unsigned int columns(void)
{
	struct winsize size;
	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : COLUMNS;
}

/* " 37% [######          ] 24.0 MiB of 64.0 MiB, 61.2 MiB/s, 0:12 left", or without a total how much and the rate. */
static void draw(uint64_t now_ms)
{
	char text[128], bar[BAR_MAX + 1] = "";
	double rate = (double)progress.done * 1000 / (double)(now_ms - progress.start_ms);
	if (!progress.total) {
		snprintf(text, sizeof(text), "%s, %s/s", amount((double)progress.done).text, amount(rate).text);
		fprintf(stderr, "\r\033[K%.*s", (int)columns() - 1, text);
		return;
	}
	uint64_t left_s = (uint64_t)((double)(progress.total - progress.done) / rate);
	snprintf(text, sizeof(text), "%s of %s, %s/s, %" PRIu64 ":%02" PRIu64 " left",
		amount((double)progress.done).text, amount((double)progress.total).text, amount(rate).text, left_s / 60,
		left_s % 60);

	double share = (double)progress.done / (double)progress.total;
	size_t used = strlen("100% [] ") + strlen(text) + 1, room = columns();
	size_t width = room < used + BAR_MIN ? 0 : room - used < BAR_MAX ? room - used : BAR_MAX;
	memset(bar, ' ', width);
	memset(bar, '#', (size_t)(share * (double)width));
	if (width)
		fprintf(stderr, "\r\033[K%3.0f%% [%s] %s", share * 100, bar, text);
	else
		fprintf(stderr, "\r\033[K%.*s", (int)room - 1, text);
}

void progress_add(uint64_t bytes)
{
	progress.done += bytes;
	if (!progress.on || !bytes || (progress.total && progress.done >= progress.total))
		return;
	uint64_t now_ms = clock_ms();
	if (now_ms - progress.start_ms < FIRST_MS || (progress.shown && now_ms - progress.drawn_ms < EVERY_MS))
		return;
	progress.shown = true;
	progress.drawn_ms = now_ms;
	draw(now_ms);
}

void progress_end(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
	progress.on = progress.shown = false;
}
