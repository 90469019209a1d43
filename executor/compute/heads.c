/* Context ranks that change tokens of all heads for all tokens of some heads (2309.14509). What a
 * rank gets is a block from each of them: a row a token, with its queries, keys and values, in
 * backward the results and their gradients too. Attention is that of one chunk of a sequence after
 * the other, to keys in all blocks; what it leaves lies likewise, and goes back as it is. */
#include "executor/compute/context.h"

/* Says in elements where things are in a row, which queries begin, and how many there are. */
struct row {
	int64_t keys, values, results, gradients;
	int64_t width;
};

/* Returns the rank's part of so many heads. */
static int64_t part_of(const struct leaf *leaf, int64_t heads)
{
	const struct compute *c = leaf->compute;

	return heads * c->model->architecture.head_dim / context_ranks(c);
}

static struct row row_of(const struct leaf *leaf, bool back)
{
	const struct architecture *a = &leaf->compute->model->architecture;
	int64_t q = part_of(leaf, a->heads), kv = part_of(leaf, a->kv_heads);

	return (struct row){.keys = q,
		.values = q + kv,
		.results = q + 2 * kv,
		.gradients = 2 * q + 2 * kv,
		.width = q + 2 * kv + (back ? 2 * q : 0)};
}

/* Copies a tensor of the rank's tokens, of so many heads, to the place `at` in rows of all
 * blocks. */
static void deal(const struct leaf *leaf, void *blocks, const struct row *row, int64_t at,
	const void *x, int64_t stride, int64_t heads)
{
	const struct compute *c = leaf->compute;
	int64_t part = part_of(leaf, heads);

	for (int64_t i = 0; i < context_ranks(c); i++)
		context_copy(leaf, compute_at(c, blocks, i * c->tokens * row->width + at),
			row->width, compute_at(c, x, i * part), stride, part);
}

/* Copies the parts of all ranks back, for the rank's tokens. */
static void collect(const struct leaf *leaf, void *x, int64_t stride, const void *blocks,
	int64_t width, int64_t at, int64_t heads)
{
	const struct compute *c = leaf->compute;
	int64_t part = part_of(leaf, heads);

	for (int64_t i = 0; i < context_ranks(c); i++)
		context_copy(leaf, compute_at(c, x, i * part), stride,
			compute_at(c, blocks, i * c->tokens * width + at), width, part);
}

static void deal_back(const struct leaf *leaf, void *blocks, const struct row *row)
{
	const struct architecture *a = &leaf->compute->model->architecture;
	int64_t stride = a->heads * a->head_dim;

	deal(leaf, blocks, row, row->results,
		operand_saved(leaf, leaf->module, TENSOR_ATTENTION_OUT), stride, a->heads);
	deal(leaf, blocks, row, row->gradients, operand_work(leaf, TENSOR_D_ATTENTION_OUT), stride,
		a->heads);
}

/* What attention has left is in order already. */
static void *given(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct architecture *a = &c->model->architecture;
	bool back = op_buffer(c->program, leaf->op, BUFFER_BACKWARD_WORK) >= 0;
	const struct row row = row_of(leaf, back);
	void *left = operand_sum(leaf), *blocks;
	struct attention own = {0};

	if (left != NULL)
		return left;
	blocks = operand_sent(leaf);
	leaf_find_qkv(leaf, &own);
	deal(leaf, blocks, &row, 0, own.q, own.q_stride, a->heads);
	deal(leaf, blocks, &row, row.keys, own.k, own.k_stride, a->kv_heads);
	deal(leaf, blocks, &row, row.values, own.v, own.v_stride, a->kv_heads);
	if (back)
		deal_back(leaf, blocks, &row);
	return blocks;
}

/* --- attention --- */

/* Belongs to a chunk of a sequence: the row of its first token in all blocks, and the row that the
 * keys of the sequence are counted from. */
struct place {
	int64_t own, keys;
};

static struct place place_of(const struct compute *c, int64_t sequence, int64_t chunk)
{
	int64_t block = context_rank_of(c, chunk) * c->tokens;

	return (struct place){
		block + context_row_of(c, sequence, chunk), context_row_of(c, sequence, 0)};
}

static struct attention of_chunk(const struct leaf *leaf, const struct attention *all,
	const struct row *row, struct place place, int64_t chunk)
{
	const struct compute *c = leaf->compute;
	void *blocks = operand_keys(leaf);
	struct attention a = *all;

	a.sequences = 1;
	a.heads /= context_ranks(c);
	a.kv_heads /= context_ranks(c);
	a.first = chunk * c->seq_len;
	a.chunks = c->chunks;
	a.block = c->tokens;
	a.q = compute_at(c, blocks, place.own * row->width);
	a.k = compute_at(c, blocks, place.keys * row->width + row->keys);
	a.v = compute_at(c, blocks, place.keys * row->width + row->values);
	a.q_stride = a.k_stride = a.v_stride = row->width;
	a.lse = a.lse != NULL ? a.lse + place.own * a.heads : NULL;
	return a;
}

static void attention(const struct leaf *leaf, const struct attention *all)
{
	const struct compute *c = leaf->compute;
	const struct row row = row_of(leaf, false);
	void *left = operand_part(leaf);

	for (int64_t i = 0; i < c->sequences / 2 * c->chunks; i++) {
		const struct place place = place_of(c, i / c->chunks, i % c->chunks);
		struct attention one = of_chunk(leaf, all, &row, place, i % c->chunks);

		one.out_stride = row.keys;
		one.out = compute_at(c, left, place.own * one.out_stride);
		c->kernels->attention(c->context, &one);
	}
}

static void attention_backward(const struct leaf *leaf, const struct attention_backward *all)
{
	const struct compute *c = leaf->compute;
	const struct row row = row_of(leaf, true), to = row_of(leaf, false);
	void *blocks = operand_keys(leaf), *left = operand_part(leaf);

	c->kernels->zero(c->context, c->dtype, left, context_ranks(c) * c->tokens * to.width);
	for (int64_t i = 0; i < c->sequences / 2 * c->chunks; i++) {
		const struct place place = place_of(c, i / c->chunks, i % c->chunks);
		struct attention_backward one = *all;

		one.forward = of_chunk(leaf, &all->forward, &row, place, i % c->chunks);
		one.forward.out = compute_at(c, blocks, place.own * row.width + row.results);
		one.dout = compute_at(c, blocks, place.own * row.width + row.gradients);
		one.forward.out_stride = one.dout_stride = row.width;
		one.dq = compute_at(c, left, place.own * to.width);
		one.dk = compute_at(c, left, place.keys * to.width + to.keys);
		one.dv = compute_at(c, left, place.keys * to.width + to.values);
		one.dq_stride = one.dk_stride = one.dv_stride = to.width;
		one.adds = true;
		c->kernels->attention_backward(c->context, &one);
	}
}

/* --- what came of it --- */

/* Does nothing where only the projection behind attention is computed again. */
static void take_results(const struct leaf *leaf)
{
	const struct architecture *a = &leaf->compute->model->architecture;
	int core = leaf_siblings(leaf)->of[MODULE_ATTENTION_CORE];
	int64_t part = part_of(leaf, a->heads);

	if (op_buffer(leaf->compute->program, leaf->op, BUFFER_GATHERED_TOKENS) < 0)
		return;
	collect(leaf, operand_saved(leaf, core, TENSOR_ATTENTION_OUT), a->heads * a->head_dim,
		operand_keys(leaf), part, 0, a->heads);
}

static void take_gradients(const struct leaf *leaf, const struct attention_backward *d)
{
	const struct architecture *a = &leaf->compute->model->architecture;
	const struct row row = row_of(leaf, false);
	const void *came = operand_sum(leaf);

	collect(leaf, d->dq, d->dq_stride, came, row.width, 0, a->heads);
	collect(leaf, d->dk, d->dk_stride, came, row.width, row.keys, a->kv_heads);
	collect(leaf, d->dv, d->dv_stride, came, row.width, row.values, a->kv_heads);
	leaf_rope(leaf, d->dq, a->heads, d->dq_stride, true);
	leaf_rope(leaf, d->dk, a->kv_heads, d->dk_stride, true);
}

const struct context_calls context_by_heads = {.given = given,
	.attention = attention,
	.backward = attention_backward,
	.take_results = take_results,
	.take_gradients = take_gradients};
