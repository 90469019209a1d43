/* The replay of lanes equals a replay of the whole list by the caching allocator, request by
 * request: bytes exactly, without a limit and with limits near what is reserved. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "schedule/fold/fold.h"
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "simulator/memory/memory.h"
#include "simulator/simulator.h"
#include "tests/sampled.h"
#include "tests/schedule/support.h"

/* `engine` has run. */
static void run(struct arena *arena, const struct schedule *schedule, struct engine *engine)
{
	struct error error = {0};
	const struct engine_options options = {0};

	engine_init(engine, schedule, 0, &options, arena);
	if (memory_defers_frees(schedule))
		engine_record(engine, false);
	if (!engine_run(engine, &error))
		fail_msg("%s", error.message);
}

/* Of one that passes the limit only that is asked. */
static bool differ(struct reserved a, struct reserved b)
{
	if (a.within != b.within)
		return true;
	return b.within && (a.bytes != b.bytes || a.active != b.active);
}

static void report(
	const struct plan *plan, int round, int64_t limit, struct reserved a, struct reserved b)
{
	struct text text = {0};
	plan_summary(plan, &text);
	print_error("round %d, limit %" PRId64 ": %" PRId64 " bytes, %" PRId64
		    " active, within %d; replayed %" PRId64 ", %" PRId64 ", %d: %s\n",
		round, limit, a.bytes, a.active, a.within, b.bytes, b.active, b.within,
		text_string(&text));
	text_finish(&text);
}

/* Of the folded and of the whole list, against a replay of the whole one. */
static int check(const struct plan *plan, const struct model *model,
	const struct topology *topology, int round)
{
	struct arena arena = {0};
	struct engine whole, folded;
	int wrong = 0;
	run(&arena, schedule_emit(&arena, plan, model, topology), &whole);
	run(&arena, schedule_fold(&arena, plan, model, topology), &folded);
	struct reserved all = memory_replay(&whole, 0, &arena);
	const int64_t limits[] = {0, all.bytes, all.bytes - 1, all.bytes - all.bytes / 20,
		(all.active + all.bytes) / 2};
	for (int i = 0; i < COUNT_OF(limits); i++) {
		struct reserved expected = memory_replay(&whole, limits[i], &arena);
		struct reserved one = memory_reserved(&folded, limits[i], &arena);
		struct reserved two = memory_reserved(&whole, limits[i], &arena);
		if (differ(one, expected))
			report(plan, round, limits[i], one, expected);
		if (differ(two, expected))
			report(plan, round, limits[i], two, expected);
		wrong += differ(one, expected) + differ(two, expected);
	}
	arena_finish(&arena);
	return wrong;
}

static void test_random(void **state)
{
	const char *rounds = getenv("FOLD_ROUNDS");
	int n = rounds != NULL ? atoi(rounds) : SAMPLED(60), wrong = 0;
	(void)state;
	for (int i = 0; i < n; i++) {
		struct arena arena = {0};
		uint64_t seed = 521288629ull + (uint64_t)i * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan = deep_plan(&arena, &seed, model, topology);
		if (runtime_of(plan.runtime)->caching_allocator) /* others have no pools */
			wrong += check(&plan, model, topology, i);
		arena_finish(&arena);
	}
	assert_int_equal(wrong, 0);
}

/* Real models: their requests of megabytes are split and joined. */
static void test_presets(void **state)
{
	static const char *const models[] = {"llama-2-7b", "llama-3-8b", "gpt2-1.5b"};
	static const char *const runtimes[] = {"pytorch-fsdp2", "pytorch-ddp", "deepspeed"};
	static const char *const knobs[] = {"micro_batch=3", "grad_accum=7", "seq_len=3000",
		"activation_checkpointing=full", "activation_checkpointing=selective",
		"strategy=SHARD_GRAD_OP", "allocator=expandable",
		/* DDP: blocks change places, and stand as before after two micro-batches */
		"micro_batch=2 grad_accum=41"};
	int n = 0, wrong = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(models) * COUNT_OF(runtimes) * COUNT_OF(knobs); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct model *m =
			preset_model(&arena, models[i / COUNT_OF(knobs) % COUNT_OF(models)]);
		struct topology *t = cluster(&arena, "2xdgx-a100-80gb");
		const char *words = arena_printf(&arena, "runtime=%s %s",
			runtimes[i / COUNT_OF(knobs) / COUNT_OF(models)],
			knobs[i % COUNT_OF(knobs)]);
		struct plan plan;
		if (try_words(&arena, m, t, words, &plan, &error)) {
			n++;
			wrong += check(&plan, m, t, -i);
		}
		arena_finish(&arena);
	}
	print_message("%d plans\n", n);
	assert_int_equal(wrong, 0);
	assert_true(n > 30);
}

static int64_t reserved_when(struct arena *arena, const struct schedule *schedule, double wait)
{
	struct engine engine;
	struct error error = {0};
	const struct engine_options options = {.exchange_wait = wait};

	engine_init(&engine, schedule, 0, &options, arena);
	engine_record(&engine, false);
	assert_true(engine_run(&engine, &error));
	return memory_reserved(&engine, 0, arena).bytes;
}

/* What tensor ranks' scatters have read is held until the device has passed it: by nanotron's host,
 * ahead by a launch queue, some sixty tensors of all tokens (56 to 68 in the calibrating rows of
 * the ultrascale playbook); by one that waits long before
 * each exchange, none. */
static void test_held(void **state)
{
	const int64_t tokens = INT64_C(4) * 4096 * 4096 * 2;
	struct arena arena = {0};
	const struct schedule *schedule = build_words(&arena, "llama-2-7b", "2xp5.48xlarge",
		"runtime=nanotron tensor=16 micro_batch=4 grad_accum=4");
	(void)state;
	int64_t held = reserved_when(&arena, schedule, 0) - reserved_when(&arena, schedule, 0.1);
	assert_in_range(held / tokens, 58, 63);
	arena_finish(&arena);
}

/* --- places --------------------------------------------------------------------------------------
 */

static struct prediction predict_folded(struct arena *arena, const struct schedule *whole)
{
	struct simulation simulation;
	struct error error = {0};
	const struct simulation_options options = {.quick_interval = true, .no_bounds = true};
	const struct schedule *folded =
		schedule_fold(arena, &whole->plan, whole->model, whole->topology);
	if (!simulate(folded, &options, false, arena, &simulation, &error))
		fail_msg("%s", error.message);
	return simulation.prediction;
}

/* The bytes of the places that our executor gives the buffers of a rank, by the whole list. */
static int64_t placed_bytes(const struct schedule *schedule, struct arena *arena)
{
	int64_t most = 0;
	for (int c = 0; c < schedule->n_classes; c++) {
		struct addresses addresses;
		schedule_addresses(&schedule->programs[c], arena, &addresses);
		most = max_i64(most, addresses.device_bytes);
	}
	return most;
}

/* Our own runtime takes the places that our executor gives its buffers: to the byte, and with many
 * micro-batches, of which some are looked at, within 0.5 %. No part of them can be freed. They are
 * little more than what is in use, because the schedule orders what comes behind what goes; but not
 * without the limiter. They are as much as is in use where the host issues copies so far ahead that
 * places would do with less. */
static void test_places(void **state)
{
	static const struct {
		const char *words;
		double more;    /* or less, of the predicted bytes, at most */
		double of_peak; /* times the bytes in use, at most */
	} rows[] = {
		{"strategy=FULL_SHARD activation_checkpointing=full", 0, 1.2},
		{"strategy=ZERO_2 grad_accum=3", 0, 1.05},
		{"tensor=2 strategy=FULL_SHARD", 0, 1.05},
		{"strategy=FULL_SHARD cpu_offload=optimizer", 0, 1.05},
		{"strategy=HYBRID_SHARD cpu_offload=optimizer activation_checkpointing=full", 0,
			1.3},
		{"strategy=NO_SHARD cpu_offload=optimizer", 0.01, 1.05},
		{"pipeline=2 strategy=ZERO_1 grad_accum=24", 0, 1.05},
		{"pipeline=2 strategy=ZERO_1 grad_accum=24 pipeline_schedule=gpipe", 0, 1.05},
		{"strategy=FULL_SHARD activation_checkpointing=full grad_accum=9", 0.005, 1.2},
		{"strategy=NO_SHARD grad_accum=9", 0.005, 1.05},
		{"strategy=NO_SHARD grad_accum=9 cpu_offload=optimizer", 0.005, 1.05},
		{"strategy=HYBRID_SHARD grad_accum=9", 0.005, 1.2},
		{"strategy=HYBRID_SHARD grad_accum=9 tensor=2", 0.005, 1.2},
		{"strategy=FULL_SHARD grad_accum=9 limit_all_gathers=off", 0.001, 9},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		const struct schedule *schedule = build_words(&arena, "llama-2-7b", "2xdgx-h100",
			arena_printf(&arena, "runtime=shardplan micro_batch=1 %s", rows[i].words));
		const struct prediction p = predict_folded(&arena, schedule);
		int64_t most = placed_bytes(schedule, &arena);
		double more = (double)(most - p.places_bytes) / (double)p.places_bytes;
		double of_peak = (double)p.places_bytes / (double)p.peak_allocated_bytes;
		if (fabs(more) > rows[i].more || of_peak > rows[i].of_peak)
			fail_msg("%s: %" PRId64 " bytes, predicted %" PRId64
				 ", which is %.3f of what is in use",
				rows[i].words, most, p.places_bytes, of_peak);
		assert_true(p.places_bytes >= p.peak_allocated_bytes);
		assert_int_equal(prediction_needed_bytes(&p), p.peak_memory_bytes);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
		cmocka_unit_test(test_presets), cmocka_unit_test(test_held),
		cmocka_unit_test(test_places)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
