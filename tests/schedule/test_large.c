/* Large questions: every byte is exact, checked against 128-bit arithmetic that shares no code. */
#include "schedule/laws/laws.h"
#include "schedule/memory/memory.h"
#include "support.h"

#ifdef __SIZEOF_INT128__
__extension__ typedef __int128 wide;
#else
typedef int64_t wide; /* 32-bit: the 64-bit run has shown that nothing overflows */
#endif

static int64_t narrow(wide value)
{
	assert_true(value >= 0 && (wide)(int64_t)value == value);
	return (int64_t)value;
}

/* --- 405B parameters -----------------------------------------------------------------------------
 */

enum { HIDDEN = 16384, FFN = 53248, KV_HEADS = 8, HEAD_DIM = 128, VOCAB = 128256, LAYERS = 126 };

static wide block_parameters(void)
{
	wide attention = 2 * (wide)HIDDEN * HIDDEN + 2 * (wide)HIDDEN * KV_HEADS * HEAD_DIM;
	return attention + 3 * (wide)HIDDEN * FFN + 2 * (wide)HIDDEN;
}

static wide root_parameters(void)
{
	return 2 * (wide)VOCAB * HIDDEN + HIDDEN;
}

static struct sample large(struct arena *arena, const char *topology, const char *runtime,
	const char *strategy, const char *more)
{
	struct sample sample = {
		.model = preset_model(arena, "llama-3-405b"), .topology = cluster(arena, topology)};
	sample.plan = toy_plan(arena, sample.model, sample.topology,
		arena_printf(arena, "runtime=%s", runtime),
		arena_printf(arena, "strategy=%s", strategy), more, NULL);
	sample.schedule = toy_schedule(arena, &sample.plan, sample.model, sample.topology);
	return sample;
}

static wide payload(const struct schedule *schedule, enum op_kind kind)
{
	const struct program *program = &schedule->programs[0];
	wide total = 0;
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == kind)
			total += program->ops[i].bytes;
	return total;
}

/* 2048 GPUs: all sizes divide, so the formulas hold to the byte. */
static void test_405b(void **state)
{
	(void)state;
	struct arena arena = {0};
	wide B = block_parameters(), R = root_parameters(), P = LAYERS * B + R;
	struct sample full =
		large(&arena, "256xdgx-a100-80gb", "pytorch-fsdp1", "FULL_SHARD", NULL);
	assert_int_equal(full.model->parameter_count, narrow(P));
	assert_int_equal(full.plan.mesh.shard, 2048);
	assert_int_equal(full.schedule->programs->n_units, LAYERS + 1);
	assert_int_equal(payload(full.schedule, OP_ALL_GATHER), narrow(2 * (2 * P - R)));
	assert_int_equal(payload(full.schedule, OP_REDUCE_SCATTER), narrow(4 * P));
	struct model_states states = schedule_model_states(full.schedule, 0);
	assert_int_equal(states.parameters, narrow(4 * P / 2048));
	assert_int_equal(states.optimizer_state, narrow(8 * P / 2048));
	assert_int_equal(states.gradients, narrow(4 * P / 2048));
	struct sample hybrid =
		large(&arena, "256xdgx-a100-80gb", "pytorch-fsdp2", "HYBRID_SHARD", NULL);
	assert_int_equal(hybrid.plan.mesh.replicate, 256);
	assert_int_equal(payload(hybrid.schedule, OP_ALL_REDUCE), narrow(4 * P / 8));
	struct sample ddp = large(&arena, "256xdgx-a100-80gb", "pytorch-ddp", "NO_SHARD", NULL);
	assert_int_equal(payload(ddp.schedule, OP_ALL_REDUCE), narrow(4 * P));
	states = schedule_model_states(ddp.schedule, 0);
	assert_int_equal(
		states.parameters + states.gradients + states.optimizer_state, narrow(16 * P));
	arena_finish(&arena);
}

/* Sixteen micro-batches of it: one flat list, still valid, still the same peak of gradients. */
static void test_405b_accumulated(void **state)
{
	(void)state;
	struct arena arena = {0};
	wide B = block_parameters(), R = root_parameters(), P = LAYERS * B + R;
	struct sample sample =
		large(&arena, "256xdgx-a100-80gb", "shardplan", "FULL_SHARD", "grad_accum=16");
	struct error error = {0};
	assert_true(schedule_validate(sample.schedule, &error));
	assert_in_range(sample.schedule->programs[0].n_ops, 16 * 8 * LAYERS, 16 * 16 * LAYERS);
	assert_int_equal(payload(sample.schedule, OP_REDUCE_SCATTER), narrow(16 * 4 * P));
	arena_finish(&arena);
}

/* --- a million ranks -----------------------------------------------------------------------------
 */

/* FlatParameter over 10^6 ranks, bf16: parameters in registration order start at multiples of 8
 * elements, the sum is rounded up to the ranks. */
static wide flat_unit(const struct model *model, const struct unit *unit, int64_t ranks)
{
	wide end = 0;
	for (int p = 0; p < model->n_parameters; p++) {
		int module = model->parameters[p].module;
		bool block =
			unit->module > 0 && module >= unit->module && module < unit->end_module;
		bool root = unit->module == 0 && model->modules[module].layer < 0;
		if (block || root)
			end = (end + 7) / 8 * 8 + model->parameters[p].elements;
	}
	return (end + ranks - 1) / ranks * ranks;
}

static wide row_unit(const struct model *model, const struct unit *unit, int64_t ranks)
{
	wide total = 0;
	for (int i = 0; i < unit->n_slices; i++) {
		const struct parameter *p = &model->parameters[unit->slices[i].parameter];
		wide rows = ((wide)p->shape[0] + ranks - 1) / ranks * ranks;
		total += rows * (p->n_dims == 2 ? p->shape[1] : 1);
	}
	return total;
}

static void test_million_ranks(void **state)
{
	(void)state;
	static const char *const runtimes[] = {"pytorch-fsdp1", "pytorch-fsdp2"};
	for (int r = 0; r < 2; r++) {
		struct arena arena = {0};
		struct sample sample =
			large(&arena, "125000xdgx-a100-80gb", runtimes[r], "FULL_SHARD", NULL);
		const int64_t ranks = 1000000;
		wide gathered = 0;
		assert_int_equal(sample.plan.mesh.shard, ranks);
		for (int u = 0; u < sample.schedule->programs->n_units; u++) {
			const struct unit *unit = &sample.schedule->programs->units[u];
			wide expected = r == 0 ? flat_unit(sample.model, unit, ranks)
					       : row_unit(sample.model, unit, ranks);
			assert_int_equal(unit->gathered, narrow(expected));
			assert_int_equal(unit->chunk, narrow(expected / ranks));
			gathered += expected * (u > 0 ? 2 : 1);
		}
		assert_int_equal(payload(sample.schedule, OP_ALL_GATHER), narrow(2 * gathered));
		arena_finish(&arena);
	}
}

/* One rank more than there may be is refused where the topology is made; a group over nodes that do
 * not divide is refused here. */
static void test_million_ranks_hybrid(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct error error = {0};
	struct topology *topology;
	struct sample sample =
		large(&arena, "125000xdgx-a100-80gb", "shardplan", "HYBRID_SHARD", NULL);
	assert_int_equal(sample.plan.mesh.replicate, 125000);
	assert_int_equal(sample.plan.global_batch, 1000000);
	assert_false(topology_load_name(&arena, "125001xdgx-a100-80gb", &topology, &error));
	arena_finish(&arena);
}

/* --- boundary rows -------------------------------------------------------------------------------
 */

/* Units of 2^31, 2^32, 2^53 elements and their neighbours, on awkward numbers of ranks. */
static void test_boundaries(void **state)
{
	(void)state;
	static const int64_t centres[] = {
		INT64_C(1) << 31, INT64_C(1) << 32, INT64_C(1) << 40, INT64_C(1) << 53};
	static const int64_t counts[] = {1, 2, 3, 7, 8, 1000, 1023, 65537, 999983, 1000000};
	int rows = 0;
	for (int c = 0; c < COUNT_OF(centres); c++)
		for (int d = -2; d <= 2; d++)
			for (int k = 0; k < COUNT_OF(counts); k++, rows++) {
				struct arena arena = {0};
				struct unit *units;
				struct model *model = toy_model(&arena, 1, false);
				struct plan plan =
					toy_plan(&arena, model, gpu_cluster(&arena, 1, 1), NULL);
				int64_t elements = centres[c] + d, ranks = counts[k];
				for (int p = 1; p <= 4; p++)
					model->parameters[p].elements =
						model->parameters[p].shape[0] = 8;
				model->parameters[4].elements = model->parameters[4].shape[0] =
					elements;
				model->parameters[4].n_dims = 1;
				plan.runtime = RUNTIME_PYTORCH_FSDP1;
				plan.mesh.shard = ranks;
				units_build(&plan, model, &arena, &units);
				wide padded = ((wide)24 + elements + ranks - 1) / ranks * ranks;
				assert_int_equal(units[1].gathered, narrow(padded));
				assert_int_equal(units[1].chunk, narrow(padded / ranks));
				assert_int_equal(units[1].parameters, narrow((wide)24 + elements));
				arena_finish(&arena);
			}
	assert_int_equal(rows, 200);
}

/* The wire formula on payloads past 2^53: relative error of a double, no more. */
static void test_wire_precision(void **state)
{
	(void)state;
	uint64_t seed = 1;
	for (int round = 0; round < 500; round++) {
		int64_t ranks = 1 + random_below(&seed, 1000000);
		int64_t bytes = random_below(&seed, INT64_C(1) << 50) * 8;
		long double exact = (long double)bytes / ranks * (ranks - 1);
		double sent = collective_wire_bytes(OP_ALL_GATHER, ranks, bytes);
		long double error = exact > 0 ? ((long double)sent - exact) / exact : sent;
		assert_true(error < 1e-12L && error > -1e-12L);
	}
}

/* Ten thousand layers build in seconds, not hours. */
static void test_deep(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct error error = {0};
	struct architecture deep = preset_model(&arena, "gpt2-nano")->architecture;
	struct sample sample = {.topology = gpu_cluster(&arena, 1, 8)};
	deep.layers = 10000;
	assert_true(model_build(&arena, &deep, &sample.model, &error));
	sample.plan = toy_plan(&arena, sample.model, sample.topology, NULL);
	sample.schedule = toy_schedule(&arena, &sample.plan, sample.model, sample.topology);
	assert_int_equal(sample.schedule->programs->n_units, 10001);
	assert_int_equal(count_ops(sample.schedule, OP_ALL_GATHER, -1), 20001);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_405b),
		cmocka_unit_test(test_405b_accumulated),
		cmocka_unit_test(test_million_ranks),
		cmocka_unit_test(test_million_ranks_hybrid),
		cmocka_unit_test(test_boundaries),
		cmocka_unit_test(test_wire_precision),
		cmocka_unit_test(test_deep),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
