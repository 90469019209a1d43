/* Large pages under memory that is walked from end to end in every step: a core misses its address
 * cache 512 times less often, and reads ahead past every fourth kilobyte. */
#ifndef EXECUTOR_HUGE_PAGES_H
#define EXECUTOR_HUGE_PAGES_H

#include <stdint.h>

enum { HUGE_PAGE = 2 << 20 };

/* Backs the whole large pages in [start, start + bytes) by such, as far as there are any; also of
 * shared memory (Linux 6.1; before, nothing happens). What was never touched is there afterwards,
 * and zero. */
void huge_pages(void *start, int64_t bytes);

/* A shared mapping of the first `bytes` of a file at an address that large pages can be mapped to;
 * MAP_FAILED with errno set. */
void *huge_pages_map(int fd, int64_t bytes, int protection);

#endif
