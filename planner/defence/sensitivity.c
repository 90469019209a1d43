/* What would happen if one knob were different: the chosen plan's neighbours. */
#include "planner/defence/sensitivity.h"
#include "schedule/resolve/resolve.h"

#include <string.h>

/* The price of a variant: of a pipeline, its own bounds. Both plans' bounds fall short of the
 * simulated values by about as much, so their difference is about that of the simulated values. */
struct price {
	double time; /* s; 0: it is not followed */
	int64_t memory;
};

struct variation {
	const struct question *question;
	const struct plan *plan; /* that is varied */
	const struct prediction *prediction;
	enum variants_wanted wanted;
	struct arena *arena;
	struct variants *variants;
	const struct topology *topologies[VARIANTS_MAX]; /* of each; NULL: it is not simulated */
	struct error errors[VARIANTS_MAX];
	struct price of_plan, prices[VARIANTS_MAX]; /* where they are asked for */
	struct evaluators evaluators;
};

/* --- one variant ------------------------------------------------------------------------------ */

/* Does it reshard otherwise than its strategy alone says: to groups, or unit by unit? */
static bool departs_in_reshard(const struct plan *plan)
{
	return plan->reshard_after_forward.n > 0 || plan_reshard_group(plan) > 0;
}

/* What was counted by unit, or over the ranks of another strategy, does not fit this variant. */
static void free_reshard(const struct question *question, struct question *varied)
{
	if (!question_gives(question, KNOB_RESHARD_AFTER_FORWARD))
		question_open(varied, KNOB_RESHARD_AFTER_FORWARD);
}

/* The plan as if all of its knobs had been typed; what follows from other knobs stays open. */
static struct question question_of(const struct question *question, const struct plan *plan)
{
	struct question varied = *question;
	varied.asked = *plan;
	varied.asked.runtime = question->asked.runtime;
	varied.asked.reshard_after_forward = question->asked.reshard_after_forward;
	varied.given |= knobs_of_role(KNOB_VARIED);
	question_open(&varied, KNOB_GLOBAL_BATCH);
	if (plan->layers_per_stage.text != NULL)
		question_take(&varied, KNOB_LAYERS_PER_STAGE, plan);
	if (strategy_is_hybrid(plan->strategy))
		question_take(&varied, KNOB_SHARD_GROUP, plan);
	else
		question_open(&varied, KNOB_SHARD_GROUP);
	if (departs_in_reshard(plan))
		question_take(&varied, KNOB_RESHARD_AFTER_FORWARD, plan);
	return varied;
}

static struct variant *variant_new(struct variation *v, const char *knob, const char *value)
{
	struct variant *variant = &v->variants->items[v->variants->n];
	if (v->variants->n == VARIANTS_MAX)
		return NULL;
	*variant = (struct variant){.id = KNOB_COUNT, .knob = knob, .value = value, .refused = ""};
	v->variants->n++;
	return variant;
}

/* Notes that a variant is to be simulated, on this topology. */
static void list(
	struct variation *v, const struct variant *variant, const struct topology *topology)
{
	v->topologies[variant - v->variants->items] = topology;
}

/* Adds the plan of the question; one that cannot be is listed only if `keep_refused`. */
static void add_question(struct variation *v, const struct question *question, const char *knob,
	const char *value, bool keep_refused)
{
	struct variant *variant = variant_new(v, knob, value);
	struct error mine = {0};
	if (variant == NULL)
		return;
	if (plan_resolve(question, v->arena, &variant->plan, &mine)) {
		list(v, variant, question->topology);
		return;
	}
	variant->refused = arena_strdup(v->arena, mine.message);
	if (!keep_refused)
		v->variants->n--;
}

/* Offload of all units, because another wrap policy has other units to count. */
static struct rows offload_of_all(const struct plan *plan)
{
	if (!plan_offloads_any(plan))
		return rows_of_offload(OFFLOAD_NONE);
	return rows_of_offload(
		plan_offloads(plan, OFFLOAD_PARAMETERS) ? OFFLOAD_PARAMETERS : OFFLOAD_OPTIMIZER);
}

/* Nothing else is looked at of a row that no table has. */
static bool is_lever(const struct variation *v, enum knob_id id)
{
	return knob_table[id].roles & KNOB_LEVER && question_leaves(v->question, id);
}

static void add_value(struct variation *v, enum knob_id id, union knob_value value)
{
	struct question question = question_of(v->question, v->plan);
	if (v->wanted == VARIANTS_LEVERS && !is_lever(v, id))
		return;
	if (id == KNOB_WRAP)
		question.asked.cpu_offload = offload_of_all(v->plan);
	if (id == KNOB_WRAP && v->plan->reshard_after_forward.n > 0)
		free_reshard(v->question, &question);
	question_put(&question, id, value);
	int n = v->variants->n;
	add_question(v, &question, knob_table[id].field.name, knob_value_typed(id, value, v->arena),
		false);
	if (v->variants->n == n)
		return;
	v->variants->items[n].id = id;
	if (v->wanted == VARIANTS_LEVERS && !space_pulls(id, &v->variants->items[n].plan))
		v->variants->n--;
}

/* --- knobs ------------------------------------------------------------------------------------ */

/* Another strategy may come with another runtime (DDP for NO_SHARD), which lacks some knobs. */
static void vary_strategy(struct variation *v, enum strategy strategy)
{
	struct question question = question_of(v->question, v->plan);
	const struct mesh *mesh = &v->plan->mesh;
	int64_t group = axes_natural_group(
		v->question->topology, mesh->tensor * mesh->context * mesh->pipeline);
	if (strategy_is_hybrid(strategy) && strategy_is_hybrid(v->plan->strategy))
		group = v->plan->mesh.shard;
	if (strategy_is_hybrid(strategy) && group == 0)
		return;
	question.asked.strategy = strategy;
	question_open(&question, KNOB_SHARD_GROUP);
	free_reshard(v->question, &question);
	if (strategy_is_hybrid(strategy))
		question_put(&question, KNOB_SHARD_GROUP, (union knob_value){.number = group});
	if (strategy == STRATEGY_NO_SHARD || v->plan->strategy == STRATEGY_NO_SHARD) {
		if (!question_gives(v->question, KNOB_PREFETCH))
			question_open(&question, KNOB_PREFETCH);
		question_open(&question, KNOB_FORWARD_PREFETCH);
		question_open(&question, KNOB_LIMIT_ALL_GATHERS);
	}
	add_question(v, &question, "strategy", strategy_names[strategy], true);
}

/* Is the strategy searched without being named? Strategies that a list leaves out are not. The
 * stages of ZeRO belong to their runtimes; elsewhere they are searched only on request. */
static bool is_usual(struct variation *v, int strategy)
{
	if (v->question->strategies != 0 && !(v->question->strategies >> strategy & 1))
		return false;
	return runtime_of(v->plan->runtime)->zero != NULL
		       ? knob_honoured(KNOB_STRATEGY, v->plan->runtime, strategy)
		       : strategy_stage((enum strategy)strategy) == 0;
}

static void vary_strategies(struct variation *v)
{
	for (int s = 0; s < STRATEGY_COUNT; s++)
		if (s != (int)v->plan->strategy && is_usual(v, s))
			vary_strategy(v, (enum strategy)s);
}

static void vary_shard_group(struct variation *v)
{
	int64_t groups[SPACE_VALUES_MAX];
	int n = space_shard_groups(v->question->topology, groups);
	for (int i = 0; strategy_is_hybrid(v->plan->strategy) && i < n; i++)
		if (groups[i] != v->plan->mesh.shard)
			add_value(v, KNOB_SHARD_GROUP, (union knob_value){.number = groups[i]});
}

static void vary_wrap(struct variation *v)
{
	union knob_value wraps[SPACE_VALUES_MAX];
	if (plan_layout(v->plan) == LAYOUT_WHOLE)
		return; /* DDP has buckets */
	int n = space_wraps(v->plan, v->question->model, true, v->arena, wraps);
	for (int i = 0; i < n; i++)
		if (strcmp(wraps[i].wrap.text, v->plan->wrap.text) != 0)
			add_value(v, KNOB_WRAP, wraps[i]);
}

/* All other values that the runtime honours. */
static void vary_choice(struct variation *v, enum knob_id id)
{
	union knob_value now = knob_get(id, v->plan);
	for (int i = 0; i < knob_n_values(id); i++) {
		union knob_value value = knob_value_of(id, i);
		if (knob_honoured(id, v->plan->runtime, i) && !knob_value_equal(id, value, now))
			add_value(v, id, value);
	}
}

static void vary_prefetch(struct variation *v)
{
	if (plan_layout(v->plan) == LAYOUT_WHOLE)
		return;
	vary_choice(v, KNOB_PREFETCH);
	vary_choice(v, KNOB_FORWARD_PREFETCH);
	vary_choice(v, KNOB_LIMIT_ALL_GATHERS);
}

/* The global batch stays where the accumulation can make up for it. */
static void vary_micro_batch(struct variation *v, int64_t micro_batch)
{
	struct question question = question_of(v->question, v->plan);
	int64_t per_rank = v->plan->micro_batch * v->plan->grad_accum;
	bool divides = per_rank % micro_batch == 0;
	char batch[48];

	if (!divides && question_gives(v->question, KNOB_GLOBAL_BATCH))
		return;
	question.asked.micro_batch = micro_batch;
	question.asked.grad_accum = divides ? per_rank / micro_batch : v->plan->grad_accum;
	add_question(v, &question, "micro_batch",
		arena_strdup(v->arena,
			format_micro_batch(batch, micro_batch, question.asked.grad_accum)),
		false);
}

/* Half and twice as many; of an odd number the neighbours. */
static void vary_batch(struct variation *v)
{
	int64_t now = v->plan->micro_batch;
	bool odd = now % 2 != 0 && now > 1;
	if (now > 1)
		vary_micro_batch(v, odd ? now - 1 : now / 2);
	vary_micro_batch(v, odd ? now + 1 : 2 * now);
	if (v->plan->grad_accum > 1)
		vary_choice(v, KNOB_SYNC_EACH_MICRO_BATCH);
}

static void vary_dtype(struct variation *v)
{
	enum dtype other = v->plan->reduce_dtype == DTYPE_FP32 ? v->plan->param_dtype : DTYPE_FP32;
	if (v->question->topology->device.kind == DEVICE_GPU)
		add_value(v, KNOB_REDUCE_DTYPE, (union knob_value){.choice = (int)other});
}

/* What one line of the training script, or of its environment, would change. */
static void vary_script(struct variation *v)
{
	union knob_value values[SPACE_VALUES_MAX];
	struct error error = {0};
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (id == KNOB_FORWARD_PREFETCH || v->question->topology->device.kind != DEVICE_GPU)
			continue; /* its group shows it */
		int n = space_levers(v->question, v->plan, id, values, &error);
		for (int j = 0; j < n; j++) {
			bool idle = id == KNOB_ACTIVATION_OFFLOAD &&
				    values[j].choice == ACTIVATIONS_CHECKPOINTS &&
				    !plan_checkpoints(v->plan, CHECKPOINTING_FULL);
			if (!idle)
				add_value(v, id, values[j]);
		}
	}
}

/* --- links ------------------------------------------------------------------------------------ */

static struct topology *another_topology(struct variation *v)
{
	struct topology *other = ARENA_NEW(v->arena, struct topology);
	*other = *v->question->topology;
	return other;
}

static void vary_link(
	struct variation *v, const char *knob, const char *value, const struct topology *topology)
{
	struct variant *variant = variant_new(v, knob, value);
	if (variant == NULL)
		return;
	variant->plan = *v->plan;
	list(v, variant, topology);
}

/* Measured collectives do not follow the datasheet's bandwidth. */
static void vary_links(struct variation *v)
{
	static const struct {
		const char *value;
		double factor;
	} factors[] = {{"x 1/2", 0.5}, {"x 2", 2}};
	const struct topology *now = v->question->topology;
	for (int i = 0; i < 2 && now->calibration.n_collectives == 0; i++) {
		struct topology *other = another_topology(v);
		other->network.nic_bandwidth *= factors[i].factor;
		if (now->nodes > 1)
			vary_link(v, "network bandwidth", factors[i].value, other);
		other = another_topology(v);
		other->fabric.bandwidth *= factors[i].factor;
		if (now->devices_per_node > 1 && now->fabric.kind != FABRIC_SHARED_MEMORY)
			vary_link(v, "fabric bandwidth", factors[i].value, other);
	}
}

/* --- another question ------------------------------------------------------------------------- */

static void vary_nodes(struct variation *v)
{
	struct topology *other = another_topology(v);
	struct question question = question_of(v->question, v->plan);
	if (other->network.kind == NETWORK_NONE || other->nodes > TOPOLOGY_MAX_DEVICES / 2)
		return;
	other->nodes *= 2;
	question.topology = other;
	add_question(v, &question, "nodes", arena_printf(v->arena, "%lld", (long long)other->nodes),
		false);
}

static void vary_question(struct variation *v)
{
	if (v->plan->seq_len > 1)
		add_value(v, KNOB_SEQ_LEN, (union knob_value){.number = v->plan->seq_len / 2});
	vary_nodes(v);
}

/* --- levers of a pipeline, which take long to simulate -----------------------------------------
 */

static bool is_priced(const struct variation *v)
{
	return v->wanted == VARIANTS_LEVERS && v->plan->mesh.pipeline > 1;
}

static struct price price_of(struct evaluator *evaluator, const struct plan *plan)
{
	return (struct price){
		evaluator_bound_time(evaluator, plan), evaluator_bound_memory(evaluator, plan)};
}

static void price_variant(void *data, int index, int worker)
{
	struct variation *v = data;
	if (v->topologies[index] != NULL)
		v->prices[index] =
			price_of(&v->evaluators.of[worker], &v->variants->items[index].plan);
}

/* May a variant be worth a row, by its price? Half of the least gains counts, because prices are
 * estimates. Another allocator can also save what this one caches. */
static bool may_be_worth(const struct variation *v, int index)
{
	const struct prediction *p = v->prediction;
	const struct variant *variant = &v->variants->items[index];
	const struct price *price = &v->prices[index];
	double gain = (v->of_plan.time - price->time) / p->step_time;
	double saved = (double)(v->of_plan.memory - price->memory);
	if (p->fits == FITS_NO) /* only saving memory helps */
		return price->memory < p->peak_memory_bytes - p->peak_memory_bytes / 100;
	if (surely_lacks_room(v->question, &variant->plan, price->memory, p->memory_limit_bytes))
		return false;
	if (variant->id == KNOB_ALLOCATOR)
		saved += (double)(prediction_wanted_bytes(p) - prediction_needed_bytes(p));
	return price->time == 0 || gain >= WORTH_TIME / 2 ||
	       (gain > -2 * WORTH_TIME &&
		       saved >= WORTH_MEMORY / 2 * (double)p->memory_limit_bytes);
}

static bool costs_as_much(const struct variation *v, int a, int b)
{
	return v->prices[a].time == v->prices[b].time && v->prices[a].memory == v->prices[b].memory;
}

/* Is no earlier value of the same knob equal in price? Of values that cost the same to the bit only
 * the first is simulated. */
static bool is_another(const struct variation *v, int index)
{
	for (int i = 0; i < index && v->prediction->fits != FITS_NO; i++)
		if (v->variants->items[i].id == v->variants->items[index].id &&
			v->topologies[i] != NULL && costs_as_much(v, i, index))
			return true;
	return false;
}

/* Does the variant have no room, by the allocator's replay of its fullest stages? */
static bool overflows(struct variation *v, int index)
{
	return v->prediction->fits != FITS_NO &&
	       evaluator_stages_overflow(&v->evaluators.of[0], &v->variants->items[index].plan,
		       v->prediction->memory_limit_bytes, NULL);
}

static void drop_worthless(struct variation *v)
{
	v->of_plan = price_of(&v->evaluators.of[0], v->plan);
	lent_each(v->question, v->variants->n, price_variant, v);
	for (int i = 0; i < v->variants->n; i++)
		if (v->topologies[i] != NULL && v->of_plan.time > 0 &&
			(is_another(v, i) || !may_be_worth(v, i) || overflows(v, i)))
			v->topologies[i] = NULL;
}

/* --- all of them ------------------------------------------------------------------------------ */

static void simulate_variant(void *data, int index, int worker)
{
	struct variation *v = data;
	struct variant *variant = &v->variants->items[index];
	if (v->topologies[index] == NULL)
		return;
	variant->built = evaluator_run_on(&v->evaluators.of[worker], v->topologies[index],
		&variant->plan, &variant->prediction, &v->errors[index]);
	variant->step_time =
		variant->prediction.step_time * plan_tokens(v->plan) / plan_tokens(&variant->plan);
}

static bool take_results(struct variation *v, struct error *error)
{
	for (int i = 0; i < v->variants->n; i++) {
		struct variant *variant = &v->variants->items[i];
		if (v->topologies[i] == NULL || variant->built)
			continue;
		variant->refused = arena_strdup(v->arena, v->errors[i].message);
		if (!error_is_refusal(&v->errors[i], error))
			return false;
	}
	return true;
}

static void list_all(struct variation *v)
{
	bool levers_alone = v->wanted == VARIANTS_LEVERS;
	if (!levers_alone)
		vary_strategies(v);
	vary_shard_group(v);
	vary_wrap(v);
	vary_prefetch(v);
	vary_choice(v, KNOB_ACTIVATION_CHECKPOINTING);
	if (!levers_alone)
		vary_batch(v);
	vary_dtype(v);
	vary_script(v);
	if (!levers_alone)
		vary_links(v);
	if (v->wanted == VARIANTS_OTHERS)
		vary_question(v);
}

bool variants_evaluate(const struct question *question, const struct plan *plan,
	const struct prediction *prediction, enum variants_wanted wanted, struct arena *arena,
	struct variants *variants, struct error *error)
{
	struct arena mine = {0};
	struct variation *v = ARENA_NEW(&mine, struct variation);
	*v = (struct variation){.question = question,
		.plan = plan,
		.prediction = prediction,
		.wanted = wanted,
		.arena = arena,
		.variants = variants};
	variants->n = 0;
	list_all(v);
	evaluators_init(&v->evaluators, question);
	if (is_priced(v))
		drop_worthless(v);
	lent_each(question, variants->n, simulate_variant, v);
	evaluators_finish(&v->evaluators);
	bool ok = take_results(v, error);
	arena_finish(&mine);
	return ok;
}

/* --- rows ------------------------------------------------------------------------------------- */

static const char *note_of(const struct variant *variant, const struct plan *plan,
	const struct prediction *prediction, struct arena *arena)
{
	const struct prediction *other = &variant->prediction;
	char bytes[32];
	if (!variant->built)
		return variant->refused;
	if (other->fits == FITS_NO)
		return excess_note(other, arena);
	if (variant->plan.global_batch != plan->global_batch)
		return arena_printf(arena, "global batch %lld: %+.1f %% per token",
			(long long)variant->plan.global_batch,
			(variant->step_time / prediction->step_time - 1) * 100);
	if (other->fits == FITS_TIGHT)
		return arena_printf(arena, "tight: %s without what its allocator caches",
			format_bytes(bytes, (double)prediction_needed_bytes(other)));
	return "";
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
