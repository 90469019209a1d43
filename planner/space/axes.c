/* The values of every axis: the defaults, then what the user listed or forbade. */
#include "planner/space/filling.h"
#include "planner/space/space.h"
#include "schedule/resolve/resolve.h"

#include <string.h>

const enum knob_id axes_in_order[] = {
	KNOB_PIPELINE,
	KNOB_PIPELINE_SCHEDULE,
	KNOB_VIRTUAL_STAGES,
	KNOB_TENSOR,
	KNOB_SEQUENCE_PARALLEL,
	KNOB_CONTEXT,
	KNOB_CONTEXT_METHOD,
	KNOB_EXPERT,
	KNOB_EXPERT_TENSOR,
	KNOB_SHARD_GROUP,
	KNOB_PARAM_DTYPE,
	KNOB_MASTER_DTYPE,
	KNOB_REDUCE_DTYPE,
	KNOB_FP8,
	KNOB_FP8_PARAM_GATHER,
	KNOB_OPTIMIZER,
	KNOB_LIBRARIES,
	KNOB_ATTENTION,
	KNOB_LOSS,
	KNOB_COMPILE,
	KNOB_LIGER,
	KNOB_ASYNC_TENSOR,
	KNOB_EXPERT_DISPATCH,
	KNOB_EXPERT_OVERLAP,
	KNOB_ALLOCATOR,
	KNOB_ACTIVATION_OFFLOAD,
	KNOB_CPU_OFFLOAD,
	KNOB_RESHARD_AFTER_FORWARD,
	KNOB_WRAP,
	KNOB_ACTIVATION_CHECKPOINTING,
	KNOB_RECOMPUTE_MODULES,
	KNOB_GRAD_ACCUM,
	KNOB_MICRO_BATCH,
	KNOB_SYNC_EACH_MICRO_BATCH,
	KNOB_LATE_ALL_REDUCE,
	KNOB_PREFETCH,
	KNOB_FORWARD_PREFETCH,
	KNOB_LIMIT_ALL_GATHERS,
	KNOB_OVERLAP,
};
const int n_axes = COUNT_OF(axes_in_order);

/* --- restrictions by the user ----------------------------------------------------------------- */

static bool stands_in(enum knob_id axis, const struct knob_list *list, union knob_value value)
{
	for (int i = 0; i < list->n; i++)
		if (knob_value_equal(axis, list->values[i], value))
			return true;
	return false;
}

/* Adds all values of a knob that has few. */
static void add_all(struct filling *f, enum knob_id axis)
{
	for (int i = 0; i < knob_n_values(axis); i++)
		axis_add_choice(f, axis, i);
}

/* Does the axis exist for this strategy? Only hybrid strategies have a shard group to choose. DDP
 * has buckets instead of units, and gathers nothing. */
static bool has_axis(const struct filling *f, enum knob_id axis)
{
	bool of_units = axis == KNOB_WRAP || axis == KNOB_PREFETCH ||
			axis == KNOB_FORWARD_PREFETCH || axis == KNOB_LIMIT_ALL_GATHERS ||
			axis == KNOB_RESHARD_AFTER_FORWARD;
	if (axis == KNOB_SHARD_GROUP)
		return strategy_is_hybrid(f->plan->strategy);
	return !of_units || plan_layout(f->plan) != LAYOUT_WHOLE;
}

/* Applies the user's restrictions: a list replaces the values, and forbidden values are removed. If
 * a value of a knob that is not searched by default is forbidden, the other values are searched. */
static void restrict_axis(struct filling *f, enum knob_id axis)
{
	if (!has_axis(f, axis))
		return;
	const struct knob_list *list = &f->question->only[axis];
	const struct knob_list *out = &f->question->forbidden[axis];
	struct axis *values = &f->axes->of[axis];
	if (list->n > 0) {
		values->n = 0;
		for (int i = 0; i < list->n; i++)
			axis_add(values, list->values[i]);
	}
	if (out->n == 0 || question_gives(f->question, axis))
		return;
	if (values->n == 0)
		add_all(f, axis);
	int n = 0;
	for (int i = 0; i < values->n; i++)
		if (!stands_in(axis, out, values->values[i]))
			values->values[n++] = values->values[i];
	values->n = n;
}

/* --- shard groups ----------------------------------------------------------------------------- */

int space_shard_groups(const struct topology *topology, int64_t groups[SPACE_VALUES_MAX])
{
	int64_t ranks = topology_devices(topology), node = topology->devices_per_node;
	int n = 0;
	for (int64_t f = 2; f <= ranks / 2 && n < SPACE_VALUES_MAX; f++)
		if (ranks % f == 0 && (f % node == 0 || node % f == 0))
			groups[n++] = f;
	return n;
}

/* A hybrid strategy without a proper group equals FULL_SHARD or SHARD_GRAD_OP. It is a plan only if
 * the user asked for it by name. */
static bool add_shard_groups(struct filling *f, bool by_name)
{
	int64_t groups[SPACE_VALUES_MAX];
	if (!strategy_is_hybrid(f->plan->strategy) || !axis_is_free(f, KNOB_SHARD_GROUP))
		return true;
	int n = space_shard_groups(f->question->topology, groups);
	for (int i = 0; i < n; i++)
		axis_add_int(&f->axes->of[KNOB_SHARD_GROUP], groups[i]);
	return n > 0 || by_name;
}

int64_t axes_first_group(
	const struct question *question, enum strategy strategy, struct arena *arena)
{
	struct axes axes = {0};
	struct plan plan = {.strategy = strategy};
	struct filling f = {question, &plan, runtime_of(plan.runtime), arena, &axes};
	if (!strategy_is_hybrid(strategy) || question_gives(question, KNOB_SHARD_GROUP))
		return 0;
	add_shard_groups(&f, true);
	restrict_axis(&f, KNOB_SHARD_GROUP);
	const struct axis *groups = &axes.of[KNOB_SHARD_GROUP];
	int64_t ranks = topology_devices(question->topology) / question_ranks_together(question);
	for (int i = 0; i < groups->n; i++)
		if (ranks % groups->values[i].number == 0)
			return groups->values[i].number;
	return groups->n > 0 ? groups->values[0].number : 0;
}

int64_t axes_natural_group(const struct topology *topology, int64_t together)
{
	int64_t groups[SPACE_VALUES_MAX], best = 0;
	int64_t ranks = topology_devices(topology) / together;
	int n = space_shard_groups(topology, groups);
	for (int i = 0; i < n; i++)
		if (groups[i] * together <= topology->devices_per_node && groups[i] < ranks &&
			ranks % groups[i] == 0)
			best = groups[i];
	return best;
}

int64_t question_ranks_together(const struct question *question)
{
	int64_t ranks = 1;
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		if (question_gives(question, knobs_of_axes[i]))
			ranks *= max_i64(1, knob_get(knobs_of_axes[i], &question->asked).number);
	return ranks;
}

const char *question_together_typed(const struct question *question, struct arena *arena)
{
	const char *typed = "";
	for (int i = 0; i < KNOBS_OF_AXES; i++) {
		int64_t ranks = knob_get(knobs_of_axes[i], &question->asked).number;
		if (question_gives(question, knobs_of_axes[i]) && ranks > 1)
			typed = arena_printf(arena, "%s%s--%s %lld", typed,
				typed[0] != '\0' ? " " : "", knob_option(knobs_of_axes[i], arena),
				(long long)ranks);
	}
	return typed;
}

/* Parameters that stay sharded over the devices of a node need no network in backward. Other groups
 * are tried only if the user asks for them. */
static void add_reshards(struct filling *f)
{
	int64_t node = f->question->topology->devices_per_node, shard = f->plan->mesh.shard;
	if (!axis_is_free(f, KNOB_RESHARD_AFTER_FORWARD) || !f->runtime->has_reshard_group ||
		!strategy_reshards(f->plan->strategy) || f->question->topology->nodes == 1)
		return;
	axis_add(&f->axes->of[KNOB_RESHARD_AFTER_FORWARD],
		(union knob_value){.rows = rows_of_reshard(true)});
	if (node > 1 && (strategy_is_hybrid(f->plan->strategy) || shard % node == 0))
		axis_add(&f->axes->of[KNOB_RESHARD_AFTER_FORWARD],
			(union knob_value){.rows = rows_make_reshard(f->arena, &node, 1)});
}

/* --- wrap ------------------------------------------------------------------------------------- */

static bool same_units(const struct wrapped *a, int n_a, const struct wrapped *b, int n_b)
{
	return n_a == n_b && memcmp(a, b, (size_t)n_a * sizeof(*a)) == 0;
}

int space_wraps(const struct plan *plan, const struct model *model, bool with_ends,
	struct arena *arena, union knob_value wraps[SPACE_VALUES_MAX])
{
	/* The usual policies: transformer blocks, and PyTorch's size_based_auto_wrap_policy with
	 * its default size. Other sizes are tried only if the user asks for them. */
	static const struct wrap_policy tried[] = {
		{.text = "block", .kind = WRAP_BLOCK},
		{.text = "blocks:2", .kind = WRAP_BLOCKS, .argument = 2},
		{.text = "blocks:4", .kind = WRAP_BLOCKS, .argument = 4},
		{.text = "model", .kind = WRAP_MODEL},
		{.text = "size:100000000", .kind = WRAP_SIZE, .argument = 100000000},
	};
	/* The policies of torchtitan. A head tied to the embedding must stay in the root. */
	static const struct wrap_policy ends[] = {
		{.text = "block+head", .kind = WRAP_BLOCK, .head = true},
		{.text = "block+embedding+head",
			.kind = WRAP_BLOCK,
			.embedding = true,
			.head = true},
	};
	enum { TRIED = COUNT_OF(tried), ALL = COUNT_OF(tried) + COUNT_OF(ends) };
	struct wrapped *units[ALL];
	int n_units[ALL], n = 0;
	int n_tried = with_ends && !model->architecture.tied_head ? ALL : TRIED;
	for (int i = 0; i < n_tried; i++) {
		struct plan with = *plan;
		bool seen = false;
		with.wrap = i < TRIED ? tried[i] : ends[i - TRIED];
		n_units[n] = wrap_modules(&with, model, arena, &units[n]);
		for (int j = 0; j < n && !seen; j++)
			seen = same_units(units[j], n_units[j], units[n], n_units[n]);
		if (!seen)
			wraps[n++].wrap = with.wrap;
	}
	return n;
}

static void add_wraps(struct filling *f)
{
	struct axis *axis = &f->axes->of[KNOB_WRAP];
	if (axis_is_free(f, KNOB_WRAP) && has_axis(f, KNOB_WRAP))
		axis->n = space_wraps(f->plan, f->question->model,
			f->question->freed & KNOB_BIT(KNOB_WRAP), f->arena, axis->values);
}

/* --- prefetch --------------------------------------------------------------------------------- */

/* Adds both values of a switch, the usual one first. */
static void add_switch(struct filling *f, enum knob_id axis, bool first)
{
	if (!axis_is_free(f, axis) || !knob_honoured(axis, f->plan->runtime, true))
		return;
	axis_add_choice(f, axis, first);
	axis_add_choice(f, axis, !first);
}

static void add_prefetches(struct filling *f)
{
	static const enum prefetch order[] = {PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE};
	if (!has_axis(f, KNOB_PREFETCH))
		return;
	for (int i = 0; axis_is_free(f, KNOB_PREFETCH) && i < COUNT_OF(order); i++)
		if (knob_honoured(KNOB_PREFETCH, f->plan->runtime, (int)order[i]))
			axis_add_choice(f, KNOB_PREFETCH, (int)order[i]);
	add_switch(f, KNOB_FORWARD_PREFETCH, false);
	add_switch(f, KNOB_LIMIT_ALL_GATHERS, true);
}

/* --- checkpointing ---------------------------------------------------------------------------- */

static bool asks_for_modules(const struct question *question)
{
	return question->only[KNOB_RECOMPUTE_MODULES].n > 0 ||
	       (question_gives(question, KNOB_RECOMPUTE_MODULES) &&
		       question->asked.recompute_modules.of != 0);
}

/* Adds those of the modules that the model has, unless they were added last. */
static void add_modules(struct filling *f, unsigned tried)
{
	struct axis *axis = &f->axes->of[KNOB_RECOMPUTE_MODULES];
	unsigned of = 0;
	for (int m = 0; m < RECOMPUTE_MODULE_COUNT; m++)
		if (model_has_recompute_module(f->question->model, (enum recompute_module)m))
			of |= tried & 1u << m;
	bool same = axis->n > 0 && axis->values[axis->n - 1].names.of == of;
	if (of != 0 && !same)
		axis_add(axis, (union knob_value){.names = recompute_modules_of(of, f->arena)});
}

/* Megatron-Core's modules, the cheapest first: what is made of tensors that are kept anyway; dense
 * MLPs too; experts too, whose rows are then sent again. Flash attention keeps little of its own.
 */
static void add_recomputed(struct filling *f)
{
#define BIT(m) (1u << RECOMPUTE_##m)
	static const unsigned tried[] = {BIT(LAYERNORM) | BIT(MLA_UP_PROJ) | BIT(MOE_ACT),
		BIT(LAYERNORM) | BIT(MLA_UP_PROJ) | BIT(MOE_ACT) | BIT(MLP) | BIT(SHARED_EXPERTS),
		BIT(LAYERNORM) | BIT(MLA_UP_PROJ) | BIT(MLP) | BIT(MOE)};
	unsigned core = attention_is_flash(f->plan->attention) ? 0 : BIT(CORE_ATTN);
#undef BIT
	if (!axis_is_free(f, KNOB_RECOMPUTE_MODULES) || !f->runtime->recomputes_modules)
		return;
	for (int i = 0; i < COUNT_OF(tried); i++)
		add_modules(f, tried[i] | core);
}

static void add_checkpointings(struct filling *f)
{
	bool selective_alone = asks_for_modules(f->question);
	for (int c = CHECKPOINTING_NONE; c <= CHECKPOINTING_FULL; c++)
		if (axis_is_free(f, KNOB_ACTIVATION_CHECKPOINTING) &&
			knob_honoured(KNOB_ACTIVATION_CHECKPOINTING, f->plan->runtime, c) &&
			(!selective_alone || c == CHECKPOINTING_SELECTIVE))
			axis_add_choice(f, KNOB_ACTIVATION_CHECKPOINTING, c);
	add_recomputed(f);
}

/* --- levers ----------------------------------------------------------------------------------- */

/* Adds the levers that the question frees. One that never makes a step slower is pulled in all
 * plans; levers_let_go drops it again where it gains nothing. Not all plans can have Liger. */
static void add_levers(struct filling *f)
{
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		struct axis *axis = &f->axes->of[id];
		union knob_value values[SPACE_VALUES_MAX], now = knob_get(id, f->plan);
		struct error error = {0};
		if (!(f->question->freed & KNOB_BIT(id)) || !axis_is_free(f, id) || axis->n > 0)
			continue;
		int n = space_levers(f->question, f->plan, id, values, &error);
		bool usual = knob_table[id].levers >> now.choice & 1;
		bool all = knob_table[id].roles & KNOB_NEVER_WORSE && id != KNOB_LIGER;
		if (n > 0 && (usual || !all))
			axis_add(axis, now);
		for (int v = 0; v < n; v++)
			axis_add(axis, values[v]);
	}
}

/* --- batch ------------------------------------------------------------------------------------ */

static void add_divisors(struct filling *f, int64_t per_rank)
{
	struct axis *axis = &f->axes->of[KNOB_MICRO_BATCH];
	for (int64_t d = 1; d <= per_rank && axis->n < SPACE_VALUES_MAX; d++)
		if (per_rank % d == 0)
			axis_add_int(axis, d);
}

/* Adds micro-batches up to a limit of tokens in one step. On CPUs the micro-batch stays at its
 * default of 1, because only a small batch gives a short step. */
static void add_powers(struct filling *f)
{
	int64_t tokens = 0, fixed = f->plan->grad_accum * f->plan->seq_len;
	if (f->question->topology->device.kind != DEVICE_GPU ||
		!checked_mul(fixed, mesh_fewest_data_parallel(f), &tokens))
		return;
	for (int64_t m = 1; m == 1 || m <= SPACE_FREE_BATCH_TOKENS / tokens; m *= 2)
		axis_add_int(&f->axes->of[KNOB_MICRO_BATCH], m);
}

static bool fixed(const struct filling *f, enum knob_id axis)
{
	return !axis_is_free(f, axis);
}

static void add_batches(struct filling *f)
{
	bool global = question_gives(f->question, KNOB_GLOBAL_BATCH);
	bool accum = fixed(f, KNOB_GRAD_ACCUM);
	if (fixed(f, KNOB_MICRO_BATCH) || (global && accum))
		return; /* two of the three determine the third */
	if (global)
		add_divisors(f, f->plan->global_batch / mesh_fewest_data_parallel(f));
	else
		add_powers(f);
}

/* Do all plans have the same global batch? Without that option, micro-batch and accumulation
 * determine it. */
static void compare_batches(struct filling *f)
{
	bool global = question_gives(f->question, KNOB_GLOBAL_BATCH);
	f->axes->same_batch = global || (f->axes->of[KNOB_MICRO_BATCH].n <= 1 &&
						f->axes->of[KNOB_GRAD_ACCUM].n <= 1);
}

bool axes_fill(const struct question *question, const struct plan *plan, bool by_name,
	struct arena *arena, struct axes *axes)
{
	struct filling f = {question, plan, runtime_of(plan->runtime), arena, axes};
	*axes = (struct axes){0};
	if (!add_shard_groups(&f, by_name))
		return false;
	mesh_fill(&f);
	add_reshards(&f);
	add_wraps(&f);
	add_checkpointings(&f);
	add_batches(&f);
	add_switch(&f, KNOB_SYNC_EACH_MICRO_BATCH, true);
	add_prefetches(&f);
	add_levers(&f);
	for (int a = 0; a < n_axes; a++)
		restrict_axis(&f, axes_in_order[a]);
	compare_batches(&f);
	return true;
}
