/* Token numbers sorted by id, equal ids in token order, for the gradient of an embedding
 * (embedding.cuh): so many bits at a time. The digits of the first pass are counted; those of the
 * next while tokens find their places. */
#ifndef KERNELS_CUDA_EMBEDDING_SORT_CUH
#define KERNELS_CUDA_EMBEDDING_SORT_CUH

#include "kernels/cuda/device/elements.cuh"

enum {
	SORT_BINS = 1 << CUDA_SORT_BITS,
	SORT_ROUNDS = 8, /* tokens of a thread: CUDA_SORT_TILE = 256 * SORT_ROUNDS */
};

/* The row of the table, or `rows` for an id that is outside of it: those come last. */
DEVICE uint32_t row_of_token(const embedding_ids &a, int32_t token)
{
	uint32_t at = (uint32_t)(a.first + token);
	int64_t id = a.ids[(int64_t)(at / a.length) * a.stride + at % a.length];

	return (uint32_t)(id >= 0 && id < a.rows ? id : a.rows);
}

DEVICE int32_t digit_of(const embedding_sort_launch &a, uint32_t row)
{
	return (int32_t)(row >> a.shift & (SORT_BINS - 1));
}

/* The i-th token of this digit's pass; the first pass takes them as they come. */
DEVICE int32_t token_at(const embedding_sort_launch &a, int64_t i)
{
	return a.from ? a.from[i] : (int32_t)i;
}

/* Grid: shares of the tokens. How often each digit occurs in a share. */
KERNEL(embedding_count)
{
	int32_t *count = (int32_t *)SHARED_MEMORY;
	int64_t first = (int64_t)blockIdx.x * a.share, end = first + a.share;
	int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

#pragma unroll 1
	for (int64_t i = thread; i < a.clear_bytes / 16; i += (int64_t)gridDim.x * blockDim.x)
		((uint4 *)a.clear)[i] = make_uint4(0, 0, 0, 0);
	end = end < a.tokens ? end : a.tokens;
	for (int bin = (int)threadIdx.x; bin < SORT_BINS; bin += (int)blockDim.x)
		count[bin] = 0;
	__syncthreads();
	for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
		atomic_add(&count[digit_of(a, row_of_token(a.ids, token_at(a, i)))], 1);
	__syncthreads();
	for (int bin = (int)threadIdx.x; bin < SORT_BINS; bin += (int)blockDim.x)
		a.counts[(int64_t)blockIdx.x * SORT_BINS + bin] = count[bin];
}

/* The sum of x over the threads before this one. `scratch`: two numbers per thread. */
DEVICE int32_t sum_before(int32_t x, int32_t *scratch)
{
	int thread = (int)threadIdx.x, threads = (int)blockDim.x;
	int32_t sum = x;

	for (int step = 1; step < threads; step *= 2) {
		scratch[thread] = sum;
		__syncthreads();
		sum += thread >= step ? scratch[thread - step] : 0;
		scratch += step & 0x55555555 ? threads : -threads; /* by turns */
	}
	return sum - x;
}

/* Where this share's tokens of each digit go: behind all smaller digits, and behind the same digit
 * of the shares before. A thread has two digits, and many shares in flight. */
DEVICE void find_places(const embedding_sort_launch &a, int32_t *place, int32_t *scratch)
{
	int bin = 2 * (int)threadIdx.x;
	int32_t total[2] = {0, 0}, before[2] = {0, 0}, at;

#pragma unroll 16
	for (int share = 0; share < (int)gridDim.x; share++) {
		uint2 n = *(const uint2 *)(a.counts + share * SORT_BINS + bin);

		total[0] += (int32_t)n.x;
		total[1] += (int32_t)n.y;
		before[0] += share < (int)blockIdx.x ? (int32_t)n.x : 0;
		before[1] += share < (int)blockIdx.x ? (int32_t)n.y : 0;
	}
	at = sum_before(total[0] + total[1], scratch);
	place[bin] = at + before[0];
	place[bin + 1] = at + total[0] + before[1];
}

/* How many tokens of the warp's 256 have the same digit and come earlier; count[digit] of the warp
 * ends as how many there are. A digit below 0: no token. */
DEVICE void rank_in_warp(
	const int32_t (&digit)[SORT_ROUNDS], int32_t (&rank)[SORT_ROUNDS], int32_t *count)
{
	uint32_t lower = (1u << threadIdx.x % 32) - 1;

#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++) {
		uint32_t same = warp_match((uint32_t)digit[i]);

		rank[i] = (digit[i] >= 0 ? count[digit[i]] : 0) + count_bits(same & lower);
		warp_barrier();
		if (digit[i] >= 0 && (same & lower) == 0)
			count[digit[i]] = rank[i] + count_bits(same);
		warp_barrier();
	}
}

/* A token goes to its place; what comes later hears of its row and of its next digit. */
DEVICE void put_token(const embedding_sort_launch &a, int32_t place, int32_t token, uint32_t row)
{
	a.to[place] = token;
	if (a.named && row < (uint32_t)a.ids.rows)
		a.named[row] = 1;
	if (a.next)
		atomic_add(&a.next[(uint32_t)place / (uint32_t)a.share * SORT_BINS +
				   (row >> a.shift >> CUDA_SORT_BITS & (SORT_BINS - 1))],
			1);
}

/* 2048 tokens from `first` on, to their places, which then stand behind them. */
DEVICE void scatter_tile(
	const embedding_sort_launch &a, int64_t first, int64_t end, int32_t *place, int32_t *counts)
{
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int32_t token[SORT_ROUNDS], digit[SORT_ROUNDS], rank[SORT_ROUNDS];
	uint32_t row[SORT_ROUNDS];
	int32_t *mine = counts + warp * SORT_BINS;

	for (int bin = lane; bin < SORT_BINS; bin += 32)
		mine[bin] = 0;
	first += warp * 32 * SORT_ROUNDS + lane;
#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++)
		token[i] = first + 32 * i < end ? token_at(a, first + 32 * i) : -1;
#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++) {
		row[i] = token[i] >= 0 ? row_of_token(a.ids, token[i]) : 0;
		digit[i] = token[i] >= 0 ? digit_of(a, row[i]) : -1;
	}
	warp_barrier();
	rank_in_warp(digit, rank, mine);
	__syncthreads();
	for (int bin = (int)threadIdx.x; bin < SORT_BINS; bin += (int)blockDim.x) {
		int32_t at = place[bin];

		for (int w = 0; w < 8; w++) {
			int32_t n = counts[w * SORT_BINS + bin];

			counts[w * SORT_BINS + bin] = at;
			at += n;
		}
		place[bin] = at;
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++) {
		if (digit[i] >= 0)
			put_token(a, mine[digit[i]] + rank[i], token[i], row[i]);
	}
	warp_barrier();
}

/* Grid: as embedding_count, 256 threads. */
KERNEL(embedding_scatter)
{
	int32_t *place = (int32_t *)SHARED_MEMORY, *counts = place + SORT_BINS;
	int64_t first = (int64_t)blockIdx.x * a.share, end = first + a.share;

	end = end < a.tokens ? end : a.tokens;
	find_places(a, place, counts);
	__syncthreads();
	for (; first < end; first += CUDA_SORT_TILE)
		scatter_tile(a, first, end, place, counts);
}

#endif
