/* guard.c: accesses to memory that another process may take away under us. */
/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A page that is no longer backed by its file raises SIGBUS in the thread that touches it. The handler asks what that
 * thread is about to access, which stands in a variable of the thread's own: so there is no list that it would have to
 * search while another thread changes it. A page of zeros takes the place of what has gone, and the access goes on.
 * Every other SIGBUS ends the process as if there were no handler.
 */
#include "vhost/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

static _Thread_local struct guard *volatile entered;

static bool put_zeros(struct guard *guard, uintptr_t addr)
{
	for (unsigned int i = 0; i < guard->count; i++) {
		const struct guard_range *range = &guard->ranges[i];
		if (addr < range->start || addr - range->start >= range->len)
			continue;
		uintptr_t page = addr & ~(range->page - 1);
		atomic_store(&guard->broken, true);
		return mmap((void *)page, range->page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
	}
	return false;
}

static void on_sigbus(int signal_number, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	bool is_fault = info->si_code > 0;
	bool mended = is_fault && entered && put_zeros(entered, (uintptr_t)info->si_addr);
	errno = saved_errno;
	if (mended)
		return;
	signal(SIGBUS, SIG_DFL);
	/* A fault happens again on return; a signal that somebody sent does not. */
	if (!is_fault)
		raise(SIGBUS);
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}

void guard_install(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, install);
}

/* The compiler must move no access to plain memory over these. */
void guard_enter(struct guard *guard)
{
	entered = guard;
	atomic_signal_fence(memory_order_seq_cst);
}

void guard_leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	entered = NULL;
}
