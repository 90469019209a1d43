/* Makes the program that it is linked into run on GPUs that are none (tests/executor/fake_cuda.h):
 * FAKE_GPUS of them, four unless it says otherwise. FAKE_RATES=1: with a clock of their own. */
#include <stdlib.h>

#include "tests/executor/fake_cuda.h"

static const struct fake_rates rates = {.kernel = 1e-6,
	.issue = 0.5e-6,
	.memory = 3e12,
	.to_device = 50e9,
	.from = 40e9,
	.gemm = 700e12,
	.half_k = 64,
	.attention = 400e12,
	.attention_backward = 300e12,
	.link_latency = 20e-6,
	.link = 100e9,
	.dry = true};

__attribute__((constructor)) static void install(void)
{
	const char *gpus = getenv("FAKE_GPUS");

	fake_cuda_install(gpus != NULL ? atoi(gpus) : 4, 1);
	fake_nccl_install();
	if (getenv("FAKE_RATES") != NULL)
		fake_clock_start(&rates);
}
