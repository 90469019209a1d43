/* Shared by the rules: compares the measured step with the predicted one. */
#include "planner/diagnosis/rules.h"

#include <math.h>

/* Differences below this share of the step are noise. */
#define NOTICEABLE 0.03

bool evidence_simulate(const struct plan_file *file, const struct plan *plan, bool details,
	struct arena *arena, struct schedule **schedule, struct simulation *simulation,
	struct error *error)
{
	const struct simulation_options options = {.quick_interval = true};

	return schedule_build(arena, plan, file->model, file->topology, schedule, error) &&
	       simulate(*schedule, &options, details, arena, simulation, error);
}

double evidence_effect(const struct evidence *p, const struct plan *changed)
{
	struct arena arena = {0};
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};
	double seconds = NAN;

	if (evidence_simulate(
		    p->what->file, changed, false, &arena, &schedule, &simulation, &error))
		seconds = simulation.prediction.step_time - p->planned_time;
	arena_finish(&arena);
	return seconds;
}

double evidence_mean_bytes(const struct activity_summary *s, enum activity_kind kind)
{
	return s->count[kind] > 0 ? s->bytes[kind] / s->count[kind] : 0;
}

double evidence_ratio(double measured, double expected)
{
	return expected > 0 ? measured / expected : measured > 0 ? INFINITY : 1;
}

double evidence_more_exposed(const struct evidence *p, enum activity_kind kind)
{
	return fmax(0, p->measured->exposed[kind] - p->expected->exposed[kind]);
}

double evidence_lost_to_communication(const struct evidence *p)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += evidence_more_exposed(p, kind);
	return seconds;
}

bool evidence_noticeable(const struct evidence *p, double seconds)
{
	return seconds > NOTICEABLE * p->measured->step_time;
}

double evidence_total_communication(const struct activity_summary *s)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += s->seconds[kind];
	return seconds;
}

double evidence_hidden_communication(const struct activity_summary *s)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += fmax(0, s->seconds[kind] - s->exposed[kind]);
	return seconds;
}

/* By kernels and messages where the trace names them, else by the number of bytes. */
bool evidence_has_fp32_parameters(const struct evidence *p)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	const struct trace_facts *facts = &p->what->facts;

	if (p->plan->param_dtype == DTYPE_FP32)
		return false;
	if (!isnan(facts->fp32_products))
		return facts->fp32_products > 0.5;
	if (!isnan(facts->fp32_gathered))
		return facts->fp32_gathered > 0.5;
	return p->expected->count[g] > 0 &&
	       evidence_ratio(p->measured->bytes[g], p->expected->bytes[g]) > 1.6 &&
	       evidence_ratio(p->measured->count[g], p->expected->count[g]) < 1.2;
}

/* A softmax in every block, and nothing fused. */
bool evidence_has_eager_attention(const struct evidence *p)
{
	double blocks = (double)(p->what->file->model->architecture.layers * p->plan->grad_accum);

	return attention_is_flash(p->plan->attention) &&
	       p->what->facts.softmax_kernels >= blocks / 2 && blocks > 0;
}

/* The plan hides much of its communication, the run next to nothing; one large unit would have
 * nothing to hide it behind. */
bool evidence_is_serial(const struct evidence *p)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double planned = evidence_hidden_communication(p->expected);

	return evidence_noticeable(p, planned) &&
	       evidence_hidden_communication(p->measured) < 0.15 * planned &&
	       p->measured->count[g] > p->expected->count[g] / 2;
}
