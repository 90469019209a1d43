/* A differentiable call: outputs as a function of inputs, and the backward that claims their
 * gradients. */
#ifndef TESTS_KERNELS_GRADIENTS_H
#define TESTS_KERNELS_GRADIENTS_H

#include "kernels/kernels.h"

enum { GRADIENT_INPUTS = 3, GRADIENT_MOST = 512 };

struct gradient_problem {
	const struct kernels *kernels;
	struct kernel_context *context;
	int64_t inputs[GRADIENT_INPUTS], outputs; /* elements, at most GRADIENT_MOST */
	float input[GRADIENT_INPUTS][GRADIENT_MOST];
	float gradient[GRADIENT_INPUTS][GRADIENT_MOST];
	float output[GRADIENT_MOST], doutput[GRADIENT_MOST];
	float saved[2][GRADIENT_MOST]; /* mean and rstd, or lse */
};

struct gradient_case {
	const char *name;
	int64_t inputs[GRADIENT_INPUTS], outputs;
	void (*forward)(struct gradient_problem *);
	void (*backward)(struct gradient_problem *);
};

/* Ends with a NULL name. */
extern const struct gradient_case gradient_cases[];
/* Each has a backward that is wrong in one term. */
extern const struct gradient_case wrong_gradient_cases[];

#endif
