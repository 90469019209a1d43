/* What the attention kernels for Hopper share. One group of warps copies tiles into a ring in
 * shared memory; groups of four warps with 64 rows each multiply them and never copy. A stage of
 * the ring has two barriers: full, when its copies are done, and empty, when every warp has read
 * it.
 *
 * No other architecture compiles this, and the image for none other has the kernels. */
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

enum { GROUP = 128, BARRIER_BYTES = 1024 }; /* tiles start at multiples of 1024 */

/* Place in a ring of S stages; its full barriers lie S * 8 bytes before the empty ones. */
template <int S> struct ring {
	int stage;
	uint32_t parity;
};

template <int S> DEVICE uint32_t full_barrier(const ring<S> &r, uint32_t barriers)
{
	return barriers + (uint32_t)r.stage * 8;
}

template <int S> DEVICE uint32_t empty_barrier(const ring<S> &r, uint32_t barriers)
{
	return barriers + (uint32_t)(S + r.stage) * 8;
}

template <int S> DEVICE void advance(ring<S> &r)
{
	if (++r.stage == S) {
		r.stage = 0;
		r.parity ^= 1;
	}
}

/* One thread; a ring whose stages are filled by a group and read by `warps`. */
template <int S> DEVICE void ring_begin(uint32_t barriers, int warps)
{
	for (int i = 0; i < S; i++) {
		barrier_begin(barriers + (uint32_t)i * 8, GROUP);
		barrier_begin(barriers + (uint32_t)(S + i) * 8, warps);
	}
}

/* The producer: when the stage may be written. */
template <int S> DEVICE void wait_empty(const ring<S> &r, uint32_t barriers)
{
	barrier_wait(empty_barrier(r, barriers), r.parity ^ 1);
}

template <int S> DEVICE void wait_full(const ring<S> &r, uint32_t barriers)
{
	barrier_wait(full_barrier(r, barriers), r.parity);
	products_see_memory();
}

/* The stage is full when the copies that this thread has begun are done. */
template <int S> DEVICE void filled(ring<S> &r, uint32_t barriers)
{
	barrier_arrive_with_copies(full_barrier(r, barriers));
	advance(r);
}

/* This warp has read the stage. */
template <int S> DEVICE void leave(ring<S> &r, uint32_t barriers)
{
	warp_barrier();
	if (threadIdx.x % 32 == 0)
		barrier_arrive(empty_barrier(r, barriers));
	advance(r);
}

/* A stage that this warp has no use for. */
template <int S> DEVICE void skip(ring<S> &r, uint32_t barriers)
{
	wait_full(r, barriers);
	leave(r, barriers);
}

/* How many tiles of BN keys the queries before `end` see. */
template <int BN> DEVICE int tiles_of(int end, const attention_launch &a)
{
	return ((end < a.length ? end : (int)a.length) + BN - 1) / BN;
}

/* What a block works on: a tile of rows of one head of one sequence. Heads are taken `together`, as
 * many as the cache has room for; of these the longest tiles come first, of queries the last. */
struct hopper_item {
	int tile, head, sequence;
};

/* The i-th item of a block, where there are fewer blocks than items. */
DEVICE int item_number(int i)
{
	return i * (int)gridDim.x + (int)blockIdx.x;
}

DEVICE hopper_item item_of(int i, int tiles, int heads, bool queries, const attention_launch &a)
{
	int pairs = heads * (int)a.sequences, together = (int)a.together;
	int section = i / (together * tiles), rest = i - section * together * tiles;
	int count = pairs - section * together;
	hopper_item item;

	count = count < together ? count : together;
	item.tile = rest / count;
	item.head = section * together + rest % count;
	item.sequence = item.head / heads;
	item.head -= item.sequence * heads;
	item.tile = queries ? tiles - 1 - item.tile : item.tile;
	return item;
}

DEVICE bf16 *hopper_head(
	const void *x, int64_t stride, int head, int sequence, const attention_launch &a)
{
	return (bf16 *)x + (int64_t)sequence * a.length * stride + head * a.head_dim;
}

/* Rows [first, first + ROWS) of a head, zeros past the sequence and past head_dim. A tile is D / 64
 * blocks of ROWS x 64, as matrix_at wants them. */
template <int D, int ROWS>
DEVICE void hopper_copy(
	uint32_t tile, const bf16 *from, int64_t stride, int first, const attention_launch &a)
{
	const int CHUNKS = D / 8, STEP = GROUP / CHUNKS;
	int thread = (int)threadIdx.x % GROUP, row = thread / CHUNKS, chunk = thread % CHUNKS;
	int rows = (int)(a.length - first < ROWS ? a.length - first : ROWS);
	const bf16 *at = from + (first + row) * stride + chunk * 8;
	bool inside = chunk * 8 < a.head_dim;

	tile += (uint32_t)(chunk / 8 * ROWS * 128 + row * 128);
#pragma unroll 4
	for (int i = 0; i < ROWS / STEP; i++) {
		bool valid = inside && row + i * STEP < rows;
		uint32_t swizzled = (uint32_t)((chunk ^ (row + i * STEP)) % 8 * 16);

		copy_async(tile + (uint32_t)(i * STEP * 128) + swizzled, valid ? at : from, valid);
		at += STEP * stride;
	}
}

/* s[64, BN] = rows [row, row + 64) of x[ROWS, D] times y[BN, D]^T, begun. */
template <int D, int ROWS, int N>
DEVICE void begin_scores(float (&s)[N][4], uint32_t x, int row, uint32_t y)
{
	const uint32_t NEXT = 16; /* not used along a row */
	uint32_t left = matrix_at(x + (uint32_t)row * 128, NEXT), right = matrix_at(y, NEXT);

#pragma unroll
	for (int step = 0; step < D / 16; step++)
		multiply_tiles(s, left + (uint32_t)((step / 4 * ROWS * 128 + step % 4 * 32) >> 4),
			right + (uint32_t)((step / 4 * N * 8 * 128 + step % 4 * 32) >> 4),
			step > 0);
}

/* sum[64, D] += p[64, 8 N] y[8 N, D], begun; p as `pack` made it. */
template <int D, int N>
DEVICE void begin_sums(float (&sum)[D / 8][4], const uint32_t (&p)[N / 2][4], uint32_t y)
{
	uint32_t right = matrix_at(y, N * 8 * 128);

#pragma unroll
	for (int step = 0; step < N / 2; step++)
		multiply_registers(sum, p[step], right + (uint32_t)(step * 2048 >> 4));
}

/* Results of one product as the left operand of the next. */
template <int N> DEVICE void pack(uint32_t (&p)[N / 2][4], const float (&s)[N][4])
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

/* 64 rows of a group's sums to memory, 16 bytes a lane. `first`: row of this lane's warp. */
template <int D>
DEVICE void hopper_store(bf16 *to, int64_t stride, int first, const float (&sum)[D / 8][4],
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

/* Registers of a copying thread and of a multiplying one: a block of three groups has 168 each. */
enum { COPIER_REGISTERS = 40, MULTIPLIER_REGISTERS = 232 };

/* The last group of the block copies. */
template <int GROUPS> DEVICE bool is_copier()
{
	if (threadIdx.x >= GROUPS * GROUP) {
		give_registers<COPIER_REGISTERS>();
		return true;
	}
	take_registers<MULTIPLIER_REGISTERS>();
	return false;
}

#endif
#endif
