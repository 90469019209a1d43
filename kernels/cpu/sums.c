/* The exact sum of squares, many values at a time: adding and subtracting a large constant cuts
 * every square at one binary place, without rounding, so that the cut-off high parts can be summed
 * exactly in double (Rump 2008, "extraction"). Three such cuts take everything of a chunk whose
 * values are not too far apart; any other chunk goes the slow way. The sum is exact either way, so
 * its bits are those of every other table. */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

enum {
	CHUNK = 4096,
	/* Of a cut; up to 2^12 values of a chunk add 12 more: below the 53 of a double. */
	CUT_BITS = 40,
	CUTS = 3,
	HALF = LANES / 2,
};

typedef double dvec __attribute__((vector_size(8 * HALF), may_alias));
typedef int64_t lvec __attribute__((vector_size(8 * HALF), may_alias));
typedef float half_vec __attribute__((vector_size(4 * HALF), may_alias, aligned(4)));

/* Bits of the largest |x|: as integers they are ordered, NaN above infinity above numbers. */
static int32_t largest(const float *x, int64_t n)
{
	ivec top = {0};
	int32_t most = 0;

	for (int64_t i = 0; i < n; i += LANES) {
		ivec bits = (ivec)load_some(x + i, n - i) & 0x7fffffff;
		ivec more = bits > top;

		top = (more & bits) | (~more & top);
	}
	for (int i = 0; i < LANES; i++)
		most = top[i] > most ? top[i] : most;
	return most;
}

struct cuts {
	dvec big[CUTS], sum[CUTS];
	lvec rest; /* any bit that is left */
};

INLINE void cut(struct cuts *cuts, const float *x)
{
	dvec value = __builtin_convertvector(*(const half_vec *)x, dvec);

	value *= value;
	for (int i = 0; i < CUTS; i++) {
		dvec high = (cuts->big[i] + value) - cuts->big[i];

		cuts->sum[i] += high;
		value -= high;
	}
	cuts->rest |= (lvec)value & INT64_MAX;
}

static void prepare(struct cuts *cuts, double top)
{
	int exponent;

	*cuts = (struct cuts){0};
	frexp(top * top, &exponent);
	for (int i = 0; i < CUTS; i++)
		cuts->big[i] = ldexp(1.5, exponent - (i + 1) * CUT_BITS + 52) - (dvec){0};
}

/* False, and nothing added, when three cuts are not enough or a value is no number. */
static bool add_chunk(struct exact_sum *sum, const float *x, int64_t n)
{
	int32_t bits = largest(x, n);
	struct cuts cuts;
	float top, padded[LANES] = {0};

	memcpy(&top, &bits, sizeof(top));
	if (bits >= 0x7f800000)
		return false;
	prepare(&cuts, (double)top);
	for (int64_t i = 0; i + HALF <= n; i += HALF)
		cut(&cuts, x + i);
	memcpy(padded, x + n / HALF * HALF, (size_t)(n % HALF) * sizeof(*x));
	cut(&cuts, padded);
	for (int lane = 0; lane < HALF; lane++)
		if (cuts.rest[lane] != 0)
			return false;
	for (int i = 0; i < CUTS; i++) {
		double total = 0;

		for (int lane = 0; lane < HALF; lane++)
			total += cuts.sum[i][lane];
		exact_sum_add(sum, total);
	}
	return true;
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
