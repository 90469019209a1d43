/* Element-wise kernels: one pack of 16 bytes per thread and array, the tail one by one. Compiled
 * without contraction, so that an element's bits do not depend on where it stands. */
#include "kernels/cuda/device/elements.cuh"

DEVICE float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

/* 2 u of 0.5 x (1 + tanh(u)) = x sigmoid(2 u). */
DEVICE float gelu_argument(float x)
{
	return 1.5957691216057308f * (x + 0.044715f * x * x * x);
}

DEVICE float normal(float x)
{
	return 0.5f * erfcf(-0.70710678118654752f * x);
}

DEVICE float gelu(int kind, float x)
{
	return x * (kind == 0 ? sigmoid(gelu_argument(x)) : normal(x));
}

/* Far out the slope is 0 or 1 and its terms would be 0 times infinity: c is x where it matters. */
DEVICE float gelu_slope(int kind, float x)
{
	float c = fminf(fmaxf(x, -15.0f), 15.0f);

	if (kind == 0) {
		float s = sigmoid(gelu_argument(x));

		return s + c * s * (1.0f - s) * (1.5957691216057308f * (1.0f + 0.134145f * c * c));
	}
	return normal(x) + c * (0.39894228040143268f * expf(-0.5f * c * c));
}

/* y = f(x), and y = f(x, z); x is of type X, y and z of type Y. */
template <typename Y, typename X, typename F>
DEVICE void map(const flat_launch &a, const void *from, F f)
{
	const int N = lanes<Y, X>::count;
	float x[N];

	FLAT_RANGE(N);
	load_some(x, (const X *)from + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = f(x[j]);
	store_some((Y *)a.y + i, x, rest, vector);
}

template <typename Y, typename X, typename F>
DEVICE void map(const flat_launch &a, const void *from, const void *and_from, F f)
{
	const int N = lanes<Y, X>::count;
	float x[N], z[N];

	FLAT_RANGE(N);
	load_some(x, (const X *)from + i, rest, vector);
	load_some(z, (const Y *)and_from + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		z[j] = f(x[j], z[j]);
	store_some((Y *)a.y + i, z, rest, vector);
}

template <typename T> DEVICE void gelu_body(const flat_launch &a)
{
	map<T, T>(a, a.a, [&a](float x) { return gelu(a.kind, x); });
}
KERNEL_BOTH(gelu, gelu_body)

/* a = dy, b = x */
template <typename T> DEVICE void gelu_backward_body(const flat_launch &a)
{
	map<T, T>(a, a.a, a.b, [&a](float dy, float x) { return dy * gelu_slope(a.kind, x); });
}
KERNEL_BOTH(gelu_backward, gelu_backward_body)

/* a = gate, b = up */
template <typename T> DEVICE void swiglu_body(const flat_launch &a)
{
	map<T, T>(a, a.a, a.b, [](float gate, float up) { return gate * sigmoid(gate) * up; });
}
KERNEL_BOTH(swiglu, swiglu_body)

/* Where element i of rows that follow each other lies among rows that are `stride` apart. */
DEVICE int64_t strided(const swiglu_launch &a, int64_t i)
{
	return a.stride == a.width ? i : i + i / a.width * (a.stride - a.width);
}

/* A pack has elements of one row where rows allow packs; else each finds its own. */
template <typename T, int N>
DEVICE void store_strided(const swiglu_launch &a, T *to, const float (&v)[N], int64_t i)
{
	if (a.vector || a.stride == a.width) {
		store_some(to + strided(a, i), v, a.n - i, a.vector);
		return;
	}
#pragma unroll
	for (int j = 0; j < N; j++) {
		if (i + j < a.n)
			put(to + strided(a, i + j), v[j]);
	}
}

template <typename T> DEVICE void swiglu_backward_body(const swiglu_launch &a)
{
	const int N = lanes<T>::count;
	float dy[N], gate[N], up[N];

	FLAT_RANGE(N);
	load_some(dy, (const T *)a.dy + i, rest, vector);
	load_some(gate, (const T *)a.gate + i, rest, vector);
	load_some(up, (const T *)a.up + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++) {
		float s = sigmoid(gate[j]), g = gate[j];

		gate[j] = dy[j] * up[j] * s * (1.0f + g * (1.0f - s));
		up[j] = dy[j] * g * s;
	}
	store_strided(a, (T *)a.dgate, gate, i);
	store_strided(a, (T *)a.dup, up, i);
}
KERNEL_BOTH(swiglu_backward, swiglu_backward_body)

/* y = a + b */
template <typename T> DEVICE void add_body(const flat_launch &a)
{
	map<T, T>(a, a.a, a.b, [](float x, float z) { return x + z; });
}
KERNEL_BOTH(add, add_body)

/* y += a */
template <typename Y, typename T> DEVICE void accumulate_body(const flat_launch &a)
{
	map<Y, T>(a, a.a, a.y, [](float x, float y) { return y + x; });
}
KERNEL_PAIRS(accumulate, accumulate_body)

/* y = a; with equal types a copy */
template <typename Y, typename T> DEVICE void convert_body(const flat_launch &a)
{
	map<Y, T>(a, a.a, [](float x) { return x; });
}
KERNEL_PAIRS(convert, convert_body)

template <typename T> DEVICE void zero_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float x[N] = {0.0f};

	FLAT_RANGE(N);
	store_some((T *)a.y + i, x, rest, vector);
}
KERNEL_BOTH(zero, zero_body)

/* y *= factor, or the one that a names */
KERNEL(scale)
{
	float y[4], factor = a.a ? *(const float *)a.a : a.factor;

	FLAT_RANGE(4);
	load_some(y, (const float *)a.y + i, rest, vector);
#pragma unroll
	for (int j = 0; j < 4; j++)
		y[j] = y[j] * factor;
	store_some((float *)a.y + i, y, rest, vector);
}

DEVICE float rounded(float x, float)
{
	return x;
}

DEVICE float rounded(float x, bf16)
{
	return bits_as_float(bf16_pair(x, 0.0f) << 16);
}

/* The sum of 2^FIRST sources from `source` on is added to the tree: `level[l]` holds the sum of 2^l
 * sources, as a binary counter holds bits. Indices are known when compiled. */
template <typename T, int FIRST, int LEVELS, int N>
DEVICE void tree_add(float (&level)[LEVELS][N], float (&sum)[N], int source)
{
	bool carry = true;

#pragma unroll
	for (int l = FIRST; l < LEVELS; l++) {
		bool full = source >> l & 1;
#pragma unroll
		for (int j = 0; j < N; j++) {
			if (carry && full)
				sum[j] = rounded(level[l][j] + sum[j], T());
			else if (carry)
				level[l][j] = sum[j];
		}
		carry = carry && full;
	}
}

/* The tree of 8 sources, all of them loaded at once. */
template <typename T, int N>
DEVICE void tree_of_eight(float (&sum)[N], const void *const *sources, int64_t i)
{
	raw<T> x[8];
	float low[N], pair[N], next[N];

#pragma unroll
	for (int k = 0; k < 8; k++)
		x[k] = fetch<true>((const T *)sources[k] + i, N);
#pragma unroll
	for (int k = 0; k < 8; k += 4) {
		spread(sum, x[k]), spread(next, x[k + 1]);
#pragma unroll
		for (int j = 0; j < N; j++)
			pair[j] = rounded(sum[j] + next[j], T());
		spread(sum, x[k + 2]), spread(next, x[k + 3]);
#pragma unroll
		for (int j = 0; j < N; j++) {
			sum[j] = rounded(sum[j] + next[j], T());
			sum[j] = rounded(pair[j] + sum[j], T());
			low[j] = k == 0 ? sum[j] : low[j];
		}
	}
#pragma unroll
	for (int j = 0; j < N; j++)
		sum[j] = rounded(low[j] + sum[j], T());
}

/* The declared tree, left to right; what is left at the end is summed from the right. */
template <typename T, int LEVELS> DEVICE void tree_body(const tree_launch &a)
{
	const int N = lanes<T>::count;
	float level[LEVELS][N], sum[N];
	bool any = false;
	int source = 0;

	FLAT_RANGE(N);
	for (; vector && rest >= N && source + 8 <= a.count; source += 8) {
		tree_of_eight<T>(sum, a.sources + source, i);
		tree_add<T, 3>(level, sum, source);
	}
#pragma unroll 1
	for (; source < a.count; source++) {
		load_some(sum, (const T *)a.sources[source] + i, rest, vector);
		tree_add<T, 0>(level, sum, source);
	}
#pragma unroll
	for (int l = 0; l < LEVELS; l++) {
		if (!(a.count >> l & 1))
			continue;
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] = any ? rounded(level[l][j] + sum[j], T()) : level[l][j];
		any = true;
	}
	store_some((T *)a.y + i, sum, rest, vector);
}

KERNEL_BOTH(tree_few, tree_body, 5)
KERNEL_BOTH(tree_many, tree_body, 13)

KERNEL(store)
{
	if ((int)threadIdx.x < a.count)
		a.to[threadIdx.x] = a.words[threadIdx.x];
}

/* Block y copies a stretch of segment y. */
template <typename T, bool PACK> DEVICE void pack_body(const pack_launch &a)
{
	const int N = lanes<T>::count;
	const pack_segment &s = a.segments[blockIdx.y];
	T *flat = (T *)a.flat + s.offset, *tensor = (T *)s.tensor;
	const T *from = PACK ? tensor : flat;
	T *to = PACK ? flat : tensor;
	bool vector = (((uintptr_t)from | (uintptr_t)to) & (N * sizeof(T) - 1)) == 0;
	int64_t step = (int64_t)gridDim.x * blockDim.x * N;

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < s.count;
		i += step) {
		float x[N];

		load_some(x, from + i, s.count - i, vector);
		store_some(to + i, x, s.count - i, vector);
	}
}

KERNEL_BOTH(pack, pack_body, true)
KERNEL_BOTH(unpack, pack_body, false)
