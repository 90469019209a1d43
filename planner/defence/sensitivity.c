/* What would happen if one knob were different: the chosen plan's neighbours. */
#include "planner/defence/sensitivity.h"
#include "schedule/resolve/resolve.h"

#include <string.h>

struct variation {
	struct evaluator *evaluator;
	const struct question *question;
	const struct plan *plan; /* that is varied */
	struct arena *arena;
	struct variants *variants;
};

/* --- one variant ------------------------------------------------------------------------------ */

/* The plan as if all of its knobs had been typed; what follows from other knobs stays open. */
static struct question question_of(const struct question *question, const struct plan *plan)
{
	struct question varied = *question;
	varied.asked = *plan;
	varied.asked.runtime = question->asked.runtime;
	varied.asked.reshard_after_forward = question->asked.reshard_after_forward;
	varied.given |= knobs_of_role(KNOB_VARIED);
	question_open(&varied, KNOB_GLOBAL_BATCH);
	if (strategy_is_hybrid(plan->strategy))
		question_take(&varied, KNOB_SHARD_GROUP, plan);
	else
		question_open(&varied, KNOB_SHARD_GROUP);
	return varied;
}

static bool simulate_variant(const struct variation *v, struct variant *variant,
	const struct topology *topology, struct error *error)
{
	struct error mine = {0};
	if (!evaluator_run_on(
		    v->evaluator, topology, &variant->plan, &variant->prediction, &mine)) {
		variant->refused = arena_strdup(v->arena, mine.message);
		return error_is_refusal(&mine, error);
	}
	variant->built = true;
	variant->step_time =
		variant->prediction.step_time * plan_tokens(v->plan) / plan_tokens(&variant->plan);
	return true;
}

static struct variant *variant_new(const struct variation *v, const char *knob, const char *value)
{
	struct variant *variant = &v->variants->items[v->variants->n];
	if (v->variants->n == VARIANTS_MAX)
		return NULL;
	*variant = (struct variant){.knob = knob, .value = value, .refused = ""};
	v->variants->n++;
	return variant;
}

/* Adds the plan of the question; one that cannot be is listed only if `keep_refused`. */
static bool add_question(const struct variation *v, const struct question *question,
	const char *knob, const char *value, bool keep_refused, struct error *error)
{
	struct variant *variant = variant_new(v, knob, value);
	struct error mine = {0};
	if (variant == NULL)
		return true;
	if (plan_resolve(question, v->arena, &variant->plan, &mine))
		return simulate_variant(v, variant, question->topology, error);
	variant->refused = arena_strdup(v->arena, mine.message);
	if (!keep_refused)
		v->variants->n--;
	return true;
}

/* Another wrap policy has other units to count: all are offloaded then. */
static struct rows offload_of_all(const struct plan *plan)
{
	if (!plan_offloads_any(plan))
		return rows_of_offload(OFFLOAD_NONE);
	return rows_of_offload(
		plan_offloads(plan, OFFLOAD_PARAMETERS) ? OFFLOAD_PARAMETERS : OFFLOAD_OPTIMIZER);
}

static bool add_value(
	const struct variation *v, enum knob_id id, union knob_value value, struct error *error)
{
	struct question question = question_of(v->question, v->plan);
	if (id == KNOB_WRAP)
		question.asked.cpu_offload = offload_of_all(v->plan);
	question_put(&question, id, value);
	return add_question(v, &question, knob_table[id].field.name,
		knob_value_typed(id, value, v->arena), false, error);
}

/* --- knobs ------------------------------------------------------------------------------------ */

/* The group that fills a node, else the largest proper one; 0 when there is none. */
static int64_t natural_group(const struct topology *topology)
{
	int64_t groups[SPACE_VALUES_MAX], best = 0;
	int n = space_shard_groups(topology, groups);
	for (int i = 0; i < n; i++)
		if (groups[i] <= topology->devices_per_node)
			best = groups[i];
	return best;
}

/* Another strategy may come with another runtime (DDP for NO_SHARD), which lacks some knobs. */
static bool vary_strategy(const struct variation *v, enum strategy strategy, struct error *error)
{
	struct question question = question_of(v->question, v->plan);
	int64_t group = natural_group(v->question->topology);
	if (strategy_is_hybrid(strategy) && strategy_is_hybrid(v->plan->strategy))
		group = v->plan->mesh.shard;
	if (strategy_is_hybrid(strategy) && group == 0)
		return true;
	question.asked.strategy = strategy;
	question_open(&question, KNOB_SHARD_GROUP);
	if (strategy_is_hybrid(strategy))
		question_put(&question, KNOB_SHARD_GROUP, (union knob_value){.number = group});
	if (strategy == STRATEGY_NO_SHARD || v->plan->strategy == STRATEGY_NO_SHARD) {
		if (!question_gives(v->question, KNOB_PREFETCH))
			question_open(&question, KNOB_PREFETCH);
		question_open(&question, KNOB_FORWARD_PREFETCH);
		question_open(&question, KNOB_LIMIT_ALL_GATHERS);
	}
	return add_question(v, &question, "strategy", strategy_names[strategy], true, error);
}

/* The stages of ZeRO belong to their runtimes; elsewhere they are looked at when asked for. */
static bool is_usual(const struct variation *v, int strategy)
{
	return runtime_of(v->plan->runtime)->zero != NULL
		       ? knob_honoured(KNOB_STRATEGY, v->plan->runtime, strategy)
		       : strategy_stage((enum strategy)strategy) == 0;
}

static bool vary_strategies(const struct variation *v, struct error *error)
{
	for (int s = 0; s < STRATEGY_COUNT; s++)
		if (s != (int)v->plan->strategy && is_usual(v, s) &&
			!vary_strategy(v, (enum strategy)s, error))
			return false;
	return true;
}

static bool vary_shard_group(const struct variation *v, struct error *error)
{
	int64_t groups[SPACE_VALUES_MAX];
	int n = space_shard_groups(v->question->topology, groups);
	for (int i = 0; strategy_is_hybrid(v->plan->strategy) && i < n; i++)
		if (groups[i] != v->plan->mesh.shard &&
			!add_value(v, KNOB_SHARD_GROUP, (union knob_value){.number = groups[i]},
				error))
			return false;
	return true;
}

static bool vary_wrap(const struct variation *v, struct error *error)
{
	union knob_value wraps[SPACE_VALUES_MAX];
	if (plan_layout(v->plan) == LAYOUT_WHOLE)
		return true; /* DDP has buckets */
	int n = space_wraps(v->plan, v->question->model, v->arena, wraps);
	for (int i = 0; i < n; i++)
		if (strcmp(wraps[i].wrap.text, v->plan->wrap.text) != 0 &&
			!add_value(v, KNOB_WRAP, wraps[i], error))
			return false;
	return true;
}

/* All other values that the runtime honours. */
static bool vary_choice(const struct variation *v, enum knob_id id, struct error *error)
{
	union knob_value now = knob_get(id, v->plan);
	for (int i = 0; i < knob_n_values(id); i++) {
		union knob_value value = knob_value_of(id, i);
		if (knob_honoured(id, v->plan->runtime, i) && !knob_value_equal(id, value, now) &&
			!add_value(v, id, value, error))
			return false;
	}
	return true;
}

static bool vary_prefetch(const struct variation *v, struct error *error)
{
	if (plan_layout(v->plan) == LAYOUT_WHOLE)
		return true;
	return vary_choice(v, KNOB_PREFETCH, error) &&
	       vary_choice(v, KNOB_FORWARD_PREFETCH, error) &&
	       vary_choice(v, KNOB_LIMIT_ALL_GATHERS, error);
}

/* The global batch stays where the accumulation can make up for it. */
static bool vary_micro_batch(const struct variation *v, int64_t micro_batch, struct error *error)
{
	struct question question = question_of(v->question, v->plan);
	int64_t per_rank = v->plan->micro_batch * v->plan->grad_accum;
	bool divides = per_rank % micro_batch == 0;
	if (!divides && question_gives(v->question, KNOB_GLOBAL_BATCH))
		return true;
	question.asked.micro_batch = micro_batch;
	question.asked.grad_accum = divides ? per_rank / micro_batch : v->plan->grad_accum;
	return add_question(v, &question, "micro_batch",
		arena_printf(v->arena, "%lld x %lld", (long long)micro_batch,
			(long long)question.asked.grad_accum),
		false, error);
}

static bool vary_batch(const struct variation *v, struct error *error)
{
	int64_t now = v->plan->micro_batch;
	if (now % 2 == 0 && !vary_micro_batch(v, now / 2, error))
		return false;
	return vary_micro_batch(v, 2 * now, error) &&
	       (v->plan->grad_accum <= 1 || vary_choice(v, KNOB_SYNC_EACH_MICRO_BATCH, error));
}

static bool vary_dtype(const struct variation *v, struct error *error)
{
	enum dtype other = v->plan->reduce_dtype == DTYPE_FP32 ? v->plan->param_dtype : DTYPE_FP32;
	if (v->question->topology->device.kind != DEVICE_GPU)
		return true;
	return add_value(v, KNOB_REDUCE_DTYPE, (union knob_value){.choice = (int)other}, error);
}

/* --- links ------------------------------------------------------------------------------------ */

static bool vary_link(const struct variation *v, const char *knob, const char *value,
	const struct topology *topology, struct error *error)
{
	struct variant *variant = variant_new(v, knob, value);
	if (variant == NULL)
		return true;
	variant->plan = *v->plan;
	return simulate_variant(v, variant, topology, error);
}

/* Measured collectives do not follow the datasheet's bandwidth. */
static bool vary_links(const struct variation *v, struct error *error)
{
	static const struct {
		const char *value;
		double factor;
	} factors[] = {{"x 1/2", 0.5}, {"x 2", 2}};
	const struct topology *now = v->question->topology;
	for (int i = 0; i < 2 && now->calibration.n_collectives == 0; i++) {
		struct topology other = *now;
		other.network.nic_bandwidth *= factors[i].factor;
		if (now->nodes > 1 &&
			!vary_link(v, "network bandwidth", factors[i].value, &other, error))
			return false;
		other = *now;
		other.fabric.bandwidth *= factors[i].factor;
		if (now->devices_per_node > 1 && now->fabric.kind != FABRIC_SHARED_MEMORY &&
			!vary_link(v, "fabric bandwidth", factors[i].value, &other, error))
			return false;
	}
	return true;
}

/* --- another question ------------------------------------------------------------------------- */

static bool vary_nodes(const struct variation *v, struct error *error)
{
	struct topology other = *v->question->topology;
	struct question question = question_of(v->question, v->plan);
	if (other.network.kind == NETWORK_NONE || other.nodes > TOPOLOGY_MAX_DEVICES / 2)
		return true;
	other.nodes *= 2;
	question.topology = &other;
	return add_question(v, &question, "nodes",
		arena_printf(v->arena, "%lld", (long long)other.nodes), false, error);
}

static bool vary_question(const struct variation *v, struct error *error)
{
	if (v->plan->seq_len > 1 &&
		!add_value(
			v, KNOB_SEQ_LEN, (union knob_value){.number = v->plan->seq_len / 2}, error))
		return false;
	return vary_nodes(v, error);
}

bool variants_evaluate(struct evaluator *evaluator, const struct plan *plan, bool question,
	struct arena *arena, struct variants *variants, struct error *error)
{
	struct variation v = {evaluator, evaluator->question, plan, arena, variants};
	variants->n = 0;
	return vary_strategies(&v, error) && vary_shard_group(&v, error) && vary_wrap(&v, error) &&
	       vary_prefetch(&v, error) && vary_choice(&v, KNOB_ACTIVATION_CHECKPOINTING, error) &&
	       vary_batch(&v, error) && vary_dtype(&v, error) && vary_links(&v, error) &&
	       (!question || vary_question(&v, error));
}

/* --- rows ------------------------------------------------------------------------------------- */

static const char *note_of(const struct variant *variant, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena)
{
	const struct prediction *other = &variant->prediction;
	if (!variant->built)
		return variant->refused;
	if (other->fits == FITS_NO)
		return excess_note(other, arena);
	if (variant->plan.global_batch != plan->global_batch)
		return arena_printf(arena, "global batch %lld: %+.1f %% per token",
			(long long)variant->plan.global_batch,
			(variant->step_time / prediction->step_time - 1) * 100);
	return other->fits == FITS_TIGHT ? "tight: allocator retries" : "";
}

int variants_sensitivities(const struct variants *variants, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena, struct sensitivity **rows)
{
	*rows = ARENA_ARRAY(arena, struct sensitivity, variants->n);
	for (int i = 0; i < variants->n; i++) {
		const struct variant *variant = &variants->items[i];
		bool fits = variant->built && variant->prediction.fits != FITS_NO;
		(*rows)[i] = (struct sensitivity){.knob = variant->knob,
			.value = variant->value,
			.step_time = fits ? variant->prediction.step_time : 0,
			.peak_memory_bytes = variant->prediction.peak_memory_bytes,
			.note = note_of(variant, plan, prediction, arena)};
	}
	return variants->n;
}
