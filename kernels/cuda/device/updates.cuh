/* Updates of weights: a thread takes one pack of each state, the tail one by one. Arithmetic is in
 * fp32, in the order of the CPU's, without contraction. States in bf16 are rounded by chance. */
#include "kernels/cuda/device/elements.cuh"

/* The two random words of each of N elements from `i` on: a block of Philox has those of two
 * elements, and the first may be the second of its block. */
template <int N>
DEVICE void random_words(uint32_t (&of)[N + 1][2], const rounding &how, uint32_t draw, int64_t i)
{
	uint64_t element = (uint64_t)(how.first + i);
	bool odd = element % 2;

#pragma unroll
	for (int k = 0; k <= N; k += 2) {
		uint64_t block = element / 2 + k / 2;
		const uint32_t counter[4] = {
			(uint32_t)block, (uint32_t)(block >> 32), how.stream[0], draw};
		uint32_t words[4] = {0, 0, 0, 0};

		if (k < N || odd)
			philox4x32(counter, how.key, words);
		of[k][0] = words[0], of[k][1] = words[2];
		if (k < N)
			of[k + 1][0] = words[1], of[k + 1][1] = words[3];
	}
#pragma unroll
	for (int j = 0; j < N; j++) {
		of[j][0] = odd ? of[j + 1][0] : of[j][0];
		of[j][1] = odd ? of[j + 1][1] : of[j][1];
	}
}

/* By the lower 16 bits of `random`; a NaN stays one. */
DEVICE uint32_t half_by_chance(float x, uint32_t random)
{
	uint32_t bits = bits_of_float(x);

	return x != x ? bits >> 16 | 0x40 : (bits + (random & 0xffff)) >> 16;
}

/* Eight elements by the half of their random words that `shift` puts below. NUMBERS: none of them
 * is a NaN, which saves the questions. */
template <bool NUMBERS>
DEVICE uint4 halves_by_chance(
	const float (&x)[8], const uint32_t (&words)[9][2], int word, int shift)
{
	uint32_t pair[4];

#pragma unroll
	for (int j = 0; j < 8; j += 2) {
		uint32_t low = words[j][word] >> shift, high = words[j + 1][word] >> shift;

		if (NUMBERS)
			pair[j / 2] = upper_halves(bits_of_float(x[j]) + (low & 0xffff),
				bits_of_float(x[j + 1]) + (high & 0xffff));
		else
			pair[j / 2] = half_by_chance(x[j], low) | half_by_chance(x[j + 1], high)
									  << 16;
	}
	return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

DEVICE void store_halves(bf16 *to, const uint4 &half, int64_t rest, bool vector)
{
	const uint32_t pair[4] = {half.x, half.y, half.z, half.w};

	if (vector && rest >= 8) {
		*(uint4 *)to = half;
		return;
	}
#pragma unroll
	for (int j = 0; j < 8; j++) {
		if (j < rest)
			to[j].bits = (uint16_t)(pair[j / 2] >> 16 * (j % 2));
	}
}

/* False where one is a NaN; also where infinities cancel, which costs time only. */
DEVICE bool all_numbers(const float (&x)[8])
{
	float sum = x[0];

#pragma unroll
	for (int j = 1; j < 8; j++)
		sum += x[j];
	return sum == sum;
}

/* N elements of fp32 are one pack or two. */
template <int N> DEVICE void fetch_floats(raw<float> (&x)[N / 4], const float *from)
{
#pragma unroll
	for (int k = 0; k < N / 4; k++)
		x[k] = fetch<true>(from + 4 * k, 4);
}

template <int N> DEVICE void spread_floats(float (&v)[N], const raw<float> (&x)[N / 4])
{
#pragma unroll
	for (int k = 0; k < N / 4; k++) {
		float four[4];

		spread(four, x[k]);
#pragma unroll
		for (int j = 0; j < 4; j++)
			v[4 * k + j] = four[j];
	}
}

/* w -= rate * (g * scale + decay * w): what elements i and those behind it become. */
template <typename T, int N>
DEVICE void sgd_step(const sgd_launch &a, int64_t i, int64_t rest, bool vector, float (&w)[N])
{
	float scale = a.scale ? *a.scale : a.gradient_scale, g[N];
	sgd_factors f = a.now ? *a.now : a.factors;

	if (vector && rest >= N) {
		raw<T> packed = fetch<true>((const T *)a.w + i, N);
		raw<float> gradient[N / 4];

		fetch_floats<N>(gradient, a.g + i);
		spread(w, packed);
		spread_floats(g, gradient);
	} else {
		load_some(w, (const T *)a.w + i, rest, false);
		load_some(g, a.g + i, rest, false);
	}
#pragma unroll
	for (int j = 0; j < N; j++)
		w[j] = w[j] - f.rate * (g[j] * scale + f.decay * w[j]);
}

KERNEL(sgd_fp32)
{
	float w[4];

	FLAT_RANGE(4);
	sgd_step<float>(a, i, rest, vector, w);
	store_some((float *)a.w + i, w, rest, vector);
}

KERNEL(sgd_bf16)
{
	float w[8];
	uint32_t words[9][2], draw = a.now ? a.now->draw : a.factors.draw;
	uint4 half;

	FLAT_RANGE(8);
	sgd_step<bf16>(a, i, rest, vector, w);
	random_words<8>(words, a.rounding, draw, i);
	half = all_numbers(w) ? halves_by_chance<true>(w, words, 0, 0)
			      : halves_by_chance<false>(w, words, 0, 0);
	store_halves((bf16 *)a.w + i, half, rest, vector);
}

/* The states and the gradient from element i on, all of them in flight before one is spread: a
 * thread that waited for each would have a quarter of its bytes in flight. */
template <typename T, int N>
DEVICE void load_states(const adamw_launch &a, int64_t i, int64_t rest, bool vector, float (&w)[N],
	float (&m)[N], float (&v)[N], float (&g)[N])
{
	if (vector && rest >= N) {
		raw<T> packed_w = fetch<true>((const T *)a.w + i, N);
		raw<T> packed_m = fetch<true>((const T *)a.m + i, N);
		raw<T> packed_v = fetch<true>((const T *)a.v + i, N);
		raw<float> gradient[N / 4];

		fetch_floats<N>(gradient, a.g + i);
		spread(w, packed_w), spread(m, packed_m), spread(v, packed_v);
		spread_floats(g, gradient);
		return;
	}
	load_some(w, (const T *)a.w + i, rest, false);
	load_some(m, (const T *)a.m + i, rest, false);
	load_some(v, (const T *)a.v + i, rest, false);
	load_some(g, a.g + i, rest, false);
}

/* The same roundings in the same order as on the CPU. */
template <typename T, int N>
DEVICE void adamw_step(const adamw_launch &a, int64_t i, int64_t rest, bool vector, float (&w)[N],
	float (&m)[N], float (&v)[N])
{
	float scale = a.scale ? *a.scale : a.gradient_scale, g[N];
	adamw_factors f = a.now ? *a.now : a.factors;

	load_states<T>(a, i, rest, vector, w, m, v, g);
#pragma unroll
	for (int j = 0; j < N; j++) {
		float x = g[j] * scale;

		m[j] = m[j] + a.take1 * (x - m[j]);
		v[j] = a.beta2 * v[j] + a.take2 * (x * x);
		w[j] = w[j] * f.keep - f.step * (m[j] / (sqrtf(v[j]) / f.root + a.epsilon));
	}
}

KERNEL(adamw_fp32)
{
	float w[4], m[4], v[4];

	FLAT_RANGE(4);
	adamw_step<float>(a, i, rest, vector, w, m, v);
	store_some((float *)a.w + i, w, rest, vector);
	store_some((float *)a.m + i, m, rest, vector);
	store_some((float *)a.v + i, v, rest, vector);
	if (a.copy)
		store_some((bf16 *)a.copy + i, w, rest, vector);
}

KERNEL(adamw_bf16)
{
	float w[8], m[8], v[8];
	uint32_t words[9][2], draw = a.now ? a.now->draw : a.factors.draw;
	uint4 half[3];

	FLAT_RANGE(8);
	adamw_step<bf16>(a, i, rest, vector, w, m, v);
	random_words<8>(words, a.rounding, draw, i);
	if (all_numbers(w)) { /* and so m and v: their NaNs are in w too */
		half[0] = halves_by_chance<true>(w, words, 0, 0);
		half[1] = halves_by_chance<true>(m, words, 0, 16);
		half[2] = halves_by_chance<true>(v, words, 1, 0);
	} else {
		half[0] = halves_by_chance<false>(w, words, 0, 0);
		half[1] = halves_by_chance<false>(m, words, 0, 16);
		half[2] = halves_by_chance<false>(v, words, 1, 0);
	}
	store_halves((bf16 *)a.w + i, half[0], rest, vector);
	store_halves((bf16 *)a.m + i, half[1], rest, vector);
	store_halves((bf16 *)a.v + i, half[2], rest, vector);
	if (a.copy)
		store_halves((bf16 *)a.copy + i, half[0], rest, vector);
}
