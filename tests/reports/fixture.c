#include "fixture.h"
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { OVERHEAD = 700 << 20 };

static double seconds_of(const struct fixture *fixture, const struct op *op)
{
	const struct model *model = fixture->model;
	const struct plan *plan = &fixture->schedule->plan;
	double tokens = (double)(plan->micro_batch * plan->seq_len), parameters = 0;

	switch (op_kind_class(op->kind)) {
	case OP_CLASS_COLLECTIVE:
		return 3e-5 + (double)op->bytes / 60e9;
	case OP_CLASS_TRAFFIC:
		return 5e-6 + (double)op->bytes / 1.5e12;
	case OP_CLASS_COPY:
	case OP_CLASS_MESSAGE:
		return (double)op->bytes / 20e9;
	case OP_CLASS_MARK:
		return 0;
	case OP_CLASS_COMPUTE:
		break;
	}
	for (int i = op->first_module; i >= 0 && i < op->end_module; i++) {
		const struct module *module = &model->modules[i];
		for (int p = 0; p < module->n_parameters; p++)
			parameters +=
				(double)model->parameters[module->first_parameter + p].elements;
	}
	return 1e-5 + (op->kind == OP_BACKWARD ? 4 : 2) * parameters * tokens / 150e12;
}

/* One pass in list order: every operation starts when its stream is free and its waits are over. */
static void run(struct fixture *fixture)
{
	const struct program *program = &fixture->schedule->programs[0];
	double free[STREAM_COUNT] = {0}, host = 0;
	int last[STREAM_COUNT];
	int *from = ARENA_ARRAY(&fixture->arena, int, program->n_ops);

	memset(last, -1, sizeof(last));
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		struct span *span = &fixture->timeline.spans[i];
		for (int w = 0; w < op->host_waits.count; w++) {
			int wait = slice_of(program, op->host_waits)[w];
			if (wait >= 0 && fixture->timeline.spans[wait].end > host)
				host = fixture->timeline.spans[wait].end;
		}
		span->issued = host;
		host += 2e-6;
		/* The host runs a few operations ahead, as with the rate limiter. */
		if (i >= 8 && fixture->timeline.spans[i - 8].end > host)
			host = fixture->timeline.spans[i - 8].end;
		span->start = span->issued > free[op->stream] ? span->issued : free[op->stream];
		from[i] = last[op->stream];
		for (int w = 0; w < op->waits.count; w++) {
			int wait = slice_of(program, op->waits)[w];
			if (wait >= 0 && fixture->timeline.spans[wait].end > span->start) {
				span->start = fixture->timeline.spans[wait].end;
				from[i] = wait;
			}
		}
		span->end = span->start + seconds_of(fixture, op);
		free[op->stream] = span->end;
		last[op->stream] = i;
		if (span->end > fixture->timeline.step_time)
			fixture->timeline.step_time = span->end;
	}
	fixture->critical.ops = ARENA_ARRAY(&fixture->arena, int, program->n_ops);
	fixture->critical.reasons =
		ARENA_ARRAY(&fixture->arena, enum critical_reason, program->n_ops);
	int n = 0;
	for (int i = program->n_ops - 1; i >= 0; i = from[i])
		n++;
	fixture->critical.n = n;
	for (int i = program->n_ops - 1; i >= 0; i = from[i]) {
		fixture->critical.ops[--n] = i;
		fixture->critical.reasons[n] = from[i] >= 0 ? CRITICAL_WAIT : CRITICAL_START;
	}
}

static void fill_memory(struct fixture *fixture, const struct ledger *ledger)
{
	struct prediction *prediction = &fixture->prediction;
	int n = fixture->schedule->programs[0].n_ops;

	fixture->memory.n = n;
	fixture->memory.times = ARENA_ARRAY(&fixture->arena, double, n);
	fixture->memory.bytes =
		arena_alloc(&fixture->arena, (size_t)n, sizeof(*fixture->memory.bytes));
	for (int i = 0; i < n; i++) {
		fixture->memory.times[i] = fixture->timeline.spans[i].issued;
		memcpy(fixture->memory.bytes[i], ledger->live[i], sizeof(*ledger->live));
		fixture->memory.bytes[i][CATEGORY_RUNTIME_OVERHEAD] += OVERHEAD;
		memcpy(fixture->timeline.live[i], ledger->live[i], sizeof(*ledger->live));
	}
	memcpy(prediction->memory_at_peak, fixture->memory.bytes[ledger->peak_op],
		sizeof(prediction->memory_at_peak));
	memcpy(prediction->ledger_category_peak, ledger->category_peak_bytes,
		sizeof(prediction->ledger_category_peak));
	memcpy(prediction->memory_category_peak, ledger->category_peak_bytes,
		sizeof(prediction->memory_category_peak));
	prediction->memory_category_peak[CATEGORY_RUNTIME_OVERHEAD] += OVERHEAD;
	prediction->ledger_peak_bytes = ledger->peak_bytes;
	prediction->peak_allocated_bytes = ledger->peak_bytes;
	prediction->peak_reserved_bytes = ledger->peak_bytes + (200 << 20);
	prediction->peak_memory_bytes = ledger->peak_bytes + OVERHEAD;
	prediction->peak_op = ledger->peak_op;
	prediction->peak_at = "backward of the last block";
}

/* One axis: all that is communicated. */
static void fill_axes(struct fixture *fixture)
{
	const struct group *group = &fixture->schedule->groups[0];
	const struct time_split *time = &fixture->prediction.time;

	fixture->prediction.axes[group->kind] = (struct axis_figures){group->size, group->stride,
		1e9, time->all_gather + time->reduce_scatter + time->all_reduce, time->all_gather};
}

static void fill_times(struct fixture *fixture)
{
	const struct program *program = &fixture->schedule->programs[0];
	struct prediction *prediction = &fixture->prediction;
	double *sums[] = {[COLLECTIVE_ALL_GATHER] = &prediction->time.all_gather,
		[COLLECTIVE_REDUCE_SCATTER] = &prediction->time.reduce_scatter,
		[COLLECTIVE_ALL_REDUCE] = &prediction->time.all_reduce};

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct span *span = &fixture->timeline.spans[i];
		if (op_kind_class(op->kind) != OP_CLASS_COLLECTIVE) {
			prediction->time.compute += span->end - span->start;
			continue;
		}
		enum collective_kind kind = op->kind == OP_ALL_GATHER ? COLLECTIVE_ALL_GATHER
					    : op->kind == OP_REDUCE_SCATTER
						    ? COLLECTIVE_REDUCE_SCATTER
						    : COLLECTIVE_ALL_REDUCE;
		*sums[kind] += span->end - span->start;
		prediction->collectives[kind]++;
		prediction->wire_bytes_per_rank += collective_wire_bytes(
			op->kind, fixture->schedule->groups[op->group].size, op->bytes);
	}
	prediction->time.exposed_communication = 0.07 * fixture->timeline.step_time;
}

static void fill_prediction(struct fixture *fixture)
{
	const struct plan *plan = &fixture->schedule->plan;
	struct prediction *prediction = &fixture->prediction;
	struct model_states states = schedule_model_states(fixture->schedule, 0);
	struct digest digest = schedule_digest(fixture->schedule);

	prediction->schedule_digest = arena_strdup(&fixture->arena, digest.hex);
	prediction->fits = FITS_YES;
	prediction->memory_limit_bytes = fixture->topology->device.memory_bytes;
	prediction->step_time = fixture->timeline.step_time;
	prediction->tokens_per_s_per_gpu =
		(double)(plan->micro_batch * plan->grad_accum * plan->seq_len) /
		prediction->step_time;
	prediction->peak_flops = 312e12;
	prediction->peak_name = "A100-SXM4-80GB bf16 dense";
	prediction->mfu = 0.412;
	prediction->mfu_6n = 0.383;
	prediction->mfu_causal = 0.397;
	prediction->hfu = 0.412;
	prediction->model_states_parameters = states.parameters;
	prediction->model_states_gradients = states.gradients;
	prediction->model_states_optimizer_state = states.optimizer_state;
	prediction->step_time_low = prediction->step_time * 0.9;
	prediction->step_time_high = prediction->step_time * 1.2;
	prediction->uncertainty_source = "prior of the device generation";
	prediction->lower_bound = prediction->step_time * 0.4;
	prediction->plan_lower_bound = prediction->step_time * 0.6;
}

/* As if the machine were 7 % slower than predicted. */
static void fill_measurement(struct fixture *fixture)
{
	struct measurement *measurement = &fixture->measurement;
	int n = fixture->timeline.n_ops;

	measurement->values = fixture->prediction;
	measurement->values.step_time *= 1.07;
	measurement->ranks = plan_ranks(&fixture->schedule->plan);
	measurement->nodes = fixture->schedule->topology->nodes;
	measurement->steps = 60;
	measurement->warm_up_steps = 2;
	measurement->step_time_p50 = measurement->values.step_time * 0.99;
	measurement->step_time_p95 = measurement->values.step_time * 1.1;
	measurement->step_time_variance = 1e-6;
	measurement->n_losses = 60;
	measurement->losses = ARENA_ARRAY(&fixture->arena, double, 60);
	measurement->gradient_norms = ARENA_ARRAY(&fixture->arena, double, 60);
	for (int i = 0; i < 60; i++) {
		measurement->losses[i] = 2 + 3.5 / (1 + i / 6.0) + 0.05 * (i % 3);
		measurement->gradient_norms[i] = 1.5 / (1 + i);
	}
	measurement->weights_digest = "00112233445566778899aabbccddeeff";
	measurement->reproducible = "plan";
	measurement->hardware = "a machine";
	measurement->versions = "shardplan 0.1.0, gcc 12.2";
	measurement->date = "2026-01-02T03:04:05Z";
	measurement->pss_growth_bytes = fixture->prediction.ledger_peak_bytes / 100 * 103;
	measurement->pss_growth_mean_bytes = fixture->prediction.ledger_peak_bytes / 100 * 102;
	timeline_init(&measurement->timeline, n, &fixture->arena);
	memcpy(measurement->timeline.live, fixture->timeline.live,
		(size_t)n * sizeof(*fixture->timeline.live));
	measurement->timeline.step_time = fixture->timeline.step_time * 1.07;
	for (int i = 0; i < n; i++) {
		const struct span *span = &fixture->timeline.spans[i];
		measurement->timeline.spans[i] =
			(struct span){span->issued * 1.07, span->start * 1.07, span->end * 1.07};
	}
}

static const char *const reasons[] = {
	"Gathers of the next block hide behind the compute of this one.",
	"SHARD_GRAD_OP would save a second gather but holds all parameters.",
};

static struct sensitivity sensitivities[] = {
	{"network", "half the bandwidth", 0, 0, "the gathers are no longer hidden"},
	{"prefetch", "none", 0, 0, ""},
	{"micro_batch", "4", 0, 0, "does not fit"},
};

/* Every other strategy, with figures made up from the chosen plan's. */
static void fill_answer(struct fixture *fixture)
{
	struct answer *answer = &fixture->answer;
	static const enum outcome outcomes[] = {
		OUTCOME_DOES_NOT_FIT, OUTCOME_SLOWER, OUTCOME_SLOWER, OUTCOME_IMPOSSIBLE};
	static const char *const why[] = {"needs 98.3 GiB, 18.3 GiB over the limit",
		"12.4 ms slower: 9.1 ms more of communication exposed", "40 ms slower",
		"HYBRID_SHARD_ZERO2: not with this runtime"};

	fixture->chosen = (struct candidate){
		fixture->schedule->plan, fixture->prediction, OUTCOME_CHOSEN, ""};
	answer->chosen = &fixture->chosen;
	answer->n_alternatives = 4;
	answer->alternatives = ARENA_ARRAY(&fixture->arena, struct candidate, 4);
	for (int i = 0; i < 4; i++) {
		struct candidate *candidate = &answer->alternatives[i];
		*candidate = fixture->chosen;
		candidate->outcome = outcomes[i];
		candidate->why_not = why[i];
		candidate->plan.strategy =
			(enum strategy)(i < (int)STRATEGY_FULL_SHARD ? i : i + 1);
		candidate->prediction.step_time *= 1 + 0.15 * (i + 1);
		candidate->prediction.time.exposed_communication *= 1 + 1.5 * i;
	}
	answer->alternatives[0].prediction.fits = FITS_NO;
	answer->alternatives[0].prediction.memory_at_peak[CATEGORY_PARAMETERS] += 60LL << 30;
	answer->alternatives[0].prediction.peak_memory_bytes += 60LL << 30;
	answer->n_reasons = COUNT_OF(reasons);
	answer->reasons = (const char **)reasons;
	answer->n_sensitivities = COUNT_OF(sensitivities);
	answer->sensitivities = sensitivities;
	sensitivities[0].step_time = fixture->prediction.step_time * 1.31;
	sensitivities[0].peak_memory_bytes = fixture->prediction.peak_memory_bytes;
	sensitivities[1].step_time = fixture->prediction.step_time * 1.04;
	sensitivities[1].peak_memory_bytes = fixture->prediction.peak_memory_bytes;
	answer->evaluated = 212;
	answer->pruned = 540;
}

/* NO_SHARD leads until it no longer fits; HYBRID is not there on one node. */
static struct study_point scaling_points[2][3] = {
	{{true, FITS_YES, 1, 3000, 0, 1}, {true, FITS_YES, 1, 3100, 0, 1},
		{true, FITS_YES, 1, 3200, 0, 1}},
	{{true, FITS_YES, 1, 4000, 0, 1}, {false, FITS_NO, 0, 0, 0, 0},
		{true, FITS_NO, 1, 3000, 0, 1}},
};
static const double scaling_values[] = {1, 2, 4};
static const char *const scaling_names[] = {"1", "2", "4"};

static void fill_studies(struct fixture *fixture)
{
	struct study_line *lines = ARENA_ARRAY(&fixture->arena, struct study_line, 2);

	lines[0] = (struct study_line){
		"FULL_SHARD", STRATEGY_FULL_SHARD, fixture->schedule->plan, scaling_points[0]};
	lines[1] = (struct study_line){
		"NO_SHARD", STRATEGY_NO_SHARD, fixture->schedule->plan, scaling_points[1]};
	fixture->scaling =
		(struct study){"nodes", "nodes", 3, scaling_values, scaling_names, 1, 2, lines};
	fixture->link = fixture->scaling;
	fixture->link.quantity = "bandwidth out of a node";
	fixture->link.n_lines = 1;
}

static void build(struct fixture *fixture, const char *model, const char *topology,
	const char *const *options)
{
	struct arena *arena = &fixture->arena;
	struct error error = {0};
	struct plan plan;

	bool ok = model_load_preset(arena, model, &fixture->model, &error) &&
		  topology_load_name(arena, topology, &fixture->topology, &error);
	for (; ok && *options != NULL; options += 2)
		ok = question_set_by_name(
			&fixture->question, options[0], options[0], options[1], arena, &error);
	fixture->question.model = fixture->model;
	fixture->question.topology = fixture->topology;
	ok = ok && plan_resolve(&fixture->question, arena, &plan, &error) &&
	     schedule_build(
		     arena, &plan, fixture->model, fixture->topology, &fixture->schedule, &error);
	if (!ok)
		fail_msg("%s", error.message);
}

static void assemble(struct fixture *fixture, const char *model, const char *topology)
{
	static const struct tolerance tolerance = {-1, 0.10};

	fixture->question.model = fixture->model;
	fixture->question.topology = fixture->topology;
	fixture->explained = (struct explained){.schedule = fixture->schedule,
		.prediction = &fixture->prediction,
		.predicted = &fixture->timeline,
		.memory = &fixture->memory,
		.critical = &fixture->critical};
	report_check(fixture->schedule, &fixture->prediction, &fixture->measurement, &tolerance,
		&fixture->arena, &fixture->check);
	fixture->report = (struct report){{model, topology, "--gpus 16"}, &fixture->question,
		&fixture->answer, fixture->explained, &fixture->check};
	fixture->report.explained.measured = &fixture->measurement;
	fixture->report.scaling = &fixture->scaling;
	fixture->report.link = &fixture->link;
}

void fixture_init(struct fixture *fixture, const char *model, const char *topology,
	const char *const *options)
{
	struct ledger ledger;

	memset(fixture, 0, sizeof(*fixture));
	build(fixture, model, topology, options);
	timeline_init(&fixture->timeline, fixture->schedule->programs[0].n_ops, &fixture->arena);
	run(fixture);
	schedule_ledger(fixture->schedule, 0, &fixture->arena, &ledger);
	fill_memory(fixture, &ledger);
	fill_times(fixture);
	fill_axes(fixture);
	fill_prediction(fixture);
	fill_measurement(fixture);
	fill_answer(fixture);
	fill_studies(fixture);
	assemble(fixture, model, topology);
}

void fixture_rename(struct fixture *fixture, const char *name)
{
	fixture->report.asked = (struct question_text){name, name, name};
	fixture->report.label = name;
	fixture->model->architecture.name = name;
	fixture->topology->name = fixture->topology->source = name;
	fixture->topology->device.name = name;
	fixture->topology->calibration.provenance = name;
	fixture->prediction.peak_at = fixture->prediction.peak_name = name;
	fixture->prediction.uncertainty_source = name;
	fixture->measurement.hardware = fixture->measurement.versions = name;
	fixture->measurement.date = name;
	fixture->answer.alternatives[1].why_not = name;
	fixture->scaling.lines[0].name = name;
	for (int u = 0; u < fixture->schedule->programs->n_units; u++)
		fixture->schedule->programs->units[u].name = name;
	for (int m = 0; m < fixture->model->n_modules; m++)
		fixture->model->modules[m].name = name;
	for (int i = 0; i < fixture->model->n_parameters; i++)
		fixture->model->parameters[i].name = name;
}

void fixture_finish(struct fixture *fixture)
{
	arena_finish(&fixture->arena);
}

int fixture_setup(void **state)
{
	static const char *const options[] = {"strategy", "FULL_SHARD", "wrap", "block", NULL};
	struct fixture *fixture = malloc(sizeof(*fixture));

	fixture_init(fixture, "gpt2-nano", "2xdgx-a100-80gb", options);
	*state = fixture;
	return 0;
}

int fixture_teardown(void **state)
{
	fixture_finish(*state);
	free(*state);
	return 0;
}
