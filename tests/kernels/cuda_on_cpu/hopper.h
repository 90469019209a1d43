/* What kernels/cuda/hopper.cuh gives to nvcc, for the CPU (hopper.c). Copies of a barrier are
 * carried out when it is told of them; products when they are waited for and not before. */
#ifndef TESTS_KERNELS_CUDA_ON_CPU_HOPPER_H
#define TESTS_KERNELS_CUDA_ON_CPU_HOPPER_H

#include "tests/kernels/cuda_on_cpu/intrinsics.h"

#define HOPPER_KERNEL KERNEL

struct alignas(8) float2 {
	float x, y;
};

DEVICE void barrier_begin(uint32_t offset, int arrivals)
{
	cuda_barrier_begin(offset, arrivals);
}

DEVICE void barrier_arrive(uint32_t offset)
{
	cuda_barrier_arrive(offset);
}

DEVICE void barrier_arrive_with_copies(uint32_t offset)
{
	cuda_copy_commit();
	cuda_copy_wait(0);
	cuda_barrier_arrive(offset);
}

DEVICE void barrier_wait(uint32_t offset, uint32_t parity)
{
	cuda_barrier_wait(offset, parity);
}

DEVICE void group_barrier_wait(int barrier, int threads)
{
	cuda_named_barrier(barrier, threads, true);
}

DEVICE void group_barrier_arrive(int barrier, int threads)
{
	cuda_named_barrier(barrier, threads, false);
}

DEVICE void products_see_memory()
{
	cuda_products_see_memory();
}

DEVICE void copy_async_word(uint32_t offset, const void *global, bool valid)
{
	cuda_copy_later(offset, valid ? global : NULL, 4);
}

template <int N> DEVICE void give_registers()
{
}

template <int N> DEVICE void take_registers()
{
}

DEVICE uint32_t matrix_at(uint32_t offset, uint32_t next)
{
	return offset >> 4 | next >> 4 << 16;
}

/* With the upper half: eight rows are 1024 bytes, swizzled over 128. */
DEVICE uint64_t whole_matrix(uint32_t low)
{
	return (uint64_t)0x40000040 << 32 | low;
}

DEVICE void products_begin()
{
	cuda_products_begin();
}

DEVICE void products_commit()
{
	cuda_products_commit();
}

template <int open> DEVICE void products_wait()
{
	cuda_products_wait(open);
}

DEVICE void before_waiting(uint32_t)
{
}

template <int N> DEVICE void products_done(float (&)[N][4])
{
}

template <int N> DEVICE void multiply_tiles(float (&d)[N][4], uint32_t a, uint32_t b, bool add)
{
	const struct cuda_product product = {
		d[0], NULL, whole_matrix(a), whole_matrix(b), N * 8, add, false};

	cuda_product_later(&product);
}

template <int N>
DEVICE void multiply_registers(float (&d)[N][4], const uint32_t (&a)[4], uint32_t b)
{
	const struct cuda_product product = {d[0], a, 0, whole_matrix(b), N * 8, true, true};

	cuda_product_later(&product);
}

#endif
