/* A cuDNN for tests: it keeps what descriptors are told, and carries the operations of a graph out,
 * one by one, in double precision, on tensors that lie in host memory as their strides say. */
#ifndef TESTS_KERNELS_FAKE_CUDNN_H
#define TESTS_KERNELS_FAKE_CUDNN_H

#include <stdbool.h>

#include "kernels/cuda/cudnn.h"

/* Version 0, as it begins, is unfit for anything. It proposes, in this order, engines that are fit,
 * that may vary from run to run, that need more memory than anybody gives, that have a knob of
 * another kind, and one more that is fit. FAKE_UNPROPOSED is Blackwell's, by number alone, and for
 * backward. A backward needs FAKE_HEAD_BYTES of FAKE_FIT for each head of a sequence, and what
 * is given to it is overwritten. */
enum { FAKE_FIT = 2, FAKE_VARIES, FAKE_HUNGRY, FAKE_UNPROPOSED, FAKE_ODD, FAKE_SECOND };
enum { FAKE_HEAD_BYTES = 1024 };

extern struct fake_cudnn {
	size_t version;
	bool missing, no_handle, fails; /* set by a test; fails: when it executes */
	bool blackwell, no_backward;
	int64_t settled, unsettled; /* reductions of backward, said to repeat their bits or not */
	int64_t finds, made, destroyed, handles, plans, executions;
	int64_t engine; /* of the last execution */
	void *stream;
} fake_cudnn;

/* Returns the fake cuDNN of the machine cuda_on_cpu. */
const struct cudnn_api *fake_cudnn_find(void);

#endif
