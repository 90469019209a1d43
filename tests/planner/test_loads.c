/* Loads that plans share are those that each would have alone. */
#include "support.h"

#include "planner/bounds/bounds.h"
#include "planner/bounds/sampler.h"
#include "schedule/resolve/resolve.h"

#include <math.h>
#include <stdlib.h>

static bool has_way(const struct plan *plan, int way)
{
	return plan_checkpoints(plan, (enum checkpointing)way);
}

static bool has_loss(const struct plan *plan, int loss)
{
	return (int)plan->loss == loss;
}

/* Sums in another order. */
static void assert_same(double a, double b, double rounding)
{
	assert_true(fabs(a - b) <= rounding * fabs(b));
}

/* Plans share what a knob does not change: bounds are those of a space with one of its values
 * alone. Of what is too large in any case, a bound may be that of a smaller micro-batch until it is
 * asked for. */
static int judge_alone(const struct question *question, const struct space *space,
	struct bounds *bounds, bool (*has)(const struct plan *plan, int value), int value,
	double rounding)
{
	struct space alone = *space;
	struct bounds its_own;
	int n_too_large = 0;
	alone.n = 0;
	alone.plans = calloc((size_t)space->n, sizeof(*alone.plans));
	for (int i = 0; i < space->n; i++)
		if (has(&space->plans[i], value))
			alone.plans[alone.n++] = space->plans[i];
	bounds_build(question, &alone, &its_own);
	for (int i = 0, k = 0; i < space->n; i++) {
		const struct bound *shared = &bounds->of[i], *own = &its_own.of[k];
		if (!has(&space->plans[i], value))
			continue;
		n_too_large += shared->memory > device_limit(question->topology, 0);
		assert_same(shared->time, own->time, rounding);
		assert_int_equal(shared->memory, own->memory);
		assert_true(shared->network == own->network);
		bounds_complete(bounds, space, i);
		bounds_complete(&its_own, &alone, k++);
		assert_same(shared->time, own->time, rounding);
		assert_int_equal(shared->memory, own->memory);
	}
	bounds_finish(&its_own);
	free(alone.plans);
	return n_too_large;
}

static void test_ways_to_checkpoint_share(void **state)
{
	static const struct one {
		const char *runtime, *knob, *value;
	} cases[] = {
		{"pytorch-fsdp2", "micro_batch", "8"},
		{"pytorch-fsdp2", "tensor", "2"},
		{"pytorch-fsdp1", "grad_accum", "2"},
		{"deepspeed", "micro_batch", "4"},
		{"shardplan", "activation_offload", "checkpoints"},
	};
	int n_too_large = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, "llama-2-7b"),
			.topology = load_topology(&arena, "2xdgx-a100-40gb")};
		struct space space;
		struct bounds bounds;
		struct error error = {0};
		set_choice(&question, &arena, "runtime", cases[i].runtime);
		set_choice(&question, &arena, cases[i].knob, cases[i].value);
		if (!space_build(&question, &arena, &space, &error))
			fail_msg("%s", error.message);
		bounds_build(&question, &space, &bounds);
		for (int way = 0; way < 3; way++)
			n_too_large += judge_alone(&question, &space, &bounds, has_way, way, 0);
		bounds_finish(&bounds);
		space_finish(&space);
		arena_finish(&arena);
	}
	assert_true(n_too_large > 10);
}

/* What a loss adds is read off plans whose blocks save something else. */
static void test_losses_share(void **state)
{
	static const char *const runtimes[] = {"pytorch-fsdp2", "megatron", "shardplan"};
	(void)state;
	for (int i = 0; i < COUNT_OF(runtimes); i++) {
		struct arena arena = {0};
		struct question question = {.model = load_model(&arena, "llama-3-8b"),
			.topology = load_topology(&arena, "2xdgx-h100"),
			.freed = KNOB_BIT(KNOB_LOSS) | KNOB_BIT(KNOB_ACTIVATION_OFFLOAD)};
		struct space space;
		struct bounds bounds;
		struct error error = {0};
		set_choice(&question, &arena, "runtime", runtimes[i]);
		set_choice(&question, &arena, "tensor", "2");
		if (!space_build(&question, &arena, &space, &error))
			fail_msg("%s", error.message);
		bounds_build(&question, &space, &bounds);
		for (int loss = 0; loss < LOSS_COUNT; loss++)
			judge_alone(&question, &space, &bounds, has_loss, loss, 1e-9);
		bounds_finish(&bounds);
		space_finish(&space);
		arena_finish(&arena);
	}
}

/* A load that was read off few blocks is that of the whole model; dense blocks come before. */
static void test_few_blocks(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct error error = {0};
	struct plan plan;
	struct question question = {.model = load_model(&arena, "deepseek-v3"),
		.topology = load_topology(&arena, "32xdgx-h100")};
	SET_CHOICES(&question, &arena, "runtime", "megatron", "expert", "8", "micro_batch", "1",
		"strategy", "ZERO_1");
	if (!plan_resolve(&question, &arena, &plan, &error))
		fail_msg("%s", error.message);
	struct sampler few = {.question = &question}, whole = few;
	struct load of_few, of_whole;
	sampler_make_few(&few);
	assert_non_null(few.few[0]);
	load_measure(&few, &plan, &of_few);
	load_measure(&whole, &plan, &of_whole);
	assert_same(of_few.compute, of_whole.compute, 1e-9);
	assert_same(of_few.issue, of_whole.issue, 1e-9);
	assert_same(of_few.exchanges, of_whole.exchanges, 1e-9);
	assert_same((double)of_few.saved, (double)of_whole.saved, 1e-9);
	assert_same(of_few.stages.saved, of_whole.stages.saved, 1e-9);
	assert_same(of_few.stages.blocks, of_whole.stages.blocks, 1e-9);
	divided_models_finish(&few.divided);
	divided_models_finish(&whole.divided);
	arena_finish(&few.models);
	arena_finish(&few.arena);
	arena_finish(&whole.arena);
	arena_finish(&arena);
}

static void assert_same_load(const struct load *a, const struct load *b, double rounding)
{
	assert_same(a->compute, b->compute, rounding);
	assert_same(a->issue, b->issue, rounding);
	assert_same(a->exchanges, b->exchanges, rounding);
	for (int s = 0; s < SHARES; s++)
		assert_same(a->cover[s], b->cover[s], rounding);
	assert_int_equal(a->saved, b->saved);
	assert_same(a->stages.blocks, b->stages.blocks, rounding);
	assert_same(a->stages.head, b->stages.head, rounding);
	assert_same(a->stages.embedding, b->stages.embedding, rounding);
	assert_same(a->stages.loss, b->stages.loss, rounding);
	assert_true(a->stages.saved == b->stages.saved);
}

/* Of plans that differ in the length of their pipelines one is measured. Others' stages have more
 * ranks or fewer, of which the slowest takes longer or not as long for what it computes, but not
 * for what it exchanges. */
static void test_lengths_share(void **state)
{
	static const struct one {
		const char *model, *topology, *tensor, *context, *expert;
	} cases[] = {
		{"llama-2-70b", "16xdgx-a100-80gb", "8", "1", "1"},
		{"llama-3-8b", "16xdgx-h100", "2", "2", "1"},
		{"deepseek-v3", "32xdgx-h100", "1", "1", "8"},
	};
	static const char *const lengths[] = {"2", "1", "4", "8"};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, cases[i].topology)};
		struct sampler sampler = {
			.question = &question, .no_load = knobs_of_role(KNOB_NO_LOAD)};
		struct plan plans[COUNT_OF(lengths)];
		double compute = INFINITY;
		SET_CHOICES(&question, &arena, "runtime", "megatron", "strategy", "ZERO_1",
			"tensor", cases[i].tensor, "context", cases[i].context, "expert",
			cases[i].expert, "micro_batch", "1", "grad_accum", "8");
		for (int k = 0; k < COUNT_OF(lengths); k++) {
			struct load own;
			set_choice(&question, &arena, "pipeline", lengths[k]);
			if (!plan_resolve(&question, &arena, &plans[k], &error))
				fail_msg("%s", error.message);
			const struct load *found = load_find(&sampler, &plans[k], INT64_MAX);
			load_measure(&sampler, &plans[k], &own);
			assert_same_load(found, &own, 1e-12);
			assert_true(found->exchanges > 0 && found->waits.blocks > 0);
			assert_true(k < 2 || found->compute < compute);
			compute = found->compute;
		}
		assert_int_equal(sampler.n_loads, 1);
		divided_models_finish(&sampler.divided);
		arena_finish(&sampler.arena);
		free(sampler.loads);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ways_to_checkpoint_share),
		cmocka_unit_test(test_losses_share),
		cmocka_unit_test(test_lengths_share),
		cmocka_unit_test(test_few_blocks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
