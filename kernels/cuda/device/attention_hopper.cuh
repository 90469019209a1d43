/* Flash attention for Hopper (sm_90a), bf16 with fp32 accumulators. P stays in registers between
 * the two GEMMs. A consumer warpgroup does not overlap its own wgmma with its exponentials: the two
 * of a block drift apart until one multiplies while the other does not. Ordering them explicitly
 * (ping-pong) was slower on an H100. */
#include "kernels/cuda/device/hopper_tiles.cuh"

#if HOPPER

/* Shared memory: queries, and S stages of keys and of values. */
template <int D, int GROUPS, int BN, int S> struct forward_smem {
	static const int ROWS = 64 * GROUPS;
	static const uint32_t q_ready = 0, k_ready = 16, v_ready = k_ready + 16 * S,
			      TILE = BN * D * 2, q = BARRIER_BYTES, k = q + ROWS * D * 2,
			      v = k + S * TILE, end = v + S * TILE;
};

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_producer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = forward_smem<D, GROUPS, BN, S>;
	pipeline_state<1> q = {0, 0};
	pipeline_state<S> k = {0, 0}, v = {0, 0};

	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, kv_head = w.head / (int)(a.heads / a.kv_heads);
		int all = key_tiles<BN>(first + at::ROWS, a);
		const bf16 *keys = hopper_head(a.k, a.k_stride, kv_head, w.sequence, a);
		const bf16 *values = hopper_head(a.v, a.v_stride, kv_head, w.sequence, a);

		producer_acquire(q, at::q_ready);
		hopper_load_tile<D, at::ROWS>(at::q,
			hopper_head(a.q, a.q_stride, w.head, w.sequence, a), a.q_stride, first, a);
		producer_commit(q, at::q_ready);
		for (int tile = 0; tile < all; tile++) {
			producer_acquire(k, at::k_ready);
			hopper_load_tile<D, BN>(at::k + (uint32_t)k.stage * at::TILE, keys,
				a.k_stride, tile * BN, a);
			producer_commit(k, at::k_ready);
			producer_acquire(v, at::v_ready);
			hopper_load_tile<D, BN>(at::v + (uint32_t)v.stage * at::TILE, values,
				a.v_stride, tile * BN, a);
			producer_commit(v, at::v_ready);
		}
	}
	cp_async_commit_group();
	cp_async_wait_group<0>();
}

/* What a warpgroup holds of its 64 queries. Running maxima and sums are of the two rows of a
 * thread; `correction` rescales what was accumulated before. */
template <int D, int N> struct forward_state {
	float sum[D / 8][4], s[N][4], row_max[2], row_sum[2], correction[2];
	uint32_t p[N / 2][4];
};

/* Online softmax: scores to weights relative to the running maximum, which they may raise. */
template <int D, int N> DEVICE void online_softmax(forward_state<D, N> &x, float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float top = x.row_max[half], total = 0.0f, shift;

#pragma unroll
		for (int n = 0; n < N; n++)
			top = fmaxf(top, fmaxf(x.s[n][2 * half], x.s[n][2 * half + 1]));
		top = fmaxf(top, shuffle_xor(top, 1));
		top = fmaxf(top, shuffle_xor(top, 2));
		shift = -top * scale;
		x.correction[half] = fast_exp2(fmaf(x.row_max[half], scale, shift));
#pragma unroll
		for (int n = 0; n < N; n++) {
			float *s = &x.s[n][2 * half];

			s[0] = fast_exp2(fmaf(s[0], scale, shift));
			s[1] = fast_exp2(fmaf(s[1], scale, shift));
			total += s[0] + s[1];
		}
		x.row_sum[half] = fmaf(x.row_sum[half], x.correction[half], total);
		x.row_max[half] = top;
	}
}

template <int D, int N> DEVICE void rescale_accumulator(forward_state<D, N> &x)
{
#pragma unroll
	for (int i = 0; i < D / 2; i++)
		x.sum[i / 4][i % 4] *= x.correction[i % 4 / 2];
}

/* A consumer warpgroup's position in the pipelines, its number, and the first query of its warp. */
template <int S> struct consumer_state {
	pipeline_state<1> q;
	pipeline_state<S> k, v;
	int number, row;
};

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_tile(
	forward_state<D, BN / 8> &x, consumer_state<S> &g, int tile, const attention_launch &a)
{
	using at = forward_smem<D, GROUPS, BN, S>;

	consumer_wait(g.k, at::k_ready);
	wgmma_fence();
	gemm_ss<D, at::ROWS>(x.s, at::q, g.number * 64, at::k + (uint32_t)g.k.stage * at::TILE);
	wgmma_commit_group();
	wgmma_wait_group<0>();
	warpgroup_fence_operand(x.s);
	consumer_release(g.k, at::k_ready);
	if ((tile + 1) * BN > g.row)
		apply_causal_mask(x.s, g.row - tile * BN);
	online_softmax(x, a.scale * LOG2_E);
	rescale_accumulator(x);
	to_operand<BN / 8>(x.p, x.s);
	consumer_wait(g.v, at::v_ready);
	wgmma_fence();
	gemm_rs<D, BN / 8>(x.sum, x.p, at::v + (uint32_t)g.v.stage * at::TILE);
	wgmma_commit_group();
	wgmma_wait_group<0>();
	warpgroup_fence_operand(x.sum);
	consumer_release(g.v, at::v_ready);
}

template <int D, int N>
DEVICE void forward_epilogue(
	const forward_state<D, N> &x, int first, const work_tile &w, const attention_launch &a)
{
	int lane = (int)threadIdx.x % 32;
	float inverse[2];

#pragma unroll
	for (int half = 0; half < 2; half++) {
		int row = first + half * 8 + lane / 4;
		float total = x.row_sum[half];

		total += shuffle_xor(total, 1);
		total += shuffle_xor(total, 2);
		inverse[half] = 1.0f / total;
		if (lane % 4 == 0 && row < a.length)
			a.lse[((int64_t)w.sequence * a.length + row) * a.lse_stride + w.head] =
				fmaf(x.row_max[half], a.scale, logf(total));
	}
	hopper_store_tile<D>(hopper_head(a.out, a.out_stride, w.head, w.sequence, a), a.out_stride,
		first, x.sum, inverse[0], inverse[1], a);
}

template <int D, int GROUPS, int BN, int S>
DEVICE void forward_consumer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = forward_smem<D, GROUPS, BN, S>;
	int warp = (int)threadIdx.x % WARPGROUP / 32;
	consumer_state<S> g = {{0, 0}, {0, 0}, {0, 0}, (int)threadIdx.x / WARPGROUP, 0};

	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, own = first + g.number * 64;
		int all = key_tiles<BN>(first + at::ROWS, a), mine = key_tiles<BN>(own + 64, a);
		forward_state<D, BN / 8> x;

		g.row = own + warp * 16;
		clear(x.sum);
		x.row_max[0] = x.row_max[1] = MASKED;
		x.row_sum[0] = x.row_sum[1] = 0.0f;
		consumer_wait(g.q, at::q_ready);
		for (int tile = 0; tile < mine; tile++)
			forward_tile<D, GROUPS, BN>(x, g, tile, a);
		consumer_release(g.q, at::q_ready);
		for (int tile = mine; tile < all; tile++) {
			consumer_skip(g.k, at::k_ready);
			consumer_skip(g.v, at::v_ready);
		}
		forward_epilogue(x, g.row, w, a);
	}
}

template <int D, int GROUPS, int BN, int S> DEVICE void hopper_forward(const attention_launch &a)
{
	using at = forward_smem<D, GROUPS, BN, S>;
	int tiles = (int)((a.length + at::ROWS - 1) / at::ROWS);
	int work_tiles = tiles * (int)(a.heads * a.sequences);

	if (threadIdx.x == 0) {
		pipeline_init<1>(at::q_ready, GROUPS * 4);
		pipeline_init<S>(at::k_ready, GROUPS * 4);
		pipeline_init<S>(at::v_ready, GROUPS * 4);
	}
	__syncthreads();
	if (is_producer<GROUPS>())
		forward_producer<D, GROUPS, BN, S>(a, tiles, work_tiles);
	else
		forward_consumer<D, GROUPS, BN, S>(a, tiles, work_tiles);
}

CUDA_HOPPER_FORWARD(HOPPER_LINE, )

#endif
