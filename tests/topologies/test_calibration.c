/* Looking up measured segments, and reading them in any order but each once. */
#include <math.h>

#include "tests/topologies/sample.h"

static void finds_the_piece_that_fits(void **state)
{
	struct topology local = sample_local();
	const struct calibration *calibration = &local.calibration;
	const struct calibration_collective *pieces = calibration->collectives;
	static const struct {
		enum collective_kind collective;
		int64_t ranks, nodes, bytes;
		int piece; /* -1: not measured */
	} cases[] = {
		{COLLECTIVE_ALL_GATHER, 2, 1, 0, 0},
		{COLLECTIVE_ALL_GATHER, 2, 1, 65536, 0},
		{COLLECTIVE_ALL_GATHER, 2, 1, 65537, 1},
		{COLLECTIVE_ALL_GATHER, 2, 1, INT64_MAX, 1},
		{COLLECTIVE_ALL_GATHER, 4, 1, 5, 2}, /* smaller than anything measured */
		{COLLECTIVE_ALL_GATHER, 3, 1, 5, -1},
		{COLLECTIVE_ALL_GATHER, 2, 2, 5, -1},
		{COLLECTIVE_REDUCE_SCATTER, 2, 1, 1, 3},
		{COLLECTIVE_REDUCE_SCATTER, 4, 1, 1, -1},
		{COLLECTIVE_REDUCE_SCATTER, 4, 2, 1, 4},
		{COLLECTIVE_ALL_REDUCE, 4, 1, 1, 5},
		{COLLECTIVE_ALL_REDUCE, 8, 1, 1, -1},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const struct calibration_collective *found = calibration_find(calibration,
			cases[i].collective, cases[i].ranks, cases[i].nodes, cases[i].bytes);

		assert_ptr_equal(found, cases[i].piece < 0 ? NULL : &pieces[cases[i].piece]);
	}
}

static void nothing_measured(void **state)
{
	const struct calibration nothing = {0};
	const struct calibration prior = {.gemm_flops = 1}, table = {.n_products = 1};
	const struct calibration steps = {.n_steps = 1}, kernels = {.n_kernels = 1};

	(void)state;
	assert_null(calibration_find(&nothing, COLLECTIVE_ALL_GATHER, 2, 1, 1));
	assert_true(calibration_is_empty(&nothing));
	assert_false(calibration_is_empty(&prior));
	assert_false(calibration_is_empty(&table));
	assert_false(calibration_is_empty(&steps));
	assert_false(calibration_is_empty(&kernels));
	assert_true(
		calibration_step_factor(&nothing, STEP_MLP_GATED, DTYPE_BF16, STEP_LOSS, 0.5) == 1);
	assert_true(calibration_least_factor(&nothing) == 1);
}

static bool read_text(
	struct arena *arena, const char *text, struct calibration *calibration, struct error *error)
{
	struct node *root = document_parse(arena, "c.yaml", text, strlen(text), 0, error);

	*calibration = (struct calibration){0};
	return root != NULL && calibration_read(arena, root, calibration, error);
}

static void reads_in_any_order(void **state)
{
	static const char text[] =
		"gemm_flops: 1TFLOPS\n"
		"collectives:\n"
		"  - {collective: all_reduce, ranks: 2, nodes: 1, latency: 1us, bandwidth: 1GB/s}\n"
		"  - {collective: all_gather, ranks: 2, nodes: 1, from: 1MiB, latency: 2us, "
		"bandwidth: 2GB/s}\n"
		"  - {collective: all_gather, ranks: 2, nodes: 1, latency: 3us, bandwidth: "
		"3GB/s}\n";
	struct arena arena = {0};
	struct calibration calibration;
	struct error error = {0};

	(void)state;
	assert_true(read_text(&arena, text, &calibration, &error));
	assert_int_equal(calibration.n_collectives, 3);
	assert_true(calibration.collectives[0].latency == 3e-6);
	assert_true(calibration.collectives[1].latency == 2e-6);
	assert_int_equal(calibration.collectives[1].from_bytes, 1 << 20);
	assert_int_equal(calibration.collectives[2].collective, COLLECTIVE_ALL_REDUCE);
	arena_finish(&arena);
}

static void refuses(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"collectives:\n"
		 "  - {collective: all_gather, ranks: 2, nodes: 1, latency: 1us, bandwidth: "
		 "1GB/s}\n"
		 "  - {collective: all_gather, ranks: 2, nodes: 1, latency: 2us, bandwidth: "
		 "1GB/s}\n",
			"c.yaml:3:5: expected each (collective, ranks, nodes, from) once, got "
			"all_gather 2 1 0B twice"},
		{"collectives: 3\n",
			"c.yaml:1:14: collectives: expected a list of measured segments"},
		{"collectives: [3]\n", "c.yaml:1:15: expected a map with collective, ranks, nodes, "
				       "latency, bandwidth"},
		{"[1]\n", "c.yaml:1:1: expected a calibration (a map)"},
		{"products: 3\n", "c.yaml:1:11: products: expected a list of at most 96 measured "
				  "products"},
		{"products: [3]\n", "c.yaml:1:12: expected a map with dtype, m, n, k, flops"},
		{"products:\n  - {dtype: bf16, m: 1, n: 2, k: 3, flops: 1TFLOPS}\n"
		 "  - {dtype: bf16, m: 1, n: 2, k: 3, flops: 2TFLOPS}\n",
			"c.yaml:3:5: expected each (dtype, m, n, k) once, got bf16 1 2 3 "
			"twice"},
		{"products:\n  - {dtype: bf16, m: 1, n: 2, k: 3, flops: 0}\n",
			"c.yaml:2:44: flops: expected a rate such as 312TFLOPS greater than 0, "
			"got \"0\""},
		{"choices: 3\n", "c.yaml:1:10: choices: expected a list of at most 128 choices"},
		{"choices: [3]\n", "c.yaml:1:11: expected a map with form, dtype, result, m, n, k, "
				   "algorithm"},
		{"choices:\n"
		 "  - {form: forward, dtype: bf16, result: bf16, m: 1, n: 2, k: 3, algorithm: 4}\n"
		 "  - {form: forward, dtype: bf16, result: bf16, m: 1, n: 2, k: 3, algorithm: 5}\n",
			"c.yaml:3:5: expected each (form, dtype, result, m, n, k) once, got "
			"forward bf16 bf16 1 2 3 twice"},
		{"attention: 3\n",
			"c.yaml:1:12: attention: expected a list of at most 32 ways of attention"},
		{"attention: [3]\n", "c.yaml:1:13: expected a map with head_dim, length, engine"},
		{"attention:\n  - {head_dim: 64, length: 1024, engine: 1}\n"
		 "  - {head_dim: 64, length: 1024, engine: 2}\n",
			"c.yaml:3:5: expected each (head_dim, length, pass) once, got 64 1024 "
			"forward twice"},
		{"attention:\n  - {head_dim: 64, length: 0, engine: 1}\n",
			"c.yaml:2:28: length: expected a whole number greater than 0, got \"0\""},
		{"kernels: 3\n", "c.yaml:1:10: kernels: expected a list of at most 96 measured "
				 "kernels"},
		{"kernels: [3]\n", "c.yaml:1:11: expected a map with kernel, dtype, rate"},
		{"kernels:\n  - {kernel: gelu, dtype: bf16, rate: 1}\n"
		 "  - {kernel: gelu, dtype: bf16, rate: 2}\n",
			"c.yaml:3:5: expected each (kernel, dtype, width, length) once, got gelu "
			"bf16 0 0 twice"},
		{"steps: 3\n", "c.yaml:1:8: steps: expected a list of at most 8 steps"},
		{"steps: [3]\n", "c.yaml:1:9: expected a map with mlp, dtype, threads"},
		{"steps:\n  - {mlp: gated, dtype: bf16, threads: all, loss: 2}\n"
		 "  - {mlp: gated, dtype: bf16, threads: all}\n",
			"c.yaml:3:5: expected each (mlp, dtype, threads) once, got gated bf16 all "
			"twice"},
		{"steps:\n  - {mlp: gated, dtype: bf16, threads: all, loss: 0}\n",
			"c.yaml:2:51: loss: expected a number greater than 0, got \"0\""},
		{"steps:\n  - {mlp: gated, dtype: bf16, threads: two}\n",
			"c.yaml:2:40: threads: expected one of one, all, got \"two\""},
		{"steps:\n  - {mlp: gated, dtype: bf16, threads: one, optimiser: 1}\n",
			"c.yaml:2:45: optimiser: unknown key, did you mean \"optimizer\"?"},
		{"gemm_flop: 1TFLOPS\n",
			"c.yaml:1:1: gemm_flop: unknown key, did you mean \"gemm_flops\"?"},
		{"collectives:\n  - {collective: scatter, ranks: 2, nodes: 1}\n",
			"c.yaml:2:18: collective: expected one of all_gather, reduce_scatter, "
			"all_reduce, all_to_all, send_recv, got \"scatter\""},
		{"collectives:\n  - {collective: all_gather, ranks: 0, nodes: 1}\n",
			"c.yaml:2:37: ranks: expected a whole number greater than 0, got \"0\""},
		{"collectives:\n  - {collective: all_gather, ranks: 2, nodes: 1, latency: 1us, "
		 "bandwidth: 0}\n",
			"c.yaml:2:75: bandwidth: expected a bandwidth such as 200Gbit/s or 25GB/s "
			"greater than 0, got \"0\""},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct calibration calibration;
		struct error error = {0};

		assert_false(read_text(&arena, cases[i].text, &calibration, &error));
		assert_string_equal(error.message, cases[i].message);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
	}
	arena_finish(&arena);
}

static void steps_between_one_thread_and_all(void **state)
{
	static const char text[] =
		"steps:\n"
		"  - {mlp: gated, dtype: bf16, threads: one, loss: 1.5}\n"
		"  - {mlp: plain, dtype: fp32, threads: all, forward: 4, backward: 0.5}\n"
		"  - {mlp: plain, dtype: fp32, threads: one, forward: 1}\n";
	static const struct {
		enum step_mlp mlp;
		enum dtype dtype;
		enum step_work work;
		double all, factor;
	} cases[] = {
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_FORWARD, 0, 1},
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_FORWARD, 0.5, 2},
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_FORWARD, 1, 4},
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_BACKWARD, 0, 0.5}, /* the only one there is */
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_LOSS, 0, 1},
		{STEP_MLP_PLAIN, DTYPE_BF16, STEP_FORWARD, 1, 1},
		{STEP_MLP_GATED, DTYPE_FP32, STEP_FORWARD, 1, 1},
		{STEP_MLP_GATED, DTYPE_BF16, STEP_LOSS, 1, 1.5},
	};
	struct arena arena = {0};
	struct calibration calibration;
	struct error error = {0};

	(void)state;
	if (!read_text(&arena, text, &calibration, &error))
		fail_msg("%s", error.message);
	assert_int_equal(calibration.n_steps, 3);
	assert_int_equal(calibration.steps[0].threads, STEP_THREADS_ONE);
	assert_int_equal(calibration.steps[2].mlp, STEP_MLP_GATED);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		double factor = calibration_step_factor(
			&calibration, cases[i].mlp, cases[i].dtype, cases[i].work, cases[i].all);

		if (fabs(factor / cases[i].factor - 1) > 1e-12)
			fail_msg("case %d: %g, expected %g", i, factor, cases[i].factor);
	}
	assert_true(calibration_least_factor(&calibration) == 0.5);
	arena_finish(&arena);
}

/* Of what nobody measured there is none; what one measurement lacks the others have. */
static void the_middle_of_measurements(void **state)
{
	struct calibration_step steps[3] = {{.mlp = STEP_MLP_GATED}};

	(void)state;
	steps[0].factors[STEP_FORWARD] = 1.5;
	steps[1].factors[STEP_FORWARD] = 0.9;
	steps[2].factors[STEP_FORWARD] = 1.1;
	steps[1].factors[STEP_LOSS] = 1.25;
	steps[2].factors[STEP_LOSS] = 1.75;
	struct calibration_step middle = calibration_step_middle(steps, 3);
	assert_int_equal(middle.mlp, STEP_MLP_GATED);
	assert_true(middle.factors[STEP_FORWARD] == 1.1);
	assert_true(middle.factors[STEP_LOSS] == 1.5);
	assert_true(middle.factors[STEP_BACKWARD] == 0);
	assert_true(calibration_step_middle(steps, 1).factors[STEP_LOSS] == 0);
}

/* Ten figures in five visits, of which the first found the machine alone and the last did not. */
static void levels_say_the_best_and_the_spread(void **state)
{
	static const double visits[] = {0.8, 0.95, 1, 1.05, 1.2};
	struct calibration calibration = {0};
	double levels[50], quiet[50];

	(void)state;
	for (int i = 0; i < 50; i++) {
		levels[i] = visits[i % 5];
		quiet[i] = 1;
	}
	calibration_take_levels(&calibration, levels, 50, 5);
	assert_float_equal(calibration.compute_best, 0.8, 0.02);
	/* Half of 0.82 to 1.18 over 1.28, wider as the middle of five is not sure itself. */
	assert_float_equal(calibration.residual_spread, 0.15 * sqrt(6.57 / 4), 0.02);
	calibration_take_levels(&calibration, quiet, 50, 5);
	assert_true(calibration.compute_best == 1 && calibration.residual_spread == 0.04);
}

static void the_95th_of_steps(void **state)
{
	struct calibration calibration = {0};
	double ratios[101];

	(void)state;
	for (int i = 0; i <= 100; i++)
		ratios[i] = 1.5 - i * 0.01;
	calibration_take_steps(&calibration, ratios, 101);
	assert_float_equal(calibration.step_p95, 1.45, 1e-12);
	calibration_take_steps(&calibration, ratios, 0);
	assert_true(calibration.step_p95 == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_the_piece_that_fits),
		cmocka_unit_test(nothing_measured),
		cmocka_unit_test(reads_in_any_order),
		cmocka_unit_test(refuses),
		cmocka_unit_test(steps_between_one_thread_and_all),
		cmocka_unit_test(the_middle_of_measurements),
		cmocka_unit_test(levels_say_the_best_and_the_spread),
		cmocka_unit_test(the_95th_of_steps),
	};

	return cmocka_run_group_tests_name("topologies/calibration", tests, NULL, NULL);
}
