/* Laws of plans that divide the model, on random ones: sequence parallel never needs more memory
 * than tensor ranks alone; all ranks together compute what one would, and what is recomputed; bytes
 * by axis are those of the closed forms. What goes beside products costs what copies take. */
#include "cases.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/sampled.h"

/* xorshift64 */
static int below(uint64_t *state, int limit)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (int)(*state % (uint64_t)limit);
}

#define PICK(state, ...)                                                                           \
	((const char *const[]){                                                                    \
		__VA_ARGS__}[below(state, COUNT_OF(((const char *const[]){__VA_ARGS__})))])

/* Orders that do not split backward. */
static const char *random_choices(uint64_t *state, struct arena *arena, const char *tensor)
{
	bool torch = below(state, 2) == 0;
	const char *pipeline = PICK(state, "pipeline=1 grad_accum=2",
		"pipeline=2 grad_accum=4 pipeline_schedule=1f1b",
		"pipeline=4 grad_accum=8 pipeline_schedule=interleaved",
		"pipeline=4 grad_accum=6 pipeline_schedule=gpipe");
	return arena_printf(arena,
		"runtime=%s strategy=%s tensor=%s %s context=%s seq_len=%s micro_batch=%s "
		"activation_checkpointing=%s context_method=%s",
		torch ? "pytorch-fsdp2" : "megatron",
		torch ? PICK(state, "SHARD_GRAD_OP", "FULL_SHARD") : "ZERO_1", tensor, pipeline,
		PICK(state, "1", "1", "2"), PICK(state, "1024", "2048"), PICK(state, "1", "2"),
		PICK(state, "none", "full"), torch ? "all-gather" : "all-to-all");
}

/* Where there are tensor ranks, asynchronously too. */
static const char *random_async(uint64_t *state, struct arena *arena, const char *tensor)
{
	const char *choices = random_choices(state, arena, tensor);
	bool torch = strstr(choices, "pytorch-fsdp2") != NULL && strcmp(tensor, "1") != 0;
	return torch ? arena_printf(arena, "%s %s", choices,
			       PICK(state, "", "compile=on async_tensor=on"))
		     : choices;
}

static void load(struct case_ *c, uint64_t *state)
{
	case_load(c, PICK(state, "llama-2-7b", "llama-3-8b", "mpt-7b"), "4xdgx-h100");
}

/* --- memory ----------------------------------------------------------------------------------- */

static int64_t peak(struct case_ *c, const char *choices, const char *sequence)
{
	struct simulation_options options = {.no_bounds = true, .quick_interval = true};
	const char *all = arena_printf(&c->arena, "%s sequence_parallel=%s", choices, sequence);
	return case_try_plan(c, all) ? case_simulate(c, &options, false)->peak_allocated_bytes : 0;
}

static void test_sequence_parallel(void **state)
{
	enum { ROUNDS = SAMPLED(40) };
	int judged = 0;
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t seed = 88172645463325252ull + (uint64_t)round * 7919;
		struct case_ c;
		load(&c, &seed);
		const char *choices = random_choices(&seed, &c.arena, PICK(&seed, "2", "4", "8"));
		int64_t with = peak(&c, choices, "on"), without = peak(&c, choices, "off");
		judged += with > 0;
		if (with > without)
			fail_msg("%s: %lld bytes with, %lld without", choices, (long long)with,
				(long long)without);
		case_finish(&c);
	}
	assert_true(3 * judged > ROUNDS);
}

/* --- what is computed ------------------------------------------------------------------------- */

/* FLOPs of a pass through leaves of a rank's part of the model, of so many rounds of attention. */
static double work(const struct plan *plan, const struct model *model, int first, int end,
	enum pass pass, int64_t sequences, int rounds)
{
	double flops = 0;
	for (int m = first; m < end; m++) {
		struct module_work work;
		if (!module_kind_is_leaf(model->modules[m].kind))
			continue;
		model_module_work(model, m, pass, sequences, plan->seq_len, 2,
			(struct attending){plan->attention, true}, &work);
		flops += rounds * work.attention_flops / (double)plan_attention_rounds(plan);
		for (int g = 0; g < work.n_gemms; g++)
			flops += 2.0 * (double)work.gemms[g].m * (double)work.gemms[g].n *
				 (double)work.gemms[g].k * (double)work.gemms[g].count;
	}
	return flops;
}

static const struct {
	enum op_kind kind;
	enum pass pass;
} kinds[] = {{OP_FORWARD, PASS_FORWARD}, {OP_BACKWARD, PASS_BACKWARD},
	{OP_BACKWARD_INPUT, PASS_BACKWARD_INPUT}, {OP_BACKWARD_WEIGHT, PASS_BACKWARD_WEIGHT},
	{OP_RECOMPUTE, PASS_FORWARD}};

/* Of all ranks in all operations of kinds first .. end - 1. */
static double computed(const struct schedule *s, int first, int end)
{
	double flops = 0;
	for (int c = 0; c < s->n_classes; c++) {
		const struct program *p = &s->programs[c];
		for (int i = 0; i < p->n_ops; i++)
			for (int k = first; k < end; k++)
				if (p->ops[i].kind == kinds[k].kind)
					flops += work(&s->plan, p->model, p->ops[i].first_module,
						p->ops[i].end_module, kinds[k].pass,
						s->plan.micro_batch, op_rounds(&p->ops[i]));
	}
	return flops * (double)plan_ranks(&s->plan) / s->n_classes;
}

static void judge_compute(struct case_ *c, const char *choices)
{
	const struct plan *plan = &c->plan;
	const struct model *model = c->model;
	const int64_t parts = runtime_of(plan->runtime)->vocab_multiple * plan->mesh.tensor;
	struct error error = {0};
	struct model *padded;
	if (parts > 0) {
		int64_t words = (model->architecture.vocab + parts - 1) / parts * parts;
		assert_true(model_pad(&c->arena, model, words, &padded, &error));
		model = padded;
	}
	struct plan whole = *plan;
	whole.mesh.context = 1;
	double forward =
		work(&whole, model, 0, model->n_modules, PASS_FORWARD, plan->global_batch, 1);
	double backward =
		work(&whole, model, 0, model->n_modules, PASS_BACKWARD, plan->global_batch, 1);
	double forwards = computed(c->schedule, 0, 1), backwards = computed(c->schedule, 1, 4);
	double again = computed(c->schedule, 4, 5);
	bool full = plan_checkpoints(plan, CHECKPOINTING_FULL);
	if (fabs(forwards / forward - 1) > 1e-9 || fabs(backwards / backward - 1) > 1e-9 ||
		(again > 0) != full || again > forward)
		fail_msg("%s: %.15g of %.15g, %.15g of %.15g, and %g again", choices, forwards,
			forward, backwards, backward, again);
}

static void test_compute(void **state)
{
	enum { ROUNDS = SAMPLED(40) };
	int judged = 0, recomputing = 0;
	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t seed = 2463534242ull + (uint64_t)round * 104729;
		struct case_ c;
		load(&c, &seed);
		const char *choices =
			random_async(&seed, &c.arena, PICK(&seed, "1", "2", "4", "8"));
		if (case_try_plan(&c, choices)) {
			judge_compute(&c, choices);
			judged++;
			recomputing += plan_checkpoints(&c.plan, CHECKPOINTING_FULL);
		}
		case_finish(&c);
	}
	assert_true(3 * judged > ROUNDS && recomputing > 0 && recomputing < judged);
}

/* --- bytes by axis ---------------------------------------------------------------------------- */

/* Of a rank without embedding and head, with so many blocks: each sends its activations on, and
 * their gradients back; tensor ranks exchange them (Korthikanti et al. 2205.05198, section 4.2):
 * two all-reduces a block and pass, or with sequence parallel as many gathers and scatters, and in
 * backward two gathers more; the gradient norm, of four bytes, is added up over all, and with
 * sequence parallel fp32 gradients of norms, two vectors a block and step. */
static void test_bytes(void **state)
{
	static const struct {
		const char *pipeline;
		int chunks;
	} orders[] = {{"1f1b", 1}, {"interleaved", 2}, {"gpipe", 1}};
	(void)state;
	for (int t = 2; t <= 8; t *= 2)
		for (int sequence = 0; sequence < 2; sequence++)
			for (int o = 0; o < COUNT_OF(orders); o++) {
				struct case_ c;
				struct simulation_options options = {.no_bounds = true};
				case_load(&c, "llama-2-7b", "4xdgx-h100");
				case_plan(&c,
					arena_printf(&c.arena,
						"runtime=megatron strategy=ZERO_1 tensor=%d "
						"pipeline=4 pipeline_schedule=%s "
						"grad_accum=8 seq_len=2048 "
						"sequence_parallel=%s",
						t, orders[o].pipeline, sequence ? "on" : "off"));
				case_simulate(&c, &options, false);
				const struct axis_figures *axes =
					c.simulation.classes[1].prediction.axes;
				double tokens = 2048.0 * 4096 * 2, m = 8, blocks = 8;
				double sent = tokens / (sequence ? t : 1);
				double exchanges = sequence ? 10 : 4 * 2;
				double messages = 2 * m * orders[o].chunks * sent + 4 * 2 * 3 / 4.0;
				if (axes[GROUP_PIPELINE].wire_bytes != messages)
					fail_msg("t %d, sequence %d, %s: %.12g, expected %.12g", t,
						sequence, orders[o].pipeline,
						axes[GROUP_PIPELINE].wire_bytes, messages);
				double sums = 4 + (sequence ? 2 * blocks * 4096 * 4 : 0);
				double expected =
					(m * blocks * exchanges * tokens + 2 * sums) * (t - 1) / t;
				if (fabs(axes[GROUP_TENSOR].wire_bytes / expected - 1) > 1e-9)
					fail_msg("t %d, sequence %d, %s: %.12g, expected %.12g", t,
						sequence, orders[o].pipeline,
						axes[GROUP_TENSOR].wire_bytes, expected);
				case_finish(&c);
			}
}

/* --- torch's context ranks ----------------------------------------------------------------------
 */

/* The kernels of the rounds of the first block's forward behind the first one. */
static double round_kernels(const struct schedule *s, struct arena *arena)
{
	const struct program *p = &s->programs[0];
	struct cost *costs = ARENA_ARRAY(arena, struct cost, p->n_ops);
	int rounds = 0;
	cost_operations(s, 0, costs);
	for (int i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];
		if (op->kind == OP_FORWARD && op->layer == 0 &&
			p->model->modules[op->first_module].kind == MODULE_ATTENTION_CORE &&
			++rounds == 2)
			return costs[i].kernels;
	}
	fail_msg("%d rounds", rounds);
	return 0;
}

/* Eager, the gather runs beside the first round. Compiled, nothing runs beside an exchange. Each
 * other round is merged by ten kernels, or three, besides those of attention. */
static void test_rounds(void **state)
{
	static const struct {
		const char *choices;
		bool alone;
		double kernels;
	} rows[] = {{"context=8 compile=on", true, 7 * (2 + 3)},
		{"context=8 compile=off", false, 7 * (9 + 10)},
		{"context=2 compile=on", true, 2 + 3}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct case_ c;
		struct simulation_options options = {.no_bounds = true};
		case_load(&c, "llama-2-7b", "dgx-h100");
		case_plan(&c, rows[i].choices);
		case_simulate(&c, &options, false);
		const struct axis_figures *axis = &c.simulation.prediction.axes[GROUP_CONTEXT];
		assert_true(axis->time > 0);
		assert_int_equal(axis->exposed > 0.999 * axis->time, rows[i].alone);
		assert_float_equal(round_kernels(c.schedule, &c.arena), rows[i].kernels, 0);
		case_finish(&c);
	}
}

/* --- asynchronous tensor parallelism -----------------------------------------------------------
 */

#define ASYNC                                                                                      \
	"tensor=8 micro_batch=4 seq_len=8192 activation_checkpointing=full compile=on "            \
	"async_tensor="

/* Copies of seven ranks' parts at 370.8 GB/s, one after the other, and the product of one
 * chunk before or behind them, of eight; a few microseconds for each time that ranks wait for one
 * another. No multiprocessor copies. */
static void test_async_costs(void **state)
{
	struct case_ c;
	int seen = 0;
	(void)state;
	case_load(&c, "llama-3.1-70b", "4xdgx-h100");
	case_plan(&c, ASYNC "on");
	const struct program *p = &c.schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c.arena, struct cost, p->n_ops);
	cost_operations(c.schedule, 0, costs);
	for (int i = 1; i + 1 < p->n_ops; i++) {
		int product = p->ops[i].kind == OP_ALL_GATHER ? i + 1 : i - 1;
		if (p->ops[i].stream != STREAM_PEER || p->ops[product].kind != OP_FORWARD)
			continue;
		double part = 4 * 8192.0 * 8192 * 2 / 8;
		double least = 7 * part / 370.8e9 + costs[product].device / 8;
		if (costs[i].device < 0.98 * least || costs[i].device > 1.02 * least + 150e-6)
			fail_msg("op %d: %g s, at least %g", i, costs[i].device, least);
		assert_true(costs[i].multiprocessors == 0);
		seen++;
	}
	assert_int_equal(seen, 80 * 4);
	case_finish(&c);
}

/* Most of what tensor ranks exchange is hidden, what is summed in backward is not. Its workspace is
 * small beside what it saves: the peak hardly changes. */
static void test_async_step(void **state)
{
	struct simulation_options options = {.no_bounds = true, .quick_interval = true};
	struct prediction of[2];
	(void)state;
	for (int on = 0; on < 2; on++) {
		struct case_ c;
		case_load(&c, "llama-3.1-70b", "4xdgx-h100");
		case_plan(&c, on ? ASYNC "on" : ASYNC "off");
		of[on] = *case_simulate(&c, &options, false);
		case_finish(&c);
	}
	assert_true(of[1].step_time < 0.95 * of[0].step_time);
	assert_true(of[1].time.exposed_communication < 0.5 * of[0].time.exposed_communication);
	assert_true(of[1].time.exposed_communication > 0.1 * of[0].time.exposed_communication);
	assert_true(llabs(of[1].peak_allocated_bytes - of[0].peak_allocated_bytes) <
		    of[0].peak_allocated_bytes / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sequence_parallel),
		cmocka_unit_test(test_compute),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_async_costs),
		cmocka_unit_test(test_async_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
