/* `calibrate` on fake GPUs: it must find just the rates (fake_some_rates) by which the fake clock
 * runs (fakes/cuda.h). */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "executor/calibration/gpu/bench.h"
#include "kernels/common/bf16.h"
#include "tests/executor/fakes/cuda.h"

enum { GPUS = 4 };

/* After a second of products without a pause they run at so much of their rate. */
#define HOT 0.9

static struct arena arena;
static struct topology *topology; /* described, then measured */
static int n_lines;
static char meeting[] = "calibrate-gpu-XXXXXX";

static struct text lines;

static void keep_line(const char *line, void *data)
{
	text_printf(&lines, "%s\n", line);
	++*(int *)data;
}

/* The line on cuDNN and that shape, and what follows. */
static const char *line_of(const char *what)
{
	char start[80];

	snprintf(start, sizeof(start), "cuDNN 91900, %s: ", what);
	const char *line = strstr(text_string(&lines), start);
	return line != NULL ? line : "no such line";
}

/* Once for all tests. */
static int calibrate(void **state)
{
	static const char text[] =
		"shardplan: topology/1\nname: gpus\nnodes: 1\ndevices_per_node: 4\n"
		"device:\n  name: fake\n  kind: gpu\n  generation: hopper\n  memory: 80GiB\n"
		"  memory_bandwidth: 3.3TB/s\n  fp32: 60TFLOPS\n  bf16: 900TFLOPS\n"
		"  multiprocessors: 4\n"
		"fabric:\n  kind: nvswitch\n  bandwidth: 300GB/s\n  latency: 3us\n"
		"network:\n  kind: none\n  oversubscription: 1\n"
		"host:\n  memory: 1TiB\n  memory_bandwidth: 100GB/s\n  cores: 64\n"
		"  pcie_bandwidth: 10MB/s\n  cpu: amd\n";
	const struct calibrate_options options = {
		.quick = true, .choose = true, .report = keep_line, .report_data = &n_lines};
	struct error error = {0};

	(void)state;
	/* Ranks are processes, which meet there. */
	assert_non_null(mkdtemp(meeting));
	setenv("FAKE_NCCL_FOLDER", meeting, 1);
	if (topology_parse(&arena, "gpus", text, strlen(text), &topology, &error) &&
		executor_calibrate_gpus(&options, &arena, topology, &error))
		return 0;
	print_error("%s\n", error.message);
	return 1;
}

static int forget(void **state)
{
	char remove[64];

	(void)state;
	snprintf(remove, sizeof(remove), "rm -rf %s", meeting);
	assert_int_equal(system(remove), 0);
	arena_finish(&arena);
	text_finish(&lines);
	return 0;
}

static void expect(const char *what, double measured, double set, double tolerance)
{
	if (!(fabs(measured / set - 1) < tolerance))
		fail_msg("%s: measured %g, the machine has %g", what, measured, set);
}

static void rates_are_found(void **state)
{
	const struct calibration *c = &topology->calibration;

	(void)state;
	assert_true(c->measured);
	expect("products", c->gemm_flops, fake_some_rates.gemm, 1e-3);
	expect("half of k", c->gemm_half_k, fake_some_rates.half_k, 0.02);
	expect("sustained clock", c->sustained_clock, HOT, 1e-2);
	/* Nothing is by chance here; it takes no part in what a machine is measured as. */
	assert_true(c->sustained_spread < 1e-3);
	expect("attention", c->attention_forward_flops, fake_some_rates.attention, 1e-3);
	expect("attention backward", c->attention_backward_flops,
		fake_some_rates.attention_backward, 1e-3);
	expect("memory", c->memory_bandwidth, fake_some_rates.memory, 1e-2);
	/* Seven arrays by what AdamW does; the fake counts the three that are written once. */
	expect("AdamW", c->optimizer_bandwidth, fake_some_rates.memory * 7 / 4, 1e-2);
	expect("a kernel", c->kernel_overhead, fake_some_rates.kernel, 1e-2);
	/* An event before, a kernel, an event behind. */
	expect("an operation", c->host_overhead, 3 * fake_some_rates.issue, 1e-2);
	expect("PCIe", topology->host.pcie_bandwidth, fake_some_rates.from, 1e-2);
	/* Not what the datasheet says. */
	assert_true(topology->device.memory_bytes == FAKE_DRY_MEMORY);
	/* Products, attention twice, and so on. */
	assert_true(n_lines > 20);
	assert_non_null(strstr(c->provenance, "4 x fake"));
	assert_non_null(strstr(c->provenance, "CUDA 12.8 of the driver"));
	assert_non_null(strstr(c->provenance, "NCCL 2.28.9"));
	assert_int_equal(strlen(c->date), 20);
}

/* The products of every layer are kept by shape: what the machine takes for each, the launch
 * included. */
static void products_are_kept(void **state)
{
	const struct calibration *c = &topology->calibration;

	(void)state;
	assert_true(c->n_products > 30);
	for (int i = 0; i < c->n_products; i++) {
		const struct calibration_product *p = &c->products[i];
		double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
		double deep =
			flops * (1 + fake_some_rates.half_k / (double)p->k) / fake_some_rates.gemm;

		expect("a product", flops / p->flops, deep + fake_some_rates.kernel, 1e-2);
	}
}

/* The machine's second way is worth it for what is deep, its third one is refused. */
static void choices_are_made(void **state)
{
	const struct calibration *c = &topology->calibration;
	int deep = 0;

	(void)state;
	assert_int_equal(c->choices_library, 130100);
	for (int i = 0; i < c->n_choices; i++) {
		const struct calibration_choice *choice = &c->choices[i];

		assert_int_equal(choice->dtype, DTYPE_BF16);
		assert_int_equal(choice->result,
			choice->form == PRODUCT_WEIGHT_GRADIENT ? DTYPE_FP32 : DTYPE_BF16);
		assert_true(choice->k >= 4096);
		assert_int_equal(choice->algorithm, 11);
		assert_int_equal(choice->tile, 21);
		assert_int_equal(choice->cluster, 7);
		expect("gain", choice->gain, 1.25, 0.02);
	}
	for (int i = 0; i < c->n_products; i++) {
		const struct calibration_product *p = &c->products[i];
		bool chosen = p->dtype == DTYPE_BF16 && p->k >= 4096;

		deep += chosen;
		if (!chosen)
			assert_true(p->chosen_flops == 0);
		else
			expect("by choice", p->chosen_flops, 1.25 * p->flops, 0.02);
	}
	/* Of those with equal m, n and k, one may have another form. */
	assert_true(deep > 10 && c->n_choices >= deep);
}

/* That it ends so. */
static void expect_line(const char *what, const char *why)
{
	const char *line = line_of(what), *end = strchr(line, '\n');
	int64_t length = end != NULL ? end + 1 - line : 0, tail = (int64_t)strlen(why);

	if (length < tail || strncmp(line + length - tail, why, (size_t)tail) != 0)
		fail_msg("%.*s", (int)length, line);
}

/* Faster, and as right as ours in all that is compared; nothing else (fakes/attention.c). */
static void attention_is_chosen(void **state)
{
	static const struct calibration_attention expected[] = {
		{64, 1024, ATTENTION_IS_FORWARD, 1.3, 2, 7, 1, 0, 0, 2, 0, 0},
		{64, 1024, ATTENTION_IS_BACKWARD, 1.4, 2, 7, 1, 0, 0, 2, 0, (2 << 20) + 1024},
		{128, 2048, ATTENTION_IS_FORWARD, 1.25, 2, 7, 1, 0, 0, 2, 0, 0}};
	static const struct {
		const char *what, *why;
	} said[] = {
		{"1024 tokens, heads of 64", " % of our speed\n"},
		{"2048 tokens, heads of 64", "does not give our result: not taken\n"},
		{"4096 tokens, heads of 64", "does not give our log-sum-exp: not taken\n"},
		{"8192 tokens, heads of 64", "does not repeat its bits: not taken\n"},
		{"1024 tokens, heads of 128", " % of our speed: not taken\n"},
		{"2048 tokens, heads of 128", " % of our speed\n"},
		{"4096 tokens, heads of 128", "no way to do it here\n"},
		{"1024 tokens, heads of 64, backward", " % of our speed\n"},
		{"2048 tokens, heads of 64, backward", "does not give our gradients: not taken\n"},
		{"4096 tokens, heads of 64, backward", "does not repeat its bits: not taken\n"},
		{"8192 tokens, heads of 64, backward",
			"not compared: there is no room: not taken\n"},
		{"1024 tokens, heads of 128, backward", " % of our speed: not taken\n"},
	};
	const struct calibration *c = &topology->calibration;

	(void)state;
	assert_int_equal(c->attention_library, 91900);
	assert_int_equal(c->n_attention, COUNT_OF(expected));
	for (int i = 0; i < c->n_attention; i++) {
		struct calibration_attention found = c->attention[i];

		expect("gain", found.gain, expected[i].gain, 0.01);
		found.gain = expected[i].gain;
		assert_true(fields_equal(calibration_attention_fields, &found, &expected[i]));
	}
	for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		expect_line(said[i].what, said[i].why);
}

/* What rounding explains, what it does not, and what is no number. */
static void likeness_is_judged(void **state)
{
	enum { D = 8, N = 2 };
	uint16_t ours[N * D], theirs[N * D];
	float sums[] = {3.0f, 70000.0f}, others[] = {3.001f, 70000.5f};

	(void)state;
	for (int i = 0; i < N * D; i++) {
		ours[i] = bf16_from_float(i < D ? 1.0f + (float)i / 16 : 1e-3f);
		theirs[i] = (uint16_t)(ours[i] + i % 2);
	}
	assert_true(gpu_attention_agrees(ours, ours, N, D, 0));
	assert_true(gpu_attention_agrees(ours, theirs, N, D, 0));
	/* Small against other vectors, and large against its own. */
	theirs[D + 3] = bf16_from_float(1.1e-3f);
	assert_false(gpu_attention_agrees(ours, theirs, N, D, 0));
	assert_true(gpu_attention_agrees(ours, theirs, N, D, 1));
	theirs[D + 3] = 0x7fc0;
	assert_false(gpu_attention_agrees(ours, theirs, N, D, 1));
	assert_false(gpu_attention_agrees(ours, theirs, N, D, 0));
	memset(theirs, 0, sizeof(theirs));
	assert_false(gpu_attention_agrees(ours, theirs, N, D, 0));
	assert_true(gpu_sums_agree(sums, others, 2));
	others[0] = 3.01f;
	assert_false(gpu_sums_agree(sums, others, 2));
	others[0] = NAN;
	assert_false(gpu_sums_agree(sums, others, 2));
}

static double rate_of(enum calibration_kernel_kind kernel, int64_t width, int64_t length)
{
	const struct calibration *c = &topology->calibration;
	const struct calibration_kernel key = {kernel, DTYPE_BF16, width, length, 0};

	for (int i = 0; i < c->n_kernels; i++)
		if (fields_order(calibration_kernel_fields, &c->kernels[i], &key) == 0)
			return c->kernels[i].rate;
	fail_msg("no %s of width %d", calibration_kernel_names[kernel], (int)width);
	return 0;
}

/* Attention by what it computes, the rest by the bytes that it touches. */
static void kernels_are_rated(void **state)
{
	static const struct {
		enum calibration_kernel_kind kernel;
		int64_t width;
		double bytes; /* an element */
	} moved[] = {
		{KERNEL_LAYERNORM, 768, 4},
		{KERNEL_LAYERNORM_BACKWARD, 1600, 6},
		{KERNEL_RMSNORM, 4096, 4},
		{KERNEL_RMSNORM_BACKWARD, 768, 6},
		{KERNEL_ROPE, 128, 2},
		{KERNEL_GELU, 0, 4},
		{KERNEL_GELU_BACKWARD, 0, 6},
		{KERNEL_SWIGLU, 0, 6},
		{KERNEL_SWIGLU_BACKWARD, 0, 10},
		{KERNEL_BIAS_BACKWARD, 4096, 2},
		{KERNEL_CROSS_ENTROPY, 32000, 2},
		{KERNEL_CROSS_ENTROPY, 50257, 2},
	};

	(void)state;
	for (int64_t length = 1024; length <= 4096; length *= 2)
		for (int64_t d = 64; d <= 128; d *= 2) {
			double gain = d == 64 && length == 1024    ? 1.3
				      : d == 128 && length == 2048 ? 1.25
								   : 1;

			/* As it will be done. */
			expect("attention", rate_of(KERNEL_ATTENTION, d, length),
				gain * fake_some_rates.attention, 1e-2);
			expect("its backward", rate_of(KERNEL_ATTENTION_BACKWARD, d, length),
				(d == 64 && length == 1024 ? 1.4 : 1) *
					fake_some_rates.attention_backward,
				1e-2);
		}
	for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++)
		expect(calibration_kernel_names[moved[i].kernel],
			rate_of(moved[i].kernel, moved[i].width, 0) * moved[i].bytes,
			fake_some_rates.memory,
			/* The fake reads and writes all of the workspace too. */
			strstr(calibration_kernel_names[moved[i].kernel], "_backward") ? 0.3
										       : 0.05);
	/* The table besides, which the fake reads as a whole. */
	assert_true(rate_of(KERNEL_EMBEDDING, 768, 0) > 0);
	assert_true(rate_of(KERNEL_EMBEDDING_BACKWARD, 768, 0) > 0);
	expect("squares", topology->calibration.gradient_norm_rate * 4, fake_some_rates.memory,
		1e-2);
}

static void collectives_are_fitted(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++)
		for (int ranks = 2; ranks <= GPUS; ranks *= 2)
			for (int64_t bytes = 1 << 16; bytes <= 1 << 28; bytes *= 8) {
				const struct calibration_collective *piece =
					calibration_find(&topology->calibration,
						(enum collective_kind)kind, ranks, 1, bytes);

				assert_non_null(piece);
				expect("a collective",
					piece->latency + (double)bytes / piece->bandwidth,
					fake_some_rates.link_latency +
						(double)bytes / fake_some_rates.link,
					1e-2);
			}
	/* Two groups, three kinds, a piece between each two sizes. */
	assert_int_equal(topology->calibration.n_collectives, 2 * 3 * 3);
}

/* What is written is what a topology file has: it is read again as it was. */
static void the_file_is_a_topology(void **state)
{
	struct topology *again;
	struct error error = {0};
	struct text yaml = {0};

	(void)state;
	topology_print(topology, WRITER_YAML, &yaml);
	if (!topology_parse(&arena, "again", text_string(&yaml), yaml.length, &again, &error))
		fail_msg("%s", error.message);
	expect("products, read again", again->calibration.gemm_flops,
		topology->calibration.gemm_flops, 1e-12);
	assert_int_equal(again->calibration.n_collectives, topology->calibration.n_collectives);
	assert_int_equal(again->calibration.n_products, topology->calibration.n_products);
	for (int i = 0; i < again->calibration.n_products; i++) {
		const struct calibration_product *p = &again->calibration.products[i];

		assert_int_equal(p->m, topology->calibration.products[i].m);
		assert_int_equal(p->k, topology->calibration.products[i].k);
		assert_true(p->flops == topology->calibration.products[i].flops);
		assert_true(p->chosen_flops == topology->calibration.products[i].chosen_flops);
	}
	assert_int_equal(again->calibration.n_choices, topology->calibration.n_choices);
	assert_int_equal(again->calibration.choices_library, 130100);
	for (int i = 0; i < again->calibration.n_choices; i++)
		assert_true(fields_equal(calibration_choice_fields, &again->calibration.choices[i],
			&topology->calibration.choices[i]));
	assert_int_equal(again->calibration.attention_library, 91900);
	assert_int_equal(again->calibration.n_attention, topology->calibration.n_attention);
	for (int i = 0; i < again->calibration.n_attention; i++)
		assert_true(fields_equal(calibration_attention_fields,
			&again->calibration.attention[i], &topology->calibration.attention[i]));
	assert_int_equal(again->calibration.n_kernels, topology->calibration.n_kernels);
	assert_string_equal(again->calibration.provenance, topology->calibration.provenance);
	text_finish(&yaml);
}

/* What was measured has no other origin; its neighbours of a longer name keep theirs. */
static void origins_are_forgotten(void **state)
{
	struct provenance all[] = {{"device.memory", "a"}, {"device.memory_bandwidth", "b"},
		{"network", "c"}, {"network.latency", "d"}, {"networks", "e"}};
	struct topology t = {.provenance = all, .n_provenance = COUNT_OF(all)};

	(void)state;
	bench_forget_origin(&t, "device.memory");
	bench_forget_origin(&t, "network");
	assert_int_equal(t.n_provenance, 2);
	assert_string_equal(t.provenance[0].key, "device.memory_bandwidth");
	assert_string_equal(t.provenance[1].key, "networks");
}

int main(int argc, char **argv)
{
	struct fake_rates rates = fake_some_rates;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(origins_are_forgotten),
		cmocka_unit_test(rates_are_found),
		cmocka_unit_test(products_are_kept),
		cmocka_unit_test(choices_are_made),
		cmocka_unit_test(attention_is_chosen),
		cmocka_unit_test(likeness_is_judged),
		cmocka_unit_test(kernels_are_rated),
		cmocka_unit_test(collectives_are_fitted),
		cmocka_unit_test(the_file_is_a_topology),
	};

	fake_cuda_install(GPUS, 1);
	fake_nccl_install();
	setenv("FAKE_CUDNN_VERSION", "91900", 1);
	rates.hot = HOT;
	rates.hot_after = 1;
	fake_clock_start(&rates);
	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, calibrate, forget);
}
