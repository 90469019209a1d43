#include "executor/compute/leaf.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor/ranks/ranks.h"

enum { UNDECLARED_BYTES = 1 << 20 };

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

/* Renumbers tokens within the rank's part of the vocabulary; words of other ranks become -1. */
static bool name_words(const struct compute *c, int32_t *tokens, int64_t n, struct error *error)
{
	int64_t first = model_first_word(c->model, c->tensor_place);
	int64_t words = model_words(c->model, c->tensor_place);
	int64_t vocabulary = model_whole(c->model)->architecture.vocab;

	for (int64_t i = 0; i < n && c->schedule->plan.mesh.tensor > 1; i++) {
		int64_t word = tokens[i] - first;

		if (tokens[i] < 0 || tokens[i] >= vocabulary)
			return error_set(error, EXIT_CODE_INTERNAL,
				"token %d is outside the vocabulary of %lld", (int)tokens[i],
				(long long)vocabulary);
		tokens[i] = word >= 0 && word < words ? (int32_t)word : -1;
	}
	return true;
}

/* Loads the rank's two chunks of a sequence, each with its targets. */
static bool load_chunks(struct compute *c, int64_t number, int32_t *tokens, struct error *error)
{
	if (!data_window(c->data, number, c->window, error))
		return false;
	for (int64_t i = 0; i < 2; i++)
		memcpy(tokens + i * (c->seq_len + 1),
			c->window + compute_position(c, i * c->seq_len),
			(size_t)(c->seq_len + 1) * sizeof(*tokens));
	return true;
}

/* Sequences of the global batch are dealt to micro-batches, then to ranks. */
static bool load_tokens(struct compute *c, int micro_batch, int32_t *tokens, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;
	int64_t rank = c->place;

	if (fault_hits(&c->fault, FAULT_WRONG_SEQUENCE, c->rank, c->step))
		rank = 0;
	int64_t first =
		c->step * plan->global_batch + (micro_batch * c->ranks + rank) * plan->micro_batch;
	for (int64_t i = 0; i < plan->micro_batch; i++)
		if (c->chunks > 0 ? !load_chunks(
					    c, first + i, tokens + 2 * i * (c->seq_len + 1), error)
				  : !data_window(c->data, first + i, tokens + i * (c->seq_len + 1),
					    error))
			return false;
	if (fault_hits(&c->fault, FAULT_WILD_TOKEN, c->rank, c->step))
		tokens[0] = (int32_t)model_whole(c->model)->architecture.vocab + 5;
	return name_words(c, tokens, c->sequences * (c->seq_len + 1), error);
}

/* Tokens reach a device through pinned memory, in which each micro-batch of a step has its place.
 */
static char *staging_of(const struct compute *c, int micro_batch)
{
	int64_t tokens = c->sequences * (c->seq_len + 1);

	return c->device->staging + micro_batch * tokens * (int64_t)sizeof(int32_t);
}

static bool fill_tokens(
	struct compute *c, const struct op *op, void *address, int64_t bytes, struct error *error)
{
	char *staged = c->device != NULL ? staging_of(c, op->micro_batch) : address;

	if (!load_tokens(c, op->micro_batch, (int32_t *)staged, error))
		return false;
	if (c->device != NULL)
		compute_move(c, op, address, staged, bytes);
	return true;
}

static void zero_run(
	struct compute *c, const struct buffer *buffer, void *address, int64_t first, int64_t end)
{
	if (end > first)
		c->kernels->zero(c->context, buffer->dtype,
			(char *)address + first * dtype_bytes(buffer->dtype), end - first);
}

/* Prepares a gradient that was just taken. Padding, which no leaf writes, becomes zero. A
 * parameter's part is overwritten by its first term, which halves the memory traffic of zeroing and
 * adding. Exact sums are always added to. */
static void begin_gradient(struct compute *c, const struct buffer *buffer, void *address)
{
	const struct unit *unit = &c->program->units[buffer->unit];
	int64_t elements = buffer->bytes / dtype_bytes(buffer->dtype), end = 0;

	for (int i = 0; i < unit->n_slices && !compute_sums_exactly(c); i++) {
		const struct unit_slice *slice = &unit->slices[i];

		if (c->fresh[slice->parameter])
			error_set(&c->error, EXIT_CODE_INTERNAL,
				"the gradient of %s was taken before, and never written",
				c->model->parameters[slice->parameter].name);
		c->fresh[slice->parameter] = true;
		zero_run(c, buffer, address, end, slice->offset);
		end = slice->offset + slice->elements;
	}
	zero_run(c, buffer, address, end, elements);
}

/* Fills the buffers that must have content from the moment they are taken. */
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
			begin_gradient(c, buffer, address);
		if (buffer->role == BUFFER_TOKENS && c->data != NULL && !c->rehearsal &&
			!fill_tokens(c, op, address, buffer->bytes, error))
			return false;
	}
	return true;
}

/* Operations of the communication thread have a context of their own. */
static struct kernel_context *context_of(const struct compute *c, const struct op *op)
{
	bool walks = op->stream == STREAM_COMPUTE || op->stream == STREAM_HOST;

	return walks ? c->context : c->background;
}

static bool op_takes(const struct compute *c, const struct op *op, int buffer)
{
	const int *takes = slice_of(c->program, op->takes);

	for (int i = 0; i < op->takes.count; i++)
		if (takes[i] == buffer)
			return true;
	return false;
}

/* Adds a reduced gradient to the sum over micro-batches, which the first one starts. */
static void run_accumulate(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);
	const struct buffer *from = &c->program->buffers[uses[0]];
	const struct buffer *to = &c->program->buffers[uses[1]];
	void *sum = buffers_address(c->buffers, uses[1]);
	const void *more = buffers_address(c->buffers, uses[0]);
	int64_t n = to->bytes / dtype_bytes(to->dtype);
	struct kernel_context *context = context_of(c, op);
	bool twice = fault_hits(&c->fault, FAULT_DOUBLE_ACCUMULATE, c->rank, c->step);

	if (c->rehearsal)
		return;
	if (to->dtype == DTYPE_INT64) {
		for (int i = 0; i < 1 + twice; i++)
			gradient_add(sum, more, n);
		return;
	}
	if (op_takes(c, op, uses[1]))
		c->kernels->convert(context, to->dtype, sum, from->dtype, more, n);
	else
		c->kernels->accumulate(context, to->dtype, sum, from->dtype, more, n);
	if (twice)
		c->kernels->accumulate(context, to->dtype, sum, from->dtype, more, n);
}

/* Converts the shard to the compute dtype: that in the master dtype, or what the host has sent of
 * it. */
static void run_cast(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);
	const struct buffer *from = &c->program->buffers[uses[0]];
	const struct buffer *to = &c->program->buffers[uses[1]];

	if (!c->rehearsal)
		c->kernels->convert(context_of(c, op), to->dtype,
			buffers_address(c->buffers, uses[1]), from->dtype,
			buffers_address(c->buffers, uses[0]), to->bytes / dtype_bytes(to->dtype));
}

static void run_recompute(struct compute *c, const struct op *op)
{
	if (c->step == 0 || !fault_hits(&c->fault, FAULT_STALE_RECOMPUTE, c->rank, c->step))
		forward_leaves(c, op);
}

/* Copies between the tiers; both operands have one size. */
static void run_copy(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);

	if (c->rehearsal || (c->step > 0 && op->kind == OP_COPY_H2D &&
				    fault_hits(&c->fault, FAULT_STALE_COPY, c->rank, c->step)))
		return;
	compute_move(c, op, buffers_address(c->buffers, uses[1]),
		buffers_address(c->buffers, uses[0]), op->bytes);
}

/* With a smaller reshard group each rank keeps its part of the unit. */
static void run_reshard(struct compute *c, const struct op *op)
{
	int part = op_buffer(c->program, op, BUFFER_RESHARDED);

	if (part < 0 || op->takes.count == 0 || c->rehearsal)
		return;
	const int *uses = slice_of(c->program, op->uses);
	int64_t bytes = c->program->buffers[part].bytes;
	int64_t ranks = c->program->buffers[uses[0]].bytes / bytes;
	const char *whole = buffers_address(c->buffers, uses[0]);
	int64_t place = plan_shard_place(&c->schedule->plan, c->rank) % ranks;
	compute_move(c, op, buffers_address(c->buffers, part), whole + place * bytes, bytes);
}

static void run_add_sum(struct compute *c, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);
	void *stream = buffers_address(c->buffers, uses[0]);
	int64_t elements = c->program->buffers[uses[0]].bytes / dtype_bytes(c->dtype);

	if (!c->rehearsal)
		c->kernels->add(c->context, c->dtype, stream, stream,
			buffers_address(c->buffers, uses[1]), elements);
}

static void run_nothing(struct compute *c, const struct op *op)
{
	(void)c, (void)op;
}

/* Each row runs one kind. Collectives are run by the interpreter, and a kind without a row belongs
 * to other runtimes. What goes wrong is left in c->error. */
static void (*const runs[OP_KIND_COUNT])(struct compute *c, const struct op *op) = {
	[OP_FORWARD] = forward_leaves,
	[OP_RECOMPUTE] = run_recompute,
	[OP_LOSS] = compute_loss,
	[OP_BACKWARD] = backward_leaves,
	[OP_END_BACKWARD] = run_nothing,
	[OP_ADD_SUM] = run_add_sum,
	[OP_ACCUMULATE_GRADIENTS] = run_accumulate,
	[OP_GRADIENT_NORM] = compute_norm,
	[OP_CLIP_GRADIENTS] = compute_clip,
	[OP_OPTIMIZER] = compute_update,
	[OP_CAST_PARAMETERS] = run_cast,
	[OP_RESHARD] = run_reshard,
	[OP_COPY_H2D] = run_copy,
	[OP_COPY_D2H] = run_copy,
	[OP_END_COPIES] = run_nothing,
};

static bool carry_out(struct compute *c, const struct op *op, struct error *error)
{
	if (c->fault.kind != FAULT_NONE && !c->rehearsal) {
		fault_allocate(c, op);
		fault_end(c, op);
	}
	if (runs[op->kind] == NULL)
		return error_set(error, EXIT_CODE_USAGE, "this executor cannot carry out %s",
			op_kind_name(op->kind));
	if (!begin_buffers(c, op, error))
		return false;
	runs[op->kind](c, op);
	if (c->error.message[0] != '\0')
		return error_set(error, c->error.code, "%s", c->error.message);
	if (c->context->error.message[0] != '\0')
		return error_set(error, c->context->error.code, "%s", c->context->error.message);
	return true;
}

/* Carries out an operation on its stream; the host's own operations run on the host's kernels. */
static bool carry_out_for_device(struct compute *c, const struct op *op, struct error *error)
{
	const struct kernels *kernels = c->kernels;
	struct kernel_context *context = c->context;
	bool rehearsal = c->rehearsal;

	if (op->stream == STREAM_HOST) {
		c->rehearsal |= c->warm_up;
		c->kernels = c->warm_up ? &kernels_null : rehearsal ? kernels : c->host_kernels;
		c->context = c->host_context;
	} else {
		context->stream = c->background->stream = device_stream(c->device, op->stream);
	}
	bool ok = carry_out(c, op, error);
	c->kernels = kernels;
	c->context = context;
	c->rehearsal = rehearsal;
	return ok;
}

bool compute_run(void *data, int index, struct error *error)
{
	struct compute *c = data;
	const struct op *op = &c->program->ops[index];

	return c->device != NULL ? carry_out_for_device(c, op, error) : carry_out(c, op, error);
}

void *compute_exchanged(void *data, int op)
{
	struct compute *c = data;
	const struct op *o = &c->program->ops[op];
	bool of_context = c->schedule->groups[o->group].kind == GROUP_CONTEXT;

	return of_context && o->kind != OP_REDUCE_SCATTER
		       ? context_given(&(struct leaf){c, o, o->first_module})
		       : operand_exchanged(c, op);
}

/* Sends what the device reads of the host in this step, ahead of all that is enqueued. */
static bool begin_scalars(struct compute *c, struct error *error)
{
	struct device_scalars *scalars = c->device->scalars_on_host;

	*scalars = (struct device_scalars){.fault = -1};
	compute_factors(c, scalars);
	return device_copy(
		c->device, c->device->scalars, scalars, sizeof(*scalars), STREAM_COMPUTE, error);
}

/* Loads tokens into the staging memory, where a launched graph will find them. */
static bool load_all_tokens(struct compute *c, struct error *error)
{
	for (int m = 0; m < c->schedule->plan.grad_accum; m++)
		if (!load_tokens(c, m, (int32_t *)staging_of(c, m), error))
			return false;
	return true;
}

bool compute_begin_step(struct compute *c, int64_t step, struct error *error)
{
	c->step = step;
	c->loss = (struct exact_sum){0};
	c->overflow = false;
	/* A launched graph walks no operations, so what the last walk has found out must stay. */
	if (c->device != NULL && c->device->graph.state == GRAPH_READY)
		return load_all_tokens(c, error) && begin_scalars(c, error);
	c->gradient_bytes = 0;
	c->norm_on_device = false;
	return c->device == NULL || begin_scalars(c, error);
}

/* Kernels read a token outside the vocabulary as zeros and go on, so it is reported here. */
static bool tokens_were_good(const struct compute *c, struct error *error)
{
	int32_t fault = c->device->scalars_on_host->fault;

	return fault < 0 ||
	       error_set(error, EXIT_CODE_INTERNAL,
		       "step %lld: the GPU met token %d, the vocabulary has %lld; "
		       "the weights are no longer good",
		       (long long)c->step, fault, (long long)c->model->architecture.vocab);
}

bool compute_end_step(struct compute *c, struct error *error)
{
	if (c->device == NULL)
		return true;
	c->loss = c->device->scalars_on_host->loss;
	if (!tokens_were_good(c, error))
		return false;
	if (!c->norm_on_device)
		return true;
	c->gradient_norm = sqrt(exact_sum_value(&c->device->scalars_on_host->squares));
	return compute_norm_is_finite(c, error);
}

/* --- set-up --- */

int64_t compute_staging_bytes(const struct schedule *schedule)
{
	const struct plan *plan = &schedule->plan;

	return plan->grad_accum * plan->micro_batch * (plan->seq_len + 1) *
	       (int64_t)sizeof(int32_t);
}

static bool refuse(struct error *error, const char *what, const char *instead)
{
	return error_set(
		error, EXIT_CODE_USAGE, "the executor cannot train with %s; %s", what, instead);
}

/* Refuses two cases of frozen weights. Adapters in bf16 are scaled by adding them to themselves, so
 * only powers of two will do. The gradient of a frozen norm, which nobody reads, is written where
 * the gradient of attention's output was, so it must fit there. */
static bool check_frozen(const struct compute *c, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;
	const struct architecture *a = &c->model->architecture;
	const struct trainable *t = &a->trainable;
	double factor = t->rank > 0 ? t->alpha / (double)t->rank : 1;
	int exponent;

	if (c->dtype != DTYPE_FP32 && (factor < 1 || frexp(factor, &exponent) != 0.5))
		return refuse(error, "adapters in bf16 that count alpha / r times",
			"let alpha / r be 1, 2, 4 or more, or use --param-dtype fp32");
	if (!trainable_is_all(t) &&
		plan->micro_batch * plan->seq_len * a->heads * a->head_dim * dtype_bytes(c->dtype) <
			a->hidden * dtype_bytes(DTYPE_FP32))
		return refuse(error, "so few tokens and frozen norms", "use a longer --seq-len");
	return true;
}

static bool check_plan(const struct compute *c, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;
	const struct architecture *a = &c->model->architecture;

	if (plan->runtime != RUNTIME_SHARDPLAN)
		return refuse(error, runtime_names[plan->runtime], "it runs shardplan schedules");
	if (plan->mesh.expert > BOARD_SPLITS)
		return refuse(error, "so many expert ranks", "use an --expert of 64 or fewer");
	if (a->positions == POSITIONS_ALIBI)
		return refuse(error, "ALiBi attention (MPT)", "use a GPT-2 or Llama model");
	if (compute_sums_exactly(c) && c->device != NULL)
		return refuse(error, "exact gradient sums on a GPU", "use the CPU");
	if (plan->fp8 != FP8_OFF && c->device == NULL && c->kernels != &kernels_null)
		return refuse(error, "products in fp8 on CPUs", "use --fp8 off, or --device cuda");
	if (plan->attention != ATTENTION_FLASH)
		return refuse(error, "an attention kernel of others", "use --attention flash");
	if (plan->param_dtype > DTYPE_BF16 || plan->reduce_dtype > plan->param_dtype ||
		plan->master_dtype > DTYPE_BF16)
		return refuse(error, "these dtypes",
			"use fp32 or bf16 for parameters, fp32 or the same for the reduction, "
			"and fp32 or bf16 for the master weights");
	return check_frozen(c, error);
}

bool compute_open(struct compute *c, struct error *error)
{
	const struct plan *plan = &c->schedule->plan;

	c->model = c->program->model;
	c->dtype = plan->param_dtype;
	c->gradient_dtype = plan->reduce_dtype;
	c->expert_ranks = (int)plan->mesh.expert;
	c->expert_place = (int)plan_expert_place(plan, c->rank);
	c->sequences = plan->micro_batch;
	c->seq_len = plan->seq_len;
	c->logits_stride = plan_logits_stride(plan, c->model->architecture.vocab);
	c->tokens = model_tokens(c->model, plan->micro_batch, plan->seq_len);
	c->stream_tokens = model_stream_tokens(c->model, plan->micro_batch, plan->seq_len);
	if (plan->mesh.context > 1) {
		c->chunks = 2 * plan->mesh.context;
		c->sequences = 2 * plan->micro_batch;
		c->seq_len = plan->seq_len / c->chunks;
		c->window = ARENA_ARRAY(&c->arena, int32_t, plan->seq_len + 1);
		context_find_rounds(c);
	}
	c->first_token = plan->sequence_parallel ? c->tensor_place * c->stream_tokens : 0;
	if (!check_plan(c, error))
		return false;
	if (c->device != NULL && c->kernels->device != NULL)
		c->device->fault = c->kernels->device->fault(c->context);
	c->losses = ARENA_ARRAY(&c->arena, float, c->tokens);
	c->fresh = ARENA_ARRAY(&c->arena, bool, c->model->n_parameters);
	operands_init(c);
	experts_init(c);
	return true;
}

void compute_close(struct compute *c)
{
	arena_finish(&c->arena);
}

const struct kernels *executor_kernels(const char *name)
{
	if (name == NULL || strcmp(name, "cpu") == 0)
		return kernels_cpu();
	return kernels_by_name(name);
}
