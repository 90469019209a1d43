/* Why a measured step is not the predicted one: what bounds it, where it departs, and which knob to
 * turn. Measured and predicted steps are summed up by the same rules (schedule/traces/activity.h).
 */
#ifndef PLANNER_DIAGNOSIS_DIAGNOSIS_H
#define PLANNER_DIAGNOSIS_DIAGNOSIS_H

#include "schedule/documents/documents.h"
#include "schedule/traces/traces.h"

/* What is measured. */
struct diagnosed {
	const struct plan_file *file;
	struct activities *activities; /* of the measurement; sorted by diagnose */
	double fp32_reduced;           /* share of reduced bytes that are fp32; NAN = not known */
};

struct diagnosis_cause {
	const char *id; /* "no-wrap" */
	const char *title, *evidence, *advice;
	double seconds; /* per step, as measured */
	double gain;    /* s per step, by simulating the step with and without it; NAN = unknown */
};

enum { DIAGNOSIS_MAX_CAUSES = 16 };

struct diagnosis {
	struct activity_summary expected, measured;
	const char *bound;    /* what most of the step is, "compute", "exposed all-gather", ... */
	double bound_seconds; /* per step */
	int n_causes;
	struct diagnosis_cause causes[DIAGNOSIS_MAX_CAUSES]; /* the costliest first */
};

/* Strings come from `arena`. Errors are those of building and simulating the plan. */
bool diagnose(const struct diagnosed *diagnosed, struct arena *arena, struct diagnosis *diagnosis,
	struct error *error);

#endif
