/* Gradients of the token and position tables: row r is the sum of dout's rows of the tokens that
 * name r, added in an order that follows from the shape and the ids alone.
 *
 * Token numbers are sorted by id, equal ids in token order (embedding_count, embedding_scatter, per
 * digit). The sorted places are cut into pieces of equal length (embedding_pieces): a block sums up
 * the runs of equal ids in its piece. A run that lies in one piece is a row of the table; the parts
 * of all others are joined in the order of the pieces (embedding_join). So it makes no difference
 * to the time how often an id occurs. Positions are sorted by themselves. */
#include "kernels/cuda/device.cuh"

enum {
	SORT_BINS = 1 << CUDA_SORT_BITS,
	SORT_ROUNDS = 8, /* tokens of a thread: CUDA_SORT_TILE = 256 * SORT_ROUNDS */
	ABREAST = 4,     /* rows of dout that a thread loads at once */
};

/* The row of the table, or `rows` for an id that is outside of it: those come last. */
DEVICE uint32_t row_of_token(const embedding_ids &a, int32_t token)
{
	uint32_t at = (uint32_t)(a.first + token);
	int64_t id = a.ids[(int64_t)(at / a.length) * a.stride + at % a.length];

	return (uint32_t)(id >= 0 && id < a.rows ? id : a.rows);
}

DEVICE int32_t digit_of(const embedding_sort_launch &a, int32_t token)
{
	return (int32_t)(row_of_token(a.ids, token) >> a.shift & (SORT_BINS - 1));
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

	end = end < a.tokens ? end : a.tokens;
	for (int bin = (int)threadIdx.x; bin < SORT_BINS; bin += (int)blockDim.x)
		count[bin] = 0;
	__syncthreads();
	for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
		atomic_add(&count[digit_of(a, token_at(a, i))], 1);
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
 * of the shares before. A thread has two digits. */
DEVICE void find_places(const embedding_sort_launch &a, int32_t *place, int32_t *scratch)
{
	int bin = 2 * (int)threadIdx.x;
	int32_t total[2] = {0, 0}, before[2] = {0, 0}, at;

#pragma unroll 4
	for (int share = 0; share < (int)gridDim.x; share++) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			int32_t n = a.counts[share * SORT_BINS + bin + i];

			total[i] += n;
			before[i] += share < (int)blockIdx.x ? n : 0;
		}
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

/* 2048 tokens from `first` on, to their places, which then stand behind them. */
DEVICE void scatter_tile(
	const embedding_sort_launch &a, int64_t first, int64_t end, int32_t *place, int32_t *counts)
{
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	int32_t token[SORT_ROUNDS], digit[SORT_ROUNDS], rank[SORT_ROUNDS];
	int32_t *mine = counts + warp * SORT_BINS;

	for (int bin = lane; bin < SORT_BINS; bin += 32)
		mine[bin] = 0;
	first += warp * 32 * SORT_ROUNDS + lane;
#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++)
		token[i] = first + 32 * i < end ? token_at(a, first + 32 * i) : -1;
#pragma unroll
	for (int i = 0; i < SORT_ROUNDS; i++)
		digit[i] = token[i] >= 0 ? digit_of(a, token[i]) : -1;
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
			a.to[mine[digit[i]] + rank[i]] = token[i];
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

/* --- sums of runs --- */

/* Token and row at sorted place i. Of positions, the first tokens % length have one more token. */
DEVICE void look_up(const embedding_runs_launch &a, int64_t i, int32_t *token, int32_t *row)
{
	int64_t each, rest;

	if (a.order) {
		*token = a.order[i];
		*row = (int32_t)row_of_token(a.ids, *token);
		return;
	}
	each = a.tokens / a.length + 1;
	rest = a.tokens % a.length;
	if (i < rest * each) {
		*row = (int32_t)(i / each);
	} else {
		i -= rest * each--;
		*row = (int32_t)(rest + i / each);
	}
	*token = (int32_t)(i % each * a.length + *row);
}

template <bool VECTOR, int N, typename T>
DEVICE void take(float (&v)[N], const T *from, int64_t rest)
{
	if (VECTOR)
		load(v, from);
	else
		load_some(v, from, rest, false);
}

/* As store, which nvcc takes apart here. */
template <int N> DEVICE void store_whole(float *to, const float (&v)[N])
{
#pragma unroll
	for (int i = 0; i < N; i += 4)
		store_16(to + i, make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]));
}

template <int N> DEVICE void store_whole(bf16 *to, const float (&v)[N])
{
	store(to, v);
}

template <bool VECTOR, int N, typename T> DEVICE void give(T *to, const float (&v)[N], int64_t rest)
{
	if (VECTOR)
		store_whole(to, v);
	else
		store_some(to, v, rest, false);
}

/* The run that ends at place `end` of the piece. row[-1] and row[count] are those of the
 * neighbours. */
template <bool VECTOR, typename G, int N>
DEVICE void finish_run(const embedding_runs_launch &a, const int32_t *row, int end, int count,
	int64_t column, const float (&sum)[N])
{
	int64_t piece = blockIdx.x, rest = a.width - column;
	bool comes = row[end] == row[-1], goes = row[end] == row[count];
	G *to = (G *)a.gradient + row[end] * a.width + column;
	float old[N] = {0.0f};

	if (row[end] >= a.rows)
		return;
	if (comes || goes) {
		give<VECTOR>(a.partial + (2 * piece + !comes) * a.columns + (column - a.column),
			sum, rest);
		return;
	}
	if (a.accumulate)
		take<VECTOR>(old, to, rest);
#pragma unroll
	for (int j = 0; j < N; j++)
		old[j] = old[j] + sum[j];
	give<VECTOR>(to, old, rest);
}

template <bool VECTOR, typename G, typename T>
DEVICE void add_runs(const embedding_runs_launch &a, const int32_t *token, const int32_t *row,
	int count, int64_t column)
{
	const int N = lanes<G, T>::count;
	const T *from = (const T *)a.dout + column;
	float sum[N] = {0.0f}, x[ABREAST][N];

	for (int i = 0; i < count; i += ABREAST) {
#pragma unroll
		for (int k = 0; k < ABREAST; k++) {
			int at = i + k < count ? i + k : count - 1;

			take<VECTOR>(x[k], from + token[at] * a.width, a.width - column);
		}
#pragma unroll
		for (int k = 0; k < ABREAST; k++) {
			if (i + k >= count)
				break;
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] += x[k][j];
			if (i + k + 1 < count && row[i + k + 1] == row[i + k])
				continue;
			finish_run<VECTOR, G>(a, row, i + k, count, column, sum);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] = 0.0f;
		}
	}
}

/* Grid: (pieces, blocks of packs of columns). partial[piece][0] is of the run that comes from the
 * piece before, [1] of one that begins here and goes on; edges[piece] its first and last row. */
template <typename G, typename T> DEVICE void runs_body(const embedding_runs_launch &a)
{
	int64_t first = (int64_t)blockIdx.x * a.piece;
	int64_t pack = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
	int64_t column = a.column + pack * lanes<G, T>::count, end = a.column + a.columns;
	int32_t *token = (int32_t *)SHARED_MEMORY, *row = token + a.piece + 1;
	int count = (int)(a.tokens - first < a.piece ? a.tokens - first : a.piece);

	for (int i = (int)threadIdx.x - 1; i <= count; i += (int)blockDim.x) {
		int32_t t = 0, r = -1;

		if (first + i >= 0 && first + i < a.tokens)
			look_up(a, first + i, &t, &r);
		row[i] = r;
		if (i >= 0 && i < count)
			token[i] = t;
	}
	__syncthreads();
	if (pack == 0) {
		a.edges[2 * (int64_t)blockIdx.x] = row[0];
		a.edges[2 * (int64_t)blockIdx.x + 1] = row[count - 1];
	}
	if (column >= end)
		return;
	if (a.vector)
		add_runs<true, G, T>(a, token, row, count, column);
	else
		add_runs<false, G, T>(a, token, row, count, column);
}
KERNEL_PAIRS(embedding_runs, runs_body)

/* The last piece that begins with the row with which the first piece ends. */
DEVICE int64_t last_piece(const int32_t *edges, int64_t first, int64_t pieces)
{
	int64_t last = first + 1, beyond = pieces;

	while (beyond - last > 1) {
		int64_t middle = last + (beyond - last) / 2;

		if (edges[2 * middle] == edges[2 * first + 1])
			last = middle;
		else
			beyond = middle;
	}
	return last;
}

/* Grid: (pieces, blocks of columns). A block joins the run that begins in its piece and goes on, if
 * there is one. */
template <typename G> DEVICE void join_body(const embedding_runs_launch &a)
{
	int64_t piece = blockIdx.x, pieces = gridDim.x, last;
	int64_t column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
	const int32_t *edges = a.edges + 2 * piece;
	int32_t row = edges[1];
	G *to = (G *)a.gradient + row * a.width + a.column + column;
	const float *part = a.partial + column;
	float sum;

	if (column >= a.columns || row >= a.rows || piece + 1 == pieces || edges[2] != row)
		return;
	if (piece > 0 && edges[0] == row && edges[-1] == row)
		return;
	last = last_piece(a.edges, piece, pieces);
	sum = part[(2 * piece + 1) * a.columns];
#pragma unroll 8
	for (int64_t i = piece + 1; i <= last; i++)
		sum += part[2 * i * a.columns];
	put(to, a.accumulate ? to_float(*to) + sum : sum);
}
KERNEL_BOTH(embedding_join, join_body)
