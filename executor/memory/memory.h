/* The memory of a rank: heaps, the buffers of a schedule in them, and a check for undeclared
 * allocations. */
#ifndef EXECUTOR_MEMORY_H
#define EXECUTOR_MEMORY_H

#include "executor/memory/buffers.h"
#include "executor/memory/heap.h"

/* --- allocation_hook.c: allocations that no schedule declared, between two calls: malloc and its
 * relatives, and mmap, of every library in the process.
 *
 * The functions are replaced in the executable (glibc allows it) and cost one load when nothing is
 * being watched. Under AddressSanitizer, which has replaced them already, its hooks are used. */

/* Counts what any thread of the process allocates from now on; starts at zero. */
void allocations_watch(void);
/* Ends that, and returns the bytes that were asked for meanwhile, whether or not they were freed
 * again. */
int64_t allocations_seen(void);
/* From here on allocations of this thread are those of a library that manages its own memory (MPI),
 * and do not count. */
void allocations_foreign(bool foreign);
/* False where the C library does not let us look; the count is then always 0. */
bool allocations_visible(void);

/* --- huge_pages.c: large pages under memory that is walked from end to end in every step: a core
 * misses its address cache 512 times less often, and reads ahead past every fourth kilobyte. */

enum { HUGE_PAGE = 2 << 20 };

/* Backs the whole large pages in [start, start + bytes) by such, as far as there are any; also of
 * shared memory (Linux 6.1; before, nothing happens). What was never touched is there afterwards,
 * and zero. */
void huge_pages(void *start, int64_t bytes);

/* Makes the pages in [start, start + bytes), from a boundary of pages on, with what they hold or
 * zero. */
void touch_pages(void *start, int64_t bytes);

/* Maps the first `bytes` of a file as shared memory, at an address for large pages; MAP_FAILED with
 * errno set. */
void *huge_pages_map(int fd, int64_t bytes, int protection);

/* --- workspace.c --- */

/* 16 MiB of address space for a kernel context that touches little of it; NULL when there is
 * none. */
void *workspace_reserve(void);
void workspace_release(void *workspace);

#endif
