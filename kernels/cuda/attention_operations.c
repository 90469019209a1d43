/* cuDNN knows attention as the graph of what it computes: two products with a softmax between them,
 * and, backward, five products. Keys go in transposed; the log-sum-exp comes out as the backward
 * reads it, heads side by side.
 *
 * The backward writes dq where it belongs, and not by way of an fp32 tensor to which blocks add as
 * they come: that is how cuDNN is asked for an engine that repeats its bits. */
#include "kernels/cuda/attention_operations.h"

#include <string.h>

#include "base/base.h"

enum { BF16 = CUDNN_DATA_BFLOAT16, FP32 = CUDNN_DATA_FLOAT };

const struct attention_tensor attention_tensors[ATTENTION_TENSORS] = {
	[QUERIES] = {BF16, OF_QUERIES, false},
	[KEYS] = {BF16, OF_KEYS, false},
	[VALUES] = {BF16, OF_VALUES, false},
	[OUT] = {BF16, OF_OUT, false},
	[LSE] = {FP32, OF_LSE, false},
	[SCALE] = {FP32, OF_ONE, false},
	[MASKED] = {FP32, OF_ONE, false},
	[SCORES] = {FP32, OF_SCORES, true},
	[SCALED] = {FP32, OF_SCORES, true},
	[ROW] = {CUDNN_DATA_INT32, OF_SCORES, true},
	[COLUMN] = {CUDNN_DATA_INT32, OF_SCORES, true},
	[KEPT] = {CUDNN_DATA_BOOLEAN, OF_SCORES, true},
	[CAUSAL] = {FP32, OF_SCORES, true},
	[MOST] = {FP32, OF_ROWS, true},
	[SHIFTED] = {FP32, OF_SCORES, true},
	[RAISED] = {FP32, OF_SCORES, true},
	[SUM] = {FP32, OF_ROWS, true},
	[LOGARITHM] = {FP32, OF_ROWS, true},
	[WEIGHTS] = {BF16, OF_SCORES, true},
	[VALUES_ACROSS] = {BF16, OF_VALUES_ACROSS, false},
	[KEYS_ALONG] = {BF16, OF_KEYS_ALONG, true},
	[DOUT] = {BF16, OF_DOUT, false},
	[DQ] = {BF16, OF_DQ, false},
	[DK] = {BF16, OF_DK, false},
	[DV] = {BF16, OF_DV, false},
	[OVERLAP] = {FP32, OF_HEADS, true},
	[OVERLAPS] = {FP32, OF_ROWS, true},
	[UNIT] = {FP32, OF_ONE, false},
	[DELTAS] = {FP32, OF_ROWS, false},
	[WEIGHTS_ACROSS] = {BF16, OF_SCORES_ACROSS, true},
	[DWEIGHTS] = {FP32, OF_SCORES, true},
	[DSHIFTED] = {FP32, OF_SCORES, true},
	[DRAISED] = {FP32, OF_SCORES, true},
	[DSCORES] = {FP32, OF_SCORES, true},
	[DSCORES_ACROSS] = {BF16, OF_SCORES_ACROSS, true},
	[DK_OF_HEADS] = {BF16, OF_HEADS, true},
	[DV_OF_HEADS] = {BF16, OF_HEADS, true},
};

#define PRODUCT(x, b, y)     ATTENTION_PRODUCT, 0, FP32, x, b, 0, y, 0
#define SUM_OF(x, y)         ATTENTION_REDUCTION, CUDNN_REDUCE_TENSOR_ADD, FP32, x, 0, 0, y, 0
#define POINT(mode, x, b, y) ATTENTION_POINTWISE, CUDNN_POINTWISE_##mode, FP32, x, b, 0, y, 0
#define INDEX(x, y, axis)    ATTENTION_POINTWISE, CUDNN_POINTWISE_GEN_INDEX, FP32, x, 0, 0, y, axis
#define TURNED(x, y)         ATTENTION_RESHAPE, 0, 0, x, 0, 0, y, 0

/* Of `from` to CAUSAL: minus infinity behind a row's own column. */
#define MASK(from)                                                                                 \
	{INDEX(from, ROW, 2), ANY_HEADS}, {INDEX(from, COLUMN, 3), ANY_HEADS},                     \
		{ATTENTION_POINTWISE, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, ROW, COLUMN, 0,  \
			KEPT, 0, ANY_HEADS},                                                       \
	{                                                                                          \
		ATTENTION_POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, FP32, from, MASKED, KEPT,      \
			CAUSAL, 0, ANY_HEADS                                                       \
	}

static const struct attention_operation forward[] = {
	{PRODUCT(QUERIES, KEYS, SCORES), ANY_HEADS},
	{POINT(MUL, SCORES, SCALE, SCALED), ANY_HEADS},
	MASK(SCALED),
	{ATTENTION_REDUCTION, CUDNN_REDUCE_TENSOR_MAX, FP32, CAUSAL, 0, 0, MOST, 0, ANY_HEADS},
	{POINT(SUB, CAUSAL, MOST, SHIFTED), ANY_HEADS},
	{POINT(EXP, SHIFTED, 0, RAISED), ANY_HEADS},
	{SUM_OF(RAISED, SUM), ANY_HEADS},
	{POINT(LOG, SUM, 0, LOGARITHM), ANY_HEADS},
	{POINT(ADD, MOST, LOGARITHM, LSE), ANY_HEADS},
	{POINT(DIV, RAISED, SUM, WEIGHTS), ANY_HEADS},
	{PRODUCT(WEIGHTS, VALUES, OUT), ANY_HEADS},
};

static const struct attention_operation backward[] = {
	{POINT(MUL, DOUT, OUT, OVERLAP), ANY_HEADS},
	{SUM_OF(OVERLAP, OVERLAPS), ANY_HEADS},
	{POINT(MUL, OVERLAPS, UNIT, DELTAS), ANY_HEADS},
	{PRODUCT(QUERIES, KEYS, SCORES), ANY_HEADS},
	{POINT(MUL, SCORES, SCALE, SCALED), ANY_HEADS},
	{POINT(SUB, SCALED, LSE, SHIFTED), ANY_HEADS},
	MASK(SHIFTED),
	{POINT(EXP, CAUSAL, 0, RAISED), ANY_HEADS},
	{TURNED(RAISED, WEIGHTS_ACROSS), ANY_HEADS},
	{PRODUCT(WEIGHTS_ACROSS, DOUT, DV), OWN_KEYS},
	{PRODUCT(WEIGHTS_ACROSS, DOUT, DV_OF_HEADS), SHARED_KEYS},
	{SUM_OF(DV_OF_HEADS, DV), SHARED_KEYS},
	{PRODUCT(DOUT, VALUES_ACROSS, DWEIGHTS), ANY_HEADS},
	{POINT(SUB, DWEIGHTS, DELTAS, DSHIFTED), ANY_HEADS},
	{POINT(MUL, DSHIFTED, RAISED, DRAISED), ANY_HEADS},
	{POINT(MUL, DRAISED, SCALE, DSCORES), ANY_HEADS},
	{TURNED(DSCORES, DSCORES_ACROSS), ANY_HEADS},
	{PRODUCT(DSCORES_ACROSS, QUERIES, DK), OWN_KEYS},
	{PRODUCT(DSCORES_ACROSS, QUERIES, DK_OF_HEADS), SHARED_KEYS},
	{SUM_OF(DK_OF_HEADS, DK), SHARED_KEYS},
	{TURNED(KEYS, KEYS_ALONG), ANY_HEADS},
	{PRODUCT(DSCORES, KEYS_ALONG, DQ), ANY_HEADS},
};

const struct attention_operations attention_passes[ATTENTION_PASSES] = {
	[ATTENTION_FORWARD] = {forward, COUNT_OF(forward)},
	[ATTENTION_BACKWARD] = {backward, COUNT_OF(backward)},
};

bool attention_has_operation(const struct attention_operation *o, const struct attention *a)
{
	return o->heads == ANY_HEADS || (o->heads == OWN_KEYS) == (a->heads == a->kv_heads);
}

void attention_extent(enum attention_tensor_shape shape, const struct attention_call *call,
	int64_t extent[4], int64_t stride[4])
{
	const struct attention_backward *back = &call->of;
	const struct attention *a = &back->forward;
	int64_t b = a->sequences, h = a->heads, s = a->length, d = a->head_dim, kv = a->kv_heads;
/* Rows of `heads` heads side by side, a token's row `apart` from the next one's. */
#define ROWS(heads, apart)                                                                         \
	{                                                                                          \
		{b, heads, s, d},                                                                  \
		{                                                                                  \
			s *(apart), d, apart, 1                                                    \
		}                                                                                  \
	}
#define ACROSS(heads, apart)                                                                       \
	{                                                                                          \
		{b, heads, d, s},                                                                  \
		{                                                                                  \
			s *(apart), d, 1, apart                                                    \
		}                                                                                  \
	}
	const int64_t shapes[][2][4] = {
		[OF_QUERIES] = ROWS(h, a->q_stride),
		[OF_KEYS] = ACROSS(kv, a->k_stride),
		[OF_VALUES] = ROWS(kv, a->v_stride),
		[OF_OUT] = ROWS(h, a->out_stride),
		[OF_LSE] = {{b, h, s, 1}, {s * call->lse_stride, 1, call->lse_stride, 1}},
		[OF_ONE] = {{1, 1, 1, 1}, {1, 1, 1, 1}},
		[OF_SCORES] = {{b, h, s, s}, {h * s * s, s * s, s, 1}},
		[OF_SCORES_ACROSS] = {{b, h, s, s}, {h * s * s, s * s, 1, s}},
		[OF_ROWS] = {{b, h, s, 1}, {h * s, s, 1, 1}},
		[OF_VALUES_ACROSS] = ACROSS(kv, a->v_stride),
		[OF_KEYS_ALONG] = ROWS(kv, a->k_stride),
		[OF_DOUT] = ROWS(h, back->dout_stride),
		[OF_DQ] = ROWS(h, back->dq_stride),
		[OF_DK] = ROWS(kv, back->dk_stride),
		[OF_DV] = ROWS(kv, back->dv_stride),
		[OF_HEADS] = {{b, h, s, d}, {h * s * d, s * d, d, 1}},
	};
#undef ROWS
#undef ACROSS

	memcpy(extent, shapes[shape][0], sizeof(shapes[shape][0]));
	memcpy(stride, shapes[shape][1], sizeof(shapes[shape][1]));
}
