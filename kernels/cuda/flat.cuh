/* Element-wise kernels: one pack of 16 bytes per thread and array, the tail one by one. Compiled
 * without contraction, so that an element's bits do not depend on where it stands. */
#include "kernels/cuda/device.cuh"

/* i: the first element of this thread; rest: how many there are from there. */
#define FLAT_RANGE(lanes)                                                                          \
	int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (lanes), rest = a.n - i;    \
	bool vector = a.vector;                                                                    \
	if (rest <= 0)                                                                             \
	return

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

template <typename T> DEVICE void gelu_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float x[N];

	FLAT_RANGE(N);
	load_some(x, (const T *)a.a + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = gelu(a.kind, x[j]);
	store_some((T *)a.y + i, x, rest, vector);
}
KERNEL_BOTH(gelu, gelu_body)

/* a = dy, b = x */
template <typename T> DEVICE void gelu_backward_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float dy[N], x[N];

	FLAT_RANGE(N);
	load_some(dy, (const T *)a.a + i, rest, vector);
	load_some(x, (const T *)a.b + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = dy[j] * gelu_slope(a.kind, x[j]);
	store_some((T *)a.y + i, x, rest, vector);
}
KERNEL_BOTH(gelu_backward, gelu_backward_body)

/* a = gate, b = up */
template <typename T> DEVICE void swiglu_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float gate[N], up[N];

	FLAT_RANGE(N);
	load_some(gate, (const T *)a.a + i, rest, vector);
	load_some(up, (const T *)a.b + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		up[j] = gate[j] * sigmoid(gate[j]) * up[j];
	store_some((T *)a.y + i, up, rest, vector);
}
KERNEL_BOTH(swiglu, swiglu_body)

/* a = dy, b = gate, c = up; y = dgate, y2 = dup */
template <typename T> DEVICE void swiglu_backward_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float dy[N], gate[N], up[N];

	FLAT_RANGE(N);
	load_some(dy, (const T *)a.a + i, rest, vector);
	load_some(gate, (const T *)a.b + i, rest, vector);
	load_some(up, (const T *)a.c + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++) {
		float s = sigmoid(gate[j]), g = gate[j];

		gate[j] = dy[j] * up[j] * s * (1.0f + g * (1.0f - s));
		up[j] = dy[j] * g * s;
	}
	store_some((T *)a.y + i, gate, rest, vector);
	store_some((T *)a.y2 + i, up, rest, vector);
}
KERNEL_BOTH(swiglu_backward, swiglu_backward_body)

/* y = a + b */
template <typename T> DEVICE void add_body(const flat_launch &a)
{
	const int N = lanes<T>::count;
	float x[N], y[N];

	FLAT_RANGE(N);
	load_some(x, (const T *)a.a + i, rest, vector);
	load_some(y, (const T *)a.b + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = x[j] + y[j];
	store_some((T *)a.y + i, x, rest, vector);
}
KERNEL_BOTH(add, add_body)

/* y += a */
template <typename Y, typename T> DEVICE void accumulate_body(const flat_launch &a)
{
	const int N = lanes<Y, T>::count;
	float x[N], y[N];

	FLAT_RANGE(N);
	load_some(x, (const T *)a.a + i, rest, vector);
	load_some(y, (const Y *)a.y + i, rest, vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		y[j] = y[j] + x[j];
	store_some((Y *)a.y + i, y, rest, vector);
}
KERNEL_PAIRS(accumulate, accumulate_body)

/* y = a; with equal types a copy */
template <typename Y, typename T> DEVICE void convert_body(const flat_launch &a)
{
	const int N = lanes<Y, T>::count;
	float x[N];

	FLAT_RANGE(N);
	load_some(x, (const T *)a.a + i, rest, vector);
	store_some((Y *)a.y + i, x, rest, vector);
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

/* y -= rate * (a * scale + decay * y); b and c name the factors and the scale, if they are on the
 * device */
KERNEL(sgd)
{
	float w[4], g[4];
	const sgd_factors *now = (const sgd_factors *)a.b;
	float rate = now ? now->rate : a.factor, decay = now ? now->decay : a.decay;
	float scale = a.c ? *(const float *)a.c : a.gradient_scale;

	FLAT_RANGE(4);
	load_some(w, (const float *)a.y + i, rest, vector);
	load_some(g, (const float *)a.a + i, rest, vector);
#pragma unroll
	for (int j = 0; j < 4; j++)
		w[j] = w[j] - rate * (g[j] * scale + decay * w[j]);
	store_some((float *)a.y + i, w, rest, vector);
}

/* The same roundings in the same order as on the CPU. */
KERNEL(adamw)
{
	float w[4], m[4], v[4], g[4];
	float scale = a.scale ? *a.scale : a.gradient_scale;
	adamw_factors f = a.now ? *a.now : a.factors;

	FLAT_RANGE(4);
	load_some(w, (const float *)a.w + i, rest, vector);
	load_some(m, (const float *)a.m + i, rest, vector);
	load_some(v, (const float *)a.v + i, rest, vector);
	load_some(g, a.g + i, rest, vector);
#pragma unroll
	for (int j = 0; j < 4; j++) {
		float x = g[j] * scale;

		m[j] = m[j] + a.take1 * (x - m[j]);
		v[j] = a.beta2 * v[j] + a.take2 * (x * x);
		w[j] = w[j] * f.keep - f.step * (m[j] / (sqrtf(v[j]) / f.root + a.epsilon));
	}
	store_some(a.w + i, w, rest, vector);
	store_some(a.m + i, m, rest, vector);
	store_some(a.v + i, v, rest, vector);
	if (a.copy)
		store_some((bf16 *)a.copy + i, w, rest, vector);
}

DEVICE float rounded(float x, float)
{
	return x;
}

DEVICE float rounded(float x, bf16)
{
	return bits_as_float(bf16_pair(x, 0.0f) << 16);
}

/* The declared tree, left to right: `level[l]` holds the sum of 2^l sources, as a binary counter
 * holds bits; what is left at the end is summed from the right. Indices are known when compiled. */
template <typename T, int LEVELS> DEVICE void tree_body(const tree_launch &a)
{
	const int N = 4;
	float level[LEVELS][N], sum[N];
	bool any = false;

	FLAT_RANGE(N);
	for (int source = 0; source < a.count; source++) {
		bool carry = true;

		load_some(sum, (const T *)a.sources[source] + i, rest, vector);
#pragma unroll
		for (int l = 0; l < LEVELS; l++) {
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

template <typename T> DEVICE void tree_few_body(const tree_launch &a)
{
	tree_body<T, 5>(a);
}
KERNEL_BOTH(tree_few, tree_few_body)

template <typename T> DEVICE void tree_many_body(const tree_launch &a)
{
	tree_body<T, 13>(a);
}
KERNEL_BOTH(tree_many, tree_many_body)

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

template <typename T> DEVICE void pack_in(const pack_launch &a)
{
	pack_body<T, true>(a);
}

template <typename T> DEVICE void pack_out(const pack_launch &a)
{
	pack_body<T, false>(a);
}
KERNEL_BOTH(pack, pack_in)
KERNEL_BOTH(unpack, pack_out)
