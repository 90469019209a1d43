/* Thresholds: a lever is moved to 2, 8 and 32 times its value, and back, until another contestant
 * wins, then the place is bisected. */
#include "planner/defence/thresholds.h"

#include <float.h>
#include <math.h>

enum { LEVERS_MAX = 16, SIMULATED_MICRO_BATCHES = 3 };
#define PRECISION 1.02 /* of thresholds that are no whole numbers */
static const double factors[] = {2, 8, 32};

/* A property of the machine or of the question. `apply` sets it in copies of both; false: there is
 * no such plan. */
struct lever {
	const char *name, *unit;
	bool whole; /* values are whole numbers */
	bool up_only;
	bool moves_memory; /* what fits depends on it */
	double now;
	bool (*apply)(double value, struct topology *topology, struct plan *plan);
	void (*print)(struct text *text, double value);
};

/* --- levers --------------------------------------------------------------------------------------
 */

static bool set_nic(double value, struct topology *topology, struct plan *plan)
{
	(void)plan;
	topology->network.nic_bandwidth = value;
	return true;
}

static bool set_network_latency(double value, struct topology *topology, struct plan *plan)
{
	(void)plan;
	topology->network.latency = value;
	return true;
}

static bool set_fabric(double value, struct topology *topology, struct plan *plan)
{
	(void)plan;
	topology->fabric.bandwidth = value;
	return true;
}

static void set_ranks(struct plan *plan, int64_t ranks)
{
	int64_t shard = plan->strategy == STRATEGY_NO_SHARD  ? 1
			: strategy_is_hybrid(plan->strategy) ? plan->mesh.shard
							     : ranks;
	plan->mesh.shard = shard;
	plan->mesh.replicate = ranks / shard;
	plan->global_batch = plan->micro_batch * plan->grad_accum * ranks;
}

static bool set_nodes(double value, struct topology *topology, struct plan *plan)
{
	topology->nodes = (int64_t)value;
	int64_t ranks = topology_devices(topology);
	if (strategy_is_hybrid(plan->strategy) && ranks % plan->mesh.shard != 0)
		return false;
	set_ranks(plan, ranks);
	return true;
}

static bool set_length(double value, struct topology *topology, struct plan *plan)
{
	(void)topology;
	plan->seq_len = (int64_t)value;
	return true;
}

static bool set_micro_batch(double value, struct topology *topology, struct plan *plan)
{
	(void)topology;
	plan->micro_batch = (int64_t)value;
	set_ranks(plan, plan_data_parallel(plan));
	return true;
}

static bool set_accumulation(double value, struct topology *topology, struct plan *plan)
{
	(void)topology;
	plan->grad_accum = (int64_t)value;
	set_ranks(plan, plan_data_parallel(plan));
	return true;
}

static void print_gbit(struct text *text, double value)
{
	text_printf(text, "%.3g Gbit/s", value * 8e-9);
}

static void print_bandwidth(struct text *text, double value)
{
	char buffer[32];
	text_add(text, format_bandwidth(buffer, value));
}

static void print_time(struct text *text, double value)
{
	char buffer[32];
	text_add(text, format_seconds(buffer, value));
}

static void print_count(struct text *text, double value)
{
	text_printf(text, "%.0f", value);
}

static void add_lever(struct lever levers[LEVERS_MAX], int *n, struct lever lever)
{
	if (*n < LEVERS_MAX && lever.now > 0)
		levers[(*n)++] = lever;
}

/* Measured collectives do not follow the datasheet's bandwidth. */
static int find_levers(const struct contest *contest, struct lever levers[LEVERS_MAX])
{
	const struct topology *topology = contest->evaluator->question->topology;
	const struct plan *plan = contest->plans[0];
	bool measured = topology->calibration.n_collectives > 0;
	int n = 0;
	if (topology->nodes > 1 && !measured) {
		add_lever(levers, &n,
			(struct lever){"node link, per NIC", "B/s", false, false, false,
				topology->network.nic_bandwidth, set_nic, print_gbit});
		add_lever(levers, &n,
			(struct lever){"network latency", "s", false, false, false,
				topology->network.latency, set_network_latency, print_time});
	}
	if (topology->devices_per_node > 1 && !measured &&
		topology->fabric.kind != FABRIC_SHARED_MEMORY)
		add_lever(levers, &n,
			(struct lever){"link inside a node", "B/s", false, false, false,
				topology->fabric.bandwidth, set_fabric, print_bandwidth});
	if (topology->network.kind != NETWORK_NONE)
		add_lever(levers, &n,
			(struct lever){"number of nodes", "nodes", true, false, true,
				(double)topology->nodes, set_nodes, print_count});
	add_lever(levers, &n,
		(struct lever){"sequence length", "tokens", true, false, true,
			(double)plan->seq_len, set_length, print_count});
	add_lever(levers, &n,
		(struct lever){"micro-batch", "sequences", true, true, true,
			(double)plan->micro_batch, set_micro_batch, print_count});
	if (plan->grad_accum <= PLAN_MAX_GRAD_ACCUM / 32)
		add_lever(levers, &n,
			(struct lever){"gradient accumulation", "micro-batches", true, true, true,
				(double)plan->grad_accum, set_accumulation, print_count});
	return n;
}

/* --- contests ------------------------------------------------------------------------------------
 */

enum { NOBODY = -1 };

static double per_token(const struct plan *plan, double step_time, double devices)
{
	return step_time * devices / ((double)plan->global_batch * (double)plan->seq_len);
}

/* Whole micro-batches of the others move along in proportion, at least one. */
static double value_for(const struct contest *contest, const struct lever *lever, int i, double x)
{
	const struct plan *plan = contest->plans[i], *chosen = contest->plans[0];
	if (lever->apply == set_micro_batch && plan->micro_batch != chosen->micro_batch)
		return fmax(1, floor(x * (double)plan->micro_batch / (double)chosen->micro_batch));
	if (lever->apply == set_accumulation && plan->grad_accum != chosen->grad_accum)
		return fmax(1, floor(x * (double)plan->grad_accum / (double)chosen->grad_accum));
	return x;
}

/* Of at most so many micro-batches, and of one less. Links change what operations cost, not what is
 * done, so while one moves these stay. */
struct contest_schedules {
	struct arena arena;
	struct schedule *of[CONTESTANTS_MAX][2];
};

static bool may_go_on(const struct error *mine, struct error *error)
{
	return mine->code == EXIT_CODE_USAGE || error_set(error, mine->code, "%s", mine->message);
}

/* `seconds` stays when the plan cannot be built. */
static bool time_over_links(const struct contest *contest, const struct topology *topology, int i,
	bool less, const struct plan *plan, double *seconds, struct error *error)
{
	const struct question *question = contest->evaluator->question;
	struct schedule **schedule = &contest->schedules->of[i][less];
	struct error mine = {0};
	if (*schedule == NULL && !schedule_build(&contest->schedules->arena, plan, question->model,
					 question->topology, schedule, &mine)) {
		*schedule = NULL;
		return may_go_on(&mine, error);
	}
	return evaluator_time(contest->evaluator, *schedule, topology, seconds, error);
}

static bool time_anew(const struct contest *contest, const struct topology *topology,
	const struct plan *plan, double slow, double *seconds, struct error *error)
{
	struct error mine = {0};
	struct prediction prediction;
	if (!evaluator_judge_on(contest->evaluator, topology, plan, slow, &prediction, &mine))
		return may_go_on(&mine, error);
	if (prediction.fits != FITS_NO)
		*seconds = prediction.step_time;
	return true;
}

/* One contestant in one place. */
struct place {
	const struct lever *lever;
	int contestant;
	struct topology topology;
	struct plan plan;
	double most; /* cost from which on it cannot win, fit or not */
};

static double per_token_there(const struct place *place, double step_time)
{
	return per_token(&place->plan, step_time, (double)topology_devices(&place->topology));
}

static bool time_of(const struct contest *contest, const struct place *place,
	const struct plan *plan, bool less, double *seconds, struct error *error)
{
	bool all = plan->grad_accum == place->plan.grad_accum && isfinite(place->most);
	double slow = all ? place->most / per_token_there(place, 1) * (1 + 1e-9) : 0;
	if (less)
		slow = DBL_MIN; /* one more was judged already */
	*seconds = INFINITY;
	if (!place->lever->moves_memory)
		return time_over_links(
			contest, &place->topology, place->contestant, less, plan, seconds, error);
	return time_anew(contest, &place->topology, plan, slow, seconds, error);
}

/* The step time of a long accumulation: its micro-batches in the middle are alike, so two and three
 * tell how long one more takes. */
static bool step_time(const struct contest *contest, const struct place *place, double *seconds,
	struct error *error)
{
	const struct plan *plan = &place->plan;
	struct plan few = *plan;
	double three, two;
	few.grad_accum = min_i64(plan->grad_accum, SIMULATED_MICRO_BATCHES);
	set_ranks(&few, plan_data_parallel(plan));
	if (!time_of(contest, place, &few, false, &three, error))
		return false;
	*seconds = three;
	if (plan->grad_accum <= SIMULATED_MICRO_BATCHES || isinf(three))
		return true;
	few.grad_accum--;
	set_ranks(&few, plan_data_parallel(plan));
	if (!time_of(contest, place, &few, true, &two, error))
		return false;
	*seconds += (double)(plan->grad_accum - SIMULATED_MICRO_BATCHES) * (three - two);
	return true;
}

/* Seconds per token and device; infinite when it does not fit or cannot be. Above `most` it may be
 * finite all the same. */
static bool cost_at(const struct contest *contest, const struct lever *lever, int i, double x,
	double most, double *cost, struct error *error)
{
	struct place place = {
		lever, i, *contest->evaluator->question->topology, *contest->plans[i], most};
	double seconds;
	*cost = INFINITY;
	if ((!lever->moves_memory && contest->predictions[i]->fits == FITS_NO) ||
		!lever->apply(value_for(contest, lever, i, x), &place.topology, &place.plan))
		return true;
	if (!step_time(contest, &place, &seconds, error))
		return false;
	*cost = per_token_there(&place, seconds);
	return true;
}

/* The contestant that wins there. The chosen one stays as long as none is faster by more than the
 * call was close: it may have been preferred for its memory. */
static bool winner_at(const struct contest *contest, const struct lever *lever, double margin,
	double x, int *winner, struct error *error)
{
	double least = INFINITY, cost;
	*winner = NOBODY;
	for (int i = 0; i < contest->n; i++) {
		if (!cost_at(contest, lever, i, x, least / margin, &cost, error))
			return false;
		cost *= i == 0 ? 1 : margin;
		if (cost >= least)
			continue;
		least = cost;
		*winner = i;
	}
	return true;
}

/* Between `same`, where the chosen plan wins, and `other`, where `*winner` does. */
static bool bisect(const struct contest *contest, const struct lever *lever, double margin,
	double same, double *other, int *winner, struct error *error)
{
	while (lever->whole ? fabs(*other - same) > 1
			    : fmax(*other / same, same / *other) > PRECISION) {
		double middle = lever->whole ? floor((same + *other) / 2) : sqrt(same * *other);
		int there;
		if (!winner_at(contest, lever, margin, middle, &there, error))
			return false;
		if (there == 0) {
			same = middle;
		} else {
			*other = middle;
			*winner = there;
		}
	}
	return true;
}

/* Moves the lever up or down; `*found` and the first value at which the chosen plan does not win.
 */
static bool scan(const struct contest *contest, const struct lever *lever, double margin, bool up,
	bool *found, double *at, int *winner, struct error *error)
{
	double same = lever->now;
	*found = false;
	for (int i = 0; i < COUNT_OF(factors); i++) {
		double x = up ? lever->now * factors[i] : lever->now / factors[i];
		if (lever->whole)
			x = floor(x);
		if (x < 1 && lever->whole)
			return true;
		if (!winner_at(contest, lever, margin, x, winner, error))
			return false;
		if (*winner != 0) {
			*found = true;
			*at = x;
			return bisect(contest, lever, margin, same, at, winner, error);
		}
		same = x;
	}
	return true;
}

/* --- sentences -----------------------------------------------------------------------------------
 */

static const char *name_of(const struct contest *contest, int winner)
{
	const struct plan *plan = contest->plans[winner];
	if (strategy_is_hybrid(plan->strategy))
		return arena_printf(contest->arena, "%s/%lld", strategy_names[plan->strategy],
			(long long)plan->mesh.shard);
	return strategy_names[plan->strategy];
}

static const char *sentence(
	const struct contest *contest, const struct lever *lever, bool up, double at, int winner)
{
	struct text text = {0};
	text_printf(&text, "From %s ", lever->name);
	lever->print(&text, at);
	text_printf(&text, " %s (now ", up ? "up" : "down");
	lever->print(&text, lever->now);
	if (winner == NOBODY)
		text_add(&text, ") none of these plans fits.");
	else
		text_printf(&text, ") %s wins.", name_of(contest, winner));
	const char *result = arena_strdup(contest->arena, text_string(&text));
	text_finish(&text);
	return result;
}

static void add_threshold(const struct contest *contest, const struct lever *lever, bool up,
	double at, int winner, struct answer *answer)
{
	answer->thresholds[answer->n_thresholds++] = (struct threshold){.what = lever->name,
		.unit = lever->unit,
		.now = lever->now,
		.at = at,
		.becomes = winner == NOBODY ? NULL : name_of(contest, winner),
		.sentence = sentence(contest, lever, up, at, winner)};
}

/* Nothing changes within 32 times either way: that is an answer too. */
static void add_stable(
	const struct contest *contest, const struct lever *lever, struct answer *answer)
{
	answer->thresholds[answer->n_thresholds++] = (struct threshold){.what = lever->name,
		.unit = lever->unit,
		.now = lever->now,
		.sentence =
			arena_printf(contest->arena, "No %s%s changes the decision.", lever->name,
				lever->up_only ? " up to 32 times as large"
					       : " between 1/32 and 32 times the present one")};
}

/* --- memory --------------------------------------------------------------------------------------
 */

/* Peaks do not depend on the limit: no simulation. */
static void find_memory(const struct contest *contest, struct answer *answer)
{
	const struct prediction *chosen = contest->predictions[0];
	double fastest = per_token(contest->plans[0], chosen->step_time, 1);
	int64_t least = chosen->peak_memory_bytes;
	char bytes[32], limit[32];
	int next = NOBODY, more = NOBODY;
	for (int i = 1; i < contest->n; i++) {
		const struct prediction *p = contest->predictions[i];
		double cost = per_token(contest->plans[i], p->step_time, 1);
		bool fits = p->fits != FITS_NO;
		if (fits && p->peak_memory_bytes < least && next == NOBODY)
			next = i; /* contestants come in order */
		if (!fits && cost < fastest &&
			(more == NOBODY || p->peak_memory_bytes <
						   contest->predictions[more]->peak_memory_bytes))
			more = i;
	}
	format_bytes(bytes, (double)least);
	format_bytes(limit, (double)chosen->memory_limit_bytes);
	answer->thresholds[answer->n_thresholds++] = (struct threshold){.what = "device memory",
		.unit = "bytes",
		.now = (double)chosen->memory_limit_bytes,
		.at = (double)least,
		.becomes = next == NOBODY ? NULL : name_of(contest, next),
		.sentence = next == NOBODY
				    ? arena_printf(contest->arena,
					      "Below a device memory of %s (now %s) none of these "
					      "plans fits.",
					      bytes, limit)
				    : arena_printf(contest->arena,
					      "Below a device memory of %s (now %s) %s wins.",
					      bytes, limit, name_of(contest, next))};
	if (more == NOBODY)
		return;
	int64_t need = contest->predictions[more]->peak_memory_bytes;
	answer->thresholds[answer->n_thresholds++] = (struct threshold){.what = "device memory",
		.unit = "bytes",
		.now = (double)chosen->memory_limit_bytes,
		.at = (double)need,
		.becomes = name_of(contest, more),
		.sentence =
			arena_printf(contest->arena, "With a device memory of %s (now %s) %s wins.",
				format_bytes(bytes, (double)need), limit, name_of(contest, more))};
}

static bool find(const struct contest *contest, struct answer *answer, struct error *error)
{
	struct lever levers[LEVERS_MAX];
	int n = find_levers(contest, levers), winner;
	double margin = 1;
	answer->thresholds = ARENA_ARRAY(contest->arena, struct threshold, 2 * LEVERS_MAX);
	if (n == 0 || !winner_at(contest, &levers[0], 1, levers[0].now, &winner, error))
		return n == 0;
	if (winner != 0)
		margin = RANKING_FUZZ;
	for (int i = 0; i < n; i++) {
		bool any = false, found;
		double at;
		for (int up = 1; up >= (levers[i].up_only ? 1 : 0); up--) {
			if (!scan(contest, &levers[i], margin, up, &found, &at, &winner, error))
				return false;
			if (found)
				add_threshold(contest, &levers[i], up, at, winner, answer);
			any = any || found;
		}
		if (!any)
			add_stable(contest, &levers[i], answer);
	}
	find_memory(contest, answer);
	return true;
}

bool thresholds_find(const struct contest *contest, struct answer *answer, struct error *error)
{
	struct contest_schedules schedules = {0};
	struct contest mine = *contest;
	mine.schedules = &schedules;
	bool ok = find(&mine, answer, error);
	arena_finish(&schedules.arena);
	return ok;
}
