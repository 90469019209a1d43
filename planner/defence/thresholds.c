/* Thresholds: the question is searched again with one property at the end of its range, and where
 * the decision differs there, at the value at which it changes. */
#include "planner/defence/thresholds.h"

#include <math.h>
#include <stdlib.h>

#include "planner/defence/scan.h"

enum { PROPERTIES_MAX = 8, LENGTH_MAX = 1 << 20 };
/* The range of a property is its value / REACH to its value * REACH; of a device's memory it is
 * smaller, as other devices hardly have less, or more. */
#define REACH        32.0
#define MEMORY_REACH 4.0
#define GBIT         (1e9 / 8)
#define GIB          ((double)(INT64_C(1) << 30))

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

static void carry_length(double value, struct plan *plan)
{
	plan->seq_len = (int64_t)value;
}

static void set_micro_batch(double value, struct moved *moved)
{
	question_put(
		&moved->question, KNOB_MICRO_BATCH, (union knob_value){.number = (int64_t)value});
}

static void carry_micro_batch(double value, struct plan *plan)
{
	*plan = plan_with_batch(plan, (int64_t)value, plan->grad_accum);
}

static void set_accumulation(double value, struct moved *moved)
{
	question_put(
		&moved->question, KNOB_GRAD_ACCUM, (union knob_value){.number = (int64_t)value});
}

static void carry_accumulation(double value, struct plan *plan)
{
	*plan = plan_with_micro_batches(plan, (int64_t)value);
}

static void set_memory(double value, struct moved *moved)
{
	moved->question.memory_limit_bytes = (int64_t)value;
}

/* The plan does not say the property. */
static void carry_unchanged(double value, struct plan *plan)
{
	(void)value;
	(void)plan;
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
			GBIT, STAYS_COMPUTE, set_nic, carry_unchanged, print_gbit},
		{"network latency", "s", " of network latency", " of network latency", false,
			network ? topology->network.latency : 0, 1e-7, 1e-2, REACH, 1, STAYS_SPACE,
			set_network_latency, carry_unchanged, print_time},
		{"link inside a node", "B/s", " inside a node", " inside a node", false,
			fabric ? topology->fabric.bandwidth : 0, 1e9, 1e12, REACH, 1, STAYS_SPACE,
			set_fabric, carry_unchanged, print_bandwidth},
		{"number of nodes", "nodes", " nodes", " node", true,
			grows ? (double)topology->nodes : 0, 1, 65536, REACH, 1, STAYS_COMPUTE,
			set_nodes, NULL, print_count},
		{"sequence length", "tokens", " tokens per sequence", " token per sequence", false,
			(double)plan->seq_len, 128, longest, REACH, 1, STAYS_NOTHING, set_length,
			carry_length, print_count},
		{"micro-batch", "sequences", " sequences per micro-batch",
			" sequence per micro-batch", true, batch ? sequences : 0, sequences,
			PLAN_MAX_GRAD_ACCUM, REACH, 1, STAYS_COST, set_micro_batch,
			carry_micro_batch, print_count},
		{"gradient accumulation", "micro-batches", " micro-batches per step",
			" micro-batch per step", true, batch ? accumulated : 0, accumulated,
			PLAN_MAX_GRAD_ACCUM, REACH, 1, STAYS_COST, set_accumulation,
			carry_accumulation, print_count},
		{"device memory", "bytes", " of device memory", " of device memory", false,
			(double)chosen->prediction.memory_limit_bytes, GIB, 512 * GIB, MEMORY_REACH,
			GIB, STAYS_COST, set_memory, carry_unchanged, print_bytes},
	};
	int n = 0;
	for (int i = 0; i < COUNT_OF(all); i++)
		if (all[i].now > 0)
			properties[n++] = all[i];
	return n;
}

static const char *name_of(const struct decision *decision, struct arena *arena)
{
	const char *name = strategy_names[decision->strategy];
	return decision->group > 0
		       ? arena_printf(arena, "%s/%lld", name, (long long)decision->group)
		       : name;
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
	const struct answer *answer, const struct carried *carried, bool up)
{
	double end = up ? fmin(property->high, property->now * property->reach)
			: fmax(property->low, property->now / property->reach);
	return (struct scan){.question = question,
		.property = property,
		.carried = *carried,
		.today = answer->tight ? (struct decision){.kind = NOTHING}
				       : decision_of(&answer->chosen->plan),
		.up = up,
		.end = property->whole ? ceil(end) : scan_rounded(property, end)};
}

/* Is the other decision of a near-tie as good today? Then that is said of the runner-up, and a
 * value at which it is so is no news. */
static bool ties_today(const struct scan *scan)
{
	return scan_is_close(&scan->now) && decisions_same(&scan->now.other, &scan->becomes);
}

static void add_scans(
	const struct scan *up, const struct scan *down, struct arena *arena, struct answer *answer)
{
	const struct scan *ways[] = {up, down};
	int changes = 0;
	for (int i = 0; i < COUNT_OF(ways); i++) {
		if (ways[i]->outcome != CHANGES &&
			(ways[i]->outcome != NEAR_TIE || ties_today(ways[i])))
			continue;
		add_threshold(ways[i], arena, answer);
		changes++;
	}
	if (changes == 0 && (up->outcome == SAME_AT_END || down->outcome == SAME_AT_END))
		add_same(up, down, arena, answer);
}

/* The plans of today. Where there are none, each search finds out why. */
static void build_space(const struct question *question, struct arena *arena, struct space *space)
{
	struct question today = *question;
	struct error error = {0};
	today.wanted = WANTED_RIVALS;
	if (!space_build(&today, arena, space, &error))
		*space = (struct space){0};
}

static bool scan_all(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct property properties[PROPERTIES_MAX];
	struct scan scans[2 * PROPERTIES_MAX];
	const struct candidate *chosen = answer->chosen;
	struct carried carried = {0};
	carried_add(&carried, question, &chosen->plan, answer->departures,
		chosen->prediction.step_time, prediction_needed_bytes(&chosen->prediction));
	int n = find_properties(question, chosen, properties);
	for (int i = 0; i < 2 * n; i++)
		scans[i] = scan_new(question, &properties[i / 2], answer, &carried, i % 2 == 0);
	if (!scan_today(scans, 2 * n, error))
		return false;
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

bool thresholds_find(const struct question *question, const struct sampler *sampler,
	struct arena *arena, struct answer *answer, struct error *error)
{
	struct question with = *question;
	struct space space = {0};
	if (sampler != NULL)
		build_space(question, arena, &space);
	const struct earlier earlier = {.space = space.n > 0 ? &space : NULL, .sampler = sampler};
	with.earlier = sampler != NULL ? &earlier : NULL;
	bool ok = scan_all(&with, arena, answer, error);
	space_finish(&space);
	return ok;
}
