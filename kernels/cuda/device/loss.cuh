/* The loss, and its gradient in place of the logits. */
#include "kernels/cuda/device/elements.cuh"

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

/* One pack from `i` on; elements past the row are minus infinity. */
template <int N, typename T> DEVICE void logits_at(float (&x)[N], const T *from, int rest)
{
	load_some(x, from, rest, false);
#pragma unroll
	for (int j = 0; j < N; j++)
		x[j] = j < rest ? x[j] : -INFINITY;
}

/* How many copies of 16 bytes a thread has in flight. */
enum { LOGITS_AHEAD = 6 };

/* The first `held` logits: through shared memory, where they stay. Each thread reads what it copied
 * itself, so no barrier is needed. */
template <typename T> DEVICE void read_held(softmax &s, const cross_entropy_launch &a, const T *x)
{
	const int N = lanes<T>::count;
	const T *copy = (const T *)(SHARED_MEMORY + 128);
	int step = (int)blockDim.x * N, first = (int)threadIdx.x * N, next = first;
	int whole = (int)(a.vocabulary < a.held ? a.vocabulary / N * N : a.held);

#pragma unroll
	for (int k = 0; k < LOGITS_AHEAD; k++, next += step) {
		if (next < whole)
			cp_async_16(128 + next * (int)sizeof(T), x + next, true);
		cp_async_commit_group();
	}
	for (int i = first; i < whole; i += step, next += step) {
		float v[N];

		cp_async_wait_group<LOGITS_AHEAD - 1>();
		load(v, copy + i);
		if (next < whole)
			cp_async_16(128 + next * (int)sizeof(T), x + next, true);
		cp_async_commit_group();
		meet(s, v);
	}
	cp_async_wait_group<0>();
}

/* From pack `i` of this thread on, through registers; those before `held` are put into shared
 * memory. */
template <typename T>
DEVICE void read_rest(softmax &s, const cross_entropy_launch &a, const T *x, int i, int held)
{
	const int N = lanes<T>::count, P = 4;
	int step = (int)blockDim.x * N, width = (int)a.vocabulary;
	T *copy = (T *)(SHARED_MEMORY + 128);

	for (; a.vector && i + (P - 1) * step + N <= width && i >= held; i += P * step) {
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
		if (i < held)
			store(copy + i, v);
		meet(s, v);
	}
}

/* What becomes of logits. Those of a target that does not count become zeros. */
struct loss_step {
	float shift, share, scale;
	int target;
	bool counted;
};

/* The gradient of one pack, whose first logit is number i. */
template <int N> DEVICE void loss_of_pack(const loss_step &l, float (&v)[N], int i)
{
#pragma unroll
	for (int j = 0; j < N; j++)
		v[j] = fast_exp2(fmaf(v[j], LOG2E, l.shift)) * l.share;
	if ((uint32_t)(l.target - i) < (uint32_t)N) {
#pragma unroll
		for (int j = 0; j < N; j++)
			v[j] = i + j == l.target ? v[j] - l.scale : v[j];
	}
}

/* The packs of this thread down to the one that begins at `from`, in place: from the end, where a
 * cache still has what was read last and shared memory does not hold. */
template <typename T>
DEVICE void loss_gradient(
	const cross_entropy_launch &a, const loss_step &l, T *x, int from, int held)
{
	const int N = lanes<T>::count;
	const T *copy = (const T *)(SHARED_MEMORY + 128);
	int step = (int)blockDim.x * N, first = (int)threadIdx.x * N, width = (int)a.vocabulary;
	int i = first < width ? first + (width - 1 - first) / step * step : -1;

	for (; i >= from; i -= step) {
		float v[N] = {0.0f};

		if (l.counted) {
			if (i < held)
				load(v, copy + i);
			else
				load_some(v, (const T *)x + i, width - i, a.vector);
			loss_of_pack(l, v, i);
		}
		put_away(x + i, v, width - i, a.vector);
	}
}

/* --- rows that do not begin at a multiple of 16 bytes --- */

/* 16 bytes of 32, from byte `at` of the first 16 on. */
DEVICE uint4 window(const uint4 &low, const uint4 &high, int at)
{
	uint32_t w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};

#pragma unroll
	for (int i = 0; i < 7; i++)
		w[i] = at & 4 ? w[i + 1] : w[i];
#pragma unroll
	for (int i = 0; i < 5; i++)
		w[i] = at & 8 ? w[i + 2] : w[i];
	return make_uint4(funnel(w[0], w[1], at % 4 * 8), funnel(w[1], w[2], at % 4 * 8),
		funnel(w[2], w[3], at % 4 * 8), funnel(w[3], w[4], at % 4 * 8));
}

/* A crooked row: its first element is number `shift` of 16 aligned bytes. `whole` elements of it,
 * packs of a straight row, are in shared memory as they are in memory. */
template <typename T> struct crooked {
	T *x;
	int shift, whole;
};

template <typename T> DEVICE crooked<T> crooked_row(const cross_entropy_launch &a, T *x)
{
	const int N = lanes<T>::count;

	return {x, (int)((uintptr_t)x / sizeof(T) % N),
		(int)(a.vocabulary < a.held ? a.vocabulary : a.held) / N * N};
}

template <typename T> DEVICE void crooked_pack(float (&v)[lanes<T>::count], int pack, int shift)
{
	const uint4 *word = (const uint4 *)(SHARED_MEMORY + 128) + pack;
	raw<T> x;

	x.bits = shift > 0 ? window(word[0], word[1], shift * (int)sizeof(T)) : word[0];
	spread(v, x);
}

/* Word `word` of the copy, unless it is one of the two that the row shares with its neighbours. */
template <typename T> DEVICE void copy_word(const crooked<T> &row, int word)
{
	const int N = lanes<T>::count;

	if (word < row.whole / N && (word > 0 || row.shift == 0))
		cp_async_16(128 + 16 * word, row.x - row.shift + (int64_t)word * N, true);
	cp_async_commit_group();
}

/* The elements of the first and the last word that are the row's: by the first warp. */
template <typename T> DEVICE void copy_ends(const crooked<T> &row)
{
	const int N = lanes<T>::count;
	T *copy = (T *)(SHARED_MEMORY + 128);
	int at = (int)threadIdx.x % N, word = (int)threadIdx.x / N * (row.whole / N);

	if (threadIdx.x >= 2 * N || row.shift == 0 || row.whole == 0 ||
		(word == 0) != (at >= row.shift))
		return;
	copy[word * N + at] = row.x[(int64_t)word * N + at - row.shift];
}

/* As read_held. A pack ends in the next word, which another thread copied: all of them wait for the
 * copies of this round and the next. */
template <typename T> DEVICE void read_crooked(softmax &s, const crooked<T> &row)
{
	const int N = lanes<T>::count;
	int step = (int)blockDim.x, packs = row.whole / N, next = (int)threadIdx.x;

	copy_ends(row);
#pragma unroll
	for (int k = 0; k < LOGITS_AHEAD; k++, next += step)
		copy_word(row, next);
	for (int pack = (int)threadIdx.x; pack - (int)threadIdx.x < packs; pack += step) {
		float v[N];

		cp_async_wait_group<LOGITS_AHEAD - 2>();
		__syncthreads();
		copy_word(row, next);
		next += step;
		if (pack >= packs)
			continue;
		crooked_pack<T>(v, pack, row.shift);
		meet(s, v);
	}
	cp_async_wait_group<0>();
}

DEVICE uint4 from_lane_before(const uint4 &x)
{
	int lane = ((int)threadIdx.x + 31) % 32;

	return make_uint4(bits_of_float(shuffle(bits_as_float(x.x), lane)),
		bits_of_float(shuffle(bits_as_float(x.y), lane)),
		bits_of_float(shuffle(bits_as_float(x.z), lane)),
		bits_of_float(shuffle(bits_as_float(x.w), lane)));
}

/* A pack of the gradient: with the end of the one before it, which is the lane's before this one,
 * it makes 16 aligned bytes. The row's own ends go one by one. */
template <typename T>
DEVICE void put_crooked(const crooked<T> &row, const float (&v)[lanes<T>::count], int pack)
{
	const int N = lanes<T>::count;
	int packs = row.whole / N, lane = (int)threadIdx.x % 32;
	T *to = row.x + (int64_t)pack * N;
	raw<T> mine;
	uint4 before;

	pack_up(mine, v);
	before = from_lane_before(mine.bits);
	if (lane == 0 || pack >= packs)
		return;
	if (row.shift == 0)
		store_streaming(to, mine.bits);
	else if (pack > 0)
		store_streaming(to - row.shift,
			window(before, mine.bits, (N - row.shift) * (int)sizeof(T)));
	if (row.shift == 0 || (pack > 0 && pack + 1 < packs))
		return;
#pragma unroll
	for (int j = 0; j < N; j++) {
		if (j < N - row.shift ? pack == 0 : pack + 1 == packs)
			put(to + j, v[j]);
	}
}

/* Warps stay together: lanes hand packs on. A warp's first pack is the last one of the warp before
 * it once more, so that it writes 31. */
template <typename T> DEVICE void crooked_gradient(const loss_step &l, const crooked<T> &row)
{
	const int N = lanes<T>::count;
	int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, packs = row.whole / N;

	for (int at = 31 * warp; at < packs; at += 31 * (int)(blockDim.x / 32)) {
		int pack = at + lane - 1;
		float v[N] = {0.0f};

		if (l.counted && pack >= 0 && pack < packs) {
			crooked_pack<T>(v, pack, row.shift);
			loss_of_pack(l, v, pack * N);
		}
		put_crooked(row, v, pack);
	}
}

/* Grid: tokens. The gradient takes the place of the logits; fp32 exists in registers only. */
template <typename T> DEVICE void cross_entropy_body(const cross_entropy_launch &a)
{
	const int N = lanes<T>::count;
	float *scratch = (float *)SHARED_MEMORY, most, sum;
	int step = (int)blockDim.x * N, i = (int)threadIdx.x * N, held = a.vector ? a.held : 0;
	int64_t token = blockIdx.x;
	int64_t target = a.targets[token / a.length * a.targets_stride + token % a.length];
	bool counted = target >= 0 && target < a.vocabulary;
	T *x = (T *)a.logits + token * a.stride;
	crooked<T> row = crooked_row(a, x);
	softmax s = {-1.0e38f, 0.0f};

	if (counted && a.vector)
		read_held(s, a, (const T *)x);
	else if (counted)
		read_crooked(s, row);
	if (counted) {
		i += row.whole > i ? (row.whole - i + step - 1) / step * step : 0;
		read_rest(s, a, (const T *)x, i, held);
	}
	most = block_max(s.top, scratch);
	sum = block_sum(s.sum * fast_exp2((s.top - most) * LOG2E), scratch);
	if (threadIdx.x == 0) {
		a.losses[token] = counted ? logf(sum) + (most - to_float(x[target])) : 0.0f;
		if (target >= a.vocabulary)
			atomic_max(a.fault, (int32_t)target);
	}
	__syncthreads(); /* the target's logit was read */
	if (a.keep_logits)
		return;
	const loss_step l = {-most * LOG2E, a.scale / sum, a.scale, (int)target, counted};

	loss_gradient(a, l, x, a.vector ? 0 : row.whole, held);
	if (!a.vector)
		crooked_gradient(l, row);
}
KERNEL_BOTH(cross_entropy, cross_entropy_body)
