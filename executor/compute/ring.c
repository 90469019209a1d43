/* Attention of context ranks in a ring (2310.01889). In each round a rank attends to one block of
 * keys and values, its own first and then those of the ranks before it, while the block goes on to
 * the next rank. A rank has two chunks of each sequence. Either one of them lies before a block of
 * another rank, or both lie behind half of it. So each round costs half of the block's square, and
 * only the first round has a diagonal.
 *
 * Forward carries its results from round to round in fp32 (struct attention), and backward begins
 * with the final ones. The gradients of a block's keys travel with the block: each rank adds what
 * it has found, and the rank that owns the block adds its own when they are home. */
#include "executor/compute/context.h"

/* Says, for one sequence, which of the rank's rows attend to how many of the block's keys. */
struct share {
	int64_t from, queries, keys;
};

static int64_t rounds_of(const struct leaf *leaf)
{
	return context_ranks(leaf->compute);
}

static int64_t round_of(const struct leaf *leaf)
{
	return leaf->compute->rounds[leaf->op - leaf->compute->program->ops];
}

static bool is_last(const struct leaf *leaf)
{
	return round_of(leaf) == rounds_of(leaf) - 1;
}

static struct share share_of(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t place = context_place(c), half = c->seq_len, ranks = context_ranks(c);
	int64_t block = (place + ranks - round_of(leaf)) % ranks;

	if (block == place)
		return (struct share){0, 2 * half, 2 * half};
	return block < place ? (struct share){0, 2 * half, half}
			     : (struct share){half, half, 2 * half};
}

/* --- what goes round --- */

static void *values_in(const struct leaf *leaf, void *block)
{
	return compute_at(leaf->compute, block, leaf->compute->tokens * context_key_width(leaf));
}

static void *own_block(const struct leaf *leaf)
{
	int64_t width = context_key_width(leaf);
	void *block = operand_sent(leaf);
	struct attention own = {0};

	leaf_find_qkv(leaf, &own);
	context_copy(leaf, block, width, own.k, own.k_stride, width);
	context_copy(leaf, values_in(leaf, block), width, own.v, own.v_stride, width);
	return block;
}

/* Adds the gradients that came to those that this rank has found. */
static void *sums(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	void *found = operand_sum_at(leaf, 0), *came = operand_sum_at(leaf, 1);

	if (came != NULL && !c->rehearsal)
		c->kernels->add(c->background, c->dtype, found, found, came,
			2 * c->tokens * context_key_width(leaf));
	return found;
}

/* Returns what a rank sends: gradients with what it has added, or a block of keys: its own in the
 * first round, later the one that has come, as it is. */
static void *given(const struct leaf *leaf)
{
	const struct program *program = leaf->compute->program;
	const int *uses = slice_of(program, leaf->op->uses);

	if (program->buffers[uses[0]].role == BUFFER_PARTIAL_SUMS)
		return sums(leaf);
	return leaf->op->uses.count == 2 ? buffers_address(leaf->compute->buffers, uses[0])
					 : own_block(leaf);
}

/* --- attention --- */

/* Points `a` to the keys of the block; in the first round the rank's own are where they were
 * made. */
static void find_keys(const struct leaf *leaf, struct attention *a)
{
	if (round_of(leaf) == 0)
		return;
	a->k = operand_keys(leaf);
	a->v = values_in(leaf, operand_keys(leaf));
	a->k_stride = a->v_stride = context_key_width(leaf);
}

/* Returns the attention of the share's rows in one sequence. All keys of another rank's block lie
 * before them. */
static struct attention of_sequence(const struct leaf *leaf, const struct attention *all,
	int64_t sequence, const struct share *share)
{
	const struct compute *c = leaf->compute;
	int64_t first = sequence * 2 * c->seq_len, row = first + share->from;
	struct attention a = *all;

	find_keys(leaf, &a);
	a.sequences = 1;
	a.length = share->queries;
	a.first = round_of(leaf) == 0 ? 0 : share->keys;
	a.in_rounds = true;
	a.begins = round_of(leaf) == 0;
	a.ends = is_last(leaf);
	a.keys = share->keys;
	a.q = compute_at(c, a.q, row * a.q_stride);
	a.k = compute_at(c, a.k, first * a.k_stride);
	a.v = compute_at(c, a.v, first * a.v_stride);
	a.out = compute_at(c, a.out, row * a.out_stride);
	a.lse = a.lse != NULL ? a.lse + row * a.heads : NULL;
	a.running = a.running != NULL ? a.running + row * a.out_stride : NULL;
	return a;
}

/* Computes a round. The last round ends all rows, also those for which it has no keys. */
static void attention(const struct leaf *leaf, const struct attention *attention)
{
	const struct compute *c = leaf->compute;
	const struct share share = share_of(leaf), rest = {0, share.from, 0};
	struct attention all = *attention;

	all.running = round_of(leaf) == 0 ? operand_part(leaf) : operand_sum(leaf);
	for (int64_t i = 0; i < c->sequences / 2; i++) {
		struct attention one = of_sequence(leaf, &all, i, &share);

		c->kernels->attention(c->context, &one);
		one = of_sequence(leaf, &all, i, &rest);
		if (is_last(leaf) && rest.queries > 0)
			c->kernels->attention(c->context, &one);
	}
}

static void attention_backward(const struct leaf *leaf, const struct attention_backward *backward)
{
	const struct compute *c = leaf->compute;
	const struct share share = share_of(leaf);
	int64_t width = context_key_width(leaf);
	void *found = operand_part(leaf);

	/* Half of a block may get no gradients in this round. */
	c->kernels->zero(c->context, c->dtype, found, 2 * c->tokens * width);
	for (int64_t i = 0; i < c->sequences / 2; i++) {
		int64_t first = i * 2 * c->seq_len, row = first + share.from;
		struct attention_backward one = *backward;

		one.forward = of_sequence(leaf, &backward->forward, i, &share);
		one.dout = compute_at(c, one.dout, row * one.dout_stride);
		one.dq = compute_at(c, one.dq, row * one.dq_stride);
		one.dk = compute_at(c, found, first * width);
		one.dv = compute_at(c, values_in(leaf, found), first * width);
		one.dk_stride = one.dv_stride = width;
		c->kernels->attention_backward(c->context, &one);
	}
	if (is_last(leaf))
		leaf_rope(leaf, backward->dq, backward->forward.heads, backward->dq_stride, true);
}

/* Gives the rank the gradients of its own keys: those that it has found and those that have come
 * home. */
static void take_gradients(const struct leaf *leaf, const struct attention_backward *d)
{
	const struct compute *c = leaf->compute;
	int64_t width = context_key_width(leaf);
	void *own = operand_sum_at(leaf, 0), *came = operand_sum_at(leaf, 1);

	c->kernels->add(c->context, c->dtype, own, own, came, 2 * c->tokens * width);
	context_copy(leaf, d->dk, d->dk_stride, own, width, width);
	context_copy(leaf, d->dv, d->dv_stride, values_in(leaf, own), width, width);
	leaf_rope(leaf, d->dk, c->model->architecture.kv_heads, d->dk_stride, true);
}

const struct context_calls context_by_ring = {.given = given,
	.attention = attention,
	.backward = attention_backward,
	.take_gradients = take_gradients};

/* Numbers the rounds: among operations that compute, those of one attention follow one another. */
void context_find_rounds(struct compute *c)
{
	const struct op *last = NULL;
	int round = 0;

	c->rounds = ARENA_ARRAY(&c->arena, int, c->program->n_ops);
	for (int i = 0; i < c->program->n_ops; i++) {
		const struct op *op = &c->program->ops[i];

		if (op_kind_class(op->kind) != OP_CLASS_COMPUTE)
			continue;
		bool goes_on = last != NULL && op->kind == last->kind &&
			       op->first_module == last->first_module &&
			       op->micro_batch == last->micro_batch;
		round = goes_on ? round + 1 : 0;
		c->rounds[i] = round;
		last = op;
	}
}
