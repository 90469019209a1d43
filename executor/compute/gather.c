/* Context ranks attend to the keys of all of them (Llama 3, 2407.21783). The keys are gathered, one
 * rank's block behind the other's: the keys of its tokens, then the values. Gradients of them lie
 * alike, and come back summed up. */
#include "executor/compute/context.h"

static void *own_keys(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t width = context_key_width(leaf);
	struct attention own = {0};
	void *block = compute_at(c, operand_keys(leaf), context_place(c) * 2 * c->tokens * width);

	leaf_find_qkv(leaf, &own);
	context_copy(leaf, block, width, own.k, own.k_stride, width);
	context_copy(
		leaf, compute_at(c, block, c->tokens * width), width, own.v, own.v_stride, width);
	return block;
}

/* Turns the keys in all blocks. */
static void turn_keys(const struct leaf *leaf, void *keys, bool inverse)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = &c->model->architecture;
	int64_t width = context_key_width(leaf);

	if (a->positions != POSITIONS_ROPE)
		return;
	for (int64_t i = 0; i < c->chunks / 2 * c->sequences; i++) {
		int64_t place = i / c->sequences, chunk = i % c->sequences;
		int64_t row = place * 2 * c->tokens + chunk * c->seq_len;

		c->kernels->rope(
			c->context, &(struct rope){.x = compute_at(c, keys, row * width),
					    .first = context_first_position(c, place, chunk),
					    .tokens = c->seq_len,
					    .heads = a->kv_heads,
					    .head_dim = a->head_dim,
					    .stride = width,
					    .length = c->seq_len,
					    .theta = a->rope_theta,
					    .inverse = inverse,
					    .dtype = c->dtype});
	}
}

/* Returns the attention of one of the rank's chunks to its sequence. */
static struct attention of_chunk(
	const struct leaf *leaf, const struct attention *all, int64_t chunk)
{
	const struct compute *c = leaf->compute;
	int64_t row = chunk * c->seq_len, sequence = chunk / 2 * 2 * c->seq_len;
	int64_t width = context_key_width(leaf);
	void *keys = operand_keys(leaf);
	struct attention a = *all;

	a.sequences = 1;
	a.first = compute_position(c, row);
	a.chunks = c->chunks;
	a.block = 2 * c->tokens;
	a.q = compute_at(c, a.q, row * a.q_stride);
	a.out = compute_at(c, a.out, row * a.out_stride);
	a.lse = a.lse != NULL ? a.lse + row * a.heads : NULL;
	a.k = compute_at(c, keys, sequence * width);
	a.v = compute_at(c, keys, (c->tokens + sequence) * width);
	a.k_stride = a.v_stride = width;
	return a;
}

static void attention_to_all(const struct leaf *leaf, const struct attention *attention)
{
	const struct compute *c = leaf->compute;

	turn_keys(leaf, operand_keys(leaf), false);
	for (int64_t chunk = 0; chunk < c->sequences; chunk++) {
		const struct attention one = of_chunk(leaf, attention, chunk);

		c->kernels->attention(c->context, &one);
	}
}

static void attention_to_all_backward(
	const struct leaf *leaf, const struct attention_backward *backward)
{
	const struct compute *c = leaf->compute;
	int64_t width = context_key_width(leaf);
	void *gradients = operand_part(leaf);

	turn_keys(leaf, operand_keys(leaf), false);
	c->kernels->zero(c->context, c->dtype, gradients, c->chunks * c->tokens * width);
	for (int64_t chunk = 0; chunk < c->sequences; chunk++) {
		int64_t row = chunk * c->seq_len, sequence = chunk / 2 * 2 * c->seq_len;
		struct attention_backward one = *backward;

		one.forward = of_chunk(leaf, &backward->forward, chunk);
		one.dout = compute_at(c, one.dout, row * one.dout_stride);
		one.dq = compute_at(c, one.dq, row * one.dq_stride);
		one.dk = compute_at(c, gradients, sequence * width);
		one.dv = compute_at(c, gradients, (c->tokens + sequence) * width);
		one.dk_stride = one.dv_stride = width;
		one.adds = true;
		c->kernels->attention_backward(c->context, &one);
	}
	leaf_rope(leaf, backward->dq, backward->forward.heads, backward->dq_stride, true);
}

static void take_sums(const struct leaf *leaf, const struct attention_backward *d)
{
	const struct compute *c = leaf->compute;
	int64_t width = context_key_width(leaf);
	const void *sums = operand_sum(leaf);

	context_copy(leaf, d->dk, d->dk_stride, sums, width, width);
	context_copy(
		leaf, d->dv, d->dv_stride, compute_at(c, sums, c->tokens * width), width, width);
	leaf_rope(leaf, d->dk, c->model->architecture.kv_heads, d->dk_stride, true);
}

const struct context_calls context_by_gather = {.given = own_keys,
	.attention = attention_to_all,
	.backward = attention_to_all_backward,
	.take_gradients = take_sums};
