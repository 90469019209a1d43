/* Attention by cuDNN where that was chosen: that the graph computes attention, heads and rows as
 * ours; which calls take it; and that whatever is missing leaves them to our kernel. The cuDNN is
 * fake_cudnn.c, which carries the graph out; the GPU is this CPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/common/bf16.h"
#include "kernels/cuda/backend.h"
#include "tests/kernels/cuda_on_cpu/api.h"
#include "tests/kernels/fake_cudnn.h"
#include "tests/kernels/problem.h"
#include "tests/kernels/reference/reference.h"

enum { SEQUENCES = 2, LENGTH = 21, HEADS = 6, KV_HEADS = 2, DIM = 16, ALGORITHMS = 8 };
enum { ROWS = SEQUENCES * LENGTH, ROW = (HEADS + 2 * KV_HEADS) * DIM, WIDTH = HEADS * DIM };

static struct kernel_context context, plain;
static _Alignas(16) uint16_t rows[ROWS * ROW + 8], out[ROWS * WIDTH], expected[ROWS * WIDTH];
static float lse[ROWS * HEADS], expected_lse[ROWS * HEADS];
static _Alignas(16) uint16_t long_rows[2000 * 16], long_out[2][2000 * 16];
static float long_lse[2000 * 2];
static char stream;

/* Rows of queries, keys and values side by side. */
static struct attention packed(void)
{
	return (struct attention){.sequences = SEQUENCES,
		.length = LENGTH,
		.heads = HEADS,
		.kv_heads = KV_HEADS,
		.head_dim = DIM,
		.scale = 0.25f,
		.dtype = DTYPE_BF16,
		.q = rows,
		.k = rows + HEADS * DIM,
		.v = rows + (HEADS + KV_HEADS) * DIM,
		.out = out,
		.q_stride = ROW,
		.k_stride = ROW,
		.v_stride = ROW,
		.out_stride = WIDTH,
		.lse = lse};
}

static struct attention_choice fit(void)
{
	return (struct attention_choice){.head_dim = DIM,
		.length = LENGTH,
		.algorithm = {.engine = FAKE_FIT, .kernel = 7, .tile_m = 3}};
}

/* Whether cuDNN did it; if not, our kernel was launched. */
static bool by_cudnn(const struct attention *a)
{
	int64_t executions = fake_cudnn.executions, launches = cuda_calls.launches;

	cuda_attention(&context, a);
	assert_string_equal(context.error.message, "");
	assert_true((fake_cudnn.executions > executions) != (cuda_calls.launches > launches));
	return fake_cudnn.executions > executions;
}

static void nothing_is_opened_unasked(void **state)
{
	const struct attention a = packed();

	(void)state;
	assert_false(by_cudnn(&a));
	cuda_choose_attention(&context, NULL, 0);
	assert_int_equal(fake_cudnn.finds, 0);
	assert_int_equal(fake_cudnn.handles, 0);
}

static void ways_are_numbers(void **state)
{
	const struct attention a = packed();
	const struct attention_choice first = fit();
	struct attention_algorithm algorithms[ALGORITHMS];

	(void)state;
	assert_int_equal(cuda_attention_version(&context), 91900);
	assert_int_equal(cuda_attention_algorithms(&context, &a, algorithms, ALGORITHMS), 2);
	assert_memory_equal(&algorithms[0], &first.algorithm, sizeof(algorithms[0]));
	assert_int_equal(algorithms[1].engine, FAKE_SECOND);
	assert_int_equal(algorithms[1].kernel, 0);
	assert_int_equal(algorithms[1].cluster, 4);
	assert_int_equal(algorithms[1].tile_n, 2);
	assert_int_equal(cuda_attention_algorithms(&context, &a, algorithms, 1), 1);
	/* All that was made for it is gone. */
	assert_int_equal(fake_cudnn.made, fake_cudnn.destroyed);
}

/* As the reference has it, result and log-sum-exp: heads that share keys, and where each begins. */
static void the_graph_is_attention(void **state)
{
	struct attention a = packed();
	struct attention_choice choice = fit();

	(void)state;
	a.out = expected;
	a.lse = expected_lse;
	kernels_reference()->attention(&plain, &a);
	memset(out, 0xff, sizeof(out));
	memset(lse, 0xff, sizeof(lse));
	a = packed();
	cuda_choose_attention(&context, &choice, 1);
	assert_false(choice.taken);
	assert_true(by_cudnn(&a));
	assert_true(choice.taken);
	assert_int_equal(fake_cudnn.engine, FAKE_FIT);
	assert_ptr_equal(fake_cudnn.stream, &stream);
	for (int i = 0; i < ROWS * WIDTH; i++) {
		float x = bf16_to_float(expected[i]);

		assert_true(fabsf(bf16_to_float(out[i]) - x) <= 0.01f + fabsf(x) / 128);
	}
	for (int i = 0; i < ROWS * HEADS; i++)
		assert_true(fabsf(lse[i] - expected_lse[i]) < 1e-4f);
	cuda_choose_attention(&context, NULL, 0);
}

/* Once for a shape, also where it was refused; other strides are another shape. */
static void plans_are_kept(void **state)
{
	struct attention a = packed();
	struct attention_choice choice = fit();

	(void)state;
	cuda_choose_attention(&context, &choice, 1);
	assert_true(by_cudnn(&a));
	int64_t plans = fake_cudnn.plans;
	cuda_choose_attention(&context, NULL, 0);
	assert_false(by_cudnn(&a));
	cuda_choose_attention(&context, &choice, 1);
	assert_true(by_cudnn(&a));
	assert_int_equal(fake_cudnn.plans, plans);
	a.sequences = 1;
	assert_true(by_cudnn(&a));
	assert_int_equal(fake_cudnn.plans, plans + 1);
	a.sequences = SEQUENCES;
	assert_true(by_cudnn(&a));
	assert_int_equal(fake_cudnn.plans, plans + 1);
	a.sequences = 1;
	choice.algorithm.engine = FAKE_HUNGRY;
	choice.algorithm.tile_m = 0;
	choice.taken = false;
	assert_false(by_cudnn(&a));
	plans = fake_cudnn.plans;
	assert_false(by_cudnn(&a));
	assert_int_equal(fake_cudnn.plans, plans);
	assert_false(choice.taken);
	cuda_choose_attention(&context, NULL, 0);
}

static void others_are_ours(void **state)
{
	struct attention_choice choice = fit();
	struct attention a = packed(), other = a;
	static float wide[ROWS * ROW];

	(void)state;
	cuda_choose_attention(&context, &choice, 1);
	other.length = LENGTH - 1;
	assert_false(by_cudnn(&other));
	other = a;
	other.head_dim = 8;
	assert_false(by_cudnn(&other));
	other = a;
	other.q = rows + 1;
	assert_false(by_cudnn(&other));
	other = a;
	other.dtype = DTYPE_FP32;
	other.q = other.k = other.v = wide;
	other.out = wide;
	assert_false(by_cudnn(&other));
	assert_false(choice.taken);
	/* What cuDNN no longer proposes, or proposes otherwise. */
	choice.algorithm.engine = 99;
	assert_false(by_cudnn(&a));
	choice = fit();
	choice.algorithm.kernel = 8;
	assert_false(by_cudnn(&a));
	assert_false(choice.taken);
	cuda_choose_attention(&context, NULL, 0);
}

static void what_is_missing_is_ours(void **state)
{
	const struct attention a = packed();
	static const size_t unfit[] = {90800, 91002, 100000};
	struct attention_choice choice = fit();
	struct attention_algorithm algorithm;

	(void)state;
	cuda_close_attention(cuda_backend(&context));
	for (size_t i = 0; i < sizeof(unfit) / sizeof(unfit[0]); i++) {
		fake_cudnn.version = unfit[i];
		assert_int_equal(cuda_attention_algorithms(&context, &a, &algorithm, 1), 0);
		cuda_choose_attention(&context, &choice, 1);
		assert_false(by_cudnn(&a));
	}
	fake_cudnn.version = 91900;
	fake_cudnn.no_handle = true;
	assert_int_equal(cuda_attention_algorithms(&context, &a, &algorithm, 1), 0);
	cuda_choose_attention(&context, &choice, 1);
	assert_false(by_cudnn(&a));
	fake_cudnn.no_handle = false;
	fake_cudnn.missing = true;
	assert_int_equal(cuda_attention_version(&context), 0);
	assert_int_equal(cuda_attention_algorithms(&context, &a, &algorithm, 1), 0);
	cuda_choose_attention(&context, &choice, 1);
	assert_false(by_cudnn(&a));
	fake_cudnn.missing = false;
	assert_int_equal(fake_cudnn.handles, 0);
	cuda_choose_attention(&context, &choice, 1);
	assert_true(by_cudnn(&a));
	cuda_choose_attention(&context, NULL, 0);
}

static void a_failure_is_told(void **state)
{
	const struct attention a = packed();
	struct attention_choice choice = fit();

	(void)state;
	cuda_choose_attention(&context, &choice, 1);
	fake_cudnn.fails = true;
	cuda_attention(&context, &a);
	fake_cudnn.fails = false;
	assert_int_equal(context.error.code, EXIT_CODE_FAULT);
	assert_string_equal(
		context.error.message, "cuda: cudnnBackendExecute gave cudnnStatus 5000");
	context.error = (struct error){0};
	cuda_choose_attention(&context, NULL, 0);
}

/* Beside communication no block counts on a multiprocessor: each has one work tile, and the bits
 * are those of blocks that stay. */
static void blocks_count_on_nothing(void **state)
{
	enum { TILES = (2000 + 127) / 128 };
	const struct attention long_heads = {.sequences = 1,
		.length = 2000,
		.heads = 2,
		.kv_heads = 1,
		.head_dim = 8,
		.scale = 0.25f,
		.dtype = DTYPE_BF16,
		.q = long_rows,
		.k = long_rows,
		.v = long_rows,
		.out = long_out[0],
		.q_stride = 16,
		.k_stride = 16,
		.v_stride = 16,
		.out_stride = 16,
		.lse = long_lse};
	struct attention beside = long_heads;

	(void)state;
	cuda_attention(&context, &long_heads);
	assert_int_equal(cuda_calls.blocks, 3); /* multiprocessors */
	beside.out = long_out[1];
	context.beside = KERNELS_SOME;
	cuda_attention(&context, &beside);
	context.beside = 0;
	assert_int_equal(cuda_calls.blocks, TILES * 2);
	assert_string_equal(context.error.message, "");
	assert_memory_equal(long_out[0], long_out[1], sizeof(long_out[0]));
}

static int setup(void **state)
{
	uint32_t random = 7;

	(void)state;
	for (int i = 0; i < ROWS * ROW + 8; i++) {
		random = random * 1664525u + 1013904223u;
		rows[i] = bf16_from_float((float)(random >> 8) * 0x1p-22f - 2.0f);
	}
	for (int i = 0; i < 2000 * 16; i++)
		long_rows[i] = rows[i * 7 % (ROWS * ROW)];
	fake_cudnn.version = 91900;
	cuda_api_use(&cuda_on_cpu);
	context_init(&context, kernels_cuda());
	context.stream = &stream;
	context_init(&plain, kernels_reference());
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	context_finish(&context, kernels_cuda());
	context_finish(&plain, kernels_reference());
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_opened_unasked),
		cmocka_unit_test(ways_are_numbers),
		cmocka_unit_test(the_graph_is_attention),
		cmocka_unit_test(plans_are_kept),
		cmocka_unit_test(others_are_ours),
		cmocka_unit_test(what_is_missing_is_ours),
		cmocka_unit_test(a_failure_is_told),
		cmocka_unit_test(blocks_count_on_nothing),
	};

	int failed = cmocka_run_group_tests(tests, setup, teardown);

	/* All that was ever made for cuDNN is gone. */
	return failed != 0 || fake_cudnn.made != fake_cudnn.destroyed || fake_cudnn.handles != 0;
}
