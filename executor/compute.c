#include "executor/compute.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Losses are widened to double piece by piece. */
enum { LOSS_CHUNK = 256, UNDECLARED_BYTES = 1 << 20 };

/* --- seeded faults --- */

static void fault_allocate(const struct compute *c, const struct op *op)
{
	if (op->kind != OP_FORWARD ||
		!fault_hits(&c->fault, FAULT_UNDECLARED_BUFFER, c->rank, c->step))
		return;
	char *volatile buffer = malloc(UNDECLARED_BYTES);
	if (buffer != NULL)
		memset(buffer, 1, UNDECLARED_BYTES);
	free(buffer);
}

static void fault_end(const struct compute *c, const struct op *op)
{
	if (op->kind != OP_BACKWARD)
		return;
	if (fault_hits(&c->fault, FAULT_KILL, c->rank, c->step))
		raise(SIGKILL);
	if (fault_hits(&c->fault, FAULT_EXIT, c->rank, c->step))
		_exit(0);
	if (fault_hits(&c->fault, FAULT_STOP, c->rank, c->step))
		raise(SIGSTOP);
}

/* --- operations --- */

/* Sequences of the global batch are dealt to micro-batches, then to ranks. */
static bool load_tokens(struct compute *c, int micro_batch, int32_t *tokens, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;
	int64_t rank = c->rank;

	if (fault_hits(&c->fault, FAULT_WRONG_SEQUENCE, c->rank, c->step))
		rank = 0;
	int64_t first =
		c->step * plan->global_batch + (micro_batch * c->ranks + rank) * c->sequences;
	for (int64_t i = 0; i < c->sequences; i++)
		if (!data_window(c->data, first + i, tokens + i * (c->seq_len + 1), error))
			return false;
	return true;
}

/* Buffers that mean something from the moment they are taken. */
static bool begin_buffers(struct compute *c, const struct op *op, struct error *error)
{
	const int *takes = slice_of(c->program, op->takes);

	for (int i = 0; i < op->takes.count; i++) {
		const struct buffer *buffer = &c->program->buffers[takes[i]];
		void *address = buffers_address(c->buffers, takes[i]);
		bool gradient =
			op->kind == OP_BACKWARD &&
			(buffer->role == BUFFER_GRADIENT || buffer->role == BUFFER_GRADIENT_SHARD);

		if (gradient && !fault_hits(&c->fault, FAULT_DIRTY_GRADIENT, c->rank, c->step))
			c->kernels->zero(
				c->context, address, buffer->bytes / (int64_t)sizeof(float));
		if (buffer->role == BUFFER_TOKENS && c->data != NULL && !c->rehearsal &&
			!load_tokens(c, op->micro_batch, address, error))
			return false;
	}
	return true;
}

/* 1 / (tokens of the whole global batch): the only division in the step. */
static float loss_scale(const struct compute *c)
{
	const struct plan *plan = &c->schedule->plan;
	double scale = 1 / ((double)c->tokens * (double)plan->grad_accum * c->ranks);

	if (fault_hits(&c->fault, FAULT_MISSING_DIVIDE, c->rank, c->step))
		scale *= c->ranks;
	if (fault_hits(&c->fault, FAULT_SCALE_GRADIENT, c->rank, c->step))
		scale *= 1.001;
	return (float)scale;
}

static void add_losses(struct compute *c, const float *losses)
{
	for (int64_t i = 0; i < c->tokens; i += LOSS_CHUNK) {
		int64_t n = min_i64(LOSS_CHUNK, c->tokens - i);

		for (int64_t j = 0; j < n; j++)
			c->wide_losses[j] = losses[i + j];
		c->kernels->sum(c->context, &c->loss, c->wide_losses, n);
	}
}

static void run_loss(struct compute *c, const struct op *op)
{
	const struct leaf leaf = {.compute = c, .op = op, .module = op->first_module};
	const struct architecture *a = &c->model->architecture;
	const int32_t *tokens = (const int32_t *)operand_role(&leaf, BUFFER_TOKENS);
	float *logits = operand_role(&leaf, BUFFER_LOGITS), *losses = c->losses;

	if (op_buffer(c->program, op, BUFFER_LOSS_WORK) >= 0)
		losses = operand_role(&leaf, BUFFER_LOSS_WORK);
	if (tokens == NULL || logits == NULL)
		return;
	for (int64_t i = 0; i < c->sequences; i++)
		c->kernels->cross_entropy(
			c->context, &(struct cross_entropy){.tokens = c->seq_len,
					    .vocabulary = a->vocab,
					    .stride = a->vocab,
					    .logits = logits + i * c->seq_len * a->vocab,
					    .targets = tokens + i * (c->seq_len + 1) + 1,
					    .losses = losses + i * c->seq_len,
					    .scale = loss_scale(c)});
	if (!c->rehearsal)
		add_losses(c, losses);
	if (!c->rehearsal && fault_hits(&c->fault, FAULT_NAN, c->rank, c->step))
		logits[0] = NAN;
}

/* Also of the communication thread, hence with its context. */
static void run_accumulate(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);
	float *sum = buffers_address(c->buffers, uses[1]);
	const float *more = buffers_address(c->buffers, uses[0]);
	int64_t n = c->program->buffers[uses[1]].bytes / (int64_t)sizeof(float);
	struct kernel_context *context = op->stream == STREAM_COMPUTE ? c->context : c->background;

	if (c->rehearsal)
		return;
	c->kernels->add(context, sum, sum, more, n);
	if (fault_hits(&c->fault, FAULT_DOUBLE_ACCUMULATE, c->rank, c->step))
		c->kernels->add(context, sum, sum, more, n);
}

static void run_recompute(struct compute *c, const struct op *op)
{
	if (c->step == 0 || !fault_hits(&c->fault, FAULT_STALE_RECOMPUTE, c->rank, c->step))
		forward_leaves(c, op);
}

/* Between the tiers: operands of one size. */
static void run_copy(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);

	if (c->rehearsal || (c->step > 0 && op->kind == OP_COPY_H2D &&
				    fault_hits(&c->fault, FAULT_STALE_COPY, c->rank, c->step)))
		return;
	memcpy(buffers_address(c->buffers, uses[1]), buffers_address(c->buffers, uses[0]),
		(size_t)op->bytes);
}

/* With a smaller group each rank keeps its part of the unit. */
static void run_reshard(struct compute *c, const struct op *op)
{
	int part = op_buffer(c->program, op, BUFFER_RESHARDED);

	if (part < 0 || c->rehearsal)
		return;
	const int *uses = slice_of(c->program, op->uses);
	int64_t bytes = c->program->buffers[part].bytes;
	int64_t ranks = c->program->buffers[uses[0]].bytes / bytes;
	const char *whole = buffers_address(c->buffers, uses[0]);
	memcpy(buffers_address(c->buffers, part), whole + c->rank % ranks * bytes, (size_t)bytes);
}

static bool dispatch(struct compute *c, const struct op *op, struct error *error)
{
	switch (op->kind) {
	case OP_FORWARD:
		forward_leaves(c, op);
		return true;
	case OP_RECOMPUTE:
		run_recompute(c, op);
		return true;
	case OP_LOSS:
		run_loss(c, op);
		return true;
	case OP_BACKWARD:
		backward_leaves(c, op);
		return true;
	case OP_ACCUMULATE_GRADIENTS:
		run_accumulate(c, op);
		return true;
	case OP_GRADIENT_NORM:
		compute_norm(c, op);
		return true;
	case OP_CLIP_GRADIENTS:
		return compute_clip(c, op, error);
	case OP_OPTIMIZER:
		return compute_update(c, op, error);
	case OP_RESHARD:
		run_reshard(c, op);
		return true;
	case OP_COPY_H2D:
	case OP_COPY_D2H:
		run_copy(c, op);
		return true;
	case OP_END_BACKWARD:
		return true;
	case OP_CAST_PARAMETERS:
	case OP_ALL_GATHER:
	case OP_COPY_OUT:
	case OP_FLATTEN_GRADIENTS:
	case OP_CAST_GRADIENTS:
	case OP_REDUCE_SCATTER:
	case OP_ALL_REDUCE:
	case OP_KIND_COUNT:
		break;
	}
	return error_set(error, EXIT_CODE_USAGE, "this executor cannot carry out %s",
		op_kind_name(op->kind));
}

bool compute_run(void *data, int index, struct error *error)
{
	struct compute *c = data;
	const struct op *op = &c->program->ops[index];

	if (c->fault.kind != FAULT_NONE && !c->rehearsal) {
		fault_allocate(c, op);
		fault_end(c, op);
	}
	if (!begin_buffers(c, op, error) || !dispatch(c, op, error))
		return false;
	if (c->error.message[0] != '\0')
		return error_set(error, c->error.code, "%s", c->error.message);
	if (c->context->error.message[0] != '\0')
		return error_set(error, c->context->error.code, "%s", c->context->error.message);
	return true;
}

/* --- set-up --- */

static bool refuse(struct error *error, const char *what, const char *instead)
{
	return error_set(
		error, EXIT_CODE_USAGE, "the executor cannot train with %s; %s", what, instead);
}

static bool check_plan(const struct compute *c, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;
	const struct architecture *a = &c->model->architecture;

	if (plan->runtime != RUNTIME_SHARDPLAN)
		return refuse(error, runtime_names[plan->runtime], "it runs shardplan schedules");
	if (a->positions == POSITIONS_ALIBI)
		return refuse(error, "ALiBi attention (MPT)", "use a GPT-2 or Llama model");
	if (plan->attention != ATTENTION_FLASH)
		return refuse(error, "an attention kernel of others", "use --attention flash");
	if (plan->param_dtype != DTYPE_FP32 || plan->master_dtype != DTYPE_FP32 ||
		plan->reduce_dtype != DTYPE_FP32)
		return refuse(error, "a dtype other than fp32",
			"use fp32 for parameters, master and reduction");
	if (plan->optimizer == OPTIMIZER_SGD)
		return refuse(error, "--optimizer sgd", "use adamw-fused");
	return true;
}

bool compute_open(struct compute *c, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;

	c->model = c->schedule->model;
	c->sequences = plan->micro_batch;
	c->seq_len = plan->seq_len;
	c->tokens = plan->micro_batch * plan->seq_len;
	if (!check_plan(c, error))
		return false;
	c->losses = ARENA_ARRAY(&c->arena, float, c->tokens);
	c->wide_losses = ARENA_ARRAY(&c->arena, double, LOSS_CHUNK);
	operands_init(c);
	return true;
}

void compute_close(struct compute *c)
{
	arena_finish(&c->arena);
}
