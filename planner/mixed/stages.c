/* Shares the blocks of a pipeline out over its stages. An integer programme over the simulator's
 * times and bytes proposes, the simulator decides. */
#include "planner/mixed/mixed.h"

#include <math.h>
#include <string.h>

#include "planner/integer/integer.h"
#include "schedule/pipeline/pipeline.h"

enum { PROPOSALS = 3 };

/* Tolerance for seconds that were rounded to whole numbers. */
#define ROUNDING 1e-6

struct stages {
	const struct question *question;
	const struct plan *plan;
	struct arena *arena;
	struct pipeline pipeline;
	int n, *usual; /* stages, and the blocks of each in `plan` */
	int *most, *now;
	double *bytes; /* of a block, by rank */
	struct sharing sharing;
};

/* --- the programme ---------------------------------------------------------------------------- */

static void measure(struct stages *s)
{
	const struct block_load load = bounds_block(s->question, s->plan);
	int *rank = ARENA_ARRAY(s->arena, int, s->n), chunk;
	s->sharing = (struct sharing){.blocks = (int)s->question->model->architecture.layers,
		.ranks = s->pipeline.ranks,
		.chunks = s->pipeline.chunks,
		.block = load.block,
		.first = load.embedding,
		.last = load.head,
		.rank = rank,
		.most = s->most};
	for (int stage = 0; stage < s->n; stage++) {
		pipeline_place(&s->pipeline, stage, &rank[stage], &chunk);
		s->now[rank[stage]] += s->usual[stage];
	}
	for (int r = 0; r < s->pipeline.ranks; r++) {
		struct pipeline_slot *slots;
		int n = pipeline_order(&s->pipeline, r, s->arena, &slots);
		double held = (double)pipeline_in_flight(slots, n) / s->pipeline.chunks;
		s->bytes[r] = held * load.saved + load.states;
	}
}

/* The bytes that a rank has left; < 0: it lacks them. The allocator's cache is known of the fullest
 * rank, and assumed to be equal on the others. */
static double left_of(const struct stages *s, const struct prediction *usual, int rank)
{
	double needed = (double)prediction_needed_bytes(usual);
	double worst = (double)(prediction_wanted_bytes(usual) - usual->classes[rank].wanted_bytes);
	return (double)(usual->memory_limit_bytes - headroom_bytes(s->question, s->plan, usual)) -
	       needed + worst;
}

static void limit(struct stages *s, const struct prediction *usual)
{
	for (int r = 0; r < s->pipeline.ranks; r++) {
		double more = floor(left_of(s, usual, r) / s->bytes[r]);
		s->most[r] = (int)fmax(0, fmin(s->now[r] + more, s->sharing.blocks));
	}
}

/* --- proposals -------------------------------------------------------------------------------- */

static int held_by(const struct stages *s, const int *stages, int rank)
{
	int held = 0;
	for (int stage = 0; stage < s->n; stage++)
		held += s->sharing.rank[stage] == rank ? stages[stage] : 0;
	return held;
}

static struct plan with_stages(const struct stages *s, const int *stages)
{
	struct plan plan = *s->plan;
	plan.layers_per_stage = rows_make_counts(s->arena, stages, s->n);
	return plan;
}

/* Takes blocks from the worst rank, enough for the bytes that it lacks. */
static void limit_further(
	struct stages *s, const int *stages, const struct plan *plan, const struct prediction *p)
{
	int rank = p->rank_class;
	double over = (double)(prediction_needed_bytes(p) + headroom_bytes(s->question, plan, p) -
			       p->memory_limit_bytes);
	s->most[rank] = held_by(s, stages, rank) - (int)fmax(1, ceil(over / s->bytes[rank]));
}

static bool is_usual(const struct stages *s, const int *stages)
{
	return memcmp(stages, s->usual, (size_t)s->n * sizeof(*stages)) == 0;
}

static bool propose(struct stages *s, struct evaluator *evaluator, double usual, double wanted,
	struct shared *shared, struct error *error)
{
	int *stages = ARENA_ARRAY(s->arena, int, s->n);
	double seconds, now = sharing_seconds(&s->sharing, s->usual);
	for (int i = 0; i < PROPOSALS && !shared->exists; i++) {
		if (!sharing_solve(&s->sharing, stages, &seconds) || is_usual(s, stages) ||
			usual * seconds / now >= wanted)
			return true;
		shared->plan = with_stages(s, stages);
		if (!wording_says(s->question, &shared->plan, s->arena))
			return true;
		if (evaluator_bound_time(evaluator, &shared->plan) >= wanted)
			return true;
		if (!evaluator_run(evaluator, &shared->plan, &shared->prediction, error))
			return false;
		shared->exists = has_room(s->question, &shared->plan, &shared->prediction);
		if (!shared->exists)
			limit_further(s, stages, &shared->plan, &shared->prediction);
	}
	shared->exists = shared->exists && shared->prediction.step_time < wanted;
	return true;
}

bool stages_are_open(const struct question *question, const struct plan *plan)
{
	return plan->mesh.pipeline > 1 && question_is_open(question, KNOB_LAYERS_PER_STAGE) &&
	       runtime_of(plan->runtime)->names_stages;
}

static bool begin(struct stages *s, struct error *error)
{
	s->pipeline = plan_pipeline(s->plan);
	s->n = s->pipeline.ranks * s->pipeline.chunks;
	s->usual = ARENA_ARRAY(s->arena, int, s->n);
	s->most = ARENA_ARRAY(s->arena, int, s->pipeline.ranks);
	s->now = ARENA_ARRAY(s->arena, int, s->pipeline.ranks);
	s->bytes = ARENA_ARRAY(s->arena, double, s->pipeline.ranks);
	if (!plan_split(s->plan, s->question->model, s->usual, error))
		return false;
	measure(s);
	return true;
}

bool stages_may_share(const struct question *question, const struct plan *plan, double usual,
	double wanted, struct arena *arena)
{
	struct stages s = {.question = question, .plan = plan, .arena = arena};
	struct error error = {0};
	double seconds;
	if (!begin(&s, &error))
		return true; /* stages_share says why */
	int *stages = ARENA_ARRAY(arena, int, s.n);
	for (int r = 0; r < s.pipeline.ranks; r++)
		s.most[r] = s.sharing.blocks;
	return sharing_solve(&s.sharing, stages, &seconds) &&
	       usual * seconds / sharing_seconds(&s.sharing, s.usual) < wanted * (1 + ROUNDING);
}

bool stages_share(struct evaluator *evaluator, const struct plan *plan,
	const struct prediction *usual, double wanted, struct arena *arena, struct shared *shared,
	struct error *error)
{
	struct stages s = {.question = evaluator->question, .plan = plan, .arena = arena};
	*shared = (struct shared){0};
	if (!begin(&s, error))
		return false;
	limit(&s, usual);
	return propose(&s, evaluator, usual->step_time, wanted, shared, error);
}
