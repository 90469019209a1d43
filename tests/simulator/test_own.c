/* A GPU whose kernels were measured one by one: the times of our executor's operations on it. */
#include "cases.h"
#include "sketch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

enum { TOKENS = 64 * 1024, HIDDEN = 768, VOCABULARY = 50257 };

static struct calibration_kernel kernels[CALIBRATION_KERNELS];
static struct topology gpu;

static void add(enum calibration_kernel_kind kind, int64_t width, int64_t length, double rate)
{
	const struct calibration_kernel kernel = {kind, DTYPE_BF16, width, length, rate};

	assert_true(calibration_add_kernel(&gpu.calibration, &kernel));
}

/* On one H100, of which these kernels are known and nothing else. */
static void open_case_of(struct case_ *c, const char *model, const char *more)
{
	char choices[240];

	case_load(c, model, "dgx-h100");
	gpu = *c->topology;
	gpu.nodes = gpu.devices_per_node = 1;
	gpu.calibration = (struct calibration){.measured = true, .kernels = kernels};
	c->topology = &gpu;
	snprintf(choices, sizeof(choices),
		"strategy=NO_SHARD param_dtype=bf16 activation_checkpointing=none %s", more);
	case_plan(c, choices);
}

static int64_t workspace_of(const struct case_ *c)
{
	const struct program *program = &c->schedule->programs[0];

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_KERNEL_WORKSPACE)
			return program->buffers[i].bytes;
	return 0;
}

static void open_case_with(struct case_ *c, const char *runtime, const char *more)
{
	char choices[120];

	snprintf(choices, sizeof(choices), "runtime=%s micro_batch=64 seq_len=1024 %s", runtime,
		more);
	open_case_of(c, "gpt2-124m", choices);
}

static void open_case(struct case_ *c, const char *runtime)
{
	open_case_with(c, runtime, "");
}

/* Seconds of the first operation of that kind; of a block, or outside of blocks. */
static double seconds_of(const struct case_ *c, enum op_kind kind, bool block)
{
	static struct cost costs[4096];
	const struct program *program = &c->schedule->programs[0];

	assert_true(program->n_ops < COUNT_OF(costs));
	cost_operations(c->schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind && (program->ops[i].layer >= 0) == block)
			return costs[i].device;
	fail_msg("no such operation");
	return 0;
}

static void expect(const char *what, double got, double expected)
{
	if (!(fabs(got / expected - 1) < 1e-6))
		fail_msg("%s: %g, expected %g", what, got, expected);
}

/* How much longer an operation takes for a kernel that is half as fast. */
static double slower(struct case_ *c, enum op_kind kind, enum calibration_kernel_kind kernel,
	int64_t width, int64_t length, double rate)
{
	double before;

	gpu.calibration.n_kernels = 0;
	add(kernel, width, length, rate);
	before = seconds_of(c, kind, kind != OP_LOSS);
	gpu.calibration.kernels[0].rate = rate / 2;
	return seconds_of(c, kind, kind != OP_LOSS) - before;
}

static void each_kernel_counts(void **state)
{
	const double tokens = TOKENS, elements = tokens * HIDDEN;
	const double attention = 2 * tokens * 1024 * HIDDEN;
	const struct {
		enum op_kind op;
		enum calibration_kernel_kind kernel;
		int64_t width, length;
		double rate, work;
	} rows[] = {
		{OP_FORWARD, KERNEL_ATTENTION, 64, 1024, 2e14, attention},
		{OP_BACKWARD, KERNEL_ATTENTION_BACKWARD, 64, 1024, 1e14, 2.5 * attention},
		{OP_FORWARD, KERNEL_LAYERNORM, HIDDEN, 0, 7e11, 2 * elements},
		{OP_BACKWARD, KERNEL_LAYERNORM_BACKWARD, HIDDEN, 0, 3e11, 2 * elements},
		{OP_FORWARD, KERNEL_GELU, 0, 0, 7e11, 4 * elements},
		{OP_BACKWARD, KERNEL_GELU_BACKWARD, 0, 0, 5e11, 4 * elements},
		{OP_BACKWARD, KERNEL_BIAS_BACKWARD, HIDDEN, 0, 1e12, 9 * elements},
		{OP_LOSS, KERNEL_CROSS_ENTROPY, VOCABULARY, 0, 7e11, tokens * VOCABULARY},
		/* What GPT-2 does not have. */
		{OP_FORWARD, KERNEL_RMSNORM, HIDDEN, 0, 7e11, 0},
		{OP_FORWARD, KERNEL_ROPE, 64, 0, 7e11, 0},
		{OP_FORWARD, KERNEL_SWIGLU, 0, 0, 7e11, 0},
	};
	struct case_ c;

	(void)state;
	open_case(&c, "shardplan");
	for (int i = 0; i < COUNT_OF(rows); i++) {
		double more = slower(&c, rows[i].op, rows[i].kernel, rows[i].width, rows[i].length,
			rows[i].rate);

		if (rows[i].work > 0)
			expect(calibration_kernel_names[rows[i].kernel], more,
				rows[i].work / rows[i].rate);
		else
			assert_true(fabs(more) < 1e-12);
	}
	case_finish(&c);
}

/* Backward by cuDNN, which the measured rate is of: the plan has room for as many heads at once as
 * may be. Where it has none for one, it is our kernel's rate. */
static void backward_by_the_library(void **state)
{
	enum { MIB = 1 << 20 };
	static const char choices[] = "strategy=NO_SHARD micro_batch=%d seq_len=%d param_dtype=%s "
				      "activation_checkpointing=none runtime=%s";
	static const struct {
		int sequences, length;
		const char *dtype, *runtime;
		int64_t head, workspace;
	} rows[] = {{4, 1024, "bf16", "shardplan", 2 * MIB, 96 * MIB},
		{64, 1024, "bf16", "shardplan", 2 * MIB, 1216 * MIB},
		{1, 1024, "bf16", "shardplan", MIB, 16 * MIB},
		{4, 512, "bf16", "shardplan", 2 * MIB, 16 * MIB},
		{4, 1024, "fp32", "shardplan", 2 * MIB, 16 * MIB},
		{4, 1024, "bf16", "pytorch-ddp", 2 * MIB, 32 * MIB},
		{64, 1024, "bf16", "shardplan", 2048LL * MIB, 16 * MIB}};
	struct calibration_attention chosen = {
		.head_dim = 64, .length = 1024, .pass = ATTENTION_IS_BACKWARD, .gain = 1.25};
	const double work = 2.5 * 2 * (double)TOKENS * 1024 * HIDDEN / 1e14;

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct case_ c;
		char text[256];

		open_case(&c, "shardplan");
		chosen.workspace_bytes = rows[i].head;
		gpu.calibration.attention = &chosen;
		gpu.calibration.n_attention = 1;
		snprintf(text, sizeof(text), choices, rows[i].sequences, rows[i].length,
			rows[i].dtype, rows[i].runtime);
		case_plan(&c, text);
		assert_int_equal(workspace_of(&c), rows[i].workspace);
		if (rows[i].sequences == 64)
			expect("backward",
				slower(&c, OP_BACKWARD, KERNEL_ATTENTION_BACKWARD, 64, 1024, 1e14),
				rows[i].head < 1024 * MIB ? work : 1.25 * work);
		case_finish(&c);
	}
}

/* In a product GELU is one pass over memory: of two forward, of three backward. */
static void gelu_in_products(void **state)
{
	const double elements = 4.0 * TOKENS * HIDDEN;
	struct case_ c;

	(void)state;
	open_case_with(&c, "shardplan", "gelu=product");
	expect("forward", slower(&c, OP_FORWARD, KERNEL_GELU, 0, 0, 7e11), elements / 2 / 7e11);
	expect("backward", slower(&c, OP_BACKWARD, KERNEL_GELU_BACKWARD, 0, 0, 5e11),
		elements / 3 / 5e11);
	case_finish(&c);
}

/* The input gradients of q, k and v, and of gate and up: one product where one unit has all of
 * these weights. */
static void one_product_for_one_input(void **state)
{
	const int64_t hidden = 4096, ffn = 11008;
	const struct gemm_shape qkv = {8192, hidden, 3 * hidden, 1},
				third = {8192, hidden, hidden, 1},
				both = {8192, hidden, 2 * ffn, 1}, half = {8192, hidden, ffn, 1};
	struct case_ c;

	(void)state;
	open_case_of(&c, "llama-2-7b", "runtime=shardplan gelu=product micro_batch=2 seq_len=4096");
	add(KERNEL_RMSNORM, hidden, 0, 7e11);
	double joined = seconds_of(&c, OP_BACKWARD, true);
	c.schedule->plan.wrap.kind = WRAP_SIZE;
	double apart = seconds_of(&c, OP_BACKWARD, true);
	c.schedule->plan.wrap.kind = WRAP_BLOCK;
	c.schedule->plan.gelu = GELU_IN_KERNEL;
	assert_true(seconds_of(&c, OP_BACKWARD, true) == apart);
	double of_qkv = 3 * cost_gemm(&gpu, DTYPE_BF16, &third) - cost_gemm(&gpu, DTYPE_BF16, &qkv);
	double of_mlp = 2 * cost_gemm(&gpu, DTYPE_BF16, &half) - cost_gemm(&gpu, DTYPE_BF16, &both);
	assert_true(of_qkv > 0 && of_mlp > 0);
	assert_true(fabs((apart - joined) / (of_qkv + of_mlp) - 1) < 0.01);
	case_finish(&c);
}

/* In a straight line of logarithms between two sizes, constant beyond them. */
static void rates_between(void **state)
{
	struct case_ c;
	double at, between, below;

	(void)state;
	open_case(&c, "shardplan");
	gpu.calibration.n_kernels = 0;
	add(KERNEL_LAYERNORM, HIDDEN, 0, 4e11);
	at = seconds_of(&c, OP_FORWARD, true);
	gpu.calibration.n_kernels = 0;
	add(KERNEL_LAYERNORM, HIDDEN / 2, 0, 2e11);
	add(KERNEL_LAYERNORM, HIDDEN * 2, 0, 8e11);
	between = seconds_of(&c, OP_FORWARD, true);
	expect("between", between, at);
	gpu.calibration.n_kernels = 0;
	add(KERNEL_LAYERNORM, HIDDEN * 2, 0, 4e11);
	add(KERNEL_LAYERNORM, HIDDEN * 4, 0, 9e11);
	below = seconds_of(&c, OP_FORWARD, true);
	expect("below the smallest", below, at);
	case_finish(&c);
}

/* Kernels of ours say nothing of another runtime's, and steps of small models nothing at all. */
static void others_do_not_run_them(void **state)
{
	const struct calibration_step step = {
		STEP_MLP_PLAIN, DTYPE_BF16, STEP_THREADS_ALL, {[STEP_FORWARD] = 1.5}};
	static const char *const runtimes[] = {"shardplan", "pytorch-ddp"};

	(void)state;
	for (int ours = 1; ours >= 0; ours--) {
		struct case_ c;
		double without, with;

		open_case(&c, runtimes[1 - ours]);
		gpu.calibration.n_kernels = 0;
		add(KERNEL_GELU, 0, 0, 1e11);
		without = seconds_of(&c, OP_FORWARD, true);
		assert_true(calibration_add_step(&gpu.calibration, &step));
		with = seconds_of(&c, OP_FORWARD, true);
		expect("steps", with / without, 1);
		gpu.calibration.kernels[0].rate = 2e11;
		assert_true((seconds_of(&c, OP_FORWARD, true) < with) == ours);
		case_finish(&c);
	}
}

/* A product of so many rows takes as long as it has of them: what was measured of fewer holds. */
static void large_products(void **state)
{
	static struct calibration_product product = {DTYPE_BF16, 16384, 768, 3072, 0};
	const struct gemm_shape few = {16384, 768, 3072, 1}, many = {131072, 768, 3072, 1};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-h100");
	double small, large;

	(void)state;
	t.calibration = (struct calibration){.measured = true, .gemm_flops = 7e14};
	small = cost_gemm(&t, DTYPE_BF16, &few);
	large = cost_gemm(&t, DTYPE_BF16, &many);
	product.flops = 0.9 * gemm_flops(&few) / small;
	t.calibration.products = &product;
	t.calibration.n_products = 1;
	assert_true(fabs(cost_gemm(&t, DTYPE_BF16, &few) / small - 1 / 0.9) < 0.02);
	assert_true(fabs(cost_gemm(&t, DTYPE_BF16, &many) / large - 1 / 0.9) < 0.02);
	arena_finish(&arena);
}

/* A launch a parameter. */
static void updates(void **state)
{
	const struct program *program;
	struct case_ c;
	double before;

	(void)state;
	open_case(&c, "shardplan");
	gpu.calibration.n_kernels = 0;
	add(KERNEL_GELU, 0, 0, 1e14);
	program = &c.schedule->programs[0];
	gpu.calibration.kernel_overhead = 1e-6;
	before = seconds_of(&c, OP_OPTIMIZER, false);
	gpu.calibration.kernel_overhead = 2e-6;
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_OPTIMIZER) {
			int slices = c.schedule->programs->units[program->ops[i].unit].n_slices;

			assert_true(slices > 1);
			expect("an update", seconds_of(&c, OP_OPTIMIZER, false) - before,
				1e-6 * slices);
			break;
		}
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kernel_counts),
		cmocka_unit_test(backward_by_the_library),
		cmocka_unit_test(gelu_in_products),
		cmocka_unit_test(one_product_for_one_input),
		cmocka_unit_test(rates_between),
		cmocka_unit_test(others_do_not_run_them),
		cmocka_unit_test(large_products),
		cmocka_unit_test(updates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
