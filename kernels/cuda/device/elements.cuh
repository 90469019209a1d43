/* What all .cu files share: element types, 16-byte accesses, sums over a block.
 *
 * The files use the part of CUDA that intrinsics.cuh names. The tests compile them as C++ and
 * include a shim before, in which threads are coroutines and tensor core instructions are loops
 * (tests/kernels/cuda_on_cpu). */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <math.h>
#include <stdint.h>

#include "kernels/cuda/device/device.h"

#ifdef __CUDACC__
#include "kernels/cuda/device/intrinsics.cuh"
#endif

struct bf16 {
	uint16_t bits;
};

DEVICE float to_float(float x)
{
	return x;
}

DEVICE float to_float(bf16 x)
{
	return bits_as_float((uint32_t)x.bits << 16);
}

DEVICE void put(float *to, float x)
{
	*to = x;
}

DEVICE void put(bf16 *to, float x)
{
	to->bits = (uint16_t)bf16_pair(x, 0.0f);
}

/* How many elements a thread takes at once, for 16 bytes of the widest type involved. */
template <typename A, typename B = A> struct lanes {
	static const int count = sizeof(A) == 2 && sizeof(B) == 2 ? 8 : 4;
};

template <int N> DEVICE void load(float (&v)[N], const float *from)
{
#pragma unroll
	for (int i = 0; i < N; i += 4) {
		float4 x = *(const float4 *)(from + i);

		v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
	}
}

template <int N> DEVICE void store(float *to, const float (&v)[N])
{
#pragma unroll
	for (int i = 0; i < N; i += 4)
		*(float4 *)(to + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
}

DEVICE void split(float *v, uint32_t pair)
{
	v[0] = bits_as_float(pair << 16);
	v[1] = bits_as_float(pair & 0xffff0000u);
}

DEVICE void load(float (&v)[8], const bf16 *from)
{
	uint4 x = *(const uint4 *)from;

	split(v, x.x), split(v + 2, x.y), split(v + 4, x.z), split(v + 6, x.w);
}

DEVICE void load(float (&v)[4], const bf16 *from)
{
	uint2 x = *(const uint2 *)from;

	split(v, x.x), split(v + 2, x.y);
}

DEVICE void store(bf16 *to, const float (&v)[8])
{
	*(uint4 *)to = make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]),
		bf16_pair(v[4], v[5]), bf16_pair(v[6], v[7]));
}

DEVICE void store(bf16 *to, const float (&v)[4])
{
	*(uint2 *)to = make_uint2(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]));
}

/* 16 bytes as they were loaded. A thread that fetches several before it spreads the first has all
 * of them in flight at once. */
template <typename T> struct raw {
	uint4 bits;
};

DEVICE void spread(float (&v)[8], const raw<bf16> &x)
{
	split(v, x.bits.x), split(v + 2, x.bits.y), split(v + 4, x.bits.z), split(v + 6, x.bits.w);
}

DEVICE void spread(float (&v)[4], const raw<float> &x)
{
	v[0] = bits_as_float(x.bits.x), v[1] = bits_as_float(x.bits.y);
	v[2] = bits_as_float(x.bits.z), v[3] = bits_as_float(x.bits.w);
}

DEVICE void pack_up(raw<bf16> &x, const float (&v)[8])
{
	x.bits = make_uint4(bf16_pair(v[0], v[1]), bf16_pair(v[2], v[3]), bf16_pair(v[4], v[5]),
		bf16_pair(v[6], v[7]));
}

DEVICE void pack_up(raw<float> &x, const float (&v)[4])
{
	x.bits = make_uint4(
		bits_of_float(v[0]), bits_of_float(v[1]), bits_of_float(v[2]), bits_of_float(v[3]));
}

/* The elements from there on, `rest` of them, the others as zeros; VECTOR: all or none. */
template <bool VECTOR, typename T> DEVICE raw<T> fetch(const T *from, int rest)
{
	const int N = lanes<T>::count;
	raw<T> x = {{0, 0, 0, 0}};
	float v[N];

	if (VECTOR) {
		if (rest > 0)
			x.bits = *(const uint4 *)from;
	} else {
#pragma unroll
		for (int i = 0; i < N; i++)
			v[i] = i < rest ? to_float(from[i]) : 0.0f;
		pack_up(x, v);
	}
	return x;
}

/* N elements, or the `rest` that there are, the others as zeros. */
template <int N, typename T>
DEVICE void load_some(float (&v)[N], const T *from, int64_t rest, bool vector)
{
	if (vector && rest >= N) {
		load(v, from);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = i < rest ? to_float(from[i]) : 0.0f;
}

template <int N, typename T>
DEVICE void store_some(T *to, const float (&v)[N], int64_t rest, bool vector)
{
	if (vector && rest >= N) {
		store(to, v);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++) {
		if (i < rest)
			put(to + i, v[i]);
	}
}

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

DEVICE float warp_sum(float x)
{
	for (int step = 16; step > 0; step /= 2)
		x += shuffle_xor(x, step);
	return x;
}

DEVICE float warp_max(float x)
{
	for (int step = 16; step > 0; step /= 2)
		x = fmaxf(x, shuffle_xor(x, step));
	return x;
}

/* Of all threads of the block, to all of them; the order of the sum depends on the block's size
 * only. `scratch` is 32 floats of shared memory. */
DEVICE float block_sum(float x, float *scratch)
{
	int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32,
	    lane = (int)threadIdx.x % 32;

	x = warp_sum(x);
	__syncthreads();
	if (lane == 0)
		scratch[warp] = x;
	__syncthreads();
	return warp_sum(lane < warps ? scratch[lane] : 0.0f);
}

DEVICE float block_max(float x, float *scratch)
{
	int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32,
	    lane = (int)threadIdx.x % 32;

	x = warp_max(x);
	__syncthreads();
	if (lane == 0)
		scratch[warp] = x;
	__syncthreads();
	return warp_max(lane < warps ? scratch[lane] : scratch[0]);
}

/* Of a kernel over a flat array. i: the first element of this thread; rest: how many there are from
 * there. */
#define FLAT_RANGE(lanes)                                                                          \
	int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * (lanes), rest = a.n - i;    \
	bool vector = a.vector;                                                                    \
	if (rest <= 0)                                                                             \
	return

/* The same kernel for both element types, or for all pairs of them; what follows the body are more
 * arguments of its template. */
#define KERNEL_OF(name, body, ...)                                                                 \
	KERNEL(name)                                                                               \
	{                                                                                          \
		body<__VA_ARGS__>(a);                                                              \
	}
#define KERNEL_BOTH(name, body, ...)                                                               \
	KERNEL_OF(name##_fp32, body, float, ##__VA_ARGS__)                                         \
	KERNEL_OF(name##_bf16, body, bf16, ##__VA_ARGS__)
#define KERNEL_PAIRS(name, body)                                                                   \
	KERNEL_OF(name##_fp32_fp32, body, float, float)                                            \
	KERNEL_OF(name##_fp32_bf16, body, float, bf16)                                             \
	KERNEL_OF(name##_bf16_fp32, body, bf16, float)                                             \
	KERNEL_OF(name##_bf16_bf16, body, bf16, bf16)

#endif
