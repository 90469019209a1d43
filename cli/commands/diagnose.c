/* `diagnose`: says why a step is as slow as it is. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/measured_file.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

/* The question, and how its answer is written. */
struct asking {
	const struct opened *opened;
	struct arena *arena;
	struct style style;
	bool json;
	struct diagnosed_figures figures; /* given as options */
	struct text *answer;
	bool *nothing_measured; /* the file is readable but has no measurement */
};

static bool answer(
	const struct asking *asking, const struct diagnosed *diagnosed, struct error *error)
{
	struct diagnosis diagnosis;

	if (!diagnose(diagnosed, asking->arena, &diagnosis, error))
		return false;
	if (asking->json)
		report_diagnosis_json(&diagnosis, asking->answer);
	else
		report_diagnosis_text(&diagnosis, &asking->style, asking->answer);
	return true;
}

static bool answer_figures(
	const struct asking *asking, const struct diagnosed_figures *figures, struct error *error)
{
	struct figures_diagnosis diagnosis;

	if (!diagnose_figures(figures, asking->arena, &diagnosis, error))
		return false;
	if (asking->json)
		report_figures_json(&diagnosis, asking->answer);
	else
		report_figures_text(&diagnosis, &asking->style, asking->answer);
	return true;
}

/* Refuses options of figures that the file has itself. A trace has its own step time; a log's may
 * be replaced. */
static bool refuse_figures(const struct asking *asking, const char *path, struct error *error)
{
	return (asking->figures.step_time <= 0 && asking->figures.mfu <= 0) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "diagnose: %s tells its own step time; leave out %s", path,
		       asking->figures.step_time > 0 ? "--step-time" : "--mfu");
}

static bool answer_trace(const struct asking *asking, const char *path, struct error *error)
{
	const struct plan_file *file = &asking->opened->file;
	struct kineto kineto;

	kineto_init(&kineto, path);
	bool ok = refuse_figures(asking, path, error) &&
		  measured_feed(path, &kineto, asking->arena, error);
	*asking->nothing_measured = ok && kineto.activities.n == 0;
	ok = ok && kineto_end(&kineto, error);
	if (ok) {
		struct diagnosed diagnosed = {.file = file, .activities = &kineto.activities};
		kineto_facts(&kineto, &diagnosed.facts);
		if (kineto.world_size > 0 && kineto.world_size != plan_ranks(&file->plan))
			output_note("the trace is of %lld ranks, the plan is for %lld",
				(long long)kineto.world_size, (long long)plan_ranks(&file->plan));
		if (kineto.n_steps == 0)
			output_note("%s has no ProfilerStep annotations: "
				    "all of it counts as one step; "
				    "call profiler.step() in the loop",
				path);
		ok = answer(asking, &diagnosed, error);
	}
	kineto_finish(&kineto);
	return ok;
}

static double spread_of(const struct measurement *measured)
{
	double mean = measured->values.step_time;
	return mean > 0 ? sqrt(measured->step_time_variance) / mean : NAN;
}

/* The load of other processes, from the line that `train` writes about the hardware; a rank has two
 * threads. NAN: unknown. */
static double other_load(const struct measurement *measured)
{
	const char *hardware = measured->hardware != NULL ? measured->hardware : "";
	const char *cpus = strstr(hardware, " CPUs"), *load = strstr(hardware, "load average ");
	double count, average;

	while (cpus != NULL && cpus > hardware && cpus[-1] != ' ')
		cpus--;
	if (cpus == NULL || load == NULL || sscanf(cpus, "%lf", &count) != 1 ||
		sscanf(load, "load average %lf", &average) != 1 || count < 1)
		return NAN;
	return (average - 2 * (double)measured->ranks) / count;
}

/* Compares a measurement. Its operations are those of its own schedule, so with another schedule
 * only the step times are compared. */
static bool answer_measurement(const struct asking *asking, const char *path, struct error *error)
{
	const struct opened *opened = asking->opened;
	struct measurement measured;
	struct activities activities = {0};
	bool same;

	if (!refuse_figures(asking, path, error) ||
		!input_any_measurement(asking->arena, path, &opened->file, &measured, &same, error))
		return false;
	int counted = (int)(measured.steps - measured.warm_up_steps);
	if (!same) {
		const struct diagnosed_figures figures = {&opened->file,
			measurement_step(&measured), 0, counted, spread_of(&measured)};
		output_note("%s is of another schedule than %s: "
			    "its step time is explained, not its operations",
			path, opened->path);
		return answer_figures(asking, &figures, error);
	}
	activities_of_timeline(opened->evaluation.schedule, &measured.timeline, &activities);
	struct diagnosed diagnosed = {&opened->file, &activities, trace_facts_unknown};
	diagnosed.facts.data_wait = measured.values.time.data_wait;
	diagnosed.facts.counted_steps = counted;
	diagnosed.facts.step_spread = spread_of(&measured);
	diagnosed.facts.other_load = other_load(&measured);
	bool ok = answer(asking, &diagnosed, error);
	activities_finish(&activities);
	return ok;
}

static bool answer_log(const struct asking *asking, const char *path, struct error *error)
{
	const struct plan *plan = &asking->opened->file.plan;
	struct diagnosed_figures figures = asking->figures;
	struct log_figures log;

	if (!measured_log(path, &log, error)) {
		*asking->nothing_measured = true;
		return false;
	}
	double tokens = plan_tokens_per_rank(plan);
	double step = log.step_time > 0              ? log.step_time
		      : log.tokens_per_s_per_gpu > 0 ? tokens / log.tokens_per_s_per_gpu
						     : 0;
	figures.step_time = figures.step_time > 0 ? figures.step_time : step;
	figures.mfu = figures.mfu > 0 ? figures.mfu : log.mfu;
	figures.n_steps = log.n_steps;
	figures.spread = log.spread;
	if (log.n_steps > 1)
		output_note("%s: a log of %d steps; medians, the first tenth left out", path,
			log.n_steps);
	return answer_figures(asking, &figures, error);
}

static bool answer_file(const struct asking *asking, const char *path, struct error *error)
{
	static bool (*const readers[])(const struct asking *, const char *, struct error *) = {
		[MEASURED_BY_TRAIN] = answer_measurement,
		[MEASURED_TRACE] = answer_trace,
		[MEASURED_LOG] = answer_log,
	};
	enum measured_kind kind;

	if (file_is_folder(path)) {
		int count;
		if (!measured_of_folder(asking->arena, path, &path, &count, error)) {
			*asking->nothing_measured = true;
			return false;
		}
		if (count > 1)
			output_note("%s, the first of %d traces", path, count);
	}
	return measured_kind(path, &kind, error) && readers[kind](asking, path, error);
}

/* Reads "31", "31%" or "0.31". */
static bool read_mfu(const char *typed, double *mfu, struct error *error)
{
	struct arena arena = {0};
	size_t length = strlen(typed);
	bool percent = length > 0 && typed[length - 1] == '%';
	bool ok = parse_number(arena_strndup(&arena, typed, length - percent), mfu);

	arena_finish(&arena);
	if (ok && (percent || *mfu > 1.5))
		*mfu /= 100;
	return (ok && *mfu > 0 && *mfu <= 1.5) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--mfu: expected percent such as 31, or a share such as 0.31, got \"%.40s\"",
		       typed);
}

static bool read_step_time(const char *typed, double *seconds, struct error *error)
{
	bool ok = parse_number(typed, seconds) || unit_parse(UNIT_TIME, typed, seconds);

	return (ok && *seconds > 0) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--step-time: expected a time such as 2.9s or 850ms, got \"%.40s\"", typed);
}

static bool read_figures(
	const struct arguments *arguments, struct diagnosed_figures *figures, struct error *error)
{
	const char *mfu = argument(arguments, "mfu"), *step = argument(arguments, "step-time");

	if (mfu == NULL && step == NULL && arguments->n_operands < 2)
		return error_set(error, EXIT_CODE_USAGE,
			"diagnose: expected what was measured: a trace, a measurement, a log, "
			"--step-time or --mfu");
	return (mfu == NULL || read_mfu(mfu, &figures->mfu, error)) &&
	       (step == NULL || read_step_time(step, &figures->step_time, error));
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct opened opened;
	struct text text = {0};
	bool nothing_measured = false;
	struct asking asking = {.opened = &opened,
		.arena = invocation->arena,
		.json = argument_given(arguments, "json"),
		.figures = {.file = &opened.file, .spread = NAN},
		.answer = &text,
		.nothing_measured = &nothing_measured};

	if (!output_style(arguments, &asking.style, error) ||
		!read_figures(arguments, &asking.figures, error) ||
		!open_plan(invocation->arena, arguments->operands[0], &opened, error))
		return false;
	bool ok = arguments->n_operands < 2 ? answer_figures(&asking, &asking.figures, error)
					    : answer_file(&asking, arguments->operands[1], error);
	if (nothing_measured)
		invocation->lines = kineto_recipe;
	ok = ok && output_text(&text, error);
	text_finish(&text);
	return ok;
}

const struct command command_diagnose = {
	.name = "diagnose",
	.summary = "say why a measured step is slower than its plan",
	.operands = "PLAN.yaml [MEASURED]",
	.least = 1,
	.most = 2,
	.details = "MEASURED is a trace of the PyTorch profiler (of one rank, also gzipped), "
		   "a folder of them, a measurement of `train`, or a log with step times, "
		   "tokens/s or MFU; without one give --step-time, --mfu or both. "
		   "Says where the step departs from the prediction, "
		   "the likely causes with the costliest first, "
		   "and what to turn with the predicted gain; of a log or a figure, "
		   "what the MFU counts and what alone would make the step that long. "
		   "To record a trace of three steps:",
	.lines = kineto_recipe,
	.examples = {"shardplan diagnose plan.yaml --step-time 2.9s --mfu 31",
		"shardplan diagnose plan.yaml train.log",
		"shardplan diagnose plan.yaml trace.json.gz",
		"shardplan diagnose plan.yaml measured.json --json"},
	.run = run,
};
