/* Ways of products and of attention that `calibrate` found to be fast, for the kernels of a run. */
#ifndef EXECUTOR_DEVICES_KERNEL_CHOICES_H
#define EXECUTOR_DEVICES_KERNEL_CHOICES_H

#include "kernels/kernels.h"
#include "topologies/topologies.h"

/* They depend on the topology and not on the plan: all plans for one file compute alike. */
struct gpu_choices {
	const char *refused; /* why none is used; NULL = they are, or there are none */
	int n;
	struct gemm_choice *choices;
	const char *attention_refused;
	int n_attention;
	struct attention_choice *attention;
};

/* Must be called before the first kernel of `context`. `arena` must outlive its kernels. */
void gpu_choices_use(struct gpu_choices *choices, const struct calibration *calibration,
	const struct kernels *kernels, struct kernel_context *context, struct arena *arena);

/* One line: how many were used so far; NULL where there are none. */
const char *gpu_choices_say(const struct gpu_choices *choices, struct arena *arena);
const char *gpu_choices_say_attention(const struct gpu_choices *choices, struct arena *arena);

#endif
