/* The turn of a plan: how much of it is simulated, and when. */
#include "planner/search/turns.h"

#include <math.h>
#include <stdlib.h>

/* The micro-batches that a simulation runs at most; it skips those that repeat the one before. */
enum { SIMULATED_MICRO_BATCHES = 4 };

int tickets_compare(const void *left, const void *right)
{
	const struct ticket *a = left, *b = right;
	if (a->bound != b->bound)
		return a->bound < b->bound ? -1 : 1;
	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return (a->plan > b->plan) - (a->plan < b->plan);
}

int64_t bound_cost(const struct search *search, int plan, enum cost_kind kind)
{
	const struct bound *bound = &search->bounds.of[plan];
	if (kind == COST_MEMORY)
		return bound->memory;
	if (kind == COST_NETWORK)
		return costs_network(&search->space.plans[plan], bound->network);
	return costs_time(&search->space.plans[plan], bound->time);
}

struct ticket *tickets_of(const struct search *search, enum cost_kind kind)
{
	int n = search->space.n;
	struct ticket *tickets = array_grow(NULL, &(int){0}, n, sizeof(*tickets));
	for (int i = 0; i < n; i++)
		tickets[i] = (struct ticket){
			bound_cost(search, i, kind), bound_cost(search, i, COST_TIME), i};
	qsort(tickets, (size_t)n, sizeof(*tickets), tickets_compare);
	return tickets;
}

static int64_t effort_of(const struct search *search, const struct plan *plan)
{
	return search->question->model->architecture.layers *
	       min_i64(plan->grad_accum, SIMULATED_MICRO_BATCHES);
}

/* --- simulating ------------------------------------------------------------------------------- */

static void learn(
	struct search *search, int index, const struct prediction *prediction, struct known *known)
{
	const struct plan *plan = &search->space.plans[index];
	known->ready = true;
	known->fits = prediction->fits;
	known->has_room = has_room(search->question, plan, prediction);
	known->needed = prediction_needed_bytes(prediction);
	known->costs = costs_of(search->question, plan, prediction);
}

/* Notes what a simulation tells that says only whether the plan fits (MEMORY_FITS). A plan that
 * does not fit needs at least what it has in use at once. */
static void judge_memory(const struct prediction *prediction, struct known *known)
{
	known->is_short = prediction->fits != FITS_YES;
	known->overflows = prediction->fits == FITS_NO;
	if (known->overflows)
		known->bound.memory = max_i64(known->bound.memory, prediction->peak_memory_bytes);
}

/* Simulates a plan for its costs and whether it fits. A plan that the builder refuses is not
 * counted as a plan. With a limit of `slow` seconds (0: no limit), only the time of a slower step
 * is noted, and of a plan that does not fit only what it needs and takes at least. */
static bool look_at_plan(struct search *search, struct evaluator *evaluator, int index, double slow,
	struct error *error)
{
	const struct plan *plan = &search->space.plans[index];
	struct known *known = &search->known[index];
	struct prediction prediction;
	struct error mine = {0};
	bool lost =
		plan->mesh.pipeline > 1 && too_large(search, index); /* only its memory is wanted */
	if (!(lost ? evaluator_run_on(
			     evaluator, search->question->topology, plan, &prediction, &mine)
		   : evaluator_run_unless_slow(evaluator, plan, slow, &prediction, &mine))) {
		known->ready = known->refused = true;
		return error_is_refusal(&mine, error);
	}
	search->bounds.of[index].time = known->bound.time = prediction.step_time;
	known->timed = true;
	if (slow > 0 && prediction.fits == FITS_NO)
		judge_memory(&prediction, known);
	else if (slow <= 0 || prediction.step_time <= slow)
		learn(search, index, &prediction, known);
	return true;
}

/* Simulates whether a plan fits, and if so all its costs. If it needs retries of the allocator, its
 * costs are not simulated yet: that takes several times as long, so such plans wait to the end. */
static bool judge_plan(
	struct search *search, struct evaluator *evaluator, int index, struct error *error)
{
	struct known *known = &search->known[index];
	struct prediction prediction;
	struct error mine = {0};
	if (!evaluator_judge(evaluator, &search->space.plans[index], &prediction, &mine)) {
		known->ready = known->refused = true;
		return error_is_refusal(&mine, error);
	}
	judge_memory(&prediction, known);
	if (!known->is_short)
		learn(search, index, &prediction, known);
	return true;
}

/* Judges a plan that will be shown, with the exposure of its communication. */
static bool look_closely(
	struct search *search, struct evaluator *evaluator, int index, struct error *error)
{
	struct known *known = &search->known[index];
	struct close_look *look = calloc(1, sizeof(*look));
	if (look == NULL)
		base_out_of_memory(sizeof(*look));
	known->look = look;
	arena_alloc(&look->arena, 1, 1); /* allocates what is kept before what is freed later */
	return evaluator_judge_closely(evaluator, &search->space.plans[index], &look->arena,
		&look->prediction, &look->exposure, error);
}

/* With less than this share of the bytes of the fullest stage, the last stage is not the
 * fullest. */
#define CLEARLY_LESS 0.8

/* Is the last stage, the only one that computes the loss, equal in both plans, or not the
 * fullest? */
static bool ends_alike(
	struct evaluator *evaluator, const struct plan *a, const struct plan *b, int64_t held)
{
	int64_t one = evaluator_bound_last(evaluator, a),
		other = evaluator_bound_last(evaluator, b);
	return one == other || (double)max_i64(one, other) < CLEARLY_LESS * (double)held;
}

/* A pipeline that had its turn and is equal to this one: its operations cost the same to the bit
 * and its buffers have the same sizes, because the two plans differ only in levers without effect
 * on them. It had room, or its fullest stages had none. -1: there is none. */
static int find_twin(const struct search *search, struct evaluator *evaluator, int index)
{
	const struct known *known = &search->known[index];
	const uint64_t levers = knobs_of_role(KNOB_LEVER) & ~KNOB_BIT(KNOB_ALLOCATOR);
	const struct plan *plans = search->space.plans, *plan = &plans[index];
	for (int i = 0; i < search->space.n && known->path > 0 && known->held > 0; i++) {
		const struct known *other = &search->known[i];
		if (other->taken && other->looked_at != other->is_short &&
			other->path == known->path && other->held == known->held &&
			plan_divides_alike(&plans[i], plan) &&
			plans[i].mesh.shard == plan->mesh.shard &&
			knobs_alike_but(levers, &plans[i], plan) &&
			ends_alike(evaluator, &plans[i], plan, known->held))
			return i;
	}
	return -1;
}

static void take_after(const struct known *twin, const struct bound *bound, struct known *known)
{
	known->is_short = twin->is_short;
	known->looked_at = twin->looked_at;
	if (known->is_short) {
		known->bound = *bound;
		known->bound.memory = max_i64(bound->memory, twin->bound.memory);
		return;
	}
	known->bound.time = twin->bound.time;
	known->ready = true;
	known->fits = twin->fits;
	known->has_room = twin->has_room;
	known->needed = twin->needed;
	known->costs = twin->costs;
}

/* Judges a pipeline once, for its time and its memory, because simulating its time is most of the
 * work. One that does not fit is simulated again if its turn comes. */
static bool look_once(
	struct search *search, struct evaluator *evaluator, int index, struct error *error)
{
	struct known *known = &search->known[index];
	int twin = find_twin(search, evaluator, index);
	if (twin >= 0) {
		take_after(&search->known[twin], &search->bounds.of[index], known);
		return true;
	}
	known->is_short = evaluator_stages_overflow(
		evaluator, &search->space.plans[index], search->limit, NULL);
	if (known->is_short) {
		known->bound = search->bounds.of[index];
		return true;
	}
	struct prediction prediction;
	bool closely = search->question->wanted == WANTED_ALL; /* its result may be shown */
	known->looked_at = true;
	bool ok = closely ? look_closely(search, evaluator, index, error)
			  : evaluator_judge(
				    evaluator, &search->space.plans[index], &prediction, error);
	if (ok && closely)
		prediction = known->look->prediction;
	if (ok) {
		known->bound.time = fmax(search->bounds.of[index].time, prediction.step_time);
		judge_memory(&prediction, known);
	}
	if (ok && !known->is_short)
		learn(search, index, &prediction, known);
	evaluator_release(evaluator); /* few other simulations need as much memory */
	return ok;
}

void look_at_stages(struct search *search, int index)
{
	struct known *known = &search->known[index];
	int64_t held;
	if (known->looked_at || known->ready || search->space.plans[index].mesh.pipeline == 1)
		return;
	known->looked_at = true;
	known->is_short = evaluator_stages_overflow(
		&search->evaluator, &search->space.plans[index], search->limit, &held);
	known->bound.memory = max_i64(search->bounds.of[index].memory, held);
}

bool search_look_closely(struct search *search, int plan, struct arena *arena,
	struct prediction *prediction, struct exposure *exposure, struct error *error)
{
	const struct close_look *look = search->known[plan].look;
	if (look == NULL || search->known[plan].is_short ||
		search->question->freed != 0) /* levers_let_go has changed the plan */
		return evaluator_run_closely(&search->evaluator, &search->space.plans[plan], arena,
			prediction, exposure, error);
	*prediction = evaluator_kept(&look->prediction, arena);
	*exposure = look->exposure;
	return true;
}

bool time_plan(struct search *search, struct evaluator *evaluator, int index, struct error *error)
{
	struct known *known = &search->known[index];
	struct error mine = {0};
	known->timed = true;
	if (search->space.plans[index].mesh.pipeline > 1
			? look_once(search, evaluator, index, &mine)
			: evaluator_run_time(evaluator, &search->space.plans[index],
				  &known->bound.time, &known->bound.memory, &mine))
		return true;
	known->ready = known->refused = true;
	return error_is_refusal(&mine, error);
}

void take_memory(struct search *search, int index)
{
	int64_t *memory = &search->bounds.of[index].memory;
	*memory = max_i64(*memory, search->known[index].bound.memory);
}

void take_time(struct search *search, int index)
{
	struct known *known = &search->known[index];
	struct bound *bound = &search->bounds.of[index];
	if (known->refused)
		return;
	bound->time = known->bound.time;
	take_memory(search, index);
	known->tightened = known->taken = true;
	search->pipelines += known->looked_at && known->has_room;
}

static struct ranked entry_of(const struct search *search, int index)
{
	const struct plan *plan = &search->space.plans[index];
	const struct known *known = &search->known[index];
	return (struct ranked){.plan = index,
		.strategy = plan->strategy,
		.tight = !known->has_room,
		.divided = has_axes(plan),
		.departures = search->space.departures[index],
		.costs = known->costs};
}

/* Enters a simulated plan into the ranking, if it fits. Plans that were simulated ahead count only
 * from their turn on. */
void take_turn(struct search *search, int index)
{
	const struct plan *plan = &search->space.plans[index];
	struct known *known = &search->known[index];
	known->simulated = true;
	search->evaluated++;
	search->effort += search->ranking.n > 0 ? effort_of(search, plan) : 0;
	if (known->refused || known->fits == FITS_NO)
		return;
	const struct ranked entry = entry_of(search, index);
	ranking_add(&search->ranking, &entry);
}

void search_put(struct search *search, int index, const struct plan *plan,
	const struct prediction *prediction, int departures)
{
	struct known *known = &search->known[index];
	if (known->look != NULL)
		arena_finish(&known->look->arena);
	free(known->look);
	*known = (struct known){.simulated = true};
	search->space.plans[index] = *plan;
	search->space.departures[index] = departures;
	learn(search, index, prediction, known);
	const struct ranked entry = entry_of(search, index);
	ranking_change(&search->ranking, &entry);
}

bool simulate_plan(struct search *search, int index, double slow, struct error *error)
{
	if (!search->known[index].ready &&
		!look_at_plan(search, &search->evaluator, index, slow, error))
		return false;
	if (search->known[index].ready)
		take_turn(search, index);
	return true;
}

int64_t looked_at(const struct search *search)
{
	return search->evaluated + search->pruned;
}

bool overflows_host(const struct search *search, int plan)
{
	int64_t limit = search->question->topology->host.memory_bytes;
	return limit > 0 && search->bounds.of[plan].host > limit;
}

bool too_large(const struct search *search, int plan)
{
	return search->bounds.of[plan].memory > search->limit || overflows_host(search, plan);
}

/* The cost of the fastest plan so far that has room; INT64_MAX: there is none. */
static int64_t least_cost(const struct ranking *ranking)
{
	for (int i = 0; i < ranking->n; i++)
		if (!ranking->entries[i].tight)
			return ranking->entries[i].costs.of[ranking->objective];
	return INT64_MAX;
}

/* Is this a pipeline that cannot win and need not be simulated? Pipelines take long, and the first
 * one that fits shows how costly the best is. Pipelines that the user asked for are all simulated.
 */
static bool is_one_too_many(
	const struct search *search, const struct ticket *ticket, const struct ranked *candidate)
{
	return search->pipelines > 0 && !search->known[ticket->plan].ready &&
	       search->space.plans[ticket->plan].mesh.pipeline > 1 &&
	       !question_gives(search->question, KNOB_PIPELINE) &&
	       search->question->only[KNOB_PIPELINE].n == 0 &&
	       ticket->bound > least_cost(&search->ranking) &&
	       !ranking_may_win(&search->ranking, candidate);
}

bool lacks_room(const struct search *search, int index)
{
	return search->known[index].is_short ||
	       surely_lacks_room(search->question, &search->space.plans[index],
		       search->bounds.of[index].memory, search->limit);
}

/* A search of little effort that has to beat a cost stops when the rest can improve by less than
 * 5 %. */
#define NEARLY 0.95

static bool cannot_beat(const struct search *search, const struct ticket *ticket)
{
	double most = (double)search->question->beat;
	if (search->question->effort > 0)
		most = fmin(most, NEARLY * (double)least_cost(&search->ranking));
	return most > 0 && ((double)ticket->bound > most || lacks_room(search, ticket->plan));
}

bool waits_to_the_end(struct search *search, int index)
{
	struct known *known = &search->known[index];
	bool waits = !known->is_last && !known->ready && lacks_room(search, index);
	known->is_last = known->is_last || waits;
	return waits;
}

bool is_needed(const struct search *search, const struct ticket *ticket)
{
	const struct plan *plan = &search->space.plans[ticket->plan];
	struct ranked candidate = {.plan = ticket->plan,
		.strategy = plan->strategy,
		.tight = lacks_room(search, ticket->plan),
		.divided = has_axes(plan),
		.departures = search->space.departures[ticket->plan]};
	candidate.costs.of[search->ranking.objective] = ticket->bound;
	if (is_one_too_many(search, ticket, &candidate) || cannot_beat(search, ticket))
		return false;
	return ranking_needs(&search->ranking, &candidate);
}

double too_slow(const struct search *search, const struct ticket *ticket)
{
	int64_t low = ticket->bound, high = INT64_MAX / 2;
	if (search->ranking.objective != COST_TIME ||
		is_needed(search, &(struct ticket){high, high, ticket->plan}))
		return INFINITY;
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (is_needed(search, &(struct ticket){middle, middle, ticket->plan}))
			low = middle;
		else
			high = middle;
	}
	return costs_step_above(&search->space.plans[ticket->plan], low);
}

/* Do as many micro-batches fill both pipelines? */
static bool fills_alike(const struct plan *a, const struct plan *b)
{
	int64_t many = 2 * a->mesh.pipeline + 3;
	return a->grad_accum == b->grad_accum ||
	       (a->pipeline_schedule != PIPELINE_GPIPE && a->grad_accum >= many &&
		       b->grad_accum >= many);
}

/* Does `plan` surely need as much memory as `smaller`? A micro-batch of fewer sequences saves fewer
 * activations, with as many in flight, and units gathered ahead only add bytes. */
static bool needs_as_much(const struct plan *smaller, const struct plan *plan)
{
	const uint64_t differs = KNOB_BIT(KNOB_MICRO_BATCH) | KNOB_BIT(KNOB_GRAD_ACCUM) |
				 KNOB_BIT(KNOB_GLOBAL_BATCH) | KNOB_BIT(KNOB_FORWARD_PREFETCH);
	return smaller->micro_batch <= plan->micro_batch &&
	       smaller->forward_prefetch <= plan->forward_prefetch &&
	       smaller->mesh.pipeline == plan->mesh.pipeline &&
	       smaller->mesh.shard == plan->mesh.shard && plan_divides_alike(smaller, plan) &&
	       fills_alike(smaller, plan) && knobs_alike_but(differs, smaller, plan);
}

/* A plan that needs less is at most this far before it in the space. */
enum { BEFORE_MOST = 64 };

int find_smaller(const struct search *search, int index)
{
	const struct plan *plans = search->space.plans, *plan = &plans[index];
	int end = index > BEFORE_MOST ? index - BEFORE_MOST : 0;
	for (int i = index - 1; i >= end && plans[i].strategy == plan->strategy; i--)
		if (!search->known[i].refused && needs_as_much(&plans[i], plan))
			return i;
	return -1;
}

void tighten(struct search *search, int index)
{
	struct known *known = &search->known[index];
	struct bound *bound = &search->bounds.of[index];
	const struct plan *plan = &search->space.plans[index];
	if (known->tightened)
		return;
	known->tightened = true;
	int smaller = plan->mesh.pipeline > 1 ? find_smaller(search, index) : -1;
	if (smaller >= 0) {
		tighten(search, smaller);
		bound->memory = max_i64(bound->memory, search->bounds.of[smaller].memory);
	}
	if (!too_large(search, index))
		known->held = evaluator_bound_memory(&search->evaluator, plan);
	bound->memory = max_i64(bound->memory, known->held);
}

void follow(struct search *search, int index)
{
	struct known *known = &search->known[index];
	struct bound *bound = &search->bounds.of[index];
	if (known->followed)
		return;
	const struct bound own =
		evaluator_bound_path(&search->evaluator, &search->space.plans[index]);
	known->path = own.time;
	known->followed = true;
	bound->time = fmax(bound->time, own.time);
	bound->network = fmax(bound->network, own.network);
}

/* Must the plan wait for an earlier stage before it is timed (`time`), or before it is
 * simulated? */
static bool is_behind(const struct search *search, int plan, bool time)
{
	const struct known *known = &search->known[plan];
	if (!time)
		return known->is_short || (!known->taken && search->ranking.objective == COST_TIME);
	return known->timed || !search->bounds.of[plan].whole ||
	       (search->space.plans[plan].mesh.pipeline > 1 &&
		       !(known->followed && known->tightened));
}

/* --- ahead of their turn -------------------------------------------------------------------------
 * The next plans in order are simulated at the same time, one for each core. Their results take
 * effect in order, each at its turn, so the answer does not depend on the number of cores. */

enum { AHEAD_MAX = 64 };

struct ahead {
	struct search *search;
	bool time; /* only the step time */
	int n, plans[AHEAD_MAX];
	struct error errors[AHEAD_MAX];
};

static void look_ahead(void *data, int index, int worker)
{
	struct ahead *ahead = data;
	struct evaluator *evaluator = &ahead->search->workers.of[worker];
	int plan = ahead->plans[index];
	struct error *error = &ahead->errors[index];
	if (ahead->time)
		time_plan(ahead->search, evaluator, plan, error);
	else
		judge_plan(ahead->search, evaluator, plan, error);
}

bool make_ready(struct search *search, bool time, const struct ticket *ticket,
	const struct ticket *behind, int n, struct error *error)
{
	struct ahead ahead = {.search = search, .time = time, .n = 1, .plans = {ticket->plan}};
	int most = search->workers.n < AHEAD_MAX ? search->workers.n : AHEAD_MAX;
	for (int i = 0; i < n && ahead.n < most; i++) {
		const struct known *known = &search->known[behind[i].plan];
		if (!known->ready && !is_behind(search, behind[i].plan, time) &&
			!too_large(search, behind[i].plan) && is_needed(search, &behind[i]))
			ahead.plans[ahead.n++] = behind[i].plan;
	}
	lent_each(search->question, ahead.n, look_ahead, &ahead);
	for (int i = 0; i < ahead.n; i++)
		if (ahead.errors[i].code != EXIT_CODE_OK) {
			*error = ahead.errors[i];
			return false;
		}
	return true;
}
