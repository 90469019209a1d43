/* The constants of a cluster from a few of its runs. The runs are the simulator's own, of a cluster
 * whose constants are known to the test and not to the fit. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

enum { MOST_RUNS = 12, DRAWS = SAMPLED(12) };

static const char catalogue_name[] = "4xdgx-a100-80gb";

struct scene {
	struct arena arena;
	struct topology *topology, truth;
	int n;
	struct fit_run runs[MOST_RUNS];
	uint64_t random;
};

/* What somebody trained: launches, links, attention, memory and products have their say. */
static const struct trained {
	const char *model;
	int64_t gpus;
	const char *knobs[8];
} trained[] = {
	{"llama-2-7b", 8, {"micro_batch", "2", NULL}},
	{"llama-2-7b", 8, {"seq_len", "512", "micro_batch", "1", NULL}},
	{"gpt2-1.5b", 8, {"strategy", "NO_SHARD", "micro_batch", "8", NULL}},
	{"gpt2-124m", 8, {"seq_len", "64", "micro_batch", "1", NULL}},
	{"llama-2-7b", 1, {"optimizer", "sgd", "seq_len", "4096", NULL}},
	{"llama-3.1-8b", 8, {"seq_len", "32768", "activation_checkpointing", "full", NULL}},
	{"llama-2-7b", 32, {"micro_batch", "1", "seq_len", "1024", NULL}},
	{"llama-2-7b", 16, {"micro_batch", "1", "seq_len", "512", NULL}},
	{"gpt2-1.5b", 32, {"strategy", "FULL_SHARD", "micro_batch", "1", "wrap", "block", NULL}},
	{"llama-2-13b", 32, {"activation_checkpointing", "full", NULL}},
};

/* --- a cluster, and its runs ------------------------------------------------------------------ */

static void set_of(struct question *question, struct arena *arena, const char *const *knobs)
{
	for (; *knobs != NULL; knobs += 2)
		set_choice(question, arena, knobs[0], knobs[1]);
}

static double step_time(const struct fit_run *run, const struct topology *like)
{
	const struct simulation_options options = {.no_bounds = true, .quick_interval = true};
	struct arena arena = {0};
	struct topology there = *like;
	struct simulation simulation;
	struct error error = {0};

	there.nodes = run->topology->nodes;
	there.devices_per_node = run->topology->devices_per_node;
	struct schedule *schedule = schedule_fold(&arena, &run->plan, run->model, &there);
	if (!simulate(schedule, &options, false, &arena, &simulation, &error))
		fail_msg("%s", error.message);
	arena_finish(&arena);
	return simulation.prediction.step_time;
}

/* Within `noise`, relative. */
static double uneven(struct scene *s, double noise)
{
	return exp(noise * ((double)random_below(&s->random, 2001) / 1000 - 1));
}

static void add_run(struct scene *s, const struct trained *what, double noise)
{
	struct fit_run *run = &s->runs[s->n++];
	struct topology *cut = ARENA_NEW(&s->arena, struct topology);
	struct error error = {0};

	*cut = *s->topology;
	if (!topology_use_devices(cut, what->gpus, &error))
		fail_msg("%s", error.message);
	struct question question = {.model = load_model(&s->arena, what->model), .topology = cut};
	set_of(&question, &s->arena, what->knobs);
	*run = (struct fit_run){
		.name = arena_printf(&s->arena, "%s on %d, %d", what->model, (int)what->gpus, s->n),
		.model = question.model,
		.topology = cut};
	if (!plan_resolve(&question, &s->arena, &run->plan, &error))
		fail_msg("%s", error.message);
	run->step_time = step_time(run, &s->truth) * uneven(s, noise);
}

/* The truth is the catalogue's until a test changes it. */
static void scene_init(struct scene *s, uint64_t seed)
{
	*s = (struct scene){.random = seed};
	s->topology = load_topology(&s->arena, catalogue_name);
	s->truth = *s->topology;
	state_rates(&s->truth);
}

static struct fitting fit_scene(struct scene *s)
{
	struct fitting fitting;
	struct error error = {0};

	if (!fit_topology(s->topology, s->runs, s->n, NULL, &s->arena, &fitting, &error))
		fail_msg("%s", error.message);
	return fitting;
}

/* The constants are moved by hand here, not by what the fit moves them with. NICs deliver less than
 * they state. */
static void change(struct topology *t, enum fit_constant constant, double factor)
{
	struct calibration *c = &t->calibration;

	switch (constant) {
	case FIT_PRODUCTS:
		c->sustained_clock *= factor;
		break;
	case FIT_ATTENTION:
		c->attention_forward_flops *= factor;
		c->attention_backward_flops *= factor;
		break;
	case FIT_MEMORY:
		c->memory_bandwidth *= factor;
		c->optimizer_bandwidth *= factor;
		break;
	case FIT_FABRIC:
		t->fabric.bandwidth *= factor;
		break;
	case FIT_NETWORK:
		t->network.oversubscription /= factor;
		break;
	case FIT_LATENCY:
		t->network.latency *= factor;
		break;
	case FIT_HOST:
		c->host_factor *= factor;
		break;
	case FIT_CONSTANT_COUNT:
		break;
	}
}

static double log_factor(const struct fitted_constant *constant, double value)
{
	return log(value / constant->before);
}

/* --- tests ------------------------------------------------------------------------------------ */

struct recovered {
	int told, inside;         /* the truth, in the interval */
	int unmoved;              /* the topology's own value is inside it */
	double before, after;     /* sums of errors of constants, as logarithms */
	struct fit_errors errors; /* of steps, means */
};

/* About as far from the catalogue as its doubts are, never nowhere. */
static double draw(struct scene *s, enum fit_constant constant)
{
	static const double doubts[FIT_CONSTANT_COUNT] = {
		[FIT_PRODUCTS] = 0.05,
		[FIT_ATTENTION] = 0.12,
		[FIT_MEMORY] = 0.08,
		[FIT_FABRIC] = 0.2,
		[FIT_NETWORK] = 0.5,
		[FIT_LATENCY] = 0.5,
		[FIT_HOST] = 0.4,
	};
	double size = 0.5 + (double)random_below(&s->random, 500) / 1000;
	bool less = constant == FIT_NETWORK || random_below(&s->random, 2) == 0;

	return exp((less ? -1 : 1) * size * doubts[constant]);
}

static void recover(uint64_t seed, struct recovered *r)
{
	struct scene s;
	double truths[FIT_CONSTANT_COUNT];

	scene_init(&s, seed);
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++) {
		truths[j] = draw(&s, (enum fit_constant)j);
		change(&s.truth, (enum fit_constant)j, truths[j]);
	}
	for (int i = 0; i < COUNT_OF(trained); i++)
		add_run(&s, &trained[i], 0.01);
	struct fitting fitting = fit_scene(&s);
	assert_int_equal(fitting.n_outliers, 0);
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++) {
		const struct fitted_constant *c = &fitting.constants[j];
		double low = log_factor(c, c->low), high = log_factor(c, c->high);

		assert_true(c->doubt <= c->prior_doubt * (1 + 1e-9));
		if (c->verdict != FIT_TOLD)
			continue;
		r->told++;
		r->inside += low <= log(truths[j]) && log(truths[j]) <= high;
		r->unmoved += low <= 0 && 0 <= high;
		r->before += fabs(log(truths[j]));
		r->after += fabs(log(truths[j]) - log(c->factor));
	}
	r->errors.before += fitting.errors.before / DRAWS;
	r->errors.after += fitting.errors.after / DRAWS;
	r->errors.left_out += fitting.errors.left_out / DRAWS;
	arena_finish(&s.arena);
}

/* 80 % intervals; the runs are the simulator's, so that only noise keeps the truth out. */
static void known_constants_come_back(void **state)
{
	struct recovered r = {0};

	(void)state;
	for (int i = 0; i < DRAWS; i++)
		recover(UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(i + 1), &r);
	print_message("%d told of %d: %d inside; the old value inside %d; ln error %.3f -> %.3f\n",
		r.told, DRAWS * FIT_CONSTANT_COUNT, r.inside, r.unmoved, r.before / r.told,
		r.after / r.told);
	print_message("error of a step %.3f, %.3f, left out %.3f\n", r.errors.before,
		r.errors.after, r.errors.left_out);
	assert_true(r.errors.before > 0.05 && r.errors.after < 0.02 && r.errors.left_out < 0.03);
	assert_true(r.told >= 5 * DRAWS);
	assert_true(r.inside >= 0.8 * r.told);
	assert_true(r.unmoved < 0.6 * r.told);
	assert_true(r.after < 0.5 * r.before);
}

/* Runs of one node say nothing of what is between nodes, and which runs would. */
static void one_node_tells_no_network(void **state)
{
	static const enum fit_constant hidden[] = {FIT_NETWORK, FIT_LATENCY};
	struct scene s;

	(void)state;
	scene_init(&s, 1);
	change(&s.truth, FIT_PRODUCTS, 0.9);
	for (int i = 0; i < 4; i++)
		add_run(&s, &trained[i], 0);
	struct fitting fitting = fit_scene(&s);
	assert_int_equal(fitting.constants[FIT_PRODUCTS].verdict, FIT_TOLD);
	for (int i = 0; i < COUNT_OF(hidden); i++) {
		const struct fitted_constant *c = &fitting.constants[hidden[i]];

		assert_int_equal(c->verdict, FIT_UNTOLD);
		assert_true(c->after == c->before && c->doubt == c->prior_doubt);
	}
	const struct fit_advice *advice = &fitting.constants[FIT_NETWORK].advice;
	assert_true(advice->run != NULL && advice->left < 0.7);
	assert_true(strncmp(advice->change, "gpus ", 5) == 0 && atoi(advice->change + 5) > 8);
	assert_true(fitting.topology->network.oversubscription == 1);
	assert_true(fitting.topology->network.latency == s.topology->network.latency);
	arena_finish(&s.arena);
}

/* A topology of one node has no network to ask for. */
static void one_node_has_no_network(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, 1);
	s.topology->nodes = 1;
	for (int i = 0; i < 4; i++)
		add_run(&s, &trained[i], 0);
	struct fitting fitting = fit_scene(&s);
	assert_int_equal(fitting.constants[FIT_NETWORK].verdict, FIT_ABSENT);
	assert_int_equal(fitting.constants[FIT_LATENCY].verdict, FIT_ABSENT);
	arena_finish(&s.arena);
}

/* Runs as predicted change nothing to speak of; every one of them would be missed. */
static void runs_as_predicted_move_nothing(void **state)
{
	struct scene s;

	(void)state;
	scene_init(&s, 1);
	for (int i = 0; i < COUNT_OF(trained); i++)
		add_run(&s, &trained[i], 0);
	struct fitting fitting = fit_scene(&s);
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++)
		assert_float_equal(fitting.constants[j].factor, 1, 1e-9);
	assert_float_equal(fitting.errors.before, 0, 1e-9);
	assert_int_equal(fitting.n_outliers, 0);
	arena_finish(&s.arena);
}

/* A run with another job beside it: named, and without a say. */
static void a_run_that_nothing_explains_is_named(void **state)
{
	struct scene s;
	int spoilt = 2;

	(void)state;
	scene_init(&s, 7);
	change(&s.truth, FIT_PRODUCTS, 0.95);
	change(&s.truth, FIT_NETWORK, 0.7);
	for (int i = 0; i < COUNT_OF(trained); i++)
		add_run(&s, &trained[i], 0.01);
	struct fitting clean = fit_scene(&s);
	assert_int_equal(clean.n_outliers, 0);
	s.runs[spoilt].step_time *= 1.5;
	struct fitting fitting = fit_scene(&s);
	assert_int_equal(fitting.n_outliers, 1);
	assert_true(fitting.runs[spoilt].outlier);
	assert_true(fitting.runs[spoilt].after < 0.8 * fitting.runs[spoilt].measured);
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++)
		assert_true(fabs(log(fitting.constants[j].factor / clean.constants[j].factor)) <
			    1.5 * clean.constants[j].doubt);
	arena_finish(&s.arena);
}

/* The file that is written says what was fitted. */
static void the_topology_is_written_and_read(void **state)
{
	struct scene s;
	struct text text = {0};
	struct topology *read;
	struct error error = {0};

	(void)state;
	scene_init(&s, 3);
	change(&s.truth, FIT_PRODUCTS, 0.93);
	change(&s.truth, FIT_NETWORK, 0.6);
	change(&s.truth, FIT_HOST, 1.5);
	for (int i = 0; i < COUNT_OF(trained); i++)
		add_run(&s, &trained[i], 0);
	struct fitting fitting = fit_scene(&s);
	topology_print(fitting.topology, WRITER_YAML, &text);
	if (!topology_parse(
		    &s.arena, "fitted.yaml", text_string(&text), text.length, &read, &error))
		fail_msg("%s", error.message);
	for (int i = 0; i < s.n; i++)
		assert_float_equal(step_time(&s.runs[i], read) / fitting.runs[i].after, 1, 1e-9);
	assert_non_null(
		strstr(text_string(&text), "network.oversubscription: \"fitted to 10 runs: x "));
	assert_null(strstr(text_string(&text), "network.nic_bandwidth:"));
	assert_true(read->calibration.compute_spread > 0 && read->calibration.residual_spread > 0);
	text_finish(&text);
	arena_finish(&s.arena);
}

/* Runs the pieces from the last to the first, on three workers. */
static void backwards(
	void *context, int n, void (*piece)(void *data, int index, int worker), void *data)
{
	(void)context;
	for (int i = n - 1; i >= 0; i--)
		piece(data, i, i % 3);
}

static void lent_workers_change_no_bit(void **state)
{
	const struct lent lent = {NULL, 3, backwards, NULL, NULL};
	struct scene s;
	struct fitting lone, helped;
	struct error error = {0};

	(void)state;
	scene_init(&s, 5);
	change(&s.truth, FIT_MEMORY, 0.8);
	for (int i = 0; i < COUNT_OF(trained); i++)
		add_run(&s, &trained[i], 0.02);
	lone = fit_scene(&s);
	assert_true(fit_topology(s.topology, s.runs, s.n, &lent, &s.arena, &helped, &error));
	for (int j = 0; j < FIT_CONSTANT_COUNT; j++)
		assert_true(lone.constants[j].after == helped.constants[j].after &&
			    lone.constants[j].doubt == helped.constants[j].doubt);
	arena_finish(&s.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_constants_come_back),
		cmocka_unit_test(one_node_tells_no_network),
		cmocka_unit_test(one_node_has_no_network),
		cmocka_unit_test(runs_as_predicted_move_nothing),
		cmocka_unit_test(a_run_that_nothing_explains_is_named),
		cmocka_unit_test(the_topology_is_written_and_read),
		cmocka_unit_test(lent_workers_change_no_bit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
