/* Values that are known otherwise: accuracy of the vector functions over their whole range, special
 * inputs, ignored targets, unknown tokens, trees written out by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/problem.h"

static struct kernel_context context;
static const struct kernels *kernels;

/* The distance in units of the last place of `exact` as fp32. */
static double ulps(float x, double exact)
{
	float near = fabsf((float)exact);
	double unit = (double)(nextafterf(near, INFINITY) - near);

	return fabs((double)x - exact) / unit;
}

/* swiglu(g, 1) = g / (1 + exp(-g)): exp in disguise. */
static void test_swiglu_accuracy(void **state)
{
	double worst = 0.0;

	(void)state;
	for (int i = -80 * 512; i <= 80 * 512; i++) {
		float g = (float)i / 512.0f, one = 1.0f, y;
		double exact = (double)g / (1.0 + exp(-(double)g));

		kernels->swiglu(&context, DTYPE_FP32, &y, &g, &one, 1);
		worst = fmax(worst, ulps(y, exact));
	}
	print_message("swiglu: %.2f ulp\n", worst);
	assert_true(worst > 0.4 && worst < 4.0);
}

/* In units of the last place, over what the rounding of exp's argument u costs: exp(u) turns a
 * relative error of u into u times as much. The erf form splits its argument and has no such cost.
 */
static double gelu_error(enum gelu kind, double low, double high)
{
	double worst = 0.0;

	for (int i = 0; i <= 100000; i++) {
		float x = (float)(low + (high - low) * i / 100000.0), y;
		double u = 1.5957691216057307 * (x + 0.044715 * (double)x * x * x);
		double exact = kind == GELU_ERF ? 0.5 * x * erfc(-x * 0.70710678118654752)
						: x / (1.0 + exp(-u));

		kernels->gelu(&context, DTYPE_FP32, kind, &y, &x, 1);
		worst = fmax(worst, ulps(y, exact) / (kind == GELU_ERF ? 1.0 : 1.0 + fabs(u)));
	}
	return worst;
}

static void test_gelu_accuracy(void **state)
{
	double erf_error = gelu_error(GELU_ERF, -12, 6), tanh_error = gelu_error(GELU_TANH, -8, 6);

	(void)state;
	print_message("gelu: erf %.2f ulp, tanh %.2f (1 + |u|) ulp\n", erf_error, tanh_error);
	assert_true(erf_error > 0.4 && erf_error < 8.0);
	assert_true(tanh_error > 0.4 && tanh_error < 3.0);
}

static void test_activations_of_special_values(void **state)
{
	float x[6] = {0.0f, -0.0f, 1e30f, -1e30f, NAN, INFINITY}, y[6], d[6], one[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		one[i] = 1.0f;
	for (int kind = GELU_TANH; kind <= GELU_ERF; kind++) {
		kernels->gelu(&context, DTYPE_FP32, (enum gelu)kind, y, x, 6);
		kernels->gelu_backward(&context, DTYPE_FP32, (enum gelu)kind, d, one, x, 6);
		assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1e30f && fabsf(y[3]) < 1e-7f);
		assert_true(isnan(y[4]) && y[5] == INFINITY && isnan(d[4]));
		assert_true(d[0] == 0.5f && d[2] == 1.0f && fabsf(d[3]) < 1e-7f && d[5] == 1.0f);
	}
	kernels->swiglu(&context, DTYPE_FP32, y, x, one, 6);
	assert_true(y[0] == 0.0f && y[2] == 1e30f && fabsf(y[3]) < 1e-7f && isnan(y[4]));
}

/* A NaN must reach the loss whichever lane it is in, or a broken run would train on. */
static void test_nan_reaches_the_loss(void **state)
{
	float logits[100], loss;
	int32_t target = 3;

	(void)state;
	for (int at = 0; at < 100; at++) {
		for (int i = 0; i < 100; i++)
			logits[i] = i == at ? NAN : 0.5f;
		kernels->cross_entropy(&context, &(struct cross_entropy){.tokens = 1,
							 .vocabulary = 100,
							 .stride = 100,
							 .logits = logits,
							 .targets = &target,
							 .losses = &loss,
							 .scale = 1.0f});
		assert_true(isnan(loss));
	}
}

static void test_loss_of_equal_logits(void **state)
{
	float logits[3 * 8], losses[3];
	int32_t targets[3] = {0, -100, 7};

	(void)state;
	for (int i = 0; i < 24; i++)
		logits[i] = 30.0f;
	kernels->cross_entropy(&context, &(struct cross_entropy){.tokens = 3,
						 .vocabulary = 8,
						 .stride = 8,
						 .logits = logits,
						 .targets = targets,
						 .losses = losses,
						 .scale = 0.5f});
	assert_true(fabs(losses[0] - log(8.0)) < 1e-6 && losses[1] == 0.0f);
	assert_true(losses[2] == losses[0]);
	assert_true(logits[0] == -0.4375f && logits[1] == 0.0625f && logits[23] == -0.4375f);
	for (int i = 8; i < 16; i++)
		assert_true(logits[i] == 0.0f);
}

static void test_unknown_token(void **state)
{
	float table[4] = {1, 2, 3, 4}, out[4] = {9, 9, 9, 9};
	int32_t ids[2] = {1, 2};

	(void)state;
	kernels->embedding(&context, &(struct embedding){.tokens = 2,
					     .width = 2,
					     .length = 2,
					     .vocabulary = 2,
					     .ids = ids,
					     .table = table,
					     .out = out});
	assert_true(out[0] == 3.0f && out[1] == 4.0f && out[2] == 0.0f && out[3] == 0.0f);
	assert_string_equal(context.error.message, "token id 2 is outside the vocabulary of 2");
	memset(&context.error, 0, sizeof(context.error));
}

/* The trees of the face's comment, with values for which every other order gives another sum. */
static void test_declared_trees(void **state)
{
	float x[6] = {1.0f, 0x1p-24f, 0x1p-24f, -1.0f, 0x1p-25f, 3.0f}, y;
	const void *sources[6];

	(void)state;
	for (int i = 0; i < 6; i++)
		sources[i] = &x[i];
	kernels->tree_reduce(&context, DTYPE_FP32, &y, sources, 3, 1);
	assert_true(y == (x[0] + x[1]) + x[2]);
	assert_true(y != x[0] + (x[1] + x[2]));
	kernels->tree_reduce(&context, DTYPE_FP32, &y, sources, 4, 1);
	assert_true(y == (x[0] + x[1]) + (x[2] + x[3]));
	assert_true(y != ((x[0] + x[1]) + x[2]) + x[3]);
	kernels->tree_reduce(&context, DTYPE_FP32, &y, sources, 6, 1);
	assert_true(y == ((x[0] + x[1]) + (x[2] + x[3])) + (x[4] + x[5]));
}

/* One step of torch.optim.AdamW from zero moments moves by lr * sign(g), after the decay. */
static void test_first_adamw_step(void **state)
{
	float w[2] = {1.0f, -2.0f}, m[2] = {0}, v[2] = {0}, g[2] = {0.5f, -3.0f};

	(void)state;
	kernels->adamw(&context, &(struct adamw){.n = 2,
					 .w = w,
					 .m = m,
					 .v = v,
					 .g = g,
					 .lr = 0.01,
					 .beta1 = 0.9,
					 .beta2 = 0.95,
					 .epsilon = 1e-8,
					 .weight_decay = 0.1,
					 .bias_correction1 = 1 - 0.9,
					 .bias_correction2 = 1 - 0.95,
					 .gradient_scale = 1.0f});
	assert_true(fabs(w[0] - (0.999 - 0.01)) < 2e-7 && fabs(w[1] - (-1.998 + 0.01)) < 4e-7);
	assert_true(fabs(m[0] - 0.05) < 1e-8 && fabs(v[1] - 0.45) < 1e-7);
}

static int setup(void **state)
{
	(void)state;
	context_init(&context, kernels);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	context_finish(&context, kernels);
	return 0;
}

/* --- parts of tensor ranks --- */

static float number(int i)
{
	return sinf((float)(i * i % 1009)) / 4.0f;
}

static void multiply(float *y, int64_t stride, const float *x, const float *w, int64_t n, int64_t k)
{
	kernels->gemm(&context, &(struct gemm){.m = 7,
					.n = n,
					.k = k,
					.a = x,
					.lda = 40,
					.b = w,
					.ldb = 40,
					.transpose_b = true,
					.c = y,
					.ldc = stride});
}

/* Column-parallel: each result has its K in the same order. Row-parallel: two sums of half as many
 * terms, added. */
static void test_products_in_parts(void **state)
{
	float x[7 * 40], w[48 * 40], whole[7 * 48], parts[7 * 48], more[7 * 48];

	(void)state;
	for (int i = 0; i < 7 * 40; i++)
		x[i] = number(i);
	for (int i = 0; i < 48 * 40; i++)
		w[i] = number(3 * i + 1);
	multiply(whole, 48, x, w, 48, 40);
	for (int n = 1; n < 48; n++) {
		multiply(parts, 48, x, w, n, 40);
		multiply(parts + n, 48, x, w + (ptrdiff_t)n * 40, 48 - n, 40);
		assert_memory_equal(parts, whole, sizeof(whole));
	}
	multiply(parts, 48, x, w, 48, 20);
	multiply(more, 48, x + 20, w + 20, 48, 20);
	for (int i = 0; i < 7 * 48; i++)
		assert_true(fabsf(parts[i] + more[i] - whole[i]) < 1e-6f);
}

enum { WORDS = 67, FIRST_WORDS = 34, ROWS = 6, FIGURES = 3 };

/* Each word's row is one part's: the other adds zeros. */
static void test_embedding_in_parts(void **state)
{
	float table[WORDS * 4], whole[ROWS * 4], parts[2][ROWS * 4];
	const int32_t ids[ROWS] = {0, 33, 34, 66, 5, 50};

	(void)state;
	for (int i = 0; i < WORDS * 4; i++)
		table[i] = number(i);
	struct embedding of = {.tokens = ROWS,
		.width = 4,
		.length = ROWS,
		.vocabulary = WORDS,
		.ids = ids,
		.table = table,
		.out = whole};
	kernels->embedding(&context, &of);
	for (int p = 0; p < 2; p++) {
		int first = p * FIRST_WORDS, n = p == 0 ? FIRST_WORDS : WORDS - FIRST_WORDS;
		int32_t own[ROWS];

		for (int t = 0; t < ROWS; t++)
			own[t] = ids[t] >= first && ids[t] < first + n ? ids[t] - first : -1;
		of.vocabulary = n;
		of.ids = own;
		of.table = table + (ptrdiff_t)first * 4;
		of.out = parts[p];
		of.of_part = true;
		kernels->embedding(&context, &of);
	}
	for (int i = 0; i < ROWS * 4; i++)
		assert_true(parts[0][i] + parts[1][i] == whole[i]);
	assert_int_equal(context.error.message[0], 0);
}

static struct cross_entropy loss_of(float *logits, const int32_t *targets, float *losses)
{
	return (struct cross_entropy){.tokens = ROWS,
		.vocabulary = WORDS,
		.stride = WORDS,
		.logits = logits,
		.targets = targets,
		.losses = losses,
		.scale = 0.25f};
}

static void test_loss_in_parts(void **state)
{
	static const int firsts[] = {0, FIRST_WORDS, WORDS, WORDS}; /* the last part is empty */
	float logits[ROWS * WORDS], whole[ROWS * WORDS], losses[ROWS], joined[ROWS];
	float parts[3 * ROWS * FIGURES];
	const int32_t targets[ROWS] = {0, 33, 34, 66, 5, 50};

	(void)state;
	for (int i = 0; i < ROWS * WORDS; i++)
		logits[i] = whole[i] = 40.0f * number(i);
	struct cross_entropy loss = loss_of(whole, targets, losses);
	kernels->cross_entropy(&context, &loss);
	for (int pass = 0; pass < 2; pass++)
		for (int p = 0; p < 3; p++) {
			int32_t own[ROWS];

			loss = loss_of(logits + firsts[p], own, joined);
			loss.vocabulary = firsts[p + 1] - firsts[p];
			for (int t = 0; t < ROWS; t++)
				own[t] = targets[t] >= firsts[p] && targets[t] < firsts[p + 1]
						 ? targets[t] - firsts[p]
						 : -1;
			loss.part = pass == 0 ? parts + (ptrdiff_t)p * ROWS * FIGURES : NULL;
			loss.parts = pass == 1 ? parts : NULL;
			loss.n_parts = 3;
			kernels->cross_entropy(&context, &loss);
		}
	for (int t = 0; t < ROWS; t++)
		assert_true(fabsf(joined[t] - losses[t]) <= 1e-6f * fabsf(losses[t]));
	for (int i = 0; i < ROWS * WORDS; i++)
		assert_true(fabsf(logits[i] - whole[i]) < 1e-7f);
}

/* Queries of the second half of a sequence: to their own keys, then to those before, in a round
 * each. What both rounds have found is what all keys are. */
enum { HALF = 130, HEADS = 2, DEPTH = 20, WIDE = HEADS * DEPTH };

/* The values are fp32, or bf16 in the front halves. */
struct halves {
	float q[2 * HALF * WIDE], k[2 * HALF * DEPTH], v[2 * HALF * DEPTH], dout[2 * HALF * WIDE];
	float out[2 * HALF * WIDE], lse[2 * HALF * HEADS], running[HALF * WIDE];
	float dq[2 * HALF * WIDE], dk[2 * HALF * DEPTH], dv[2 * HALF * DEPTH];
};

static struct attention_backward attention_of(struct halves *h, enum dtype dtype)
{
	return (struct attention_backward){.forward = {.sequences = 1,
						   .length = 2 * HALF,
						   .heads = HEADS,
						   .kv_heads = 1,
						   .head_dim = DEPTH,
						   .scale = 0.3f,
						   .q = h->q,
						   .k = h->k,
						   .v = h->v,
						   .out = h->out,
						   .q_stride = WIDE,
						   .k_stride = DEPTH,
						   .v_stride = DEPTH,
						   .out_stride = WIDE,
						   .lse = h->lse,
						   .dtype = dtype},
		.dout = h->dout,
		.dq = h->dq,
		.dk = h->dk,
		.dv = h->dv,
		.dout_stride = WIDE,
		.dq_stride = WIDE,
		.dk_stride = DEPTH,
		.dv_stride = DEPTH};
}

/* Round 0 is of the second half of the keys, round 1 of the first. */
static struct attention_backward round_of(struct halves *h, enum dtype dtype, int round)
{
	struct attention_backward b = attention_of(h, dtype);
	int64_t keys = round == 0 ? HALF * DEPTH : 0, queries = HALF * WIDE;

	b.forward.length = b.forward.keys = HALF;
	b.forward.first = round == 0 ? 0 : HALF;
	b.forward.in_rounds = true;
	b.forward.begins = round == 0;
	b.forward.ends = round == 1;
	b.forward.running = h->running;
	b.forward.q = element_at(dtype, h->q, queries);
	b.forward.k = element_at(dtype, h->k, keys);
	b.forward.v = element_at(dtype, h->v, keys);
	b.forward.out = element_at(dtype, h->out, queries);
	b.forward.lse = h->lse + (ptrdiff_t)HALF * HEADS;
	b.dout = element_at(dtype, h->dout, queries);
	b.dq = element_at(dtype, h->dq, queries);
	b.dk = element_at(dtype, h->dk, keys);
	b.dv = element_at(dtype, h->dv, keys);
	return b;
}

static void expect_near(enum dtype dtype, const void *a, const void *b, int64_t first, int64_t end)
{
	float most = dtype == DTYPE_BF16 ? 0.02f : 2e-6f;

	for (int64_t i = first; i < end; i++) {
		float x = element_get(dtype, a, i), y = element_get(dtype, b, i);

		assert_true(fabsf(x - y) <= most * fmaxf(1.0f, fabsf(y)));
	}
}

static void fill(struct halves *h, enum dtype dtype)
{
	for (int i = 0; i < 2 * HALF * WIDE; i++) {
		bool second = i >= HALF * WIDE;

		element_put(dtype, h->q, i, 8.0f * number(3 * i % 1009));
		element_put(dtype, h->dout, i, second ? 4.0f * number(5 * i % 1009) : 0.0f);
		if (i >= 2 * HALF * DEPTH)
			continue;
		element_put(dtype, h->k, i, 8.0f * number(7 * i % 1009));
		element_put(dtype, h->v, i, 4.0f * number(11 * i % 1009));
	}
}

static void expect_rounds(enum dtype dtype)
{
	static struct halves whole, parts;
	struct attention_backward b = attention_of(&whole, dtype);

	fill(&whole, dtype);
	parts = whole;
	kernels->attention(&context, &b.forward);
	kernels->attention_backward(&context, &b);
	for (int pass = 0; pass < 2; pass++)
		for (int round = 0; round < 2; round++) {
			b = round_of(&parts, dtype, round);
			if (pass == 0)
				kernels->attention(&context, &b.forward);
			else
				kernels->attention_backward(&context, &b);
		}
	expect_near(dtype, parts.out, whole.out, HALF * WIDE, 2 * HALF * WIDE);
	expect_near(DTYPE_FP32, parts.lse, whole.lse, HALF * HEADS, 2 * HALF * HEADS);
	expect_near(dtype, parts.dq, whole.dq, HALF * WIDE, 2 * HALF * WIDE);
	expect_near(dtype, parts.dk, whole.dk, 0, 2 * HALF * DEPTH);
	expect_near(dtype, parts.dv, whole.dv, 0, 2 * HALF * DEPTH);
}

static void test_attention_in_rounds(void **state)
{
	(void)state;
	expect_rounds(DTYPE_FP32);
	expect_rounds(DTYPE_BF16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_swiglu_accuracy),
		cmocka_unit_test(test_gelu_accuracy),
		cmocka_unit_test(test_activations_of_special_values),
		cmocka_unit_test(test_nan_reaches_the_loss),
		cmocka_unit_test(test_loss_of_equal_logits),
		cmocka_unit_test(test_unknown_token),
		cmocka_unit_test(test_declared_trees),
		cmocka_unit_test(test_first_adamw_step),
		cmocka_unit_test(test_products_in_parts),
		cmocka_unit_test(test_embedding_in_parts),
		cmocka_unit_test(test_loss_in_parts),
		cmocka_unit_test(test_attention_in_rounds),
	};

	kernels = kernels_cpu();
	return cmocka_run_group_tests(tests, setup, teardown);
}
