#include <stddef.h>
#include <string.h>

#include "tests/kernels/gradients.h"

/* C[5,7] = A[5,6] B[6,7] */
static void gemm_forward(struct gradient_problem *p)
{
	p->kernels->gemm(p->context, &(struct gemm){.m = 5,
					     .n = 7,
					     .k = 6,
					     .a = p->input[0],
					     .lda = 6,
					     .b = p->input[1],
					     .ldb = 7,
					     .c = p->output,
					     .ldc = 7});
}

static void gemm_backward(struct gradient_problem *p)
{
	p->kernels->gemm(p->context, &(struct gemm){.m = 5,
					     .n = 6,
					     .k = 7,
					     .a = p->doutput,
					     .lda = 7,
					     .b = p->input[1],
					     .ldb = 7,
					     .transpose_b = true,
					     .c = p->gradient[0],
					     .ldc = 6});
	p->kernels->gemm(p->context, &(struct gemm){.m = 6,
					     .n = 7,
					     .k = 5,
					     .a = p->input[0],
					     .lda = 6,
					     .transpose_a = true,
					     .b = p->doutput,
					     .ldb = 7,
					     .c = p->gradient[1],
					     .ldc = 7});
}

static void bias_forward(struct gradient_problem *p)
{
	memset(p->output, 0, sizeof(p->output));
	p->kernels->bias_add(p->context, DTYPE_FP32, p->output, p->input[0], 6, 19);
}

static void bias_backward(struct gradient_problem *p)
{
	p->kernels->bias_backward(
		p->context, DTYPE_FP32, p->gradient[0], DTYPE_FP32, p->doutput, 6, 19, false);
}

static struct norm norm_of(struct gradient_problem *p)
{
	return (struct norm){.rows = 4,
		.width = 19,
		.epsilon = 1e-5f,
		.x = p->input[0],
		.weight = p->input[1],
		.bias = p->input[2],
		.y = p->output,
		.mean = p->saved[0],
		.rstd = p->saved[1]};
}

static struct norm_backward norm_backward_of(struct gradient_problem *p)
{
	return (struct norm_backward){.rows = 4,
		.width = 19,
		.dy = p->doutput,
		.x = p->input[0],
		.weight = p->input[1],
		.mean = p->saved[0],
		.rstd = p->saved[1],
		.dx = p->gradient[0],
		.dweight = p->gradient[1],
		.dbias = p->gradient[2]};
}

static void layernorm_forward(struct gradient_problem *p)
{
	struct norm n = norm_of(p);

	p->kernels->layernorm(p->context, &n);
}

static void layernorm_backward(struct gradient_problem *p)
{
	struct norm_backward n = norm_backward_of(p);

	p->kernels->layernorm_backward(p->context, &n);
}

static void rmsnorm_forward(struct gradient_problem *p)
{
	struct norm n = norm_of(p);

	p->kernels->rmsnorm(p->context, &n);
}

static void rmsnorm_backward(struct gradient_problem *p)
{
	struct norm_backward n = norm_backward_of(p);

	p->kernels->rmsnorm_backward(p->context, &n);
}

static void rope_by(struct gradient_problem *p, float *x, bool inverse)
{
	p->kernels->rope(p->context, &(struct rope){.x = x,
					     .tokens = 8,
					     .heads = 2,
					     .head_dim = 6,
					     .stride = 12,
					     .length = 4,
					     .theta = 100.0,
					     .inverse = inverse});
}

static void rope_forward(struct gradient_problem *p)
{
	memcpy(p->output, p->input[0], sizeof(p->output));
	rope_by(p, p->output, false);
}

static void rope_backward(struct gradient_problem *p)
{
	memcpy(p->gradient[0], p->doutput, sizeof(p->doutput));
	rope_by(p, p->gradient[0], true);
}

/* 2 sequences of 5 tokens, 4 heads of 5 on 2 kv heads */
static struct attention attention_of(struct gradient_problem *p)
{
	return (struct attention){.sequences = 2,
		.length = 5,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 5,
		.scale = 0.7f,
		.q = p->input[0],
		.q_stride = 20,
		.k = p->input[1],
		.k_stride = 10,
		.v = p->input[2],
		.v_stride = 10,
		.out = p->output,
		.out_stride = 20,
		.lse = p->saved[0]};
}

static void attention_forward(struct gradient_problem *p)
{
	struct attention a = attention_of(p);

	p->kernels->attention(p->context, &a);
}

static void attention_backward(struct gradient_problem *p)
{
	p->kernels->attention_backward(
		p->context, &(struct attention_backward){.forward = attention_of(p),
				    .dout = p->doutput,
				    .dout_stride = 20,
				    .dq = p->gradient[0],
				    .dq_stride = 20,
				    .dk = p->gradient[1],
				    .dk_stride = 10,
				    .dv = p->gradient[2],
				    .dv_stride = 10});
}

static void gelu_tanh_forward(struct gradient_problem *p)
{
	p->kernels->gelu(p->context, DTYPE_FP32, GELU_TANH, p->output, p->input[0], p->outputs);
}

static void gelu_tanh_backward(struct gradient_problem *p)
{
	p->kernels->gelu_backward(p->context, DTYPE_FP32, GELU_TANH, p->gradient[0], p->doutput,
		p->input[0], p->outputs);
}

static void gelu_erf_forward(struct gradient_problem *p)
{
	p->kernels->gelu(p->context, DTYPE_FP32, GELU_ERF, p->output, p->input[0], p->outputs);
}

static void gelu_erf_backward(struct gradient_problem *p)
{
	p->kernels->gelu_backward(p->context, DTYPE_FP32, GELU_ERF, p->gradient[0], p->doutput,
		p->input[0], p->outputs);
}

static void swiglu_forward(struct gradient_problem *p)
{
	p->kernels->swiglu(p->context, DTYPE_FP32, p->output, p->input[0], p->input[1], p->outputs);
}

static void swiglu_backward(struct gradient_problem *p)
{
	p->kernels->swiglu_backward(p->context, &(struct swiglu_backward){.rows = 1,
							.width = p->outputs,
							.stride = p->outputs,
							.dy = p->doutput,
							.gate = p->input[0],
							.up = p->input[1],
							.dgate = p->gradient[0],
							.dup = p->gradient[1]});
}

static const int32_t ids[8] = {3, 0, 3, 1, 3, 4, 0, 3};

/* 8 tokens in sequences of 4, 5 words of 6 */
static void embedding_forward(struct gradient_problem *p)
{
	p->kernels->embedding(p->context, &(struct embedding){.tokens = 8,
						  .width = 6,
						  .length = 4,
						  .vocabulary = 5,
						  .ids = ids,
						  .table = p->input[0],
						  .positions = p->input[1],
						  .out = p->output});
}

static void embedding_backward(struct gradient_problem *p)
{
	p->kernels->embedding_backward(p->context, &(struct embedding_backward){.tokens = 8,
							   .width = 6,
							   .length = 4,
							   .vocabulary = 5,
							   .position_rows = 6,
							   .ids = ids,
							   .dout = p->doutput,
							   .dtable = p->gradient[0],
							   .dpositions = p->gradient[1]});
}

static const int32_t targets[6] = {2, -1, 10, 0, 7, 7};

/* 6 tokens, 11 words; the outputs are the losses, whose weights must all be the scale. */
static void loss_by(struct gradient_problem *p, float *logits, bool keep)
{
	p->kernels->cross_entropy(p->context, &(struct cross_entropy){.tokens = 6,
						      .vocabulary = 11,
						      .stride = 11,
						      .logits = logits,
						      .targets = targets,
						      .losses = p->output,
						      .scale = 0.25f,
						      .keep_logits = keep});
}

static void loss_forward(struct gradient_problem *p)
{
	loss_by(p, p->input[0], true);
	for (int i = 0; i < 6; i++)
		p->doutput[i] = 0.25f;
}

static void loss_backward(struct gradient_problem *p)
{
	memcpy(p->gradient[0], p->input[0], sizeof(p->input[0]));
	loss_by(p, p->gradient[0], false);
}

const struct gradient_case gradient_cases[] = {
	{"gemm", {30, 42}, 35, gemm_forward, gemm_backward},
	{"bias", {19}, 114, bias_forward, bias_backward},
	{"layernorm", {76, 19, 19}, 76, layernorm_forward, layernorm_backward},
	{"rmsnorm", {76, 19}, 76, rmsnorm_forward, rmsnorm_backward},
	{"rope", {96}, 96, rope_forward, rope_backward},
	{"attention", {200, 100, 100}, 200, attention_forward, attention_backward},
	{"gelu_tanh", {67}, 67, gelu_tanh_forward, gelu_tanh_backward},
	{"gelu_erf", {67}, 67, gelu_erf_forward, gelu_erf_backward},
	{"swiglu", {67, 67}, 67, swiglu_forward, swiglu_backward},
	{"embedding", {30, 36}, 48, embedding_forward, embedding_backward},
	{"cross_entropy", {66}, 6, loss_forward, loss_backward},
	{NULL},
};

/* What each leaves out is small; the test must see it all the same. */
static void forgets_accumulation(struct gradient_problem *p)
{
	attention_backward(p);
	p->gradient[1][7] *= 0.99f;
}

static void forgets_a_row(struct gradient_problem *p)
{
	p->kernels->bias_backward(
		p->context, DTYPE_FP32, p->gradient[0], DTYPE_FP32, p->doutput, 5, 19, false);
}

static void forgets_to_turn_back(struct gradient_problem *p)
{
	memcpy(p->gradient[0], p->doutput, sizeof(p->doutput));
	rope_by(p, p->gradient[0], false);
}

const struct gradient_case wrong_gradient_cases[] = {
	{"the other gelu", {67}, 67, gelu_tanh_forward, gelu_erf_backward},
	{"the mean's term", {76, 19}, 76, layernorm_forward, rmsnorm_backward},
	{"a row", {19}, 114, bias_forward, forgets_a_row},
	{"the inverse", {96}, 96, rope_forward, forgets_to_turn_back},
	{"one element by 1 %", {200, 100, 100}, 200, attention_forward, forgets_accumulation},
	{NULL},
};
