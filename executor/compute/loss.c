/* Computes losses of tokens, whose logits become gradients. Tensor ranks have parts of the
 * vocabulary and put together what each finds in its own part. */
#include "executor/compute/leaf.h"

#include "schedule/plan/plan.h"

/* 1 / (tokens of the whole global batch): the only division in the step. */
static float loss_scale(const struct compute *c)
{
	const struct plan *plan = &c->schedule->plan;
	double scale = 1 / ((double)plan->micro_batch * (double)plan->seq_len *
				   (double)plan->grad_accum * c->ranks);

	if (fault_hits(&c->fault, FAULT_MISSING_DIVIDE, c->rank, c->step))
		scale *= c->ranks;
	if (fault_hits(&c->fault, FAULT_SCALE_GRADIENT, c->rank, c->step))
		scale *= 1.001;
	return (float)scale;
}

/* This is NaN as fp32, and its first half is NaN as bf16. */
static const uint32_t not_a_number = 0x7fc07fc0;

/* A kernel takes at once the end of a sequence, whole sequences, or the beginning of one. */
static int64_t rows_at_once(const struct compute *c, int64_t first, int64_t rows)
{
	int64_t left = c->seq_len - first % c->seq_len;

	if (first % c->seq_len == 0 && rows >= c->seq_len)
		return rows / c->seq_len * c->seq_len;
	return rows < left ? rows : left;
}

static void end_losses(const struct leaf *leaf, void *logits, const float *losses, int64_t rows)
{
	struct compute *c = leaf->compute;

	if (c->rehearsal)
		return;
	c->kernels->sum(
		c->context, c->device != NULL ? &c->device->scalars->loss : &c->loss, losses, rows);
	if (fault_hits(&c->fault, FAULT_NAN, c->rank, c->step))
		compute_move(c, leaf->op, logits, &not_a_number, dtype_bytes(c->dtype));
}

/* Of all rows of a micro-batch, of the words that the rank has. */
static struct cross_entropy loss_of_words(const struct leaf *leaf, void *logits)
{
	struct compute *c = leaf->compute;
	const int32_t *tokens = (const int32_t *)operand_role(leaf, BUFFER_TOKENS);

	return (struct cross_entropy){.tokens = tokens != NULL ? c->tokens : 0,
		.vocabulary = model_words(c->model, c->tensor_place),
		.stride = c->logits_stride,
		.length = c->seq_len,
		.targets_stride = c->seq_len + 1,
		.logits = logits,
		.targets = tokens != NULL ? tokens + 1 : NULL,
		.scale = loss_scale(c),
		.dtype = c->dtype};
}

void leaf_loss_part(const struct leaf *leaf, void *logits, float *part)
{
	struct compute *c = leaf->compute;
	struct cross_entropy loss = loss_of_words(leaf, logits);

	loss.part = part;
	c->kernels->cross_entropy(c->context, &loss);
}

/* The head's rows for words that do not exist are zero, and so are their logits, which have no
 * gradient. */
static void join_losses(const struct leaf *leaf, void *logits, float *losses, const float *parts)
{
	struct compute *c = leaf->compute;
	struct cross_entropy loss = loss_of_words(leaf, logits);

	loss.parts = parts;
	loss.n_parts = c->schedule->plan.mesh.tensor;
	loss.losses = losses;
	c->kernels->cross_entropy(c->context, &loss);
	end_losses(leaf, logits, losses, c->tokens);
}

void leaf_loss(const struct leaf *leaf, void *logits, float *losses, int64_t first, int64_t rows)
{
	struct compute *c = leaf->compute;
	const int32_t *tokens = (const int32_t *)operand_role(leaf, BUFFER_TOKENS);

	if (tokens == NULL || logits == NULL)
		return;
	for (int64_t i = 0, n; i < rows; i += n) {
		int64_t length = c->seq_len, stride = length + 1;

		n = rows_at_once(c, first + i, rows - i);
		c->kernels->cross_entropy(c->context,
			&(struct cross_entropy){.tokens = n,
				.vocabulary = c->model->architecture.vocab,
				.stride = c->logits_stride,
				.length = length,
				.targets_stride = stride,
				.logits = compute_at(c, logits, i * c->logits_stride),
				.targets = tokens + 1 + id_place(first + i, length, stride),
				.losses = losses + i,
				.scale = loss_scale(c),
				.dtype = c->dtype});
	}
	end_losses(leaf, logits, losses, rows);
}

void compute_loss(struct compute *c, const struct op *op)
{
	const struct leaf leaf = {.compute = c, .op = op, .module = op->first_module};
	float *losses = c->losses;

	if (plan_chunks_head(&c->schedule->plan))
		return;
	if (op_buffer(c->program, op, BUFFER_LOSS_WORK) >= 0)
		losses = operand_role(&leaf, BUFFER_LOSS_WORK);
	void *logits = operand_role(&leaf, BUFFER_LOGITS);
	if (op_buffer(c->program, op, BUFFER_GATHERED_TOKENS) >= 0)
		join_losses(&leaf, logits, losses, operand_role(&leaf, BUFFER_GATHERED_TOKENS));
	else
		leaf_loss(&leaf, logits, losses, 0, c->tokens);
}
