/* Kernels that work row by row: bias, rotary embedding. Sums have an order that follows from
 * the shape alone. */
#include "kernels/cuda/device/elements.cuh"

/* Grid: (packs of columns, rows). */
template <typename T> DEVICE void bias_body(const bias_launch &a)
{
	const int N = lanes<T>::count;
	int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
	int64_t rest = a.width - column;
	float bias[N], y[N];

	if (rest <= 0)
		return;
	load_some(bias, (const T *)a.bias + column, rest, a.vector);
	for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
		T *at = (T *)a.y + row * a.width + column;

		load_some(y, at, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++)
			y[j] = y[j] + bias[j];
		store_some(at, y, rest, a.vector);
	}
}
KERNEL_BOTH(bias_add, bias_body)

/* Grid: (tiles of 32 packs of columns, chunks). Warp w adds rows w, w + 8, ...; then the warps are
 * added in order. */
template <typename T> DEVICE void columns_body(const columns_launch &a)
{
	const int N = lanes<T>::count, WARPS = 8;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int64_t column = ((int64_t)blockIdx.x * 32 + lane) * N, rest = a.width - column;
	int64_t row = (int64_t)blockIdx.y * a.chunk + warp,
		end = (int64_t)(blockIdx.y + 1) * a.chunk;
	float *sums = (float *)SHARED_MEMORY; /* [8][32 N] */
	float sum[N] = {0.0f}, x[N];

	end = end < a.rows ? end : a.rows;
	for (; row < end && rest > 0; row += WARPS) {
		load_some(x, (const T *)a.x + row * a.width + column, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] += x[j];
	}
#pragma unroll
	for (int j = 0; j < N; j++)
		sums[(warp * N + j) * 32 + lane] = sum[j];
	__syncthreads();
	for (int i = (int)threadIdx.x; i < 32 * N; i += 32 * WARPS) {
		int64_t to = (int64_t)blockIdx.x * 32 * N + (i % 32) * N + i / 32;
		float total = 0.0f;

		for (int w = 0; w < WARPS; w++)
			total += sums[w * 32 * N + i];
		if (to < a.width)
			a.partial[(int64_t)blockIdx.y * a.width + to] = total;
	}
}
KERNEL_BOTH(columns, columns_body)

/* Grid: (tiles of 32 columns, sums). As above, over chunks, with many loads in flight. */
template <typename T> DEVICE void column_sums_body(const column_sums_launch &a)
{
	const int WARPS = 32;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int64_t column = (int64_t)blockIdx.x * 32 + lane;
	const float *partial = a.partial + blockIdx.y * a.width + column;
	float *sums = (float *)SHARED_MEMORY, sum = 0.0f; /* [32][32] */
	T *out = (T *)a.outs[blockIdx.y] + column;

	if (column < a.width) {
#pragma unroll 8
		for (int chunk = warp; chunk < a.chunks; chunk += WARPS)
			sum += partial[chunk * a.stride];
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (warp != 0 || column >= a.width)
		return;
	sum = 0.0f;
#pragma unroll 8
	for (int w = 0; w < WARPS; w++)
		sum += sums[w * 32 + lane];
	put(out, a.accumulate ? to_float(*out) + sum : sum);
}
KERNEL_BOTH(column_sums, column_sums_body)

/* Rotations are taken modulo 1 in double, so that far positions keep their digits; what the angle
 * loses as a float is put back by the first term of the series. */
DEVICE void sin_cos_of(double rotations, float *sine, float *cosine)
{
	double angle = 2.0 * (rotations - rint(rotations));
	float near = (float)angle, rest = (float)((angle - (double)near) * 3.14159265358979324);
	float s, c;

	sin_cos_pi(near, &s, &c);
	*sine = fmaf(c, rest, s);
	*cosine = fmaf(-s, rest, c);
}

/* Grid: tokens. */
template <typename T> DEVICE void rope_body(const rope_launch &a)
{
	const int N = lanes<T>::count;
	int half = (int)(a.head_dim / 2), packs = (half + N - 1) / N;
	float *cosine = (float *)SHARED_MEMORY, *sine = cosine + half;
	T *x = (T *)a.x + (int64_t)blockIdx.x * a.stride;
	double position = (double)(blockIdx.x % (uint32_t)a.length);

	for (int i = (int)threadIdx.x; i < half; i += (int)blockDim.x)
		sin_cos_of(position * a.frequency[i], &sine[i], &cosine[i]);
	__syncthreads();
	for (int p = (int)threadIdx.x; p < (int)a.heads * packs; p += (int)blockDim.x) {
		int i = p % packs * N, rest = half - i;
		T *low = x + (int64_t)(p / packs) * a.head_dim + i, *high = low + half;
		float u[N], v[N];

		load_some(u, low, rest, a.vector);
		load_some(v, high, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float c = j < rest ? cosine[i + j] : 0.0f,
			      s = j < rest ? sine[i + j] : 0.0f;
			float turned = u[j] * c - v[j] * s;

			v[j] = v[j] * c + u[j] * s;
			u[j] = turned;
		}
		store_some(low, u, rest, a.vector);
		store_some(high, v, rest, a.vector);
	}
}
KERNEL_BOTH(rope, rope_body)
