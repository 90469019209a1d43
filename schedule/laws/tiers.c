/* The laws of the two tiers say what lies on the device and what in host memory, who may touch it,
 * and what a copy between the two must do. */
#include "schedule/laws/laws.h"

#define BIT(x) (1u << (x))

/* The issuing thread can carry these out on the host. */
static const unsigned host_kinds = BIT(OP_ACCUMULATE_GRADIENTS) | BIT(OP_GRADIENT_NORM) |
				   BIT(OP_CLIP_GRADIENTS) | BIT(OP_OPTIMIZER);

/* Says from which role to which a copy goes, and which of the two buffers is in host memory. */
static const struct copy_law {
	enum op_kind kind;
	unsigned from, to;
	bool from_host;
} copies[] = {
	{OP_COPY_H2D,
		BIT(BUFFER_PARAMETER_SHARD) | BIT(BUFFER_MASTER_SHARD) |
			BIT(BUFFER_LOW_PRECISION_SHARD),
		BIT(BUFFER_STAGED_SHARD) | BIT(BUFFER_PARAMETER_SHARD), true},
	{OP_COPY_D2H, BIT(BUFFER_GRADIENT_SHARD),
		BIT(BUFFER_GRADIENT_SHARD) | BIT(BUFFER_REDUCE_OUTPUT), false},
};

/* Activation offload copies between two buffers of equal size, and the copy belongs to no unit. */
static bool is_saved(const struct buffer *buffer)
{
	return buffer->role == BUFFER_RESIDUAL || buffer->role == BUFFER_ACTIVATIONS;
}

static bool moves_saved(const struct program *program, const struct op *op)
{
	const int *uses = slice_of(program, op->uses);
	if (op->uses.count != 2 || op->unit >= 0)
		return false;
	const struct buffer *from = &program->buffers[uses[0]], *to = &program->buffers[uses[1]];
	return is_saved(from) && to->role == from->role && to->unit == from->unit &&
	       to->layer == from->layer && to->first_module == from->first_module &&
	       to->bytes == from->bytes && from->bytes == op->bytes &&
	       buffer_in_host(from) == (op->kind == OP_COPY_H2D) &&
	       buffer_in_host(to) == (op->kind == OP_COPY_D2H);
}

static bool copy_end(
	const struct program *program, const struct op *op, int index, unsigned roles, bool in_host)
{
	const struct buffer *buffer = &program->buffers[slice_of(program, op->uses)[index]];
	return (roles >> buffer->role & 1) && buffer_in_host(buffer) == in_host &&
	       buffer->unit == op->unit && buffer->bytes == op->bytes;
}

static bool check_copy(const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const struct copy_law *law = &copies[op->kind == OP_COPY_D2H];
	if (moves_saved(program, op))
		return true;
	if (op->uses.count == 2 && copy_end(program, op, 0, law->from, law->from_host) &&
		copy_end(program, op, 1, law->to, !law->from_host))
		return true;
	return law_broken(error, "op %d: %s of %lld bytes does not fit its buffers", i,
		op_kind_name(op->kind), (long long)op->bytes);
}

/* Both sides may read only the scalars of the norm. */
static bool check_touch(
	const struct program *program, int i, struct slice slice, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *buffers = slice_of(program, slice);
	bool on_host = op->stream == STREAM_HOST;
	for (int k = 0; k < slice.count; k++) {
		const struct buffer *buffer = &program->buffers[buffers[k]];
		if (buffer->role != BUFFER_NORM_SCALARS && buffer_in_host(buffer) != on_host)
			return law_broken(error, "op %d: %s on the %s touches %s (buffer %d)", i,
				op_kind_name(op->kind), on_host ? "host" : "device",
				buffer_role_name(buffer->role), buffers[k]);
	}
	return true;
}

bool schedule_check_tier(const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	bool copies_between = op_kind_class(op->kind) == OP_CLASS_COPY;
	if (op->stream == STREAM_HOST && !(host_kinds >> op->kind & 1))
		return law_broken(error, "op %d: %s on the host", i, op_kind_name(op->kind));
	if (copies_between)
		return check_copy(program, i, error);
	return check_touch(program, i, op->uses, error) &&
	       check_touch(program, i, op->takes, error) &&
	       check_touch(program, i, op->gives, error);
}

/* Says which resident states of a unit lie on the host under which kind of offload. */
static const struct {
	enum buffer_role role;
	unsigned in_host;
} homes[] = {
	{BUFFER_PARAMETER_SHARD, BIT(OFFLOAD_PARAMETERS)},
	{BUFFER_OPTIMIZER_STATE, BIT(OFFLOAD_PARAMETERS) | BIT(OFFLOAD_OPTIMIZER)},
	{BUFFER_MASTER_SHARD, BIT(OFFLOAD_OPTIMIZER)},
};

bool schedule_check_home(
	const struct schedule *schedule, const struct program *program, int i, struct error *error)
{
	const struct buffer *buffer = &program->buffers[i];
	if (is_saved(buffer) && buffer_in_host(buffer) &&
		schedule->plan.activation_offload != ACTIVATIONS_STAY)
		return true;
	if (buffer->unit < 0)
		return !buffer_in_host(buffer) ||
		       law_broken(error, "buffer %d (%s): of no unit, in host memory", i,
			       buffer_role_name(buffer->role));
	enum offload offload = program->units[buffer->unit].offload;
	if (buffer_in_host(buffer) && offload == OFFLOAD_NONE)
		return law_broken(error, "buffer %d (%s): in host memory, unit %d is not offloaded",
			i, buffer_role_name(buffer->role), buffer->unit);
	for (size_t k = 0; k < sizeof(homes) / sizeof(homes[0]); k++)
		if (buffer->role == homes[k].role &&
			buffer_in_host(buffer) != (homes[k].in_host >> offload & 1))
			return law_broken(error,
				"buffer %d (%s) of unit %d: not where offload %s has it", i,
				buffer_role_name(buffer->role), buffer->unit,
				offload_names[offload]);
	return true;
}
