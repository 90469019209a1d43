// Holds a stream until a modelled time has passed: several ranks on one GPU then see the link times
// of the cluster that they stand for. One thread, so that it takes no place from the arithmetic.
#include <stdint.h>

static __device__ uint64_t global_time(void)
{
	uint64_t now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	return now;
}

// When the collective started, in ns.
extern "C" __global__ void pace_begin(uint64_t *slot)
{
	*slot = global_time();
}

// Returns when `nanoseconds` have passed since pace_begin wrote the slot.
extern "C" __global__ void pace_end(const uint64_t *slot, uint64_t nanoseconds)
{
	while (global_time() - *slot < nanoseconds)
		__nanosleep(500);
}
