/* Kernels that look tokens up: embedding, its gradient, the loss. */
#include "kernels/cuda/device.cuh"

/* Grid: (tokens, packs of columns). An unknown token is noted and reads as zeros. */
template <typename T> DEVICE void embedding_body(const embedding_launch &a)
{
	const int N = lanes<T>::count;
	int64_t token = blockIdx.x, id = a.ids[token];
	bool known = id >= 0 && id < a.vocabulary;
	int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
	int64_t rest = a.width - column;
	float x[N] = {0.0f}, y[N];

	if (rest <= 0)
		return;
	if (!known && column == 0)
		atomic_max(a.fault, id < 0 ? INT32_MAX : (int32_t)id);
	if (known)
		load_some(x, (const T *)a.table + id * a.width + column, rest, a.vector);
	if (known && a.positions) {
		load_some(y, (const T *)a.positions + token % a.length * a.width + column, rest,
			a.vector);
#pragma unroll
		for (int j = 0; j < N; j++)
			x[j] = x[j] + y[j];
	}
	store_some((T *)a.out + token * a.width + column, x, rest, a.vector);
}
KERNEL_BOTH(embedding, embedding_body)

/* dtable without sorting and without atomic sums. A block owns 32 rows of the table: it collects
 * the tokens that name one of them, in token order, and adds their gradients in that order. */
enum { TABLE_ROWS = 32, MOST_HITS = 2048, TABLE_COLUMNS = 512 };

struct hits {
	int32_t token[MOST_HITS], row[MOST_HITS];
	int32_t per_warp[8];
	int32_t count;
};

/* Appends what this stretch of 256 tokens has, in order; counts on past MOST_HITS. */
DEVICE void collect(hits *h, const int32_t *ids, int64_t tokens, int64_t token, int64_t first_row)
{
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, at, before;
	int64_t row = token < tokens ? ids[token] - first_row : -1;
	bool hit = row >= 0 && row < TABLE_ROWS;
	uint32_t mask = warp_vote(hit);

	if (lane == 0)
		h->per_warp[warp] = count_bits(mask);
	__syncthreads();
	at = h->count + count_bits(mask & ((1u << lane) - 1));
	for (before = 0; before < warp; before++)
		at += h->per_warp[before];
	if (hit && at < MOST_HITS) {
		h->token[at] = (int32_t)token;
		h->row[at] = (int32_t)row;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int w = 0; w < 8; w++)
			h->count += h->per_warp[w];
	}
	__syncthreads();
}

/* The sum over the tokens of `row`, for two columns of this thread. */
template <typename T>
DEVICE int sum_of_row(const embedding_backward_launch &a, const hits *h, int row, int64_t first_row,
	int64_t column, float (&sum)[2])
{
	bool listed = h->count <= MOST_HITS;
	int64_t end = listed ? h->count : a.tokens;
	int found = 0;

	for (int64_t i = 0; i < end; i++) {
		int64_t token = listed ? h->token[i] : i;

		if ((listed ? h->row[i] : a.ids[i] - first_row) != row)
			continue;
		found++;
#pragma unroll
		for (int j = 0; j < 2; j++) {
			if (column + 256 * j < a.width)
				sum[j] += to_float(
					((const T *)a.dout)[token * a.width + column + 256 * j]);
		}
	}
	return found;
}

/* Grid: (blocks of 32 rows, blocks of 512 columns). G: the gradient's type, T: that of dout. */
template <typename G, typename T> DEVICE void table_body(const embedding_backward_launch &a)
{
	hits *h = (hits *)SHARED_MEMORY;
	int64_t first_row = (int64_t)blockIdx.x * TABLE_ROWS;
	int64_t column = (int64_t)blockIdx.y * TABLE_COLUMNS + threadIdx.x;

	if (threadIdx.x == 0)
		h->count = 0;
	__syncthreads();
	for (int64_t token = 0; token < a.tokens; token += 256)
		collect(h, a.ids, a.tokens, token + threadIdx.x, first_row);
	for (int row = 0; row < TABLE_ROWS && first_row + row < a.rows; row++) {
		float sum[2] = {0.0f, 0.0f};
		int found = sum_of_row<T>(a, h, row, first_row, column, sum);

		for (int j = 0; j < 2; j++) {
			int64_t c = column + 256 * j;
			G *to = (G *)a.gradient + (first_row + row) * a.width + c;

			if (c < a.width && (found > 0 || !a.accumulate))
				put(to, a.accumulate ? to_float(*to) + sum[j] : sum[j]);
		}
	}
}
KERNEL_PAIRS(embedding_table, table_body)

/* Grid: (positions, blocks of 256 columns). */
template <typename G, typename T> DEVICE void positions_body(const embedding_backward_launch &a)
{
	int64_t column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x, position = blockIdx.x;
	G *to = (G *)a.gradient + position * a.width + column;
	float sum = 0.0f;

	if (column >= a.width)
		return;
	for (int64_t t = position; position < a.length && t < a.tokens; t += a.length)
		sum += to_float(((const T *)a.dout)[t * a.width + column]);
	put(to, a.accumulate ? to_float(*to) + sum : sum);
}
KERNEL_PAIRS(embedding_positions, positions_body)

/* The largest logit and the sum of exp(logit - largest) of this thread's share, in one pass. */
template <int N> DEVICE void meet(const float (&x)[N], int64_t rest, float *top, float *sum)
{
	float most = *top;

#pragma unroll
	for (int j = 0; j < N; j++)
		most = j < rest ? fmaxf(most, x[j]) : most;
	*sum *= expf(*top - most);
#pragma unroll
	for (int j = 0; j < N; j++)
		*sum += j < rest ? expf(x[j] - most) : 0.0f;
	*top = most;
}

/* Grid: tokens. The gradient takes the place of the logits; fp32 exists in registers only. A row
 * that fits in shared memory is read once. */
template <typename T> DEVICE void cross_entropy_body(const cross_entropy_launch &a)
{
	const int N = lanes<T>::count;
	float *scratch = (float *)SHARED_MEMORY, top = -3.0e38f, sum = 0.0f, most, share, v[N];
	int64_t token = blockIdx.x, step = (int64_t)blockDim.x * N,
		first = (int64_t)threadIdx.x * N;
	int64_t target = a.targets[token / a.length * a.targets_stride + token % a.length];
	bool counted = target >= 0 && target < a.vocabulary;
	T *x = (T *)a.logits + token * a.stride, *copy = (T *)(scratch + 32);
	const T *again = a.in_shared ? copy : x;

	for (int64_t i = first; i < a.vocabulary && counted; i += step) {
		load_some(v, (const T *)x + i, a.vocabulary - i, a.vector);
		if (a.in_shared)
			store_some(copy + i, v, a.vocabulary - i, true);
		meet(v, a.vocabulary - i, &top, &sum);
	}
	most = block_max(top, scratch);
	sum = block_sum(sum * expf(top - most), scratch);
	if (threadIdx.x == 0) {
		a.losses[token] = counted ? logf(sum) + (most - to_float(x[target])) : 0.0f;
		if (target >= a.vocabulary)
			atomic_max(a.fault, (int32_t)target);
	}
	__syncthreads(); /* the target's logit was read */
	share = a.scale / sum;
	for (int64_t i = first; i < a.vocabulary && !a.keep_logits; i += step) {
		int64_t rest = a.vocabulary - i;

		load_some(v, again + i, rest, a.vector || a.in_shared);
#pragma unroll
		for (int j = 0; j < N; j++) {
			float hit = i + j == target ? a.scale : 0.0f;

			v[j] = counted ? expf(v[j] - most) * share - hit : 0.0f;
		}
		store_some(x + i, v, rest, a.vector);
	}
}
KERNEL_BOTH(cross_entropy, cross_entropy_body)
