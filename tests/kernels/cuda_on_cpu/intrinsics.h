/* What kernels/cuda/device/intrinsics.cuh gives to nvcc, for a C++ compiler: the same kernels then
 * run on the CPU, thread by thread (machine.h), and the sanitizers see every access.
 *
 * What a warp does together (shuffles, matrices, tensor core products) is written once per lane:
 * each lane shows its operand, all lanes wait, each takes what it needs. Copies that do not wait
 * are carried out when they are waited for and not before, so that a missing wait is seen. */
#ifndef TESTS_KERNELS_CUDA_ON_CPU_INTRINSICS_H
#define TESTS_KERNELS_CUDA_ON_CPU_INTRINSICS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cuda/device/device.h"
#include "kernels/plain/plain.h"
#include "tests/kernels/cuda_on_cpu/machine.h"

#define DEVICE static inline __attribute__((unused))
/* A kernel takes the address of its struct. */
#define KERNEL(name)                                                                               \
	static void name##_on_cpu(const name##_arguments &a);                                      \
	extern "C" void cuda_on_cpu_##name(const void *arguments)                                  \
	{                                                                                          \
		name##_on_cpu(*(const name##_arguments *)arguments);                               \
	}                                                                                          \
	static void name##_on_cpu(const name##_arguments &a)
#define X(name, launch, threads)                                                                   \
	typedef launch name##_arguments;                                                           \
	extern "C" void cuda_on_cpu_##name(const void *arguments);
CUDA_KERNELS(X)
#undef X

#define threadIdx     (cuda_thread->index)
#define blockIdx      cuda_block
#define blockDim      cuda_block_size
#define gridDim       cuda_grid
#define SHARED_MEMORY cuda_shared

struct alignas(16) float4 {
	float x, y, z, w;
};
struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
	uint32_t x, y;
};

DEVICE float4 make_float4(float x, float y, float z, float w)
{
	return float4{x, y, z, w};
}

DEVICE uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return uint4{x, y, z, w};
}

DEVICE uint2 make_uint2(uint32_t x, uint32_t y)
{
	return uint2{x, y};
}

template <typename To, typename From> DEVICE To bits_as(From from)
{
	To to;

	static_assert(sizeof(to) == sizeof(from), "the bits must fit");
	memcpy(&to, &from, sizeof(to));
	return to;
}

DEVICE float bits_as_float(uint32_t bits)
{
	return bits_as<float>(bits);
}

DEVICE uint32_t bits_of_float(float x)
{
	return bits_as<uint32_t>(x);
}

DEVICE uint64_t bits_of_double(double x)
{
	return bits_as<uint64_t>(x);
}

/* To nearest even; the GPU has one NaN. */
DEVICE uint32_t bf16_of(float x)
{
	uint32_t bits = bits_of_float(x);

	return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

DEVICE uint32_t bf16_pair(float low, float high)
{
	return bf16_of(low) | bf16_of(high) << 16;
}

DEVICE uint32_t fp8_pair(float low, float high, int format)
{
	return (uint32_t)fp8_round(low, format) | (uint32_t)fp8_round(high, format) << 8;
}

DEVICE void forget(uint4 &)
{
}

DEVICE void __syncthreads()
{
	cuda_wait_for_block();
}

DEVICE void warp_barrier()
{
	cuda_exchange("a barrier", NULL, 0);
}

DEVICE float shuffle(float x, int lane)
{
	return *(const float *)cuda_exchange("a shuffle", &x, sizeof(x))->of[lane];
}

DEVICE float shuffle_xor(float x, int mask)
{
	return shuffle(x, (int)cuda_thread->index.x % 32 ^ mask);
}

DEVICE uint32_t warp_vote(bool x)
{
	const struct exchange *all = cuda_exchange("a vote", &x, sizeof(x));
	uint32_t votes = 0;

	for (int lane = 0; lane < 32; lane++)
		votes |= (uint32_t)(*(const bool *)all->of[lane]) << lane;
	return votes;
}

DEVICE void store_16(float *to, float4 x)
{
	*(float4 *)to = x;
}

DEVICE void store_streaming(void *to, uint4 x)
{
	*(uint4 *)to = x;
}

DEVICE uint32_t warp_match(uint32_t x)
{
	const struct exchange *all = cuda_exchange("a match", &x, sizeof(x));
	uint32_t same = 0;

	for (int lane = 0; lane < 32; lane++)
		same |= (uint32_t)(*(const uint32_t *)all->of[lane] == x) << lane;
	return same;
}

DEVICE void atomic_add(int64_t *to, int64_t x)
{
	*to += x;
}

DEVICE void atomic_add(int32_t *to, int32_t x)
{
	*to += x;
}

DEVICE void atomic_max(int32_t *to, int32_t x)
{
	*to = x > *to ? x : *to;
}

DEVICE uint32_t upper_halves(uint32_t low, uint32_t high)
{
	return low >> 16 | (high & 0xffff0000u);
}

DEVICE uint32_t funnel(uint32_t low, uint32_t high, int bit)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> bit);
}

DEVICE int count_bits(uint32_t x)
{
	return __builtin_popcount(x);
}

DEVICE int leading_zeros(uint64_t x)
{
	return x ? __builtin_clzll(x) : 64;
}

DEVICE float fast_exp2(float x)
{
	float y = exp2f(x);

	return y < 1.17549435e-38f ? 0.0f : y; /* ftz */
}

DEVICE void sin_cos_pi(float x, float *sine, float *cosine)
{
	*sine = (float)sin(3.14159265358979323846 * (double)x);
	*cosine = (float)cos(3.14159265358979323846 * (double)x);
}

DEVICE void cp_async_16(uint32_t offset, const void *global, bool valid)
{
	cuda_cp_async(offset, valid ? global : NULL, 16);
}

DEVICE void cp_async_commit_group()
{
	cuda_cp_async_commit_group();
}

template <int pending> DEVICE void cp_async_wait_group()
{
	cuda_cp_async_wait_group(pending);
}

/* Element (row, column) of 8x8 matrix m, whose rows the lanes 8 m .. 8 m + 7 have named. */
DEVICE uint32_t matrix_element(const struct exchange *rows, int m, int row, int column)
{
	const uint32_t *offset = (const uint32_t *)rows->of[8 * m + row];

	return ((const uint16_t *)(cuda_shared + *offset))[column];
}

DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t offset)
{
	const struct exchange *rows = cuda_exchange("ldmatrix", &offset, sizeof(offset));
	int lane = (int)cuda_thread->index.x % 32, g = lane / 4, t = lane % 4;

	for (int m = 0; m < 4; m++)
		r[m] = matrix_element(rows, m, g, 2 * t) | matrix_element(rows, m, g, 2 * t + 1)
								   << 16;
}

DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t offset)
{
	const struct exchange *rows = cuda_exchange("ldmatrix.trans", &offset, sizeof(offset));
	int lane = (int)cuda_thread->index.x % 32, g = lane / 4, t = lane % 4;

	for (int m = 0; m < 4; m++)
		r[m] = matrix_element(rows, m, 2 * t, g) | matrix_element(rows, m, 2 * t + 1, g)
								   << 16;
}

DEVICE float half_of(uint32_t pair, int high)
{
	return bits_as_float(high ? pair & 0xffff0000u : pair << 16);
}

struct fragments {
	uint32_t a[4], b[2];
};

/* mma.m16n8k16 as the PTX manual lays its fragments out: lane 4 g + t holds, of a, rows g and g + 8
 * at columns 2 t, 2 t + 8 and the next of each; of b, rows 2 t, 2 t + 8 and the next, column g; of
 * c, rows g and g + 8, columns 2 t and the next. */
DEVICE float dot_of_fragments(const struct exchange *all, int row, int column)
{
	float sum = 0.0f;

	for (int k = 0; k < 16; k++) {
		const struct fragments *a =
			(const struct fragments *)all->of[row % 8 * 4 + k % 8 / 2];
		const struct fragments *b =
			(const struct fragments *)all->of[column * 4 + k % 8 / 2];

		sum += half_of(a->a[k / 8 * 2 + row / 8], k % 2) * half_of(b->b[k / 8], k % 2);
	}
	return sum;
}

DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	struct fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
	const struct exchange *all = cuda_exchange("mma", &mine, sizeof(mine));
	int lane = (int)cuda_thread->index.x % 32, g = lane / 4, t = lane % 4;

	for (int i = 0; i < 4; i++)
		c[i] += dot_of_fragments(all, g + i / 2 * 8, 2 * t + i % 2);
}

#endif
