/* One candidate through schedule and simulator, and what of its communication is exposed. */
#include "planner/evaluation/evaluation.h"

#include <math.h>

#include "schedule/fold/fold.h"
#include "schedule/laws/laws.h"
#include "simulator/simulator.h"

/* --- costs ------------------------------------------------------------------------------------ */

static int64_t whole(double value)
{
	return value < 9e18 ? (int64_t)(value + 0.5) : INT64_C(9000000000000000000);
}

int64_t costs_time(const struct plan *plan, double step_time)
{
	return whole(step_time * 1e15 / plan_tokens(plan));
}

int64_t costs_network(const struct plan *plan, double bytes)
{
	return whole(bytes * 1e3 / plan_tokens(plan));
}

double costs_step_above(const struct plan *plan, int64_t time)
{
	return ((double)time + 1) * plan_tokens(plan) * 1e-15 * (1 + 1e-12);
}

struct costs costs_of(const struct question *question, const struct plan *plan,
	const struct prediction *prediction)
{
	double network = question->topology->nodes > 1 ? prediction->wire_bytes_node_egress
						       : prediction->wire_bytes_per_rank;
	return (struct costs){{
		[COST_TIME] = costs_time(plan, prediction->step_time),
		[COST_MEMORY] = prediction->peak_memory_bytes,
		[COST_NETWORK] = costs_network(plan, network),
		[COST_HOST] = prediction->host_memory_bytes,
	}};
}

/* --- exposure --------------------------------------------------------------------------------- */

static enum collective_kind collective_of(enum op_kind kind)
{
	return kind == OP_ALL_GATHER       ? COLLECTIVE_ALL_GATHER
	       : kind == OP_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
					   : COLLECTIVE_ALL_REDUCE;
}

static bool computes(const struct op *op)
{
	enum op_class class = op_kind_class(op->kind);
	return op->stream == STREAM_COMPUTE &&
	       (class == OP_CLASS_COMPUTE || class == OP_CLASS_TRAFFIC);
}

/* The stream is serial: its spans come in order and do not overlap. */
static int compute_spans(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct span **spans, double *slowed)
{
	const struct program *program = &schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(arena, struct cost, program->n_ops);
	int n = 0;
	*spans = ARENA_ARRAY(arena, struct span, program->n_ops);
	cost_operations(schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &timeline->spans[i];
		if (!computes(&program->ops[i]))
			continue;
		(*spans)[n++] = *span;
		*slowed += fmax(0, span->end - span->start - costs[i].device);
	}
	return n;
}

static double overlap(struct span a, struct span b)
{
	return fmax(0, fmin(a.end, b.end) - fmax(a.start, b.start));
}

/* Seconds of `span` in which no span of `busy` runs. `from`: spans before it are over. */
static double uncovered(struct span span, const struct span *busy, int n, int from)
{
	double left = span.end - span.start;
	for (int i = from; i < n && busy[i].start < span.end; i++)
		left -= overlap(span, busy[i]);
	return left;
}

static bool spans_nodes(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	return topology_place(schedule->topology, group->size, group->stride).nodes > 1;
}

static void find_exposure(const struct schedule *schedule, const struct simulation *simulation,
	struct arena *arena, struct exposure *exposure)
{
	const struct program *program = &schedule->programs[0];
	const struct timeline *timeline = &simulation->timeline;
	double network[3] = {0}, busy_time = 0, exposed = 0;
	struct span *busy;
	*exposure = (struct exposure){0};
	int n = compute_spans(schedule, timeline, arena, &busy, &exposure->slowed);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op_kind_class(op->kind) != OP_CLASS_COLLECTIVE)
			continue;
		enum collective_kind kind = collective_of(op->kind);
		double seconds = uncovered(timeline->spans[i], busy, n, 0);
		exposure->seconds[kind] += seconds;
		network[kind] += spans_nodes(schedule, op) ? seconds : 0;
	}
	for (int i = 0; i < n; i++)
		busy_time += busy[i].end - busy[i].start;
	for (int k = 0; k < 3; k++) {
		exposure->over_network[k] = network[k] > exposure->seconds[k] / 2;
		exposed += exposure->seconds[k];
	}
	exposure->idle = fmax(0, timeline->step_time - busy_time - exposed);
}

/* --- evaluation ------------------------------------------------------------------------------- */

static const char *copy(struct arena *arena, const char *string)
{
	return string != NULL ? arena_strdup(arena, string) : NULL;
}

static void keep_strings(struct prediction *prediction, struct arena *arena)
{
	prediction->schedule_digest = copy(arena, prediction->schedule_digest);
	prediction->peak_name = copy(arena, prediction->peak_name);
	prediction->peak_at = copy(arena, prediction->peak_at);
	prediction->uncertainty_source = copy(arena, prediction->uncertainty_source);
}

static struct simulation_options sketch(struct evaluator *evaluator)
{
	return (struct simulation_options){
		.memory_limit_bytes = evaluator->question->memory_limit_bytes,
		.quick_interval = true,
		.no_bounds = true,
		.scratch = &evaluator->simulating};
}

/* One plan on one machine. `details`: the whole simulation of a schedule that keeps the laws, else
 * its figures: what is shown was looked at in detail. */
struct trial {
	const struct topology *topology;
	const struct plan *plan;
	struct simulation_options options;
	bool details;
	struct schedule *schedule;
	struct simulation simulation;
};

static bool run(struct evaluator *evaluator, struct trial *trial, struct error *error)
{
	struct arena *scratch = &evaluator->scratch;
	arena_reset(scratch);
	evaluator->evaluated++;
	evaluator->emitted += trial->details;
	trial->schedule = (trial->details ? schedule_emit : schedule_fold)(
		scratch, trial->plan, evaluator->question->model, trial->topology);
	return (!trial->details || schedule_validate(trial->schedule, error)) &&
	       simulate(trial->schedule, &trial->options, trial->details, scratch,
		       &trial->simulation, error);
}

bool evaluator_run_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, struct prediction *prediction, struct error *error)
{
	struct trial trial = {topology, plan, sketch(evaluator)};
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	return true;
}

struct schedule *evaluator_emit(struct evaluator *evaluator, const struct plan *plan)
{
	const struct question *question = evaluator->question;
	arena_reset(&evaluator->scratch);
	evaluator->emitted++;
	return schedule_emit(&evaluator->scratch, plan, question->model, question->topology);
}

bool evaluator_run_unless_slow(struct evaluator *evaluator, const struct plan *plan, double slow,
	struct prediction *prediction, struct error *error)
{
	struct trial trial = {evaluator->question->topology, plan, sketch(evaluator)};
	trial.options.slow = slow;
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	evaluator->evaluated -= slow > 0 && prediction->step_time > slow;
	return true;
}

bool evaluator_run(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	return evaluator_run_on(evaluator, evaluator->question->topology, plan, prediction, error);
}

bool evaluator_judge_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, double slow, struct prediction *prediction, struct error *error)
{
	struct trial trial = {topology, plan, sketch(evaluator)};
	trial.options.memory = MEMORY_FITS;
	trial.options.slow = slow;
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	return true;
}

bool evaluator_judge(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	return evaluator_judge_on(
		evaluator, evaluator->question->topology, plan, 0, prediction, error);
}

bool evaluator_time(struct evaluator *evaluator, const struct schedule *schedule,
	const struct topology *topology, double *step_time, struct error *error)
{
	struct simulation_options options = sketch(evaluator);
	struct schedule moved = *schedule;
	struct simulation simulation;
	options.memory = MEMORY_IGNORED;
	moved.topology = topology;
	arena_reset(&evaluator->scratch);
	evaluator->evaluated++;
	if (!simulate(&moved, &options, false, &evaluator->scratch, &simulation, error))
		return false;
	*step_time = simulation.prediction.step_time;
	return true;
}

bool evaluator_run_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error)
{
	struct trial trial = {.topology = evaluator->question->topology,
		.plan = plan,
		.options.memory_limit_bytes = evaluator->question->memory_limit_bytes,
		.details = true};
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	keep_strings(prediction, arena);
	find_exposure(trial.schedule, &trial.simulation, &evaluator->scratch, exposure);
	return true;
}

void evaluator_finish(struct evaluator *evaluator)
{
	arena_finish(&evaluator->scratch);
	arena_finish(&evaluator->simulating);
}
