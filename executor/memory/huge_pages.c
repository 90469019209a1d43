#include "executor/memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A large page that holds nothing yet is not made, so each is touched. The heap is poisoned where
 * nothing lies in it. */
__attribute__((no_sanitize("address"))) static void touch(char *page)
{
	volatile char *byte = page;

	*byte = *byte;
}

void huge_pages(void *start, int64_t bytes)
{
	char *from = (char *)(intptr_t)round_up((intptr_t)start, HUGE_PAGE);
	int64_t whole = ((char *)start + bytes - from) / HUGE_PAGE * HUGE_PAGE;

	for (int64_t at = 0; at < whole; at += HUGE_PAGE)
		touch(from + at);
	/* Nothing depends on success, because small pages hold the same bytes. */
	if (whole > 0)
		(void)madvise(from, (size_t)whole, MADV_COLLAPSE);
}

void touch_pages(void *start, int64_t bytes)
{
	int64_t page = sysconf(_SC_PAGESIZE);

	for (int64_t at = 0; at < bytes; at += page)
		touch((char *)start + at);
}

/* Keeps [base, base + bytes) of an address range that was reserved generously. */
static void trim(char *range, int64_t reserved, char *base, int64_t bytes)
{
	char *end = base + round_up(bytes, sysconf(_SC_PAGESIZE));

	if (base > range)
		munmap(range, (size_t)(base - range));
	if (end < range + reserved)
		munmap(end, (size_t)(range + reserved - end));
}

void *huge_pages_map(int fd, int64_t bytes, int protection)
{
	int64_t reserved = round_up(bytes, HUGE_PAGE) + HUGE_PAGE;
	char *range = mmap(NULL, (size_t)reserved, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (range == MAP_FAILED)
		return range;
	char *base = (char *)(intptr_t)round_up((intptr_t)range, HUGE_PAGE);
	trim(range, reserved, base, bytes);
	void *mapped = mmap(
		base, (size_t)bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
	if (mapped == MAP_FAILED)
		munmap(base, (size_t)bytes);
	return mapped;
}
