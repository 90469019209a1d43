/* Flash attention on tensor cores (Dao 2022, 2023), bf16 with fp32 accumulators, by mma.sync: one
 * code for sm_80 and newer. Tiles are in shared memory in 16-byte chunks, swizzled by the row so
 * that ldmatrix has no bank conflicts; the next tile is copied while this one is multiplied.
 *
 * The backward has two kernels, one per owner of an accumulator (dq by queries; dk and dv by keys),
 * and no atomics: 7 GEMMs where a fused kernel has 5, and its bits repeat. The second computes S^T,
 * so that the accumulators of one GEMM are the operand A of the next. */
#include "kernels/cuda/device/causal.cuh"

enum { TENSOR_THREADS = 128, TENSOR_WARPS = 4 };

/* Tiles are named by their offset in the shared memory; a row has D elements. */
template <int D> DEVICE uint32_t chunk_at(uint32_t tile, int row, int chunk)
{
	return tile + (uint32_t)(row * D * 2 + (chunk ^ (row & 7)) * 16);
}

/* Rows [first, first + ROWS) of a head, zeros past the sequence and past head_dim. */
template <int D, int ROWS>
DEVICE void tensor_load_tile(
	uint32_t tile, const bf16 *from, int64_t stride, int64_t first, const attention_launch &a)
{
	const int CHUNKS = D / 8, STEP = TENSOR_THREADS / CHUNKS;
	int row = (int)threadIdx.x / CHUNKS, chunk = (int)threadIdx.x % CHUNKS;
	int rows = (int)(a.length - first < ROWS ? a.length - first : ROWS);
	const bf16 *at = from + (first + row) * stride + chunk * 8;
	bool inside = chunk * 8 < a.head_dim;

#pragma unroll
	for (int i = 0; i < ROWS / STEP; i++) {
		bool valid = inside && row + i * STEP < rows;

		cp_async_16(chunk_at<D>(tile, row + i * STEP, chunk), valid ? at : from, valid);
		at += STEP * stride;
	}
}

/* Operand A: rows [row, row + 16), columns [16 step, 16 step + 16) of a tile. The columns of
 * a step are bits of the offset that the row does not touch. */
template <int D> DEVICE void load_operand_a(uint32_t (&r)[4], uint32_t tile, int row, int step)
{
	int lane = (int)threadIdx.x % 32;

	ldmatrix_x4(r, chunk_at<D>(tile, row + lane % 16, lane / 16) ^ (uint32_t)(step * 32));
}

/* Operand B = tile^T: tile rows [row, row + 16) are its columns; two 16x8 fragments. */
template <int D> DEVICE void load_operand_bt(uint32_t (&r)[4], uint32_t tile, int row, int step)
{
	int lane = (int)threadIdx.x % 32;

	ldmatrix_x4(r, chunk_at<D>(tile, row + lane / 16 * 8 + lane % 8, lane / 8 % 2) ^
			       (uint32_t)(step * 32));
}

/* Operand B = tile: rows [row, row + 16), columns [16 pair, 16 pair + 16). */
template <int D> DEVICE void load_operand_b(uint32_t (&r)[4], uint32_t tile, int row, int pair)
{
	int lane = (int)threadIdx.x % 32;

	ldmatrix_x4_trans(r, chunk_at<D>(tile, row + lane % 16, lane / 16) ^ (uint32_t)(pair * 32));
}

/* s[M][16, 8 N] = x[row + 16 m.., D] y[.., D]^T */
template <int D, int M, int N>
DEVICE void gemm_xyt(float (&s)[M][N][4], uint32_t x, int row, uint32_t y)
{
#pragma unroll
	for (int i = 0; i < M * N * 4; i++)
		s[i / (N * 4)][i / 4 % N][i % 4] = 0.0f;
#pragma unroll
	for (int step = 0; step < D / 16; step++) {
		uint32_t left[M][4], right[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			load_operand_a<D>(left[m], x, row + m * 16, step);
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			load_operand_bt<D>(right, y, n * 8, step);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_m16n8k16(s[m][n], left[m], right[0], right[1]);
				mma_m16n8k16(s[m][n + 1], left[m], right[2], right[3]);
			}
		}
	}
}

/* sum[M][16, D] += p[M][16, 8 N] y[8 N, D], p in the layout of accumulators, rounded to bf16. */
template <int D, int M, int N>
DEVICE void gemm_pv(float (&sum)[M][D / 8][4], const float (&p)[M][N][4], uint32_t y)
{
#pragma unroll
	for (int step = 0; step < N / 2; step++) {
		uint32_t left[M][4], right[4];

#pragma unroll
		for (int i = 0; i < M * 4; i++) {
			const float *from = &p[i / 4][2 * step + i % 4 / 2][i % 2 * 2];

			left[i / 4][i % 4] = bf16_pair(from[0], from[1]);
		}
#pragma unroll
		for (int pair = 0; pair < D / 16; pair++) {
			load_operand_b<D>(right, y, step * 16, pair);
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_m16n8k16(sum[m][2 * pair], left[m], right[0], right[1]);
				mma_m16n8k16(sum[m][2 * pair + 1], left[m], right[2], right[3]);
			}
		}
	}
}

/* 16 rows of this warp to memory, through shared memory that is not read any more. */
template <int D>
DEVICE void tensor_store_tile(void *to, int64_t stride, int64_t first, uint32_t tile, int row,
	const float (&sum)[D / 8][4], float factor, float factor8, const attention_launch &a)
{
	int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;

#pragma unroll
	for (int n = 0; n < D / 8; n++) {
		*(uint32_t *)(SHARED_MEMORY + chunk_at<D>(tile, row + g, n) + 4 * t) =
			bf16_pair(sum[n][0] * factor, sum[n][1] * factor);
		*(uint32_t *)(SHARED_MEMORY + chunk_at<D>(tile, row + g + 8, n) + 4 * t) =
			bf16_pair(sum[n][2] * factor8, sum[n][3] * factor8);
	}
	warp_barrier();
	for (int i = lane; i < 16 * D / 8; i += 32) {
		int r = i / (D / 8), chunk = i % (D / 8);

		if (first + r < a.length && chunk * 8 < a.head_dim)
			*(uint4 *)((bf16 *)to + (first + r) * stride + chunk * 8) =
				*(const uint4 *)(SHARED_MEMORY + chunk_at<D>(tile, row + r, chunk));
	}
}

/* The head of a tensor in the block's sequence. */
DEVICE bf16 *tensor_head(const void *x, int64_t stride, int64_t head, const attention_launch &a)
{
	return (bf16 *)x + (int64_t)blockIdx.z * a.length * stride + head * a.head_dim;
}

/* Running maximum and sum of the two rows g and g + 8 of a thread. */
struct softmax_state {
	float most[2], total[2];
};

/* Online softmax: scores to weights relative to the running maximum, which they may raise. */
template <int D, int N>
DEVICE void tensor_softmax(float (&s)[N][4], float (&sum)[D / 8][4], softmax_state &r, float scale)
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		float top = r.most[half], old, total = 0.0f, shift;

#pragma unroll
		for (int n = 0; n < N; n++)
			top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
		top = fmaxf(top, shuffle_xor(top, 1));
		top = fmaxf(top, shuffle_xor(top, 2));
		shift = -top * scale;
		old = fast_exp2(fmaf(r.most[half], scale, shift));
#pragma unroll
		for (int n = 0; n < N; n++) {
			s[n][2 * half] = fast_exp2(fmaf(s[n][2 * half], scale, shift));
			s[n][2 * half + 1] = fast_exp2(fmaf(s[n][2 * half + 1], scale, shift));
			total += s[n][2 * half] + s[n][2 * half + 1];
		}
		r.total[half] = fmaf(r.total[half], old, total);
		r.most[half] = top;
#pragma unroll
		for (int n = 0; n < D / 8; n++) {
			sum[n][2 * half] *= old;
			sum[n][2 * half + 1] *= old;
		}
	}
}

/* 64 M queries a block, 16 M a warp, over tiles of BN keys. Grid: (tiles of queries from the last
 * one on, as those take longest; heads; sequences). */
template <int D, int M, int BN> DEVICE void tensor_forward(const attention_launch &a)
{
	const int BM = 64 * M, N = BN / 8;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int first = (int)(gridDim.x - 1 - blockIdx.x) * BM, mine = first + warp * 16 * M;
	int end = first + BM < a.length ? first + BM : (int)a.length, tiles = (end + BN - 1) / BN;
	int head = (int)blockIdx.y, kv_head = head / ((int)a.heads / (int)a.kv_heads);
	const bf16 *k = tensor_head(a.k, a.k_stride, kv_head, a);
	const bf16 *v = tensor_head(a.v, a.v_stride, kv_head, a);
	const uint32_t TILE = BN * D * 2, q = 0, stages = BM * D * 2; /* a stage: keys, values */
	float sum[M][D / 8][4], scale = a.scale * LOG2_E;
	softmax_state run[M];

#pragma unroll
	for (int m = 0; m < M; m++) {
		run[m] = softmax_state{{MASKED, MASKED}, {0.0f, 0.0f}};
#pragma unroll
		for (int n = 0; n < D / 8 * 4; n++)
			sum[m][n / 4][n % 4] = 0.0f;
	}
	tensor_load_tile<D, BM>(q, tensor_head(a.q, a.q_stride, head, a), a.q_stride, first, a);
	tensor_load_tile<D, BN>(stages, k, a.k_stride, 0, a);
	tensor_load_tile<D, BN>(stages + TILE, v, a.v_stride, 0, a);
	cp_async_commit_group();
	for (int tile = 0; tile < tiles; tile++) {
		uint32_t keys = stages + (uint32_t)(tile & 1) * 2 * TILE;
		uint32_t next = stages + (uint32_t)(~tile & 1) * 2 * TILE;
		float s[M][N][4];

		if (tile + 1 < tiles) {
			tensor_load_tile<D, BN>(next, k, a.k_stride, (tile + 1) * BN, a);
			tensor_load_tile<D, BN>(next + TILE, v, a.v_stride, (tile + 1) * BN, a);
		}
		cp_async_commit_group();
		cp_async_wait_group<1>();
		__syncthreads();
		gemm_xyt<D>(s, q, warp * 16 * M, keys);
#pragma unroll
		for (int m = 0; m < M; m++) {
			if ((tile + 1) * BN > mine + m * 16)
				apply_causal_mask(s[m], mine + m * 16 - tile * BN);
			tensor_softmax<D, N>(s[m], sum[m], run[m], scale);
		}
		gemm_pv<D>(sum, s, keys + TILE);
		__syncthreads();
	}
#pragma unroll
	for (int m = 0; m < M; m++) {
		float inverse[2];

#pragma unroll
		for (int half = 0; half < 2; half++) {
			int64_t row = mine + m * 16 + half * 8 + lane / 4;
			float total = run[m].total[half];

			total += shuffle_xor(total, 1);
			total += shuffle_xor(total, 2);
			inverse[half] = 1.0f / total;
			if (lane % 4 == 0 && row < a.length)
				a.lse[((int64_t)blockIdx.z * a.length + row) * a.lse_stride +
					head] = fmaf(run[m].most[half], a.scale, logf(total));
		}
		tensor_store_tile<D>(tensor_head(a.out, a.out_stride, head, a), a.out_stride,
			mine + m * 16, q, warp * 16 * M + m * 16, sum[m], inverse[0], inverse[1],
			a);
	}
}

/* Like the forward, with 64 queries a block: dq = scale * sum of ds k. */
template <int D, int M, int BN> DEVICE void tensor_dq(const attention_launch &a)
{
	static_assert(M == 1, "64 queries a block");
	const int BM = 64, N = BN / 8;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int first = (int)(gridDim.x - 1 - blockIdx.x) * BM, mine = first + warp * 16;
	int end = first + BM < a.length ? first + BM : (int)a.length, tiles = (end + BN - 1) / BN;
	int head = (int)blockIdx.y, kv_head = head / ((int)a.heads / (int)a.kv_heads);
	const bf16 *k = tensor_head(a.k, a.k_stride, kv_head, a);
	const bf16 *v = tensor_head(a.v, a.v_stride, kv_head, a);
	const uint32_t TILE = BN * D * 2, q = 0, dout = BM * D * 2, stages = 2 * BM * D * 2;
	float sum[1][D / 8][4], lse[2], delta[2], scale = a.scale * LOG2_E;

#pragma unroll
	for (int n = 0; n < D / 8 * 4; n++)
		sum[0][n / 4][n % 4] = 0.0f;
#pragma unroll
	for (int half = 0; half < 2; half++) {
		int64_t row = mine + half * 8 + lane / 4;
		int64_t at = (int64_t)blockIdx.z * a.length + row;

		lse[half] = row < a.length ? a.lse[at * a.lse_stride + head] * LOG2_E : 0.0f;
		delta[half] = row < a.length ? a.delta[at * a.delta_stride + head] : 0.0f;
	}
	tensor_load_tile<D, BM>(q, tensor_head(a.q, a.q_stride, head, a), a.q_stride, first, a);
	tensor_load_tile<D, BM>(
		dout, tensor_head(a.dout, a.dout_stride, head, a), a.dout_stride, first, a);
	tensor_load_tile<D, BN>(stages, k, a.k_stride, 0, a);
	tensor_load_tile<D, BN>(stages + TILE, v, a.v_stride, 0, a);
	cp_async_commit_group();
	for (int tile = 0; tile < tiles; tile++) {
		uint32_t keys = stages + (uint32_t)(tile & 1) * 2 * TILE;
		uint32_t next = stages + (uint32_t)(~tile & 1) * 2 * TILE;
		float s[1][N][4], dp[1][N][4];

		if (tile + 1 < tiles) {
			tensor_load_tile<D, BN>(next, k, a.k_stride, (tile + 1) * BN, a);
			tensor_load_tile<D, BN>(next + TILE, v, a.v_stride, (tile + 1) * BN, a);
		}
		cp_async_commit_group();
		cp_async_wait_group<1>();
		__syncthreads();
		gemm_xyt<D>(s, q, warp * 16, keys);
		if ((tile + 1) * BN > mine)
			apply_causal_mask(s[0], mine - tile * BN);
		gemm_xyt<D>(dp, dout, warp * 16, keys + TILE);
#pragma unroll
		for (int n = 0; n < N; n++) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				s[0][n][i] = fast_exp2(fmaf(s[0][n][i], scale, -lse[i / 2])) *
					     (dp[0][n][i] - delta[i / 2]);
		}
		gemm_pv<D>(sum, s, keys);
		__syncthreads();
	}
	tensor_store_tile<D>(tensor_head(a.dq, a.dq_stride, head, a), a.dq_stride, mine, q,
		warp * 16, sum[0], a.scale, a.scale, a);
}

/* A stage of the kernel below: queries, their dout, lse and delta. */
template <int D, int BM> struct query_stage {
	static const uint32_t dout = BM * D * 2, lse = 2 * dout, delta = lse + BM * 4,
			      bytes = delta + BM * 4;
};

template <int D, int BM>
DEVICE void tensor_load_queries(uint32_t to, int64_t head, int64_t first, const attention_launch &a)
{
	int64_t row = first + threadIdx.x, at = (int64_t)blockIdx.z * a.length + row;
	float *lse = (float *)(SHARED_MEMORY + to + query_stage<D, BM>::lse);

	tensor_load_tile<D, BM>(to, tensor_head(a.q, a.q_stride, head, a), a.q_stride, first, a);
	tensor_load_tile<D, BM>(to + query_stage<D, BM>::dout,
		tensor_head(a.dout, a.dout_stride, head, a), a.dout_stride, first, a);
	if (threadIdx.x < BM) {
		lse[threadIdx.x] = row < a.length ? a.lse[at * a.lse_stride + head] * LOG2_E : 0.0f;
		lse[BM + threadIdx.x] = row < a.length ? a.delta[at * a.delta_stride + head] : 0.0f;
	}
}

/* Weights and ds of 16 keys (rows) by BM queries (columns). */
template <int D, int BM>
DEVICE void accumulate_dkv(float (&dk)[1][D / 8][4], float (&dv)[1][D / 8][4], uint32_t keys,
	uint32_t values, uint32_t stage, int row, int64_t key, int64_t query,
	const attention_launch &a)
{
	const int N = BM / 8;
	uint32_t dout = stage + query_stage<D, BM>::dout;
	const float *lse = (const float *)(SHARED_MEMORY + stage + query_stage<D, BM>::lse);
	int lane = (int)threadIdx.x % 32, behind = (int)(query - key) - lane / 4;
	int rest = (int)(a.length - query < BM ? a.length - query : BM);
	float s[1][N][4], dp[1][N][4], scale = a.scale * LOG2_E;

	gemm_xyt<D>(s, keys, row, stage);
#pragma unroll
	for (int i = 0; i < N * 4; i++) {
		int at = i / 4 * 8 + lane % 4 * 2 + i % 2;
		float x = fast_exp2(fmaf(s[0][i / 4][i % 4], scale, -lse[at]));

		s[0][i / 4][i % 4] = behind + at >= i % 4 / 2 * 8 && at < rest ? x : 0.0f;
	}
	gemm_pv<D>(dv, s, dout);
	gemm_xyt<D>(dp, values, row, dout);
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		s[0][i / 4][i % 4] *=
			dp[0][i / 4][i % 4] - lse[BM + i / 4 * 8 + lane % 4 * 2 + i % 2];
	gemm_pv<D>(dk, s, stage);
}

/* 64 keys a block, 16 a warp; over the queries of every head of the group. Grid: (tiles of keys,
 * the first of which take longest; kv heads; sequences). */
template <int D, int M, int BM> DEVICE void tensor_dkv(const attention_launch &a)
{
	static_assert(M == 1, "64 keys a block");
	const int BN = 64;
	const uint32_t keys = 0, values = BN * D * 2, stages = 2 * values,
		       BYTES = query_stage<D, BM>::bytes;
	int warp = (int)threadIdx.x / 32;
	int64_t first = (int64_t)blockIdx.x * BN, mine = first + warp * 16, kv_head = blockIdx.y;
	int group = (int)a.heads / (int)a.kv_heads, head = (int)blockIdx.y * group;
	int end = head + group;
	int64_t begin = first / BM * BM, query = begin;
	uint32_t stage = stages;
	float dk[1][D / 8][4], dv[1][D / 8][4];

#pragma unroll
	for (int n = 0; n < D / 8 * 4; n++)
		dk[0][n / 4][n % 4] = dv[0][n / 4][n % 4] = 0.0f;
	tensor_load_tile<D, BN>(
		keys, tensor_head(a.k, a.k_stride, kv_head, a), a.k_stride, first, a);
	tensor_load_tile<D, BN>(
		values, tensor_head(a.v, a.v_stride, kv_head, a), a.v_stride, first, a);
	tensor_load_queries<D, BM>(stage, head, query, a);
	cp_async_commit_group();
	while (head < end) {
		int64_t now = query;
		uint32_t this_stage = stage;

		query += BM;
		if (query >= a.length) {
			query = begin;
			head++;
		}
		stage = stages + (stage == stages ? BYTES : 0);
		if (head < end)
			tensor_load_queries<D, BM>(stage, head, query, a);
		cp_async_commit_group();
		cp_async_wait_group<1>();
		__syncthreads();
		accumulate_dkv<D, BM>(dk, dv, keys, values, this_stage, warp * 16, mine, now, a);
		__syncthreads();
	}
	tensor_store_tile<D>(tensor_head(a.dk, a.dk_stride, kv_head, a), a.dk_stride, mine, keys,
		warp * 16, dk[0], a.scale, a.scale, a);
	tensor_store_tile<D>(tensor_head(a.dv, a.dv_stride, kv_head, a), a.dv_stride, mine, values,
		warp * 16, dv[0], 1.0f, 1.0f, a);
}

#define TENSOR_LINE(X, name, pass, d, rows, others, stages)                                        \
	static_assert(stages == 2, "two stages");                                                  \
	KERNEL(name)                                                                               \
	{                                                                                          \
		tensor_##pass<d, (rows) / 64, others>(a);                                          \
	}
CUDA_TENSOR_FORWARD(TENSOR_LINE, )
CUDA_TENSOR_BACKWARD(TENSOR_LINE, )
#undef TENSOR_LINE
