#include "executor/memory/memory.h"

#include <stdatomic.h>
#include <stddef.h>

#include "executor/memory/sanitizer.h"

static _Atomic bool watching;
static _Atomic int64_t seen;
static _Thread_local bool is_foreign;

static inline void note(size_t bytes)
{
	if (atomic_load_explicit(&watching, memory_order_relaxed) && !is_foreign)
		atomic_fetch_add_explicit(&seen, (int64_t)bytes, memory_order_relaxed);
}

#if HAVE_ADDRESS_SANITIZER || HAVE_OTHER_SANITIZER

/* As in <sanitizer/allocator_interface.h>, which gcc does not install. */
extern int __sanitizer_install_malloc_and_free_hooks(
	void (*)(const volatile void *, size_t), void (*)(const volatile void *));

static void on_malloc(const volatile void *address, size_t bytes)
{
	(void)address;
	note(bytes);
}

static void on_free(const volatile void *address)
{
	(void)address;
}

bool allocations_visible(void)
{
	static _Atomic int installed;

	if (atomic_exchange(&installed, 1) == 0)
		__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
	return true;
}

#elif defined(__GLIBC__)

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *old);

void *malloc(size_t bytes)
{
	note(bytes);
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	note(count * bytes);
	return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	note(bytes);
	return __libc_realloc(old, bytes);
}

void *memalign(size_t alignment, size_t bytes);
void *memalign(size_t alignment, size_t bytes)
{
	note(bytes);
	return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	note(bytes);
	return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **result, size_t alignment, size_t bytes)
{
	note(bytes);
	*result = __libc_memalign(alignment, bytes);
	return *result != NULL ? 0 : ENOMEM;
}

void free(void *old)
{
	__libc_free(old);
}

/* Code that is generated at run time comes this way. The C library's own calls do not. */
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	note(bytes);
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

bool allocations_visible(void)
{
	return true;
}

#else

bool allocations_visible(void)
{
	return false;
}

#endif

void allocations_foreign(bool foreign)
{
	is_foreign = foreign;
}

void allocations_watch(void)
{
	allocations_visible();
	atomic_store(&seen, 0);
	atomic_store(&watching, true);
}

int64_t allocations_seen(void)
{
	atomic_store(&watching, false);
	return atomic_load(&seen);
}
