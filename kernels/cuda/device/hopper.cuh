/* Hopper's own instructions (sm_90a): barriers of a block in shared memory, products of a warpgroup
 * (four warps, 64 rows) whose right operand, and where it suits the left one too, lies in shared
 * memory, and registers that warps give to each other. The tests have the same set for the CPU. */
#ifndef KERNELS_CUDA_HOPPER_CUH
#define KERNELS_CUDA_HOPPER_CUH

#include "kernels/cuda/device/intrinsics.cuh"

/* A KERNEL that has a multiprocessor for itself, which give_registers must know. */
#define HOPPER_KERNEL(name)                                                                        \
	extern "C" __global__ void __launch_bounds__(name##_threads, 1)                            \
		name(const __grid_constant__ name##_arguments a)

/* --- barriers: 8 bytes of shared memory; waits name the parity of the phase that must have ended
 */

DEVICE void barrier_begin(uint32_t offset, int arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(offset)),
		     "r"(arrivals)
		     : "memory");
}

DEVICE void barrier_arrive(uint32_t offset)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(offset))
		     : "memory");
}

/* The assembler moves waits for products ahead of arithmetic that they do not depend on, which
 * should go on meanwhile, but not ahead of a store: of one that never happens, as x has the bits of
 * numbers that are not negative. */
DEVICE void before_waiting(uint32_t x)
{
	asm volatile("{\n"
		     ".reg .pred p;\n"
		     "setp.lt.s32 p, %0, 0;\n"
		     "@p st.shared.u32 [%1], %0;\n"
		     "}" ::"r"(x),
		     "r"(shared_address(0))
		     : "memory");
}

/* Arrives when the copies are done that this thread has begun. */
DEVICE void barrier_arrive_with_copies(uint32_t offset)
{
	asm volatile(
		"cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(offset))
		: "memory");
}

DEVICE void barrier_wait(uint32_t offset, uint32_t parity)
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

/* The block's named barriers, of which 0 is __syncthreads: for some of its threads. */
DEVICE void group_barrier_wait(int barrier, int threads)
{
	asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

DEVICE void group_barrier_arrive(int barrier, int threads)
{
	asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/* What was written to shared memory is seen by the products that follow. */
DEVICE void products_see_memory()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* 4 bytes to that offset of the shared memory, zeros when not `valid`. */
DEVICE void copy_async_word(uint32_t offset, const void *global, bool valid)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(offset)),
		     "l"(global), "r"(valid ? 4 : 0)
		     : "memory");
}

/* --- registers of a thread from here on, of those that the block was launched with --- */

template <int N> DEVICE void give_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> DEVICE void take_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* --- products of a warpgroup --- */

/* A matrix in shared memory, in rows of 64 bf16 that are swizzled over 128 bytes; `next` bytes lie
 * between columns [0, 64) and [64, 128) where the product runs over rows. This is the lower half of
 * its description; the upper one is the same for all: eight rows are 1024 bytes. */
DEVICE uint32_t matrix_at(uint32_t offset, uint32_t next)
{
	return shared_address(offset) >> 4 | next >> 4 << 16;
}

/* Before the first of some products: registers written so far are theirs. */
DEVICE void products_begin()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

DEVICE void products_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most `open` of the groups that were committed are under way. */
template <int open> DEVICE void products_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(open) : "memory");
}

/* Keeps the compiler from using results ahead of the wait. */
template <int N> DEVICE void products_done(float (&d)[N][4])
{
#pragma unroll
	for (int i = 0; i < N * 4; i++)
		asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}

#define ACC(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

/* d[64, 8 N] (+)= a[64, 16] b[8 N, 16]^T, both in shared memory; and d += a b[16, 8 N], a in
 * registers as results lie in them. */
DEVICE void multiply_tiles(float (&d)[8][4], uint32_t a, uint32_t b, bool add)
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

DEVICE void multiply_registers(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b)
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

DEVICE void multiply_tiles(float (&d)[16][4], uint32_t a, uint32_t b, bool add)
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

DEVICE void multiply_registers(float (&d)[16][4], const uint32_t (&a)[4], uint32_t b)
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
