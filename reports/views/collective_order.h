/* The communication of a step, unit by unit: the contents and the group of each collective, and the
 * computation beside it. For the view `communication`, as text and as a picture. */
#ifndef REPORTS_VIEWS_COLLECTIVE_ORDER_H
#define REPORTS_VIEWS_COLLECTIVE_ORDER_H

#include "reports/text/text.h"

/* One collective of the step. */
struct carried {
	int op;
	double takes, exposed; /* s; exposed: while nothing else runs */
	int behind;            /* the computation that hides most of it; -1: none does */
};
/* The collectives in issue order, from `arena`. Without a timeline their times are 0. Returns their
 * number. */
int carried_of(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct carried **carried);

/* The operations of a unit in one micro-batch, in issue order: "G8 F
 * G8 B S8 A2". G all-gather, F forward, L loss, r recompute, B backward, S reduce-scatter, A
 * all-reduce, each with the size of its group;
 * parameters are freed; h, d copies from and to the host. */
void unit_pattern(const struct schedule *schedule, int unit, int micro_batch, struct text *text);

/* Collectives of one kind in a step. */
struct collective_sum {
	int count;
	int64_t bytes;     /* of payloads */
	double wire_bytes; /* sent by one rank */
};
struct collective_sum collective_sum(const struct schedule *schedule, enum op_kind kind);

/* The same plan with another strategy, from `arena`. False if there is none, with the reason. */
bool with_strategy(const struct schedule *schedule, enum strategy strategy, struct arena *arena,
	struct schedule **other, struct error *error);

#endif
