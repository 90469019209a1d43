/* Gradients of the token and position tables: row r is the sum of dout's rows of the tokens that
 * name r, added in an order that follows from the shape and the ids alone.
 *
 * Token numbers are sorted by id (embedding_sort.cuh). The sorted places are cut into pieces of
 * equal length (embedding_runs): a block sums up the runs of equal ids in its piece. A run that
 * lies in one piece is a row of the table; the parts of all others are joined in the order of the
 * pieces (embedding_join). So it makes no difference to the time how often an id occurs. Positions
 * are sorted by themselves, and go with the table in the same launches. Rows that no id names
 * become zeros beside the sums, not before them. */
#include "kernels/cuda/device/embedding_sort.cuh"

enum { ABREAST = 4 }; /* rows of dout that a thread loads at once */

/* Token and row at sorted place i. Of positions, the first tokens % length have one more token. */
DEVICE void look_up(const embedding_runs_launch &a, const embedding_side &side, int64_t i,
	int32_t *token, int32_t *row)
{
	uint32_t length = (uint32_t)a.length, at = (uint32_t)i, each, rest;

	if (side.order) {
		*token = side.order[i];
		*row = (int32_t)row_of_token(a.ids, *token);
		return;
	}
	each = (uint32_t)a.tokens / length + 1;
	rest = (uint32_t)a.tokens % length;
	if (at < rest * each) {
		*row = (int32_t)(at / each);
	} else {
		at -= rest * each--;
		*row = (int32_t)(rest + at / each);
	}
	*token = (int32_t)(at % each * length) + *row;
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

DEVICE void set_lane(uint32_t (&word)[4], int i, float x)
{
	word[i] = bits_of_float(x);
}

DEVICE void set_lane(uint32_t (&word)[4], int i, bf16 x)
{
	word[i / 2] |= (uint32_t)x.bits << 16 * (i % 2);
}

/* N elements as they are in memory: 16 bytes or, of the narrower of two types, 8. */
template <bool VECTOR, int N, typename T> DEVICE raw<T> fetch_lanes(const T *from, int64_t rest)
{
	uint32_t word[4] = {0, 0, 0, 0};

	if constexpr (VECTOR && N * sizeof(T) == 16) {
		return {*(const uint4 *)from};
	} else if constexpr (VECTOR) {
		uint2 x = *(const uint2 *)from;

		return {make_uint4(x.x, x.y, 0, 0)};
	} else {
#pragma unroll
		for (int i = 0; i < N; i++) {
			if (i < rest)
				set_lane(word, i, from[i]);
		}
		return {make_uint4(word[0], word[1], word[2], word[3])};
	}
}

DEVICE void spread(float (&v)[4], const raw<bf16> &x)
{
	split(v, x.bits.x), split(v + 2, x.bits.y);
}

/* What becomes of a sum behind a place, where it is not a row of the gradient. */
enum {
	GOES_ON = -1,
	OUTSIDE = -2,
	COMES_FROM_BEFORE = -3, /* a part of a row */
	BEGINS_HERE = -4,       /* the same, of a run that goes on in the next piece */
};

/* A piece of the sorted places of one side; row[-1] and row[count] are those of the neighbours. */
struct piece {
	const embedding_side &side;
	int64_t number;
	int32_t *token, *target, *row;
	int count;
};

DEVICE int32_t target_of(const piece &p, int i)
{
	int32_t row = p.row[i];

	if (i + 1 < p.count && p.row[i + 1] == row)
		return GOES_ON;
	if (row >= p.side.rows)
		return OUTSIDE;
	if (row == p.row[-1])
		return COMES_FROM_BEFORE;
	return row == p.row[p.count] ? BEGINS_HERE : row;
}

/* old: what the gradient has there, where it is added to. */
template <bool VECTOR, int N, typename G>
DEVICE void finish_run(const embedding_runs_launch &a, const piece &p, int32_t target,
	int64_t column, const float (&sum)[N], const raw<G> &old)
{
	int64_t rest = a.width - column, slot = 2 * p.number + (target == BEGINS_HERE);
	float v[N] = {0.0f};

	if (target >= 0) {
		if (p.side.accumulate)
			spread(v, old);
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = v[j] + sum[j];
		give<VECTOR>((G *)p.side.gradient + target * a.width + column, v, rest);
	} else if (target != OUTSIDE) {
		give<VECTOR>(p.side.partial + slot * a.columns + (column - a.column), sum, rest);
	}
}

/* Rows of dout, and those of the gradient that they are added to, are in flight together. */
template <bool VECTOR, typename G, typename T>
DEVICE void add_runs(const embedding_runs_launch &a, const piece &p, int64_t column)
{
	const int N = lanes<G, T>::count;
	const T *from = (const T *)a.dout + column;
	const G *to = (const G *)p.side.gradient + column;
	int64_t rest = a.width - column;
	float sum[N] = {0.0f}, v[N];
	raw<T> x[ABREAST];
	raw<G> old[ABREAST];

	for (int i = 0; i < p.count; i += ABREAST) {
#pragma unroll
		for (int k = 0; k < ABREAST; k++) {
			int at = i + k < p.count ? i + k : p.count - 1;
			int32_t target = p.target[at];

			x[k] = fetch_lanes<VECTOR, N>(from + p.token[at] * a.width, rest);
			if (p.side.accumulate && target >= 0)
				old[k] = fetch_lanes<VECTOR, N>(to + target * a.width, rest);
		}
#pragma unroll
		for (int k = 0; k < ABREAST; k++) {
			if (i + k >= p.count)
				break;
			spread(v, x[k]);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] += v[j];
			if (p.target[i + k] == GOES_ON)
				continue;
			finish_run<VECTOR>(a, p, p.target[i + k], column, sum, old[k]);
#pragma unroll
			for (int j = 0; j < N; j++)
				sum[j] = 0.0f;
		}
	}
}

/* Tokens, rows and targets of a piece, for all threads of the block. */
DEVICE void read_piece(const embedding_runs_launch &a, const piece &p, int64_t first)
{
	for (int i = (int)threadIdx.x - 1; i <= p.count; i += (int)blockDim.x) {
		int32_t t = 0, r = -1;

		if (first + i >= 0 && first + i < a.tokens)
			look_up(a, p.side, first + i, &t, &r);
		p.row[i] = r;
		if (i >= 0 && i < p.count)
			p.token[i] = t;
	}
	__syncthreads();
	for (int i = (int)threadIdx.x; i < p.count; i += (int)blockDim.x)
		p.target[i] = target_of(p, i);
	__syncthreads();
}

/* Zeros for the rows from CUDA_ZERO_ROWS `block` on that have no mark. */
template <int N, typename G>
DEVICE void zero_rows(const embedding_runs_launch &a, int64_t block, int64_t column)
{
	int64_t first = block * CUDA_ZERO_ROWS, mine = first + threadIdx.x % 32;
	uint32_t unnamed = warp_vote(mine < a.table.rows && !a.table.named[mine]);
	G *to = (G *)a.table.gradient + first * a.width + column;
	const float zero[N] = {0.0f};

	for (int i = 0; i < CUDA_ZERO_ROWS && column < a.column + a.columns; i++) {
		if (!(unnamed >> i & 1))
			continue;
		if (a.vector)
			give<true>(to + i * a.width, zero, N);
		else
			give<false>(to + i * a.width, zero, a.width - column);
	}
}

/* Grid: (blocks as embedding_runs_launch says, blocks of packs of columns). partial[piece][0] is of
 * the run that comes from the piece before, [1] of one that begins here and goes on; edges[piece]
 * its first and last row. */
template <typename G, typename T> DEVICE void runs_body(const embedding_runs_launch &a)
{
	int64_t pack = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, number = blockIdx.x;
	int64_t column = a.column + pack * lanes<G, T>::count, first;
	bool of_positions = number < a.positions.pieces;
	const embedding_side &side = of_positions ? a.positions : a.table;
	int32_t *token = (int32_t *)SHARED_MEMORY;
	int count;

	number -= of_positions ? 0 : a.positions.pieces;
	if (number >= side.pieces) {
		zero_rows<lanes<G, T>::count, G>(a, number - side.pieces, column);
		return;
	}
	first = number * a.piece;
	count = (int)(a.tokens - first < a.piece ? a.tokens - first : a.piece);
	const piece p = {side, number, token, token + a.piece, token + 2 * a.piece + 1, count};

	read_piece(a, p, first);
	if (pack == 0 && side.edges) {
		side.edges[2 * number] = p.row[0];
		side.edges[2 * number + 1] = p.row[count - 1];
	}
	if (column >= a.column + a.columns)
		return;
	if (a.vector)
		add_runs<true, G, T>(a, p, column);
	else
		add_runs<false, G, T>(a, p, column);
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

/* Parts of a run: of the piece it begins in, then of those up to `last`. */
template <bool VECTOR, typename G>
DEVICE void join_parts(const embedding_runs_launch &a, const embedding_side &side, int64_t piece,
	int64_t last, int64_t column, G *to)
{
	const int N = CUDA_JOIN_COLUMNS;
	const float *part = side.partial + column;
	int64_t rest = a.columns - column;
	float sum[N], next[N];

	take<VECTOR>(sum, part + (2 * piece + 1) * a.columns, rest);
#pragma unroll 8
	for (int64_t i = piece + 1; i <= last; i++) {
		take<VECTOR>(next, part + 2 * i * a.columns, rest);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] += next[j];
	}
	if (side.accumulate) {
		take<VECTOR>(next, to, rest);
#pragma unroll
		for (int j = 0; j < N; j++)
			sum[j] = next[j] + sum[j];
	}
	give<VECTOR>(to, sum, rest);
}

/* Grid: (pieces of the positions, then of the table; blocks of columns). A block joins the run that
 * begins in its piece and goes on, if there is one. Positions that no piece cuts have no edges. */
template <typename G> DEVICE void join_body(const embedding_runs_launch &a)
{
	int64_t before = a.positions.edges ? a.positions.pieces : 0, piece = blockIdx.x;
	bool of_positions = piece < before;
	const embedding_side &side = of_positions ? a.positions : a.table;
	int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * CUDA_JOIN_COLUMNS, last;
	const int32_t *edges;
	int32_t row;
	G *to;

	piece -= of_positions ? 0 : before;
	edges = side.edges + 2 * piece;
	row = edges[1];
	to = (G *)side.gradient + row * a.width + a.column + column;
	if (column >= a.columns || row >= side.rows || piece + 1 == side.pieces || edges[2] != row)
		return;
	if (piece > 0 && edges[0] == row && edges[-1] == row)
		return;
	last = last_piece(side.edges, piece, side.pieces);
	if (a.vector)
		join_parts<true, G>(a, side, piece, last, column, to);
	else
		join_parts<false, G>(a, side, piece, last, column, to);
}
KERNEL_BOTH(embedding_join, join_body)
