/* Attention kernels: the rate of each generation, and how much of it is lost with short sequences,
 * small heads or few heads. Sources and fits: docs/cost-model.md, bench/fit. */
#include "simulator/costs/attention.h"

#include <math.h>

#include "simulator/devices/devices.h"

/* For each generation. A flash kernel spends on each score products of depth d (head_dim) and a
 * softmax that does not depend on d, so its rate grows as d / (d + softmax_depth), relative to the
 * depth that the rates stand for.
 * `half_*`: tokens at which half of the rate is reached, because blocks on the diagonal are
 * computed whole and every block of queries has a beginning and an end. This is so much more for
 * each query, whatever it meets, so that windows count as a shorter sequence. */
static const struct generation {
	double softmax_depth, half_forward, half_backward;
} generations[ATTENTION_GENERATION_COUNT] = {
	[ATTENTION_FIRST] = {4, 425, 425},
	[ATTENTION_SECOND] = {20, 350, 400},
	[ATTENTION_THIRD] = {40, 550, 450},
};
static const double rated_depth = 128;

/* The number of blocks of queries (128 tokens of one head) at which half of the rate is reached,
 * per multiprocessor. */
static const double block_tokens = 128, half_blocks = 1.0;

static double saturation(double size, double half)
{
	return size / (size + half);
}

/* Where a bias is added to the scores, as in MPT with llm-foundry (Triton), the first generation of
 * flash kernels still runs. Elsewhere frameworks use the second by default. */
static enum attention_generation generation_of(const struct attention_shape *shape)
{
	if (shape->kind == ATTENTION_FLASH)
		return shape->architecture->family == FAMILY_MPT ? ATTENTION_FIRST
								 : ATTENTION_SECOND;
	if (shape->kind == ATTENTION_FLASH1)
		return ATTENTION_FIRST;
	return shape->kind == ATTENTION_FLASH3 ? ATTENTION_THIRD : ATTENTION_SECOND;
}

static double flash_rate(const struct machine *machine, const struct attention_shape *shape)
{
	const struct architecture *a = shape->architecture;
	enum attention_generation kind = generation_of(shape);
	const struct generation *g = &generations[kind];
	bool forward = shape->pass == PASS_FORWARD;
	double tokens = shape->seen > 0 ? 2 * shape->seen : (double)shape->seq_len;
	double depth = (double)a->head_dim;
	double queries = (double)(shape->queries > 0 ? shape->queries : shape->seq_len);
	double blocks = ceil(queries / block_tokens) * (double)a->heads * (double)shape->sequences;
	double rate =
		forward ? machine->attention[kind].forward : machine->attention[kind].backward;

	if (!machine->gpu)
		return rate;
	rate *= saturation(depth, g->softmax_depth) / saturation(rated_depth, g->softmax_depth);
	rate *= saturation(tokens, forward ? g->half_forward : g->half_backward);
	return rate * saturation(blocks, half_blocks * machine->multiprocessors);
}

/* Eager attention is one batched product of depth head_dim for the scores and one of depth seq_len
 * for the values; in backward one of the first kind, for the probabilities' gradient, and three of
 * the second. */
static double eager_rate(const struct machine *machine, const struct attention_shape *shape)
{
	const struct architecture *a = shape->architecture;
	int64_t s = shape->seq_len, heads = shape->sequences * a->heads;
	const struct gemm_shape scores = {s, s, a->head_dim, heads};
	const struct gemm_shape values = {s, a->head_dim, s, heads};
	double others = shape->pass == PASS_FORWARD ? 1 : 3;

	return (gemm_flops(&scores) + others * gemm_flops(&values)) /
	       (gemm_arithmetic(machine, &scores) + others * gemm_arithmetic(machine, &values));
}

double attention_rate(const struct machine *machine, const struct attention_shape *shape)
{
	double rate;

	if (shape->kind == ATTENTION_EAGER)
		return eager_rate(machine, shape);
	rate = flash_rate(machine, shape);
	if (machine->gpu && machine->peak_flops > 0)
		rate = fmin(rate, machine->peak_flops);
	return rate * machine->core_share;
}
