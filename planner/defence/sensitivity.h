/* Private to defence/: the plan with one knob changed at a time. */
#ifndef PLANNER_DEFENCE_SENSITIVITY_H
#define PLANNER_DEFENCE_SENSITIVITY_H

#include "planner/evaluation/evaluation.h"

struct variant {
	enum knob_id id; /* KNOB_COUNT: it is not one knob that changes */
	const char *knob, *value;
	bool built;
	const char *refused; /* why it was not built; "" when it was */
	struct plan plan;
	struct prediction prediction; /* without strings, which were those of the evaluator */
	double step_time;             /* s, scaled to the tokens of the plan it varies */
};

enum { VARIANTS_MAX = 96 };

struct variants {
	int n;
	struct variant items[VARIANTS_MAX];
};

/* The least gains of a lever that are worth a row, as shares of the step time, and of a device's
 * memory where no time is lost. */
#define WORTH_TIME   0.002
#define WORTH_MEMORY 0.03

enum variants_wanted {
	VARIANTS_LEVERS, /* one for each lever that the question leaves open */
	VARIANTS_ALL,    /* one for each knob, also those that the user fixed */
	VARIANTS_OTHERS  /* also half the sequence, and twice the nodes: other questions */
};

/* Simulates `plan` with one thing changed at a time; batch and dtypes stay, except where they are
 * the knob. With VARIANTS_LEVERS, levers of a pipeline that are surely not worth a row are not
 * built. `prediction`: that of `plan`. False only for errors of the program itself. */
bool variants_evaluate(const struct question *question, const struct plan *plan,
	const struct prediction *prediction, enum variants_wanted wanted, struct arena *arena,
	struct variants *variants, struct error *error);

/* Makes the rows of the answer in `arena`; returns their number. */
int variants_sensitivities(const struct variants *variants, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena, struct sensitivity **rows);

#endif
