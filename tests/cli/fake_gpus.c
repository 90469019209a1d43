/* Makes the program that it is linked into run on GPUs that are none (tests/executor/fake_cuda.h):
 * FAKE_GPUS of them, four unless it says otherwise. FAKE_RATES=1: with a clock of their own. */
#include <stdlib.h>

#include "tests/executor/fake_cuda.h"

__attribute__((constructor)) static void install(void)
{
	const char *gpus = getenv("FAKE_GPUS");

	fake_cuda_install(gpus != NULL ? atoi(gpus) : 4, 1);
	fake_nccl_install();
	if (getenv("FAKE_RATES") != NULL)
		fake_clock_start(&fake_some_rates);
}
