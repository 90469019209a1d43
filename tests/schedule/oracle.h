/* A second, different implementation of laws/order.c: the whole happens-before relation of two
 * steps, with one bit for each pair. */
#ifndef TESTS_SCHEDULE_ORACLE_H
#define TESTS_SCHEDULE_ORACLE_H

#include "schedule/schedule.h"

struct oracle {
	const struct program *program;
	int words;      /* of one row */
	uint64_t *rows; /* 2 * n_ops of them: what has finished when an operation starts */
};

/* `oracle` zeroed or used before. */
void oracle_build(struct oracle *oracle, const struct program *program);
void oracle_finish(struct oracle *oracle);
/* Is it the same relation as another's of the same size? */
bool oracle_equal(const struct oracle *a, const struct oracle *b);
/* Has one operation of a step surely finished when another one of the same step starts? */
bool oracle_before(const struct oracle *oracle, int first, int then);
/* Are all operations that touch one buffer ordered, within a step and, where the buffer is
 * resident, from one step to the next? */
bool oracle_ordered(const struct oracle *oracle);

#endif
