/* Lets the program into which it is linked run on fake GPUs (tests/executor/fakes/cuda.h):
 * FAKE_GPUS of them, by default four. FAKE_RATES=1: with a clock of their own; =a100: no faster
 * than an A100. */
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/cuda.h"

__attribute__((constructor)) static void install(void)
{
	const char *gpus = getenv("FAKE_GPUS"), *kind = getenv("FAKE_RATES");
	struct fake_rates rates = fake_some_rates;

	fake_cuda_install(gpus != NULL ? atoi(gpus) : 4, 1);
	fake_nccl_install();
	if (kind != NULL && strcmp(kind, "a100") == 0) {
		rates.gemm = 250e12;
		rates.attention = rates.attention_backward = 150e12;
		rates.memory = 1.8e12;
	}
	if (kind != NULL)
		fake_clock_start(&rates);
}
