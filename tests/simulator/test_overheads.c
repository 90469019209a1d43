/* Overheads of the topology file replace the runtime's, to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/simulator/cases.h"

#define MIB (INT64_C(1) << 20)

/* Outside of what the allocator reserves: context and communicators. */
static int64_t outside(const struct prediction *p)
{
	return p->peak_memory_bytes - p->peak_reserved_bytes;
}

static struct prediction predicted(
	struct case_ *c, const char *choices, const struct overheads *overheads)
{
	const struct simulation_options options = {0};
	c->topology->overheads = *overheads;
	case_plan(c, choices);
	return *case_simulate(c, &options, false);
}

/* A shard group: one. Hybrid: the replicas' besides. Ours: gathers and reductions apart. */
static const struct {
	const char *topology, *choices;
	int communicators;
} cases[] = {
	{"dgx-a100-80gb", "runtime=pytorch-fsdp1 strategy=FULL_SHARD", 1},
	{"dgx-a100-80gb", "runtime=pytorch-ddp strategy=NO_SHARD", 1},
	{"2xdgx-a100-80gb", "runtime=pytorch-fsdp1 strategy=HYBRID_SHARD", 2},
	{"2xdgx-a100-80gb", "runtime=pytorch-fsdp2 strategy=HYBRID_SHARD", 2},
	{"dgx-a100-80gb", "runtime=shardplan strategy=FULL_SHARD", 2},
};

static void test_given_replaces(void **state)
{
	const struct overheads usual = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct case_ c;
		case_load(&c, "gpt2-124m", cases[i].topology);
		struct prediction before = predicted(&c, cases[i].choices, &usual);
		const struct runtime *runtime = runtime_of(c.plan.runtime);
		assert_int_equal(outside(&before),
			runtime->context_bytes + runtime->nccl_bytes +
				cases[i].communicators * runtime->communicator_bytes);
		for (int64_t bytes = 1; bytes < 2048 * MIB; bytes = bytes * 31 + 7) {
			const struct overheads both = {bytes, 3 * bytes, 0};
			const struct overheads context = {bytes, 0, 0};
			struct prediction p = predicted(&c, cases[i].choices, &both);
			assert_int_equal(outside(&p), bytes + cases[i].communicators * 3 * bytes);
			assert_int_equal(p.peak_reserved_bytes, before.peak_reserved_bytes);
			assert_true(p.step_time == before.step_time);
			assert_int_equal(p.memory_at_peak[CATEGORY_RUNTIME_OVERHEAD] -
						 before.memory_at_peak[CATEGORY_RUNTIME_OVERHEAD],
				outside(&p) - outside(&before));
			p = predicted(&c, cases[i].choices, &context);
			assert_int_equal(
				outside(&p) - outside(&before), bytes - runtime->context_bytes);
		}
		case_finish(&c);
	}
}

/* NCCL connected more than it used until 2.22, whatever it came with; a topology knows better. */
static void test_older_nccl_takes_more(void **state)
{
	static const struct {
		const char *libraries, *strategy;
		int64_t mib; /* 0: as without a version */
		int communicators;
	} versions[] = {
		{"nccl:2.21.5", "FULL_SHARD", 688, 1},
		{"pytorch:2.6", "FULL_SHARD", 688, 1},
		{"nccl:2.22.3", "FULL_SHARD", 0, 1},
		{"pytorch:2.7", "FULL_SHARD", 0, 1},
		/* Groups of four, and of two replicas. */
		{"nccl:2.18.1", "HYBRID_SHARD shard_group=4", 688 + 544, 2},
	};
	const struct overheads usual = {0}, given = {0, 77 * MIB, 0};
	const struct runtime *runtime = runtime_of(RUNTIME_PYTORCH_FSDP1);
	struct case_ c;

	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	for (int i = 0; i < COUNT_OF(versions); i++) {
		char choices[160];
		int64_t expected =
			versions[i].mib > 0 ? versions[i].mib * MIB : runtime->communicator_bytes;

		snprintf(choices, sizeof(choices), "runtime=pytorch-fsdp1 strategy=%s libraries=%s",
			versions[i].strategy, versions[i].libraries);
		struct prediction p = predicted(&c, choices, &usual);
		assert_int_equal(outside(&p), runtime->context_bytes + expected);
		p = predicted(&c, choices, &given);
		assert_int_equal(
			outside(&p), runtime->context_bytes + versions[i].communicators * 77 * MIB);
	}
	case_finish(&c);
}

/* A workspace is a buffer of its own: allocated as long as the step, below temporary buffers. */
static void test_workspace_is_allocated(void **state)
{
	struct case_ c;
	struct overheads one = {.workspace_bytes = 8519680};
	const char *choices = "runtime=pytorch-fsdp1 strategy=FULL_SHARD";
	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	struct prediction usual = predicted(&c, choices, &(struct overheads){0});
	struct prediction same = predicted(&c, choices, &one);
	assert_int_equal(usual.peak_memory_bytes, same.peak_memory_bytes);
	for (int64_t more = 512; more < 512 * MIB; more *= 8) {
		one.workspace_bytes = 8519680 + more;
		struct prediction p = predicted(&c, choices, &one);
		assert_int_equal(p.peak_allocated_bytes - usual.peak_allocated_bytes, more);
		assert_int_equal(p.memory_at_peak[CATEGORY_TEMPORARY_BUFFERS] -
					 usual.memory_at_peak[CATEGORY_TEMPORARY_BUFFERS],
			more);
		assert_int_equal(outside(&p), outside(&usual));
	}
	case_finish(&c);
}

/* What fits without it does not with it, and the boundary is where it should be. */
static void test_it_decides_what_fits(void **state)
{
	struct case_ c;
	const char *choices = "runtime=pytorch-fsdp1 strategy=FULL_SHARD";
	(void)state;
	case_load(&c, "gpt2-124m", "dgx-a100-80gb");
	struct prediction usual = predicted(&c, choices, &(struct overheads){0});
	int64_t context = runtime_of(RUNTIME_PYTORCH_FSDP1)->context_bytes;
	int64_t room = usual.memory_limit_bytes - usual.peak_memory_bytes;
	assert_int_equal(usual.fits, FITS_YES);
	usual = predicted(&c, choices, &(struct overheads){.context_bytes = context + room});
	assert_int_equal(usual.fits, FITS_YES);
	usual = predicted(&c, choices, &(struct overheads){.context_bytes = context + room + 1});
	assert_int_not_equal(usual.fits, FITS_YES);
	case_finish(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_given_replaces),
		cmocka_unit_test(test_older_nccl_takes_more),
		cmocka_unit_test(test_workspace_is_allocated),
		cmocka_unit_test(test_it_decides_what_fits),
	};
	return cmocka_run_group_tests_name("simulator overheads", tests, NULL, NULL);
}
