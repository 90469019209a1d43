/* Lists of operations that run in order, with the loops that repeat parts of them. */
#ifndef SIMULATOR_ENGINE_LISTS_H
#define SIMULATOR_ENGINE_LISTS_H

#include "schedule/schedule.h"

enum { LOOP_DEPTH = 2 };

/* Operations that are issued, run on a stream, or use a communicator one after the other. */
struct list {
	int n;
	int *ops;     /* [n] the operation at each place */
	int *closes;  /* [n] the innermost loop that ends with it; -1: none */
	int *opens;   /* [loops] the place of the loop's first operation; -1: none is in the list */
	int *lengths; /* [loops] how many of the loop's operations are in the list */
};

/* A place of a list, and the iterations of the loops around it, the outermost first. */
struct cursor {
	int step, at;
	int round[LOOP_DEPTH];
};

/* The list of the operations i with member[i] == value, of all where `member` is NULL. Its arrays
 * come from `arena`. */
struct list list_of(
	const struct program *program, const int *member, int value, struct arena *arena);
/* Moves the cursor to the next operation, also into the next iteration or step. */
void list_advance(const struct list *list, const struct program *program, struct cursor *cursor);

#endif
