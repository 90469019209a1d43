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

/* --- what an earlier search knows --------------------------------------------------------------
 */

static void move_nic(struct question *question, struct topology *topology)
{
	(void)question;
	topology->network.nic_bandwidth /= 8;
}

static void move_latency(struct question *question, struct topology *topology)
{
	(void)question;
	topology->network.latency *= 16;
}

static void move_fabric(struct question *question, struct topology *topology)
{
	(void)question;
	topology->fabric.bandwidth /= 4;
}

static void move_nodes(struct question *question, struct topology *topology)
{
	(void)question;
	topology->nodes *= 4;
}

static void move_micro_batch(struct question *question, struct topology *topology)
{
	(void)topology;
	question_put(question, KNOB_MICRO_BATCH, (union knob_value){.number = 2});
}

static void move_accumulation(struct question *question, struct topology *topology)
{
	(void)topology;
	question_put(question, KNOB_GRAD_ACCUM, (union knob_value){.number = 3});
}

static void move_memory(struct question *question, struct topology *topology)
{
	(void)topology;
	question->memory_limit_bytes = INT64_C(120) << 30;
}

static void assert_same_bounds(const struct question *a, const struct question *b)
{
	const struct question *questions[] = {a, b};
	struct arena arena = {0};
	struct error error = {0};
	struct space spaces[2];
	struct bounds bounds[2];
	for (int i = 0; i < 2; i++) {
		assert_true(space_build(questions[i], &arena, &spaces[i], &error));
		bounds_build(questions[i], &spaces[i], &bounds[i]);
	}
	assert_int_equal(spaces[0].n, spaces[1].n);
	for (int i = 0; i < spaces[0].n; i++) {
		const struct bound *one = &bounds[0].of[i], *other = &bounds[1].of[i];
		assert_true(knobs_alike_but(0, &spaces[0].plans[i], &spaces[1].plans[i]));
		assert_int_equal(spaces[0].departures[i], spaces[1].departures[i]);
		for (int k = 0; k < 2; k++)
			bounds_complete(&bounds[k], &spaces[k], i);
		assert_same(one->time, other->time, 1e-12);
		assert_int_equal(one->memory, other->memory);
		assert_int_equal(one->host, other->host);
		assert_same(one->network, other->network, 1e-12);
	}
	for (int i = 0; i < 2; i++) {
		bounds_finish(&bounds[i]);
		space_finish(&spaces[i]);
	}
	arena_finish(&arena);
}

/* Searches of questions that differ in one value may use what stays as it is: their plans and
 * bounds are those that they would find themselves. */
static void test_what_stays(void **state)
{
	static const struct one {
		const char *model, *topology, *runtime, *axis, *ranks;
	} cases[] = {
		{"llama-2-7b", "2xdgx-a100-40gb", "pytorch-fsdp2", "tensor", "1"},
		{"llama-3-8b", "4xdgx-h100", "megatron", "tensor", "2"},
		{"llama-3-8b", "2xdgx-h100", "shardplan", "context", "2"},
		{"deepseek-v3", "16xdgx-h100", "megatron", "expert", "8"},
	};
	static const struct {
		bool space, sends;
		void (*move)(struct question *question, struct topology *topology);
	} moves[] = {{true, false, move_nic}, {true, false, move_latency},
		{true, false, move_fabric}, {false, false, move_nodes},
		{false, true, move_micro_batch}, {false, true, move_accumulation},
		{false, true, move_memory}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct question question = {.model = load_model(&arena, cases[i].model),
			.topology = load_topology(&arena, cases[i].topology)};
		struct space space;
		struct bounds bounds;
		SET_CHOICES(&question, &arena, "runtime", cases[i].runtime, cases[i].axis,
			cases[i].ranks, "seq_len", "2048");
		assert_true(space_build(&question, &arena, &space, &error));
		bounds_build(&question, &space, &bounds);
		bounds_complete_all(&bounds, &space);
		struct sampler *sampler = bounds_leave(&bounds);
		for (int m = 0; m < COUNT_OF(moves); m++) {
			struct topology topology = *question.topology;
			struct question alone = question, with;
			struct earlier earlier = {
				moves[m].space ? &space : NULL, sampler, moves[m].sends};
			alone.topology = &topology;
			moves[m].move(&alone, &topology);
			with = alone;
			with.earlier = &earlier;
			assert_same_bounds(&with, &alone);
		}
		sampler_free(sampler);
		bounds_finish(&bounds);
		space_finish(&space);
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
		cmocka_unit_test(test_what_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
