/* Attention kernels: the rate of each generation, and how much of it is lost with short sequences,
 * small heads or few heads. Sources and fits: docs/cost-model.md, bench/fit. */
#include "simulator/costs/attention.h"

#include <math.h>

#include "simulator/devices/devices.h"

/* For each generation. A flash kernel spends on each score products of depth d (head_dim) and a
 * softmax that does not depend on d, so its rate grows as d / (d + softmax_depth), relative to the
 * depth that the rates stand for, up to `most_depth`.
 * `half`: tokens at which half of the rate is reached, because blocks on the diagonal are computed
 * whole and every block of queries has a beginning and an end. This is so much more for each query,
 * whatever it meets, so that windows count as a shorter sequence.
 * `window`: so much more for a query with a window, whose blocks are whole at both ends. */
static const struct generation {
	struct attention_rates softmax_depth, half, window;
	double most_depth;
} generations[ATTENTION_GENERATION_COUNT] = {
	[ATTENTION_FIRST] = {{4, 4}, {425, 425}, {256, 256}, INFINITY},
	[ATTENTION_SECOND] = {{20, 20}, {350, 400}, {256, 256}, INFINITY},
	[ATTENTION_THIRD] = {{40, 40}, {550, 450}, {600, 300}, INFINITY},
	[ATTENTION_FOURTH] = {{200, 75}, {680, 940}, {800, 250}, 128},
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
static enum attention_generation generation_of(
	const struct machine *machine, const struct attention_shape *shape)
{
	bool blackwell = machine->topology->device.generation == GENERATION_BLACKWELL;

	if (shape->kind == ATTENTION_FLASH)
		return shape->architecture->family == FAMILY_MPT ? ATTENTION_FIRST
								 : ATTENTION_SECOND;
	if (shape->kind == ATTENTION_FLASH1)
		return ATTENTION_FIRST;
	if (shape->kind == ATTENTION_FLASH3)
		return blackwell ? ATTENTION_FOURTH : ATTENTION_THIRD;
	return ATTENTION_SECOND;
}

static double of_pass(const struct attention_rates *rates, enum pass pass)
{
	return pass == PASS_FORWARD ? rates->forward : rates->backward;
}

/* The depth of the products of a score, in the mean: one or two of queries and keys, one or two of
 * values, which may be of another. */
static double depth_of(const struct architecture *a, enum pass pass)
{
	double keys = (double)a->head_dim;
	double values = a->value_dim > 0 ? (double)a->value_dim : keys;

	return pass == PASS_FORWARD ? (keys + values) / 2 : (3 * keys + 2 * values) / 5;
}

/* The share of blocks whose queries have a window. */
static double windowed(const struct attention_shape *shape)
{
	const struct architecture *a = shape->architecture;

	if (shape->seen <= 0 || a->attention_window <= 0)
		return 0;
	return a->full_attention_every > 0 ? 1 - 1 / (double)a->full_attention_every : 1;
}

static double flash_rate(const struct machine *machine, const struct attention_shape *shape)
{
	const struct architecture *a = shape->architecture;
	enum attention_generation kind = generation_of(machine, shape);
	const struct generation *g = &generations[kind];
	double rate = of_pass(&machine->attention[kind], shape->pass);
	double tokens = shape->seen > 0 ? 2 * shape->seen : (double)shape->seq_len;
	double depth = fmin(depth_of(a, shape->pass), g->most_depth);
	double softmax = of_pass(&g->softmax_depth, shape->pass);
	double queries = (double)(shape->queries > 0 ? shape->queries : shape->seq_len);
	double blocks = ceil(queries / block_tokens) * (double)a->heads * (double)shape->sequences;

	if (!machine->gpu)
		return rate;
	rate *= saturation(depth, softmax) / saturation(rated_depth, softmax);
	rate *= saturation(tokens, of_pass(&g->half, shape->pass) +
					   windowed(shape) * of_pass(&g->window, shape->pass));
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
