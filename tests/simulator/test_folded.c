/* A folded schedule gives the prediction of the whole one: times to 1e-9, bytes exactly. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"
#include "tests/schedule/support.h"

struct figure {
	const char *name;
	double whole, folded;
};

static bool differs(const struct figure *figure)
{
	return fabs(figure->whole - figure->folded) > 1e-9 * fabs(figure->whole);
}

/* The first figure that differs; NULL. */
static const char *compare(
	const struct prediction *a, const struct prediction *b, struct figure *found)
{
#define FIGURE(field)                                                                              \
	{                                                                                          \
#field, (double)a->field, (double)b->field                                         \
	}
	const struct figure figures[] = {FIGURE(step_time), FIGURE(step_time_low),
		FIGURE(step_time_high), FIGURE(mfu), FIGURE(hfu), FIGURE(time.compute),
		FIGURE(time.all_gather), FIGURE(time.reduce_scatter), FIGURE(time.all_reduce),
		FIGURE(time.copy), FIGURE(time.optimizer), FIGURE(time.exposed_communication),
		FIGURE(time.data_loading), FIGURE(time.unaligned_head), FIGURE(wire_bytes_per_rank),
		FIGURE(wire_bytes_node_egress), FIGURE(collectives[0]), FIGURE(collectives[1]),
		FIGURE(collectives[2]), FIGURE(peak_allocated_bytes), FIGURE(peak_active_bytes),
		FIGURE(peak_reserved_bytes), FIGURE(peak_memory_bytes), FIGURE(memory_at_peak[0]),
		FIGURE(memory_at_peak[1]), FIGURE(memory_at_peak[3]),
		FIGURE(memory_category_peak[3]), FIGURE(memory_category_peak[4]),
		FIGURE(host_memory_bytes), FIGURE(fits), FIGURE(ledger_peak_bytes),
		FIGURE(ledger_host_peak_bytes), FIGURE(model_states_parameters),
		FIGURE(model_states_gradients), FIGURE(model_states_optimizer_state),
		FIGURE(plan_lower_bound), FIGURE(peak_op)};
#undef FIGURE
	for (int i = 0; i < COUNT_OF(figures); i++)
		if (differs(&figures[i])) {
			*found = figures[i];
			return found->name;
		}
	if (strcmp(a->peak_at, b->peak_at) != 0)
		print_error("%s, folded %s\n", a->peak_at, b->peak_at);
	*found = (struct figure){"peak_at", 0, 1};
	return strcmp(a->peak_at, b->peak_at) != 0 ? found->name : NULL;
}

static void predict(
	struct arena *arena, const struct schedule *schedule, struct prediction *prediction)
{
	const struct simulation_options options = {.quick_interval = true};
	struct simulation simulation;
	struct error error = {0};
	if (!simulate(schedule, &options, false, arena, &simulation, &error))
		fail_msg("%s", error.message);
	*prediction = simulation.prediction;
}

/* Whether it folds; counts what is wrong. */
static bool check(const struct plan *plan, const struct model *model,
	const struct topology *topology, int round, int *wrong)
{
	struct arena arena = {0};
	struct schedule *folded = schedule_fold(&arena, plan, model, topology);
	bool folds = folded->programs->n_loops > 0;
	struct prediction a, b;
	struct figure figure;
	if (folds) {
		predict(&arena, schedule_emit(&arena, plan, model, topology), &a);
		predict(&arena, folded, &b);
		if (compare(&a, &b, &figure) != NULL) {
			struct text text = {0};
			plan_summary(plan, &text);
			print_error("round %d: %s is %.12g, folded %.12g: %d layers, %d "
				    "micro-batches, %s %s, %s\n",
				round, figure.name, figure.whole, figure.folded,
				(int)model->architecture.layers, (int)plan->grad_accum,
				device_kind_names[topology->device.kind],
				runtime_names[plan->runtime], text_string(&text));
			text_finish(&text);
			++*wrong;
		}
	}
	arena_finish(&arena);
	return folds;
}

static void test_random(void **state)
{
	const char *rounds = getenv("FOLD_ROUNDS");
	int n = rounds != NULL ? atoi(rounds) : 200, folds = 0, wrong = 0;
	(void)state;
	for (int i = 0; i < n; i++) {
		struct arena arena = {0};
		uint64_t seed = 362436069ull + (uint64_t)i * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan = deep_plan(&arena, &seed, model, topology);
		folds += check(&plan, model, topology, i, &wrong);
		arena_finish(&arena);
	}
	print_message("%d of %d fold\n", folds, n);
	assert_int_equal(wrong, 0);
	assert_true(5 * folds > 3 * n);
}

/* Of real models: what is in segments of megabytes, and launch queues that are full. */
static void test_presets(void **state)
{
	static const char *const models[] = {"llama-2-7b", "llama-2-13b", "gpt2-1.5b"};
	static const char *const runtimes[] = {
		"pytorch-fsdp1", "pytorch-fsdp2", "shardplan", "pytorch-ddp", "deepspeed"};
	static const struct {
		const char *knob, *value;
	} knobs[] = {{"micro_batch", "1"}, {"wrap", "size:100000000"}, {"wrap", "blocks:2"},
		{"activation_checkpointing", "full"}, {"limit_all_gathers", "off"},
		{"grad_accum", "5"}, {"strategy", "SHARD_GRAD_OP"},
		{"activation_checkpointing", "5xselective+27xnone"}, {"allocator", "expandable"}};
	int folds = 0, n = 0, wrong = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(models) * COUNT_OF(runtimes) * COUNT_OF(knobs); i++) {
		int knob = i % COUNT_OF(knobs), model = i / COUNT_OF(knobs) % COUNT_OF(models);
		struct question asked = {0};
		struct arena arena = {0};
		struct error error = {0};
		struct model *m;
		struct topology *t;
		struct plan plan;
		assert_true(model_load_preset(&arena, models[model], &m, &error));
		assert_true(topology_load_name(&arena, "4xdgx-a100-80gb", &t, &error));
		asked.model = m;
		asked.topology = t;
		assert_true(question_set_by_name(&asked, "runtime", "runtime",
			runtimes[i / COUNT_OF(knobs) / COUNT_OF(models)], &arena, &error));
		if (question_set_by_name(&asked, knobs[knob].knob, knobs[knob].knob,
			    knobs[knob].value, &arena, &error) &&
			plan_resolve(&asked, &arena, &plan, &error)) {
			n++;
			folds += check(&plan, m, t, -i, &wrong);
		}
		arena_finish(&arena);
	}
	print_message("%d of %d fold\n", folds, n);
	assert_int_equal(wrong, 0);
	assert_true(2 * folds > n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random), cmocka_unit_test(test_presets)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
