/* Private to diagnosis/: what the rules look at, and where they are. Each rule looks for
 * one cause. */
#ifndef PLANNER_DIAGNOSIS_RULES_H
#define PLANNER_DIAGNOSIS_RULES_H

#include "planner/diagnosis/diagnosis.h"
#include "simulator/simulator.h"

struct evidence {
	const struct diagnosed *what;
	const struct plan *plan;
	const struct activity_summary *expected, *measured;
	struct arena *arena;
	double planned_time; /* simulated, s */
};

/* Fills everything of `cause` but its id; false: it is not there. */
struct diagnosis_rule {
	const char *id;
	bool (*find)(const struct evidence *evidence, struct diagnosis_cause *cause);
};

/* plan.c: the run does not do what the plan says. Ends with an empty rule, as the other.
 */
extern const struct diagnosis_rule diagnosis_plan_rules[];
/* machine.c: it does, and takes longer. */
extern const struct diagnosis_rule diagnosis_machine_rules[];

/* evidence.c. */
bool evidence_simulate(const struct plan_file *file, const struct plan *plan, bool details,
	struct arena *arena, struct schedule **schedule, struct simulation *simulation,
	struct error *error);
/* Seconds that a change of the plan makes, by simulation; NAN when there is no such plan. */
double evidence_effect(const struct evidence *p, const struct plan *changed);
double evidence_mean_bytes(const struct activity_summary *s, enum activity_kind kind);
double evidence_ratio(double measured, double expected);
double evidence_more_exposed(const struct evidence *p, enum activity_kind kind);
double evidence_lost_to_communication(const struct evidence *p);
double evidence_total_communication(const struct activity_summary *s);
double evidence_hidden_communication(const struct activity_summary *s);
/* What several rules ask. */
bool evidence_has_fp32_parameters(const struct evidence *p);
bool evidence_has_eager_attention(const struct evidence *p);
bool evidence_is_serial(const struct evidence *p);
/* Not less than what says nothing. */
bool evidence_noticeable(const struct evidence *p, double seconds);

#endif
