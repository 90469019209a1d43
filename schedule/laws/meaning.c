/* Checks what a schedule means: groups fit the mesh, collectives fit their buffers, a buffer comes
 * from the operation that fills it, a unit is gathered when it is computed, and its gradient is
 * reduced over all data-parallel ranks, in the right order, before the optimizer updates it. */
#include <stdlib.h>

#include "schedule/laws/laws.h"

#define BIT(x)        (1u << (x))
#define EXCHANGES     (BIT(OP_ALL_TO_ALL) | BIT(OP_ALL_GATHER) | BIT(OP_REDUCE_SCATTER))
#define COPIES        (BIT(OP_COPY_D2H) | BIT(OP_COPY_H2D))
#define MAKES_INPUT   (BIT(OP_BACKWARD) | BIT(OP_BACKWARD_INPUT))
#define MAKES_WEIGHTS (BIT(OP_BACKWARD) | BIT(OP_BACKWARD_WEIGHT))
#define BACKWARDS     (MAKES_INPUT | MAKES_WEIGHTS)

/* --- tables --------------------------------------------------------------------------------------
 */

static bool check_plan(const struct schedule *schedule, struct error *error)
{
	const struct plan *plan = &schedule->plan;
	const struct mesh *mesh = &plan->mesh;
	int64_t ranks;
	if (mesh->replicate < 1 || mesh->shard < 1 || mesh->context < 1 || mesh->tensor < 1 ||
		!checked_mul(mesh->replicate, mesh->shard, &ranks))
		return law_broken(error, "mesh: replicate %lld x shard %lld",
			(long long)mesh->replicate, (long long)mesh->shard);
	if (mesh->expert < 1 || plan_expert_tensor(plan) < 1 ||
		plan_expert_reduce_ranks(plan) * mesh->expert * plan_expert_tensor(plan) !=
			plan_reduce_ranks(plan) * mesh->tensor)
		return law_broken(error, "mesh: expert %lld of %lld tensor ranks each",
			(long long)mesh->expert, (long long)plan_expert_tensor(plan));
	if (plan->grad_accum < 1)
		return law_broken(
			error, "%lld micro-batches in a step", (long long)plan->grad_accum);
	return true;
}

/* Returns how many ranks one class has. */
static int64_t ranks_of_class(const struct mesh *mesh)
{
	return mesh->replicate * mesh->shard * mesh->context * mesh->tensor;
}

struct shape {
	int64_t size, stride;
};

/* Returns the size and the stride that the mesh gives to groups of a kind. A reshard group may be
 * any part of the shard group. */
static struct shape shape_of(const struct schedule *schedule, const struct group *group)
{
	const struct plan *plan = &schedule->plan;
	const struct mesh *mesh = &plan->mesh;
	int64_t shard = plan_shard_ranks(plan), each = ranks_of_class(mesh);
	int64_t cut = plan_expert_tensor(plan), last = max_i64(schedule->n_classes - 1, 1);
	bool is_part = group->size > 0 && shard % group->size == 0;
	const struct shape shapes[GROUP_KIND_COUNT] = {
		[GROUP_SHARD] = {shard, mesh->tensor},
		[GROUP_REPLICATE] = {mesh->replicate, mesh->tensor * shard},
		[GROUP_WORLD] = {plan_reduce_ranks(plan), mesh->tensor},
		[GROUP_RESHARD] = {is_part ? group->size : shard, mesh->tensor},
		[GROUP_TENSOR] = {mesh->tensor, 1},
		[GROUP_CONTEXT] = {mesh->context, mesh->tensor},
		[GROUP_EXPERT] = {mesh->expert, cut},
		[GROUP_EXPERT_SHARD] = {strategy_shards(plan->strategy)
						? plan_expert_shard_ranks(plan)
						: plan_expert_reduce_ranks(plan),
			mesh->expert * cut},
		[GROUP_EXPERT_TENSOR] = {cut, 1},
		[GROUP_EXPERT_ALL] = {mesh->expert * cut, 1},
		[GROUP_PIPELINE] = {schedule->n_classes, each},
		[GROUP_EMBEDDING] = {2, last * each},
	};
	return shapes[group->kind];
}

static bool check_group(const struct schedule *schedule, int index, struct error *error)
{
	const struct group *group = &schedule->groups[index];
	const struct shape shape = shape_of(schedule, group);
	if (group->size == shape.size && group->stride == shape.stride && group->engine >= 0 &&
		group->engine < schedule->n_engines && group->engine <= index)
		return true;
	return law_broken(error,
		"group %d (%s): size %lld, stride %lld, engine %d do not fit the mesh", index,
		group_kind_names[group->kind], (long long)group->size, (long long)group->stride,
		group->engine);
}

static bool check_unit(const struct schedule *schedule, const struct program *program, int index,
	struct error *error)
{
	const struct unit *unit = &program->units[index];
	int64_t shard = unit_shard_ranks(unit, &schedule->plan), gathered;
	bool sound = unit->module >= 0 && unit->end_module >= unit->module &&
		     unit->parameters >= 0 && unit->elements >= unit->parameters &&
		     unit->chunk >= 0 && unit->gathered >= unit->elements &&
		     checked_mul(unit->chunk, shard, &gathered) && gathered == unit->gathered;
	for (int i = 0; i < unit->n_slices && sound; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		sound = slice->parameter >= 0 && slice->offset >= 0 && slice->elements >= 0 &&
			slice->padded_elements >= slice->elements &&
			slice->offset <= unit->gathered &&
			slice->padded_elements <= unit->gathered - slice->offset;
	}
	return sound || law_broken(error, "unit %d (%s): its sizes contradict each other", index,
				unit->name);
}

static bool check_buffer(
	const struct program *program, int index, int64_t *total, struct error *error)
{
	const struct buffer *buffer = &program->buffers[index];
	if ((int)buffer->role < 0 || buffer->role >= BUFFER_ROLE_COUNT || (int)buffer->pool < 0 ||
		buffer->pool >= STREAM_COUNT)
		return law_broken(error, "buffer %d: no such role or pool", index);
	if (buffer->unit < -1 || buffer->unit >= program->n_units || buffer->layer < -1 ||
		buffer->first_module < 0 || buffer->end_module < buffer->first_module)
		return law_broken(error, "buffer %d: unit %d, layer %d, modules %d..%d", index,
			buffer->unit, buffer->layer, buffer->first_module, buffer->end_module);
	if (buffer->bytes < 0 || !checked_add(*total, buffer->bytes, total))
		return law_broken(error, "buffer %d (%s): %lld bytes", index,
			buffer_role_name(buffer->role), (long long)buffer->bytes);
	return true;
}

bool schedule_check_tables(
	const struct schedule *schedule, const struct program *program, struct error *error)
{
	int64_t total = 0;
	if (!check_plan(schedule, error))
		return false;
	for (int i = 0; i < schedule->n_groups; i++)
		if (!check_group(schedule, i, error))
			return false;
	for (int i = 0; i < program->n_units; i++)
		if (!check_unit(schedule, program, i, error))
			return false;
	for (int i = 0; i < program->n_buffers; i++)
		if (!check_buffer(program, i, &total, error) ||
			!schedule_check_home(schedule, program, i, error))
			return false;
	return true;
}

/* --- who fills and who ends a buffer -------------------------------------------------------------
 */

/* For each role: the kinds of operations that may take a buffer because they fill it (zeros count
 * for gradients), where 0 means that only resident ones exist; and the kinds that may give it back,
 * where 0 means any. */
static const struct {
	unsigned takes, ends;
} roles[BUFFER_ROLE_COUNT] = {
	[BUFFER_LOW_PRECISION_SHARD] = {BIT(OP_CAST_PARAMETERS),
		BIT(OP_ALL_GATHER) | BIT(OP_CAST_PARAMETERS)},
	[BUFFER_STAGED_SHARD] = {BIT(OP_COPY_H2D),
		BIT(OP_COPY_H2D) | BIT(OP_CAST_PARAMETERS) | BIT(OP_ALL_GATHER)},
	[BUFFER_UNSHARDED] = {BIT(OP_ALL_GATHER) | BIT(OP_COPY_OUT), BIT(OP_RESHARD)},
	[BUFFER_RESHARDED] = {BIT(OP_RESHARD),
		BIT(OP_COPY_OUT) | BIT(OP_ALL_GATHER) | BIT(OP_RESHARD)},
	[BUFFER_COMPUTE_COPY] = {BIT(OP_CAST_PARAMETERS), BIT(OP_RESHARD) | BACKWARDS},
	[BUFFER_GATHERED] = {BIT(OP_ALL_GATHER) | BIT(OP_CAST_PARAMETERS),
		BIT(OP_COPY_OUT) | BIT(OP_FORWARD)},
	[BUFFER_GRADIENT] = {MAKES_WEIGHTS | BIT(OP_ACCUMULATE_GRADIENTS), 0},
	[BUFFER_FLAT_GRADIENT] = {BIT(OP_FLATTEN_GRADIENTS), 0},
	[BUFFER_GRADIENT_SHARD] = {MAKES_WEIGHTS | BIT(OP_CAST_GRADIENTS) | BIT(OP_REDUCE_SCATTER) |
					   BIT(OP_ACCUMULATE_GRADIENTS) | BIT(OP_COPY_D2H),
		BIT(OP_OPTIMIZER) | BIT(OP_COPY_D2H)},
	[BUFFER_REDUCE_INPUT] = {BIT(OP_CAST_GRADIENTS), 0},
	[BUFFER_REDUCE_OUTPUT] = {BIT(OP_REDUCE_SCATTER) | BIT(OP_COPY_D2H),
		BIT(OP_ACCUMULATE_GRADIENTS)},
	[BUFFER_RESIDUAL] = {BIT(OP_FORWARD) | BIT(OP_RECV) | BIT(OP_ALL_GATHER) | COPIES,
		BIT(OP_FORWARD) | MAKES_WEIGHTS | BIT(OP_END_COPIES) | BIT(OP_COPY_H2D) |
			BIT(OP_SEND) | BIT(OP_ALL_GATHER)},
	[BUFFER_RESIDUAL_GRADIENT] = {MAKES_INPUT | BIT(OP_RECV) | BIT(OP_ALL_GATHER),
		BACKWARDS | BIT(OP_SEND) | BIT(OP_ALL_GATHER)},
	[BUFFER_ACTIVATIONS] = {BIT(OP_FORWARD) | COPIES,
		BIT(OP_FORWARD) | MAKES_WEIGHTS | BIT(OP_END_COPIES) | BIT(OP_COPY_H2D)},
	[BUFFER_OUTPUT_GRADIENTS] = {BIT(OP_BACKWARD_INPUT), BIT(OP_BACKWARD_WEIGHT)},
	[BUFFER_RECOMPUTED] = {BIT(OP_RECOMPUTE), MAKES_WEIGHTS},
	[BUFFER_FORWARD_WORK] = {BIT(OP_FORWARD), BIT(OP_FORWARD) | BIT(OP_ALL_TO_ALL)},
	[BUFFER_BACKWARD_WORK] = {MAKES_INPUT | BIT(OP_ALL_TO_ALL), BACKWARDS | BIT(OP_ALL_TO_ALL)},
	[BUFFER_LOGITS] = {BIT(OP_FORWARD) | MAKES_INPUT, MAKES_WEIGHTS},
	[BUFFER_LOSS_WORK] = {BIT(OP_LOSS), BIT(OP_LOSS)},
	[BUFFER_KERNEL_WORKSPACE] = {BIT(OP_FORWARD) | BIT(OP_RECOMPUTE) | BACKWARDS,
		BIT(OP_FORWARD) | BIT(OP_RECOMPUTE) | BACKWARDS},
	[BUFFER_OPTIMIZER_WORK] = {BIT(OP_OPTIMIZER), BIT(OP_OPTIMIZER)},
	[BUFFER_TOKENS] = {BIT(OP_FORWARD), MAKES_WEIGHTS},
	[BUFFER_NORM_SCALARS] = {BIT(OP_GRADIENT_NORM), BIT(OP_OPTIMIZER)},
	[BUFFER_BUCKET] = {MAKES_WEIGHTS, BIT(OP_END_BACKWARD)},
	[BUFFER_GATHERED_TOKENS] = {BIT(OP_ALL_GATHER) | BIT(OP_SEND_RECV) | BIT(OP_ALL_TO_ALL),
		BIT(OP_FORWARD) | BIT(OP_LOSS) | BIT(OP_RECOMPUTE) | BACKWARDS |
			BIT(OP_ALL_GATHER) | BIT(OP_SEND_RECV) | BIT(OP_ALL_TO_ALL)},
	[BUFFER_ROWS] = {EXCHANGES | BIT(OP_FORWARD) | BIT(OP_RECOMPUTE) | MAKES_INPUT,
		EXCHANGES | BIT(OP_FORWARD) | BIT(OP_RECOMPUTE) | MAKES_INPUT},
	[BUFFER_PARTIAL_SUMS] = {BIT(OP_FORWARD) | BIT(OP_RECOMPUTE) | MAKES_INPUT |
					 BIT(OP_ALL_REDUCE) | BIT(OP_REDUCE_SCATTER) |
					 BIT(OP_ALL_TO_ALL) | BIT(OP_SEND_RECV),
		BIT(OP_REDUCE_SCATTER) | BIT(OP_ALL_GATHER) | BIT(OP_ALL_REDUCE) |
			BIT(OP_ALL_TO_ALL) | BIT(OP_SEND_RECV) | BIT(OP_FORWARD) |
			BIT(OP_RECOMPUTE) | BACKWARDS | BIT(OP_ADD_SUM)},
};
_Static_assert(OP_KIND_COUNT <= 32, "one bit a kind");

static bool check_owners(const struct program *program, int index, struct error *error)
{
	const struct op *op = &program->ops[index];
	const int *takes = slice_of(program, op->takes), *gives = slice_of(program, op->gives);
	for (int i = 0; i < op->takes.count; i++) {
		enum buffer_role role = program->buffers[takes[i]].role;
		if (!(roles[role].takes >> op->kind & 1))
			return law_broken(error, "op %d: %s cannot take %s (buffer %d)", index,
				op_kind_name(op->kind), buffer_role_name(role), takes[i]);
	}
	for (int i = 0; i < op->gives.count; i++) {
		enum buffer_role role = program->buffers[gives[i]].role;
		if (roles[role].ends != 0 && !(roles[role].ends >> op->kind & 1))
			return law_broken(error, "op %d: %s cannot give %s (buffer %d)", index,
				op_kind_name(op->kind), buffer_role_name(role), gives[i]);
	}
	return true;
}

/* --- units ---------------------------------------------------------------------------------------
 */

/* Compute must find its unit gathered: it reads the unit's unsharded parameters, or a whole copy.
 * Two passes read none: the recomputation of attention's probabilities, and the part of backward
 * that makes gradients of weights. */
static bool check_gathered(
	const struct schedule *schedule, const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *uses = slice_of(program, op->uses);
	unsigned readable = BIT(BUFFER_UNSHARDED) | BIT(BUFFER_COMPUTE_COPY);
	if (op_kind_class(op->kind) != OP_CLASS_COMPUTE || op->unit < 0 ||
		program->units[op->unit].parameters == 0 || op->kind == OP_BACKWARD_WEIGHT ||
		(op->kind == OP_RECOMPUTE && op->end_module - op->first_module == 1))
		return true;
	if (!strategy_shards(schedule->plan.strategy))
		readable |= BIT(BUFFER_PARAMETER_SHARD);
	for (int k = 0; k < op->uses.count; k++) {
		const struct buffer *buffer = &program->buffers[uses[k]];
		if (buffer->unit == op->unit && (readable >> buffer->role & 1))
			return true;
	}
	return law_broken(error, "op %d: %s of unit %d without its parameters", i,
		op_kind_name(op->kind), op->unit);
}

/* Says how far a unit's gradient has come. */
struct progress {
	int micro_batch, stage; /* those of the last operation on it */
	int reduced_in;         /* the last micro-batch with a reduction, or -1 */
	int reductions;         /* how many micro-batches have one */
	int64_t covered;        /* how many ranks the last one sums over */
	int updates;            /* how many optimizer operations */
	int landed_in;          /* the last micro-batch whose gradient the host has, or -1 */
};

/* The order inside of one micro-batch; 0 means that the kind is no stage. */
static const int stages[OP_KIND_COUNT] = {
	[OP_FLATTEN_GRADIENTS] = 1,
	[OP_CAST_GRADIENTS] = 2,
	[OP_REDUCE_SCATTER] = 3,
	[OP_ALL_REDUCE] = 4,
	[OP_ACCUMULATE_GRADIENTS] = 5,
	[OP_COPY_D2H] = 6,
};
enum { STAGE_ON_HOST = 7 }; /* the host adds gradients up */

static bool note_reduction(const struct schedule *schedule, const struct unit *units,
	const struct op *op, int unit, struct progress *progress, struct error *error)
{
	const struct plan *plan = &schedule->plan;
	int64_t ranks = plan->late_all_reduce ? unit_shard_ranks(&units[unit], plan)
					      : unit_reduce_ranks(&units[unit], plan);
	if (op->micro_batch != progress->reduced_in) {
		if (progress->reduced_in >= 0 && progress->covered != ranks)
			return law_broken(error,
				"unit %d, micro-batch %d: gradient reduced over %lld of %lld ranks",
				unit, progress->reduced_in, (long long)progress->covered,
				(long long)ranks);
		progress->reduced_in = op->micro_batch;
		progress->covered = 1;
		progress->reductions++;
	}
	if (!checked_mul(progress->covered, schedule->groups[op->group].size, &progress->covered))
		return law_broken(error, "unit %d: reduced too often", unit);
	return true;
}

static bool note_stage(const struct schedule *schedule, const struct program *program, int index,
	struct progress *progress, struct error *error)
{
	const struct op *op = &program->ops[index];
	int stage = op->stream == STREAM_HOST && stages[op->kind] > 0 ? STAGE_ON_HOST
								      : stages[op->kind];
	/* These are parts of a tied table's gradient, from other tokens, so they cover no more
	 * ranks. */
	if (op->group >= 0 && group_joins_classes(&schedule->groups[op->group]))
		return true;
	/* Partial sums are added up both before and after replicas are reduced. */
	if (schedule->plan.late_all_reduce && stage == stages[OP_ACCUMULATE_GRADIENTS])
		return true;
	/* A pipeline adds the last micro-batch's gradient to the others before they are reduced. */
	if (schedule->n_classes > 1 && op->kind == OP_ACCUMULATE_GRADIENTS &&
		op->stream == STREAM_COMPUTE)
		return true;
	if (stage == 0 || op->unit < 0)
		return true;
	if (op->micro_batch < progress->micro_batch ||
		(op->micro_batch == progress->micro_batch && stage <= progress->stage))
		return law_broken(error, "op %d: %s of unit %d, micro-batch %d comes too late",
			index, op_kind_name(op->kind), op->unit, op->micro_batch);
	progress->micro_batch = op->micro_batch;
	progress->stage = stage;
	if (op->kind == OP_COPY_D2H)
		progress->landed_in = op->micro_batch;
	if (op->kind != OP_REDUCE_SCATTER && op->kind != OP_ALL_REDUCE)
		return true;
	return note_reduction(schedule, program->units, op, op->unit, progress, error);
}

static bool note_bucket(const struct schedule *schedule, const struct program *program,
	const struct op *op, struct progress *progress, struct error *error)
{
	const int *uses = slice_of(program, op->uses);
	for (int k = 1; k < op->uses.count; k++) {
		int unit = program->buffers[uses[k]].unit;
		if (!note_reduction(schedule, program->units, op, unit, &progress[unit], error))
			return false;
	}
	return true;
}

static void note_updates(
	const struct program *program, const struct op *op, struct progress *progress)
{
	const int *uses = slice_of(program, op->uses);
	for (int i = 0; i < op->uses.count && op->kind == OP_OPTIMIZER; i++) {
		const struct buffer *buffer = &program->buffers[uses[i]];
		bool updated = buffer->role == BUFFER_PARAMETER_SHARD ||
			       buffer->role == BUFFER_MASTER_SHARD;
		if (updated && buffer->unit >= 0)
			progress[buffer->unit].updates++;
	}
}

static bool check_progress(const struct schedule *schedule, const struct program *program, int unit,
	const struct progress *p, struct error *error)
{
	const struct plan *plan = &schedule->plan;
	int64_t ranks = unit_reduce_ranks(&program->units[unit], plan);
	int64_t reductions = plan->sync_each_micro_batch ? plan->grad_accum : 1;
	if (program->units[unit].parameters == 0)
		return true;
	if (unit_is_frozen(&program->units[unit]))
		return (p->updates == 0 && p->reductions == 0) ||
		       law_broken(error, "unit %d: is frozen, and reduced or updated", unit);
	if (p->updates != 1)
		return law_broken(error, "unit %d: updated by %d optimizers", unit, p->updates);
	if (program->units[unit].offload != OFFLOAD_NONE && p->landed_in != plan->grad_accum - 1)
		return law_broken(error,
			"unit %d: the host updates it with the gradient of micro-batch %d", unit,
			p->landed_in);
	if (ranks == 1)
		return true;
	if (p->covered != ranks || p->reduced_in != plan->grad_accum - 1 ||
		p->reductions != reductions)
		return law_broken(error,
			"unit %d: "
			"gradient reduced over %lld of %lld ranks in %d of %lld micro-batches, "
			"last in %d",
			unit, (long long)p->covered, (long long)ranks, p->reductions,
			(long long)reductions, p->reduced_in);
	return true;
}

static bool check_op_meaning(const struct schedule *schedule, const struct program *program, int i,
	struct progress *progress, struct error *error)
{
	const struct op *op = &program->ops[i];
	if (!check_owners(program, i, error) || !schedule_check_tier(program, i, error) ||
		!check_gathered(schedule, program, i, error) ||
		(op_kind_class(op->kind) == OP_CLASS_COLLECTIVE &&
			!schedule_check_collective(schedule, program, i, error)) ||
		(op_kind_class(op->kind) == OP_CLASS_MESSAGE &&
			!schedule_check_message(schedule, program, i, error)))
		return false;
	note_updates(program, op, progress);
	if (schedule_is_bucket(op))
		return note_bucket(schedule, program, op, progress, error);
	return op->unit < 0 || note_stage(schedule, program, i, &progress[op->unit], error);
}

bool schedule_check_meaning(
	const struct schedule *schedule, const struct program *program, struct error *error)
{
	int capacity = 0, n = program->n_units;
	struct progress *progress = array_grow(NULL, &capacity, n + 1, sizeof(*progress));
	bool ok = true;
	for (int u = 0; u < n; u++)
		progress[u] = (struct progress){
			.micro_batch = -1, .reduced_in = -1, .covered = 1, .landed_in = -1};
	for (int i = 0; i < program->n_ops && ok; i++)
		ok = check_op_meaning(schedule, program, i, progress, error);
	for (int u = 0; u < n && ok; u++)
		ok = check_progress(schedule, program, u, &progress[u], error);
	free(progress);
	return ok;
}
