/* What the attention kernels for Hopper share: warp specialization, the pipeline between producer
 * and consumers, the tile scheduler, loads and the epilogue. One producer warpgroup copies tiles
 * into a pipeline of stages in shared memory; consumer warpgroups with 64 rows each multiply them.
 * A stage has two mbarriers: full, when its copies have completed, and empty, when every consumer
 * warp has released it.
 *
 * Only the image for sm_90a has these kernels. */
#ifndef KERNELS_CUDA_HOPPER_TILES_CUH
#define KERNELS_CUDA_HOPPER_TILES_CUH

#include "kernels/cuda/device/causal.cuh"

#if !defined(__CUDACC__)
#define HOPPER 1 /* hopper.h of the tests was included before */
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER 1
#include "kernels/cuda/device/hopper.cuh"
#else
#define HOPPER 0
#endif

#if HOPPER

enum { WARPGROUP = 128, BARRIER_BYTES = CUDA_HOPPER_BARRIERS };
static_assert(CUDA_HOPPER_THREADS == 3 * WARPGROUP, "two consumers and a producer");

/* Position in a pipeline of S stages; its full barriers are S * 8 bytes before the empty ones. */
template <int S> struct pipeline_state {
	int stage;
	uint32_t phase;
};

template <int S> DEVICE uint32_t full_barrier(const pipeline_state<S> &r, uint32_t barriers)
{
	return barriers + (uint32_t)r.stage * 8;
}

template <int S> DEVICE uint32_t empty_barrier(const pipeline_state<S> &r, uint32_t barriers)
{
	return barriers + (uint32_t)(S + r.stage) * 8;
}

template <int S> DEVICE void advance(pipeline_state<S> &r)
{
	if (++r.stage == S) {
		r.stage = 0;
		r.phase ^= 1;
	}
}

/* By one thread: stages are filled by the producer warpgroup and released by `warps`. */
template <int S> DEVICE void pipeline_init(uint32_t barriers, int warps)
{
	for (int i = 0; i < S; i++) {
		mbarrier_init(barriers + (uint32_t)i * 8, WARPGROUP);
		mbarrier_init(barriers + (uint32_t)(S + i) * 8, warps);
	}
}

/* Waits until the stage may be written. */
template <int S> DEVICE void producer_acquire(const pipeline_state<S> &r, uint32_t barriers)
{
	mbarrier_wait(empty_barrier(r, barriers), r.phase ^ 1);
}

template <int S> DEVICE void consumer_wait(const pipeline_state<S> &r, uint32_t barriers)
{
	mbarrier_wait(full_barrier(r, barriers), r.phase);
	fence_proxy_async();
}

/* The stage is full when the cp.async of this thread have completed. */
template <int S> DEVICE void producer_commit(pipeline_state<S> &r, uint32_t barriers)
{
	cp_async_mbarrier_arrive_noinc(full_barrier(r, barriers));
	advance(r);
}

/* This warp has read the stage. */
template <int S> DEVICE void consumer_release(pipeline_state<S> &r, uint32_t barriers)
{
	warp_barrier();
	if (threadIdx.x % 32 == 0)
		mbarrier_arrive(empty_barrier(r, barriers));
	advance(r);
}

/* A stage that this warp does not use. */
template <int S> DEVICE void consumer_skip(pipeline_state<S> &r, uint32_t barriers)
{
	consumer_wait(r, barriers);
	consumer_release(r, barriers);
}

/* How many tiles of BN keys the queries before `end` see. */
template <int BN> DEVICE int key_tiles(int end, const attention_launch &a)
{
	return ((end < a.length ? end : (int)a.length) + BN - 1) / BN;
}

/* The tile scheduler. A work tile is a tile of rows of one head of one sequence. Heads are
 * scheduled in sections of `together`, as many as the cache has room for; within a section the
 * longest tiles come first: of queries the last. */
struct work_tile {
	int tile, head, sequence;
};

/* The i-th work tile of a block; blocks of a persistent kernel take many. */
DEVICE int work_index(int i)
{
	return i * (int)gridDim.x + (int)blockIdx.x;
}

DEVICE work_tile schedule_tile(int i, int tiles, int heads, bool queries, const attention_launch &a)
{
	int pairs = heads * (int)a.sequences, together = (int)a.together;
	int section = i / (together * tiles), rest = i - section * together * tiles;
	int count = pairs - section * together;
	work_tile work;

	count = count < together ? count : together;
	work.tile = rest / count;
	work.head = section * together + rest % count;
	work.sequence = work.head / heads;
	work.head -= work.sequence * heads;
	work.tile = queries ? tiles - 1 - work.tile : work.tile;
	return work;
}

DEVICE bf16 *hopper_head(
	const void *x, int64_t stride, int head, int sequence, const attention_launch &a)
{
	return (bf16 *)x + (int64_t)sequence * a.length * stride + head * a.head_dim;
}

/* Loads rows [first, first + ROWS) of a head, zeros past the sequence and past head_dim. A tile is
 * D / 64 blocks of ROWS x 64, in the 128-byte swizzle of wgmma_descriptor. */
template <int D, int ROWS>
DEVICE void hopper_load_tile(
	uint32_t tile, const bf16 *from, int64_t stride, int first, const attention_launch &a)
{
	const int CHUNKS = D / 8, STEP = WARPGROUP / CHUNKS;
	int thread = (int)threadIdx.x % WARPGROUP, row = thread / CHUNKS, chunk = thread % CHUNKS;
	int rows = (int)(a.length - first < ROWS ? a.length - first : ROWS);
	const bf16 *at = from + (first + row) * stride + chunk * 8;
	bool inside = chunk * 8 < a.head_dim;

	tile += (uint32_t)(chunk / 8 * ROWS * 128 + row * 128);
#pragma unroll 4
	for (int i = 0; i < ROWS / STEP; i++) {
		bool valid = inside && row + i * STEP < rows;
		uint32_t swizzled = (uint32_t)((chunk ^ (row + i * STEP)) % 8 * 16);

		cp_async_16(tile + (uint32_t)(i * STEP * 128) + swizzled, valid ? at : from, valid);
		at += STEP * stride;
	}
}

/* Issues s[64, BN] = rows [row, row + 64) of x[ROWS, D] times y[BN, D]^T. */
template <int D, int ROWS, int N>
DEVICE void gemm_ss(float (&s)[N][4], uint32_t x, int row, uint32_t y)
{
	const uint32_t LEADING = 16; /* not used with this swizzle along a row */
	uint32_t left = wgmma_descriptor(x + (uint32_t)row * 128, LEADING),
		 right = wgmma_descriptor(y, LEADING);

#pragma unroll
	for (int step = 0; step < D / 16; step++)
		wgmma_ss(s, left + (uint32_t)((step / 4 * ROWS * 128 + step % 4 * 32) >> 4),
			right + (uint32_t)((step / 4 * N * 8 * 128 + step % 4 * 32) >> 4),
			step > 0);
}

/* Issues sum[64, D] += p[64, 8 N] y[8 N, D]; p as `to_operand` made it. */
template <int D, int N>
DEVICE void gemm_rs(float (&sum)[D / 8][4], const uint32_t (&p)[N / 2][4], uint32_t y)
{
	uint32_t right = wgmma_descriptor(y, N * 8 * 128);

#pragma unroll
	for (int step = 0; step < N / 2; step++)
		/* 16 rows of 128 bytes; addresses in a descriptor are in units of 16 bytes. */
		wgmma_rs(sum, p[step], right + (uint32_t)(step * 2048 >> 4));
}

/* Accumulators of one GEMM as the register operand A of the next. */
template <int N> DEVICE void to_operand(uint32_t (&p)[N / 2][4], const float (&s)[N][4])
{
#pragma unroll
	for (int i = 0; i < N * 2; i++)
		p[i / 4][i % 4] = bf16_pair(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
}

template <int N> DEVICE void clear(float (&sum)[N][4])
{
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		sum[i / 4][i % 4] = 0.0f;
}

/* Words i of the four lanes 4 g .. 4 g + 3 to lane 4 g + i. */
DEVICE void transpose_quad(uint32_t (&w)[4])
{
	int lane = (int)threadIdx.x % 4;

#pragma unroll
	for (int bit = 1; bit <= 2; bit *= 2) {
		bool high = lane & bit;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			uint32_t give, got;

			if (i & bit)
				continue;
			give = high ? w[i] : w[i | bit];
			got = bits_of_float(shuffle_xor(bits_as_float(give), bit));
			w[i] = high ? got : w[i];
			w[i | bit] = high ? w[i | bit] : got;
		}
	}
}

/* The epilogue: 64 rows of a warpgroup's accumulators to memory, 16 bytes a lane. `first`: the
 * first row of this warp. */
template <int D>
DEVICE void hopper_store_tile(bf16 *to, int64_t stride, int first, const float (&sum)[D / 8][4],
	float factor, float factor8, const attention_launch &a)
{
	int lane = (int)threadIdx.x % 32, row = first + lane / 4;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		float f = half ? factor8 : factor;
		bool inside = row + half * 8 < a.length;
		bf16 *at = to + (row + half * 8) * stride + lane % 4 * 8;

#pragma unroll
		for (int n = 0; n < D / 8; n += 4) {
			uint32_t w[4];

#pragma unroll
			for (int i = 0; i < 4; i++)
				w[i] = bf16_pair(
					sum[n + i][half * 2] * f, sum[n + i][half * 2 + 1] * f);
			transpose_quad(w);
			if (inside && (n + lane % 4) * 8 < a.head_dim)
				*(uint4 *)(at + n * 8) = make_uint4(w[0], w[1], w[2], w[3]);
		}
	}
}

/* Registers per thread; a block of three warpgroups is launched with 168. */
enum { PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232 };

/* The last warpgroup of the block is the producer. */
template <int GROUPS> DEVICE bool is_producer()
{
	if (threadIdx.x >= GROUPS * WARPGROUP) {
		setmaxnreg_dec<PRODUCER_REGISTERS>();
		return true;
	}
	setmaxnreg_inc<CONSUMER_REGISTERS>();
	return false;
}

/* A kernel of a line of attention_shapes.h. */
#define HOPPER_LINE(X, name, pass, d, rows, others, stages)                                        \
	static_assert(pass##_smem<d, (rows) / 64, others, stages>::end ==                          \
			      CUDA_HOPPER_BARRIERS + CUDA_SHARED_##pass(d, rows, others, stages),  \
		"what a block is launched with");                                                  \
	HOPPER_KERNEL(name)                                                                        \
	{                                                                                          \
		hopper_##pass<d, (rows) / 64, others, stages>(a);                                  \
	}

#endif
#endif
