/* The order of operations, loop by loop. */
#ifndef SIMULATOR_ENGINE_LISTS_H
#define SIMULATOR_ENGINE_LISTS_H

#include "schedule/schedule.h"

enum { LOOP_DEPTH = 2 };

/* Operations that one after the other are issued, run on a stream, or pass a communicator. By place
 * in the list: the operation, and the innermost loop that it is the last one of (-1: none). By
 * loop: the place of its first operation (-1: it has none here), and how many it has here. */
struct list {
	int n;
	int *ops, *closes;
	int *opens, *lengths;
};

/* Which of a list's operations is next, and in which iteration of the loops round it, the outermost
 * first. */
struct cursor {
	int step, at;
	int round[LOOP_DEPTH];
};

/* The list of those operations i with member[i] == value; all for NULL. From `arena`. */
struct list list_of(
	const struct program *program, const int *member, int value, struct arena *arena);
void list_advance(const struct list *list, const struct program *program, struct cursor *cursor);

#endif
