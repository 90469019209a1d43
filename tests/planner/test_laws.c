/* Laws that hold for every model, topology and plan, on random ones; each is two-sided, and the
 * suite shows that it fails on damaged predictions. With a number as argument: on so many random
 * cases (suite `slow`). A broken law is reported with the smallest case that breaks it. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

static int cases = 400;

#define LAWS(X)                                                                                    \
	X(UNITS, "shards sum up to the parameters and their padding, which is short")              \
	X(STATES, "more ranks never raise sharded state, and at most halve it when they double")   \
	X(BRACKET, "a step takes at least each stream's work, at most the sum of all, and the "    \
		   "exchange behind")                                                              \
	X(FITS, "a plan fits exactly when its memory does")                                        \
	X(BETTER, "better hardware never slows a step without contention, with it by 5 % at most") \
	X(FASTER, "hardware that is k times as fast takes between 1/k and all of the time")        \
	X(NAMES, "names change nothing")                                                           \
	X(HYBRID, "HYBRID_SHARD over all ranks is FULL_SHARD, over none NO_SHARD")                 \
	X(ALONE, "one rank alone communicates nothing")

enum {
#define X(suffix, words) LAW_##suffix,
	LAWS(X)
#undef X
		LAW_COUNT
};

static const char *const law_words[] = {
#define X(suffix, words) words,
	LAWS(X)
#undef X
};

struct laws {
	uint64_t state;
	bool damaged; /* control: predictions are wrong now and then */
	int64_t judged[LAW_COUNT], broken[LAW_COUNT];
	int64_t smallest[LAW_COUNT]; /* parameters of the smallest model that breaks it */
	char *examples[LAW_COUNT];
};

struct case_ {
	struct laws *laws;
	struct arena arena;
	struct question question;
};

/* One plan, simulated. */
struct run {
	struct plan plan;
	struct schedule *schedule;
	struct simulation simulation;
	struct prediction p;
};

/* --- random cases --------------------------------------------------------------------------------
 */

static void choose(struct case_ *c, const char *name, const char *const *values, int n)
{
	struct error error = {0};
	const char *value = values[random_below(&c->laws->state, n)];
	if (!question_set_by_name(&c->question, name, name, value, &c->arena, &error))
		fail_msg("%s", error.message);
}

#define CHOOSE(c, name, ...)                                                                       \
	choose(c, name, (const char *const[]){__VA_ARGS__},                                        \
		COUNT_OF(((const char *const[]){__VA_ARGS__})))

static void choose_all(struct case_ *c)
{
	if (c->question.topology->device.kind == DEVICE_GPU)
		CHOOSE(c, "runtime", "pytorch-fsdp1", "pytorch-fsdp2", "pytorch-ddp", "shardplan");
	else
		CHOOSE(c, "runtime", "shardplan");
	CHOOSE(c, "strategy", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD",
		"HYBRID_SHARD_ZERO2");
	CHOOSE(c, "micro_batch", "1", "2", "3");
	CHOOSE(c, "grad_accum", "1", "1", "2", "3");
	CHOOSE(c, "sync_each_micro_batch", "on", "off");
	CHOOSE(c, "wrap", "block", "blocks:2", "model", "size:100000");
	CHOOSE(c, "prefetch", "pre", "pre", "post", "none");
	CHOOSE(c, "activation_checkpointing", "none", "full");
	CHOOSE(c, "reduce_dtype", "fp32", "fp32", "bf16");
}

static void case_make(struct laws *laws, struct case_ *c)
{
	*c = (struct case_){.laws = laws};
	c->question = random_question(&laws->state, &c->arena);
	c->question.given = 0;
	choose_all(c);
}

/* Half of the predictions, by a third or threefold. */
static void damage(struct laws *laws, struct run *run)
{
	double factor = random_below(&laws->state, 2) > 0 ? 3 : 1.0 / 3;
	if (random_below(&laws->state, 2) > 0)
		return;
	run->p.step_time *= factor;
	run->p.model_states_optimizer_state =
		(int64_t)((double)run->p.model_states_optimizer_state * factor);
	run->p.peak_reserved_bytes = (int64_t)((double)run->p.peak_reserved_bytes * factor);
	run->p.wire_bytes_per_rank += 1;
	for (int u = 0; u < run->schedule->programs->n_units; u++)
		run->schedule->programs->units[u].chunk += 1;
}

/* False: refused, which not every runtime and topology deserves. */
static bool run_with(struct case_ *c, const struct topology *topology,
	const struct question *question, const struct simulation_options *options, struct run *run)
{
	struct error error = {0};
	const struct model *model = c->question.model;
	struct question asked = *question;
	*run = (struct run){0};
	asked.topology = topology;
	if (!plan_resolve(&asked, &c->arena, &run->plan, &error) ||
		!schedule_build(&c->arena, &run->plan, model, topology, &run->schedule, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		return false;
	}
	if (!simulate(run->schedule, options, true, &c->arena, &run->simulation, &error))
		fail_msg("%s", error.message);
	run->p = run->simulation.prediction;
	if (c->laws->damaged)
		damage(c->laws, run);
	return true;
}

static bool run_on(struct case_ *c, const struct topology *topology, struct run *run)
{
	return run_with(c, topology, &c->question, &(struct simulation_options){0}, run);
}

static void judge(struct case_ *c, const struct run *run, int law, bool holds)
{
	struct laws *laws = c->laws;
	struct text text = {0};
	int64_t size = c->question.model->parameter_count;
	laws->judged[law]++;
	if (holds)
		return;
	if (laws->broken[law]++ > 0 && size >= laws->smallest[law])
		return;
	laws->smallest[law] = size;
	describe_question(&c->question, &text);
	text_add(&text, " | ");
	plan_summary(&run->plan, &text);
	free(laws->examples[law]);
	laws->examples[law] = strdup(text_string(&text));
	text_finish(&text);
}

/* --- layout --------------------------------------------------------------------------------------
 */

static bool unit_is_sound(const struct unit *unit, const struct run *run)
{
	int64_t ranks = run->plan.mesh.shard, padded = 0, longest_row = 1, exact = 0;
	bool rows = plan_layout(&run->plan) == LAYOUT_PER_PARAMETER;
	for (int i = 0; i < unit->n_slices; i++) {
		const struct unit_slice *slice = &unit->slices[i];
		const struct parameter *parameter =
			&run->schedule->model->parameters[slice->parameter];
		int64_t row = rows ? slice->elements / parameter->shape[0] : 1;
		longest_row = max_i64(longest_row, row);
		exact += slice->elements;
		padded += slice->padded_elements;
		if (slice->padded_elements < slice->elements ||
			slice->padded_elements - slice->elements >= ranks * row)
			return false;
	}
	return exact == unit->parameters && unit->chunk * ranks == unit->gathered &&
	       unit->gathered >= padded && unit->elements <= unit->gathered &&
	       (!rows || unit->gathered == padded);
}

static void law_units(struct case_ *c, const struct run *run)
{
	int64_t parameters = 0;
	for (int u = 0; u < run->schedule->programs->n_units; u++) {
		const struct unit *unit = &run->schedule->programs->units[u];
		parameters += unit->parameters;
		judge(c, run, LAW_UNITS, unit_is_sound(unit, run));
	}
	judge(c, run, LAW_UNITS, parameters == c->question.model->parameter_count);
}

static int64_t states(const struct run *run)
{
	return run->p.model_states_parameters + run->p.model_states_gradients +
	       run->p.model_states_optimizer_state;
}

/* Twice the nodes; on one node twice the devices. */
static bool double_ranks(const struct topology *topology, struct topology *twice)
{
	*twice = *topology;
	if (topology->nodes > 1)
		twice->nodes *= 2;
	else
		twice->devices_per_node *= 2;
	return topology->nodes > 1 || topology->shares_host || twice->devices_per_node <= 8;
}

static void law_states(struct case_ *c, const struct run *run)
{
	struct topology more;
	struct run after;
	if (!double_ranks(c->question.topology, &more) || !run_on(c, &more, &after))
		return;
	int64_t was = states(run), is = states(&after);
	bool same = after.plan.mesh.shard == run->plan.mesh.shard;
	judge(c, run, LAW_STATES, same ? is == was : is <= was && 2 * is >= was);
}

/* --- time ----------------------------------------------------------------------------------------
 */

static void law_bracket(struct case_ *c, const struct run *run)
{
	const struct program *program = &run->schedule->programs[0];
	struct cost *costs = ARENA_ARRAY(&c->arena, struct cost, program->n_ops);
	double streams[STREAM_COUNT] = {0}, least = 0, most = 0;
	cost_operations(run->schedule, 0, costs);
	for (int i = 0; i < program->n_ops; i++) {
		const struct span *span = &run->simulation.timeline.spans[i];
		streams[program->ops[i].stream] += costs[i].device;
		most += span->end - span->start + costs[i].host;
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		least = fmax(least, streams[s]);
	least += cost_step_exchange(run->schedule);
	most += cost_step_exchange(run->schedule);
	judge(c, run, LAW_BRACKET, run->p.step_time >= least * (1 - 1e-9));
	judge(c, run, LAW_BRACKET, run->p.step_time <= most * (1 + 1e-9));
	judge(c, run, LAW_BRACKET, run->p.step_time >= run->p.plan_lower_bound);
}

struct rate {
	size_t member; /* of struct topology, a double */
	bool slower;   /* more of it is slower: a latency */
};

static const struct rate rates[] = {
	{offsetof(struct topology, device.memory_bandwidth), false},
	{offsetof(struct topology, calibration.memory_bandwidth), false},
	{offsetof(struct topology, calibration.memory_bandwidth_shared), false},
	{offsetof(struct topology, calibration.optimizer_bandwidth), false},
	{offsetof(struct topology, host.memory_bandwidth), false},
	{offsetof(struct topology, host.pcie_bandwidth), false},
	{offsetof(struct topology, calibration.gemm_flops), false},
	{offsetof(struct topology, calibration.attention_forward_flops), false},
	{offsetof(struct topology, calibration.attention_backward_flops), false},
	{offsetof(struct topology, device.fp32_flops), false},
	{offsetof(struct topology, device.bf16_flops), false},
	{offsetof(struct topology, device.fp16_flops), false},
	{offsetof(struct topology, fabric.bandwidth), false},
	{offsetof(struct topology, network.nic_bandwidth), false},
	{offsetof(struct topology, fabric.latency), true},
	{offsetof(struct topology, network.latency), true},
	{offsetof(struct topology, calibration.kernel_overhead), true},
	{offsetof(struct topology, calibration.host_overhead), true},
};

static void improve(struct topology *topology, const struct rate *rate, double factor)
{
	double *member = (double *)((char *)topology + rate->member);
	*member *= rate->slower ? 1 / factor : factor;
}

static double factor_of(struct case_ *c)
{
	return 1 + (double)random_below(&c->laws->state, 700) / 100;
}

static void law_better(struct case_ *c, const struct run *run)
{
	struct simulation_options alone = {.no_contention = true};
	struct topology better = *c->question.topology;
	struct run before, after, shared;
	improve(&better, &rates[random_below(&c->laws->state, COUNT_OF(rates))], factor_of(c));
	if (!run_with(c, c->question.topology, &c->question, &alone, &before) ||
		!run_with(c, &better, &c->question, &alone, &after) || !run_on(c, &better, &shared))
		return;
	judge(c, run, LAW_BETTER, after.p.step_time <= before.p.step_time * (1 + 1e-9));
	judge(c, run, LAW_BETTER, after.p.plan_lower_bound <= before.p.plan_lower_bound * 1.000001);
	judge(c, run, LAW_BETTER, shared.p.step_time <= run->p.step_time * 1.05);
}

static void law_faster(struct case_ *c, const struct run *run)
{
	struct simulation_options alone = {.no_contention = true};
	struct topology faster = *c->question.topology;
	struct run before, after;
	double factor = factor_of(c);
	for (int i = 0; i < COUNT_OF(rates); i++)
		improve(&faster, &rates[i], factor);
	if (!run_with(c, c->question.topology, &c->question, &alone, &before) ||
		!run_with(c, &faster, &c->question, &alone, &after))
		return;
	judge(c, run, LAW_FASTER, after.p.step_time <= before.p.step_time * (1 + 1e-9));
	judge(c, run, LAW_FASTER, after.p.step_time * factor >= before.p.step_time * (1 - 1e-9));
}

/* --- memory --------------------------------------------------------------------------------------
 */

static enum fits fits_in(struct case_ *c, int64_t limit)
{
	struct simulation_options options = {.memory_limit_bytes = limit};
	struct run run;
	assert_true(run_with(c, c->question.topology, &c->question, &options, &run));
	return run.p.fits;
}

static void law_fits(struct case_ *c, const struct run *run)
{
	struct fixed_memory outside = schedule_fixed_memory(run->schedule);
	int64_t fixed = outside.context + outside.communicators;
	judge(c, run, LAW_FITS, fits_in(c, run->p.peak_reserved_bytes + fixed) == FITS_YES);
	judge(c, run, LAW_FITS, fits_in(c, run->p.peak_reserved_bytes + fixed - 1) != FITS_YES);
	judge(c, run, LAW_FITS, fits_in(c, run->p.peak_allocated_bytes + fixed - 1) == FITS_NO);
}

/* --- sameness ------------------------------------------------------------------------------------
 */

static bool same(const struct run *a, const struct run *b)
{
	return fabs(a->p.step_time - b->p.step_time) <= 1e-9 * a->p.step_time &&
	       a->p.peak_memory_bytes == b->p.peak_memory_bytes && states(a) == states(b) &&
	       a->p.wire_bytes_per_rank == b->p.wire_bytes_per_rank;
}

static void law_names(struct case_ *c, const struct run *run)
{
	struct topology renamed = *c->question.topology;
	struct run after;
	renamed.name = "another";
	renamed.source = "nobody";
	renamed.device.name = "Z9";
	if (run_on(c, &renamed, &after))
		judge(c, run, LAW_NAMES, same(run, &after));
}

static bool run_strategy(struct case_ *c, const char *strategy, int64_t group, struct run *run)
{
	struct question question = c->question;
	struct error error = {0};
	question_open(&question, KNOB_SHARD_GROUP);
	if (group > 0)
		question_put(&question, KNOB_SHARD_GROUP, (union knob_value){.number = group});
	assert_true(question_set_by_name(
		&question, "strategy", "strategy", strategy, &c->arena, &error));
	return run_with(c, c->question.topology, &question, &(struct simulation_options){0}, run);
}

static void law_hybrid(struct case_ *c, const struct run *run)
{
	struct run hybrid, other;
	int64_t ranks = topology_devices(c->question.topology);
	if (run_strategy(c, "HYBRID_SHARD", ranks, &hybrid) &&
		run_strategy(c, "FULL_SHARD", 0, &other))
		judge(c, run, LAW_HYBRID, same(&hybrid, &other));
	/* DDP, that replaces FSDP2's NO_SHARD, has buckets; unsharded gradients stay in the dtype
	 * that they are reduced in, shards are cast. */
	if (run->plan.runtime == RUNTIME_SHARDPLAN &&
		run->plan.reduce_dtype == run->plan.master_dtype &&
		run_strategy(c, "HYBRID_SHARD", 1, &hybrid) &&
		run_strategy(c, "NO_SHARD", 0, &other))
		judge(c, run, LAW_HYBRID, states(&hybrid) == states(&other));
}

static void law_alone(struct case_ *c, const struct run *run)
{
	struct topology one = *c->question.topology;
	struct run alone;
	one.nodes = one.devices_per_node = 1;
	if (!run_on(c, &one, &alone))
		return;
	const struct time_split *t = &alone.p.time;
	judge(c, run, LAW_ALONE, alone.p.wire_bytes_per_rank == 0);
	judge(c, run, LAW_ALONE, t->all_gather + t->reduce_scatter + t->all_reduce == 0);
	/* Two-sided: several ranks do communicate. */
	if (topology_devices(c->question.topology) > 1)
		judge(c, run, LAW_ALONE, run->p.wire_bytes_per_rank > 0);
}

/* --- the suite -----------------------------------------------------------------------------------
 */

static void judge_case(struct laws *laws)
{
	static void (*const all[])(struct case_ *, const struct run *) = {law_units, law_states,
		law_bracket, law_better, law_faster, law_fits, law_names, law_hybrid, law_alone};
	struct case_ c;
	struct run run;
	case_make(laws, &c);
	if (run_on(&c, c.question.topology, &run))
		for (int i = 0; i < COUNT_OF(all); i++)
			all[i](&c, &run);
	arena_finish(&c.arena);
}

static struct laws judge_random(uint64_t seed, int n, bool damaged)
{
	struct laws laws = {.state = seed, .damaged = damaged};
	for (int i = 0; i < n; i++)
		judge_case(&laws);
	return laws;
}

static void laws_finish(struct laws *laws)
{
	for (int l = 0; l < LAW_COUNT; l++)
		free(laws->examples[l]);
}

static void test_laws(void **state)
{
	(void)state;
	struct laws laws = judge_random(UINT64_C(0x6a09e667f3bcc908), cases, false);
	int broken = 0;
	for (int l = 0; l < LAW_COUNT; l++) {
		print_message("%lld times: %s\n", (long long)laws.judged[l], law_words[l]);
		assert_true(laws.judged[l] > cases / 8);
		if (laws.broken[l] > 0)
			print_message("  BROKEN %lld times, smallest: %s\n",
				(long long)laws.broken[l], laws.examples[l]);
		broken += laws.broken[l] > 0;
	}
	laws_finish(&laws);
	assert_int_equal(broken, 0);
}

/* Wrong predictions break every law. */
static void test_negative_control(void **state)
{
	(void)state;
	struct laws laws = judge_random(UINT64_C(0xbb67ae8584caa73b), 60, true);
	for (int l = 0; l < LAW_COUNT; l++)
		if (laws.broken[l] == 0)
			fail_msg("not noticed: %s", law_words[l]);
	laws_finish(&laws);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_laws),
		cmocka_unit_test(test_negative_control),
	};
	if (argc > 1)
		cases = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
