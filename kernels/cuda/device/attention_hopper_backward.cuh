/* Backward of attention for Hopper (sm_90a). As in attention_tensor.cuh there are two kernels, one
 * per owner of an accumulator (dq by queries; dk and dv by keys), and no atomics; the second
 * computes S^T. So every operand A but the block's own rows stays in registers. */
#include "kernels/cuda/device/hopper_tiles.cuh"

#if HOPPER

/* Bits that depend on every number; the sign is clear as long as all are positive. */
template <int N> DEVICE uint32_t bits_of_all(const float (&s)[N][4])
{
	uint32_t bits = 0;

#pragma unroll
	for (int i = 0; i < N * 4; i++)
		bits |= bits_of_float(s[i / 4][i % 4]);
	return bits;
}

template <int N> DEVICE uint32_t bits_of_pairs(const uint32_t (&p)[N][4])
{
	uint32_t bits = 0;

#pragma unroll
	for (int i = 0; i < N * 4; i++)
		bits |= p[i / 4][i % 4];
	return bits;
}

/* Shared memory of dq: queries and dout, and S stages of keys with their values. */
template <int D, int GROUPS, int BN, int S> struct dq_smem {
	static const int ROWS = 64 * GROUPS;
	static const uint32_t q_ready = 0, k_ready = 16, TILE = BN * D * 2, q = BARRIER_BYTES,
			      dout = q + ROWS * D * 2, k = dout + ROWS * D * 2,
			      end = k + S * 2 * TILE;
};

template <int D, int GROUPS, int BN, int S>
DEVICE void dq_producer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = dq_smem<D, GROUPS, BN, S>;
	pipeline_state<1> q = {0, 0};
	pipeline_state<S> k = {0, 0};

	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, kv_head = w.head / (int)(a.heads / a.kv_heads);
		int all = key_tiles<BN>(first + at::ROWS, a);
		const bf16 *keys = hopper_head(a.k, a.k_stride, kv_head, w.sequence, a);
		const bf16 *values = hopper_head(a.v, a.v_stride, kv_head, w.sequence, a);

		producer_acquire(q, at::q_ready);
		hopper_load_tile<D, at::ROWS>(at::q,
			hopper_head(a.q, a.q_stride, w.head, w.sequence, a), a.q_stride, first, a);
		hopper_load_tile<D, at::ROWS>(at::dout,
			hopper_head(a.dout, a.dout_stride, w.head, w.sequence, a), a.dout_stride,
			first, a);
		producer_commit(q, at::q_ready);
		for (int tile = 0; tile < all; tile++) {
			uint32_t to = at::k + (uint32_t)k.stage * 2 * at::TILE;

			producer_acquire(k, at::k_ready);
			hopper_load_tile<D, BN>(to, keys, a.k_stride, tile * BN, a);
			hopper_load_tile<D, BN>(to + at::TILE, values, a.v_stride, tile * BN, a);
			producer_commit(k, at::k_ready);
		}
	}
	cp_async_commit_group();
	cp_async_wait_group<0>();
}

/* What a warpgroup holds of its 64 queries; lse (times -log2 e) and delta are of a thread's two
 * rows.
 */
template <int D> struct dq_state {
	float sum[D / 8][4], lse[2], delta[2];
	int group, row; /* the first query of the warp */
};

template <int D>
DEVICE void begin_rows(dq_state<D> &x, const work_tile &w, const attention_launch &a)
{
	int lane = (int)threadIdx.x % 32;

	clear(x.sum);
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int row = x.row + half * 8 + lane / 4;
		int64_t at = (int64_t)w.sequence * a.length + row;
		bool inside = row < a.length;

		x.lse[half] = inside ? -LOG2_E * a.lse[at * a.lse_stride + w.head] : 0.0f;
		x.delta[half] = inside ? a.delta[at * a.delta_stride + w.head] : 0.0f;
	}
}

template <int D, int GROUPS, int BN, int S>
DEVICE void dq_tile(dq_state<D> &x, pipeline_state<S> &k, int tile, const attention_launch &a)
{
	using at = dq_smem<D, GROUPS, BN, S>;
	const int N = BN / 8;
	uint32_t keys = at::k + (uint32_t)k.stage * 2 * at::TILE, ds[N / 2][4];
	float s[N][4], dp[N][4], scale = a.scale * LOG2_E;

	consumer_wait(k, at::k_ready);
	wgmma_fence();
	gemm_ss<D, at::ROWS>(s, at::q, x.group * 64, keys);
	wgmma_commit_group();
	gemm_ss<D, at::ROWS>(dp, at::dout, x.group * 64, keys + at::TILE);
	wgmma_commit_group();
	wgmma_wait_group<1>();
	warpgroup_fence_operand(s);
	if ((tile + 1) * BN > x.row)
		apply_causal_mask(s, x.row - tile * BN);
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		s[i / 4][i % 4] = fast_exp2(fmaf(s[i / 4][i % 4], scale, x.lse[i % 4 / 2]));
	keep_before_wait(bits_of_all(s));
	wgmma_wait_group<0>();
	warpgroup_fence_operand(dp);
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		s[i / 4][i % 4] *= dp[i / 4][i % 4] - x.delta[i % 4 / 2];
	to_operand<N>(ds, s);
	wgmma_fence();
	gemm_rs<D, N>(x.sum, ds, keys);
	wgmma_commit_group();
	wgmma_wait_group<0>();
	warpgroup_fence_operand(x.sum);
	consumer_release(k, at::k_ready);
}

template <int D, int GROUPS, int BN, int S>
DEVICE void dq_consumer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = dq_smem<D, GROUPS, BN, S>;
	int warp = (int)threadIdx.x % WARPGROUP / 32;
	pipeline_state<1> q = {0, 0};
	pipeline_state<S> k = {0, 0};
	dq_state<D> x;

	x.group = (int)threadIdx.x / WARPGROUP;
	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.heads, true, a);
		int first = w.tile * at::ROWS, own = first + x.group * 64;
		int all = key_tiles<BN>(first + at::ROWS, a), mine = key_tiles<BN>(own + 64, a);

		x.row = own + warp * 16;
		begin_rows(x, w, a);
		consumer_wait(q, at::q_ready);
		for (int tile = 0; tile < mine; tile++)
			dq_tile<D, GROUPS, BN>(x, k, tile, a);
		consumer_release(q, at::q_ready);
		for (int tile = mine; tile < all; tile++)
			consumer_skip(k, at::k_ready);
		hopper_store_tile<D>(hopper_head(a.dq, a.dq_stride, w.head, w.sequence, a),
			a.dq_stride, x.row, x.sum, a.scale, a.scale, a);
	}
}

template <int D, int GROUPS, int BN, int S> DEVICE void hopper_dq(const attention_launch &a)
{
	using at = dq_smem<D, GROUPS, BN, S>;
	int tiles = (int)((a.length + at::ROWS - 1) / at::ROWS);
	int work_tiles = tiles * (int)(a.heads * a.sequences);

	if (threadIdx.x == 0) {
		pipeline_init<1>(at::q_ready, GROUPS * 4);
		pipeline_init<S>(at::k_ready, GROUPS * 4);
	}
	__syncthreads();
	if (is_producer<GROUPS>())
		dq_producer<D, GROUPS, BN, S>(a, tiles, work_tiles);
	else
		dq_consumer<D, GROUPS, BN, S>(a, tiles, work_tiles);
}

/* Shared memory of dk and dv: keys and values, and S stages of queries with dout, lse and delta. */
template <int D, int GROUPS, int BM, int S> struct dkv_smem {
	static const int ROWS = 64 * GROUPS;
	static const uint32_t k_ready = 0, q_ready = 16, TILE = BM * D * 2, k = BARRIER_BYTES,
			      v = k + ROWS * D * 2, q = v + ROWS * D * 2, lse = q + S * 2 * TILE,
			      end = lse + S * 2 * BM * 4;
};

/* lse and delta of BM queries, zeros past the sequence: as their rows of q and dout are zeros too,
 * they add nothing to any sum. */
template <int BM>
DEVICE void load_row_statistics(
	uint32_t to, int row, int head, int sequence, const attention_launch &a)
{
	int own = (int)threadIdx.x % WARPGROUP;
	bool valid = row + own < a.length;
	int64_t at = (int64_t)sequence * a.length + (valid ? row + own : 0);

	if (own >= BM)
		return;
	cp_async_4(to + (uint32_t)own * 4, a.lse + at * a.lse_stride + head, valid);
	cp_async_4(to + (uint32_t)(BM + own) * 4, a.delta + at * a.delta_stride + head, valid);
}

/* The queries of a head from `first` on. */
template <int D, int GROUPS, int BM, int S>
DEVICE void load_queries(
	pipeline_state<S> &q, int first, int head, const work_tile &w, const attention_launch &a)
{
	using at = dkv_smem<D, GROUPS, BM, S>;
	const bf16 *queries = hopper_head(a.q, a.q_stride, head, w.sequence, a);
	const bf16 *dout = hopper_head(a.dout, a.dout_stride, head, w.sequence, a);

	for (int row = first; row < a.length; row += BM) {
		uint32_t to = at::q + (uint32_t)q.stage * 2 * at::TILE;

		producer_acquire(q, at::q_ready);
		hopper_load_tile<D, BM>(to, queries, a.q_stride, row, a);
		hopper_load_tile<D, BM>(to + at::TILE, dout, a.dout_stride, row, a);
		load_row_statistics<BM>(
			at::lse + (uint32_t)q.stage * 2 * BM * 4, row, head, w.sequence, a);
		producer_commit(q, at::q_ready);
	}
}

template <int D, int GROUPS, int BM, int S>
DEVICE void dkv_producer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = dkv_smem<D, GROUPS, BM, S>;
	int group = (int)(a.heads / a.kv_heads);
	pipeline_state<1> k = {0, 0};
	pipeline_state<S> q = {0, 0};

	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.kv_heads, false, a);
		int first = w.tile * at::ROWS;

		producer_acquire(k, at::k_ready);
		hopper_load_tile<D, at::ROWS>(at::k,
			hopper_head(a.k, a.k_stride, w.head, w.sequence, a), a.k_stride, first, a);
		hopper_load_tile<D, at::ROWS>(at::v,
			hopper_head(a.v, a.v_stride, w.head, w.sequence, a), a.v_stride, first, a);
		producer_commit(k, at::k_ready);
		for (int head = w.head * group; head < (w.head + 1) * group; head++)
			load_queries<D, GROUPS, BM>(q, first / BM * BM, head, w, a);
	}
	cp_async_commit_group();
	cp_async_wait_group<0>();
}

/* What a warpgroup holds of its 64 keys. */
template <int D> struct dkv_state {
	float dk[D / 8][4], dv[D / 8][4];
	int group, row; /* the first key of the warp */
};

/* Scores of 64 keys by BM queries to weights; `lse` is the first of a thread's columns. */
template <int N>
DEVICE void softmax_by_lse(float (&s)[N][4], const float *lse, float scale, int ahead)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		float2 l = *(const float2 *)(lse + i * 8);
		float l0 = l.x * -LOG2_E, l1 = l.y * -LOG2_E;

		s[i][0] = fast_exp2(fmaf(s[i][0], scale, l0));
		s[i][1] = fast_exp2(fmaf(s[i][1], scale, l1));
		s[i][2] = fast_exp2(fmaf(s[i][2], scale, l0));
		s[i][3] = fast_exp2(fmaf(s[i][3], scale, l1));
	}
	if (ahead > -15) { /* the warp's last key against the tile's first query */
		int lane = (int)threadIdx.x % 32, least = ahead + lane / 4 - lane % 4 * 2;

#pragma unroll
		for (int i = 0; i < N * 4; i++)
			/* Column i / 4 * 8 + i % 2 of the lane's first, row i % 4 / 2 * 8 of its
			 * first: the accumulator of wgmma m64nNk16. */
			if (i / 4 * 8 + i % 2 - i % 4 / 2 * 8 < least)
				s[i / 4][i % 4] = 0.0f;
	}
}

template <int N>
DEVICE void softmax_backward(float (&s)[N][4], const float (&dp)[N][4], const float *delta)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		float2 d = *(const float2 *)(delta + i * 8);

		s[i][0] *= dp[i][0] - d.x;
		s[i][1] *= dp[i][1] - d.y;
		s[i][2] *= dp[i][2] - d.x;
		s[i][3] *= dp[i][3] - d.y;
	}
}

template <int D, int GROUPS, int BM, int S>
DEVICE void dkv_tile(
	dkv_state<D> &x, const pipeline_state<S> &q, int query, const attention_launch &a)
{
	using at = dkv_smem<D, GROUPS, BM, S>;
	const int N = BM / 8;
	uint32_t queries = at::q + (uint32_t)q.stage * 2 * at::TILE, p[N / 2][4], ds[N / 2][4];
	const float *lse =
		(const float *)(SHARED_MEMORY + at::lse) + q.stage * 2 * BM + threadIdx.x % 4 * 2;
	float s[N][4], dp[N][4];

	wgmma_fence();
	gemm_ss<D, at::ROWS>(s, at::k, x.group * 64, queries);
	wgmma_commit_group();
	gemm_ss<D, at::ROWS>(dp, at::v, x.group * 64, queries + at::TILE);
	wgmma_commit_group();
	wgmma_wait_group<1>();
	warpgroup_fence_operand(s);
	softmax_by_lse<N>(s, lse, a.scale * LOG2_E, x.row - query);
	to_operand<N>(p, s);
	keep_before_wait(bits_of_pairs(p));
	wgmma_wait_group<0>();
	warpgroup_fence_operand(dp);
	wgmma_fence();
	gemm_rs<D, N>(x.dv, p, queries + at::TILE);
	wgmma_commit_group();
	softmax_backward<N>(s, dp, lse + BM);
	to_operand<N>(ds, s);
	wgmma_fence();
	gemm_rs<D, N>(x.dk, ds, queries);
	wgmma_commit_group();
	wgmma_wait_group<0>();
	warpgroup_fence_operand(x.dv);
	warpgroup_fence_operand(x.dk);
}

template <int D, int GROUPS, int BM, int S>
DEVICE void dkv_consumer(const attention_launch &a, int tiles, int work_tiles)
{
	using at = dkv_smem<D, GROUPS, BM, S>;
	int warp = (int)threadIdx.x % WARPGROUP / 32, heads = (int)(a.heads / a.kv_heads);
	pipeline_state<1> k = {0, 0};
	pipeline_state<S> q = {0, 0};
	dkv_state<D> x;

	x.group = (int)threadIdx.x / WARPGROUP;
	for (int i = 0; work_index(i) < work_tiles; i++) {
		work_tile w = schedule_tile(work_index(i), tiles, (int)a.kv_heads, false, a);
		int first = w.tile * at::ROWS, own = first + x.group * 64;
		int begin = first / BM * BM, per_head = ((int)a.length - begin + BM - 1) / BM;

		x.row = own + warp * 16;
		clear(x.dk);
		clear(x.dv);
		consumer_wait(k, at::k_ready);
		for (int n = 0, query = begin; n < per_head * heads; n++) {
			consumer_wait(q, at::q_ready);
			if (query + BM > own)
				dkv_tile<D, GROUPS, BM>(x, q, query, a);
			consumer_release(q, at::q_ready);
			query = query + BM < a.length ? query + BM : begin;
		}
		consumer_release(k, at::k_ready);
		hopper_store_tile<D>(hopper_head(a.dk, a.dk_stride, w.head, w.sequence, a),
			a.dk_stride, x.row, x.dk, a.scale, a.scale, a);
		hopper_store_tile<D>(hopper_head(a.dv, a.dv_stride, w.head, w.sequence, a),
			a.dv_stride, x.row, x.dv, 1.0f, 1.0f, a);
	}
}

template <int D, int GROUPS, int BM, int S> DEVICE void hopper_dkv(const attention_launch &a)
{
	using at = dkv_smem<D, GROUPS, BM, S>;
	int tiles = (int)((a.length + at::ROWS - 1) / at::ROWS);
	int work_tiles = tiles * (int)(a.kv_heads * a.sequences);

	if (threadIdx.x == 0) {
		pipeline_init<1>(at::k_ready, GROUPS * 4);
		pipeline_init<S>(at::q_ready, GROUPS * 4);
	}
	__syncthreads();
	if (is_producer<GROUPS>())
		dkv_producer<D, GROUPS, BM, S>(a, tiles, work_tiles);
	else
		dkv_consumer<D, GROUPS, BM, S>(a, tiles, work_tiles);
}

CUDA_HOPPER_BACKWARD(HOPPER_LINE, )

#endif
