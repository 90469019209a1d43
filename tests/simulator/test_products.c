/* Products of single shapes that were measured on a processor's core, and products in fp8. */
#include "cases.h"
#include "simulator/costs/compute.h"
#include "simulator/costs/experts.h"
#include "simulator/costs/fp8.h"
#include "sketch.h"

#include <math.h>

/* 2 m n k over the rate that is said to have been measured. */
static double measured_seconds(const struct calibration_product *p)
{
	return 2.0 * (double)p->m * (double)p->n * (double)p->k / p->flops;
}

static void set_machine(struct topology *t)
{
	make_processes(t);
	t->host.cores = 4;
	t->devices_per_node = 4;
	t->calibration = (struct calibration){.gemm_flops = 1e11,
		.gemm_half_m = 16,
		.gemm_half_n = 16,
		.gemm_half_k = 16,
		.memory_bandwidth = 1e10,
		.memory_bandwidth_shared = 4e10,
		.kernel_overhead = 1e-15,
		.threads_speedup = 3};
}

/* A rank on a core of its own, whose memory is not shared, takes what was measured; near it the
 * model is corrected, far away it is not. */
static void test_on_the_core_that_was_measured(void **state)
{
	struct calibration_product measured[] = {{DTYPE_FP32, 256, 1536, 512, 6e10}};
	struct gemm_shape same = {256, 1536, 512, 1}, near = {512, 1536, 512, 1};
	struct gemm_shape far = {16, 16, 16384, 1};
	struct sketch s, without;

	(void)state;
	sketch_init(&s, 0);
	sketch_init(&without, 0);
	set_machine(&s.topology);
	set_machine(&without.topology);
	s.topology.calibration.products = measured;
	s.topology.calibration.n_products = COUNT_OF(measured);
	double seconds = cost_gemm(&s.topology, DTYPE_FP32, &same);
	double ratio = seconds / cost_gemm(&without.topology, DTYPE_FP32, &same);
	double half = cost_gemm(&s.topology, DTYPE_FP32, &near) /
		      cost_gemm(&without.topology, DTYPE_FP32, &near);
	double none = cost_gemm(&s.topology, DTYPE_FP32, &far) /
		      cost_gemm(&without.topology, DTYPE_FP32, &far);

	assert_true(fabs(seconds / measured_seconds(&measured[0]) - 1) < 1e-9);
	assert_true(ratio > 1.2);
	assert_true(fabs(half / sqrt(ratio) - 1) < 1e-9);
	assert_true(none > 1 && none < 1.02);
	/* Of its dtype alone. */
	assert_true(cost_gemm(&s.topology, DTYPE_BF16, &same) ==
		    cost_gemm(&without.topology, DTYPE_BF16, &same));
	sketch_finish(&s);
	sketch_finish(&without);
}

/* All cores for one rank: the arithmetic is as much faster as `threads_speedup` says, memory as
 * what the cores share allows; what the shape takes longer, it takes longer there as well. */
static void test_on_all_cores(void **state)
{
	struct calibration_product measured[] = {{DTYPE_FP32, 256, 1536, 512, 6e10}};
	struct gemm_shape same = {256, 1536, 512, 1};
	struct sketch s;

	(void)state;
	sketch_init(&s, 0);
	set_machine(&s.topology);
	s.topology.calibration.products = measured;
	s.topology.calibration.n_products = COUNT_OF(measured);
	s.topology.calibration.memory_bandwidth_shared = 2e10;
	s.topology.devices_per_node = 1;
	double bytes = 4.0 * (256 * 512 + 512 * 1536 + 256 * 1536);
	double arithmetic =
		2.0 * 256 * 1536 * 512 / 1e11 * (272.0 / 256) * (1552.0 / 1536) * (528.0 / 512);
	double ratio = measured_seconds(&measured[0]) / (arithmetic + bytes / 1e10);
	double expected = ratio * (arithmetic / 3 + bytes / 2e10);

	assert_true(fabs(cost_gemm(&s.topology, DTYPE_FP32, &same) / expected - 1) < 1e-9);
	sketch_finish(&s);
}

/* Measured faster than the model says, also than the rate that the bounds start from. */
static void test_no_product_beats_the_bound(void **state)
{
	struct calibration_product measured[] = {{DTYPE_FP32, 64, 768, 768, 3e11},
		{DTYPE_FP32, 64, 3072, 768, 3e11}, {DTYPE_FP32, 64, 768, 3072, 3e11},
		{DTYPE_FP32, 3072, 768, 64, 3e11}, {DTYPE_FP32, 768, 768, 64, 3e11},
		{DTYPE_FP32, 64, 16384, 768, 3e11}, {DTYPE_FP32, 64, 768, 16384, 3e11},
		{DTYPE_FP32, 16384, 768, 64, 3e11}};
	struct simulation_options options = {0};
	struct case_ c;

	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	set_machine(c.topology);
	c.topology->device.fp32_flops = 1e11;
	/* Nothing but products takes time. */
	c.topology->calibration.memory_bandwidth = 1e15;
	c.topology->calibration.memory_bandwidth_shared = 1e15;
	c.topology->calibration.loss_rate = 1e15;
	c.topology->calibration.products = measured;
	c.topology->calibration.n_products = COUNT_OF(measured);
	case_plan(&c, "runtime=shardplan strategy=NO_SHARD seq_len=64 param_dtype=fp32");
	const struct prediction *p = case_simulate(&c, &options, false);
	assert_true(p->step_time >= p->plan_lower_bound && p->plan_lower_bound > 0);
	case_finish(&c);
}

/* Of twice the peak a product alone loses twice the part to its begin and end; in a step the power
 * limit binds both dtypes alike. Operands have a byte less an element. */
static void test_fp8_product(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-h100");
	struct gemm_shape large = {16384, 16384, 16384, 1}, thin = {1, 16384, 16384, 1};
	double lost = (1 - 2 * (1 - 0.872)) / 0.872;
	(void)state;
	double clock = t.calibration.sustained_clock;
	t.calibration.sustained_clock = 1;
	double ratio = cost_gemm(&t, DTYPE_BF16, &large) / cost_gemm(&t, DTYPE_FP8, &large);
	assert_true(fabs(ratio / (2 * lost) - 1) < 0.01);
	t.calibration.sustained_clock =
		0.99; /* in a step no product has more than 0.95 of its clock */
	ratio = cost_gemm(&t, DTYPE_BF16, &large) / cost_gemm(&t, DTYPE_FP8, &large);
	assert_true(fabs(ratio / (2 * lost * 0.95 / 0.99) - 1) < 0.01);
	t.calibration.sustained_clock = clock;
	ratio = cost_gemm(&t, DTYPE_BF16, &large) / cost_gemm(&t, DTYPE_FP8, &large);
	assert_true(fabs(ratio / 2 - 1) < 0.01);
	ratio = cost_gemm(&t, DTYPE_BF16, &thin) / cost_gemm(&t, DTYPE_FP8, &thin);
	assert_true(ratio > 1.4 && ratio < 2);
	arena_finish(&arena);
}

static double step_of(const char *choices)
{
	struct simulation_options options = {0};
	struct case_ c;

	case_load(&c, "llama-3.1-8b", "dgx-h100");
	case_plan(&c, choices);
	double seconds = case_simulate(&c, &options, false)->step_time;
	case_finish(&c);
	return seconds;
}

/* Compiled and with our kernels it pays, eager its casts cost more than products save; a scale less
 * to look for is faster. */
static void test_fp8_steps(void **state)
{
	double bf16 = step_of("seq_len=8192 compile=on");
	double tensorwise = step_of("seq_len=8192 compile=on fp8=tensorwise");
	double rowwise = step_of("seq_len=8192 compile=on fp8=rowwise");
	(void)state;
	assert_true(bf16 / tensorwise > 1.1 && bf16 / tensorwise < 1.5);
	assert_true(bf16 / rowwise > 1.1 && bf16 / rowwise < 1.5);
	assert_true(step_of("seq_len=8192 fp8=tensorwise") > step_of("seq_len=8192"));
	bf16 = step_of("seq_len=8192 runtime=shardplan");
	tensorwise = step_of("seq_len=8192 runtime=shardplan fp8=tensorwise");
	assert_true(bf16 / tensorwise > 1.1 && bf16 / tensorwise < 1.5);
	tensorwise = step_of("seq_len=8192 runtime=megatron tensor=2 fp8=tensorwise");
	assert_true(step_of("seq_len=8192 runtime=megatron tensor=2 fp8=delayed") < tensorwise);
	/* Its casts are one kernel each: where the host has time, products decide. */
	tensorwise = step_of("seq_len=8192 runtime=megatron micro_batch=2 fp8=tensorwise");
	double blockwise = step_of("seq_len=8192 runtime=megatron micro_batch=2 fp8=blockwise");
	assert_true(blockwise > 1.03 * tensorwise && blockwise < 1.15 * tensorwise);
}

#define MX_BYTES (2 + 2 * (1 + 1 / 32.0))

/* Transformer Engine's products of 4096 x 4096 to 16384 for 15,872 tokens, over bf16, by its own
 * tables (gemm_profiling.rst): on H200 1.40 in blocks of 128 with their casts, on B300 1.83 in
 * blocks of 32 and 3.48 in fp4 without. Casts alone take 1.82 and 2.69 ms there. */
static void test_blocks_of_products(void **state)
{
	static const struct {
		const char *topology, *recipe;
		double cast_bytes, faster, casts; /* s; 0: in `faster` */
	} cases[] = {{"dgx-h200", "fp8=blockwise", 7.5, 1.40, 0},
		{"dgx-b300", "fp8=mxfp8", MX_BYTES, 1.83, 1.82e-3},
		{"dgx-b300", "fp8=nvfp4", 6, 3.48, 2.69e-3}};
	static const int64_t sizes[][2] = {
		{4096, 12288}, {4096, 4096}, {4096, 16384}, {16384, 4096}};
	const int64_t m = 15872;
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		double bf16 = 0, fp8 = 0, elements = 0;
		struct machine machine;
		struct case_ c;
		case_load(&c, "llama-3.1-8b", cases[i].topology);
		case_plan(&c, arena_printf(&c.arena, "runtime=megatron %s", cases[i].recipe));
		machine_init(&machine, c.topology, NULL, DTYPE_BF16);
		const struct machine low = fp8_machine(&machine, &c.plan);
		for (int s = 0; s < COUNT_OF(sizes); s++) {
			int64_t k = sizes[s][0], n = sizes[s][1];
			const struct gemm_shape shapes[] = {
				{m, n, k, 1}, {m, k, n, 1}, {n, k, m, 1}};
			for (int g = 0; g < 3; g++) {
				bf16 += gemm_arithmetic(&machine, &shapes[g]);
				fp8 += gemm_arithmetic(&low, &shapes[g]);
			}
			elements += 2 * (double)(m * k + m * n + k * n);
		}
		double casts = cases[i].cast_bytes * elements / machine.memory_bandwidth;
		fp8 += cases[i].casts > 0 ? 0 : casts;
		assert_true(cases[i].casts == 0 || fabs(casts / cases[i].casts - 1) < 0.15);
		if (fabs(bf16 / fp8 / cases[i].faster - 1) > 0.04)
			fail_msg("row %d: %g times as fast, %g published", i, bf16 / fp8,
				cases[i].faster);
		case_finish(&c);
	}
}

static int find_leaf(const struct model *model, enum module_kind kind)
{
	int module = 0;
	while (model->modules[module].kind != kind)
		module++;
	return module;
}

static double cast_bytes(
	const struct case_ *c, int module, const struct gemm_shape *product, enum pass pass)
{
	return fp8_casts_of(
		&c->plan, c->model, c->topology->device.generation, module, product, pass)
		.bytes;
}

/* What is gathered in fp8 was cast before, by each of four ranks a quarter: the input of a
 * column-parallel layer, the gradient of a row-parallel one. Factors are bytes an element. */
static void test_casts_before_gathers(void **state)
{
	const struct gemm_shape product = {64, 32, 128, 1};
	const double input = 64 * 128, output = 64 * 32, weight = 32 * 128;
	struct case_ c;
	(void)state;
	case_load(&c, "llama-3.1-8b", "dgx-h100");
	case_plan(&c, "tensor=4 compile=on fp8=tensorwise");
	int query = find_leaf(c.model, MODULE_QUERY), down = find_leaf(c.model, MODULE_DOWN);
	const double bytes[] = {cast_bytes(&c, query, &product, PASS_FORWARD),
		cast_bytes(&c, down, &product, PASS_FORWARD),
		cast_bytes(&c, query, &product, PASS_BACKWARD_INPUT),
		cast_bytes(&c, down, &product, PASS_BACKWARD_INPUT),
		cast_bytes(&c, query, &product, PASS_BACKWARD_WEIGHT),
		cast_bytes(&c, down, &product, PASS_BACKWARD_WEIGHT)};
	assert_true(bytes[0] == 5 * input / 4 + 5 * weight);
	assert_true(bytes[1] == 5 * input + 5 * weight);
	assert_true(bytes[2] == 8 * output + 3 * weight);
	assert_true(bytes[3] == 5 * output / 4 + 3 * weight);
	/* Columns are read of what came in rows of bytes. */
	assert_true(bytes[4] == 2 * input);
	assert_true(bytes[5] == 2 * output + 3 * input);
	case_finish(&c);
}

/* Weights that come in fp8 are not cast where they are multiplied: backward turns them. */
static void test_casts_of_gathered_weights(void **state)
{
	const struct gemm_shape product = {64, 32, 128, 1};
	const double input = 64 * 128, output = 64 * 32, weight = 32 * 128;
	struct case_ c;
	(void)state;
	case_load(&c, "llama-3.1-8b", "dgx-h100");
	case_plan(&c, "compile=on fp8=tensorwise fp8_param_gather=on");
	int query = find_leaf(c.model, MODULE_QUERY);
	assert_true(cast_bytes(&c, query, &product, PASS_FORWARD) == 5 * input);
	assert_true(
		cast_bytes(&c, query, &product, PASS_BACKWARD_INPUT) == 8 * output + 2 * weight);
	case_finish(&c);
}

/* Transformer Engine: copies of weights serve eight micro-batches, a norm finds the largest
 * element, and Blackwell needs no columns. With the scale of last steps the norm casts. Weights
 * that stay in fp8 are turned at most. */
#define ENGINE "runtime=megatron micro_batch=1 grad_accum=8 seq_len=4096 "
static void test_casts_of_the_engine(void **state)
{
	const struct gemm_shape product = {64, 32, 128, 1};
	const double input = 64 * 128, output = 64 * 32, weight = 32 * 128;
	static const struct {
		const char *topology, *plan;
		double forward, row_forward, gradient, turned;
	} cases[] = {{"dgx-h100", ENGINE "fp8=tensorwise", 4, 6, 6, 0},
		{"dgx-b200", ENGINE "fp8=tensorwise", 3, 5, 5, 0},
		{"dgx-h100", ENGINE "fp8=delayed", 0, 4, 4, 0},
		{"dgx-h100", ENGINE "fp8=tensorwise tensor=4", 0.75, 6, 6, 2},
		{"dgx-b200", ENGINE "fp8=tensorwise tensor=4", 0.75, 5, 5, 0},
		{"dgx-b200", ENGINE "fp8=delayed tensor=4", 0, 3, 3, 0},
		{"dgx-h100", ENGINE "fp8=tensorwise fp8_param_gather=on", 4, 6, 6, 0},
		{"dgx-b200", ENGINE "fp8=delayed fp8_param_gather=on", 0, 3, 3, 0},
		{"dgx-h100", ENGINE "fp8=blockwise", 7.5, 7.5, 7.5, 0},
		{"dgx-h100", ENGINE "fp8=blockwise fp8_param_gather=on", 7.5, 7.5, 7.5, 0},
		{"dgx-h100", ENGINE "fp8=blockwise tensor=4", 7.5 / 4, 7.5, 7.5, 2},
		{"dgx-b200", ENGINE "fp8=mxfp8", MX_BYTES, MX_BYTES, MX_BYTES, 0},
		{"dgx-b200", ENGINE "fp8=mxfp8 tensor=4", MX_BYTES / 4, MX_BYTES, MX_BYTES, 0},
		{"dgx-b200", ENGINE "fp8=mxfp8 fp8_param_gather=on", MX_BYTES, MX_BYTES, MX_BYTES,
			0},
		{"dgx-b200", ENGINE "fp8=nvfp4", 6, 6, 6, 0},
		{"dgx-b200", ENGINE "fp8=nvfp4 tensor=4", 1.5, 6, 6, 1.125},
		{"dgx-b200", ENGINE "fp8=nvfp4 fp8_param_gather=on", 6, 6, 6, 0}};
	/* Weights in mxfp8 are cast when they have come. */
	static const double of_weight[] = {
		[FP8_BLOCKWISE] = 7.5, [FP8_MXFP8] = MX_BYTES, [FP8_NVFP4] = 6};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;

		case_load(&c, "llama-3.1-8b", cases[i].topology);
		case_plan(&c, cases[i].plan);
		int query = find_leaf(c.model, MODULE_QUERY);
		int down = find_leaf(c.model, MODULE_DOWN);
		bool hopper = c.topology->device.generation == GENERATION_HOPPER;
		double weights = (hopper ? 6 : 5) - (c.plan.fp8 == FP8_DELAYED ? 2 : 0);
		if (c.plan.fp8 >= FP8_BLOCKWISE)
			weights = of_weight[c.plan.fp8];
		if (fp8_gathers_weights(&c.plan))
			weights = c.plan.fp8 == FP8_NVFP4 ? 1.125 : hopper ? 2 : 0;
		weights *= weight / 8;
		assert_float_equal(cast_bytes(&c, query, &product, PASS_FORWARD),
			cases[i].forward * input + weights, 1e-6);
		assert_float_equal(cast_bytes(&c, down, &product, PASS_FORWARD),
			cases[i].row_forward * input + weights, 1e-6);
		assert_float_equal(cast_bytes(&c, query, &product, PASS_BACKWARD_INPUT),
			cases[i].gradient * output, 1e-6);
		assert_float_equal(cast_bytes(&c, query, &product, PASS_BACKWARD_WEIGHT),
			cases[i].turned * input, 1e-6);
		case_finish(&c);
	}
}

/* Experts read rows that nothing has cast: these are padded, cast and written in both orders once
 * for gate and up, and what down returns is copied without the padding. Each has a weight. Shared
 * experts read what the router does. */
static void test_casts_of_experts(void **state)
{
	const struct gemm_shape each = {64, 32, 128, 4}, shared = {64, 32, 128, 1};
	const double input = 4 * 64 * 128, output = 4 * 64 * 32, weight = 4 * 32 * 128;
	struct case_ c;
	(void)state;
	case_load(&c, "deepseek-v3", "32xdgx-h100");
	case_plan(&c, ENGINE "fp8=delayed expert=8");
	int gate = find_leaf(c.model, MODULE_EXPERTS_GATE);
	int up = find_leaf(c.model, MODULE_EXPERTS_UP);
	int down = find_leaf(c.model, MODULE_EXPERTS_DOWN);
	int beside = find_leaf(c.model, MODULE_SHARED_GATE);
	const double bytes[] = {cast_bytes(&c, gate, &each, PASS_FORWARD),
		cast_bytes(&c, up, &each, PASS_FORWARD), cast_bytes(&c, down, &each, PASS_FORWARD),
		cast_bytes(&c, beside, &shared, PASS_FORWARD),
		cast_bytes(&c, gate, &each, PASS_BACKWARD_INPUT),
		cast_bytes(&c, down, &each, PASS_BACKWARD_INPUT)};
	assert_float_equal(bytes[0], (4 + 4) * input + 4 * weight / 8, 1e-6);
	assert_float_equal(bytes[1], 4 * weight / 8, 1e-6);
	assert_float_equal(bytes[2], 4 * input + 4 * output + 4 * weight / 8, 1e-6);
	assert_float_equal(bytes[3], (4 * input + 4 * weight / 8) / 4, 1e-6);
	assert_float_equal(bytes[4], 4 * output + 4 * input, 1e-6);
	assert_float_equal(bytes[5], (4 + 4) * output, 1e-6);
	/* Tensor ranks do not gather what experts read. */
	case_plan(&c, ENGINE "fp8=delayed expert=8 tensor=2");
	assert_float_equal(cast_bytes(&c, gate, &each, PASS_FORWARD), bytes[0], 1e-6);
	case_finish(&c);
}

/* Operations of experts in a pass of the first leaf of its kind: returns what the host launches, as
 * experts_operations does. The caller has loaded the case, and finishes it. */
static double operations_of(struct case_ *c, const char *words, enum module_kind leaf,
	enum pass pass, struct machine *machine, struct cost *cost)
{
	case_plan(c, words);
	machine_init(machine, c->topology, NULL, DTYPE_BF16);
	const struct model *part = plan_model(&c->plan, c->model, &c->arena);
	*cost = (struct cost){0};
	return experts_operations(machine, &c->plan, part, find_leaf(part, leaf), pass, cost);
}

/* Megatron-Core's experts on eight ranks: gpt-oss clamps gate and up, and adds a weighed bias
 * expert by expert, of which a rank has 16; Mixtral has neither. The part of backward that makes
 * weights' gradients has none. */
static void test_operations_of_experts(void **state)
{
	static const struct {
		const char *model, *plan;
		enum module_kind leaf;
		enum pass pass;
		double elements, launches;
	} cases[] = {{"gpt-oss-120b", "megatron", MODULE_EXPERTS_ACTIVATION, PASS_FORWARD, 8, 3},
		{"gpt-oss-120b", "megatron", MODULE_EXPERTS_ACTIVATION, PASS_BACKWARD, 10, 3},
		{"gpt-oss-120b", "megatron", MODULE_EXPERTS_DOWN, PASS_FORWARD, 6, 2 * 16},
		{"gpt-oss-120b", "megatron", MODULE_EXPERTS_DOWN, PASS_BACKWARD_INPUT, 7, 4 * 16},
		{"gpt-oss-120b", "megatron", MODULE_EXPERTS_DOWN, PASS_BACKWARD_WEIGHT, 0, 0},
		{"gpt-oss-120b", "megatron", MODULE_EXPERTS_UP, PASS_FORWARD, 0, 0},
		{"mixtral-8x7b", "megatron", MODULE_EXPERTS_DOWN, PASS_FORWARD, 0, 0},
		{"mixtral-8x7b", "megatron", MODULE_EXPERTS_ACTIVATION, PASS_FORWARD, 0, 0}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct cost cost;
		struct machine machine;
		struct case_ c;

		case_load(&c, cases[i].model, "dgx-h100");
		double launched = operations_of(&c,
			arena_printf(&c.arena,
				"expert=8 expert_load=1 seq_len=4096 micro_batch=1 runtime=%s",
				cases[i].plan),
			cases[i].leaf, cases[i].pass, &machine, &cost);
		double rows = 4 * 4096, bytes = cases[i].elements * rows * 2880 * 2;
		assert_float_equal(cost.memory * machine.memory_bandwidth, bytes, 1e-3 * bytes);
		assert_float_equal(cost.device - cost.memory,
			cases[i].launches * machine.kernel_overhead, 1e-8);
		assert_float_equal(launched, cases[i].launches * 6 / 80, 1e-9);
		case_finish(&c);
	}
}

/* The dispatcher of gathered tokens copies rows one element at a time, which no memory is as slow
 * as; all rows are copied on each of the ranks that cut an expert. */
static void test_operations_of_the_dispatcher(void **state)
{
	static const struct {
		enum module_kind leaf;
		enum pass pass;
		double rows, tokens, indexed, launches;
	} cases[] = {
		{MODULE_ROUTER, PASS_FORWARD, 0, 0, 2, 38},
		{MODULE_ROUTER, PASS_BACKWARD, 1, 1, 2, 22},
		{MODULE_EXPERTS_DOWN, PASS_FORWARD, 5, 3, 2, 7},
		{MODULE_EXPERTS_DOWN, PASS_BACKWARD_INPUT, 6, 0, 2, 6},
		{MODULE_EXPERTS_DOWN, PASS_BACKWARD_WEIGHT, 0, 0, 0, 0},
		{MODULE_EXPERTS_UP, PASS_FORWARD, 0, 0, 0, 0},
	};
	const double token = 4096.0 * 4096 * 2, row = 2 * token;
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		struct machine machine;
		struct cost cost;
		case_load(&c, "mixtral-8x7b", "8xdgx-h100");
		double launched = operations_of(&c,
			"tensor=4 seq_len=4096 micro_batch=1 runtime=megatron "
			"libraries=megatron-core:0.6",
			cases[i].leaf, cases[i].pass, &machine, &cost);
		double streamed = cases[i].rows * row + cases[i].tokens * token;
		double bytes = streamed + 2 * cases[i].indexed * row;
		double seconds = streamed / machine.memory_bandwidth +
				 cases[i].indexed * row / 2 / 150e9 +
				 cases[i].launches * machine.kernel_overhead;
		assert_float_equal(cost.memory * machine.memory_bandwidth, bytes, 1e-6 * bytes);
		assert_float_equal(cost.device, seconds, 1e-6 * seconds);
		assert_float_equal(launched, cases[i].launches * 6 / 80, 1e-9);
		case_finish(&c);
	}
}

/* Without fused kernels rows are added up element by element, 150 G a second, in the pass that
 * fused ones read and write them in; a stable sort, and a split and a concatenation for each of 128
 * experts, are the host's. DeepEP sorts rows by itself, and so does a rank with one expert. */
static void test_unfused_permutations(void **state)
{
	static const struct {
		enum module_kind leaf;
		enum pass pass;
		const char *words;
		bool adds;
		double kernels, pieces;
	} cases[] = {
		{MODULE_ROUTER, PASS_FORWARD, "unfused_permute=on", false, 12, 2 * 128},
		{MODULE_ROUTER, PASS_BACKWARD, "unfused_permute=on", true, 4, 2 * 128},
		{MODULE_EXPERTS_DOWN, PASS_FORWARD, "unfused_permute=on", true, 4, 128},
		{MODULE_EXPERTS_DOWN, PASS_BACKWARD_INPUT, "unfused_permute=on", false, 3, 128},
		{MODULE_EXPERTS_DOWN, PASS_BACKWARD_WEIGHT, "unfused_permute=on", false, 0, 0},
		{MODULE_EXPERTS_UP, PASS_FORWARD, "unfused_permute=on", false, 0, 0},
		{MODULE_ROUTER, PASS_FORWARD, "unfused_permute=on expert_dispatch=deepep", false,
			12, 0},
		{MODULE_ROUTER, PASS_FORWARD, "unfused_permute=off", false, 0, 0},
	};
	const double token = 4096.0 * 2048, row = 8 * token;
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		struct machine machine;
		struct cost cost;
		case_load(&c, "qwen3-30b-a3b", "2xdgx-h100");
		double launched = operations_of(&c,
			arena_printf(&c.arena,
				"expert=16 expert_tensor=1 expert_load=1 seq_len=4096 "
				"micro_batch=1 runtime=megatron %s",
				cases[i].words),
			cases[i].leaf, cases[i].pass, &machine, &cost);
		double added = row / 150e9 - (2 * row - token) * 2 / machine.memory_bandwidth;
		assert_float_equal(cost.device,
			(cases[i].adds ? added : 0) + cases[i].kernels * machine.kernel_overhead,
			1e-9);
		assert_float_equal(
			launched, (cases[i].kernels + cases[i].pieces / 3) * 6 / 80, 1e-9);
		case_finish(&c);
	}
}

/* torchtitan adds rows up by an index, in forward what experts return and in backward what was
 * copied to them, at the rate of PyTorch's kernel instead of memory's; by all-to-all what was put
 * in their order, too. DeepEP brings tokens, so that only one rank copies and adds. What weighs
 * rows is three operations unless it is compiled. */
static void test_rows_added_by_index(void **state)
{
	enum { TOKENS = 4096 };
	static const struct {
		const char *words;
		enum module_kind leaf;
		enum pass pass;
		double rows, tokens, indexed, kernels;
	} cases[] = {
		{"compile=on", MODULE_ROUTER, PASS_FORWARD, 0, 0, 0, 0},
		{"compile=on", MODULE_ROUTER, PASS_BACKWARD, -3, 1, 1, 10},
		{"compile=on", MODULE_EXPERTS_DOWN, PASS_FORWARD, -1, 1, 1, 10},
		{"compile=on", MODULE_EXPERTS_DOWN, PASS_BACKWARD_INPUT, -1, 0, 0, 0},
		{"compile=on", MODULE_EXPERTS_DOWN, PASS_BACKWARD_WEIGHT, 0, 0, 0, 0},
		{"compile=on", MODULE_EXPERTS_UP, PASS_FORWARD, 0, 0, 0, 0},
		{"compile=off", MODULE_EXPERTS_DOWN, PASS_FORWARD, 7, 1, 1, 12},
		{"compile=off", MODULE_EXPERTS_DOWN, PASS_BACKWARD, 14, 0, 0, 4},
		{"compile=on expert=8", MODULE_EXPERTS_DOWN, PASS_FORWARD, -1, 1, 1, 10},
		{"compile=on expert=8", MODULE_EXPERTS_DOWN, PASS_BACKWARD, -4, 0, 1, 10},
		{"compile=on expert=8 expert_dispatch=deepep", MODULE_ROUTER, PASS_FORWARD, -2, 0,
			0, 0},
		{"compile=on expert=8 expert_dispatch=deepep", MODULE_ROUTER, PASS_BACKWARD, -3, 0,
			0, 0},
		{"compile=on expert=8 expert_dispatch=deepep", MODULE_EXPERTS_DOWN, PASS_BACKWARD,
			-7, 1, 1, 0},
	};
	static const struct {
		const char *topology;
		double rate;
	} devices[] = {{"dgx-h100", 150e9}, {"dgx-b200", 218e9}};
	const double token = TOKENS * 2048.0, row = 8 * token;
	(void)state;
	for (int i = 0; i < 2 * COUNT_OF(cases); i++) {
		int k = i / 2;
		struct case_ c;
		struct machine machine;
		struct cost cost;
		case_load(&c, "qwen3-30b-a3b", devices[i % 2].topology);
		double launched = operations_of(&c,
			arena_printf(&c.arena, "%s expert_load=1 seq_len=4096 micro_batch=1",
				cases[k].words),
			cases[k].leaf, cases[k].pass, &machine, &cost);
		double streamed = (cases[k].rows * row + cases[k].tokens * token) * 2 /
				  machine.memory_bandwidth;
		double seconds = streamed + cases[k].indexed * row / devices[i % 2].rate +
				 cases[k].kernels * machine.kernel_overhead;
		assert_float_equal(cost.device, seconds, 1e-9);
		assert_float_equal(launched, cases[k].kernels, 1e-9);
		case_finish(&c);
	}
}

/* Compiled, a block that is computed again ends with the last product of its experts: nothing reads
 * the sum of their results. */
static void test_results_added_once(void **state)
{
	const double row = 8 * 4096 * 2048.0;
	(void)state;
	for (int compiled = 0; compiled < 2; compiled++) {
		struct case_ c;
		struct machine machine;
		struct cost once = {0}, again = {0};
		case_load(&c, "qwen3-30b-a3b", "dgx-h100");
		case_plan(&c, compiled ? "compile=on" : "compile=off");
		machine_init(&machine, c.topology, NULL, DTYPE_BF16);
		int down = find_leaf(c.model, MODULE_EXPERTS_DOWN);
		struct op op = {.kind = OP_FORWARD, .first_module = down, .end_module = down + 1};
		compute_range_cost(&machine, c.schedule, c.model, &op, &once);
		op.kind = OP_RECOMPUTE;
		compute_range_cost(&machine, c.schedule, c.model, &op, &again);
		if (compiled)
			assert_true(once.device - again.device > row / 150e9);
		else
			assert_true(once.device == again.device);
		assert_true(once.flops == again.flops);
		case_finish(&c);
	}
}

/* One launch for all experts reaches 0.35 of B200's peak under PyTorch, which products of another
 * runtime and on another device exceed. */
static void test_grouped_products(void **state)
{
	static const struct {
		const char *topology, *words;
		bool limited;
	} cases[] = {{"dgx-b200", "runtime=pytorch-fsdp2", true},
		{"dgx-b200", "runtime=megatron", false},
		{"dgx-h100", "runtime=pytorch-fsdp2", false}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		struct machine machine;
		struct cost cost = {0};
		case_load(&c, "mixtral-8x7b", cases[i].topology);
		case_plan(&c,
			arena_printf(&c.arena, "%s seq_len=4096 micro_batch=8", cases[i].words));
		machine_init(&machine, c.topology, NULL, DTYPE_BF16);
		int up = find_leaf(c.model, MODULE_EXPERTS_UP);
		const struct op op = {.kind = OP_FORWARD, .first_module = up, .end_module = up + 1};
		compute_range_cost(&machine, c.schedule, c.model, &op, &cost);
		double share = cost.flops / (cost.device - machine.kernel_overhead) /
			       device_peak_flops(&c.topology->device, DTYPE_BF16);
		if (cases[i].limited)
			assert_float_equal(share, 0.35, 1e-3);
		else
			assert_true(share > 0.4);
		case_finish(&c);
	}
}

/* Row-wise, a pass scales what backward's products made: gradients of weights always, those of
 * inputs where no kernel reads them anyway. */
static void test_scaled_afterwards(void **state)
{
	const struct gemm_shape product = {64, 32, 128, 1};
	const double input = 64 * 128, output = 64 * 32, weight = 32 * 128;
	struct case_ c;
	(void)state;
	case_load(&c, "llama-3.1-8b", "dgx-h100");
	case_plan(&c, "compile=on fp8=rowwise");
	int down = find_leaf(c.model, MODULE_DOWN);
	int attention = find_leaf(c.model, MODULE_ATTENTION_OUTPUT);
	const double of_weight = cast_bytes(&c, down, &product, PASS_BACKWARD_WEIGHT);
	const double of_input[] = {cast_bytes(&c, down, &product, PASS_BACKWARD_INPUT),
		cast_bytes(&c, attention, &product, PASS_BACKWARD_INPUT)};
	assert_true(of_weight == 5 * input + 4 * weight);
	assert_true(of_input[0] == 8 * output + 7 * weight);
	assert_true(of_input[1] == 8 * output + 7 * weight + 4 * input);
	case_finish(&c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_on_the_core_that_was_measured),
		cmocka_unit_test(test_on_all_cores),
		cmocka_unit_test(test_no_product_beats_the_bound),
		cmocka_unit_test(test_fp8_product),
		cmocka_unit_test(test_fp8_steps),
		cmocka_unit_test(test_blocks_of_products),
		cmocka_unit_test(test_casts_of_experts),
		cmocka_unit_test(test_casts_of_gathered_weights),
		cmocka_unit_test(test_operations_of_experts),
		cmocka_unit_test(test_unfused_permutations),
		cmocka_unit_test(test_rows_added_by_index),
		cmocka_unit_test(test_results_added_once),
		cmocka_unit_test(test_grouped_products),
		cmocka_unit_test(test_operations_of_the_dispatcher),
		cmocka_unit_test(test_casts_before_gathers),
		cmocka_unit_test(test_casts_of_the_engine),
		cmocka_unit_test(test_scaled_afterwards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
