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
	struct trace_facts facts;
};

struct diagnosis_cause {
	const char *id; /* "no-wrap" */
	const char *title, *evidence, *advice;
	double seconds; /* per step, as measured */
	double gain;    /* s per step, of the step as planned with and without it; NAN = unknown */
};

enum { DIAGNOSIS_MAX_CAUSES = 16 };

/* What a step is made of, coarsely: every moment counts once. */
struct diagnosis_part {
	const char *name;          /* "compute", "exposed communication", "waiting for data", ... */
	double measured, expected; /* s per step */
};

enum { DIAGNOSIS_PARTS = 7 };

struct diagnosis {
	struct activity_summary expected, measured;
	double mfu, expected_mfu; /* 0 = no peak is known */
	const char *peak_name;
	struct diagnosis_part parts[DIAGNOSIS_PARTS]; /* the longest first */
	const struct diagnosis_part *loss; /* longer than predicted by most; NULL: none is */
	int n_causes;
	struct diagnosis_cause causes[DIAGNOSIS_MAX_CAUSES]; /* the costliest first */
};

/* Strings come from `arena`. Errors are those of building and simulating the plan. */
bool diagnose(const struct diagnosed *diagnosed, struct arena *arena, struct diagnosis *diagnosis,
	struct error *error);

/* --- without a trace: a step time or an MFU --- */

struct diagnosed_figures {
	const struct plan_file *file;
	double step_time, mfu; /* 0 = not known, one is; where both are, the step time counts */
	int n_steps;           /* the step time is the median of; 0 = not known */
	double spread;         /* their standard deviation over their mean; NAN = not known */
};

enum { MFU_CONVENTIONS = 4, FIGURE_CANDIDATES = 16, FIGURE_CONDITIONS = 4 };

/* One way to count FLOPs. */
struct mfu_convention {
	const char *name;
	double predicted, measured; /* at the measured step time */
};

/* A cause that a plan can have: what it alone makes of the step, by simulation. */
struct figure_candidate {
	const char *id, *title, *look; /* how to see whether it is so */
	double step_time, effect;      /* s */
	bool fits;                     /* in memory; else the run would not be there */
};

/* What alone would make the step as long as it is. */
struct figure_condition {
	const char *id, *text;
};

struct figures_diagnosis {
	const struct prediction *prediction;
	double step_time; /* measured, or from the MFU */
	double mfu;       /* as given; 0 = not given */
	int n_steps;
	double spread;
	int n_conventions, n_candidates, n_conditions;
	struct mfu_convention conventions[MFU_CONVENTIONS];
	const struct mfu_convention
		*convention; /* whose MFU is that given; NULL: none, or no MFU */
	struct figure_candidate candidates[FIGURE_CANDIDATES]; /* those that fit, largest
								* effect first */
	struct figure_condition conditions[FIGURE_CONDITIONS];
};

/* EXIT_CODE_INPUT for an MFU on a device without a known peak. */
bool diagnose_figures(const struct diagnosed_figures *diagnosed, struct arena *arena,
	struct figures_diagnosis *diagnosis, struct error *error);

#endif
