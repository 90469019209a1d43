/* Kernels that work row by row: bias, norms, rotary embedding. Sums have an order that follows from
 * the shape alone. */
#include "kernels/cuda/device.cuh"

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

/* Grid: tiles of 32 columns. As above, over chunks. */
template <typename T> DEVICE void column_sums_body(const column_sums_launch &a)
{
	const int WARPS = 8;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int64_t column = (int64_t)blockIdx.x * 32 + lane;
	float *sums = (float *)SHARED_MEMORY, sum = 0.0f; /* [8][32] */
	T *out = (T *)a.out + column;

	for (int64_t chunk = warp; chunk < a.chunks && column < a.width; chunk += WARPS)
		sum += a.partial[chunk * a.stride + column];
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (warp != 0 || column >= a.width)
		return;
	sum = 0.0f;
	for (int w = 0; w < WARPS; w++)
		sum += sums[w * 32 + lane];
	put(out, a.accumulate ? to_float(*out) + sum : sum);
}
KERNEL_BOTH(column_sums, column_sums_body)

/* Grid: rows. The row is read once from memory and then from the first cache. */
template <typename T, bool CENTRED> DEVICE void norm_body(const norm_launch &a)
{
	const int N = lanes<T>::count;
	float *scratch = (float *)SHARED_MEMORY, sum = 0.0f, mean = 0.0f, rstd;
	int64_t row = blockIdx.x, step = (int64_t)blockDim.x * N, first = (int64_t)threadIdx.x * N;
	const T *x = (const T *)a.x + row * a.width;
	float v[N], weight[N], bias[N] = {0.0f};

	for (int64_t i = first; i < a.width && CENTRED; i += step) {
		load_some(v, x + i, a.width - i, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += v[j];
	}
	if (CENTRED)
		mean = block_sum(sum, scratch) / (float)a.width;
	sum = 0.0f;
	for (int64_t i = first; i < a.width; i += step) {
		load_some(v, x + i, a.width - i, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float d = i + j < a.width ? v[j] - mean : 0.0f;

			sum += d * d;
		}
	}
	rstd = 1.0f / sqrtf(block_sum(sum, scratch) / (float)a.width + a.epsilon);
	for (int64_t i = first; i < a.width; i += step) {
		int64_t rest = a.width - i;

		load_some(v, x + i, rest, a.vector);
		load_some(weight, (const T *)a.weight + i, rest, a.vector);
		if (a.bias)
			load_some(bias, (const T *)a.bias + i, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = (v[j] - mean) * rstd * weight[j] + bias[j];
		store_some((T *)a.y + row * a.width + i, v, rest, a.vector);
	}
	if (threadIdx.x == 0) {
		if (CENTRED)
			a.mean[row] = mean;
		a.rstd[row] = rstd;
	}
}

template <typename T> DEVICE void layernorm_body(const norm_launch &a)
{
	norm_body<T, true>(a);
}
KERNEL_BOTH(layernorm, layernorm_body)

template <typename T> DEVICE void rmsnorm_body(const norm_launch &a)
{
	norm_body<T, false>(a);
}
KERNEL_BOTH(rmsnorm, rmsnorm_body)

/* One row: with n = (x - mean) rstd and g = dy weight, dx = rstd (g - mean(g) - n mean(g n)), the
 * mean of g in layernorm only. Adds n dy and dy to the sums of the parameters; every column always
 * belongs to the same thread. */
template <typename T, bool CENTRED>
DEVICE void norm_backward_row(
	const norm_backward_launch &a, int64_t row, float *sums, float *scratch)
{
	const int N = lanes<T>::count;
	int64_t step = (int64_t)blockDim.x * N, first = (int64_t)threadIdx.x * N;
	const T *dy = (const T *)a.dy + row * a.width, *x = (const T *)a.x + row * a.width;
	T *dx = (T *)a.dx + row * a.width;
	float mean = CENTRED ? a.mean[row] : 0.0f, rstd = a.rstd[row];
	float sum_g = 0.0f, sum_gn = 0.0f, d[N], v[N], weight[N], old[N] = {0.0f};

	for (int64_t i = first; i < a.width; i += step) {
		int64_t rest = a.width - i;

		load_some(d, dy + i, rest, a.vector);
		load_some(v, x + i, rest, a.vector);
		load_some(weight, (const T *)a.weight + i, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float g = d[j] * weight[j];

			sum_g += g;
			sum_gn += g * ((v[j] - mean) * rstd);
		}
	}
	sum_g = CENTRED ? block_sum(sum_g, scratch) / (float)a.width : 0.0f;
	sum_gn = block_sum(sum_gn, scratch + 32) / (float)a.width;
	for (int64_t i = first; i < a.width; i += step) {
		int64_t rest = a.width - i;

		load_some(d, dy + i, rest, a.vector);
		load_some(v, x + i, rest, a.vector);
		load_some(weight, (const T *)a.weight + i, rest, a.vector);
		if (a.accumulate_dx)
			load_some(old, (const T *)dx + i, rest, a.vector);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float n = (v[j] - mean) * rstd;

			if (j < rest) {
				sums[i + j] += d[j] * n;
				if (a.sums == 2)
					sums[a.width + i + j] += d[j];
			}
			v[j] = rstd * (d[j] * weight[j] - sum_g - n * sum_gn) + old[j];
		}
		store_some(dx + i, v, rest, a.vector);
	}
}

/* Grid: chunks of rows. */
template <typename T, bool CENTRED> DEVICE void norm_backward_body(const norm_backward_launch &a)
{
	const int N = lanes<T>::count;
	float *scratch = (float *)SHARED_MEMORY;
	float *partial = a.partial + (int64_t)blockIdx.x * a.sums * a.width;
	float *sums = a.in_shared ? scratch + 64 : partial;
	int64_t step = (int64_t)blockDim.x * N, first = (int64_t)threadIdx.x * N;
	int64_t row = (int64_t)blockIdx.x * a.chunk, end = row + a.chunk;

	for (int64_t i = first; i < a.width; i += step) {
		for (int64_t j = i; j < i + N && j < a.width; j++) {
			sums[j] = 0.0f;
			if (a.sums == 2)
				sums[a.width + j] = 0.0f;
		}
	}
	for (; row < end && row < a.rows; row++)
		norm_backward_row<T, CENTRED>(a, row, sums, scratch);
	for (int64_t i = first; i < a.width && a.in_shared; i += step) {
		for (int64_t j = i; j < i + N && j < a.width; j++) {
			partial[j] = sums[j];
			if (a.sums == 2)
				partial[a.width + j] = sums[a.width + j];
		}
	}
}

template <typename T> DEVICE void layernorm_backward_body(const norm_backward_launch &a)
{
	norm_backward_body<T, true>(a);
}
KERNEL_BOTH(layernorm_backward, layernorm_backward_body)

template <typename T> DEVICE void rmsnorm_backward_body(const norm_backward_launch &a)
{
	norm_backward_body<T, false>(a);
}
KERNEL_BOTH(rmsnorm_backward, rmsnorm_backward_body)

/* The turns are taken modulo 1 in double, so that far positions keep their digits; what the angle
 * loses as a float is put back by the first term of the series. */
DEVICE void turn(double turns, float *sine, float *cosine)
{
	double angle = 2.0 * (turns - rint(turns));
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
		turn(position * a.frequency[i], &sine[i], &cosine[i]);
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
