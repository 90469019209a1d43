/* What kernels/cuda/device/hopper.cuh gives to nvcc, for the CPU (hopper.c). The copies behind an
 * mbarrier are carried out when it is told of them; wgmma when it is waited for and not before. */
#ifndef TESTS_KERNELS_CUDA_ON_CPU_HOPPER_H
#define TESTS_KERNELS_CUDA_ON_CPU_HOPPER_H

#include "tests/kernels/cuda_on_cpu/intrinsics.h"

#define HOPPER_KERNEL KERNEL

struct alignas(8) float2 {
	float x, y;
};

DEVICE void mbarrier_init(uint32_t offset, int arrivals)
{
	cuda_mbarrier_init(offset, arrivals);
}

DEVICE void mbarrier_arrive(uint32_t offset)
{
	cuda_mbarrier_arrive(offset);
}

DEVICE void cp_async_mbarrier_arrive_noinc(uint32_t offset)
{
	cuda_cp_async_commit_group();
	cuda_cp_async_wait_group(0);
	cuda_mbarrier_arrive(offset);
}

DEVICE void mbarrier_wait(uint32_t offset, uint32_t parity)
{
	cuda_mbarrier_wait(offset, parity);
}

DEVICE void fence_proxy_async()
{
	cuda_fence_proxy_async();
}

DEVICE void cp_async_4(uint32_t offset, const void *global, bool valid)
{
	cuda_cp_async(offset, valid ? global : NULL, 4);
}

template <int N> DEVICE void setmaxnreg_dec()
{
}

template <int N> DEVICE void setmaxnreg_inc()
{
}

DEVICE uint32_t wgmma_descriptor(uint32_t offset, uint32_t leading)
{
	return offset >> 4 | leading >> 4 << 16;
}

/* With the upper half: eight rows are 1024 bytes, swizzled over 128. */
DEVICE uint64_t descriptor_of(uint32_t low)
{
	return (uint64_t)0x40000040 << 32 | low;
}

DEVICE void wgmma_fence()
{
	cuda_wgmma_fence();
}

DEVICE void wgmma_commit_group()
{
	cuda_wgmma_commit_group();
}

template <int pending> DEVICE void wgmma_wait_group()
{
	cuda_wgmma_wait_group(pending);
}

DEVICE void keep_before_wait(uint32_t)
{
}

template <int N> DEVICE void warpgroup_fence_operand(float (&)[N][4])
{
}

template <int N> DEVICE void wgmma_ss(float (&d)[N][4], uint32_t a, uint32_t b, bool add)
{
	const struct cuda_wgmma_operands product = {
		d[0], NULL, descriptor_of(a), descriptor_of(b), N * 8, add, false};

	cuda_wgmma(&product);
}

template <int N> DEVICE void wgmma_rs(float (&d)[N][4], const uint32_t (&a)[4], uint32_t b)
{
	const struct cuda_wgmma_operands product = {
		d[0], a, 0, descriptor_of(b), N * 8, true, true};

	cuda_wgmma(&product);
}

#endif
