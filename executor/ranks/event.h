/* Waiting without burning a core: counters that only grow, in memory that processes may share. */
#ifndef EXECUTOR_RANKS_EVENT_H
#define EXECUTOR_RANKS_EVENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zeroed = value 0, no thread waits. */
struct event {
	_Atomic uint32_t value;
	_Atomic uint32_t waiters;
};

enum event_result { EVENT_REACHED, EVENT_ABORTED, EVENT_TIMED_OUT };

/* How long to wait, and what ends it early. */
struct patience {
	const _Atomic uint32_t *abort; /* not 0: give up; seen within a tenth of a second */
	double timeout;                /* s; 0 = for ever */
	int spins;                     /* looks before sleeping; 0 where cores are short */
};

/* Counters are compared modulo 2^32, so they may wrap. */
static inline bool event_reached(const struct event *event, uint32_t target)
{
	uint32_t value = atomic_load_explicit(&event->value, memory_order_acquire);

	return (int32_t)(value - target) >= 0;
}

/* Sets the value (release) and wakes the threads that wait. */
void event_set(struct event *event, uint32_t value);
/* Waits until the value has reached `target` (acquire). */
enum event_result event_wait(struct event *event, uint32_t target, const struct patience *patience);
/* Wakes all waiters, so that they look at their abort flag. */
void event_wake(struct event *event);

/* Seconds on the monotonic clock, which all processes of a machine share. */
double clock_now(void);
/* Sleeps a hundredth of the seconds waited so far, at least 20 us and at most 1 ms. It serves to
 * poll what wakes nobody when it ends, such as a GPU. */
void clock_nap(double waited);
/* Tells the time as clock_now does, but not even tests replace it: for times that processes
 * compare. */
double clock_of_machine(void);
/* Replaces clock_now() in tests, before any thread starts. */
void clock_use(double (*now)(void));

#endif
