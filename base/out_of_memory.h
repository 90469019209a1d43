/* Running out of memory never returns. */
#ifndef BASE_OUT_OF_MEMORY_H
#define BASE_OUT_OF_MEMORY_H

#include <stddef.h>

/* Memory ran out. Calls the handler that the edge (cli) installed, which does not return; without
 * one it aborts. Libraries below cli never continue after it, so no caller tests for NULL. */
_Noreturn void base_out_of_memory(size_t bytes);
void base_set_out_of_memory_handler(void (*handler)(size_t bytes));

/* Grows a malloc'ed array: returns room for at least `needed` elements of `size` bytes, doubling
 * `*capacity`. The caller owns and frees it. Never NULL. */
void *array_grow(void *array, int *capacity, int needed, size_t size);

#endif
