/* Sees allocations that no schedule declared: malloc and its relatives, and mmap, of every library
 * in the process, between two calls.
 *
 * The functions are replaced in the executable (glibc allows it) and cost one load when nothing is
 * being watched. Under AddressSanitizer, which has replaced them already, its hooks are used. */
#ifndef EXECUTOR_ALLOCATIONS_H
#define EXECUTOR_ALLOCATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Counts what any thread of the process allocates from now on; starts at zero. */
void allocations_watch(void);
/* Ends that; the bytes that were asked for meanwhile, whether or not they were freed again. */
int64_t allocations_seen(void);
/* What this thread allocates from here on is a library's that keeps its own memory (MPI): it does
 * not count. */
void allocations_foreign(bool foreign);
/* False where the C library does not let us look; the count is then always 0. */
bool allocations_visible(void);

#endif
