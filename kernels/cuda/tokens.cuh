/* Kernels that look tokens up: embedding, the loss. */
#include "kernels/cuda/device.cuh"

/* Grid: (tokens, packs of columns). An unknown token is noted and reads as zeros. */
template <typename T> DEVICE void embedding_body(const embedding_launch &a)
{
	const int N = lanes<T>::count;
	int64_t token = blockIdx.x;
	int64_t id = a.ids[token / a.length * a.ids_stride + token % a.length];
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
