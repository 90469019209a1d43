/* Kernels that look tokens up: embedding, the loss. */
#include "kernels/cuda/device.cuh"

/* What is written must not drive out of the cache what is read again. */
template <int N, typename T>
DEVICE void put_away(T *to, const float (&v)[N], int64_t rest, bool vector)
{
	raw<T> x;

	if (!vector || rest < N) {
		store_some(to, v, rest, false);
		return;
	}
	pack_up(x, v);
	store_streaming(to, x.bits);
}

/* What a thread looks up: some tokens, and where in a sequence they are. */
struct looked_up {
	uint32_t token[CUDA_EMBED_TOKENS], at[CUDA_EMBED_TOKENS];
	int32_t id[CUDA_EMBED_TOKENS];
};

/* All ids are under way at once. A token that there is not is the last one once more. */
DEVICE void find_ids(const embedding_launch &a, looked_up &t, uint32_t first, uint32_t abreast)
{
	uint32_t length = (uint32_t)a.length;

#pragma unroll
	for (uint32_t k = 0; k < CUDA_EMBED_TOKENS; k++) {
		uint32_t token = first + k * abreast, sequence;

		token = token < a.tokens ? token : a.tokens - 1;
		sequence = token / length;
		t.token[k] = token;
		t.at[k] = token - sequence * length;
		t.id[k] = a.ids[sequence * a.ids_stride + t.at[k]];
	}
}

DEVICE void note_unknown(const embedding_launch &a, const looked_up &t)
{
#pragma unroll
	for (uint32_t k = 0; k < CUDA_EMBED_TOKENS; k++) {
		if ((uint32_t)t.id[k] >= (uint32_t)a.vocabulary)
			atomic_max(a.fault, t.id[k] < 0 ? INT32_MAX : t.id[k]);
	}
}

/* Some tokens' columns, all of them under way at once. An unknown token is noted and reads as
 * zeros. A block has several tokens side by side where a slice is shorter than the block. */
template <typename T, bool VECTOR> DEVICE void embed_tokens(const embedding_launch &a)
{
	const int N = lanes<T>::count, TOKENS = CUDA_EMBED_TOKENS;
	uint32_t abreast = blockDim.x / a.slice, row = threadIdx.x / a.slice;
	uint32_t first = blockIdx.x * abreast * TOKENS + row;
	uint32_t pack = blockIdx.y * a.slice + (threadIdx.x - row * a.slice);
	int64_t column = (int64_t)pack * N;
	int rest = (int)(a.width - column);
	raw<T> x[TOKENS], y[TOKENS];
	looked_up t;

	if (rest <= 0 || row >= abreast || first >= a.tokens)
		return;
	find_ids(a, t, first, abreast);
	if (pack == 0)
		note_unknown(a, t);
#pragma unroll
	for (int k = 0; k < TOKENS; k++) {
		bool known = (uint32_t)t.id[k] < (uint32_t)a.vocabulary;
		const T *table = (const T *)a.table + column, *position = table;

		if (a.positions)
			position = (const T *)a.positions + t.at[k] * a.width + column;
		x[k] = fetch<VECTOR>(table + t.id[k] * a.width, known ? rest : 0);
		y[k] = fetch<VECTOR>(position, known && a.positions ? rest : 0);
	}
#pragma unroll
	for (int k = 0; k < TOKENS; k++) {
		float v[N], w[N];

		spread(v, x[k]), spread(w, y[k]);
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = a.positions ? v[j] + w[j] : v[j];
		put_away((T *)a.out + t.token[k] * a.width + column, v, rest, VECTOR);
	}
}

/* Grid: (groups of tokens, slices): all tokens' first slices come before the second ones. */
template <typename T> DEVICE void embedding_body(const embedding_launch &a)
{
	if (a.vector)
		embed_tokens<T, true>(a);
	else
		embed_tokens<T, false>(a);
}
KERNEL_BOTH(embedding, embedding_body)

/* exp(x) = 2^(x LOG2E). */
#define LOG2E 1.44269504088896341f

/* The largest logit and the sum of exp(logit - largest), of a thread's share so far. */
struct softmax {
	float top, sum;
};

/* Takes a pack in; what a row does not have must be minus infinity. Always one pack at a time, so
 * that bits do not depend on where it was read. */
template <int N> DEVICE void meet(softmax &s, const float (&x)[N])
{
	float most = s.top, sum = 0.0f, shift;

#pragma unroll
	for (int j = 0; j < N; j++)
		most = fmaxf(most, x[j]);
	shift = -most * LOG2E;
#pragma unroll
	for (int j = 0; j < N; j++)
		sum += fast_exp2(fmaf(x[j], LOG2E, shift));
	s.sum = fmaf(s.sum, fast_exp2((s.top - most) * LOG2E), sum);
	s.top = most;
}

/* One pack from `i` on; what lies beyond the row is minus infinity. */
template <int N, typename T> DEVICE void logits_at(float (&x)[N], const T *from, int rest)
{
	load_some(x, from, rest, false);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = j < rest ? x[j] : -INFINITY;
}

/* How many copies of 16 bytes a thread has under way. */
enum { LOGITS_AHEAD = 6 };

/* The first `held` logits: through shared memory, where they stay. Each thread reads what it copied
 * itself, so that nobody waits for others. */
template <typename T> DEVICE void read_held(softmax &s, const cross_entropy_launch &a, const T *x)
{
	const int N = lanes<T>::count;
	const T *copy = (const T *)(SHARED_MEMORY + 128);
	int step = (int)blockDim.x * N, first = (int)threadIdx.x * N, next = first;
	int whole = (int)(a.vocabulary < a.held ? a.vocabulary / N * N : a.held);

#pragma unroll
	for (int k = 0; k < LOGITS_AHEAD; k++, next += step) {
		if (next < whole)
			copy_async(128 + next * (int)sizeof(T), x + next, true);
		copy_async_commit();
	}
	for (int i = first; i < whole; i += step, next += step) {
		float v[N];

		copy_async_wait<LOGITS_AHEAD - 1>();
		load(v, copy + i);
		if (next < whole)
			copy_async(128 + next * (int)sizeof(T), x + next, true);
		copy_async_commit();
		meet(s, v);
	}
	copy_async_wait<0>();
}

/* From pack `i` of this thread on, through registers; held ones are put into shared memory. */
template <typename T>
DEVICE void read_rest(softmax &s, const cross_entropy_launch &a, const T *x, int i)
{
	const int N = lanes<T>::count, P = 4;
	int step = (int)blockDim.x * N, width = (int)a.vocabulary;
	T *copy = (T *)(SHARED_MEMORY + 128);

	for (; a.vector && i + (P - 1) * step + N <= width && i >= a.held; i += P * step) {
		raw<T> packs[P];

#pragma unroll
		for (int p = 0; p < P; p++)
			packs[p] = fetch<true>(x + i + p * step, 1);
#pragma unroll
		for (int p = 0; p < P; p++) {
			float v[N];

			spread(v, packs[p]);
			meet(s, v);
		}
	}
	for (; i < width; i += step) {
		float v[N];

		logits_at(v, x + i, width - i);
		if (i < a.held)
			store(copy + i, v);
		meet(s, v);
	}
}

/* The gradient of one pack, in place. */
template <typename T>
DEVICE void loss_gradient(
	const cross_entropy_launch &a, T *x, int i, int target, float shift, float share)
{
	const int N = lanes<T>::count;
	const T *copy = (const T *)(SHARED_MEMORY + 128);
	int rest = (int)a.vocabulary - i;
	float v[N];

	if (i < a.held)
		load(v, copy + i);
	else
		load_some(v, (const T *)x + i, rest, a.vector);
#pragma unroll
	for (int j = 0; j < N; j++)
		v[j] = fast_exp2(fmaf(v[j], LOG2E, shift)) * share;
	if ((uint32_t)(target - i) < (uint32_t)N) {
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = i + j == target ? v[j] - a.scale : v[j];
	}
	put_away(x + i, v, rest, a.vector);
}

/* Grid: tokens. The gradient takes the place of the logits; fp32 exists in registers only. */
template <typename T> DEVICE void cross_entropy_body(const cross_entropy_launch &a)
{
	const int N = lanes<T>::count;
	float *scratch = (float *)SHARED_MEMORY, most, sum, share;
	int step = (int)blockDim.x * N, first = (int)threadIdx.x * N, i = first;
	int64_t token = blockIdx.x;
	int64_t target = a.targets[token / a.length * a.targets_stride + token % a.length];
	bool counted = target >= 0 && target < a.vocabulary;
	T *x = (T *)a.logits + token * a.stride;
	softmax s = {-1.0e38f, 0.0f};

	if (counted && a.vector) {
		int whole = (int)(a.vocabulary < a.held ? a.vocabulary / N * N : a.held);

		read_held(s, a, (const T *)x);
		i += whole > i ? (whole - i + step - 1) / step * step : 0;
	}
	if (counted)
		read_rest(s, a, (const T *)x, i);
	most = block_max(s.top, scratch);
	sum = block_sum(s.sum * fast_exp2((s.top - most) * LOG2E), scratch);
	if (threadIdx.x == 0) {
		a.losses[token] = counted ? logf(sum) + (most - to_float(x[target])) : 0.0f;
		if (target >= a.vocabulary)
			atomic_max(a.fault, (int32_t)target);
	}
	__syncthreads(); /* the target's logit was read */
	if (a.keep_logits || first >= a.vocabulary)
		return;
	share = a.scale / sum;
	/* From the end: what was read last is what a cache still has of the logits that shared
	 * memory does not hold. */
	for (i = first + ((int)a.vocabulary - 1 - first) / step * step; i >= 0; i -= step) {
		float zero[N] = {0.0f};

		if (counted)
			loss_gradient(a, x, i, (int)target, -most * LOG2E, share);
		else
			store_some(x + i, zero, a.vocabulary - i, a.vector);
	}
}
KERNEL_BOTH(cross_entropy, cross_entropy_body)
