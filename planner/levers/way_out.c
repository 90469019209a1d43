/* The way out when nothing fits: levers, a shorter sequence, more devices. */
#include "planner/levers/levers.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LEVERS_MOST = 3, WAYS_MOST = LEVERS_MOST + 2, LENGTH_STEP = 128, LENGTH_TRIES = 6 };

/* Devices that are looked at before they are counted: states are small on so many times more. */
enum { MANY_TIMES = 64 };

struct leaving {
	const struct question *question;
	const struct plan *closest;
	struct arena *arena;
	struct answer *answer;
	struct error *error;
};

static void fix_open(struct question *question, enum knob_id id, union knob_value value)
{
	if (question_is_open(question, id))
		question_put(question, id, value);
}

/* Asks only whether any plan has room, of those with what saves memory whatever the plan is. */
static struct question ask_any(const struct question *question)
{
	struct question other = *question;
	if (knob_honoured(
		    KNOB_ACTIVATION_CHECKPOINTING, question->asked.runtime, CHECKPOINTING_FULL))
		fix_open(&other, KNOB_ACTIVATION_CHECKPOINTING,
			knob_value_of(KNOB_ACTIVATION_CHECKPOINTING, CHECKPOINTING_FULL));
	if (!question_gives(question, KNOB_GLOBAL_BATCH) ||
		!question_gives(question, KNOB_GRAD_ACCUM))
		fix_open(&other, KNOB_MICRO_BATCH, (union knob_value){.number = 1});
	other.wanted = WANTED_ANY;
	other.objective = OBJECTIVE_MEMORY;
	return other;
}

/* The search of another question; one that was stopped found nothing. `way` NULL: only whether any
 * plan has room is asked. False only for errors that are ours. */
static bool plan_again(
	struct leaving *l, const struct question *question, struct way_out *way, bool *fits)
{
	struct search search;
	struct exposure exposure;
	struct error mine = {0};
	struct question other = way != NULL ? *question : ask_any(question);
	if (way != NULL)
		other.wanted = WANTED_BEST;
	bool ok = search_run(&other, l->arena, &search, &mine) &&
		  (way == NULL || search_share_stages(&search, l->arena, &mine));
	const struct ranked *best =
		ok && !search.stopped ? ranking_best(&search.ranking, STRATEGY_COUNT) : NULL;
	*fits = best != NULL && !best->tight;
	if (*fits && way != NULL) {
		way->devices = topology_devices(question->topology);
		way->plan = search.space.plans[best->plan];
		ok = evaluator_run_closely(&search.evaluator, &way->plan, l->arena,
			&way->prediction, &exposure, &mine);
		*fits = ok && has_room(question, &way->plan, &way->prediction);
	}
	search_finish(&search);
	return ok || error_is_refusal(&mine, l->error);
}

static void add_way(struct leaving *l, const struct way_out *way)
{
	l->answer->ways_out[l->answer->n_ways_out++] = *way;
}

/* --- levers ----------------------------------------------------------------------------------- */

struct savers {
	int n;
	const struct variant *of[VARIANTS_MAX]; /* the most memory first */
};

static int by_peak(const void *a, const void *b)
{
	const struct variant *x = *(const struct variant *const *)a;
	const struct variant *y = *(const struct variant *const *)b;
	int64_t left = prediction_wanted_bytes(&x->prediction);
	int64_t right = prediction_wanted_bytes(&y->prediction);
	return left != right ? (left < right ? -1 : 1) : (x < y ? -1 : x > y);
}

static void find_savers(struct leaving *l, const struct variants *variants, struct savers *savers)
{
	int64_t most = INT64_MAX;
	savers->n = 0;
	for (int i = 0; i < l->answer->n_alternatives; i++)
		if (l->answer->alternatives[i].outcome == OUTCOME_DOES_NOT_FIT)
			most = min_i64(
				most, l->answer->alternatives[i].prediction.peak_memory_bytes);
	for (int i = 0; i < variants->n; i++) {
		const struct variant *variant = &variants->items[i];
		if (variant->built && variant->id < KNOB_COUNT && variant->id != KNOB_WRAP &&
			knob_table[variant->id].roles & KNOB_LEVER &&
			question_leaves(l->question, variant->id) &&
			space_pulls(variant->id, &variant->plan) &&
			prediction_wanted_bytes(&variant->prediction) < most - most / 100)
			savers->of[savers->n++] = variant;
	}
	qsort(savers->of, (size_t)savers->n, sizeof(*savers->of), by_peak);
}

static int by_speed(const void *a, const void *b)
{
	const struct way_out *x = a, *y = b;
	double left = x->prediction.tokens_per_s_per_gpu;
	double right = y->prediction.tokens_per_s_per_gpu;
	return left != right ? (left > right ? -1 : 1) : strcmp(x->typed, y->typed);
}

/* One lever alone. */
static bool try_single(struct leaving *l, const struct savers *savers)
{
	for (int i = 0; i < savers->n && l->answer->n_ways_out < LEVERS_MOST; i++) {
		const struct variant *saver = savers->of[i];
		struct question question = *l->question;
		struct way_out way = {
			.typed = lever_typed(saver->id, &saver->plan, l->arena), .note = ""};
		bool fits;
		question_take(&question, saver->id, &saver->plan);
		if (!plan_again(l, &question, &way, &fits))
			return false;
		if (fits)
			add_way(l, &way);
	}
	qsort(l->answer->ways_out, (size_t)l->answer->n_ways_out, sizeof(struct way_out), by_speed);
	return true;
}

struct pulled {
	uint64_t set;
	const struct variant *by[KNOB_COUNT];
};

static bool try_pulled(
	struct leaving *l, const struct pulled *pulled, struct way_out *way, bool *fits)
{
	struct question question = *l->question;
	*way = (struct way_out){.typed = "", .note = ""};
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (!(pulled->set & KNOB_BIT(id)))
			continue;
		const struct plan *plan = &pulled->by[id]->plan;
		question_take(&question, id, plan);
		way->typed = arena_printf(l->arena, "%s%s%s", way->typed,
			way->typed[0] != '\0' ? " " : "", lever_typed(id, plan, l->arena));
	}
	return plan_again(l, &question, way, fits);
}

/* One after the other until it fits; then those go that were not needed. */
static bool try_several(struct leaving *l, const struct savers *savers)
{
	struct pulled pulled = {0};
	struct way_out way, without;
	bool fits = false, still;
	for (int i = 0; i < savers->n && !fits; i++) {
		enum knob_id id = savers->of[i]->id;
		if (pulled.set & KNOB_BIT(id))
			continue;
		pulled.set |= KNOB_BIT(id);
		pulled.by[id] = savers->of[i];
		if (pulled.set != KNOB_BIT(id) && !try_pulled(l, &pulled, &way, &fits))
			return false;
	}
	for (int i = 0; i < KNOB_COUNT && fits; i++) {
		struct pulled fewer = pulled;
		fewer.set &= ~KNOB_BIT(i);
		if (fewer.set == pulled.set)
			continue;
		if (!try_pulled(l, &fewer, &without, &still))
			return false;
		pulled = still ? fewer : pulled;
		way = still ? without : way;
	}
	if (fits)
		add_way(l, &way);
	return true;
}

/* --- a shorter sequence ----------------------------------------------------------------------- */

static bool plan_length(struct leaving *l, int64_t length, struct way_out *way, bool *fits)
{
	struct question question = *l->question;
	question_put(&question, KNOB_SEQ_LEN, (union knob_value){.number = length});
	return plan_again(l, &question, way, fits);
}

/* The next length does not fit, or does: other plans than --find's may have longer ones. */
static bool note_length(struct leaving *l, int64_t length, struct way_out *way)
{
	bool fits = false;
	if (length + LENGTH_STEP < l->closest->seq_len &&
		!plan_length(l, length + LENGTH_STEP, NULL, &fits))
		return false;
	way->note =
		fits || lent_stopped(l->question) ? "a shorter sequence" : "the longest sequence";
	return true;
}

static bool try_length(struct leaving *l)
{
	struct question question = *l->question;
	struct finding finding;
	struct error mine = {0};
	question_open(&question, KNOB_SEQ_LEN);
	question.wanted = WANTED_BEST;
	if (!find_answer(&question, FIND_MAX_SEQ_LEN, 0, l->arena, &finding, &mine))
		return error_is_refusal(&mine, l->error);
	int64_t length = min_i64((int64_t)finding.value, l->closest->seq_len - 1);
	for (int i = 0; i < LENGTH_TRIES && finding.exists && length >= LENGTH_STEP &&
			!lent_stopped(l->question);
		i++) {
		bool fits;
		length -= length % LENGTH_STEP;
		struct way_out way = {
			.typed = arena_printf(l->arena, "--seq-len %lld", (long long)length)};
		if (!plan_length(l, length, &way, &fits))
			return false;
		if (fits) {
			if (!note_length(l, length, &way))
				return false;
			add_way(l, &way);
			return true;
		}
		length -= length / 32 + 1;
	}
	return true;
}

/* --- more devices ----------------------------------------------------------------------------- */

/* "2xdgx-h100" -> "dgx-h100" */
static const char *node_name(const char *name)
{
	const char *rest = name;
	while (isdigit((unsigned char)*rest))
		rest++;
	return rest > name && *rest == 'x' ? rest + 1 : name;
}

/* So many nodes that more would be of no use; 0: no more can be had, or the batch is too small. */
static int64_t many_nodes(const struct question *question)
{
	const struct topology *topology = question->topology;
	int64_t together = question_ranks_together(question), nodes = topology->nodes * MANY_TIMES;
	if (topology->network.kind == NETWORK_NONE)
		return 0;
	for (; nodes > topology->nodes; nodes /= 2) {
		int64_t shares = max_i64(1, nodes * topology->devices_per_node / together);
		if (!question_gives(question, KNOB_GLOBAL_BATCH) ||
			question->asked.global_batch % shares == 0)
			return nodes;
	}
	return 0;
}

static bool try_nodes(struct leaving *l, int64_t nodes, struct way_out *way, bool *fits)
{
	struct question question = *l->question;
	struct topology topology = *l->question->topology;
	topology.nodes = nodes;
	question.topology = &topology;
	return plan_again(l, &question, way, fits);
}

/* Doubles until it fits, then bisects. */
static bool try_devices(struct leaving *l)
{
	int64_t most = many_nodes(l->question), low = l->question->topology->nodes, high = most;
	bool fits;
	if (most == 0)
		return true;
	if (!try_nodes(l, most, NULL, &fits))
		return false;
	if (lent_stopped(l->question))
		return true;
	if (!fits) {
		l->answer->useless_devices = most * l->question->topology->devices_per_node;
		return true;
	}
	while (high - low > 1) {
		int64_t nodes = min_i64(2 * low, low + (high - low) / 2);
		if (!try_nodes(l, nodes, NULL, &fits))
			return false;
		high = fits ? nodes : high;
		low = fits ? low : nodes;
	}
	struct way_out way = {.typed = "",
		.topology = arena_printf(l->arena, "%lldx%s", (long long)high,
			node_name(l->question->topology->name)),
		.note = "the fewest nodes"};
	if (!try_nodes(l, high, &way, &fits))
		return false;
	if (fits && !lent_stopped(l->question)) /* else fewer may do */
		add_way(l, &way);
	return true;
}

bool way_out_find(const struct question *question, const struct plan *closest,
	const struct variants *variants, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct lent quiet;
	const struct question beside = lent_quietly(question, false, &quiet);
	struct leaving l = {&beside, closest, arena, answer, error};
	struct savers *savers = ARENA_NEW(arena, struct savers);
	answer->ways_out = ARENA_ARRAY(arena, struct way_out, WAYS_MOST);
	find_savers(&l, variants, savers);
	return try_single(&l, savers) && (answer->n_ways_out > 0 || try_several(&l, savers)) &&
	       try_length(&l) && try_devices(&l);
}
