/* Private to planner/: one candidate through schedule and simulator. */
#ifndef PLANNER_EVALUATE_H
#define PLANNER_EVALUATE_H

#include "planner/planner.h"

/* What candidates are compared by, whole numbers so that no order depends on rounding. */
enum cost_kind {
	COST_TIME,    /* femtoseconds of step time per token of the global batch */
	COST_MEMORY,  /* peak_memory_bytes of one device */
	COST_NETWORK, /* millibytes per token that leave a node (one node: a rank) */
	COST_HOST,    /* host_memory_bytes */
	COST_COUNT
};

struct costs {
	int64_t of[COST_COUNT];
};

/* Seconds per step and bytes per step of a plan as costs; a step time that costs more than `time`,
 * by little. */
int64_t costs_time(const struct plan *plan, double step_time);
int64_t costs_network(const struct plan *plan, double bytes);
double costs_step_above(const struct plan *plan, int64_t time);

/* One arena for everything that a candidate needs, emptied before each. */
struct evaluator {
	const struct question *question;
	struct arena scratch;
	int64_t evaluated, emitted; /* plans; schedules, which plans and their bounds share */
};

/* What communication costs one step, seconds. */
struct exposure {
	double seconds[3];    /* by enum collective_kind: no compute runs meanwhile */
	bool over_network[3]; /* the exposed part is mostly of groups that span nodes */
	double slowed;        /* compute takes longer than alone */
	double idle;          /* neither compute nor communication runs */
};

/* The plan's schedule, in `scratch`: until the next call. */
struct schedule *evaluator_emit(struct evaluator *evaluator, const struct plan *plan);
/* Simulates it. A step that takes longer than `slow` seconds (0: none) has a step time and nothing
 * else, and does not count as evaluated. */
bool evaluator_run_emitted(struct evaluator *evaluator, const struct schedule *schedule,
	double slow, struct prediction *prediction, struct error *error);
/* Both. EXIT_CODE_USAGE when this plan cannot be built. The prediction has
 * no lower bounds and no ledger; its strings live in `scratch` until the next call. */
bool evaluator_run(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* All of it, with the step's timeline, and with strings in `arena`. */
bool evaluator_run_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error);
/* On another topology than the question's (what would happen if a link were faster). */
bool evaluator_run_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, struct prediction *prediction, struct error *error);
/* Whether it fits; its memory is filled only when it does with room. A step that takes longer than
 * `slow` seconds (0: none) is not judged: it fits. */
bool evaluator_judge_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, double slow, struct prediction *prediction, struct error *error);
bool evaluator_judge(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error);
/* The step of a schedule on a topology that differs from its own in links only: what is done does
 * not depend on them. */
bool evaluator_time(struct evaluator *evaluator, const struct schedule *schedule,
	const struct topology *topology, double *step_time, struct error *error);
void evaluator_finish(struct evaluator *evaluator);

struct costs costs_of(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);

#endif
