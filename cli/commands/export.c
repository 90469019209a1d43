/* `export`: a plan as the configuration of another framework. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"
#include "frameworks/frameworks.h"
#include "schedule/resolve/resolve.h"

/* -o FOLDER takes the target's own file name. */
static const char *output_path(
	const struct invocation *invocation, const struct export_target *target)
{
	const char *path = argument(&invocation->arguments, "output");
	size_t length = path != NULL ? strlen(path) : 0;

	if (length == 0)
		return NULL;
	if (path[length - 1] != '/' && !file_is_folder(path))
		return path;
	return arena_printf(invocation->arena, "%s%s%s", path, path[length - 1] == '/' ? "" : "/",
		target->file);
}

static void print_notes(const struct exported *exported)
{
	for (int i = 0; i < exported->n_notes; i++) {
		const struct export_note *note = &exported->notes[i];
		if (note->elsewhere)
			output_note("not in the file: %s %s", note->knob, note->text);
		else
			output_note("changed: %s %s", note->knob, note->text);
	}
}

/* What the file's own words will cost, when they are not the plan's. */
static void compare(struct arena *arena, const struct opened *opened,
	const struct export_target *target, const struct plan *plan)
{
	const struct plan_file *file = &opened->file;
	char before[2][32], after[2][32];
	const struct question question = {.model = file->model,
		.topology = file->topology,
		.memory_limit_bytes = file->prediction.memory_limit_bytes};
	struct evaluation evaluation;

	if (knobs_alike_but(0, plan, &file->plan) &&
		fields_equal(mesh_fields, &plan->mesh, &file->plan.mesh))
		return;
	if (!plan_check(plan, file->model, file->topology, NULL) ||
		!plan_evaluate(&question, plan, EVALUATION_BRIEF, arena, &evaluation, NULL)) {
		output_note("as exported it is not predicted");
		return;
	}
	const struct prediction *now = &evaluation.simulation.prediction;
	format_seconds(before[0], file->prediction.step_time);
	format_bytes(before[1], (double)file->prediction.peak_memory_bytes);
	format_seconds(after[0], now->step_time);
	format_bytes(after[1], (double)now->peak_memory_bytes);
	if (strcmp(before[0], after[0]) == 0 && strcmp(before[1], after[1]) == 0)
		return;
	output_note("as exported: %s a step, %s%s; the plan: %s, %s; `plan --for %s` keeps to its "
		    "words",
		after[0], after[1],
		now->fits == FITS_NO      ? ", which does not fit"
		: now->fits == FITS_TIGHT ? ", which is tight"
					  : "",
		before[0], before[1], target->name);
}

static bool print_list(void (*list)(struct text *text), struct error *error)
{
	struct text text = {0};

	list(&text);
	bool ok = output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool check_usage(const struct arguments *arguments, struct error *error)
{
	if (arguments->n_operands == 0)
		return error_set(error, EXIT_CODE_USAGE, "export: expected PLAN.yaml, or --list");
	if (!argument_given(arguments, "to"))
		return error_set(error, EXIT_CODE_USAGE,
			"export: expected --to TARGET; --list shows the targets");
	return true;
}

static bool write_config(
	struct arena *arena, const char *folder, const struct model *model, struct error *error)
{
	struct text config = {0};
	bool ok = true;

	if (model->architecture.trainable.rank > 0) {
		model_write_adapter_config(model, &config);
		ok = file_write(arena, arena_printf(arena, "%s/adapter_config.json", folder),
			&config, error);
	} else if (model_write_hugging_face(model, &config))
		ok = file_write(
			arena, arena_printf(arena, "%s/config.json", folder), &config, error);
	else
		output_note("no config.json: this family's cannot be written");
	text_finish(&config);
	return ok;
}

/* A checkpoint's weights. In a folder they get the names that transformers looks for; adapters
 * those that peft does. */
static bool export_weights(const struct invocation *invocation, struct error *error)
{
	const char *checkpoint = invocation->arguments.operands[0];
	const char *path = argument(&invocation->arguments, "output");
	struct arena *arena = invocation->arena;
	struct checkpoint_info info;

	if (path == NULL || path[0] == '\0' || strcmp(path, "-") == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"export --to safetensors: expected -o FILE.safetensors or -o FOLDER");
	if (!executor_find_checkpoint(arena, checkpoint, NULL, true, &info, error))
		return false;
	output_note_lines(info.notes);
	size_t length = strlen(path);
	const char *folder = path[length - 1] == '/' ? arena_strndup(arena, path, length - 1)
						     : (file_is_folder(path) ? path : NULL);
	if (folder != NULL) {
		path = arena_printf(arena, "%s/%s.safetensors", folder,
			info.model->architecture.trainable.rank > 0 ? "adapter_model" : "model");
		if (!file_make_folders(arena, path, error) ||
			!write_config(arena, folder, info.model, error))
			return false;
	}
	if (!executor_export_safetensors(info.folder, path, error))
		return false;
	output_note("the weights of step %lld are in %s", (long long)info.step, path);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct opened opened;
	struct exported exported;
	struct text text = {0};

	if (argument_given(arguments, "list"))
		return print_list(export_list, error);
	if (argument_given(arguments, "knobs"))
		return print_list(export_table, error);
	if (!check_usage(arguments, error))
		return false;
	if (strcmp(argument(arguments, "to"), "safetensors") == 0)
		return export_weights(invocation, error);
	const struct export_target *target = export_find(argument(arguments, "to"), error);
	if (target == NULL || !open_plan(invocation->arena, arguments->operands[0], &opened, error))
		return false;
	const char *asked = argument(arguments, "for-version");
	int version = asked != NULL ? export_find_version(target, asked, error) : 0;
	if (version < 0)
		return false;
	const char *path = output_path(invocation, target);
	bool to_stdout = path == NULL || strcmp(path, "-") == 0;
	bool ok = export_plan(target, version, &opened.file, to_stdout ? target->file : path,
			  invocation->arena, &exported, &text, error) &&
		  file_write(invocation->arena, to_stdout ? "-" : path, &text, error);
	text_finish(&text);
	if (!ok)
		return false;
	print_notes(&exported);
	compare(invocation->arena, &opened, target, &exported.plan);
	if (!to_stdout)
		output_note("%s, for %s, is in %s; start: %s", target->title,
			export_version(target, version, invocation->arena), path, exported.launch);
	return true;
}

static const char *instead(const struct arguments *arguments, struct arena *arena)
{
	const char *plan = input_instead_of_plan(arena, arguments->operands[0]);

	return plan != NULL ? plan : arena_printf(arena, "type --to %.200s", arguments->extra);
}

const struct command command_export = {
	.name = "export",
	.summary = "write a plan as another framework's configuration",
	.operands = "PLAN.yaml|CHECKPOINT",
	.least = 0,
	.most = 1,
	.details =
		"Writes one file for the framework that --to names: " FRAMEWORK_NAMES
		", or a PyTorch script; --list shows them all. "
		"What the file cannot say is said in its comments and on stderr, with what "
		"the exported configuration is predicted to cost where it differs from the plan. "
		"With -o FOLDER the file gets the name that --list shows. "
		"A checkpoint of `train` goes --to safetensors: "
		"its weights in one file with Hugging Face's names, "
		"in a FOLDER with their config.json.",
	.examples = {"shardplan export plan.yaml --to accelerate -o accelerate.yaml",
		"shardplan export plan.yaml --to deepspeed -o configs/",
		"shardplan export runs/a --to safetensors -o hf/", "shardplan export --list"},
	.instead = instead,
	.run = run,
};
