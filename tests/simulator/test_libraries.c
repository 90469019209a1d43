/* Named versions of libraries change a prediction, and narrow its interval. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cases.h"
#include "simulator/nccl/nccl.h"

static const struct prediction *predict(struct case_ *c, const char *words)
{
	const struct simulation_options options = {0};

	case_plan(c, words);
	return case_simulate(c, &options, false);
}

static double step(struct case_ *c, const char *words)
{
	return predict(c, words)->step_time;
}

static double width(struct case_ *c, const char *words)
{
	const struct prediction *p = predict(c, words);

	return log(p->step_time_high / p->step_time);
}

#define FSDP1 "runtime=pytorch-fsdp1 activation_checkpointing=full micro_batch=4 attention=flash2 "

/* cuBLAS before CUDA 11.8 takes longer for products, and for nothing else: a step grows by less
 * than its products do. CUDA goes before PyTorch. What was measured here knows its libraries. */
static void old_products_take_longer(void **state)
{
	struct case_ c;

	(void)state;
	case_load(&c, "llama-2-7b", "dgx-a100-80gb");
	double recent = step(&c, FSDP1);
	double slow = step(&c, FSDP1 "libraries=cuda:11.7");
	double old = step(&c, FSDP1 "libraries=pytorch:1.13.1");

	assert_true(slow > 1.02 * recent && slow < recent / 0.96);
	assert_float_equal(step(&c, FSDP1 "libraries=pytorch:1.13.1+cuda:11.7"), old, 1e-12);
	assert_float_equal(step(&c, FSDP1 "libraries=pytorch:2.0.1+cuda:11.8"), recent, 1e-12);
	assert_float_equal(step(&c, FSDP1 "libraries=pytorch:2.6+cuda:12.4"), recent, 1e-12);
	c.topology->calibration.measured = true;
	recent = step(&c, FSDP1);
	assert_float_equal(step(&c, FSDP1 "libraries=cuda:11.7"), recent, 1e-12);
	case_finish(&c);
}

/* PyTorch 2.1 calls the first generation of flash kernels, 2.2 the second. */
static void pytorch_brings_its_attention(void **state)
{
	static const char plan[] = "runtime=pytorch-fsdp1 seq_len=4096 ";
	struct case_ c;

	(void)state;
	case_load(&c, "llama-2-7b", "dgx-a100-80gb");
	double second = step(&c, "runtime=pytorch-fsdp1 seq_len=4096 attention=flash2");
	double first = step(&c, "runtime=pytorch-fsdp1 seq_len=4096 attention=flash1");
	struct text words = {0};

	text_printf(&words, "%slibraries=pytorch:2.1", plan);
	assert_float_equal(step(&c, text_string(&words)), first, 1e-12);
	text_clear(&words);
	text_printf(&words, "%slibraries=pytorch:2.2", plan);
	assert_float_equal(step(&c, text_string(&words)), second, 1e-12);
	assert_true(first > second);
	text_finish(&words);
	case_finish(&c);
}

static struct nccl_choice all_reduce(
	const struct topology *topology, int64_t ranks, const char *libraries)
{
	struct placement placement = topology_place(topology, ranks, 1);
	struct libraries versions;

	assert_true(libraries_read(libraries, &versions));
	return nccl_choose(
		topology, &versions, &placement, COLLECTIVE_ALL_REDUCE, INT64_C(1) << 30);
}

/* NVLink SHARP: from NCCL 2.17 in a node and 2.18 across, with CUDA 12.1, among more than two. */
static void nccl_has_what_its_version_has(void **state)
{
	static const struct {
		int64_t ranks;
		const char *libraries;
		bool sharp;
	} cases[] = {{8, "unknown", true}, {8, "nccl:2.17.1", true}, {8, "nccl:2.16.5", false},
		{8, "nccl:2.20+cuda:12.0", false}, {8, "nccl:2.20+cuda:12.1", true},
		{2, "unknown", false}, {16, "nccl:2.18.1", true}, {16, "nccl:2.17.1", false}};
	struct case_ c;

	(void)state;
	case_load(&c, "gpt2-nano", "2xdgx-h100");
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct nccl_choice choice =
			all_reduce(c.topology, cases[i].ranks, cases[i].libraries);
		bool sharp = choice.algorithm == NCCL_NVLS || choice.algorithm == NCCL_NVLS_TREE;

		if (sharp != cases[i].sharp)
			fail_msg("%d ranks, %s: %s", (int)cases[i].ranks, cases[i].libraries,
				nccl_algorithm_names[choice.algorithm]);
	}
	case_finish(&c);
}

/* Blackwell nodes: 32 multiprocessors before NCCL 2.28, 16 since. */
static void old_nccl_takes_more_multiprocessors(void **state)
{
	struct case_ c;

	(void)state;
	case_load(&c, "llama-2-7b", "2xdgx-b200");
	double recent = step(&c, "micro_batch=1 libraries=nccl:2.28.3");

	assert_true(step(&c, "micro_batch=1 libraries=nccl:2.27.7") > recent);
	assert_float_equal(step(&c, "micro_batch=1"), recent, 1e-12);
	case_finish(&c);
}

/* A context with all kernels: PyTorch 1.12. The next one's only has another NCCL. */
static void old_contexts_are_larger(void **state)
{
	static const char plan[] = "runtime=pytorch-ddp attention=eager micro_batch=1 ";
	struct case_ c;
	struct text words = {0};

	(void)state;
	case_load(&c, "gpt2-774m", "dgx-a100-80gb");
	int64_t lazy = predict(&c, plan)->peak_memory_bytes;

	text_printf(&words, "%slibraries=pytorch:1.12.1", plan);
	assert_int_equal(
		predict(&c, text_string(&words))->peak_memory_bytes - lazy, INT64_C(420) << 20);
	text_clear(&words);
	text_printf(&words, "%slibraries=pytorch:1.13", plan);
	assert_int_equal(
		predict(&c, text_string(&words))->peak_memory_bytes - lazy, INT64_C(400) << 20);
	text_finish(&words);
	case_finish(&c);
}

/* What is not stated counts in the interval: versions on both sides, torch.compile on the lower. */
static void unknown_versions_widen(void **state)
{
	struct case_ c;

	(void)state;
	case_load(&c, "llama-2-7b", "dgx-a100-80gb");
	double unknown = width(&c, FSDP1);
	double named = width(&c, FSDP1 "libraries=pytorch:2.6");

	assert_true(named < 0.95 * unknown);
	assert_float_equal(width(&c, FSDP1 "libraries=cuda:12.4"), unknown, 1e-12);

	const struct prediction on = *predict(&c, FSDP1 "compile=on");
	const struct prediction off = *predict(&c, FSDP1);
	const struct prediction either = *predict(&c, FSDP1 "libraries=compile:unknown");

	assert_float_equal(either.step_time, off.step_time, 1e-12);
	assert_float_equal(either.step_time_high, off.step_time_high, 1e-12);
	assert_true(either.step_time_low < 0.97 * off.step_time_low);
	assert_float_equal(either.step_time_low / on.step_time_low, 1, 0.02);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(old_products_take_longer),
		cmocka_unit_test(pytorch_brings_its_attention),
		cmocka_unit_test(nccl_has_what_its_version_has),
		cmocka_unit_test(old_nccl_takes_more_multiprocessors),
		cmocka_unit_test(old_contexts_are_larger),
		cmocka_unit_test(unknown_versions_widen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
