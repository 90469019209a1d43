#include <stdint.h>
#include <stdlib.h>

#include "base/out_of_memory.h"

static void (*out_of_memory_handler)(size_t bytes);

void base_set_out_of_memory_handler(void (*handler)(size_t bytes))
{
	out_of_memory_handler = handler;
}

_Noreturn void base_out_of_memory(size_t bytes)
{
	if (out_of_memory_handler != NULL)
		out_of_memory_handler(bytes);
	abort();
}

void *array_grow(void *array, int *capacity, int needed, size_t size)
{
	size_t bytes;

	if (array != NULL && needed <= *capacity)
		return array;
	int grown = *capacity > INT32_MAX / 2 ? INT32_MAX : *capacity * 2;
	if (grown < needed)
		grown = needed;
	if (grown < 8)
		grown = 8;
	if (__builtin_mul_overflow((size_t)grown, size, &bytes))
		base_out_of_memory(SIZE_MAX);
	void *result = realloc(array, bytes > 0 ? bytes : 1);
	if (result == NULL)
		base_out_of_memory(bytes);
	*capacity = grown;
	return result;
}
