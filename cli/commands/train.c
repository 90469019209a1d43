/* `train`: executes a plan on this machine and measures it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/progress.h"
#include "cli/commands/resumption.h"
#include "cli/commands/retarget.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"
#include "executor/gpu_transports.h"

/* What the options say, beside the plan. */
struct training_options {
	struct training training;
	int64_t ranks; /* 0: as the plan */
	double clip;   /* < 0: as the plan */
	int64_t every, keep;
	bool background;
	struct resumption resumption;
	int reproducible, device, transport, cuda_graphs;
	int pace;           /* enum pace; -1 = all of an emulated run, else nothing */
	double slow_motion; /* 0 = as it needs */
	double join_timeout, collective_timeout;
	const char *emulate;
	struct nccl_wish nccl;
	struct launcher launcher;
};

enum level { LEVEL_RUN, LEVEL_PLAN, LEVEL_WORLD };
static const char *const levels[] = {"run", "plan", "world", NULL};
static const char *const devices[] = {"host", "cuda", "null", NULL};
#define X(name) #name,
static const char *const transports[] = {GPU_TRANSPORTS(X) NULL};
#undef X
static const char *const graph_wishes[] = {"auto", "on", "off", NULL}; /* enum graph_wish */

static bool on_gpus(const struct training_options *options)
{
	return strcmp(devices[options->device], "cuda") == 0;
}
static const char *const paces[] = {"none", "compute", "collectives", "all", NULL};

static bool read_numbers(const struct arguments *arguments, struct training_options *options,
	struct arena *arena, struct error *error)
{
	static const struct field fields[] = {
		FIELD_INT(struct training_options, training.steps, "steps", FIELD_POSITIVE),
		FIELD_INT(struct training_options, training.seed, "seed", FIELD_NOT_NEGATIVE),
		FIELD_DOUBLE(
			struct training_options, training.learning_rate, "lr", FIELD_NOT_NEGATIVE),
		FIELD_INT(struct training_options, training.warmup, "warmup", FIELD_NOT_NEGATIVE),
		FIELD_ENUM(struct training_options, training.lr_schedule, "lr_schedule", 0,
			lr_schedule_names),
		FIELD_DOUBLE(
			struct training_options, training.min_lr, "min_lr", FIELD_NOT_NEGATIVE),
		FIELD_INT(struct training_options, ranks, "ranks", FIELD_POSITIVE),
		FIELD_DOUBLE(struct training_options, clip, "clip", FIELD_NOT_NEGATIVE),
		FIELD_INT(struct training_options, every, "every", FIELD_POSITIVE),
		FIELD_INT(struct training_options, keep, "keep", FIELD_POSITIVE),
		FIELD_DOUBLE(struct training_options, slow_motion, "slow_motion", FIELD_POSITIVE),
		FIELD_DOUBLE(struct training_options, join_timeout, "join_timeout", FIELD_POSITIVE),
		FIELD_DOUBLE(struct training_options, collective_timeout, "collective_timeout",
			FIELD_POSITIVE),
		FIELD_BOOL(struct training_options, background, "checkpoint_background", 0),
		FIELD_END,
	};

	*options = (struct training_options){.training = training_defaults(),
		.clip = -1,
		.reproducible = -1,
		.pace = -1,
		.transport = -1};
	return arguments_set(arguments, fields, options, arena, error);
}

static const char *const of_checkpoints[] = {"every", "keep", "checkpoint-background"};

static bool read_options(const struct arguments *arguments, struct training_options *options,
	struct arena *arena, struct error *error)
{
	if (!read_numbers(arguments, options, arena, error) ||
		!argument_choice(
			arguments, "reproducible", levels, &options->reproducible, error) ||
		!argument_choice(arguments, "device", devices, &options->device, error) ||
		!argument_choice(arguments, "transport", transports, &options->transport, error) ||
		!argument_choice(
			arguments, "cuda-graphs", graph_wishes, &options->cuda_graphs, error) ||
		!argument_choice(arguments, "pace", paces, &options->pace, error) ||
		!nccl_wish_parse(argument(arguments, "nccl"), &options->nccl, error))
		return false;
	options->emulate = argument(arguments, "emulate");
	if (options->transport >= 0 && !on_gpus(options))
		return error_set(error, EXIT_CODE_USAGE,
			"--transport: goes with --device cuda, which is missing");
	if (options->cuda_graphs == GRAPHS_ON && !on_gpus(options))
		return error_set(error, EXIT_CODE_USAGE,
			"--cuda-graphs on: goes with --device cuda, which is missing");
	if (options->pace < 0)
		options->pace = options->emulate != NULL ? PACE_ALL : PACE_NONE;
	if (options->slow_motion != 0 && options->slow_motion < 1)
		return error_set(error, EXIT_CODE_USAGE, "--slow-motion %g: expected 1 or more",
			options->slow_motion);
	if (options->slow_motion != 0 && options->pace == PACE_NONE)
		return error_set(error, EXIT_CODE_USAGE,
			"--slow-motion: nothing is paced; use --emulate or --pace too");
	for (int i = 0; i < COUNT_OF(of_checkpoints); i++) {
		if (argument_given(arguments, of_checkpoints[i]) &&
			!argument_given(arguments, "checkpoint"))
			return error_set(error, EXIT_CODE_USAGE,
				"--%s: goes with --checkpoint DIR, which is missing",
				of_checkpoints[i]);
	}
	if (!argument_given(arguments, "data"))
		return error_set(error, EXIT_CODE_USAGE,
			"--data: missing, expected a text file or a .bin token file");
	if (argument_given(arguments, "json") && argument_given(arguments, "json-lines"))
		return error_set(
			error, EXIT_CODE_USAGE, "--json: does not go with --json-lines, use one");
	return true;
}

static bool check_decay(
	const struct arguments *arguments, const struct training *training, struct error *error)
{
	if (training->lr_schedule == LR_CONSTANT)
		return !argument_given(arguments, "min-lr") ||
		       error_set(error, EXIT_CODE_USAGE,
			       "--min-lr: goes with --lr-schedule linear or cosine, "
			       "which is missing");
	return training->min_lr <= training->learning_rate ||
	       error_set(error, EXIT_CODE_USAGE, "--min-lr %g: expected at most --lr, which is %g",
		       training->min_lr, training->learning_rate);
}

/* "measured.json" -> "measured.plan.yaml", beside it. */
static const char *adapted_path(struct arena *arena, const char *measured)
{
	size_t length = strlen(measured);

	if (length > 5 && strcmp(measured + length - 5, ".json") == 0)
		length -= 5;
	return arena_printf(arena, "%.*s.plan.yaml", (int)length, measured);
}

/* What would have been asked to get the adapted plan: `report` asks it again. */
static struct question_text adapted_question(struct arena *arena, const struct plan_file *file,
	const char *topology, const struct plan *plan)
{
	const char *line = arena_printf(arena,
		"--gpus %lld --seq-len %lld --micro-batch %lld --grad-accum %lld",
		(long long)plan_ranks(plan), (long long)plan->seq_len, (long long)plan->micro_batch,
		(long long)plan->grad_accum);
	struct text clip = {0};

	text_number(&clip, plan->clip);
	if (plan->clip > 0)
		line = arena_printf(arena, "%s --clip %s", line, text_string(&clip));
	text_finish(&clip);
	return (struct question_text){file->question.model, topology, line};
}

/* Compiles for this machine what was planned for another, and says what changed. The new plan,
 * which is kept beside the measurement, has its own prediction: `check` compares the two. */
static bool adapt(struct arena *arena, const struct training_options *options, const char *measured,
	struct opened *opened, struct error *error)
{
	struct adaptation adaptation;
	struct evaluation evaluation;
	const char *path = adapted_path(arena, measured);
	const struct adaptation_target target = {options->ranks, options->clip, on_gpus(options),
		options->reproducible == LEVEL_WORLD, options->emulate};
	struct text yaml = {0};

	if ((on_gpus(options) && !executor_has_gpus(error)) ||
		!adapt_plan(arena, &opened->file, &target, &adaptation, error))
		return false;
	const struct question here = {.model = opened->file.model, .topology = adaptation.topology};
	if (!plan_evaluate(&here, &adaptation.plan, EVALUATION_WHOLE, arena, &evaluation, error))
		return false;
	output_note("%s is recompiled for runtime shardplan on %s:", opened->path,
		options->emulate != NULL ? options->emulate : "this machine");
	for (int i = 0; i < adaptation.n_changes; i++)
		output_note("  %s", adaptation.changes[i]);
	const struct question_text question = adapted_question(arena, &opened->file,
		options->emulate != NULL ? options->emulate : "local", &adaptation.plan);
	print_plan(&question, opened->file.model, adaptation.topology, &evaluation, &yaml);
	opened->path = path;
	opened->text = arena_strdup(arena, text_string(&yaml));
	opened->evaluation = evaluation;
	text_finish(&yaml);
	return plan_file_parse(
		arena, path, opened->text, strlen(opened->text), &opened->file, error);
}

static bool save_adapted(struct arena *arena, const struct opened *opened, struct error *error)
{
	struct text yaml = {0};

	text_add(&yaml, opened->text);
	bool ok = file_write(arena, opened->path, &yaml, error);
	text_finish(&yaml);
	return ok;
}

/* A launcher has decided where the ranks are: only the very plan that was made for that can be
 * trained. */
static bool check_launched(
	const struct training_options *options, const struct opened *opened, struct error *error)
{
	const struct plan_file *file = &opened->file;
	const struct launcher *launcher = &options->launcher;

	if (options->emulate != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"--emulate: lets ranks of one machine stand in for others, "
			"and %s has started them already; leave out one of the two",
			launcher->name);
	if (options->ranks != launcher->ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: for %lld ranks (%lld nodes x %lld), %s started %d", opened->path,
			(long long)options->ranks, (long long)file->topology->nodes,
			(long long)file->topology->devices_per_node, launcher->name,
			launcher->ranks);
	if (on_gpus(options) ? plan_runs_on_gpus(file, options->ranks, options->clip)
			     : plan_runs_on_cpus(file, options->ranks, options->clip))
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"%s: %s cannot execute it as it is (runtime %s on %s, clip %g): "
		"plan with --runtime shardplan for a topology of CPU nodes, "
		"such as `calibrate cluster` under %s writes",
		opened->path, launcher->name, runtime_names[file->plan.runtime],
		file->topology->device.name, file->plan.clip, launcher->name);
}

/* The first rank speaks for all: what only another one has found is told when the first would have
 * told it. */
static void let_the_first_speak(const struct launcher *launcher)
{
	if (launcher->rank > 0)
		sleep(3);
}

/* Partial sums of a hybrid are those of the other strategies only where its shard groups are
 * subtrees of the tree that sums over all ranks (docs/commands.md). */
static bool check_level(
	const struct opened *opened, const struct training_options *options, struct error *error)
{
	const struct mesh *mesh = &opened->file.plan.mesh;
	bool subtrees = mesh->replicate == 1 || (mesh->shard & (mesh->shard - 1)) == 0;

	if (subtrees || options->reproducible != LEVEL_PLAN ||
		opened->file.plan.gradient_sums == SUMS_EXACT)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--reproducible plan: shard groups of %lld cannot keep it beside %lld replicas; "
		"use a power of two, or --reproducible run",
		(long long)mesh->shard, (long long)mesh->replicate);
}

static bool check_fits(const char *path, const struct opened *opened, struct error *error)
{
	const struct prediction *prediction = &opened->file.prediction;
	char need[32], have[32];

	if (prediction->fits != FITS_NO)
		return true;
	return error_set(error, EXIT_CODE_NO,
		"%s: does not fit: each of %lld ranks needs %s, and has %s", path,
		(long long)plan_ranks(&opened->file.plan),
		format_bytes(need, (double)prediction->peak_memory_bytes),
		format_bytes(have, (double)prediction->memory_limit_bytes));
}

static void note_line(const char *line, void *data)
{
	(void)data;
	output_note("%s", line);
}

/* Against what the calibration has: whether this machine is as fast as it was then. */
static double yardstick(const struct training_options *options, const struct opened *opened)
{
	bool host = strcmp(devices[options->device], "host") == 0 && options->pace == PACE_NONE &&
		    options->launcher.ranks <= 1;

	return host && opened->file.topology->calibration.yardstick > 0 ? executor_yardstick() : 0;
}

/* Runs it; what was measured, and what of its lines could not be written. */
static bool execute(const struct invocation *invocation, const struct training_options *options,
	const struct opened *opened, struct progress_output *progress, struct measurement *measured,
	struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;

	output_answer();
	*progress = progress_output_start(argument_given(arguments, "json-lines"));
	const struct executor_job job = {
		.plan = &opened->file,
		.plan_text = opened->text,
		.training = options->training,
		.data = argument(arguments, "data"),
		.device = devices[options->device],
		.transport = options->transport >= 0 ? transports[options->transport] : NULL,
		.cuda_graphs = (enum graph_wish)options->cuda_graphs,
		.nccl = options->nccl,
		.checkpoint = argument(arguments, "checkpoint"),
		.checkpoint_every = options->every,
		.checkpoint_keep = options->keep,
		.checkpoint_background = options->background,
		.weights = options->resumption.weights,
		.resume = options->resumption.from.folder,
		.resume_or_older = options->resumption.from.newest,
		.fault = argument(arguments, "fault"),
		.launcher = options->launcher,
		.all_plans = options->reproducible == LEVEL_PLAN,
		.any_rounding = options->reproducible == LEVEL_RUN ||
				opened->file.plan.gelu == GELU_IN_PRODUCT,
		.expected = &opened->evaluation.simulation.timeline,
		.expected_of_classes = opened->evaluation.timelines,
		.pace = (unsigned)options->pace,
		.slow_motion = options->slow_motion,
		.collective_timeout = options->collective_timeout,
		.report = progress_report,
		.alive = progress_alive,
		.stopping = progress_stopping,
		.note = note_line,
		.report_data = progress,
	};
	double before = yardstick(options, opened);
	bool ok = executor_train(&job, invocation->arena, measured, error);

	progress_output_end(progress);
	if (!ok)
		return false;
	measured->yardstick_before = before;
	measured->yardstick_after = yardstick(options, opened);
	return true;
}

static bool save_measurement(const struct invocation *invocation, const struct opened *opened,
	const struct measurement *measured, const char *path, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct text json = {0}, shown = {0};
	struct style style;

	report_measurement_json(&opened->file.question, &opened->file.plan, measured, &json);
	bool ok = output_style(arguments, &style, error) &&
		  file_write(invocation->arena, path, &json, error);
	if (ok && strcmp(path, "-") != 0) {
		output_note("the measurement is in %s", path);
		if (argument_given(arguments, "json"))
			text_add_bytes(&shown, text_string(&json), json.length);
		else if (!argument_given(arguments, "json-lines"))
			report_measurement_text(measured, &style, &shown);
		ok = output_text(&shown, error);
	}
	text_finish(&json);
	text_finish(&shown);
	return ok;
}

static bool choose_slow_motion(struct arena *arena, struct training_options *options,
	const struct opened *opened, struct error *error)
{
	bool arithmetic = strcmp(devices[options->device], "null") != 0, ok = true;

	if (options->emulate != NULL && options->slow_motion == 0)
		ok = on_gpus(options)
			     ? adapt_gpu_slow_motion(
				       arena, &opened->file, &options->slow_motion, error)
			     : adapt_slow_motion(arena, &opened->evaluation, opened->file.model,
				       arithmetic, &options->slow_motion, error);
	if (!ok)
		return false;
	if (options->slow_motion > 1)
		output_note("in slow motion: everything takes %.3g times as long as on %s, "
			    "and measured times are divided by that",
			options->slow_motion,
			options->emulate != NULL ? options->emulate : "the planned machine");
	return true;
}

/* That the level and the plan agree on where GELU is computed. */
static bool check_gelu(
	const struct training_options *options, const struct opened *opened, struct error *error)
{
	bool in_product = opened->file.plan.gelu == GELU_IN_PRODUCT;

	if (in_product && options->reproducible == LEVEL_PLAN)
		return error_set(error, EXIT_CODE_USAGE,
			"--reproducible plan: "
			"the plan has --gelu product, which rounds as no other plan does; "
			"use --reproducible run, or a plan of --gelu kernel");
	if (!in_product && on_gpus(options) && options->reproducible == LEVEL_RUN &&
		opened->file.model->architecture.gelu_tanh)
		output_note("GELU is computed in products, the prediction has it by itself; "
			    "plan with --gelu product to predict that");
	return true;
}

static bool lacks_exact_sums(const struct training_options *options, const struct opened *opened)
{
	return options->reproducible == LEVEL_WORLD &&
	       opened->file.plan.gradient_sums != SUMS_EXACT;
}

/* What is executed: the plan as it is, or recompiled for where it runs. */
static bool settle_plan(struct arena *arena, struct training_options *options, const char *path,
	struct opened *opened, struct error *error)
{
	bool ready = false;

	if (options->ranks == 0 && options->emulate == NULL)
		options->ranks = plan_ranks(&opened->file.plan);
	if (options->clip < 0)
		options->clip = opened->file.plan.clip;
	if (options->launcher.ranks > 1) {
		if (!check_launched(options, opened, error))
			return false;
		if (lacks_exact_sums(options, opened))
			return error_set(error, EXIT_CODE_USAGE,
				"--reproducible world: a plan that is launched runs as it is, "
				"expected one of --gradient-sums exact");
		ready = true;
	} else if (options->emulate == NULL) {
		ready = on_gpus(options)
				? plan_runs_on_gpus(&opened->file, options->ranks, options->clip)
				: plan_is_trainable(&opened->file, options->ranks, options->clip);
		ready = ready && !lacks_exact_sums(options, opened);
	}
	return check_gelu(options, opened, error) &&
	       (ready || adapt(arena, options, path, opened, error)) &&
	       choose_slow_motion(arena, options, opened, error);
}

/* `plan` may be NULL. */
static bool check_writable(
	struct arena *arena, const char *measured, const char *plan, struct error *error)
{
	return file_check_writable(arena, measured, error) &&
	       (plan == NULL || file_check_writable(arena, plan, error));
}

static bool make_checkpoint_folder(struct arena *arena, const char *folder, struct error *error)
{
	return folder == NULL ||
	       file_make_folders(arena, arena_printf(arena, "%s/", folder), error);
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct arena *arena = invocation->arena;
	const char *path = argument(arguments, "measured");
	const char *folder = argument(arguments, "checkpoint");
	struct progress_output progress;
	struct training_options options;
	struct opened opened;
	struct measurement measured;

	if (!read_options(arguments, &options, arena, error) ||
		!executor_launcher(&options.launcher, error))
		return false;
	options.launcher.join_timeout = options.join_timeout;
	if (options.launcher.rank > 0)
		output_be_quiet();
	if (!open_plan(arena, arguments->operands[0], &opened, error) ||
		!resumption_find(arguments, arena, opened.file.model, &options.training,
			&options.resumption, error) ||
		!check_decay(arguments, &options.training, error))
		return false;
	if (options.resumption.finished)
		return true;
	if (path == NULL)
		path = file_beside(arena, arguments->operands[0], "measured.json");
	if (!settle_plan(arena, &options, path, &opened, error))
		return false;
	resumption_note(&options.resumption, &options.training, &opened.file.plan);
	bool adapted = strcmp(opened.path, arguments->operands[0]) != 0;
	if (!check_level(&opened, &options, error) ||
		!check_fits(arguments->operands[0], &opened, error) ||
		(options.launcher.rank == 0 &&
			!check_writable(arena, path, adapted ? opened.path : NULL, error)) ||
		!make_checkpoint_folder(arena, folder, error) ||
		!execute(invocation, &options, &opened, &progress, &measured, error))
		return false;
	/* The first rank has measured. */
	if (options.launcher.rank > 0)
		return true;
	if ((adapted && !save_adapted(arena, &opened, error)) ||
		!save_measurement(invocation, &opened, &measured, path, error))
		return false;
	if (adapted)
		output_note("its plan and prediction are in %s: shardplan check %s %s", opened.path,
			opened.path, path);
	return progress.lost.code == EXIT_CODE_OK ||
	       error_set(error, progress.lost.code, "%s", progress.lost.message);
}

static bool run_as_one_of_many(struct invocation *invocation, struct error *error)
{
	struct launcher launcher = {0};
	bool ok = run(invocation, error);

	if (!ok && error->code != EXIT_CODE_FAULT && executor_launcher(&launcher, NULL))
		let_the_first_speak(&launcher);
	return ok;
}

static const char *instead(const struct arguments *arguments, struct arena *arena)
{
	const char *plan = input_instead_of_plan(arena, arguments->operands[0]);

	return plan != NULL ? plan
			    : arena_printf(arena, "type --data %.200s if that is the training data",
				      arguments->extra);
}

const struct command command_train = {
	.name = "train",
	.summary = "train on this machine with exactly this plan, and measure",
	.operands = "PLAN.yaml",
	.least = 1,
	.most = 1,
	.details = "Ranks are processes of this machine; where they take all of its cores, "
		   "each thread that computes stays on one, unless OMP_PROC_BIND says otherwise. "
		   "A plan of another runtime, machine or "
		   "number of ranks is recompiled with the same knobs for `shardplan` on `local`; "
		   "what changed is printed, and the recompiled plan with its own prediction "
		   "goes beside the measurement as measured.plan.yaml: give that one to `check`. "
		   "Exit code 6: a rank died, hung or computed a value that is not finite.",
	.examples = {"shardplan train plan.yaml --data corpus.txt --steps 50",
		"shardplan train plan.yaml --data corpus.txt --json-lines > steps.jsonl"},
	.instead = instead,
	.run = run_as_one_of_many,
};
