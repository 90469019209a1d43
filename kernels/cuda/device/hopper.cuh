/* Hopper's own instructions (sm_90a): mbarriers, wgmma and setmaxnreg, by their PTX names. wgmma
 * multiplies a warpgroup's 64 rows; B is in shared memory, A in shared memory (_ss) or in registers
 * (_rs). The tests have the same set for the CPU. */
#ifndef KERNELS_CUDA_HOPPER_CUH
#define KERNELS_CUDA_HOPPER_CUH

#include "kernels/cuda/device/intrinsics.cuh"

/* A KERNEL with one block per multiprocessor, as setmaxnreg needs to know at compile time. */
#define HOPPER_KERNEL(name)                                                                        \
	extern "C" __global__ void __launch_bounds__(name##_threads, 1)                            \
		name(const __grid_constant__ name##_arguments a)

/* --- mbarrier: 8 bytes of shared memory; a wait names the parity of the phase to complete --- */

DEVICE void mbarrier_init(uint32_t offset, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(offset)),
		     "r"(arrivals)
		     : "memory");
}

DEVICE void mbarrier_arrive(uint32_t offset)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(offset))
		     : "memory");
}

/* ptxas moves wgmma.wait_group ahead of arithmetic that does not depend on it and that should
 * overlap with the wgmma. It does not move it ahead of a store; this store is never executed, as x
 * holds the bits of numbers that are not negative. */
DEVICE void keep_before_wait(uint32_t x)
{
	asm volatile("{\n"
		     ".reg .pred p;\n"
		     "setp.lt.s32 p, %0, 0;\n"
		     "@p st.shared.u32 [%1], %0;\n"
		     "}" ::"r"(x),
		     "r"(shared_address(0))
		     : "memory");
}

/* Arrives when all cp.async of this thread have completed. */
DEVICE void cp_async_mbarrier_arrive_noinc(uint32_t offset)
{
	asm volatile(
		"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(offset))
		: "memory");
}

DEVICE void mbarrier_wait(uint32_t offset, uint32_t parity)
{
	asm volatile("{\n"
		     ".reg .pred p;\n"
		     "AGAIN:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
		     "@p bra DONE;\n"
		     "bra AGAIN;\n"
		     "DONE:\n"
		     "}" ::"r"(shared_address(offset)),
		     "r"(parity)
		     : "memory");
}

/* Makes writes to shared memory visible to wgmma, which reads it by the async proxy. */
DEVICE void fence_proxy_async()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* 4 bytes to that offset of the shared memory, zeros when not `valid`. */
DEVICE void cp_async_4(uint32_t offset, const void *global, bool valid)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(offset)),
		     "l"(global), "r"(valid ? 4 : 0)
		     : "memory");
}

/* --- registers per thread, reallocated between the warpgroups of a block --- */

template <int N> DEVICE void setmaxnreg_dec()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> DEVICE void setmaxnreg_inc()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* --- wgmma --- */

/* The lower half of a matrix descriptor: start address and leading dimension byte offset, both in
 * units of 16 bytes. Rows are 64 bf16, swizzled over 128 bytes; `leading` is the distance between
 * columns [0, 64) and [64, 128) of an operand that is read transposed. The upper half is the same
 * for all: a stride of 1024 bytes between groups of eight rows, 128-byte swizzle. */
DEVICE uint32_t wgmma_descriptor(uint32_t offset, uint32_t leading)
{
	return shared_address(offset) >> 4 | leading >> 4 << 16;
}

/* Before the first wgmma: orders register writes before it. */
DEVICE void wgmma_fence()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void wgmma_commit_group()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most `pending` of the committed groups are incomplete. */
template <int pending> DEVICE void wgmma_wait_group()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/* Keeps the compiler from reading accumulators ahead of the wait. */
template <int N> DEVICE void warpgroup_fence_operand(float (&d)[N][4])
{
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

#define ACC(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

/* d[64, 8 N] (+)= a[64, 16] b[8 N, 16]^T, a and b by descriptor; and d += a b[16, 8 N] with a in
 * registers, in the layout of accumulators. */
DEVICE void wgmma_ss(float (&d)[8][4], uint32_t a, uint32_t b, bool add)
{
	asm volatile(
		"{\n"
		".reg .pred p;\n"
		".reg .b64 a, b;\n"
		"mov.b64 a, {%32, 0x40000040};\n"
		"mov.b64 b, {%33, 0x40000040};\n"
		"setp.ne.b32 p, %34, 0;\n"
		"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
		"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
		"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
		"}, a, b, p, 1, 1, 0, 0;\n"
		"}"
		: ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7)
		: "r"(a), "r"(b), "r"((int)add));
}

DEVICE void wgmma_rs(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b)
{
	asm volatile(
		"{\n"
		".reg .b64 b;\n"
		"mov.b64 b, {%36, 0x40000040};\n"
		"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
		"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
		"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
		"}, {%32, %33, %34, %35}, b, 1, 1, 1, 1;\n"
		"}"
		: ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

DEVICE void wgmma_ss(float (&d)[16][4], uint32_t a, uint32_t b, bool add)
{
	asm volatile(
		"{\n"
		".reg .pred p;\n"
		".reg .b64 a, b;\n"
		"mov.b64 a, {%64, 0x40000040};\n"
		"mov.b64 b, {%65, 0x40000040};\n"
		"setp.ne.b32 p, %66, 0;\n"
		"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
		"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
		"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
		"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
		"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
		"}, a, b, p, 1, 1, 0, 0;\n"
		"}"
		: ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7), ACC(8), ACC(9),
		ACC(10), ACC(11), ACC(12), ACC(13), ACC(14), ACC(15)
		: "r"(a), "r"(b), "r"((int)add));
}

DEVICE void wgmma_rs(float (&d)[16][4], const uint32_t (&a)[4], uint32_t b)
{
	asm volatile(
		"{\n"
		".reg .b64 b;\n"
		"mov.b64 b, {%68, 0x40000040};\n"
		"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
		"%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
		"%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
		"%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
		"%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
		"}, {%64, %65, %66, %67}, b, 1, 1, 1, 1;\n"
		"}"
		: ACC(0), ACC(1), ACC(2), ACC(3), ACC(4), ACC(5), ACC(6), ACC(7), ACC(8), ACC(9),
		ACC(10), ACC(11), ACC(12), ACC(13), ACC(14), ACC(15)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

#undef ACC

#endif
