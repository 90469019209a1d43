/* Lists of measurements in order, each thing once. */
#ifndef TOPOLOGIES_SORTED_H
#define TOPOLOGIES_SORTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int compare_i64(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* Puts `item` of `size` bytes among the `n` that the caller's array holds, which has room for one
 * more. False where an equal one is there. */
static inline bool sorted_insert(void *items, int *n, size_t size, const void *item,
	int (*compare)(const void *a, const void *b))
{
	char *list = items;
	size_t at = (size_t)*n;

	while (at > 0 && compare(list + (at - 1) * size, item) > 0)
		at--;
	if (at > 0 && compare(list + (at - 1) * size, item) == 0)
		return false;
	memmove(list + (at + 1) * size, list + at * size, ((size_t)*n - at) * size);
	memcpy(list + at * size, item, size);
	(*n)++;
	return true;
}

#endif
