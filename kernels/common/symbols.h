/* Libraries that are found when the program runs: their functions, put into a struct of pointers.
 */
#ifndef KERNELS_SYMBOLS_H
#define KERNELS_SYMBOLS_H

#include <pthread.h>
#include <stddef.h>

#include "base/base.h"

struct symbol {
	const char *name;
	size_t offset; /* of the pointer in the table */
};

/* Loads the library of that file name and fills `table`. NULL when all is there; else `file` itself
 * where there is no such library, or the first name that it lacks. */
const char *library_open(const char *file, const struct symbol *symbols, int n, void *table);

/* A table that is filled when it is first asked for. */
struct shared_library {
	const void *table;
	void (*load)(struct error *error); /* an error: it cannot be used */
	/* private */
	pthread_mutex_t lock;
	bool loaded;
	struct error failure;
	const void *other;
};
#define LIBRARY(load_table, filled)                                                                \
	{                                                                                          \
		.table = (filled), .load = (load_table), .lock = PTHREAD_MUTEX_INITIALIZER         \
	}

/* NULL with the error of `load`. */
const void *library_table(struct shared_library *library, struct error *error);
/* For tests, before any thread starts. */
void library_replace(struct shared_library *library, const void *table);

#endif
