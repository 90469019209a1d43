/* Attention for any type, head_dim up to 256 and alignment: fp32 arithmetic, no tensor cores. A
 * warp owns one row (a query, or in dkv a key) and meets 32 others at a time, one per lane; then
 * lanes change roles and own columns. Sums run in the order of the sequence, so bits repeat. */
#include "kernels/cuda/device/elements.cuh"

enum { PLAIN_WARPS = 8, PLAIN_OTHERS = 32, PLAIN_COLUMNS = 8 };

/* Rows [first, first + count) of one head as fp32, zeros past `length`. */
template <typename T>
DEVICE void plain_load(float *to, int pitch, const T *from, int64_t stride, int64_t first,
	int count, const attention_launch &a)
{
	int width = (int)a.head_dim;

	for (int i = (int)threadIdx.x; i < count * width; i += (int)blockDim.x) {
		int64_t row = first + i / width;

		to[i / width * pitch + i % width] =
			row < a.length ? to_float(from[row * stride + i % width]) : 0.0f;
	}
}

DEVICE float plain_dot(const float *x, const float *y, int width)
{
	float sum = 0.0f;

	for (int d = 0; d < width; d++)
		sum = fmaf(x[d], y[d], sum);
	return sum;
}

/* sum[c] += weight of lane k * rows[k][lane + 32 c], over the 32 others; the weights meet in the
 * warp's place of the shared memory. */
DEVICE void plain_add(float (&sum)[PLAIN_COLUMNS], float weight, float *weights, const float *rows,
	int pitch, int width)
{
	int lane = (int)threadIdx.x % 32;

	warp_barrier();
	weights[lane] = weight;
	warp_barrier();
	for (int k = 0; k < PLAIN_OTHERS; k++) {
		float w = weights[k];
#pragma unroll
		for (int c = 0; c < PLAIN_COLUMNS; c++) {
			if (lane + 32 * c < width)
				sum[c] = fmaf(w, rows[k * pitch + lane + 32 * c], sum[c]);
		}
	}
}

template <typename T>
DEVICE void plain_store(T *to, const float (&sum)[PLAIN_COLUMNS], float factor, int width)
{
	int lane = (int)threadIdx.x % 32;

#pragma unroll
	for (int c = 0; c < PLAIN_COLUMNS; c++) {
		if (lane + 32 * c < width)
			put(to + lane + 32 * c, sum[c] * factor);
	}
}

/* Where a block works: grid (blocks of 8 rows, heads, sequences). */
struct plain_place {
	int64_t base, first, row; /* base: the sequence's first row */
	int head, kv_head, warp, lane, width, pitch;
	float *own, *own2, *others, *others2; /* [8][width], [32][pitch] of shared memory */
	float *weights;                       /* [32], the warp's */
};

DEVICE plain_place plain_begin(const attention_launch &a)
{
	plain_place p;

	p.warp = (int)threadIdx.x / 32;
	p.lane = (int)threadIdx.x % 32;
	p.base = (int64_t)blockIdx.z * a.length;
	p.first = (int64_t)blockIdx.x * PLAIN_WARPS;
	p.row = p.first + p.warp;
	p.head = (int)blockIdx.y;
	p.kv_head = p.head / ((int)a.heads / (int)a.kv_heads);
	p.width = (int)a.head_dim;
	p.pitch = p.width | 1; /* odd: the lanes' rows start in different banks */
	p.weights = (float *)SHARED_MEMORY + p.warp * PLAIN_OTHERS;
	p.own = (float *)SHARED_MEMORY + PLAIN_WARPS * PLAIN_OTHERS;
	p.own2 = p.own + PLAIN_WARPS * p.width;
	p.others = p.own2 + PLAIN_WARPS * p.width;
	p.others2 = p.others + PLAIN_OTHERS * p.pitch;
	return p;
}

/* The two tensors of a head, loaded as tiles of 32 rows or as the 8 rows that warps own. */
template <typename T>
DEVICE const T *plain_head(const void *x, int64_t stride, int64_t base, int64_t head, int width)
{
	return (const T *)x + base * stride + head * width;
}

template <typename T> DEVICE void plain_forward(const attention_launch &a)
{
	plain_place p = plain_begin(a);
	const T *k = plain_head<T>(a.k, a.k_stride, p.base, p.kv_head, p.width);
	const T *v = plain_head<T>(a.v, a.v_stride, p.base, p.kv_head, p.width);
	float most = -3.0e38f, total = 0.0f, sum[PLAIN_COLUMNS] = {0.0f};
	int64_t last = p.first + PLAIN_WARPS < a.length ? p.first + PLAIN_WARPS : a.length;

	plain_load(p.own, p.width, plain_head<T>(a.q, a.q_stride, p.base, p.head, p.width),
		a.q_stride, p.first, PLAIN_WARPS, a);
	for (int64_t j = 0; j < last; j += PLAIN_OTHERS) {
		float s, top, weight, old;

		__syncthreads();
		plain_load(p.others, p.pitch, k, a.k_stride, j, PLAIN_OTHERS, a);
		plain_load(p.others2, p.pitch, v, a.v_stride, j, PLAIN_OTHERS, a);
		__syncthreads();
		s = a.scale *
		    plain_dot(p.own + p.warp * p.width, p.others + p.lane * p.pitch, p.width);
		s = j + p.lane <= p.row ? s : -3.0e38f;
		top = fmaxf(most, warp_max(s));
		weight = j + p.lane <= p.row ? expf(s - top) : 0.0f;
		old = expf(most - top);
		total = total * old + warp_sum(weight);
#pragma unroll
		for (int c = 0; c < PLAIN_COLUMNS; c++)
			sum[c] *= old;
		plain_add(sum, weight, p.weights, p.others2, p.pitch, p.width);
		most = top;
	}
	if (p.row >= a.length)
		return;
	plain_store((T *)a.out + (p.base + p.row) * a.out_stride + p.head * p.width, sum,
		1.0f / total, p.width);
	if (p.lane == 0)
		a.lse[(p.base + p.row) * a.lse_stride + p.head] = most + logf(total);
}
KERNEL_BOTH(attention_plain, plain_forward)

/* delta = dout . out; a warp per row and head. */
template <typename T> DEVICE void delta_body(const attention_launch &a)
{
	int64_t i = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / 32;
	int64_t row = i / a.heads, head = i % a.heads;
	int lane = (int)threadIdx.x % 32;
	const T *dout = (const T *)a.dout + row * a.dout_stride + head * a.head_dim;
	const T *out = (const T *)a.out + row * a.out_stride + head * a.head_dim;
	float sum = 0.0f;

	for (int d = lane; d < a.head_dim && row < a.rows; d += 32)
		sum = fmaf(to_float(dout[d]), to_float(out[d]), sum);
	sum = warp_sum(sum);
	if (lane == 0 && row < a.rows)
		a.delta[row * a.delta_stride + head] = sum;
}
KERNEL_BOTH(attention_delta, delta_body)

/* The same for heads of up to 128 in packs of 8: 16 lanes per row and head. */
KERNEL(attention_delta_packs)
{
	const int LANES = 16;
	int64_t i = (int64_t)blockIdx.x * (blockDim.x / LANES) + threadIdx.x / LANES;
	int64_t row = i / a.heads, head = i % a.heads;
	int first = (int)threadIdx.x % LANES * 8;
	bool inside = row < a.rows && first < a.head_dim;
	float dout[8] = {0.0f}, out[8] = {0.0f}, sum = 0.0f;

	if (inside) {
		load(dout, (const bf16 *)a.dout + row * a.dout_stride + head * a.head_dim + first);
		load(out, (const bf16 *)a.out + row * a.out_stride + head * a.head_dim + first);
	}
#pragma unroll
	for (int d = 0; d < 8; d++)
		sum = fmaf(dout[d], out[d], sum);
	for (int step = LANES / 2; step > 0; step /= 2)
		sum += shuffle_xor(sum, step);
	if (inside && first == 0)
		a.delta[row * a.delta_stride + head] = sum;
}

template <typename T> DEVICE void plain_dq(const attention_launch &a)
{
	plain_place p = plain_begin(a);
	const T *k = plain_head<T>(a.k, a.k_stride, p.base, p.kv_head, p.width);
	const T *v = plain_head<T>(a.v, a.v_stride, p.base, p.kv_head, p.width);
	int64_t last = p.first + PLAIN_WARPS < a.length ? p.first + PLAIN_WARPS : a.length;
	int64_t at = (p.base + p.row) * a.lse_stride + p.head;
	float lse = p.row < a.length ? a.lse[at] : 0.0f;
	int64_t delta_at = (p.base + p.row) * a.delta_stride + p.head;
	float delta = p.row < a.length ? a.delta[delta_at] : 0.0f, sum[PLAIN_COLUMNS] = {0.0f};

	plain_load(p.own, p.width, plain_head<T>(a.q, a.q_stride, p.base, p.head, p.width),
		a.q_stride, p.first, PLAIN_WARPS, a);
	plain_load(p.own2, p.width, plain_head<T>(a.dout, a.dout_stride, p.base, p.head, p.width),
		a.dout_stride, p.first, PLAIN_WARPS, a);
	for (int64_t j = 0; j < last; j += PLAIN_OTHERS) {
		float s, dp, ds;

		__syncthreads();
		plain_load(p.others, p.pitch, k, a.k_stride, j, PLAIN_OTHERS, a);
		plain_load(p.others2, p.pitch, v, a.v_stride, j, PLAIN_OTHERS, a);
		__syncthreads();
		s = a.scale *
		    plain_dot(p.own + p.warp * p.width, p.others + p.lane * p.pitch, p.width);
		dp = plain_dot(p.own2 + p.warp * p.width, p.others2 + p.lane * p.pitch, p.width);
		ds = j + p.lane <= p.row && p.row < a.length ? expf(s - lse) * (dp - delta) : 0.0f;
		plain_add(sum, ds, p.weights, p.others, p.pitch, p.width);
	}
	if (p.row < a.length)
		plain_store((T *)a.dq + (p.base + p.row) * a.dq_stride + p.head * p.width, sum,
			a.scale, p.width);
}
KERNEL_BOTH(attention_plain_dq, plain_dq)

/* What a tile of queries of one head gives to this warp's key. */
template <typename T>
DEVICE void plain_meet_queries(const attention_launch &a, const plain_place &p, int64_t head,
	int64_t first, float (&dk)[PLAIN_COLUMNS], float (&dv)[PLAIN_COLUMNS])
{
	int64_t query = first + p.lane, at = (p.base + query) * a.lse_stride + head;
	bool seen = query < a.length && query >= p.row;
	float s, dp, weight, ds;

	__syncthreads();
	plain_load(p.others, p.pitch, plain_head<T>(a.q, a.q_stride, p.base, head, p.width),
		a.q_stride, first, PLAIN_OTHERS, a);
	plain_load(p.others2, p.pitch, plain_head<T>(a.dout, a.dout_stride, p.base, head, p.width),
		a.dout_stride, first, PLAIN_OTHERS, a);
	__syncthreads();
	s = a.scale * plain_dot(p.own + p.warp * p.width, p.others + p.lane * p.pitch, p.width);
	dp = plain_dot(p.own2 + p.warp * p.width, p.others2 + p.lane * p.pitch, p.width);
	weight = seen ? expf(s - a.lse[at]) : 0.0f;
	plain_add(dv, weight, p.weights, p.others2, p.pitch, p.width);
	ds = seen ? weight * (dp - a.delta[(p.base + query) * a.delta_stride + head]) : 0.0f;
	plain_add(dk, ds, p.weights, p.others, p.pitch, p.width);
}

/* Grid: (blocks of 8 keys, kv heads, sequences). */
template <typename T> DEVICE void plain_dkv(const attention_launch &a)
{
	plain_place p = plain_begin(a);
	int group = (int)a.heads / (int)a.kv_heads, kv_head = (int)blockIdx.y;
	float dk[PLAIN_COLUMNS] = {0.0f}, dv[PLAIN_COLUMNS] = {0.0f};

	plain_load(p.own, p.width, plain_head<T>(a.k, a.k_stride, p.base, kv_head, p.width),
		a.k_stride, p.first, PLAIN_WARPS, a);
	plain_load(p.own2, p.width, plain_head<T>(a.v, a.v_stride, p.base, kv_head, p.width),
		a.v_stride, p.first, PLAIN_WARPS, a);
	for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
		for (int64_t i = p.first / PLAIN_OTHERS * PLAIN_OTHERS; i < a.length;
			i += PLAIN_OTHERS)
			plain_meet_queries<T>(a, p, head, i, dk, dv);
	}
	if (p.row >= a.length)
		return;
	plain_store((T *)a.dk + (p.base + p.row) * a.dk_stride + kv_head * p.width, dk, a.scale,
		p.width);
	plain_store(
		(T *)a.dv + (p.base + p.row) * a.dv_stride + kv_head * p.width, dv, 1.0f, p.width);
}
KERNEL_BOTH(attention_plain_dkv, plain_dkv)
