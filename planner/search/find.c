/* Limits of a plan: the longest sequence and the largest micro-batch that still fit. */
#include "planner/search/find.h"

#include <stdlib.h>
#include <string.h>

#include "simulator/simulator.h"

/* Lengths are multiples of this, which kernels handle best. */
enum { LENGTH_STEP = 128 };

/* An upper limit beyond all real lengths, which keeps token counts far from overflow. */
#define LENGTH_MAX (INT64_C(1) << 30)

/* --- the largest value of a plan -------------------------------------------------------------- */

struct limit {
	struct finder *finder;
	const struct question *question;
	struct evaluators evaluators;
	int64_t memory;       /* bytes of a device */
	struct bounds bounds; /* at the least value; larger values need no less memory */
	bool length;          /* the length of the sequence is searched; else the micro-batch */
	int64_t step, most;   /* values are multiples of `step` up to `most` */
};

/* The plan with another value, per rank and micro-batch. The accumulation does not change. */
static struct plan with_value(const struct limit *limit, const struct plan *plan, int64_t value)
{
	struct plan with = *plan;
	if (limit->length) {
		with.seq_len = value * limit->step;
	} else {
		with.micro_batch = value;
		with.global_batch = value * plan->grad_accum * plan_data_parallel(plan);
	}
	return with;
}

/* Does the plan fit with room at a value? A plan that needs retries of the allocator does not
 * count. */
static bool fits_at(const struct limit *limit, struct evaluator *evaluator, const struct plan *plan,
	int64_t value, bool *fits, struct error *error)
{
	struct plan with = with_value(limit, plan, value);
	struct prediction prediction;
	struct error mine = {0};
	*fits = false;
	if (value > limit->most / limit->step ||
		(with.mesh.pipeline > 1 &&
			evaluator_stages_overflow(evaluator, &with, limit->memory, NULL)))
		return true;
	if (!evaluator_judge(evaluator, &with, &prediction, &mine))
		return error_is_refusal(&mine, error);
	*fits = has_room(limit->question, &with, &prediction);
	return true;
}

/* Raises `*best` to the plan's own largest value, if that is larger. Memory grows with the value,
 * so one prediction just above the best so far tells if a bisection is worth it. */
static bool raise(const struct limit *limit, struct evaluator *evaluator, const struct plan *plan,
	int64_t *best, bool *raised, struct error *error)
{
	int64_t low = *best, high = *best + 1;
	bool fits;
	*raised = false;
	if (!fits_at(limit, evaluator, plan, high, &fits, error))
		return false;
	while (fits) {
		*raised = true;
		low = high;
		high *= 2;
		if (!fits_at(limit, evaluator, plan, high, &fits, error))
			return false;
	}
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (!fits_at(limit, evaluator, plan, middle, &fits, error))
			return false;
		if (fits)
			low = middle;
		else
			high = middle;
	}
	*best = low;
	return true;
}

/* --- combinations: strategy and checkpointing ------------------------------------------------- */

struct combination {
	enum strategy strategy;
	const char *checkpointing;
	int64_t best;
	const struct plan *plan; /* reaches `best` */
	struct error error;
};

enum { COMBINATIONS_MAX = 64 };

struct combinations {
	const struct limit *limit;
	const struct space *space;
	int *of; /* [space->n] combination of each plan; -1: none */
	int n;
	struct combination items[COMBINATIONS_MAX];
};

static int combination_of(struct combinations *combinations, const struct plan *plan)
{
	for (int i = 0; i < combinations->n; i++)
		if (combinations->items[i].strategy == plan->strategy &&
			strcmp(combinations->items[i].checkpointing,
				plan->activation_checkpointing.text) == 0)
			return i;
	if (combinations->n == COMBINATIONS_MAX)
		return -1;
	combinations->items[combinations->n] = (struct combination){
		plan->strategy, plan->activation_checkpointing.text, 0, plan, {0}};
	return combinations->n++;
}

/* Finds the largest value of one combination: its plans in their order, each from just above the
 * best value so far. */
static void fill_combination(void *data, int index, int worker)
{
	struct combinations *all = data;
	struct combination *mine = &all->items[index];
	struct evaluator *evaluator = &all->limit->evaluators.of[worker];
	for (int i = 0; i < all->space->n; i++) {
		const struct plan *plan = &all->space->plans[i];
		bool raised;
		if (all->of[i] != index || lent_stopped(all->limit->question) ||
			surely_lacks_room(all->limit->question, plan,
				all->limit->bounds.of[i].memory, all->limit->memory))
			continue;
		if (!raise(all->limit, evaluator, plan, &mine->best, &raised, &mine->error))
			return;
		if (raised)
			mine->plan = plan;
	}
}

static bool fill_combinations(const struct limit *limit, const struct space *space,
	struct combinations *all, struct error *error)
{
	*all = (struct combinations){.limit = limit,
		.space = space,
		.of = ARENA_ARRAY(limit->finder->arena, int, space->n)};
	for (int i = 0; i < space->n; i++)
		all->of[i] = combination_of(all, &space->plans[i]);
	lent_each(limit->question, all->n, fill_combination, all);
	for (int i = 0; i < all->n; i++) {
		if (all->items[i].error.code != EXIT_CODE_OK) {
			*error = all->items[i].error;
			return false;
		}
	}
	return true;
}

static const char *combination_name(
	const struct limit *limit, const struct combination *combination)
{
	struct arena *arena = limit->finder->arena;
	const char *name = arena_printf(arena, "%s, checkpointing %s",
		strategy_names[combination->strategy], combination->checkpointing);
	if (combination->best == 0)
		return name;
	return arena_printf(arena, "%s: %lld %s%s", name,
		(long long)(combination->best * limit->step), limit->length ? "token" : "sequence",
		combination->best * limit->step == 1 ? "" : "s");
}

/* The question whose answer is the best plan of a combination at its largest value. */
static void another_of(
	const struct limit *limit, const struct combination *combination, struct another *another)
{
	const struct plan with =
		with_value(limit, combination->plan, max_i64(combination->best, 1));
	*another = (struct another){*limit->question->topology, *limit->question,
		combination_name(limit, combination), (double)(combination->best * limit->step)};
	another->question.topology = &another->topology;
	question_take(&another->question, KNOB_STRATEGY, &with);
	question_take(&another->question, KNOB_ACTIVATION_CHECKPOINTING, &with);
	question_take(&another->question, KNOB_RECOMPUTE_MODULES, &with);
	question_take(&another->question, limit->length ? KNOB_SEQ_LEN : KNOB_MICRO_BATCH, &with);
	if (!limit->length)
		return;
	question_take(&another->question, KNOB_TENSOR, &with);
	question_take(&another->question, KNOB_CONTEXT, &with);
	if (plan_divides(&with))
		question_take(&another->question, KNOB_WRAP, &with);
}

static bool add_combinations(
	struct limit *limit, const struct combinations *all, struct error *error)
{
	struct finder *finder = limit->finder;
	struct another *others = ARENA_ARRAY(finder->arena, struct another, all->n);
	for (int i = 0; i < all->n; i++)
		another_of(limit, &all->items[i], &others[i]);
	if (!find_all(finder, others, all->n, error))
		return false;
	for (int i = 0; i < all->n; i++) {
		struct found *row = &finder->finding->rows[i];
		char bytes[32];
		if (row->value > 0 || !row->has_plan)
			continue;
		format_bytes(bytes, (double)prediction_excess_bytes(&row->prediction));
		row->note = arena_printf(finder->arena,
			row->has_room ? "less than %lld per device: ranks share it"
			: row->prediction.fits == FITS_NO ? "not even %lld: over by %s"
							  : "not even %lld: too little room left",
			(long long)limit->step, bytes);
	}
	return true;
}

/* Marks the largest value as the answer; of equal ones the first, in the order of strategies in
 * plan.h. */
static void mark_answer(struct finding *finding)
{
	struct found *best = NULL;
	for (int i = 0; i < finding->n; i++)
		if (finding->rows[i].value > 0 &&
			(best == NULL || finding->rows[i].value > best->value))
			best = &finding->rows[i];
	if (best == NULL)
		return;
	best->answer = true;
	finding->exists = true;
	finding->value = best->value;
}

static bool find_limit(struct limit *limit, const struct question *question, struct error *error)
{
	struct finder *finder = limit->finder;
	struct space space;
	struct combinations *all = ARENA_NEW(finder->arena, struct combinations);
	limit->question = question;
	limit->memory = device_limit(question->topology, question->memory_limit_bytes);
	limit->bounds = (struct bounds){0};
	evaluators_init(&limit->evaluators, question);
	bool ok = space_build(question, finder->arena, &space, error);
	if (ok) {
		bounds_build(question, &space, &limit->bounds);
		bounds_complete_all(&limit->bounds, &space);
		evaluators_know(&limit->evaluators, bounds_models(&limit->bounds));
		ok = fill_combinations(limit, &space, all, error);
	}
	finder->finding->evaluated = evaluators_evaluated(&limit->evaluators);
	ok = ok && add_combinations(limit, all, error);
	mark_answer(finder->finding);
	bounds_finish(&limit->bounds);
	space_finish(&space);
	evaluators_finish(&limit->evaluators);
	return ok;
}

/* --- the longest sequence, the largest micro-batch -------------------------------------------- */

/* Sets the micro-batch to 1 unless it was given. A global batch does not matter for one
 * sequence. */
static void ask_one_sequence(struct question *question)
{
	question_open(question, KNOB_GLOBAL_BATCH);
	if (!question_gives(question, KNOB_MICRO_BATCH))
		question_put(question, KNOB_MICRO_BATCH, (union knob_value){.number = 1});
}

/* The largest value with parameters on the host; 0: none, or the user decides about offload. This
 * is a second search, but the first one has ended at once where nothing fits. */
static double limit_offloaded(const struct limit *limit)
{
	struct finding finding = {.find = limit->finder->finding->find};
	struct finder finder = {.arena = limit->finder->arena, .finding = &finding};
	struct question question = *limit->question;
	struct limit other = *limit;
	struct error error = {0};
	if (!question_is_open(&question, KNOB_CPU_OFFLOAD))
		return 0;
	question_put(&question, KNOB_CPU_OFFLOAD,
		(union knob_value){.rows = rows_of_offload(OFFLOAD_PARAMETERS)});
	finder.question = &question;
	other.finder = &finder;
	return find_limit(&other, &question, &error) ? finding.value : 0;
}

/* Example: "Not even 128 tokens fit without CPU offload; with --cpu-offload parameters: 22784". */
static const char *nothing_fits(const struct limit *limit, const char *least)
{
	double offloaded = limit_offloaded(limit);
	struct arena *arena = limit->finder->arena;
	if (offloaded > 0)
		return arena_printf(arena,
			"Not even %s without CPU offload; with --cpu-offload parameters: %.0f",
			least, offloaded);
	return arena_printf(arena, "Not even %s", least);
}

static bool find_length(struct finder *finder, struct error *error)
{
	struct question question = *finder->question;
	struct model model = *question.model;
	struct finding *finding = finder->finding;
	int64_t trained = model.architecture.context;
	bool learned = model.architecture.positions == POSITIONS_LEARNED;
	struct limit limit = {.finder = finder,
		.length = true,
		.step = LENGTH_STEP,
		.most = learned ? trained : LENGTH_MAX};
	if (question_gives(&question, KNOB_SEQ_LEN))
		return error_set(error, EXIT_CODE_USAGE,
			"--seq-len: --find looks for this length, leave it out");
	model.architecture.context = limit.most;
	question.model = &model;
	finding->unit = "tokens";
	ask_one_sequence(&question);
	question_put(&question, KNOB_SEQ_LEN,
		(union knob_value){.number = min_i64(trained, LENGTH_STEP)});
	question.divides = true;
	if (!find_limit(&limit, &question, error))
		return false;
	if (!finding->exists) {
		finding->statement = nothing_fits(
			&limit, arena_printf(finder->arena, "%d tokens fit", LENGTH_STEP));
		return true;
	}
	finding->statement = arena_printf(finder->arena,
		finding->value < (double)trained ? "The longest sequence that fits has %.0f tokens"
						 : "The longest sequence that fits has %.0f tokens "
						   "(the model was trained with %lld)",
		finding->value, (long long)trained);
	return true;
}

static bool find_micro_batch(struct finder *finder, struct error *error)
{
	struct question question = *finder->question;
	struct finding *finding = finder->finding;
	struct limit limit = {.finder = finder, .step = 1, .most = INT64_C(1) << 20};
	if (question_gives(&question, KNOB_MICRO_BATCH) ||
		question_gives(&question, KNOB_GLOBAL_BATCH))
		return error_set(error, EXIT_CODE_USAGE,
			"--micro-batch and --global-batch: the micro-batch is what is looked for; "
			"--grad-accum may be given");
	finding->unit = "sequences";
	question_put(&question, KNOB_MICRO_BATCH, (union knob_value){.number = 1});
	if (!find_limit(&limit, &question, error))
		return false;
	finding->statement = finding->exists
				     ? arena_printf(finder->arena,
					       "The largest micro-batch that fits has %.0f "
					       "sequence%s per device",
					       finding->value, finding->value == 1 ? "" : "s")
				     : nothing_fits(&limit, "one sequence per device fits");
	return true;
}

/* --- the whole -------------------------------------------------------------------------------- */

static bool find_any(struct finder *finder, enum find find, double target, struct error *error)
{
	switch (find) {
	case FIND_MAX_SEQ_LEN:
		return find_length(finder, error);
	case FIND_MAX_MICRO_BATCH:
		return find_micro_batch(finder, error);
	case FIND_MIN_GPUS:
		return find_devices(finder, error);
	case FIND_NETWORK:
		return find_network(finder, target, error);
	case FIND_SCALING:
		return find_scaling(finder, error);
	}
	return error_set(error, EXIT_CODE_INTERNAL, "no such question");
}

/* Was a plan made for some value? If for none, the fault is not in the value: the question
 * contradicts itself. */
static bool some_was_built(const struct finder *finder, struct error *error)
{
	const struct finding *finding = finder->finding;
	const struct found *own = &finding->rows[finding->n - 1];
	for (int i = finding->n - 1; i >= 0; i--) {
		if (finding->rows[i].has_plan)
			return true;
		if (finding->rows[i].devices == topology_devices(finder->question->topology))
			own = &finding->rows[i];
	}
	return error_set(error, EXIT_CODE_USAGE, "%s", own->note);
}

/* Sorts limits from the largest to the smallest, machines from the smallest to the largest. Equal
 * rows keep their order. */
static void sort_rows(struct finding *finding)
{
	bool largest = finding->find == FIND_MAX_SEQ_LEN || finding->find == FIND_MAX_MICRO_BATCH;
	for (int i = 1; i < finding->n; i++) {
		struct found row = finding->rows[i];
		int at = i;
		for (; at > 0; at--) {
			double before = finding->rows[at - 1].value;
			if (largest ? before >= row.value : before <= row.value)
				break;
			finding->rows[at] = finding->rows[at - 1];
		}
		finding->rows[at] = row;
	}
}

static const char *held_fixed(const struct finder *finder)
{
	const struct question *question = finder->question;
	const struct finding *finding = finder->finding;
	bool length = finding->find == FIND_MAX_SEQ_LEN;
	struct text text = {0};
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = knobs_in_help[i];
		if (question_gives(question, id))
			text_printf(&text, "--%s %s, ", knob_option(id, finder->arena),
				knob_typed(id, &question->asked, finder->arena));
	}
	if (length && !question_gives(question, KNOB_MICRO_BATCH))
		text_add(&text, "micro-batch 1, ");
	for (int i = 0; i < finding->n && !length && !question_gives(question, KNOB_SEQ_LEN); i++) {
		if (!finding->rows[i].has_plan)
			continue;
		text_printf(
			&text, "sequence length %lld, ", (long long)finding->rows[i].plan.seq_len);
		break;
	}
	if (question_is_open(question, KNOB_CPU_OFFLOAD))
		text_add(&text, "no CPU offload, ");
	text_add(&text, question->headroom.given ? "the headroom asked for" : "the usual headroom");
	const char *held = arena_strdup(finder->arena, text_string(&text));
	text_finish(&text);
	return held;
}

bool find_answer(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error)
{
	struct finder finder = {.question = question, .arena = arena, .finding = finding};
	*finding = (struct finding){.find = find, .unit = ""};
	if (!find_any(&finder, find, target, error) || !some_was_built(&finder, error))
		return false;
	sort_rows(finding);
	finding->held = held_fixed(&finder);
	return true;
}
