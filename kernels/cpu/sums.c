/* The exact sum of squares, many values at a time: adding and subtracting a large constant cuts
 * every square at one binary place, without rounding, so that the cut-off high parts can be summed
 * exactly (Rump 2008, "extraction"). Two such cuts take everything of a chunk whose values are not
 * too far apart, three of nearly all others; what is left goes the slow way. The sum is exact
 * either way, so its bits are those of every other table. */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

enum {
	CHUNK = 4096,
	/* Of a cut, one less than big has room for; 2^12 values of a chunk add 12 more: below the
	 * 63 of an integer. */
	CUT_BITS = 50,
	FEW_CUTS = 2,
	CUTS = 3,
	HALF = LANES / 2,
	TOPS = 4,
};

typedef double dvec __attribute__((vector_size(8 * HALF), may_alias));
typedef uint64_t lvec __attribute__((vector_size(8 * HALF), may_alias));
typedef float half_vec __attribute__((vector_size(4 * HALF), may_alias, aligned(4)));

INLINE ivec larger(ivec top, ivec bits)
{
	ivec more = bits > top;

	return (more & bits) | (~more & top);
}

/* Bits of the largest |x|: as integers they are ordered, NaN above infinity above numbers. Several
 * tops, so that none waits for itself. */
static int32_t largest(const float *x, int64_t n)
{
	ivec top[TOPS] = {0};
	int32_t most = 0;
	int64_t i = 0;

	for (; i + TOPS * LANES <= n; i += TOPS * LANES)
		for (int j = 0; j < TOPS; j++)
			top[j] = larger(top[j], (ivec)load(x + i + j * LANES) & INT32_MAX);
	for (; i < n; i += LANES)
		top[0] = larger(top[0], (ivec)load_some(x + i, n - i) & INT32_MAX);
	for (int j = 1; j < TOPS; j++)
		top[0] = larger(top[0], top[j]);
	for (int j = 0; j < LANES; j++)
		most = top[0][j] > most ? top[0][j] : most;
	return most;
}

/* big + high has one exponent whatever high is, so that its bits as an integer count units of the
 * last place: they are summed, which is exact too, beside the additions of double. */
struct cuts {
	dvec big[CUTS];
	lvec sum[CUTS]; /* of bits */
	lvec rest;      /* any bit that is left */
};

INLINE void cut(struct cuts *cuts, const int n, const float *x)
{
	dvec value = __builtin_convertvector(*(const half_vec *)x, dvec), rest;

	for (int i = 0; i < n; i++) {
		/* x^2 has 48 bits, so fused or not it is as exact. */
		dvec moved = i == 0 ? cuts->big[i] + value * value : cuts->big[i] + rest;
		dvec high = moved - cuts->big[i];

		cuts->sum[i] += (lvec)moved;
		rest = i == 0 ? value * value - high : rest - high;
	}
	cuts->rest |= (lvec)rest & (uint64_t)INT64_MAX;
}

/* The binary place of a cut, where no square needs more than 2^exponent. */
static int place_of(int exponent, int cut)
{
	return exponent - (cut + 1) * CUT_BITS;
}

static void prepare(struct cuts *cuts, int exponent)
{
	*cuts = (struct cuts){0};
	for (int i = 0; i < CUTS; i++)
		cuts->big[i] = ldexp(1.5, place_of(exponent, i) + 52) - (dvec){0};
}

/* The sum of so many cut-off parts in each lane, of more bits than a double has. */
static void add_total(
	struct exact_sum *sum, const struct cuts *cuts, int i, uint64_t terms, int exponent)
{
	uint64_t units = 0;

	for (int lane = 0; lane < HALF; lane++)
		units += cuts->sum[i][lane] - terms * ((lvec)cuts->big[i])[lane];
	exact_sum_add(sum, ldexp((double)((int64_t)units >> 32), place_of(exponent, i) + 32));
	exact_sum_add(sum, ldexp((double)(units & UINT32_MAX), place_of(exponent, i)));
}

/* False, and nothing added, when so many cuts are not enough. */
INLINE bool add_cuts(
	struct exact_sum *sum, const float *x, int64_t n, int exponent, const int n_cuts)
{
	struct cuts cuts;
	float padded[LANES] = {0};

	prepare(&cuts, exponent);
	for (int64_t i = 0; i + HALF <= n; i += HALF) {
		__builtin_prefetch(x + CHUNK + i);
		cut(&cuts, n_cuts, x + i);
	}
	memcpy(padded, x + n / HALF * HALF, (size_t)(n % HALF) * sizeof(*x));
	cut(&cuts, n_cuts, padded);
	for (int lane = 0; lane < HALF; lane++)
		if (cuts.rest[lane] != 0)
			return false;
	for (int i = 0; i < n_cuts; i++)
		add_total(sum, &cuts, i, (uint64_t)(n / HALF) + 1, exponent);
	return true;
}

/* False, and nothing added, when cuts are not enough or a value is no number. */
static bool add_chunk(struct exact_sum *sum, const float *x, int64_t n)
{
	int32_t bits = largest(x, n);
	float top;
	int exponent;

	memcpy(&top, &bits, sizeof(top));
	if (bits >= 0x7f800000)
		return false;
	frexp((double)top * (double)top, &exponent);
	return add_cuts(sum, x, n, exponent, FEW_CUTS) || add_cuts(sum, x, n, exponent, CUTS);
}

void CPU(sum_squares)(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += CHUNK) {
		int64_t count = n - i < CHUNK ? n - i : CHUNK;

		if (!add_chunk(sum, x + i, count))
			exact_sum_add_squares(sum, x + i, count);
	}
}
