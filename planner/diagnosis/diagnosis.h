/* Explains why a measured step differs from the predicted one: what limits it, where it differs,
 * and which knob to turn. The same rules sum up measured and predicted steps
 * (schedule/traces/activity.h). */
#ifndef PLANNER_DIAGNOSIS_DIAGNOSIS_H
#define PLANNER_DIAGNOSIS_DIAGNOSIS_H

#include "schedule/documents/documents.h"
#include "schedule/traces/traces.h"

/* A measurement, and the plan that was run. */
struct diagnosed {
	const struct plan_file *file;
	struct activities *activities; /* of the measurement; sorted by diagnose */
	struct trace_facts facts;
};

struct diagnosis_cause {
	const char *id; /* "no-wrap" */
	const char *title, *evidence, *advice;
	double seconds; /* per step, as measured */
	double gain;    /* s per step that its removal saves, by simulation; NAN: unknown */
};

enum { DIAGNOSIS_MAX_CAUSES = 16 };

/* One part of a step's time; every moment of the step is in exactly one. */
struct diagnosis_part {
	const char *name;          /* "compute", "exposed communication", "waiting for data", ... */
	double measured, expected; /* s per step */
};

enum { DIAGNOSIS_PARTS = 7 };

struct diagnosis {
	struct activity_summary expected, measured;
	double mfu, expected_mfu; /* 0: the device's peak is not known */
	const char *peak_name;
	struct diagnosis_part parts[DIAGNOSIS_PARTS]; /* the longest first */
	const struct diagnosis_part *loss; /* the part that exceeds its prediction most; NULL: none
					    * does */
	int n_causes;
	struct diagnosis_cause causes[DIAGNOSIS_MAX_CAUSES]; /* the costliest first */
};

/* Strings come from `arena`. Errors are those of building and simulating the plan. */
bool diagnose(const struct diagnosed *diagnosed, struct arena *arena, struct diagnosis *diagnosis,
	struct error *error);

/* --- without a trace: a step time or an MFU --- */

struct diagnosed_figures {
	const struct plan_file *file;
	double step_time,
		mfu;   /* s; 0: not known. One is known; the step time counts before the MFU */
	int n_steps;   /* of which the step time is the median; 0: not known */
	double spread; /* of these steps, standard deviation / mean; NAN: not known */
};

enum { MFU_CONVENTIONS = 4, FIGURE_CANDIDATES = 16, FIGURE_CONDITIONS = 4 };

/* One way to count the FLOPs of an MFU. */
struct mfu_convention {
	const char *name;
	double predicted, measured; /* at the measured step time */
};

/* A possible cause, and its effect on the step by simulation. */
struct figure_candidate {
	const char *id, *title;
	const char *look;         /* how to see whether it is the cause */
	double step_time, effect; /* s: of the step with this cause; by how much that is longer */
	bool fits;                /* in memory; else it cannot have been the run */
};

/* A single condition that would make the step as long as it is. */
struct figure_condition {
	const char *id, *text;
};

struct figures_diagnosis {
	const struct prediction *prediction;
	double step_time; /* s; measured, or computed from the MFU */
	double mfu;       /* as given; 0: not given */
	int n_steps;
	double spread;
	int n_conventions, n_candidates, n_conditions;
	struct mfu_convention conventions[MFU_CONVENTIONS];
	const struct mfu_convention
		*convention; /* the one that gives the MFU; NULL: none does, or no MFU */
	struct figure_candidate candidates[FIGURE_CANDIDATES]; /* those that fit, largest
								* effect first */
	struct figure_condition conditions[FIGURE_CONDITIONS];
};

/* Strings come from `arena`. EXIT_CODE_INPUT: an MFU on a device whose peak is not known. */
bool diagnose_figures(const struct diagnosed_figures *diagnosed, struct arena *arena,
	struct figures_diagnosis *diagnosis, struct error *error);

#endif
