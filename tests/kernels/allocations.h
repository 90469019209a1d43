/* Counts what malloc and its family are asked for, also inside shared libraries. */
#ifndef TESTS_KERNELS_ALLOCATIONS_H
#define TESTS_KERNELS_ALLOCATIONS_H

#include <stdint.h>

struct allocations {
	int64_t calls, bytes;
};

/* False where counting is impossible: under a sanitizer, or with a C library that is not glibc. */
int allocations_counted(void);
struct allocations allocations_so_far(void);

#endif
