/* A machine that runs CUDA kernels on one CPU: the threads of a block are coroutines that change
 * places where they wait for each other, one block after the other.
 *
 * It is strict where a GPU would go on: lanes of a warp that do not do the same thing, threads that
 * leave a barrier waiting, and copies that nobody waited for end the program with a message. Shared
 * memory is new for every block, full of NaN, and exactly as large as asked for. The order in which
 * threads and blocks run can be reversed: a kernel whose bits change has a race. */
#ifndef TESTS_KERNELS_CUDA_ON_CPU_MACHINE_H
#define TESTS_KERNELS_CUDA_ON_CPU_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MOST_THREADS = 1024, CUDA_OPERAND_BYTES = 32 };

struct cuda_index {
	uint32_t x, y, z;
};

/* What each lane showed; valid until the lane's next but one exchange. */
struct exchange {
	char of[32][CUDA_OPERAND_BYTES] __attribute__((aligned(8)));
};

struct cuda_thread {
	struct cuda_index index;
	struct thread_state *state;
};

extern struct cuda_thread *cuda_thread; /* the one that runs */
extern struct cuda_index cuda_block, cuda_block_size, cuda_grid;
extern char *cuda_shared;
extern bool cuda_backwards; /* the last thread of the last block first */

void cuda_run(void (*kernel)(const void *), const void *arguments, struct cuda_index grid,
	struct cuda_index block, uint32_t shared_bytes);

/* Called by kernels. */
const struct exchange *cuda_exchange(const char *what, const void *operand, int bytes);
void cuda_wait_for_block(void);
/* 4 or 16 bytes to an offset of the shared memory, zeros for NULL. */
void cuda_cp_async(uint32_t offset, const void *from, int bytes);
void cuda_cp_async_commit_group(void);
void cuda_cp_async_wait_group(int open_groups);

void cuda_die(const char *what);
/* Lets others run until `ready`. */
void cuda_wait_until(bool (*ready)(const void *), const void *about);

/* --- Hopper (hopper.c) --- */

/* Of a warpgroup, as wgmma has it, with 16 columns of the left operand: d[64, columns] (+)= a b. */
struct cuda_wgmma_operands {
	float *d;
	const uint32_t *a_registers; /* NULL: `a` describes it in shared memory */
	uint64_t a, b;
	int columns;
	bool add, b_by_rows;
};

void cuda_mbarrier_init(uint32_t offset, int arrivals);
void cuda_mbarrier_arrive(uint32_t offset);
void cuda_mbarrier_wait(uint32_t offset, uint32_t parity);
void cuda_fence_proxy_async(void);
void cuda_wgmma_fence(void);
void cuda_wgmma(const struct cuda_wgmma_operands *product);
void cuda_wgmma_commit_group(void);
void cuda_wgmma_wait_group(int open_groups);
/* Called by machine.c: a block, a thread of it. */
void cuda_hopper_begin_block(void);
void cuda_hopper_end_thread(void);

#ifdef __cplusplus
}
#endif

#endif
