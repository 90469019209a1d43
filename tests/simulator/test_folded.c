/* A folded schedule gives the prediction of the whole one: times to 1e-9, bytes exactly. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"
#include "tests/sampled.h"
#include "tests/schedule/support.h"

struct figure {
	const char *name;
	double whole, folded;
};

/* The host's times count from the beginning: a launch late in a step of thousands is known to 1e-13
 * of the step, however short it is. */
static bool differs(const struct figure *figure, double step)
{
	return fabs(figure->whole - figure->folded) >
	       fmax(1e-9 * fabs(figure->whole), 1e-13 * step);
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
		FIGURE(step_time_high), FIGURE(step_time_p95), FIGURE(mfu), FIGURE(hfu),
		FIGURE(time.compute), FIGURE(time.all_gather), FIGURE(time.reduce_scatter),
		FIGURE(time.all_reduce), FIGURE(time.copy), FIGURE(time.optimizer),
		FIGURE(time.exposed_communication), FIGURE(time.data_loading),
		FIGURE(time.unaligned_head), FIGURE(wire_bytes_per_rank),
		FIGURE(wire_bytes_node_egress), FIGURE(collectives[0]), FIGURE(collectives[1]),
		FIGURE(collectives[2]), FIGURE(peak_allocated_bytes), FIGURE(peak_active_bytes),
		FIGURE(peak_reserved_bytes), FIGURE(peak_memory_bytes), FIGURE(memory_at_peak[0]),
		FIGURE(memory_at_peak[1]), FIGURE(memory_at_peak[3]),
		FIGURE(memory_category_peak[3]), FIGURE(memory_category_peak[4]),
		FIGURE(host_memory_bytes), FIGURE(fits), FIGURE(ledger_peak_bytes),
		FIGURE(ledger_host_peak_bytes), FIGURE(model_states_parameters),
		FIGURE(model_states_gradients), FIGURE(model_states_optimizer_state),
		FIGURE(axes[GROUP_SHARD].time), FIGURE(axes[GROUP_SHARD].exposed),
		FIGURE(axes[GROUP_TENSOR].exposed), FIGURE(axes[GROUP_REPLICATE].exposed),
		FIGURE(plan_lower_bound), FIGURE(peak_op)};
#undef FIGURE
	for (int i = 0; i < COUNT_OF(figures); i++)
		if (differs(&figures[i], a->step_time)) {
			*found = figures[i];
			return found->name;
		}
	if (strcmp(a->peak_at, b->peak_at) != 0)
		print_error("%s, folded %s\n", a->peak_at, b->peak_at);
	*found = (struct figure){"peak_at", 0, 1};
	return strcmp(a->peak_at, b->peak_at) != 0 ? found->name : NULL;
}

/* --- exposure ------------------------------------------------------------------------------------
 */

static double covered(struct span a, struct span b)
{
	return fmax(0, fmin(a.end, b.end) - fmax(a.start, b.start));
}

static bool computes(const struct op *op)
{
	enum op_class class = op_kind_class(op->kind);
	return op->stream == STREAM_COMPUTE &&
	       (class == OP_CLASS_COMPUTE || class == OP_CLASS_TRAFFIC);
}

static bool spans_nodes(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	return topology_place(schedule->topology, group->size, group->stride).nodes > 1;
}

/* Off the timeline: of each collective, what no span of the compute stream covers. */
static struct exposed exposed_of(
	const struct schedule *schedule, const struct timeline *timeline, struct arena *arena)
{
	const struct program *program = schedule->programs;
	struct cost *costs = ARENA_ARRAY(arena, struct cost, program->n_ops);
	struct exposed exposed = {0};
	cost_operations(schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		double left = timeline->spans[i].end - timeline->spans[i].start;
		enum collective_kind kind;
		if (computes(op)) {
			exposed.computing += left;
			exposed.slowed += left - costs[i].device;
		}
		if (!collective_kind_of(op->kind, &kind))
			continue;
		for (int c = 0; c < program->n_ops; c++)
			if (computes(&program->ops[c]))
				left -= covered(timeline->spans[i], timeline->spans[c]);
		exposed.seconds[kind] += left;
		exposed.over_network[kind] += spans_nodes(schedule, op) ? left : 0;
	}
	return exposed;
}

static bool is_near(double a, double b, double step)
{
	return fabs(a - b) <= 1e-9 * step;
}

static const char *compare_exposed(
	const struct exposed *a, const struct exposed *b, double step, struct figure *found)
{
	const double *one = (const double *)a, *two = (const double *)b;
	for (size_t i = 0; i < sizeof(*a) / sizeof(double); i++)
		if (!is_near(one[i], two[i], step)) {
			*found = (struct figure){"exposed", one[i], two[i]};
			return found->name;
		}
	return NULL;
}

/* --- both ways -----------------------------------------------------------------------------------
 */

static void run(struct arena *arena, const struct schedule *schedule, bool details,
	struct simulation *simulation)
{
	const struct simulation_options options = {.quick_interval = !details, .exposure = true};
	struct error error = {0};
	if (!simulate(schedule, &options, details && schedule->programs->n_loops == 0, arena,
		    simulation, &error))
		fail_msg("%s", error.message);
}

/* Whether it folds; counts what is wrong. */
static bool check(const struct plan *plan, const struct model *model,
	const struct topology *topology, int round, int *wrong)
{
	struct arena arena = {0};
	struct schedule *folded = schedule_fold_printable(&arena, plan, model, topology);
	bool folds = folded->programs->n_loops > 0;
	struct simulation a, b;
	struct figure figure;
	if (folds) {
		struct schedule *whole = schedule_emit(&arena, plan, model, topology);
		/* Whole simulations, and their intervals, take long: of short lists. */
		bool details = whole->programs->n_ops < 4000;
		run(&arena, whole, details, &a);
		run(&arena, folded, details, &b);
		/* Where memory is short the timeline is that with retries, what is exposed is not.
		 */
		if (details && a.prediction.fits != FITS_TIGHT)
			a.exposed = exposed_of(whole, &a.timeline, &arena);
		if (compare(&a.prediction, &b.prediction, &figure) != NULL ||
			compare_exposed(&a.exposed, &b.exposed, a.prediction.step_time, &figure) !=
				NULL) {
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
	int n = rounds != NULL ? atoi(rounds) : SAMPLED(200), folds = 0, wrong = 0;
	(void)state;
	for (int i = 0; i < n; i++) {
		struct arena arena = {0};
		uint64_t seed = 362436069ull + (uint64_t)i * 7919;
		struct model *model = deep_model(&arena, &seed);
		struct topology *topology = random_topology(&arena, &seed);
		struct plan plan = deep_plan(&arena, &seed, model, topology);
		if (i % 2 == 0)
			divide_plan(&arena, &seed, model, &topology, &plan);
		folds += check(&plan, model, topology, i, &wrong);
		arena_finish(&arena);
	}
	print_message("%d of %d fold\n", folds, n);
	assert_int_equal(wrong, 0);
	assert_true(5 * folds > 3 * n);
}

/* Real models: their buffers are in segments of megabytes, and their launch queues are full. */
static void test_presets(void **state)
{
	static const char *const models[] = {"llama-2-7b", "llama-2-13b", "gpt2-1.5b"};
	static const char *const runtimes[] = {
		"pytorch-fsdp1", "pytorch-fsdp2", "shardplan", "pytorch-ddp", "deepspeed"};
	static const char *const knobs[] = {"micro_batch=1", "wrap=size:100000000", "wrap=blocks:2",
		"activation_checkpointing=full", "limit_all_gathers=off", "grad_accum=5",
		"strategy=SHARD_GRAD_OP", "activation_checkpointing=5xselective+27xnone",
		"allocator=expandable"};
	int folds = 0, n = 0, wrong = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(models) * COUNT_OF(runtimes) * COUNT_OF(knobs); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct model *m =
			preset_model(&arena, models[i / COUNT_OF(knobs) % COUNT_OF(models)]);
		struct topology *t = cluster(&arena, "4xdgx-a100-80gb");
		const char *words = arena_printf(&arena, "runtime=%s %s",
			runtimes[i / COUNT_OF(knobs) / COUNT_OF(models)],
			knobs[i % COUNT_OF(knobs)]);
		struct plan plan;
		if (try_words(&arena, m, t, words, &plan, &error)) {
			n++;
			folds += check(&plan, m, t, -i, &wrong);
		}
		arena_finish(&arena);
	}
	print_message("%d of %d fold\n", folds, n);
	assert_int_equal(wrong, 0);
	assert_true(2 * folds > n);
}

/* The host is a micro-batch ahead, in the loop that the compute stream is in: it issues gathers
 * that pile up on their stream, which is past that loop and waits for a backward. */
static void test_host_ahead(void **state)
{
	static const char *const words[] = {"grad_accum=5", "grad_accum=9"};
	int wrong = 0;
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct arena arena = {0};
		struct text text = {0};
		struct model *model = preset_model(&arena, "mpt-7b");
		struct topology *topology = cluster(&arena, "dgx-a100-80gb");
		text_printf(&text,
			"runtime=pytorch-fsdp1 strategy=SHARD_GRAD_OP limit_all_gathers=off "
			"sync_each_micro_batch=on activation_checkpointing=selective "
			"param_dtype=fp32 micro_batch=1 seq_len=2048 %s",
			words[i]);
		struct plan plan = plan_of_words(&arena, model, topology, text_string(&text));
		assert_true(check(&plan, model, topology, i, &wrong));
		text_finish(&text);
		arena_finish(&arena);
	}
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
		cmocka_unit_test(test_presets), cmocka_unit_test(test_host_ahead)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
