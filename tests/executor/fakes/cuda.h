/* A machine of GPUs that are none: the functions of cuda_api, carried out in host memory by the
 * calling threads. For tests of what the host does.
 *
 * - A stream is a queue. What is enqueued runs when a thread waits for something (an event, a
 *   stream), the next of a stream that is drawn by chance among those that may go on, so that what
 *   the events do not order comes in any order.
 * - Every access of device or pinned memory is declared, and checked by vector clocks: two accesses
 *   of one byte, one of them a write, must be ordered by streams, events or waits of the host.
 * - A capture takes what its streams are given, and a graph gives it again with every launch
 *   (graph.c). Waits for what is outside of the capture, streams that are not joined, and
 *   whatever cannot be captured are faults.
 * - Memory that is freed while a queue may use it, addresses outside of any allocation, and
 * anything but enqueuing and waiting for events while a step runs are faults. The first fault is
 * kept; from then on every function fails, with the fault as its error string. */
#ifndef TESTS_EXECUTOR_FAKE_CUDA_H
#define TESTS_EXECUTOR_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/api.h"

/* A range of bytes that a node of a queue reads or writes. */
struct fake_touch {
	const void *address;
	int64_t bytes;
	bool write;
};
enum { FAKE_TOUCHES = 72 };
#define FAKE_DRY_MEMORY (79LL << 30)

/* Makes cuda_api() this one from now on, with `gpus` GPUs. `seed` draws the order of operations. */
void fake_cuda_install(int gpus, uint64_t seed);

/* The GPU takes work from `n` queues: streams have them in turn, and what lies in a queue begins in
 * order, so that a stream holds up others when it waits. (Without it each has one of its own.) */
void fake_cuda_limit_queues(int n);

/* And nccl_api() is the fake's, among its GPUs, of version 2.28.9 or of what FAKE_NCCL_VERSION
 * says.
 */
void fake_nccl_install(void);

/* Enqueues a call of `run` with a copy of `arguments`: a kernel. */
void fake_cuda_call(void *stream, const char *name, void (*run)(void *arguments),
	const void *arguments, size_t bytes, const struct fake_touch *touches, int n_touches);

/* A fault that somebody else has found. */
void fake_cuda_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* "" when there is none. */
const char *fake_cuda_first_fault(void);

/* As if nothing had been wrong, and the thread had begun no capture. */
void fake_cuda_forget_fault(void);

/* A time of the machine's own instead of the real one: what is enqueued takes as long as these say,
 * streams go on as soon as what they wait for has passed, and clock_now() is what the calling
 * thread knows of it. 0: takes no time. */
struct fake_rates {
	double kernel;          /* s of each, besides what follows */
	double issue;           /* s of the host, to enqueue anything */
	double call;            /* s of the host, for a collective of NCCL's */
	double memory;          /* B/s of kernels, by the bytes that they touch */
	double to_device, from; /* B/s of copies between pinned memory and the device's */
	double gemm, half_k;    /* FLOP/s: gemm k / (k + half_k) */
	double attention, attention_backward; /* FLOP/s, of the causal half */
	double link_latency, link;            /* s; B/s of the gathered size: NCCL's collectives */
	double hot, hot_after; /* products run at `hot` of gemm after so many s of them without a
				* pause; 0: never */
	bool dry; /* kernels and copies move nothing, and the GPU is said to have FAKE_DRY_MEMORY */
};
/* Of a GPU that might be, dry. */
extern const struct fake_rates fake_some_rates;
void fake_clock_start(const struct fake_rates *rates);

#endif
