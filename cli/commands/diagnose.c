/* `diagnose`: why a step is as slow as it is. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "schedule/traces/traces.h"

enum { PIECE = 1 << 20 };

/* zlib reads plain files too, so .json and .json.gz are one thing. */
static bool feed_file(
	const char *path, struct kineto *kineto, struct arena *arena, struct error *error)
{
	gzFile file = strcmp(path, "-") == 0 ? gzdopen(0, "rb") : gzopen(path, "rb");
	char *piece = arena_alloc(arena, PIECE, 1);
	bool ok = true;
	int n = 0;

	if (file == NULL)
		return error_set(error, EXIT_CODE_INPUT, "%s: cannot be read", path);
	while (ok && (n = gzread(file, piece, PIECE)) > 0)
		ok = kineto_feed(kineto, piece, (size_t)n, error);
	/* A gzip file that is cut short ends without an error of gzread. */
	bool whole = gzclose_r(file) == Z_OK && n >= 0;
	if (ok && !whole)
		return error_set(error, EXIT_CODE_INPUT, "%s: damaged or cut short", path);
	return ok;
}

static bool diagnose_trace(const char *path, const struct plan_file *file, struct arena *arena,
	struct diagnosis *diagnosis, struct error *error)
{
	struct kineto kineto;

	kineto_init(&kineto, path);
	bool ok = feed_file(path, &kineto, arena, error) && kineto_end(&kineto, error);
	if (ok) {
		const struct diagnosed diagnosed = {file, &kineto.activities,
			kineto.reduced > 0 ? kineto.fp32_reduced / kineto.reduced : NAN};
		if (kineto.world_size > 0 && kineto.world_size != plan_ranks(&file->plan))
			output_note("the trace is of %lld ranks, the plan is for %lld",
				(long long)kineto.world_size, (long long)plan_ranks(&file->plan));
		if (kineto.n_steps == 0)
			output_note("%s has no ProfilerStep annotations: all of it counts as one "
				    "step; call profiler.step() in the loop",
				path);
		ok = diagnose(&diagnosed, arena, diagnosis, error);
	}
	kineto_finish(&kineto);
	return ok;
}

static bool diagnose_measurement(const char *path, const struct opened *opened, struct arena *arena,
	struct diagnosis *diagnosis, struct error *error)
{
	struct measurement measured;
	struct activities activities = {0};

	if (!input_measurement(arena, path, &opened->file, &measured, error))
		return false;
	activities_of_timeline(opened->evaluation.schedule, &measured.timeline, &activities);
	const struct diagnosed diagnosed = {&opened->file, &activities, NAN};
	bool ok = diagnose(&diagnosed, arena, diagnosis, error);
	activities_finish(&activities);
	return ok;
}

/* Our own measurements say their schema in the first lines; a profiler's trace may be of any size.
 */
static bool is_measurement(const char *path)
{
	char start[512] = "";
	gzFile file = strcmp(path, "-") != 0 ? gzopen(path, "rb") : NULL;

	if (file == NULL)
		return false;
	int n = gzread(file, start, sizeof(start) - 1);
	start[n > 0 ? n : 0] = '\0';
	gzclose_r(file);
	return strstr(start, "shardplan/measurement/") != NULL;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct arena *arena = invocation->arena;
	const char *path = arguments->operands[1];
	struct opened opened;
	struct diagnosis diagnosis;
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error) ||
		!open_plan(arena, arguments->operands[0], &opened, error))
		return false;
	bool ok = is_measurement(path)
			  ? diagnose_measurement(path, &opened, arena, &diagnosis, error)
			  : diagnose_trace(path, &opened.file, arena, &diagnosis, error);
	if (!ok)
		return false;
	if (argument_given(arguments, "json"))
		report_diagnosis_json(&diagnosis, &text);
	else
		report_diagnosis_text(&diagnosis, &style, &text);
	ok = output_text(&text, error);
	text_finish(&text);
	return ok;
}

const struct command command_diagnose = {
	.name = "diagnose",
	.summary = "say why a measured step is slower than its plan",
	.operands = "PLAN.yaml MEASURED.json|TRACE.json[.gz]",
	.least = 2,
	.most = 2,
	.details =
		"The second file is a measurement of `train` or a trace of the PyTorch profiler "
		"(Chrome trace JSON of one rank, also gzipped, of any size). The plan says what "
		"was meant to run; the step is predicted anew and both are summed up by the same "
		"rules. Says what bounds the step, where it departs from the prediction, the "
		"likely causes with the costliest first, and what to turn with the predicted "
		"gain.",
	.examples = {"shardplan diagnose plan.yaml trace.json.gz",
		"shardplan diagnose plan.yaml measured.json --json"},
	.run = run,
};
