/* The rates of a GPU's own kernels by the width of their rows: a part of calibration.h. */
#ifndef TOPOLOGIES_CALIBRATION_KERNELS_H
#define TOPOLOGIES_CALIBRATION_KERNELS_H

#include "base/base.h"

/* X(suffix, name): kernels of a GPU other than products, named as in the table of kernels; a
 * backward stands behind its forward. */
#define CALIBRATION_KERNEL_KINDS(X)                                                                \
	X(ATTENTION, "attention")                                                                  \
	X(ATTENTION_BACKWARD, "attention_backward")                                                \
	X(LAYERNORM, "layernorm")                                                                  \
	X(LAYERNORM_BACKWARD, "layernorm_backward")                                                \
	X(RMSNORM, "rmsnorm")                                                                      \
	X(RMSNORM_BACKWARD, "rmsnorm_backward")                                                    \
	X(GELU, "gelu")                                                                            \
	X(GELU_BACKWARD, "gelu_backward")                                                          \
	X(SWIGLU, "swiglu")                                                                        \
	X(SWIGLU_BACKWARD, "swiglu_backward")                                                      \
	X(ROPE, "rope")                                                                            \
	X(BIAS_BACKWARD, "bias_backward")                                                          \
	X(EMBEDDING, "embedding")                                                                  \
	X(EMBEDDING_BACKWARD, "embedding_backward")                                                \
	X(CROSS_ENTROPY, "cross_entropy")

enum calibration_kernel_kind {
#define X(suffix, name) KERNEL_##suffix,
	CALIBRATION_KERNEL_KINDS(X)
#undef X
		KERNEL_KIND_COUNT
};
extern const char *const calibration_kernel_names[];

/* Such a kernel alone, with enough of everything to fill the device, launch not included. */
struct calibration_kernel {
	enum calibration_kernel_kind kernel;
	enum dtype dtype;
	int64_t width;  /* of a row; of a head for attention and rope; 0: rows do not matter */
	int64_t length; /* tokens of a sequence for attention; else 0 */
	double rate;    /* elements of the result a second; attention: FLOP/s as executed */
};

enum { CALIBRATION_KERNELS = 96 }; /* at most */

#endif
