/* AdamW and SGD of weights and moments that are kept in bf16: fp32 arithmetic, stochastic rounding.
 *
 * Philox runs in lanes of 64 bits, of which the lower half counts (what a product of 32-bit numbers
 * reads): LANES / 2 blocks at a time, each for two consecutive elements. */
#include "kernels/common/common.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/cpu.h"

typedef uint64_t qvec __attribute__((vector_size(4 * LANES), may_alias));

enum { BLOCKS = LANES / 2 };

/* The random words of LANES elements. */
struct words {
	uvec first, second;
};

struct generator {
	uint32_t round_key[PHILOX_ROUNDS][2];
	const struct rounding *rounding;
};

static struct generator generator_of(const struct rounding *rounding)
{
	struct generator g = {.rounding = rounding};

	for (int i = 0; i < PHILOX_ROUNDS; i++) {
		g.round_key[i][0] = rounding->key[0] + (uint32_t)i * PHILOX_WEYL_0;
		g.round_key[i][1] = rounding->key[1] + (uint32_t)i * PHILOX_WEYL_1;
	}
	return g;
}

/* Multiplies the lower halves. */
INLINE qvec multiply(qvec a, uint32_t b)
{
	qvec factor = (uint64_t)b - (qvec){0};

#if defined(__AVX512F__)
	return (qvec)_mm512_mul_epu32((__m512i)a, (__m512i)factor);
#elif defined(__AVX2__)
	return (qvec)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
#elif defined(__SSE2__) && LANES == 4
	return (qvec)_mm_mul_epu32((__m128i)a, (__m128i)factor);
#else
	return (a & 0xffffffff) * factor;
#endif
}

/* The lower halves of a and b side by side: words 0 and 1, or 2 and 3, of each block. */
INLINE uvec pair(qvec a, qvec b)
{
	qvec low = a & 0xffffffff;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	return (uvec)(low << 32 | (b & 0xffffffff));
#else
	return (uvec)(low | b << 32);
#endif
}

/* Draws from element `i` of the call on, whose number is even. */
INLINE struct words draw(const struct generator *g, int64_t i)
{
	const struct rounding *r = g->rounding;
	qvec block = (uint64_t)(r->first + i) / 2 - (qvec){0};

	for (int lane = 0; lane < BLOCKS; lane++)
		block[lane] += (uint64_t)lane;
	qvec c0 = block, c1 = block >> 32;
	qvec c2 = (uint64_t)r->stream[0] - (qvec){0}, c3 = (uint64_t)r->stream[1] - (qvec){0};

	for (int round = 0; round < PHILOX_ROUNDS; round++) {
		qvec p0 = multiply(c0, PHILOX_MULTIPLIER_0);
		qvec p1 = multiply(c2, PHILOX_MULTIPLIER_1);

		c0 = (p1 >> 32) ^ c1 ^ (uint64_t)g->round_key[round][0];
		c2 = (p0 >> 32) ^ c3 ^ (uint64_t)g->round_key[round][1];
		c1 = p1;
		c3 = p0;
	}
	return (struct words){pair(c0, c1), pair(c2, c3)};
}

/* The first element of the call alone, where its number is odd: it has the second half of a block.
 */
static struct words draw_one(const struct rounding *r)
{
	uint64_t block = (uint64_t)r->first / 2;
	const uint32_t counter[] = {
		(uint32_t)block, (uint32_t)(block >> 32), r->stream[0], r->stream[1]};
	uint32_t out[4];

	philox4x32(counter, r->key, out);
	return (struct words){{out[1]}, {out[3]}};
}

/* Rounds by the lower 16 bits of `random`; a NaN stays one. */
INLINE hvec narrow_by_chance(vec x, uvec random)
{
	uvec bits = (uvec)x, nan = (uvec)(x != x);
	uvec rounded = (bits + (random & 0xffff)) >> 16;

	return __builtin_convertvector((~nan & rounded) | (nan & (bits >> 16 | 0x40)), hvec);
}

INLINE void store_by_chance(uint16_t *p, vec x, uvec random, int64_t n)
{
	hvec narrow = narrow_by_chance(x, random);

	if (__builtin_expect(n >= LANES, 1)) {
		*(hvec_unaligned *)p = narrow;
		return;
	}
	uint16_t lane[LANES];
	*(hvec_unaligned *)lane = narrow;
	memcpy(p, lane, (size_t)n * sizeof(*p));
}

INLINE void adamw_some(const struct adamw *a, const struct adamw_constants *constants,
	struct words words, int64_t i, int64_t n)
{
	uint16_t *pw = (uint16_t *)a->w + i, *pm = (uint16_t *)a->m + i, *pv = (uint16_t *)a->v + i;
	vec w = load_bf16(pw, n), m = load_bf16(pm, n), v = load_bf16(pv, n);

	adamw_step(constants, &w, &m, &v, load_some(a->g + i, n));
	store_by_chance(pw, w, words.first, n);
	store_by_chance(pm, m, words.first >> 16, n);
	store_by_chance(pv, v, words.second, n);
}

void CPU(adamw_bf16)(const struct adamw *a)
{
	const struct adamw_constants constants = adamw_constants(a);
	const struct generator generator = generator_of(&a->rounding);
	int64_t i = 0;

	if (a->rounding.first % 2 != 0 && a->n > 0) {
		adamw_some(a, &constants, draw_one(&a->rounding), 0, 1);
		i = 1;
	}
	for (; i < a->n; i += LANES)
		adamw_some(a, &constants, draw(&generator, i), i, a->n - i);
}

INLINE void sgd_some(const struct sgd *s, struct words words, int64_t i, int64_t n)
{
	uint16_t *p = (uint16_t *)s->w + i;
	vec w = load_bf16(p, n);
	vec d = load_some(s->g + i, n) * s->gradient_scale + s->weight_decay * w;

	store_by_chance(p, w - s->lr * d, words.first, n);
}

void CPU(sgd_bf16)(const struct sgd *s)
{
	const struct generator generator = generator_of(&s->rounding);
	int64_t i = 0;

	if (s->rounding.first % 2 != 0 && s->n > 0) {
		sgd_some(s, draw_one(&s->rounding), 0, 1);
		i = 1;
	}
	for (; i < s->n; i += LANES)
		sgd_some(s, draw(&generator, i), i, s->n - i);
}
