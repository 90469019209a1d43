#include "executor/ranks/event.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sleeper looks at its abort flag after so many seconds, because a rank that aborts need not know
 * all sleepers. */
#define SLICE 0.1

#define NAP_SHORTEST 20e-6
#define NAP_LONGEST  1e-3

static double (*other_clock)(void);

void clock_use(double (*now)(void))
{
	other_clock = now;
}

double clock_of_machine(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_now(void)
{
	return other_clock != NULL ? other_clock() : clock_of_machine();
}

void clock_nap(double waited)
{
	double seconds = fmin(fmax(waited / 100, NAP_SHORTEST), NAP_LONGEST);

	nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

void event_wake(struct event *event)
{
	syscall(SYS_futex, &event->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void event_set(struct event *event, uint32_t value)
{
	/* This store is sequentially consistent with the increment in event_wait: either the waiter
	 * sees the new value, or we see the waiter. */
	atomic_store(&event->value, value);
	if (atomic_load(&event->waiters) > 0)
		event_wake(event);
}

static void sleep_once(struct event *event, uint32_t seen, double seconds)
{
	struct timespec slice = {.tv_nsec = (long)(1e9 * seconds)};

	/* The call returns at once when the value has changed since it was seen. */
	syscall(SYS_futex, &event->value, FUTEX_WAIT, seen, &slice, NULL, 0);
}

static enum event_result sleep_until(
	struct event *event, uint32_t target, const struct patience *patience)
{
	double deadline = clock_now() + patience->timeout;

	for (;;) {
		uint32_t seen = atomic_load(&event->value);
		double slice = SLICE;

		if ((int32_t)(seen - target) >= 0)
			return EVENT_REACHED;
		if (patience->abort != NULL && atomic_load(patience->abort) != 0)
			return EVENT_ABORTED;
		if (patience->timeout > 0) {
			double left = deadline - clock_now();

			if (left <= 0)
				return EVENT_TIMED_OUT;
			if (left < slice)
				slice = left;
		}
		sleep_once(event, seen, slice);
	}
}

enum event_result event_wait(struct event *event, uint32_t target, const struct patience *patience)
{
	for (int i = 0; i <= patience->spins; i++)
		if (event_reached(event, target))
			return EVENT_REACHED;
	atomic_fetch_add(&event->waiters, 1);
	enum event_result result = sleep_until(event, target, patience);
	atomic_fetch_sub(&event->waiters, 1);
	return result;
}
