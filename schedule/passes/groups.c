/* Lists the communicators of a step. */
#include "schedule/passes/step.h"

static int add_group(
	struct step *step, enum group_kind kind, int64_t size, int64_t stride, int engine)
{
	struct schedule *schedule = step->schedule;
	if (engine + 1 > schedule->n_engines)
		schedule->n_engines = engine + 1;
	schedule->groups[schedule->n_groups] = (struct group){kind, size, stride, engine};
	return schedule->n_groups++;
}

/* Returns the engine of a new communicator. Either one thread carries all of them out, or each has
 * a thread of its own. */
static int next_engine(const struct step *step)
{
	return step->method.one_communicator ? 0 : step->schedule->n_engines;
}

/* All units that are resharded to the same size share one group. */
static int reshard_group(struct step *step, int64_t size)
{
	for (int g = 0; g < step->schedule->n_groups; g++)
		if (step->schedule->groups[g].kind == GROUP_RESHARD &&
			step->schedule->groups[g].size == size)
			return g;
	return add_group(step, GROUP_RESHARD, size, step->plan->mesh.tensor, next_engine(step));
}

/* Gradients are reduced over all ranks. Parameters are gathered, and the norm is summed, over the
 * ranks that share an optimizer state; these use the same communicator unless they are fewer. Where
 * a rank needs only its slice, those ranks reduce it first, and then the ranks that have the same
 * slice. */
static void add_groups_of_buckets(struct step *step)
{
	int64_t shard = plan_shard_ranks(step->plan), ranks = plan_reduce_ranks(step->plan);
	int64_t apart = step->plan->mesh.tensor;
	if (shard > 1)
		step->group_gather = step->group_reduce =
			add_group(step, GROUP_SHARD, shard, apart, 0);
	if (step->method.scatters && shard < ranks)
		step->group_replicate = add_group(
			step, GROUP_REPLICATE, ranks / shard, shard * apart, next_engine(step));
	else if (ranks > 1 && !step->method.scatters)
		step->group_replicate =
			add_group(step, GROUP_WORLD, ranks, apart, shard > 1 && shard < ranks);
}

/* A process group has one communicator that gathers and reductions share, or one for each. */
static void add_groups_of_units(struct step *step)
{
	const struct mesh *mesh = &step->plan->mesh;
	int64_t shard = plan_shard_ranks(step->plan), apart = mesh->tensor;
	step->group_gather = step->group_reduce = add_group(step, GROUP_SHARD, shard, apart, 0);
	if (step->method.two_communicators)
		step->group_reduce = add_group(step, GROUP_SHARD, shard, apart, 1);
	if (mesh->replicate > 1)
		step->group_replicate = add_group(
			step, GROUP_REPLICATE, mesh->replicate, shard * apart, next_engine(step));
}

/* These groups come last, because a stage may have none, and all other groups have the same numbers
 * in all stages. */
static void add_groups_of_resharding(struct step *step)
{
	bool of_units = step->method.shards && step->method.reduces != REDUCES_BUCKETS;
	for (int u = 0; u < step->n_units && of_units; u++)
		if (step->units[u].reshard_group > 0)
			step->group_reshard[u] = reshard_group(step, step->units[u].reshard_group);
}

/* The ranks of the shard group are grouped again by the experts that they hold. With buckets, a
 * single rank exchanges nothing. */
static void add_groups_of_experts(struct step *step)
{
	const struct plan *plan = step->plan;
	int64_t experts = plan->mesh.expert, apart = plan_expert_tensor(plan);
	int64_t alike = step->method.shards ? plan_expert_shard_ranks(plan)
					    : plan_expert_reduce_ranks(plan);
	step->group_expert = add_group(step, GROUP_EXPERT, experts, apart, next_engine(step));
	if (alike > 1 || step->method.reduces != REDUCES_BUCKETS)
		step->group_expert_shard = add_group(
			step, GROUP_EXPERT_SHARD, alike, experts * apart, next_engine(step));
}

/* Megatron-LM groups the ranks that cut an expert, beside its groups of tensor ranks, and adds to
 * them the ranks that have the other experts. The latter are those that gather tokens. */
static void add_groups_of_rows(struct step *step)
{
	int64_t each = plan_expert_tensor(step->plan), all = each * step->plan->mesh.expert;
	bool gathers_tokens = step->model->division.gathers_tokens;
	if (each > 1 && !gathers_tokens)
		step->group_expert_tensor =
			add_group(step, GROUP_EXPERT_TENSOR, each, 1, next_engine(step));
	step->group_expert_all = add_group(step, GROUP_EXPERT_ALL, all, 1, next_engine(step));
	if (gathers_tokens)
		step->group_expert_tensor = step->group_expert_all;
}

/* Each axis that divides the model has a communicator of its own. */
static void add_groups_of_axes(struct step *step)
{
	const struct mesh *mesh = &step->plan->mesh;
	if (mesh->tensor > 1)
		step->group_tensor =
			add_group(step, GROUP_TENSOR, mesh->tensor, 1, next_engine(step));
	if (mesh->context > 1)
		step->group_context = add_group(
			step, GROUP_CONTEXT, mesh->context, mesh->tensor, next_engine(step));
	if (mesh->expert > 1)
		add_groups_of_experts(step);
	bool has_experts = step->schedule->model->architecture.experts > 0;
	if (has_experts && runtime_of(step->plan->runtime)->experts.routes_stream &&
		division_sends_rows(&step->model->division))
		add_groups_of_rows(step);
	if (mesh->pipeline == 1)
		return;
	int64_t apart = plan_reduce_ranks(step->plan) * mesh->tensor;
	step->group_forward =
		add_group(step, GROUP_PIPELINE, mesh->pipeline, apart, next_engine(step));
	step->group_backward =
		add_group(step, GROUP_PIPELINE, mesh->pipeline, apart, next_engine(step));
	const struct model *model = step->schedule->model;
	int table = model->modules[model->n_modules - 1].tied_parameter;
	if (table >= 0 && model->parameters[table].trainable)
		step->group_table = add_group(
			step, GROUP_EMBEDDING, 2, (mesh->pipeline - 1) * apart, next_engine(step));
}

void pass_groups(struct step *step)
{
	int64_t copies = plan_reduce_ranks(step->plan);
	step->schedule->groups = ARENA_ARRAY(step->arena, struct group, 12 + step->n_units);
	step->group_reshard = ARENA_ARRAY(step->arena, int, step->n_units);
	step->group_gather = step->group_reduce = step->group_replicate = -1;
	step->group_tensor = step->group_context = -1;
	step->group_forward = step->group_backward = step->group_table = -1;
	step->group_expert = step->group_expert_shard = -1;
	step->group_expert_tensor = step->group_expert_all = -1;
	for (int u = 0; u < step->n_units; u++)
		step->group_reshard[u] = -1;
	if (step->method.shards && step->method.reduces == REDUCES_BUCKETS)
		add_groups_of_buckets(step);
	else if (step->method.shards)
		add_groups_of_units(step);
	else if (copies > 1)
		step->group_replicate =
			add_group(step, GROUP_WORLD, copies, step->plan->mesh.tensor, 0);
	add_groups_of_axes(step);
	add_groups_of_resharding(step);
}
