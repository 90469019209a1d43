/* Answers small questions about programs and their groups. */
#include "schedule/program/program.h"

const char *const group_kind_names[] = {"shard", "replicate", "world", "reshard", "tensor",
	"context", "expert", "expert_shard", "expert_tensor", "expert_all", "pipeline", "embedding",
	NULL};

int program_times(const struct program *program, int index)
{
	int times = 1;
	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];
		if (index >= loop->first && index < loop->first + loop->n)
			times *= loop->times;
	}
	return program_is_in_round(program, index) ? times * program->rounds.times : times;
}

int program_loop(const struct program *program, int index, int outer)
{
	for (int l = 0; l < program->n_loops; l++)
		if (program->loops[l].first == index && program->loops[l].outer == outer)
			return l;
	return -1;
}

static bool is_of_block(const struct program *program, const struct op *op)
{
	return op->layer >= 0 ||
	       (op->unit >= 0 &&
		       program->model->modules[program->units[op->unit].module].layer >= 0);
}

int buffers_at_once(const struct program *program, const struct op *op, int buffer)
{
	if (program->n_loops == 0 || is_of_block(program, op))
		return 1;
	return buffer_times(&program->buffers[buffer]);
}

int op_buffer(const struct program *program, const struct op *op, enum buffer_role role)
{
	const int *uses = slice_of(program, op->uses);
	for (int i = 0; i < op->uses.count; i++)
		if (program->buffers[uses[i]].role == role)
			return uses[i];
	return -1;
}

double collective_wire_bytes(enum op_kind kind, int64_t ranks, int64_t bytes)
{
	double once = (double)bytes * (double)(ranks - 1) / (double)ranks;
	if (kind == OP_SEND_RECV)
		return (double)bytes;
	if (op_kind_class(kind) == OP_CLASS_MESSAGE)
		return kind == OP_SEND ? (double)bytes : 0;
	return kind == OP_ALL_REDUCE ? 2 * once : once;
}
