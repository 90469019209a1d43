/* Thresholds: the question is searched again with one property at the end of its range. Where the
 * decision differs there, the value at which it changes is closed in by more searches, until one
 * search on either side of it gives the two decisions that the sentence names. */
#include "planner/defence/thresholds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "planner/search/search.h"

enum { PROPERTIES_MAX = 8, TRIALS_MAX = 10, BISECTED_FROM = 6, LENGTH_MAX = 1 << 20 };
/* The range of a property is its value / REACH to its value * REACH; of a device's memory it is
 * smaller, as other devices hardly have less, or more. */
#define REACH        32.0
#define MEMORY_REACH 4.0
#define SIDE         0.03 /* both sides are searched again so far beside a threshold, as a share */
#define WIDE         0.25 /* ln of the ratio of a bracket that is halved by one look */
#define GBIT         (1e9 / 8)
#define GIB          ((double)(INT64_C(1) << 30))

/* A question with one property moved. */
struct moved {
	struct question question;
	struct model model;
	struct topology topology;
};

struct property {
	const char *name, *unit;
	const char *of;   /* what follows a value: "104 Gbit/s" " per NIC" */
	const char *one;  /* the same after 1 */
	bool whole;       /* a count: values are whole numbers */
	double now;       /* 0: the question has no such property */
	double low, high; /* the values that the model allows and machines have */
	double reach;     /* how many times less or more is looked at */
	double step;      /* values are rounded to three digits in this unit */
	void (*apply)(double value, struct moved *moved);
	void (*print)(struct text *text, double value);
};

/* --- properties ------------------------------------------------------------------------------- */

static void set_nic(double value, struct moved *moved)
{
	moved->topology.network.nic_bandwidth = value;
}

static void set_network_latency(double value, struct moved *moved)
{
	moved->topology.network.latency = value;
}

static void set_fabric(double value, struct moved *moved)
{
	moved->topology.fabric.bandwidth = value;
}

static void set_nodes(double value, struct moved *moved)
{
	moved->topology.nodes = (int64_t)value;
}

static void set_length(double value, struct moved *moved)
{
	struct architecture *architecture = &moved->model.architecture;
	architecture->context = max_i64(architecture->context, (int64_t)value);
	question_put(&moved->question, KNOB_SEQ_LEN, (union knob_value){.number = (int64_t)value});
}

static void set_micro_batch(double value, struct moved *moved)
{
	question_put(
		&moved->question, KNOB_MICRO_BATCH, (union knob_value){.number = (int64_t)value});
}

static void set_accumulation(double value, struct moved *moved)
{
	question_put(
		&moved->question, KNOB_GRAD_ACCUM, (union knob_value){.number = (int64_t)value});
}

static void set_memory(double value, struct moved *moved)
{
	moved->question.memory_limit_bytes = (int64_t)value;
}

static void print_gbit(struct text *text, double value)
{
	text_printf(text, value < 1000 * GBIT ? "%.3g Gbit/s" : "%.0f Gbit/s", value / GBIT);
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

static void print_bytes(struct text *text, double value)
{
	char buffer[32];
	text_add(text, format_bytes(buffer, value));
}

static void print_count(struct text *text, double value)
{
	text_printf(text, "%.0f", value);
}

/* Measured collectives do not follow the datasheet's bandwidth. */
static int find_properties(const struct question *question, const struct candidate *chosen,
	struct property properties[PROPERTIES_MAX])
{
	const struct topology *topology = question->topology;
	const struct plan *plan = &chosen->plan;
	bool modelled = topology->calibration.n_collectives == 0;
	bool network = modelled && topology->nodes > 1;
	bool fabric = modelled && topology->devices_per_node > 1 &&
		      topology->fabric.kind != FABRIC_SHARED_MEMORY;
	bool grows = topology->network.kind != NETWORK_NONE && question->gpus == 0;
	bool batch = !question_gives(question, KNOB_GLOBAL_BATCH);
	bool learned = question->model->architecture.positions == POSITIONS_LEARNED;
	double longest = learned ? (double)question->model->architecture.context : LENGTH_MAX;
	double accumulated = (double)plan->grad_accum, sequences = (double)plan->micro_batch;
	const struct property all[] = {
		{"node link, per NIC", "B/s", " per NIC", " per NIC", false,
			network ? topology->network.nic_bandwidth : 0, GBIT, 1600 * GBIT, REACH,
			GBIT, set_nic, print_gbit},
		{"network latency", "s", " of network latency", " of network latency", false,
			network ? topology->network.latency : 0, 1e-7, 1e-2, REACH, 1,
			set_network_latency, print_time},
		{"link inside a node", "B/s", " inside a node", " inside a node", false,
			fabric ? topology->fabric.bandwidth : 0, 1e9, 1e12, REACH, 1, set_fabric,
			print_bandwidth},
		{"number of nodes", "nodes", " nodes", " node", true,
			grows ? (double)topology->nodes : 0, 1, 65536, REACH, 1, set_nodes,
			print_count},
		{"sequence length", "tokens", " tokens per sequence", " token per sequence", false,
			(double)plan->seq_len, 128, longest, REACH, 1, set_length, print_count},
		{"micro-batch", "sequences", " sequences per micro-batch",
			" sequence per micro-batch", true, batch ? sequences : 0, sequences,
			PLAN_MAX_GRAD_ACCUM, REACH, 1, set_micro_batch, print_count},
		{"gradient accumulation", "micro-batches", " micro-batches per step",
			" micro-batch per step", true, batch ? accumulated : 0, accumulated,
			PLAN_MAX_GRAD_ACCUM, REACH, 1, set_accumulation, print_count},
		{"device memory", "bytes", " of device memory", " of device memory", false,
			(double)chosen->prediction.memory_limit_bytes, GIB, 512 * GIB, MEMORY_REACH,
			GIB, set_memory, print_bytes},
	};
	int n = 0;
	for (int i = 0; i < COUNT_OF(all); i++)
		if (all[i].now > 0)
			properties[n++] = all[i];
	return n;
}

/* --- decisions -------------------------------------------------------------------------------- */

/* What a search chose; NOTHING: no plan fits with room. */
struct decision {
	enum { CHOSEN, NOTHING, REFUSED } kind;
	enum strategy strategy;
	int64_t group; /* of hybrid strategies; else 0 */
};

static struct decision decision_of(const struct plan *plan)
{
	return (struct decision){
		CHOSEN, plan->strategy, strategy_is_hybrid(plan->strategy) ? plan->mesh.shard : 0};
}

static bool same(const struct decision *a, const struct decision *b)
{
	return a->kind == b->kind &&
	       (a->kind != CHOSEN || (a->strategy == b->strategy && a->group == b->group));
}

static const char *name_of(const struct decision *decision, struct arena *arena)
{
	const char *name = strategy_names[decision->strategy];
	return decision->group > 0
		       ? arena_printf(arena, "%s/%lld", name, (long long)decision->group)
		       : name;
}

/* A search of the question at one value. */
struct look {
	double at;
	struct decision decision;
	/* ln of time per token, the best of other strategies / the best of today's: above 0 today's
	 * strategy is faster. NAN: one of them does not fit. */
	double lead;
	struct decision other; /* the best of other strategies */
};

/* The search for a threshold of one property in one direction. Each look is the search that the
 * user would start at that value, so it has the same result. */
struct scan {
	const struct question *question;
	const struct property *property; /* NULL: none is moved */
	struct decision today;
	bool up;
	double end; /* of the property's range in this direction */
	/* The result: */
	enum { NO_CHANGE_KNOWN, SAME_AT_END, CHANGES, NEAR_TIE } outcome;
	double at;
	struct decision becomes;
	struct error error;
};

static void find_lead(const struct scan *scan, const struct search *search, struct look *look)
{
	const struct ranking *ranking = &search->ranking;
	int64_t mine = 0, others = 0;
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		const struct ranked *best = ranking_best(ranking, s);
		if (best == NULL || best->tight ||
			!ranking_is_rival(ranking, best->costs.of[ranking->objective]))
			continue;
		struct decision decision = decision_of(&search->space.plans[best->plan]);
		int64_t cost = best->costs.of[ranking->objective];
		if (same(&decision, &scan->today)) {
			mine = cost;
		} else if (others == 0 || cost < others) {
			others = cost;
			look->other = decision;
		}
	}
	look->lead = mine > 0 && others > 0 ? log((double)others / (double)mine) : NAN;
}

static bool look_at(const struct scan *scan, double at, struct look *look, struct error *error)
{
	struct arena arena = {0};
	struct search search;
	struct error mine = {0};
	struct lent quiet;
	struct moved *moved = ARENA_NEW(&arena, struct moved);
	*look = (struct look){.at = at, .decision = {.kind = REFUSED}, .lead = NAN};
	moved->question = lent_quietly(scan->question, true, &quiet);
	moved->topology = *scan->question->topology;
	moved->question.topology = &moved->topology;
	moved->model = *scan->question->model;
	moved->question.model = &moved->model;
	moved->question.pareto = false;
	moved->question.wanted = WANTED_RIVALS;
	scan->property->apply(at, moved);
	bool ok = search_run(&moved->question, &arena, &search, &mine);
	if (ok && !search.stopped) {
		const struct ranked *best = ranking_best(&search.ranking, STRATEGY_COUNT);
		look->decision.kind = NOTHING;
		if (best != NULL && !best->tight)
			look->decision = decision_of(&search.space.plans[best->plan]);
		find_lead(scan, &search, look);
	}
	search_finish(&search);
	arena_finish(&arena);
	return ok || error_is_refusal(&mine, error);
}

/* --- one way ---------------------------------------------------------------------------------- */

static double rounded(const struct property *property, double value)
{
	double step = pow(10, floor(log10(value / property->step)) - 2) * property->step;
	if (property->whole)
		return fmax(1, round(value));
	return round(value / step) * step;
}

/* The value beside the threshold `at` at which a side is searched again: that of today's decision
 * or the other one. */
static double side_of(const struct scan *scan, double at, bool today)
{
	bool below = scan->up == today;
	if (scan->property->whole)
		return !today ? at : scan->up ? at - 1 : at + 1;
	double side = below ? at * (1 - SIDE) : at * (1 + SIDE);
	return scan->property->step == 1 && side > 100 ? round(side) : side;
}

/* Has `lead` a zero between a value with today's decision (`stays`) and one with another
 * (`leaves`)? Later trials do without. */
static bool has_secant(const struct look *stays, const struct look *leaves, int trial)
{
	return trial < BISECTED_FROM && stays->lead > 0 && leaves->lead < 0;
}

/* The next value to try: the secant's zero of `lead`, or the middle. */
static double guess(
	const struct scan *scan, const struct look *stays, const struct look *leaves, int trial)
{
	double part = 0.5;
	if (has_secant(stays, leaves, trial))
		part = fmin(0.9, fmax(0.1, stays->lead / (stays->lead - leaves->lead)));
	double value = stays->at * pow(leaves->at / stays->at, part);
	if (scan->property->whole) {
		value = scan->up ? floor(value) + 1 : ceil(value) - 1;
		value = scan->up ? fmin(value, leaves->at) : fmax(value, leaves->at);
	}
	return rounded(scan->property, value);
}

static bool is_close(const struct look *look)
{
	return fabs(look->lead) <= log(RANKING_FUZZ);
}

/* No value separates two decisions by more than the fuzz. */
static bool look_for_tie(struct scan *scan, double at, struct error *error)
{
	struct look look;
	if (!look_at(scan, at, &look, error))
		return false;
	if (!is_close(&look) || look.other.strategy == scan->today.strategy)
		return true;
	scan->outcome = NEAR_TIE;
	scan->at = at;
	scan->becomes = look.other;
	return true;
}

static bool closed(const struct scan *scan, const struct look *stays, const struct look *leaves)
{
	return scan->property->whole ? fabs(stays->at - leaves->at) < 1
				     : fabs(log(stays->at / leaves->at)) < SIDE / 2;
}

/* Looks at a value, which becomes the side of the bracket whose decision it has. */
static bool narrow(const struct scan *scan, double at, struct look *stays, struct look *leaves,
	struct look *look, struct error *error)
{
	if (!look_at(scan, at, look, error))
		return false;
	if (look->decision.kind != REFUSED)
		*(same(&look->decision, &scan->today) ? stays : leaves) = *look;
	return true;
}

/* Is one look enough for now? Two beside a secant's zero often end the search, but in the middle
 * of a wide bracket the second says nothing new. */
static bool is_halved(
	const struct scan *scan, const struct look *stays, const struct look *leaves, int trial)
{
	return !scan->property->whole && !has_secant(stays, leaves, trial) &&
	       fabs(log(stays->at / leaves->at)) > WIDE;
}

static bool close_in(struct scan *scan, struct look stays, struct look leaves, struct error *error)
{
	double at = leaves.at;
	for (int trial = 0; trial < TRIALS_MAX && !closed(scan, &stays, &leaves); trial++) {
		struct look before, beyond;
		bool halved = is_halved(scan, &stays, &leaves, trial);
		at = guess(scan, &stays, &leaves, trial);
		if (!narrow(scan, halved ? at : side_of(scan, at, true), &stays, &leaves, &before,
			    error))
			return false;
		if (before.decision.kind == REFUSED)
			return true;
		if (halved || !same(&before.decision, &scan->today))
			continue;
		if (!narrow(scan, side_of(scan, at, false), &stays, &leaves, &beyond, error))
			return false;
		if (beyond.decision.kind == REFUSED)
			return true;
		if (same(&beyond.decision, &scan->today))
			continue;
		if (is_close(&before) && is_close(&beyond))
			break;
		scan->outcome = CHANGES;
		scan->at = at;
		scan->becomes = beyond.decision;
		return true;
	}
	return look_for_tie(scan, at, error);
}

/* Looks at the end of the range; where the question is refused there, half as far, and so on. */
static bool look_at_end(struct scan *scan, struct look *end, struct error *error)
{
	double at = scan->end;
	end->decision.kind = REFUSED;
	while (end->decision.kind == REFUSED &&
		(scan->up ? at > scan->property->now * 1.5 : at < scan->property->now / 1.5)) {
		if (!look_at(scan, at, end, error))
			return false;
		at = scan->property->whole ? floor(scan->up ? at / 2 : at * 2)
					   : (scan->up ? at / 2 : at * 2);
	}
	return true;
}

static void scan_way(void *data, int index, int worker)
{
	struct scan *scan = &((struct scan *)data)[index];
	struct look now = {.at = scan->property->now, .decision = scan->today, .lead = NAN}, end;
	(void)worker;
	if (!look_at_end(scan, &end, &scan->error) || end.decision.kind == REFUSED)
		return;
	scan->at = end.at;
	if (same(&end.decision, &scan->today))
		scan->outcome = SAME_AT_END;
	else
		close_in(scan, now, end, &scan->error);
}

/* --- sentences -------------------------------------------------------------------------------- */

static void add_value(struct text *text, const struct property *property, double value)
{
	property->print(text, value);
	text_add(text, value == 1 ? property->one : property->of);
}

static void add_today(struct text *text, const struct property *property)
{
	text_add(text, " (today ");
	property->print(text, property->now);
	text_add(text, ").");
}

/* "Below 104 Gbit/s per NIC, FULL_SHARD is faster (today 200 Gbit/s)." */
static void add_change(const struct scan *scan, struct arena *arena, struct text *text)
{
	bool up = scan->up, whole = scan->property->whole;
	bool memory = scan->property->apply == set_memory && !up;
	text_add(text, up ? (whole ? "From " : "Above ") : (whole ? "Up to " : "Below "));
	add_value(text, scan->property, scan->at);
	text_add(text, up && whole ? " on, " : ", ");
	if (scan->becomes.kind == NOTHING)
		text_add(text, "no plan fits with room");
	else
		text_printf(text, "%s is %s", name_of(&scan->becomes, arena),
			memory ? "the fastest that fits" : "faster");
}

static void add_tie(const struct scan *scan, struct arena *arena, struct text *text)
{
	text_add(text, "A near-tie around ");
	add_value(text, scan->property, scan->at);
	text_printf(text, ": %s and ", name_of(&scan->today, arena));
	text_printf(text, "%s are within 1 %%", name_of(&scan->becomes, arena));
}

static struct threshold *threshold_new(struct answer *answer, const struct property *property)
{
	struct threshold *threshold = &answer->thresholds[answer->n_thresholds++];
	*threshold = (struct threshold){
		.what = property->name, .unit = property->unit, .now = property->now};
	return threshold;
}

static void add_threshold(const struct scan *scan, struct arena *arena, struct answer *answer)
{
	struct threshold *threshold = threshold_new(answer, scan->property);
	struct text text = {0};
	threshold->at = scan->at;
	threshold->near_tie = scan->outcome == NEAR_TIE;
	if (scan->becomes.kind == CHOSEN)
		threshold->becomes = name_of(&scan->becomes, arena);
	if (threshold->near_tie)
		add_tie(scan, arena, &text);
	else
		add_change(scan, arena, &text);
	add_today(&text, scan->property);
	threshold->sentence = arena_strdup(arena, text_string(&text));
	text_finish(&text);
}

/* "FULL_SHARD stays the best strategy at 8 nodes (today 256)." Nothing changes at the ends: that is
 * an answer too. */
static void add_same(
	const struct scan *up, const struct scan *down, struct arena *arena, struct answer *answer)
{
	struct threshold *threshold = threshold_new(answer, up->property);
	struct text text = {0};
	threshold->low = down->outcome == SAME_AT_END ? down->at : 0;
	threshold->high = up->outcome == SAME_AT_END ? up->at : 0;
	if (up->today.kind == CHOSEN)
		text_printf(&text, "%s stays the best strategy at ", name_of(&up->today, arena));
	else
		text_add(&text, "No plan fits with room at ");
	if (threshold->low > 0)
		up->property->print(&text, threshold->low);
	text_add(&text, threshold->low > 0 && threshold->high > 0 ? " and at " : "");
	if (threshold->high > 0)
		up->property->print(&text, threshold->high);
	double last = fmax(threshold->low, threshold->high);
	text_add(&text, last == 1 ? up->property->one : up->property->of);
	if (up->today.kind != CHOSEN)
		text_add(&text, " either");
	add_today(&text, up->property);
	threshold->sentence = arena_strdup(arena, text_string(&text));
	text_finish(&text);
}

/* --- the whole -------------------------------------------------------------------------------- */

static struct scan scan_new(const struct question *question, const struct property *property,
	const struct plan *chosen, bool up)
{
	double end = up ? fmin(property->high, property->now * property->reach)
			: fmax(property->low, property->now / property->reach);
	return (struct scan){.question = question,
		.property = property,
		.today = decision_of(chosen),
		.up = up,
		.end = property->whole ? ceil(end) : rounded(property, end)};
}

/* Is the other decision of a near-tie as good today? Then that is said of the runner-up, and a
 * value at which it is so is no news. */
static bool ties_today(const struct scan *scan, const struct answer *answer)
{
	const struct question *question = scan->question;
	const struct candidate *chosen = answer->chosen;
	int64_t least = costs_time(&chosen->plan, chosen->prediction.step_time);
	for (int i = 0; i < answer->n_alternatives && question->objective == OBJECTIVE_TIME; i++) {
		const struct candidate *other = &answer->alternatives[i];
		struct decision decision = decision_of(&other->plan);
		if (other->outcome == OUTCOME_IMPOSSIBLE || !same(&decision, &scan->becomes) ||
			!has_room(question, &other->plan, &other->prediction))
			continue;
		int64_t cost = costs_time(&other->plan, other->prediction.step_time);
		if ((double)cost <= (double)least * RANKING_FUZZ)
			return true;
	}
	return false;
}

static void add_scans(
	const struct scan *up, const struct scan *down, struct arena *arena, struct answer *answer)
{
	const struct scan *ways[] = {up, down};
	int changes = 0;
	for (int i = 0; i < COUNT_OF(ways); i++) {
		if (ways[i]->outcome != CHANGES &&
			(ways[i]->outcome != NEAR_TIE || ties_today(ways[i], answer)))
			continue;
		add_threshold(ways[i], arena, answer);
		changes++;
	}
	if (changes == 0 && (up->outcome == SAME_AT_END || down->outcome == SAME_AT_END))
		add_same(up, down, arena, answer);
}

bool thresholds_find(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct property properties[PROPERTIES_MAX];
	struct scan scans[2 * PROPERTIES_MAX];
	int n = find_properties(question, answer->chosen, properties);
	for (int i = 0; i < 2 * n; i++) {
		scans[i] =
			scan_new(question, &properties[i / 2], &answer->chosen->plan, i % 2 == 0);
		if (answer->tight)
			scans[i].today.kind = NOTHING;
	}
	lent_each(question, 2 * n, scan_way, scans);
	answer->thresholds = ARENA_ARRAY(arena, struct threshold, 2 * PROPERTIES_MAX);
	for (int i = 0; i < 2 * n; i++) {
		if (scans[i].error.code != EXIT_CODE_OK) {
			*error = scans[i].error;
			return false;
		}
	}
	for (int i = 0; i < n; i++)
		add_scans(&scans[2 * i], &scans[2 * i + 1], arena, answer);
	return true;
}
