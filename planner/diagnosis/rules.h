/* Private to diagnosis/: the rules, each of which looks for one cause, and their evidence. */
#ifndef PLANNER_DIAGNOSIS_RULES_H
#define PLANNER_DIAGNOSIS_RULES_H

#include "planner/diagnosis/diagnosis.h"
#include "simulator/simulator.h"

struct evidence {
	const struct diagnosed *what;
	const struct plan *plan;
	const struct activity_summary *expected, *measured;
	struct arena *arena;
	double planned_time; /* s: the simulated step of the plan */
};

/* `find` fills everything of `cause` but its id. False: the run does not have this cause. */
struct diagnosis_rule {
	const char *id;
	bool (*find)(const struct evidence *evidence, struct diagnosis_cause *cause);
};

/* Both tables end with an empty rule. plan.c: the run does not do what the plan says. */
extern const struct diagnosis_rule diagnosis_plan_rules[];
/* machine.c: the run does what the plan says, and takes longer. */
extern const struct diagnosis_rule diagnosis_machine_rules[];

/* --- evidence.c ------------------------------------------------------------------------------- */

bool evidence_simulate(const struct plan_file *file, const struct plan *plan, bool details,
	struct arena *arena, struct schedule **schedule, struct simulation *simulation,
	struct error *error);
/* Seconds by which a change of the plan changes the simulated step; NAN: there is no such plan. */
double evidence_effect(const struct evidence *p, const struct plan *changed);
double evidence_mean_bytes(const struct activity_summary *s, enum activity_kind kind);
double evidence_ratio(double measured, double expected);
double evidence_more_exposed(const struct evidence *p, enum activity_kind kind);
double evidence_lost_to_communication(const struct evidence *p);
double evidence_total_communication(const struct activity_summary *s);
double evidence_hidden_communication(const struct activity_summary *s);
bool evidence_has_fp32_parameters(const struct evidence *p);
bool evidence_has_eager_attention(const struct evidence *p);
bool evidence_is_serial(const struct evidence *p);
/* Are so many seconds of a step more than noise? */
bool evidence_noticeable(const struct evidence *p, double seconds);

#endif
