/* Which cores a rank's threads run on.
 *
 * Where ranks take all cores, each thread that computes stays on one of them. Left to the kernel,
 * two of them meet on one core whenever the communication thread has woken up on the other, and
 * take turns there for about ten milliseconds until it parts them (measured: executor/README.md).
 */
#ifndef EXECUTOR_RANKS_CORES_H
#define EXECUTOR_RANKS_CORES_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "base/base.h"

/* Are `ranks` of `threads` each bound to cores? They are if there are enough cores for all, but not
 * for one thread more in each. With fewer threads the kernel can place them well, beside other
 * jobs. */
bool cores_are_bound(int cores, int ranks, int threads);

/* The cores of rank `rank` (of this machine) as OpenMP's OMP_PLACES has them, one to a thread:
 * "{0},{1}". In the order of their numbers, so that a rank's are neighbours. */
const char *cores_places(struct arena *arena, const cpu_set_t *allowed, int rank, int threads);

/* pthread_create for what is not OpenMP's: the thread may run on all cores of the process that
 * started this one, whatever core its starter is bound to. Only in rank processes. */
int cores_start_thread(pthread_t *thread, void *(*run)(void *data), void *data);

#endif
