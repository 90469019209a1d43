/* Linear layers in fp8 or fp4: which of them, and what they need beside their products.
 *
 * Y = X W^T, dX = dY W, dW = dY^T X, each of two operands in fp8 and with a result in the compute
 * dtype: X and W in e4m3, dY in e5m2 (by rows in e4m3). A scale makes the largest element of a
 * tensor, or of each row along what is summed over, the largest number of the format. Products read
 * rows along what is summed over: backward's operands are transposed copies.
 *
 * torchao (float8_linear.py, 36027d8): backward has the input and the weight of forward in the
 * compute dtype and casts them again. Transformer Engine (runtimes.h, keeps_fp8_copies): backward
 * has the copies of forward, and those of weights last for all micro-batches and between steps.
 * Its products in fp4 (NVFP4BlockScaling, common/recipe) have all operands in e2m1, two in a byte;
 * what is summed over tokens passes a Hadamard transform before.
 * Ours: as torchao, one product at a time, with the scales beside the copies. */
#ifndef SCHEDULE_PLAN_FP8_H
#define SCHEDULE_PLAN_FP8_H

#include "schedule/plan/knobs.h"

/* What a recipe asks of its operands. */
struct fp8_rules {
	int64_t multiple; /* sizes of operands are multiples of it */
	int64_t per_byte; /* elements of an operand in a byte */
	int64_t scaled;   /* elements of a copy for each byte of scales; 0: few scales */
	bool both_orders; /* a copy cannot be turned: each order is made from the compute dtype */
};
const struct fp8_rules *fp8_rules_of(enum fp8_recipe recipe);
/* Bytes of so many elements of an operand, without scales. */
int64_t fp8_bytes(const struct plan *plan, int64_t elements);

/* Linear layers of blocks, never routers and the head; experts' with Transformer Engine alone. */
bool fp8_is_of_block(const struct plan *plan, enum module_kind kind);
/* Does the plan multiply the leaf's weight in fp8? `model`: the part that a rank has. */
bool fp8_converts(const struct plan *plan, const struct model *model, int module);
/* Is the leaf's input that of the leaf before it, whose cast serves both where casts are found to
 * be equal (torch.compile) or one product makes both (Transformer Engine)? */
bool fp8_shares_input(const struct plan *plan, const struct model *model, int module);

/* Does a sequence-parallel rank cast its tokens before they are gathered? They travel in fp8, and
 * none is cast twice (torchao, float8_tensor_parallel.py: with a scale for all of a tensor;
 * Transformer Engine, distributed.py). What experts get is gathered before it is cast. */
bool fp8_is_gathered(const struct plan *plan);
/* Does an adapter of the leaf read what is gathered for it? Then that is in the compute dtype. */
bool fp8_is_read_by_adapter(const struct plan *plan, const struct model *model, int module);
/* Bytes that tensor ranks gather of so many elements of a leaf's operand, those of the compute
 * dtype where they are not fewer. Backward's gradient travels in both orders, where none can be
 * turned into the other. */
int64_t fp8_gathered_bytes(const struct plan *plan, int64_t elements, bool is_input);
/* Do weights travel in fp8, or fp4? Megatron-LM gathers those in mxfp8 as bf16, in the buffer of
 * gradients, and casts what has come (param_and_grad_buffer.py, shared_buffer). */
bool fp8_gathers_weights(const struct plan *plan);
/* Bytes of an element of them on its way; of the compute dtype if not. */
double fp8_weight_width(const struct plan *plan);
/* Is the layer row-parallel? Then its gradient is gathered; of other layers the input is. */
bool fp8_is_row_parallel(enum module_kind kind);

/* Bytes of the copies that leaves in [first, end) have at a time in a pass. */
int64_t fp8_work_bytes(
	const struct plan *plan, const struct model *model, int first, int end, enum pass pass);
/* Bytes of weights' copies that live between steps: both orders of each; Blackwell's products read
 * either (nvte_is_non_tn_fp8_gemm_supported), but for mxfp8's. The first order is the parameter
 * itself where that is in fp8 (KNOB_FP8_PARAM_GATHER; Megatron-LM's fp8_utils.py), and is no copy.
 * Both orders of mxfp8 are, in as many bytes as the parameter in bf16: only their scales are more.
 */
int64_t fp8_weight_bytes(
	const struct plan *plan, const struct model *model, enum device_generation generation);

#endif
