/* Functions of a library that is found when the program runs, put into a struct of pointers. */
#ifndef KERNELS_SYMBOLS_H
#define KERNELS_SYMBOLS_H

#include <stddef.h>

struct symbol {
	const char *name;
	size_t offset; /* of the pointer in the table */
};

/* Fills `table`; the first name that `library` (of dlopen) lacks, or NULL when all are there. */
const char *symbols_find(void *library, const struct symbol *symbols, int n, void *table);

#endif
