/* The operations and tensors of causal attention and its backward, as cuDNN defines them. Its
 * engines look for exactly these, in the forms of NVIDIA's own front end. */
#ifndef KERNELS_CUDA_ATTENTION_OPERATIONS_H
#define KERNELS_CUDA_ATTENTION_OPERATIONS_H

#include <stdbool.h>

#include "kernels/common/common.h"
#include "kernels/cuda/cudnn.h"

/* By number, which cuDNN calls a tensor's unique id; 0 is none. */
enum attention_tensor_number {
	NO_TENSOR,
	QUERIES,
	KEYS, /* transposed */
	VALUES,
	OUT,
	LSE,
	SCALE,
	MASKED, /* minus infinity */
	SCORES,
	SCALED,
	ROW,
	COLUMN,
	KEPT, /* row >= column */
	CAUSAL,
	MOST, /* of a row */
	SHIFTED,
	RAISED,
	SUM,
	LOGARITHM,
	WEIGHTS,
	/* of the backward alone */
	VALUES_ACROSS, /* transposed */
	KEYS_ALONG,    /* not transposed */
	DOUT,
	DQ,
	DK,
	DV,
	OVERLAP, /* dout * out */
	OVERLAPS,
	UNIT,   /* 1 */
	DELTAS, /* a number for each row, in the workspace */
	WEIGHTS_ACROSS,
	DWEIGHTS,
	DSHIFTED,
	DRAISED,
	DSCORES,
	DSCORES_ACROSS,
	DK_OF_HEADS, /* before heads that share a key are summed */
	DV_OF_HEADS,
	ATTENTION_TENSORS
};

enum attention_tensor_shape {
	OF_QUERIES,
	OF_KEYS,
	OF_VALUES,
	OF_OUT,
	OF_LSE,
	OF_ONE, /* passed by value */
	OF_SCORES,
	OF_SCORES_ACROSS,
	OF_ROWS,
	OF_VALUES_ACROSS,
	OF_KEYS_ALONG,
	OF_DOUT,
	OF_DQ,
	OF_DK,
	OF_DV,
	OF_HEADS,
};

struct attention_tensor {
	int type;
	enum attention_tensor_shape shape;
	bool is_virtual; /* it never exists in memory */
};

extern const struct attention_tensor attention_tensors[ATTENTION_TENSORS];

enum attention_operation_kind {
	ATTENTION_PRODUCT,
	ATTENTION_REDUCTION,
	ATTENTION_POINTWISE,
	ATTENTION_RESHAPE
};

enum attention_heads { ANY_HEADS, OWN_KEYS, SHARED_KEYS };

/* y of x and b, where t. axis 0: none. Only where the heads' keys are such. */
struct attention_operation {
	enum attention_operation_kind kind;
	int mode, math;
	enum attention_tensor_number x, b, t, y;
	int axis;
	enum attention_heads heads;
};

struct attention_operations {
	const struct attention_operation *list;
	int n;
};

enum { ATTENTION_OPERATIONS = 24 }; /* at most */

extern const struct attention_operations attention_passes[ATTENTION_PASSES];

bool attention_has_operation(const struct attention_operation *o, const struct attention *a);

/* Attention over all or some of a tensor's sequences and heads; of a forward only what the forward
 * has is read. */
struct attention_call {
	struct attention_backward of;
	int64_t lse_stride; /* heads of the tensor */
};

void attention_extent(enum attention_tensor_shape shape, const struct attention_call *call,
	int64_t extent[4], int64_t stride[4]);

#endif
