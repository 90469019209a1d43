/* Products and operations alone: the roofline, saturation, what compiling saves. */
#include "cases.h"
#include "sketch.h"

#include <math.h>
#include <stdio.h>

static double flops(const struct gemm_shape *gemm)
{
	return 2.0 * (double)gemm->m * (double)gemm->n * (double)gemm->k * (double)gemm->count;
}

static void test_saturation(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
	double last = 0;
	(void)state;
	for (int64_t n = 64; n <= 16384; n *= 2) {
		struct gemm_shape gemm = {n, n, n, 1};
		double rate = flops(&gemm) / cost_gemm(&t, DTYPE_BF16, &gemm);

		assert_true(rate > last);
		last = rate;
	}
	/* Large products reach most of what was measured, and never the datasheet. */
	assert_true(last > 0.85 * t.calibration.gemm_flops);
	assert_true(last < t.calibration.gemm_flops);
	arena_finish(&arena);
}

/* Measured on an A100 PCIe: 4096^3 at 225 TFLOP/s; the prior is for the SXM part in a whole step.
 */
static void test_a100_product(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
	struct gemm_shape gemm = {4096, 4096, 4096, 1};
	double rate = flops(&gemm) / cost_gemm(&t, DTYPE_BF16, &gemm);
	(void)state;
	assert_true(rate > 200e12 && rate < 250e12);
	arena_finish(&arena);
}

/* What was measured of a shape is its time; around it the model is corrected, far away it is not.
 */
static void test_measured_products(void **state)
{
	struct calibration_product measured[] = {
		{DTYPE_BF16, 4096, 4096, 4096, 100e12, 0}, {DTYPE_FP32, 4096, 4096, 4096, 1e12, 0}};
	struct gemm_shape same = {4096, 4096, 4096, 1}, near = {8192, 4096, 4096, 1};
	struct gemm_shape far = {64, 65536, 64, 1};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb"), without;
	(void)state;
	t.calibration.sustained_clock = 1;
	without = t;
	t.calibration.n_products = COUNT_OF(measured);
	t.calibration.products = measured;
	double slower = cost_gemm(&t, DTYPE_BF16, &same) / cost_gemm(&without, DTYPE_BF16, &same);
	double half = cost_gemm(&t, DTYPE_BF16, &near) / cost_gemm(&without, DTYPE_BF16, &near);
	double none = cost_gemm(&t, DTYPE_BF16, &far) / cost_gemm(&without, DTYPE_BF16, &far);

	assert_true(fabs(cost_gemm(&t, DTYPE_BF16, &same) * 100e12 / flops(&same) - 1) < 1e-9);
	/* At a factor of two the measurement has the weight of the model. */
	assert_true(fabs(half / sqrt(slower) - 1) < 0.01);
	assert_true(none > 1 && none < 1.05);
	/* Of its dtype; and no measurement makes it more than four times as slow. */
	double other = cost_gemm(&t, DTYPE_FP32, &same) / cost_gemm(&without, DTYPE_FP32, &same);
	assert_true(other > 3.9 && other < 4.01);
	/* In a step the clock is lower. */
	t.calibration.sustained_clock = 0.5;
	assert_true(cost_gemm(&t, DTYPE_BF16, &same) * 100e12 / flops(&same) > 1.8);
	/* Nothing beats the datasheet. */
	t.calibration.sustained_clock = 1;
	measured[0].flops = 1e18;
	assert_true(cost_gemm(&t, DTYPE_BF16, &same) >= flops(&same) / t.device.bf16_flops);
	arena_finish(&arena);
}

/* The way that was chosen for a shape is used for that very shape; not for those that are as near
 * as it, of which nothing is known. */
static void test_chosen_products(void **state)
{
	struct calibration_product measured = {DTYPE_BF16, 65536, 4096, 4096, 100e12, 120e12};
	struct gemm_shape same = {65536, 4096, 4096, 1}, longer = {131072, 4096, 4096, 1};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb"), first;

	(void)state;
	t.calibration.sustained_clock = 1;
	t.calibration.n_products = 1;
	t.calibration.products = &measured;
	assert_true(fabs(cost_gemm(&t, DTYPE_BF16, &same) * 120e12 / flops(&same) - 1) < 1e-9);
	double chosen = cost_gemm(&t, DTYPE_BF16, &longer);
	measured.chosen_flops = 0;
	first = t;
	assert_true(fabs(cost_gemm(&first, DTYPE_BF16, &same) * 100e12 / flops(&same) - 1) < 1e-9);
	assert_true(cost_gemm(&first, DTYPE_BF16, &longer) == chosen);
	arena_finish(&arena);
}

/* A product with one row only streams its matrix. */
static void test_thin_products_are_memory_bound(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
	struct gemm_shape gemm = {1, 16384, 16384, 1};
	double bytes = 2.0 * 16384 * 16384;
	double time = cost_gemm(&t, DTYPE_BF16, &gemm);
	(void)state;
	assert_true(time > bytes / t.device.memory_bandwidth);
	assert_true(time < 40 * bytes / t.device.memory_bandwidth);
	arena_finish(&arena);
}

static void test_dtypes(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
	struct gemm_shape gemm = {8192, 8192, 8192, 1};
	double fp32 = cost_gemm(&t, DTYPE_FP32, &gemm), bf16 = cost_gemm(&t, DTYPE_BF16, &gemm);
	(void)state;
	/* 19.5 against 312 TFLOP/s, less what moving operands adds to the shorter one */
	assert_true(fp32 / bf16 > 15.5 && fp32 / bf16 < 16);
	arena_finish(&arena);
}

static void test_no_calibration_has_a_prior(void **state)
{
	static const char *const names[] = {"dgx-a100-80gb", "dgx-h100", "dgx-v100", "rtx4090-8x"};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++) {
		struct topology t = load_topology(&arena, names[i]);
		enum dtype dtype = t.device.bf16_flops > 0 ? DTYPE_BF16 : DTYPE_FP16;
		struct gemm_shape gemm = {8192, 8192, 8192, 1};
		double share;

		t.calibration = (struct calibration){0};
		share = flops(&gemm) / cost_gemm(&t, dtype, &gemm) /
			device_peak_flops(&t.device, dtype);
		assert_true(share > 0.5 && share < 0.95);
	}
	arena_finish(&arena);
}

/* A measured core: the rate is the formula's, no factor in between. */
static void test_calibrated_core(void **state)
{
	struct sketch s;
	struct gemm_shape gemm = {100, 200, 300, 1};
	(void)state;
	sketch_init(&s, 0);
	s.topology.device.kind = DEVICE_CPU;
	s.topology.device.generation = GENERATION_CPU;
	s.topology.calibration.gemm_flops = 1e11;
	s.topology.calibration.gemm_half_m = 100;
	s.topology.calibration.gemm_half_n = 200;
	s.topology.calibration.gemm_half_k = 300;
	s.topology.calibration.memory_bandwidth = 1e10;
	double arithmetic = flops(&gemm) * 8 / 1e11;
	double operands = 4.0 * (100 * 300 + 300 * 200 + 100 * 200) / 1e10;
	assert_seconds(cost_gemm(&s.topology, DTYPE_FP32, &gemm), arithmetic + operands);
	sketch_finish(&s);
}

/* Ranks of a host of six cores, of which all together are four times as fast as one. */
static void test_threads_of_a_rank(void **state)
{
	static const struct {
		int64_t ranks;
		double speedup;
	} cases[] = {{1, 4}, {2, 2.2}, {3, 1.6}, {4, 1}, {6, 1}, {12, 0.5}};
	struct gemm_shape gemm = {100, 200, 300, 1};
	struct sketch s;

	(void)state;
	sketch_init(&s, 0);
	make_processes(&s.topology);
	s.topology.host.cores = 6;
	s.topology.calibration.gemm_flops = 1e11;
	s.topology.calibration.gemm_half_m = s.topology.calibration.gemm_half_n =
		s.topology.calibration.gemm_half_k = 1e-9;
	s.topology.calibration.memory_bandwidth = 1e15;
	s.topology.calibration.memory_bandwidth_shared = 1e16;
	s.topology.calibration.threads_speedup = 4;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		s.topology.devices_per_node = cases[i].ranks;
		double seconds = cost_gemm(&s.topology, DTYPE_FP32, &gemm);
		assert_true(fabs(seconds * cases[i].speedup / (flops(&gemm) / 1e11) - 1) < 1e-3);
	}
	sketch_finish(&s);
}

static struct time_split times(const char *choices)
{
	struct simulation_options options = {0};
	struct time_split time;
	struct case_ c;

	case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
	case_plan(&c, choices);
	time = case_simulate(&c, &options, false)->time;
	case_finish(&c);
	return time;
}

static void test_choices_have_the_right_sign(void **state)
{
	double base = times("seq_len=2048").compute;
	(void)state;
	assert_true(times("seq_len=2048 compile=on").compute < base);
	assert_true(times("seq_len=2048 attention=eager").compute > base);
	double recomputing = times("seq_len=2048 activation_checkpointing=full").compute;
	assert_true(recomputing > 1.2 * base && recomputing < 1.4 * base);
	double twice = times("seq_len=2048 micro_batch=2").compute;
	assert_true(twice > 1.7 * base && twice < 2.05 * base);
	assert_true(times("seq_len=2048 optimizer=adamw-fused").optimizer <
		    0.5 * times("seq_len=2048 optimizer=adamw-foreach").optimizer);
}

/* Bytes that the passes of a step move, found with a memory so slow that nothing else counts. */
static double moved(const char *choices)
{
	const double bandwidth = 1e6;
	struct simulation_options options = {0};
	struct case_ c;
	case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
	c.topology->calibration.memory_bandwidth = bandwidth;
	case_plan(&c, choices);
	double seconds = case_simulate(&c, &options, false)->time.compute;
	case_finish(&c);
	return seconds * bandwidth;
}

/* Scale, mask and softmax are 11 passes of forward and backward. Softmax in fp32 of half-precision
 * scores makes 9 more, unless kernels are fused. */
static void test_eager_scores(void **state)
{
	double scores = 32 * 32.0 * 2048 * 2048; /* 32 layers of 32 heads */
	static const struct {
		const char *choices;
		double bytes;
	} cases[] = {
		{"seq_len=2048", 2 * (11 + 9)},
		{"seq_len=2048 compile=on", 2 * 11},
		{"seq_len=2048 param_dtype=fp32", 4 * 11},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		char eager[80], flash[80];
		snprintf(eager, sizeof(eager), "%s attention=eager", cases[i].choices);
		snprintf(flash, sizeof(flash), "%s", cases[i].choices);
		double passes = (moved(eager) - moved(flash)) / scores;
		assert_true(fabs(passes / cases[i].bytes - 1) < 0.02);
	}
}

/* Liger's kernels read and write what a fused one must: of 65 norms, and of RoPE and SwiGLU in 32
 * blocks (docs/models.md, Memory traffic). Scores of eager attention are not among them. */
static void test_liger(void **state)
{
	const double tokens = 2048, hidden = 4096, ffn = 11008, bytes = 2;
	const double norms = 65 * (18 - 2 + 36 - 5) * hidden;
	const double ropes = 32 * (10 - 2 + 10 - 2) * 2 * hidden;
	const double activations = 32 * (5 - 3 + 9 - 5) * ffn;
	double base = moved("seq_len=2048"), liger = moved("seq_len=2048 liger=on");
	double eager = moved("seq_len=2048 attention=eager");
	double saved = (norms + ropes + activations) * tokens * bytes;
	(void)state;
	assert_true(fabs((base - liger) / saved - 1) < 0.02);
	assert_true(moved("seq_len=2048 compile=on liger=on") == moved("seq_len=2048 compile=on"));
	saved -= ropes * tokens * bytes;
	double with = moved("seq_len=2048 attention=eager liger=on");
	assert_true(fabs((eager - with) / saved - 1) < 0.02);
}

/* The longest operation of that kind. */
static double seconds_of(struct case_ *c, enum op_kind kind)
{
	const struct program *program = &c->schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c->arena, struct cost, program->n_ops);

	double longest = 0;

	cost_operations(c->schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind)
			longest = fmax(longest, costs[i].device);
	return longest;
}

/* What arithmetic limits on a core, and a memory that all ranks share. */
static void test_rates_of_a_core(void **state)
{
	struct case_ c;
	double parameters, logits;

	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	struct calibration *rates = &c.topology->calibration;
	make_processes(c.topology);
	c.topology->host.cores = 8;
	*rates = (struct calibration){.gemm_flops = 1e11,
		.memory_bandwidth = 1e12,
		.memory_bandwidth_shared = 1e13,
		.optimizer_bandwidth = 1e12,
		.kernel_overhead = 1e-18,
		.loss_rate = 1e6,
		.bf16_loss_rate = 1e5,
		.gradient_norm_rate = 1e7};
	case_plan(&c, "runtime=shardplan strategy=NO_SHARD seq_len=64 param_dtype=fp32");
	logits = 64.0 * 50257;
	parameters = (double)c.model->parameter_count;
	assert_true(fabs(seconds_of(&c, OP_LOSS) / (logits / 1e6) - 1) < 1e-3);
	assert_true(fabs(seconds_of(&c, OP_GRADIENT_NORM) / (parameters / 1e7) - 1) < 1e-3);
	double update = seconds_of(&c, OP_OPTIMIZER);
	rates->activation_rate =
		1e5; /* a block's is 4 x 768 wide, beside milliseconds of products */
	assert_true(fabs(seconds_of(&c, OP_FORWARD) / (64 * 3072 / 1e5) - 1) < 0.05);
	rates->optimizer_bandwidth_shared = 4e12; /* half of it for each of eight */
	assert_true(fabs(seconds_of(&c, OP_OPTIMIZER) / (2 * update) - 1) < 1e-2);
	case_plan(&c, "runtime=shardplan strategy=NO_SHARD seq_len=64 param_dtype=bf16");
	assert_true(fabs(seconds_of(&c, OP_LOSS) / (logits / 1e5) - 1) < 1e-3);
	case_finish(&c);
}

static void as_cores(struct topology *topology, int64_t ranks)
{
	topology->device.kind = DEVICE_CPU;
	topology->device.generation = GENERATION_CPU;
	topology->shares_host = true;
	topology->host.cores = 8;
	topology->devices_per_node = ranks;
	topology->calibration = (struct calibration){.gemm_flops = 1e11, .memory_bandwidth = 1e10};
}

/* Every operation of the schedule, with the table over without; 1 for what the table lacks. */
static void check_factors(struct case_ *c, const double *factors, double all)
{
	static const enum op_kind kinds[] = {
#define X(suffix, name) [STEP_##suffix] = OP_##suffix,
		STEP_WORKS(X)
#undef X
	};
	struct calibration *calibration = &c->topology->calibration;
	const struct program *program = &c->schedule->programs[0];
	struct cost *before = ARENA_ARRAY(&c->arena, struct cost, program->n_ops);
	struct cost *after = ARENA_ARRAY(&c->arena, struct cost, program->n_ops);
	int n_steps = calibration->n_steps, seen = 0;

	cost_operations(c->schedule, 0, after);
	calibration->n_steps = 0;
	cost_operations(c->schedule, 0, before);
	calibration->n_steps = n_steps;
	for (int i = 0; i < program->n_ops; i++) {
		double factor = 1;

		for (int work = 0; work < STEP_WORK_COUNT; work++)
			if (kinds[work] == program->ops[i].kind) {
				factor = pow(factors[work], all);
				seen |= 1 << work;
			}
		assert_true(fabs(after[i].device - factor * before[i].device) <=
			    1e-12 * before[i].device);
		assert_true(fabs(after[i].memory - factor * before[i].memory) <=
			    1e-12 * before[i].memory);
		assert_true(fabs(after[i].arithmetic - factor * before[i].arithmetic) <=
			    1e-12 * before[i].arithmetic);
		assert_true(after[i].host == before[i].host);
	}
	assert_int_equal(seen, (1 << STEP_WORK_COUNT) - 1);
}

/* What was measured of real steps multiplies the work that it is named after, where it was
 * measured. */
static void test_steps_that_were_measured(void **state)
{
	static const char choices[] = "runtime=shardplan strategy=NO_SHARD seq_len=64 "
				      "activation_checkpointing=full param_dtype=bf16";
	static const struct calibration_step rows[] = {
		{STEP_MLP_PLAIN, DTYPE_FP32, STEP_THREADS_ALL, {9, 9, 9, 9, 9, 9, 9}},
		{STEP_MLP_PLAIN, DTYPE_BF16, STEP_THREADS_ONE, {1, 1, 1, 1, 1, 1, 1}},
		{STEP_MLP_PLAIN, DTYPE_BF16, STEP_THREADS_ALL, {1.1, 1.2, 1.3, 0.4, 1.5, 1.6, 0.7}},
		{STEP_MLP_GATED, DTYPE_BF16, STEP_THREADS_ALL, {7, 7, 7, 7, 7, 7, 7}},
	};
	static const struct {
		const char *model;
		int64_t ranks;
		double all;
		int row;
	} cases[] = {{"gpt2-124m", 1, 1, 2}, {"gpt2-124m", 2, 3.0 / 7, 2}, {"gpt2-124m", 8, 0, 2},
		{"llama-nano", 1, 1, 3}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		struct simulation_options options = {0};

		case_load(&c, cases[i].model, "dgx-a100-80gb");
		as_cores(c.topology, cases[i].ranks);
		for (int row = 0; row < COUNT_OF(rows); row++)
			assert_true(calibration_add_step(&c.topology->calibration, &rows[row]));
		case_plan(&c, choices);
		check_factors(&c, rows[cases[i].row].factors, cases[i].all);
		const struct prediction *p = case_simulate(&c, &options, false);
		assert_true(p->step_time >= p->plan_lower_bound);
		case_finish(&c);
	}
}

/* A GPU's steps are none of a CPU's; and nothing beats a bound that knows the factors. */
static void test_where_steps_do_not_count(void **state)
{
	struct calibration_step fast = {.dtype = DTYPE_FP32};
	struct simulation_options options = {0};
	struct case_ c;

	(void)state;
	for (int work = 0; work < STEP_WORK_COUNT; work++)
		fast.factors[work] = 0.01;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	case_plan(&c, "runtime=shardplan strategy=NO_SHARD param_dtype=fp32");
	double before = seconds_of(&c, OP_FORWARD);
	assert_true(calibration_add_step(&c.topology->calibration, &fast));
	assert_true(seconds_of(&c, OP_FORWARD) == before);
	as_cores(c.topology, 8);
	assert_true(calibration_add_step(&c.topology->calibration, &fast));
	case_plan(&c, "runtime=shardplan strategy=NO_SHARD seq_len=64 param_dtype=fp32");
	const struct prediction *p = case_simulate(&c, &options, false);
	assert_true(p->step_time >= p->plan_lower_bound && p->plan_lower_bound > 0);
	case_finish(&c);
}

/* Seconds of all backward operations of a micro-batch. */
static double backward_of(struct case_ *c, int micro_batch)
{
	const struct program *program = &c->schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c->arena, struct cost, program->n_ops);
	double seconds = 0;

	cost_operations(c->schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_BACKWARD &&
			program->ops[i].micro_batch == micro_batch)
			seconds += costs[i].device;
	return seconds;
}

/* On a core the second micro-batch's gradients are added to the first one's, which are read for
 * it; not where each micro-batch is reduced, nor (here) on a GPU. */
static void test_gradients_are_added(void **state)
{
	static const struct {
		const char *choices;
		bool cores;
		double reads; /* of all gradients */
	} cases[] = {{"sync_each_micro_batch=false", true, 1},
		{"sync_each_micro_batch=true", true, 0}, {"sync_each_micro_batch=false", false, 0}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		char choices[256];

		snprintf(choices, sizeof(choices),
			"runtime=shardplan strategy=NO_SHARD seq_len=64 param_dtype=fp32 "
			"micro_batch=1 grad_accum=2 %s",
			cases[i].choices);
		case_load(&c, "gpt2-124m", "dgx-a100-80gb");
		if (cases[i].cores)
			as_cores(c.topology, 8);
		case_plan(&c, choices);
		/* The tied embedding's comes from the head and from the table. */
		double elements = 124439808 + 50257 * 768.0;
		double more = cases[i].reads * 4 * elements / 1e10;
		assert_true(
			fabs(backward_of(&c, 1) - backward_of(&c, 0) - more) <= 1e-9 + 0.01 * more);
		case_finish(&c);
	}
}

/* Costs are remembered by content: every block must get what a block costs, also where blocks are
 * cut in pieces. */
static void test_equal_blocks_cost_the_same(void **state)
{
	struct case_ c;
	(void)state;
	case_load(&c, "llama-2-7b", "2xdgx-a100-80gb");
	case_plan(&c, "runtime=pytorch-fsdp1 wrap=size:50000000");
	const struct program *program = &c.schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c.arena, struct cost, program->n_ops);
	double total = 0;
	cost_operations(c.schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_FORWARD)
			total += costs[i].flops;
	/* 58.5 TFLOP for T = 4096 (tests/models/test_flops.c) */
	assert_true(fabs(total / 58.51e12 - 1) < 2e-3);
	case_finish(&c);
}

/* Seconds of that kind of operation on one A100, and its bytes. */
static double clip_cost(const char *choices, enum op_kind kind, int64_t *bytes)
{
	double seconds = 0;
	struct case_ c;

	case_load(&c, "gpt2-124m", "a100-pcie-8x");
	case_plan(&c, choices);
	const struct program *program = &c.schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c.arena, struct cost, program->n_ops);
	*bytes = 0;
	cost_operations(c.schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind) {
			seconds += costs[i].device;
			*bytes += program->ops[i].bytes;
		}
	case_finish(&c);
	return seconds;
}

/* The norm reads every gradient once, in any runtime; clipping reads and writes them where it is
 * not a factor that the update reads. */
static void test_clipping_costs_its_bytes(void **state)
{
	static const char ours[] = "runtime=shardplan strategy=NO_SHARD clip=1";
	static const char pytorch[] =
		"runtime=pytorch-fsdp2 strategy=FULL_SHARD shard_group=8 clip=1";
	const double bandwidth = 1.935e12; /* the datasheet's */
	int64_t bytes;
	(void)state;
	double seconds = clip_cost(ours, OP_GRADIENT_NORM, &bytes);

	assert_true(bytes > 4 * 124000000LL && bytes < 4 * 130000000LL);
	assert_true(
		seconds > (double)bytes / bandwidth && seconds < 1.3 * (double)bytes / bandwidth);
	seconds = clip_cost(pytorch, OP_CLIP_GRADIENTS, &bytes);
	assert_true(bytes > 8 * 124000000LL / 8 && bytes < 8 * 130000000LL / 8);
	assert_true(
		seconds > (double)bytes / bandwidth && seconds < 1.3 * (double)bytes / bandwidth);
	assert_true(clip_cost(ours, OP_CLIP_GRADIENTS, &bytes) < 10e-6);
	assert_true(bytes > 8 * 124000000LL);
}

/* DeepSpeed takes it of copies in eight bytes, one a parameter, which are written and read: 18
 * bytes for each element of a gradient in bf16. */
static void test_norm_of_copies(void **state)
{
	const double bandwidth = 1.935e12; /* the datasheet's */
	int64_t bytes;
	(void)state;
	double seconds = clip_cost(
		"runtime=deepspeed strategy=ZERO_1 seq_len=1024 clip=1", OP_GRADIENT_NORM, &bytes);
	double elements = (double)bytes / 4;

	assert_true(elements > 124e6 / 8 && elements < 130e6 / 8);
	assert_true(
		seconds > 18 * elements / bandwidth && seconds < 1.3 * 18 * elements / bandwidth);
}

/* All of one kind, or of every kind (-1). */
static struct cost sum_of(struct case_ *c, int kind)
{
	const struct program *program = &c->schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c->arena, struct cost, program->n_ops), sum = {0};

	cost_operations(c->schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++)
		if (kind < 0 || (int)program->ops[i].kind == kind) {
			sum.flops += costs[i].flops;
			sum.device += costs[i].device;
		}
	return sum;
}

/* The head in chunks is the same work, all of it in backward, in smaller products. */
static void test_chunked_head(void **state)
{
	struct cost whole[3], chunks[3];
	const int kinds[3] = {-1, OP_LOSS, OP_FORWARD};
	struct case_ c;

	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	for (int i = 0; i < 2; i++) {
		case_plan(&c, i == 0 ? "runtime=shardplan strategy=NO_SHARD micro_batch=16"
				     : "runtime=shardplan strategy=NO_SHARD micro_batch=16 "
				       "loss=fused-linear");
		for (int k = 0; k < 3; k++)
			(i == 0 ? whole : chunks)[k] = sum_of(&c, kinds[k]);
	}
	const double head = 2.0 * 16 * 1024 * 768 * 50257;
	assert_true(fabs(chunks[0].flops / whole[0].flops - 1) < 1e-12);
	assert_true(fabs((whole[2].flops - chunks[2].flops) / head - 1) < 1e-9);
	assert_true(whole[1].device > 0);
	assert_true(chunks[1].device == 0);
	assert_true(chunks[0].device > whole[0].device);
	assert_true(chunks[0].device < 1.02 * whole[0].device);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_saturation),
		cmocka_unit_test(test_a100_product),
		cmocka_unit_test(test_measured_products),
		cmocka_unit_test(test_chosen_products),
		cmocka_unit_test(test_thin_products_are_memory_bound),
		cmocka_unit_test(test_dtypes),
		cmocka_unit_test(test_no_calibration_has_a_prior),
		cmocka_unit_test(test_calibrated_core),
		cmocka_unit_test(test_threads_of_a_rank),
		cmocka_unit_test(test_choices_have_the_right_sign),
		cmocka_unit_test(test_eager_scores),
		cmocka_unit_test(test_liger),
		cmocka_unit_test(test_rates_of_a_core),
		cmocka_unit_test(test_steps_that_were_measured),
		cmocka_unit_test(test_where_steps_do_not_count),
		cmocka_unit_test(test_gradients_are_added),
		cmocka_unit_test(test_equal_blocks_cost_the_same),
		cmocka_unit_test(test_norm_of_copies),
		cmocka_unit_test(test_clipping_costs_its_bytes),
		cmocka_unit_test(test_chunked_head),
	};
	return cmocka_run_group_tests_name("simulator compute", tests, NULL, NULL);
}
