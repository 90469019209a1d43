/* Checks over which groups a collective runs, which buffers it uses and how many bytes it moves. */
#include "schedule/laws/laws.h"

#define BIT(x) (1u << (x))

/* groups[0] has the groups that a kind may run over for a unit, and groups[1] those without one
 * (the gradient norm). Operands are the roles of uses[0] and, where there are two, of uses[1]. */
static const struct collective_law {
	enum op_kind kind;
	unsigned groups[2];
	unsigned operands[2];
} collectives[] = {
	{OP_ALL_GATHER,
		{BIT(GROUP_SHARD) | BIT(GROUP_RESHARD) | BIT(GROUP_EXPERT_SHARD), BIT(GROUP_SHARD)},
		{BIT(BUFFER_PARAMETER_SHARD) | BIT(BUFFER_LOW_PRECISION_SHARD) |
				BIT(BUFFER_STAGED_SHARD) | BIT(BUFFER_RESHARDED),
			BIT(BUFFER_UNSHARDED) | BIT(BUFFER_GATHERED)}},
	{OP_REDUCE_SCATTER, {BIT(GROUP_SHARD) | BIT(GROUP_EXPERT_SHARD), BIT(GROUP_SHARD)},
		{BIT(BUFFER_GRADIENT) | BIT(BUFFER_FLAT_GRADIENT) | BIT(BUFFER_REDUCE_INPUT),
			BIT(BUFFER_REDUCE_OUTPUT) | BIT(BUFFER_GRADIENT_SHARD)}},
	{OP_ALL_REDUCE,
		{BIT(GROUP_REPLICATE) | BIT(GROUP_WORLD) | BIT(GROUP_EXPERT_SHARD),
			BIT(GROUP_SHARD) | BIT(GROUP_TENSOR) | BIT(GROUP_PIPELINE)},
		{BIT(BUFFER_GRADIENT) | BIT(BUFFER_FLAT_GRADIENT) | BIT(BUFFER_REDUCE_INPUT) |
				BIT(BUFFER_REDUCE_OUTPUT) | BIT(BUFFER_GRADIENT_SHARD) |
				BIT(BUFFER_NORM_SCALARS),
			0}},
};
_Static_assert(BUFFER_ROLE_COUNT <= 32, "one bit a role");

static bool is_operand(const struct program *program, const struct op *op, int index, unsigned mask)
{
	if (mask == 0)
		return op->uses.count == index;
	if (op->uses.count <= index)
		return false;
	const struct buffer *buffer = &program->buffers[slice_of(program, op->uses)[index]];
	return (mask >> buffer->role & 1) && buffer->unit == op->unit && !buffer_in_host(buffer);
}

/* The payload must fill its buffers exactly: `whole` on one side, and a rank's part of it on the
 * other. */
static bool fits(const struct program *program, const struct op *op, int64_t ranks)
{
	const int *uses = slice_of(program, op->uses);
	int64_t first = program->buffers[uses[0]].bytes;
	if (op->kind == OP_ALL_REDUCE)
		return first == op->bytes;
	int64_t second = program->buffers[uses[1]].bytes;
	int64_t whole = op->kind == OP_ALL_GATHER ? second : first;
	int64_t part = op->kind == OP_ALL_GATHER ? first : second;
	return whole == op->bytes && op->bytes % ranks == 0 && part == op->bytes / ranks;
}

/* True when a rank's part already lies in the whole: ZeRO gathers parameters that all ranks keep,
 * sums gradients of which a rank needs its part alone, and then sums that part over its replicas.
 */
static bool is_in_place(const struct program *program, const struct op *op)
{
	static const unsigned wholes[OP_KIND_COUNT] = {
		[OP_ALL_GATHER] = BIT(BUFFER_COMPUTE_COPY) | BIT(BUFFER_GATHERED),
		[OP_REDUCE_SCATTER] = BIT(BUFFER_GRADIENT),
		[OP_ALL_REDUCE] = BIT(BUFFER_GRADIENT),
	};
	return op->uses.count == 1 && is_operand(program, op, 0, wholes[op->kind]) &&
	       (op->kind != OP_ALL_REDUCE ||
		       program->buffers[slice_of(program, op->uses)[0]].bytes != op->bytes);
}

static bool check_in_place(const struct schedule *schedule, const struct program *program, int i,
	int64_t ranks, struct error *error)
{
	const struct op *op = &program->ops[i];
	int64_t bytes = program->buffers[slice_of(program, op->uses)[0]].bytes, whole;
	if (op->kind == OP_ALL_REDUCE)
		ranks = unit_shard_ranks(&program->units[op->unit], &schedule->plan);
	bool of_parts =
		op->kind == OP_ALL_REDUCE && schedule->groups[op->group].kind == GROUP_REPLICATE;
	bool fits = of_parts ? checked_mul(op->bytes, ranks, &whole) && whole == bytes
			     : op->kind != OP_ALL_REDUCE && bytes == op->bytes;
	if (fits && bytes % ranks == 0)
		return true;
	return law_broken(error, "op %d: %s of %lld bytes over %lld ranks does not fill its buffer",
		i, op_kind_name(op->kind), (long long)op->bytes, (long long)ranks);
}

/* True for what a rank gives to a gather or keeps of a sum. */
static bool is_part_of(const struct op *op, int use)
{
	return op->uses.count > 1 && ((op->kind == OP_ALL_GATHER && use == 0) ||
					     (op->kind == OP_REDUCE_SCATTER && use == 1));
}

/* True for saved tensors, and for gradients of parameters that tensor ranks have alike. */
static bool is_among(const struct op *op, const struct buffer *buffer)
{
	enum category category = buffer_role_category(buffer->role);
	return category == CATEGORY_ACTIVATIONS || category == CATEGORY_TEMPORARY_BUFFERS ||
	       (category == CATEGORY_GRADIENTS && op->kind == OP_ALL_REDUCE);
}

/* Gradients that tensor ranks have alike may lie in several buckets. */
static bool gradients_hold(const struct program *program, const struct op *op)
{
	const int *uses = slice_of(program, op->uses);
	int64_t held = 0;
	for (int k = 0; k < op->uses.count; k++) {
		const struct buffer *buffer = &program->buffers[uses[k]];
		if (buffer_role_category(buffer->role) != CATEGORY_GRADIENTS)
			return true;
		held += buffer->bytes;
	}
	return held >= op->bytes;
}

/* Ranks that divide the model exchange tokens, or the norm of their gradients. What a rank gives or
 * keeps is a part of its saved tensors; the whole is a buffer of its own or lies among them too. */
static bool check_tokens(
	const struct program *program, const struct group *group, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *uses = slice_of(program, op->uses);
	bool sound = op->unit < 0 && op->bytes > 0 && op->uses.count > 0 &&
		     (op->kind == OP_ALL_REDUCE || op->bytes % group->size == 0);
	for (int k = 0; k < op->uses.count && sound; k++) {
		const struct buffer *buffer = &program->buffers[uses[k]];
		bool is_whole = buffer->role == BUFFER_GATHERED_TOKENS ||
				buffer->role == BUFFER_PARTIAL_SUMS ||
				buffer->role == BUFFER_NORM_SCALARS;
		bool is_part = is_part_of(op, k) && buffer->bytes == op->bytes / group->size;
		sound = is_whole ? is_part || buffer->bytes == op->bytes : is_among(op, buffer);
	}
	return (sound && gradients_hold(program, op)) ||
	       law_broken(error, "op %d: %s of %lld bytes of tokens over %lld ranks", i,
		       op_kind_name(op->kind), (long long)op->bytes, (long long)group->size);
}

/* Says which groups exchange rows by which collective. */
static bool exchanges_rows(enum op_kind kind, enum group_kind group)
{
	static const unsigned groups[OP_KIND_COUNT] = {
		[OP_ALL_TO_ALL] = BIT(GROUP_EXPERT),
		[OP_ALL_GATHER] = BIT(GROUP_EXPERT_TENSOR) | BIT(GROUP_EXPERT_ALL),
		[OP_REDUCE_SCATTER] = BIT(GROUP_EXPERT_TENSOR) | BIT(GROUP_EXPERT_ALL),
		[OP_ALL_REDUCE] = BIT(GROUP_EXPERT), /* the row counts that the norm is taken of */
	};
	return groups[kind] >> group & 1;
}

/* Ranks that have other experts, or parts of the same ones, exchange as many rows as the fullest of
 * them gets or sends. The others exchange fewer. What comes back may lie among the saved tensors.
 */
static bool check_rows(
	const struct program *program, const struct group *group, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *uses = slice_of(program, op->uses);
	bool sound = exchanges_rows(op->kind, group->kind) && op->unit < 0 && op->bytes > 0 &&
		     op->uses.count > 0;
	int64_t most = 0;
	bool has_room = program->model->division.keeps_room;
	for (int k = 0; k < op->uses.count && sound; k++) {
		const struct buffer *buffer = &program->buffers[uses[k]];
		if (buffer->role == BUFFER_ROWS || buffer->role == BUFFER_NORM_SCALARS)
			most = max_i64(most, buffer->bytes);
		else
			sound = buffer_role_category(buffer->role) == CATEGORY_ACTIVATIONS ||
				buffer_role_category(buffer->role) == CATEGORY_TEMPORARY_BUFFERS;
	}
	return (sound && (has_room ? most >= op->bytes : most == op->bytes)) ||
	       law_broken(error, "op %d: %s of %lld bytes of rows over a %s group", i,
		       op_kind_name(op->kind), (long long)op->bytes, group_kind_names[group->kind]);
}

static bool check_bucket(const struct program *program, int i, int64_t ranks, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *uses = slice_of(program, op->uses);
	int64_t parts = 0;
	bool sound = op->uses.count > 1 && program->buffers[uses[0]].role == BUFFER_REDUCE_INPUT &&
		     program->buffers[uses[0]].bytes == op->bytes && op->bytes % ranks == 0;
	for (int k = 1; k < op->uses.count && sound; k++) {
		const struct buffer *buffer = &program->buffers[uses[k]];
		sound = buffer->role == BUFFER_REDUCE_OUTPUT && buffer->unit >= 0;
		parts += buffer->bytes;
	}
	if (sound && parts == op->bytes / ranks)
		return true;
	return law_broken(error,
		"op %d: %s of %lld bytes over %lld ranks does not fill its buffers", i,
		op_kind_name(op->kind), (long long)op->bytes, (long long)ranks);
}

/* Two stages have the same table, whose gradient lies in a bucket. */
static bool check_table(const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const struct buffer *gradient =
		op->uses.count == 1 ? &program->buffers[slice_of(program, op->uses)[0]] : NULL;
	if (op->kind == OP_ALL_REDUCE && op->unit < 0 && op->bytes > 0 && gradient != NULL &&
		buffer_role_category(gradient->role) == CATEGORY_GRADIENTS &&
		gradient->bytes >= op->bytes)
		return true;
	return law_broken(error, "op %d: %s of %lld bytes is not of a table's gradient", i,
		op_kind_name(op->kind), (long long)op->bytes);
}

static bool is_given(const struct program *program, const struct op *op, int buffer)
{
	const int *gives = slice_of(program, op->gives);
	for (int i = 0; i < op->gives.count; i++)
		if (gives[i] == buffer)
			return true;
	return false;
}

/* Each rank sends to the next one of a ring, and what comes from the one before fills buffers that
 * the message leaves behind. */
static bool check_rotation(
	const struct program *program, const struct group *group, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const int *takes = slice_of(program, op->takes);
	int64_t come = 0;
	bool sound = group->kind == GROUP_CONTEXT && op->unit < 0 && op->bytes > 0;
	for (int k = 0; k < op->takes.count && sound; k++) {
		const struct buffer *buffer = &program->buffers[takes[k]];
		sound = buffer->role == BUFFER_GATHERED_TOKENS ||
			buffer->role == BUFFER_PARTIAL_SUMS;
		come += is_given(program, op, takes[k]) ? 0 : buffer->bytes;
	}
	return (sound && come == op->bytes) ||
	       law_broken(error,
		       "op %d: %s of %lld bytes over a %s group does not fill its buffers", i,
		       op_kind_name(op->kind), (long long)op->bytes, group_kind_names[group->kind]);
}

bool schedule_check_collective(
	const struct schedule *schedule, const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const struct group *group = &schedule->groups[op->group];
	const struct collective_law *law = collectives;
	if (op->kind == OP_SEND_RECV)
		return check_rotation(program, group, i, error);
	if (group->kind == GROUP_TENSOR || group->kind == GROUP_CONTEXT)
		return check_tokens(program, group, i, error);
	if (group->kind == GROUP_EXPERT || group->kind == GROUP_EXPERT_TENSOR ||
		group->kind == GROUP_EXPERT_ALL || op->kind == OP_ALL_TO_ALL)
		return check_rows(program, group, i, error);
	if (group->kind == GROUP_EMBEDDING)
		return check_table(program, i, error);
	while (law->kind != op->kind)
		law++;
	bool of_experts = op->unit >= 0 && program->units[op->unit].of_experts;
	if (!(law->groups[op->unit < 0] >> group->kind & 1) ||
		(of_experts && (group->kind == GROUP_SHARD || group->kind == GROUP_WORLD)) ||
		(!of_experts && group->kind == GROUP_EXPERT_SHARD))
		return law_broken(error, "op %d: %s over a %s group", i, op_kind_name(op->kind),
			group_kind_names[group->kind]);
	if (schedule_is_bucket(op))
		return check_bucket(program, i, group->size, error);
	if (is_in_place(program, op))
		return check_in_place(schedule, program, i, group->size, error);
	if (!is_operand(program, op, 0, law->operands[0]) ||
		!is_operand(program, op, 1, law->operands[1]) || op->uses.count > 2)
		return law_broken(
			error, "op %d: %s of the wrong buffers", i, op_kind_name(op->kind));
	if (!fits(program, op, group->size))
		return law_broken(error,
			"op %d: %s of %lld bytes over %lld ranks does not fill its buffers", i,
			op_kind_name(op->kind), (long long)op->bytes, (long long)group->size);
	return true;
}
