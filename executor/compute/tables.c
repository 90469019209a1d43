/* Computes backward of the two tables that the residual stream begins with: words and positions. */
#include "executor/compute/leaf.h"

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

/* A GPU takes the micro-batch at once. A CPU searches for the tokens of a row, so it takes one
 * sequence at a time. */
static int64_t embedding_parts(const struct compute *c)
{
	return c->device != NULL ? gradient_parts(c) : c->sequences;
}

/* Adds the gradient of one table. `of` has what differs between the tables; its ids, if any, are
 * those of the first sequence. */
static void table_gradient(const struct leaf *leaf, struct embedding_backward of)
{
	const struct compute *c = leaf->compute;
	int parameter = leaf_parameter(leaf, 0);
	int64_t parts = embedding_parts(c), rows = c->tokens / parts;
	const void *dresidual = operand_stream_gradient(leaf);

	of.tokens = rows;
	of.width = architecture_of(leaf)->hidden;
	of.length = c->seq_len;
	of.dtype = c->dtype;
	of.gradient_dtype = c->gradient_dtype;
	for (int64_t i = 0; i < parts && dresidual != NULL; i++) {
		bool more;
		void *gradient = gradient_begin(leaf, parameter, &more);

		of.dout = compute_at(c, dresidual, i * rows * of.width);
		of.accumulate_table = of.accumulate_positions = more;
		*(of.ids != NULL ? &of.dtable : &of.dpositions) = gradient;
		c->kernels->embedding_backward(c->context, &of);
		if (of.ids != NULL)
			of.ids += of.ids_stride;
		gradient_end(leaf, parameter);
	}
}

/* Adds the gradient of positions when the rank has only a part of the residual stream: it goes
 * through its tokens from one end of a sequence to the next. */
static void add_position_gradients(const struct leaf *leaf, const struct parameter *positions)
{
	const struct compute *c = leaf->compute;
	int64_t width = architecture_of(leaf)->hidden;
	const void *dresidual = operand_work(leaf, TENSOR_D_RESIDUAL);
	bool more;
	void *table = gradient_begin(leaf, leaf_parameter(leaf, 0), &more);

	if (table == NULL || dresidual == NULL)
		return;
	if (!more)
		c->kernels->zero(c->context, c->gradient_dtype, table, positions->elements);
	for (int64_t i = 0, n; i < c->stream_tokens; i += n) {
		int64_t at = compute_position(c, c->first_token + i);

		n = min_i64(c->seq_len - at % c->seq_len, c->stream_tokens - i);
		c->kernels->embedding_backward(c->context,
			&(struct embedding_backward){.tokens = n,
				.width = width,
				.length = n,
				.position_rows = n,
				.dout = compute_at(c, dresidual, i * width),
				.dpositions = element_at(c->gradient_dtype, table, at * width),
				.accumulate_positions = true,
				.dtype = c->dtype,
				.gradient_dtype = c->gradient_dtype});
	}
	gradient_end(leaf, leaf_parameter(leaf, 0));
}

void backward_position_embedding(const struct leaf *leaf)
{
	const struct parameter *positions =
		&leaf->compute->model->parameters[leaf_parameter(leaf, 0)];

	if (leaf->compute->stream_tokens < leaf->compute->tokens || leaf->compute->chunks > 0) {
		add_position_gradients(leaf, positions);
		return;
	}
	table_gradient(leaf,
		(struct embedding_backward){
			.position_rows = positions->elements / architecture_of(leaf)->hidden});
}

void backward_embedding(const struct leaf *leaf)
{
	table_gradient(leaf, (struct embedding_backward){.vocabulary = architecture_of(leaf)->vocab,
				     .ids_stride = leaf->compute->seq_len + 1,
				     .of_part = leaf->compute->schedule->plan.mesh.tensor > 1,
				     .ids = (const int32_t *)operand_role(leaf, BUFFER_TOKENS)});
}
