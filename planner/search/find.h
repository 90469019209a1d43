/* Private to search/: shared by the questions about limits. */
#ifndef PLANNER_SEARCH_FIND_H
#define PLANNER_SEARCH_FIND_H

#include "planner/search/search.h"

struct finder {
	const struct question *question;
	struct arena *arena;
	struct finding *finding;
	int capacity;
};

/* best.c */
struct found *find_row(struct finder *finder, const char *what, double value);
/* Searches another question. Its best plan, or the one that exceeds memory least, becomes a row. A
 * question that contradicts itself becomes a row with a note; false only for errors of the program.
 */
bool find_best(struct finder *finder, const struct question *question, const char *what,
	double value, struct found **row, struct error *error);

/* The same for several questions, which may be searched at once. Rows are in the order of
 * questions. */
struct another {
	struct topology topology; /* for `question` */
	struct question question;
	const char *what;
	double value;
};
bool find_all(struct finder *finder, const struct another *questions, int n, struct error *error);

/* find_machine.c */
bool find_devices(struct finder *finder, struct error *error);
bool find_network(struct finder *finder, double target, struct error *error);
bool find_scaling(struct finder *finder, struct error *error);

#endif
