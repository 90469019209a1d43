/* Thresholds: a property is set to 2, 8 and 32 times its value, and to as small a share of it,
 * until another plan is faster; then the value is bisected. */
#include "planner/defence/thresholds.h"

#include <float.h>
#include <math.h>

#include "schedule/fold/fold.h"

enum { PROPERTIES_MAX = 16, SIMULATED_MICRO_BATCHES = 3 };
#define PRECISION 1.02 /* of thresholds that are no whole numbers */
static const double factors[] = {2, 8, 32};

/* A property of the machine or of the question. `apply` sets it in copies of both; false: there is
 * no such plan. */
struct property {
	const char *name, *unit;
	const char *of;   /* what follows a value: "104 Gbit/s" " per NIC"; %s: of a plural */
	const char *noun; /* "bandwidth per NIC" */
	bool whole;       /* values are whole numbers */
	bool up_only;
	bool moves_memory; /* what fits depends on it */
	double now;
	bool (*apply)(double value, struct topology *topology, struct plan *plan);
	void (*print)(struct text *text, double value);
};

/* --- properties ------------------------------------------------------------------------------- */

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

static void add_property(
	struct property properties[PROPERTIES_MAX], int *n, struct property property)
{
	if (*n < PROPERTIES_MAX && property.now > 0)
		properties[(*n)++] = property;
}

/* Measured collectives do not follow the datasheet's bandwidth. */
static int find_properties(const struct rivals *rivals, struct property properties[PROPERTIES_MAX])
{
	const struct topology *topology = rivals->question->topology;
	const struct plan *plan = rivals->plans[0];
	bool measured = topology->calibration.n_collectives > 0;
	int n = 0;
	if (topology->nodes > 1 && !measured) {
		add_property(properties, &n,
			(struct property){"node link, per NIC", "B/s", " per NIC",
				"bandwidth per NIC", false, false, false,
				topology->network.nic_bandwidth, set_nic, print_gbit});
		add_property(properties, &n,
			(struct property){"network latency", "s", " of network latency",
				"network latency", false, false, false, topology->network.latency,
				set_network_latency, print_time});
	}
	if (topology->devices_per_node > 1 && !measured &&
		topology->fabric.kind != FABRIC_SHARED_MEMORY)
		add_property(properties, &n,
			(struct property){"link inside a node", "B/s", " inside a node",
				"bandwidth inside a node", false, false, false,
				topology->fabric.bandwidth, set_fabric, print_bandwidth});
	if (topology->network.kind != NETWORK_NONE)
		add_property(properties, &n,
			(struct property){"number of nodes", "nodes", " node%s", "number of nodes",
				true, false, true, (double)topology->nodes, set_nodes,
				print_count});
	add_property(properties, &n,
		(struct property){"sequence length", "tokens", " token%s per sequence",
			"sequence length", true, false, true, (double)plan->seq_len, set_length,
			print_count});
	add_property(properties, &n,
		(struct property){"micro-batch", "sequences", " sequence%s per micro-batch",
			"micro-batch", true, true, true, (double)plan->micro_batch, set_micro_batch,
			print_count});
	if (plan->grad_accum <= PLAN_MAX_GRAD_ACCUM / 32)
		add_property(properties, &n,
			(struct property){"gradient accumulation", "micro-batches",
				" micro-batch%s per step", "gradient accumulation", true, true,
				true, (double)plan->grad_accum, set_accumulation, print_count});
	return n;
}

/* --- rivals ----------------------------------------------------------------------------------- */

enum { NONE_FITS = -1 };

static double per_token(const struct plan *plan, double step_time, double devices)
{
	return step_time * devices / plan_tokens(plan);
}

/* Whole micro-batches of the others move along in proportion, at least one. */
static double value_for(
	const struct rivals *rivals, const struct property *property, int i, double x)
{
	const struct plan *plan = rivals->plans[i], *chosen = rivals->plans[0];
	if (property->apply == set_micro_batch && plan->micro_batch != chosen->micro_batch)
		return fmax(1, floor(x * (double)plan->micro_batch / (double)chosen->micro_batch));
	if (property->apply == set_accumulation && plan->grad_accum != chosen->grad_accum)
		return fmax(1, floor(x * (double)plan->grad_accum / (double)chosen->grad_accum));
	return x;
}

/* Of at most so many micro-batches, and of one less. Links change what operations cost, not what is
 * done, so while one moves these stay. */
struct rival_schedules {
	struct arena arena;
	struct schedule *of[RIVALS_MAX][2];
};

static bool time_over_links(const struct rivals *rivals, const struct topology *topology, int i,
	bool less, const struct plan *plan, double *seconds, struct error *error)
{
	const struct question *question = rivals->question;
	struct schedule **schedule = &rivals->schedules->of[i][less];
	if (*schedule == NULL)
		*schedule = schedule_fold(
			&rivals->schedules->arena, plan, question->model, question->topology);
	return evaluator_time(rivals->evaluator, *schedule, topology, seconds, error);
}

static bool time_anew(const struct rivals *rivals, const struct topology *topology,
	const struct plan *plan, double slow, double *seconds, struct error *error)
{
	struct error mine = {0};
	struct prediction prediction;
	if (!evaluator_judge_on(rivals->evaluator, topology, plan, slow, &prediction, &mine))
		return error_is_refusal(&mine, error);
	if (prediction.fits != FITS_NO)
		*seconds = prediction.step_time;
	return true;
}

/* One rival at one value. */
struct place {
	const struct property *property;
	int rival;
	struct topology topology;
	struct plan plan;
	double most; /* cost from which on it cannot win, fit or not */
};

static double per_token_there(const struct place *place, double step_time)
{
	return per_token(&place->plan, step_time, (double)topology_devices(&place->topology));
}

static bool time_of(const struct rivals *rivals, const struct place *place, const struct plan *plan,
	bool less, double *seconds, struct error *error)
{
	bool all = plan->grad_accum == place->plan.grad_accum && isfinite(place->most);
	double slow = all ? place->most / per_token_there(place, 1) * (1 + 1e-9) : 0;
	if (less)
		slow = DBL_MIN; /* one more was judged already */
	*seconds = INFINITY;
	if (!place->property->moves_memory)
		return time_over_links(
			rivals, &place->topology, place->rival, less, plan, seconds, error);
	return time_anew(rivals, &place->topology, plan, slow, seconds, error);
}

/* The step time of a long accumulation: its micro-batches in the middle are alike, so two and three
 * tell how long one more takes. */
static bool step_time(const struct rivals *rivals, const struct place *place, double *seconds,
	struct error *error)
{
	const struct plan *plan = &place->plan;
	struct plan few = *plan;
	double three, two;
	few.grad_accum = min_i64(plan->grad_accum, SIMULATED_MICRO_BATCHES);
	set_ranks(&few, plan_data_parallel(plan));
	if (!time_of(rivals, place, &few, false, &three, error))
		return false;
	*seconds = three;
	if (plan->grad_accum <= SIMULATED_MICRO_BATCHES || isinf(three))
		return true;
	few.grad_accum--;
	set_ranks(&few, plan_data_parallel(plan));
	if (!time_of(rivals, place, &few, true, &two, error))
		return false;
	*seconds += (double)(plan->grad_accum - SIMULATED_MICRO_BATCHES) * (three - two);
	return true;
}

/* Seconds per token and device; infinite when it does not fit or cannot be. Above `most` it may be
 * finite all the same. */
static bool cost_at(const struct rivals *rivals, const struct property *property, int i, double x,
	double most, double *cost, struct error *error)
{
	struct place place = {property, i, *rivals->question->topology, *rivals->plans[i], most};
	double seconds;
	*cost = INFINITY;
	if ((!property->moves_memory && rivals->predictions[i]->fits == FITS_NO) ||
		!property->apply(value_for(rivals, property, i, x), &place.topology, &place.plan))
		return true;
	if (!step_time(rivals, &place, &seconds, error))
		return false;
	*cost = per_token_there(&place, seconds);
	return true;
}

/* A property that is moved. The chosen plan stays as long as none is faster by more than `margin`,
 * a factor: it may have been preferred for its memory. */
struct scan {
	const struct rivals *rivals;
	const struct property *property;
	double margin;
};

/* The value at which another plan takes over, or none fits. */
struct crossing {
	bool exists;
	bool up; /* above the present value */
	double at;
	int winner;
};

static bool winner_at(const struct scan *scan, double x, int *winner, struct error *error)
{
	double least = INFINITY, cost;
	*winner = NONE_FITS;
	for (int i = 0; i < scan->rivals->n; i++) {
		if (!cost_at(
			    scan->rivals, scan->property, i, x, least / scan->margin, &cost, error))
			return false;
		cost *= i == 0 ? 1 : scan->margin;
		if (cost >= least)
			continue;
		least = cost;
		*winner = i;
	}
	return true;
}

/* Between `same`, where the chosen plan stays, and the crossing so far. */
static bool bisect(
	const struct scan *scan, double same, struct crossing *crossing, struct error *error)
{
	bool whole = scan->property->whole;
	while (whole ? fabs(crossing->at - same) > 1
		     : fmax(crossing->at / same, same / crossing->at) > PRECISION) {
		double middle =
			whole ? floor((same + crossing->at) / 2) : sqrt(same * crossing->at);
		int there;
		if (!winner_at(scan, middle, &there, error))
			return false;
		if (there == 0) {
			same = middle;
		} else {
			crossing->at = middle;
			crossing->winner = there;
		}
	}
	return true;
}

static bool find_crossing(
	const struct scan *scan, bool up, struct crossing *crossing, struct error *error)
{
	const struct property *property = scan->property;
	double same = property->now;
	*crossing = (struct crossing){.up = up};
	for (int i = 0; i < COUNT_OF(factors); i++) {
		double x = up ? property->now * factors[i] : property->now / factors[i];
		if (property->whole)
			x = floor(x);
		if (x < 1 && property->whole)
			return true;
		crossing->at = x;
		if (!winner_at(scan, x, &crossing->winner, error))
			return false;
		if (crossing->winner != 0) {
			crossing->exists = true;
			return bisect(scan, same, crossing, error);
		}
		same = x;
	}
	return true;
}

/* --- sentences -------------------------------------------------------------------------------- */

static const char *name_of(const struct rivals *rivals, int winner)
{
	const struct plan *plan = rivals->plans[winner];
	if (strategy_is_hybrid(plan->strategy))
		return arena_printf(rivals->arena, "%s/%lld", strategy_names[plan->strategy],
			(long long)plan->mesh.shard);
	return strategy_names[plan->strategy];
}

static void add_value(struct text *text, const struct property *property, double value)
{
	property->print(text, value);
	text_printf(text, property->of, value == 1 ? "" : "s");
}

/* "Below 104 Gbit/s per NIC, FULL_SHARD is faster (today 200 Gbit/s)." */
static const char *sentence(const struct rivals *rivals, const struct property *property,
	const struct crossing *crossing)
{
	struct text text = {0};
	bool up = crossing->up, whole = property->whole;
	text_add(&text, up ? (whole ? "From " : "Above ") : (whole ? "Up to " : "Below "));
	add_value(&text, property, crossing->at);
	text_add(&text, up && whole ? " on, " : ", ");
	if (crossing->winner == NONE_FITS)
		text_add(&text, "none of these plans fits (today ");
	else
		text_printf(&text, "%s is faster (today ", name_of(rivals, crossing->winner));
	property->print(&text, property->now);
	text_add(&text, ").");
	const char *result = arena_strdup(rivals->arena, text_string(&text));
	text_finish(&text);
	return result;
}

static struct threshold *threshold_new(
	struct answer *answer, const char *what, const char *unit, double now)
{
	struct threshold *threshold = &answer->thresholds[answer->n_thresholds++];
	*threshold = (struct threshold){.what = what, .unit = unit, .now = now};
	return threshold;
}

static void add_crossing(const struct rivals *rivals, const struct property *property,
	const struct crossing *crossing, struct answer *answer)
{
	struct threshold *threshold =
		threshold_new(answer, property->name, property->unit, property->now);
	threshold->at = crossing->at;
	if (crossing->winner != NONE_FITS)
		threshold->becomes = name_of(rivals, crossing->winner);
	threshold->sentence = sentence(rivals, property, crossing);
}

/* Nothing changes within 32 times either way: that is an answer too. */
static void add_stable(
	const struct rivals *rivals, const struct property *property, struct answer *answer)
{
	threshold_new(answer, property->name, property->unit, property->now)->sentence =
		arena_printf(rivals->arena, "%s to 32 times today's %s the decision is the same.",
			property->up_only ? "Up" : "From 1/32", property->noun);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void add_memory(const struct rivals *rivals, struct answer *answer, double at, int winner,
	const char *sentence_of)
{
	struct threshold *threshold = threshold_new(answer, "device memory", "bytes",
		(double)rivals->predictions[0]->memory_limit_bytes);
	threshold->at = at;
	if (winner != NONE_FITS)
		threshold->becomes = name_of(rivals, winner);
	threshold->sentence = sentence_of;
}

/* Peaks do not depend on the limit: no simulation. */
static void find_memory(const struct rivals *rivals, struct answer *answer)
{
	const struct prediction *chosen = rivals->predictions[0];
	double fastest = per_token(rivals->plans[0], chosen->step_time, 1);
	int64_t least = chosen->peak_memory_bytes;
	char bytes[32], limit[32];
	int next = NONE_FITS, more = NONE_FITS;
	for (int i = 1; i < rivals->n; i++) {
		const struct prediction *p = rivals->predictions[i];
		double cost = per_token(rivals->plans[i], p->step_time, 1);
		bool fits = p->fits != FITS_NO;
		if (fits && p->peak_memory_bytes < least && next == NONE_FITS)
			next = i; /* rivals come in order */
		if (!fits && cost < fastest &&
			(more == NONE_FITS || p->peak_memory_bytes <
						      rivals->predictions[more]->peak_memory_bytes))
			more = i;
	}
	format_bytes(bytes, (double)least);
	format_bytes(limit, (double)chosen->memory_limit_bytes);
	add_memory(rivals, answer, (double)least, next,
		arena_printf(rivals->arena, "Below %s of device memory, %s (today %s).", bytes,
			next == NONE_FITS
				? "none of these plans fits"
				: arena_printf(rivals->arena, "%s is the fastest that fits",
					  name_of(rivals, next)),
			limit));
	if (more == NONE_FITS)
		return;
	int64_t need = rivals->predictions[more]->peak_memory_bytes;
	add_memory(rivals, answer, (double)need, more,
		arena_printf(rivals->arena,
			"With %s of device memory, %s fits and is faster (today %s).",
			format_bytes(bytes, (double)need), name_of(rivals, more), limit));
}

/* Both ways of every property, up first. */
struct scans {
	const struct rivals *rivals; /* by worker */
	double margin;
	int n; /* properties */
	struct property properties[PROPERTIES_MAX];
	struct crossing crossings[2 * PROPERTIES_MAX];
	struct error errors[2 * PROPERTIES_MAX];
};

static void scan_one_way(void *data, int index, int worker)
{
	struct scans *scans = data;
	const struct property *property = &scans->properties[index / 2];
	const struct scan scan = {&scans->rivals[worker], property, scans->margin};
	bool up = index % 2 == 0;
	if (up || !property->up_only)
		find_crossing(&scan, up, &scans->crossings[index], &scans->errors[index]);
}

static bool add_crossings(struct scans *scans, int i, struct answer *answer, struct error *error)
{
	const struct property *property = &scans->properties[i];
	bool any = false;
	for (int way = 2 * i; way < 2 * i + 2; way++) {
		if (scans->errors[way].code != EXIT_CODE_OK) {
			*error = scans->errors[way];
			return false;
		}
		if (scans->crossings[way].exists)
			add_crossing(scans->rivals, property, &scans->crossings[way], answer);
		any = any || scans->crossings[way].exists;
	}
	if (!any)
		add_stable(scans->rivals, property, answer);
	return true;
}

static bool find(struct scans *scans, struct answer *answer, struct error *error)
{
	const struct rivals *rivals = scans->rivals;
	int winner;
	scans->n = find_properties(rivals, scans->properties);
	scans->margin = 1;
	answer->thresholds = ARENA_ARRAY(rivals->arena, struct threshold, 2 * PROPERTIES_MAX);
	if (scans->n == 0)
		return true;
	const struct scan first = {rivals, &scans->properties[0], 1};
	if (!winner_at(&first, scans->properties[0].now, &winner, error))
		return false;
	if (winner != 0)
		scans->margin = RANKING_FUZZ;
	lent_each(rivals->question, 2 * scans->n, scan_one_way, scans);
	for (int i = 0; i < scans->n; i++)
		if (!add_crossings(scans, i, answer, error))
			return false;
	find_memory(rivals, answer);
	return true;
}

bool thresholds_find(const struct rivals *rivals, struct answer *answer, struct error *error)
{
	struct arena arena = {0};
	struct evaluators evaluators;
	struct scans *scans = ARENA_NEW(&arena, struct scans);
	evaluators_init(&evaluators, rivals->question);
	struct rivals *mine = ARENA_ARRAY(&arena, struct rivals, evaluators.n);
	for (int i = 0; i < evaluators.n; i++) {
		mine[i] = *rivals;
		mine[i].evaluator = &evaluators.of[i];
		mine[i].schedules = ARENA_NEW(&arena, struct rival_schedules);
	}
	scans->rivals = mine;
	bool ok = find(scans, answer, error);
	for (int i = 0; i < evaluators.n; i++)
		arena_finish(&mine[i].schedules->arena);
	evaluators_finish(&evaluators);
	arena_finish(&arena);
	return ok;
}
