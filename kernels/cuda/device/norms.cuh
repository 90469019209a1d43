/* Layernorm and rmsnorm. A row stays in the registers of a warp or of a block; rows too long for
 * that are read twice. Which threads have which columns follows from the width alone. */
#include "kernels/cuda/device/elements.cuh"

/* Whether this thread has column j of its pack; rows of whole packs have all of a pack or none. */
template <bool VECTOR> DEVICE bool inside(int j, int rest)
{
	return VECTOR ? rest > 0 : j < rest;
}

/* What was spread of these packs is not kept: spreading again is cheaper than the registers. */
template <typename T, int P> DEVICE void forget_packs(raw<T> (&x)[P])
{
#pragma unroll
	for (int p = 0; p < P; p++)
		forget(x[p].bits);
}

/* One row: P packs of each thread of its team, a warp or the whole block. */
template <typename T, bool CENTRED, int P, bool VECTOR> DEVICE void norm_row(const norm_launch &a)
{
	const int N = lanes<T>::count;
	bool alone = a.team == 32;
	int width = (int)a.width, step = a.team * N;
	int first = (int)(alone ? threadIdx.x % 32 : threadIdx.x) * N;
	int64_t row = alone ? (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32
			    : (int64_t)blockIdx.x;
	const T *from = (const T *)a.x + row * a.width;
	const T *shift = (const T *)(a.bias ? a.bias : a.weight);
	T *to = (T *)a.y + row * a.width;
	float *scratch = (float *)SHARED_MEMORY, sum = 0.0f, mean = 0.0f, rstd;
	raw<T> x[P];

	if (row >= a.rows)
		return;
#pragma unroll
	for (int p = 0; p < P; p++)
		x[p] = fetch<VECTOR>(from + first + p * step, width - first - p * step);
#pragma unroll
	for (int p = 0; p < P && CENTRED; p++) {
		float v[N];

		spread(v, x[p]);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum += v[j];
	}
	if (CENTRED)
		mean = (alone ? warp_sum(sum) : block_sum(sum, scratch)) / (float)width;
	sum = 0.0f;
	forget_packs(x);
#pragma unroll
	for (int p = 0; p < P; p++) {
		float v[N];

		spread(v, x[p]);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float d = v[j] - mean;

			if (inside<VECTOR>(j, width - first - p * step))
				sum = fmaf(d, d, sum);
		}
	}
	sum = alone ? warp_sum(sum) : block_sum(sum, scratch);
	forget_packs(x);
	rstd = 1.0f / sqrtf(sum / (float)width + a.epsilon);
	if (first == 0) {
		if (CENTRED)
			a.mean[row] = mean;
		a.rstd[row] = rstd;
	}
#pragma unroll
	for (int p = 0; p < P; p++) {
		int i = first + p * step, rest = width - i;
		float v[N], weight[N], bias[N];

		if (rest <= 0)
			break;
		spread(weight, fetch<VECTOR>((const T *)a.weight + i, rest));
		spread(bias, fetch<VECTOR>(shift + i, CENTRED && a.bias ? rest : 0));
		spread(v, x[p]);
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = fmaf((v[j] - mean) * rstd, weight[j], bias[j]);
		store_some(to + i, v, rest, VECTOR);
	}
}

/* Grid: rows, or groups of them, one a warp. */
template <typename T, bool CENTRED, int P> DEVICE void norm_body(const norm_launch &a)
{
	if (a.vector)
		norm_row<T, CENTRED, P, true>(a);
	else
		norm_row<T, CENTRED, P, false>(a);
}

/* Sums over the block, of up to 8 warps, in their order. `scratch` is 32 floats that are not read
 * any more; it may be reused after the next barrier. */
template <int COUNT> DEVICE void block_sums(float (&x)[COUNT], float *scratch)
{
	int warps = (int)blockDim.x / 32;
	float4 *sums = (float4 *)scratch; /* [8] */

	static_assert(COUNT <= 4, "a float4 per warp");
#pragma unroll
	for (int k = 0; k < COUNT; k++)
		x[k] = warp_sum(x[k]);
	if (threadIdx.x % 32 == 0)
		sums[threadIdx.x / 32] = make_float4(x[0], COUNT > 1 ? x[1 % COUNT] : 0.0f,
			COUNT > 2 ? x[2 % COUNT] : 0.0f, COUNT > 3 ? x[3 % COUNT] : 0.0f);
	__syncthreads();
	float4 total = sums[0];
	for (int w = 1; w < warps; w++) {
		float4 more = sums[w];

		total.x += more.x, total.y += more.y, total.z += more.z, total.w += more.w;
	}
	const float all[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
	for (int k = 0; k < COUNT; k++)
		x[k] = all[k];
}

/* What a thread has of some rows. */
template <typename T, int P> struct norm_rows {
	raw<T> dy[P], x[P], old[P];
	float mean, rstd;
};

/* A row that is not `live` is all zeros and adds nothing. */
template <typename T, bool CENTRED, int P, bool VECTOR>
DEVICE void norm_fetch(norm_rows<T, P> &r, const norm_backward_launch &a, int64_t row, bool live)
{
	const int N = lanes<T>::count;
	int step = (int)blockDim.x * N, first = (int)threadIdx.x * N;
	int64_t at = row * a.width + first;

#pragma unroll
	for (int p = 0; p < P; p++) {
		int rest = live ? (int)a.width - first - p * step : 0;

		r.dy[p] = fetch<VECTOR>((const T *)a.dy + at + p * step, rest);
		r.x[p] = fetch<VECTOR>((const T *)a.x + at + p * step, rest);
		r.old[p] =
			fetch<VECTOR>((const T *)a.dx + at + p * step, a.accumulate_dx ? rest : 0);
	}
	r.mean = CENTRED && live ? a.mean[row] : 0.0f;
	r.rstd = live ? a.rstd[row] : 0.0f;
}

/* This thread's share of the sums of g and of g n. */
template <typename T, int P>
DEVICE void norm_share(const norm_rows<T, P> &r, const raw<T> (&weights)[P], float *g, float *gn)
{
	const int N = lanes<T>::count;

	*g = *gn = 0.0f;
#pragma unroll
	for (int p = 0; p < P; p++) {
		float d[N], v[N], weight[N];

		spread(d, r.dy[p]), spread(v, r.x[p]), spread(weight, weights[p]);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float x = d[j] * weight[j];

			*g += x;
			*gn = fmaf(x, (v[j] - r.mean) * r.rstd, *gn);
		}
	}
}

/* With the means of g and g n: dx, and what the row adds to the parameters. */
template <typename T, int P, bool VECTOR>
DEVICE void norm_finish(const norm_rows<T, P> &r, const raw<T> (&weights)[P], float g, float gn,
	T *dx, int rest, float (*dweight)[lanes<T>::count], float (*dbias)[lanes<T>::count])
{
	const int N = lanes<T>::count;
	int step = (int)blockDim.x * N;

#pragma unroll
	for (int p = 0; p < P; p++) {
		float d[N], v[N], weight[N], old[N];

		spread(d, r.dy[p]), spread(v, r.x[p]), spread(weight, weights[p]);
		spread(old, r.old[p]);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float n = (v[j] - r.mean) * r.rstd;

			dweight[p][j] = fmaf(d[j], n, dweight[p][j]);
			dbias[p][j] += d[j];
			v[j] = fmaf(r.rstd, fmaf(-n, gn, d[j] * weight[j] - g), old[j]);
		}
		if (rest > p * step)
			store_some(dx + p * step, v, rest - p * step, VECTOR);
	}
}

/* One row: with n = (x - mean) rstd and g = dy weight, dx = rstd (g - mean(g) - n mean(g n)), the
 * mean of g in layernorm only. The sums of the parameters, of n dy and dy, stay in registers: every
 * column always belongs to the same thread. R rows go together, which shares a barrier. */
template <typename T, bool CENTRED, int P, int R, bool VECTOR>
DEVICE void norm_backward_chunk(const norm_backward_launch &a)
{
	const int N = lanes<T>::count, SUMS = CENTRED ? 2 : 1;
	int width = (int)a.width, step = (int)blockDim.x * N, first = (int)threadIdx.x * N;
	int64_t begin = (int64_t)blockIdx.x * a.chunk, end = begin + a.chunk;
	float *scratch = (float *)SHARED_MEMORY, dweight[P][N] = {}, dbias[P][N] = {};
	raw<T> weights[P];
	int turn = 0;

	end = end < a.rows ? end : a.rows;
#pragma unroll
	for (int p = 0; p < P; p++)
		weights[p] = fetch<VECTOR>(
			(const T *)a.weight + first + p * step, width - first - p * step);
#pragma unroll 1
	for (int64_t row = begin; row < end; row += R, turn ^= 32) {
		norm_rows<T, P> rows[R];
		float sums[R * SUMS];

#pragma unroll
		for (int r = 0; r < R; r++)
			norm_fetch<T, CENTRED, P, VECTOR>(rows[r], a, row + r, row + r < end);
#pragma unroll
		for (int r = 0; r < R; r++) {
			float g, gn;

			forget_packs(weights);
			norm_share(rows[r], weights, &g, &gn);
			sums[r * SUMS] = gn;
			if (CENTRED)
				sums[r * SUMS + SUMS - 1] = g;
		}
		block_sums(sums, scratch + turn);
		forget_packs(weights);
#pragma unroll
		for (int r = 0; r < R; r++) {
			forget_packs(rows[r].dy);
			forget_packs(rows[r].x);
		}
#pragma unroll
		for (int r = 0; r < R; r++)
			norm_finish<T, P, VECTOR>(rows[r], weights,
				CENTRED ? sums[r * SUMS + SUMS - 1] * a.share : 0.0f,
				sums[r * SUMS] * a.share, (T *)a.dx + (row + r) * a.width + first,
				row + r < end ? width - first : 0, dweight, dbias);
	}
#pragma unroll
	for (int p = 0; p < P; p++) {
		float *to = a.partial + (int64_t)blockIdx.x * a.sums * a.width + first + p * step;
		int rest = width - first - p * step;

		store_some(to, dweight[p], rest, VECTOR);
		if (CENTRED && a.sums == 2)
			store_some(to + width, dbias[p], rest, VECTOR);
	}
}

/* Grid: chunks of rows. Odd rows go one by one, with the same sums. */
template <typename T, bool CENTRED, int P, int R>
DEVICE void norm_backward_body(const norm_backward_launch &a)
{
	if (a.vector)
		norm_backward_chunk<T, CENTRED, P, R, true>(a);
	else
		norm_backward_chunk<T, CENTRED, P, 1, false>(a);
}

#define NORM_KERNELS(packs, rows)                                                                  \
	KERNEL_BOTH(layernorm_backward_##packs, norm_backward_body, true, packs, rows)             \
	KERNEL_BOTH(rmsnorm_backward_##packs, norm_backward_body, false, packs, rows)
NORM_KERNELS(1, 2)
NORM_KERNELS(2, 2)
NORM_KERNELS(4, 1)
#undef NORM_KERNELS

KERNEL_BOTH(layernorm_4, norm_body, true, 4)
KERNEL_BOTH(layernorm_8, norm_body, true, 8)
KERNEL_BOTH(rmsnorm_4, norm_body, false, 4)
KERNEL_BOTH(rmsnorm_8, norm_body, false, 8)

/* --- rows too long for registers --- */

/* Grid: rows. The row is read once from memory and then from the first cache. */
template <typename T, bool CENTRED> DEVICE void norm_long(const norm_launch &a)
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

KERNEL_BOTH(layernorm_long, norm_long, true)
KERNEL_BOTH(rmsnorm_long, norm_long, false)

/* One row: with n = (x - mean) rstd and g = dy weight, dx = rstd (g - mean(g) - n mean(g n)), the
 * mean of g in layernorm only. Adds n dy and dy to the sums of the parameters; every column always
 * belongs to the same thread. */
template <typename T, bool CENTRED>
DEVICE void norm_backward_long_row(
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
	sum_g = CENTRED ? block_sum(sum_g, scratch) * a.share : 0.0f;
	sum_gn = block_sum(sum_gn, scratch + 32) * a.share;
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
template <typename T, bool CENTRED> DEVICE void norm_backward_long(const norm_backward_launch &a)
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
		norm_backward_long_row<T, CENTRED>(a, row, sums, scratch);
	for (int64_t i = first; i < a.width && a.in_shared; i += step) {
		for (int64_t j = i; j < i + N && j < a.width; j++) {
			partial[j] = sums[j];
			if (a.sums == 2)
				partial[a.width + j] = sums[a.width + j];
		}
	}
}

KERNEL_BOTH(layernorm_backward_long, norm_backward_long, true)
KERNEL_BOTH(rmsnorm_backward_long, norm_backward_long, false)
