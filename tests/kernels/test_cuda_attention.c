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
static int64_t bytes[ALGORITHMS];
static _Alignas(16) uint16_t dout[ROWS * WIDTH], gradients[2][ROWS * ROW];

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

/* Did cuDNN do it? If not, our kernel was launched. */
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

static int ways(enum attention_pass pass, const struct attention *a,
	struct attention_algorithm *algorithms, int most)
{
	const struct attention_backward b = {.forward = *a};

	return cuda_attention_algorithms(&context, pass, &b, algorithms, bytes, most);
}

static void ways_are_numbers(void **state)
{
	const struct attention a = packed();
	const struct attention_choice first = fit();
	struct attention_algorithm algorithms[ALGORITHMS];

	(void)state;
	assert_int_equal(cuda_attention_version(&context), 91900);
	assert_int_equal(ways(ATTENTION_FORWARD, &a, algorithms, ALGORITHMS), 2);
	assert_memory_equal(&algorithms[0], &first.algorithm, sizeof(algorithms[0]));
	assert_int_equal(algorithms[1].engine, FAKE_SECOND);
	assert_int_equal(algorithms[1].kernel, 0);
	assert_int_equal(algorithms[1].cluster, 4);
	assert_int_equal(algorithms[1].tile_n, 2);
	assert_int_equal(ways(ATTENTION_FORWARD, &a, algorithms, 1), 1);
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
		assert_int_equal(ways(ATTENTION_FORWARD, &a, &algorithm, 1), 0);
		cuda_choose_attention(&context, &choice, 1);
		assert_false(by_cudnn(&a));
	}
	fake_cudnn.version = 91900;
	fake_cudnn.no_handle = true;
	assert_int_equal(ways(ATTENTION_FORWARD, &a, &algorithm, 1), 0);
	cuda_choose_attention(&context, &choice, 1);
	assert_false(by_cudnn(&a));
	fake_cudnn.no_handle = false;
	fake_cudnn.missing = true;
	assert_int_equal(cuda_attention_version(&context), 0);
	assert_int_equal(ways(ATTENTION_FORWARD, &a, &algorithm, 1), 0);
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

/* --- backward --- */

/* Gradients of queries, keys and values side by side, as these are; behind the reference's forward.
 */
static struct attention_backward backward(uint16_t *to)
{
	struct attention_backward b = {.forward = packed(),
		.dout = dout,
		.dq = to,
		.dk = to + HEADS * DIM,
		.dv = to + (HEADS + KV_HEADS) * DIM,
		.dout_stride = WIDTH,
		.dq_stride = ROW,
		.dk_stride = ROW,
		.dv_stride = ROW};

	b.forward.out = expected;
	b.forward.lse = expected_lse;
	return b;
}

static struct attention_choice fit_backward(void)
{
	struct attention_choice choice = fit();

	choice.pass = ATTENTION_BACKWARD;
	choice.head_bytes = choice.shared_bytes = FAKE_HEAD_BYTES + 256;
	return choice;
}

/* How many times cuDNN was called; 0: our kernels were launched. */
static int64_t calls_of(const struct attention_backward *b)
{
	int64_t executions = fake_cudnn.executions, launches = cuda_calls.launches;

	cuda_attention_backward(&context, b);
	assert_string_equal(context.error.message, "");
	assert_true((fake_cudnn.executions > executions) != (cuda_calls.launches > launches));
	return fake_cudnn.executions - executions;
}

static void expect_gradients(const uint16_t *got, const uint16_t *wanted)
{
	for (int i = 0; i < ROWS * ROW; i++) {
		float x = bf16_to_float(wanted[i]);

		assert_true(fabsf(bf16_to_float(got[i]) - x) <= 0.03f + fabsf(x) / 64);
	}
}

static void reference_gradients(void)
{
	struct attention_backward b = backward(gradients[0]);

	kernels_reference()->attention(&plain, &b.forward);
	kernels_reference()->attention_backward(&plain, &b);
	memset(gradients[1], 0xff, sizeof(gradients[1]));
}

/* Heads share keys in one case and do not in the other. The reductions are asked to repeat their
 * bits, and the plan says what it needs. */
static void the_graph_is_its_backward(void **state)
{
	struct attention_choice choice = fit_backward();
	struct attention_backward b = backward(gradients[1]);
	struct attention_algorithm algorithms[ALGORITHMS];

	(void)state;
	reference_gradients();
	int64_t unsettled = fake_cudnn.unsettled, settled = fake_cudnn.settled;
	/* Here it is no matter that one needs much. */
	assert_int_equal(cuda_attention_algorithms(
				 &context, ATTENTION_BACKWARD, &b, algorithms, bytes, ALGORITHMS),
		3);
	assert_memory_equal(&algorithms[0], &choice.algorithm, sizeof(algorithms[0]));
	assert_int_equal(algorithms[1].engine, FAKE_HUNGRY);
	int64_t sums = (ROWS * HEADS * 4 + 255) / 256 * 256;
	assert_int_equal(bytes[0], SEQUENCES * HEADS * FAKE_HEAD_BYTES + sums);
	assert_int_equal(bytes[1], ((int64_t)1 << 40) + sums);
	assert_int_equal(fake_cudnn.settled, settled + 3);
	cuda_choose_attention(&context, &choice, 1);
	assert_int_equal(calls_of(&b), 1);
	assert_true(choice.taken);
	assert_int_equal(fake_cudnn.engine, FAKE_FIT);
	assert_int_equal(fake_cudnn.unsettled, unsettled);
	expect_gradients(gradients[1], gradients[0]);
	/* The forward of that shape was not chosen. */
	const struct attention a = packed();
	assert_false(by_cudnn(&a));
	cuda_choose_attention(&context, NULL, 0);
}

static void its_parts_fit_the_workspace(void **state)
{
	static const struct {
		int64_t heads, calls;
	} fits[] = {{SEQUENCES * HEADS, 1}, {HEADS, SEQUENCES}, {2 * HEADS - 1, SEQUENCES},
		{HEADS / KV_HEADS, SEQUENCES * KV_HEADS}, {HEADS / KV_HEADS - 1, 0}};
	struct attention_choice choice = fit_backward();
	struct attention_backward b = backward(gradients[1]);
	const int64_t whole = context.workspace_bytes;

	(void)state;
	cuda_choose_attention(&context, &choice, 1);
	for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
		reference_gradients();
		context.workspace_bytes = fits[i].heads * choice.shared_bytes;
		if (fits[i].calls > 0) {
			assert_int_equal(calls_of(&b), fits[i].calls);
			expect_gradients(gradients[1], gradients[0]);
		} else {
			context.workspace_bytes = whole;
			choice.shared_bytes = whole / fits[i].heads;
			assert_int_equal(calls_of(&b), 0);
			expect_gradients(gradients[1], gradients[0]);
		}
		context.workspace_bytes = whole;
	}
	/* A plan that needs more than was said is none. */
	choice.algorithm = (struct attention_algorithm){.engine = FAKE_HUNGRY, .kernel = 7};
	choice.shared_bytes = 256;
	assert_int_equal(calls_of(&b), 0);
	cuda_choose_attention(&context, NULL, 0);
}

/* An engine that is not proposed, where there is one. */
static void blackwells_is_asked_for(void **state)
{
	struct attention_choice choice = fit_backward();
	struct attention_backward b = backward(gradients[1]);
	struct attention_algorithm algorithms[ALGORITHMS];

	(void)state;
	fake_cudnn.blackwell = true;
	int n = cuda_attention_algorithms(
		&context, ATTENTION_BACKWARD, &b, algorithms, bytes, ALGORITHMS);
	assert_int_equal(n, 4);
	assert_int_equal(algorithms[0].engine, FAKE_UNPROPOSED);
	assert_int_equal(algorithms[0].kernel, 31);
	assert_int_equal(algorithms[0].stages, 2);
	/* Not of the forward. */
	assert_int_equal(ways(ATTENTION_FORWARD, &b.forward, algorithms + 1, ALGORITHMS - 1), 2);
	reference_gradients();
	choice.algorithm = algorithms[0];
	cuda_choose_attention(&context, &choice, 1);
	assert_int_equal(calls_of(&b), 1);
	assert_int_equal(fake_cudnn.engine, FAKE_UNPROPOSED);
	expect_gradients(gradients[1], gradients[0]);
	fake_cudnn.blackwell = false;
	cuda_choose_attention(&context, NULL, 0);
}

/* An older version, a shape that is refused, another length, gradients that lie on no 16 bytes. */
static void other_backwards_are_ours(void **state)
{
	struct attention_choice choice = fit_backward();
	struct attention_backward b = backward(gradients[1]);
	struct attention_algorithm algorithm;

	(void)state;
	fake_cudnn.version = 91800;
	assert_int_equal(
		cuda_attention_algorithms(&context, ATTENTION_BACKWARD, &b, &algorithm, bytes, 1),
		0);
	b.dk_stride = ROW - 8; /* of which there is no plan yet */
	cuda_choose_attention(&context, &choice, 1);
	assert_int_equal(calls_of(&b), 0);
	fake_cudnn.version = 91900;
	assert_int_equal(calls_of(&b), 1);
	b.forward.length--;
	assert_int_equal(calls_of(&b), 0);
	b.forward.length++;
	b.dq = gradients[1] + 1;
	assert_int_equal(calls_of(&b), 0);
	b.dq = gradients[1];
	b.dv_stride = ROW - 8;
	fake_cudnn.no_backward = true;
	assert_int_equal(
		cuda_attention_algorithms(&context, ATTENTION_BACKWARD, &b, &algorithm, bytes, 1),
		0);
	assert_int_equal(calls_of(&b), 0);
	fake_cudnn.no_backward = false;
	cuda_choose_attention(&context, NULL, 0);
}

static int setup(void **state)
{
	uint32_t random = 7;

	(void)state;
	for (int i = 0; i < ROWS * ROW + 8; i++) {
		random = random * 1664525u + 1013904223u;
		rows[i] = bf16_from_float((float)(random >> 8) * 0x1p-22f - 2.0f);
	}
	for (int i = 0; i < ROWS * WIDTH; i++)
		dout[i] = rows[i * 5 % (ROWS * ROW)];
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
		cmocka_unit_test(the_graph_is_its_backward),
		cmocka_unit_test(its_parts_fit_the_workspace),
		cmocka_unit_test(blackwells_is_asked_for),
		cmocka_unit_test(other_backwards_are_ours),
	};

	int failed = cmocka_run_group_tests(tests, setup, teardown);

	/* All that was ever made for cuDNN is gone. */
	return failed != 0 || fake_cudnn.made != fake_cudnn.destroyed || fake_cudnn.handles != 0;
}
