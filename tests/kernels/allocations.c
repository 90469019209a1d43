/* A definition of malloc in the program comes before the C library's for every shared library too.
 * The real work is done by glibc's other names of the same functions. */
#include "tests/kernels/allocations.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static struct allocations total;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static void count(size_t bytes)
{
	__atomic_add_fetch(&total.calls, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&total.bytes, (int64_t)bytes, __ATOMIC_RELAXED);
}

void *malloc(size_t bytes)
{
	count(bytes);
	return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
	count(n * bytes);
	return __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
	count(bytes);
	return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	count(bytes);
	return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
	count(bytes);
	*block = __libc_memalign(alignment, bytes);
	return *block ? 0 : ENOMEM;
}

int allocations_counted(void)
{
	return 1;
}

#else

int allocations_counted(void)
{
	return 0;
}

#endif

struct allocations allocations_so_far(void)
{
	return total;
}
