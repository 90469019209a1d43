/* The part of CUDA that the kernels use beyond plain C++, for nvcc. The tests have the same set for
 * the CPU; the kernels use nothing else of CUDA. */
#ifndef KERNELS_CUDA_INTRINSICS_CUH
#define KERNELS_CUDA_INTRINSICS_CUH

#include "kernels/plain/plain.h"

#define DEVICE __device__ __forceinline__

/* KERNEL(name) { ... a is its struct ... }, with the struct and the threads of device.h. */
#define X(name, launch, threads)                                                                   \
	using name##_arguments = launch;                                                           \
	static constexpr int name##_threads = threads;
CUDA_KERNELS(X)
#undef X
#define KERNEL(name)                                                                               \
	extern "C" __global__ void __launch_bounds__(name##_threads)                               \
		name(const __grid_constant__ name##_arguments a)

/* The block's dynamic shared memory; swizzles count from multiples of 1024 bytes. */
extern __shared__ __align__(1024) uint4 cuda_shared_memory[];
#define SHARED_MEMORY ((char *)cuda_shared_memory)

DEVICE float bits_as_float(uint32_t bits)
{
	return __uint_as_float(bits);
}

/* Two fp32 numbers as bf16, rounded to nearest even, the first in the low half. */
DEVICE uint32_t bf16_pair(float low, float high)
{
	uint32_t pair;

	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
	return pair;
}

/* Two numbers in fp8, rounded by fp8_round's rule, the first in the low byte. */
DEVICE uint32_t fp8_pair(float low, float high, int format)
{
#if __CUDA_ARCH__ >= 890
	uint16_t pair;

	if (format == FP8_E4M3)
		asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
	else
		asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
	return pair;
#else
	return (uint32_t)fp8_round(low, format) | (uint32_t)fp8_round(high, format) << 8;
#endif
}

DEVICE float shuffle_xor(float x, int mask)
{
	return __shfl_xor_sync(0xffffffffu, x, mask);
}

DEVICE float shuffle(float x, int lane)
{
	return __shfl_sync(0xffffffffu, x, lane);
}

DEVICE uint32_t warp_vote(bool x)
{
	return __ballot_sync(0xffffffffu, x);
}

/* The compiler forgets what it made of x: it stays four registers until it is needed again. */
DEVICE void forget(uint4 &x)
{
	asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
}

/* One access of 16 bytes, whatever the compiler thinks. */
DEVICE void store_16(float *to, float4 x)
{
	__stcg((float4 *)to, x);
}

/* 16 bytes that are not read again soon: caches evict them first. */
DEVICE void store_streaming(void *to, uint4 x)
{
	__stcs((uint4 *)to, x);
}

/* The lanes whose x is this lane's. */
DEVICE uint32_t warp_match(uint32_t x)
{
	return __match_any_sync(0xffffffffu, x);
}

DEVICE void warp_barrier()
{
	__syncwarp();
}

DEVICE void atomic_add(int64_t *to, int64_t x)
{
	atomicAdd((unsigned long long *)to, (unsigned long long)x);
}

DEVICE void atomic_add(int32_t *to, int32_t x)
{
	atomicAdd(to, x);
}

DEVICE void atomic_max(int32_t *to, int32_t x)
{
	atomicMax(to, x);
}

/* The upper halves of two words, the first one's below. */
DEVICE uint32_t upper_halves(uint32_t low, uint32_t high)
{
	return __byte_perm(low, high, 0x7632);
}

/* 32 bits of the 64, from `bit` of the low ones on. */
DEVICE uint32_t funnel(uint32_t low, uint32_t high, int bit)
{
	return __funnelshift_r(low, high, (uint32_t)bit);
}

DEVICE int count_bits(uint32_t x)
{
	return __popc(x);
}

DEVICE int leading_zeros(uint64_t x)
{
	return __clzll((long long)x);
}

DEVICE uint64_t bits_of_double(double x)
{
	return (uint64_t)__double_as_longlong(x);
}

DEVICE uint32_t bits_of_float(float x)
{
	return __float_as_uint(x);
}

/* 2^x, about 2 units in the last place. */
DEVICE float fast_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

/* sin and cos of pi x. */
DEVICE void sin_cos_pi(float x, float *sine, float *cosine)
{
	sincospif(x, sine, cosine);
}

/* --- sm_80: cp.async, ldmatrix, mma.sync --- */

DEVICE uint32_t shared_address(uint32_t offset)
{
	return (uint32_t)__cvta_generic_to_shared(cuda_shared_memory) + offset;
}

/* 16 bytes to that offset of the shared memory, zeros when not `valid`. */
DEVICE void cp_async_16(uint32_t offset, const void *global, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(offset)),
		     "l"(global), "r"(valid ? 16 : 0)
		     : "memory");
}

DEVICE void cp_async_commit_group()
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most `pending` of the groups that this thread committed are incomplete. */
template <int pending> DEVICE void cp_async_wait_group()
{
	asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

/* Four 8x8 matrices of 16-bit elements; lane l gives the offset of row l % 8 of matrix l / 8 and
 * gets elements (l / 4, 2 (l % 4)) and the next of each; transposed: (2 (l % 4), l / 4) and below.
 */
DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t offset)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(offset))
		     : "memory");
}

DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t offset)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(shared_address(offset))
		     : "memory");
}

/* c[16,8] += a[16,16] b[16,8]; fragments as PTX lays out mma.m16n8k16. */
DEVICE void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
		     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
