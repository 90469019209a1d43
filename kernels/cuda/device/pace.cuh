// What transports need. Pacing holds a stream until a modelled time has passed: several ranks on
// one GPU then see the link times of the cluster that they stand for. One thread, so that it takes
// no place from the arithmetic.
#include <stdint.h>

static __device__ uint64_t global_time(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

// When the operation started, in ns.
extern "C" __global__ void pace_begin(uint64_t *slot)
{
	*slot = global_time();
}

// Returns when `nanoseconds` have passed since pace_begin wrote the slot, which then holds by how
// many more it was late.
extern "C" __global__ void pace_end(uint64_t *slot, uint64_t nanoseconds)
{
	uint64_t start = *slot, passed = global_time() - start;

	*slot = passed > nanoseconds ? passed - nanoseconds : 0;
	while (global_time() - start < nanoseconds)
		__nanosleep(500);
}

// out[0..n) = the sum of `sources` consecutive runs of n integers.
extern "C" __global__ void sum_integers(
	int64_t *out, const int64_t *gathered, int64_t sources, int64_t n)
{
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
		int64_t total = 0;

		for (int64_t s = 0; s < sources; s++)
			total += gathered[s * n + i];
		out[i] = total;
	}
}
