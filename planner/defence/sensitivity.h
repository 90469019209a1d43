/* Private to defence/: the plan with one knob changed at a time. */
#ifndef PLANNER_DEFENCE_SENSITIVITY_H
#define PLANNER_DEFENCE_SENSITIVITY_H

#include "planner/evaluation/evaluation.h"

struct variant {
	enum knob_id id; /* KNOB_COUNT: no knob alone */
	const char *knob, *value;
	bool built;
	const char *refused; /* why it was not built; "" when it was */
	struct plan plan;
	struct prediction prediction; /* its strings are gone */
	double step_time;             /* s, scaled to the tokens of the plan it varies */
};

enum { VARIANTS_MAX = 96 };

struct variants {
	int n;
	struct variant items[VARIANTS_MAX];
};

/* Gains of a lever that are worth a row: of the time; of the memory of a device, where time is not
 * lost. */
#define WORTH_TIME   0.002
#define WORTH_MEMORY 0.03

enum variants_wanted {
	VARIANTS_LEVERS, /* with each lever pulled that the question leaves open */
	VARIANTS_ALL,    /* with each knob changed, also those that the user fixed */
	VARIANTS_OTHERS  /* also with half the sequence and with twice the nodes: other questions */
};

/* Simulates `plan` with one thing changed at a time; batch and dtypes stay, except where they are
 * the knob. Of a pipeline's levers alone, those are not built that are surely not worth a row.
 * `prediction`: the plan's. False only for errors that are ours. */
bool variants_evaluate(const struct question *question, const struct plan *plan,
	const struct prediction *prediction, enum variants_wanted wanted, struct arena *arena,
	struct variants *variants, struct error *error);

/* Rows for the answer. */
int variants_sensitivities(const struct variants *variants, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena, struct sensitivity **rows);

#endif
