/* Micro-batches between those of the space, which are powers of two: memory seldom ends at one. */
#include "planner/search/turns.h"
#include "schedule/resolve/resolve.h"

enum { MODES_MAX = 8 }; /* values of checkpointing */

/* Those that are tried, in quarters of the largest of the space that has room. */
static const int64_t quarters[] = {5, 6, 7};

/* Of the plans with one kind of checkpointing, the largest micro-batch that has room, and the next
 * larger one, which has none; -1: there is none. */
struct largest {
	int plan, above;
};

/* The best so far. */
struct between {
	struct search *search;
	struct arena *arena;
	double most; /* a cost below which a plan is better */
	struct plan plan;
	struct prediction prediction;
	const struct largest *from; /* NULL: nothing is better */
};

bool search_opens_batch(const struct question *question)
{
	return question->objective == OBJECTIVE_TIME && question->wanted != WANTED_ANY &&
	       question->topology->device.kind == DEVICE_GPU &&
	       question->only[KNOB_MICRO_BATCH].n == 0 &&
	       !question_gives(question, KNOB_MICRO_BATCH) &&
	       !question_gives(question, KNOB_GLOBAL_BATCH);
}

/* The plan with so many quarters of its micro-batch. False: that is no whole number, or not one
 * that the space could have. */
static bool with_quarters(
	const struct between *b, const struct plan *plan, int64_t n, struct plan *with)
{
	const struct question *question = b->search->question;
	struct error error = {0};
	*with = plan_with_batch(plan, plan->micro_batch * n / 4, plan->grad_accum);
	return plan->micro_batch * n % 4 == 0 &&
	       with->global_batch <= SPACE_FREE_BATCH_TOKENS / plan->seq_len &&
	       plan_check(with, question->model, question->topology, &error) &&
	       wording_says(question, with, b->arena);
}

/* Takes the plan if it is better and has room. */
static bool try(
	struct between *b, const struct plan *plan, const struct largest *from, struct error *error)
{
	const struct question *question = b->search->question;
	struct prediction prediction;
	struct error mine = {0};
	double slow = costs_step_above(plan, (int64_t)b->most);
	if (!evaluator_run_unless_slow(&b->search->evaluator, plan, slow, &prediction, &mine))
		return error_is_refusal(&mine, error);
	if (prediction.step_time >= slow || !has_room(question, plan, &prediction))
		return true;
	b->plan = *plan;
	b->prediction = evaluator_kept(&prediction, b->arena);
	b->from = from;
	b->most = (double)costs_of(question, plan, &prediction).of[COST_TIME];
	return true;
}

/* Is the plan the other, but for its micro-batch and checkpointing? */
static bool is_relative(const struct plan *plan, const struct plan *other)
{
	const uint64_t differs = KNOB_BIT(KNOB_MICRO_BATCH) | KNOB_BIT(KNOB_GLOBAL_BATCH) |
				 KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING) |
				 KNOB_BIT(KNOB_RECOMPUTE_MODULES);
	return plan->grad_accum == other->grad_accum && plan->mesh.shard == other->mesh.shard &&
	       plan_divides_alike(plan, other) && knobs_alike_but(differs, plan, other);
}

static bool fits_with_room(struct search *search, int p, bool *room, struct error *error)
{
	const struct known *known = &search->known[p];
	const struct plan *plan = &search->space.plans[p];
	struct prediction prediction;
	struct error mine = {0};
	*room = known->ready && !known->refused && known->has_room;
	if (known->ready || lacks_room(search, p))
		return true;
	if (!evaluator_judge(&search->evaluator, plan, &prediction, &mine))
		return error_is_refusal(&mine, error);
	*room = has_room(search->question, plan, &prediction);
	return true;
}

static struct largest *mode_of(
	const struct space *space, struct largest *largest, int *n, const struct plan *plan)
{
	for (int i = 0; i < *n; i++) {
		int known = largest[i].above >= 0 ? largest[i].above : largest[i].plan;
		const struct plan *other = &space->plans[known];
		if (knob_equal(KNOB_ACTIVATION_CHECKPOINTING, other, plan) &&
			knob_equal(KNOB_RECOMPUTE_MODULES, other, plan))
			return &largest[i];
	}
	if (*n == MODES_MAX)
		return NULL;
	largest[*n] = (struct largest){-1, -1};
	return &largest[(*n)++];
}

/* Lists them among the base's relatives. The space has smaller micro-batches before larger ones. */
static bool list_largest(struct search *search, const struct plan *base, struct largest *largest,
	int *n, struct error *error)
{
	const struct space *space = &search->space;
	int first = space->first[base->strategy];
	*n = 0;
	for (int p = space->first[base->strategy + 1] - 1; p >= first; p--) {
		struct largest *mode;
		bool room = false;
		if (!is_relative(&space->plans[p], base))
			continue;
		mode = mode_of(space, largest, n, &space->plans[p]);
		if (mode == NULL || mode->plan >= 0)
			continue;
		if (!too_large(search, p) && !fits_with_room(search, p, &room, error))
			return false;
		*(room ? &mode->plan : &mode->above) = p;
	}
	return true;
}

/* Takes the best of them into the ranking, if it saves more than simplicity is worth. It takes the
 * place of a larger plan, which has no room, else that of the plan that it is made from. */
static bool improve(
	struct search *search, const struct ranked *best, struct arena *arena, struct error *error)
{
	const struct space *space = &search->space;
	const struct plan base = space->plans[best->plan];
	struct between b = {.search = search,
		.arena = arena,
		.most = (double)best->costs.of[COST_TIME] * (1 - search->question->simplicity)};
	struct largest largest[MODES_MAX];
	struct plan with;
	int n;
	if (!list_largest(search, &base, largest, &n, error))
		return false;
	for (int m = 0; m < n; m++)
		for (int i = 0; i < COUNT_OF(quarters) && largest[m].plan >= 0; i++)
			if (with_quarters(&b, &space->plans[largest[m].plan], quarters[i], &with) &&
				!try(&b, &with, &largest[m], error))
				return false;
	if (b.from != NULL)
		search_put(search, b.from->above >= 0 ? b.from->above : b.from->plan, &b.plan,
			&b.prediction, space->departures[b.from->plan]);
	return true;
}

bool search_between(struct search *search, struct arena *arena, struct error *error)
{
	const struct ranking *ranking = &search->ranking;
	if (search->stopped || search->ranking.n == 0 || !search_opens_batch(search->question))
		return true;
	double most = RANKING_REACH * (double)ranking_first(ranking)->costs.of[COST_TIME];
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		const struct ranked *best = ranking_best(ranking, s);
		if (best == NULL || best->tight || (double)best->costs.of[COST_TIME] > most)
			continue;
		const struct ranked entry = *best;
		if (!improve(search, &entry, arena, error))
			return false;
	}
	return true;
}
