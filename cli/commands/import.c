/* `import`: another framework's configuration as a plan, with its prediction. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "frameworks/frameworks.h"
#include "reports/reports.h"
#include "schedule/resolve/resolve.h"

/* What is being imported, and for what. */
struct importation {
	struct contents contents;
	struct imported imported;
	const char *model, *topology;
	struct arguments arguments; /* typed, and what the file adds */
};

/* --- model and topology --------------------------------------------------------------------- */

static const char *operand(const struct arguments *arguments, int index, const char *option)
{
	if (arguments->n_operands > index)
		return arguments->operands[index];
	return argument(arguments, option);
}

/* "meta-llama/Llama-2-7b-hf" -> "llama-2-7b": letters of no weight between a name and a preset. */
static bool names_preset(const char *name, const char *preset)
{
	const char *slash = strrchr(name, '/');
	const char *at = slash != NULL ? slash + 1 : name;

	if (strncasecmp(at, "meta-", 5) == 0)
		at += 5;
	size_t length = strlen(preset);
	return strncasecmp(at, preset, length) == 0 &&
	       (at[length] == '\0' || strcasecmp(at + length, "-hf") == 0 ||
		       strcasecmp(at + length, "-v0.1") == 0);
}

static bool same_size(int64_t said, int64_t is)
{
	return said == 0 || said == is;
}

static bool has_shape(struct arena *arena, const char *preset, const struct import_shape *shape)
{
	struct model *model;

	if (shape->layers == 0 || shape->hidden == 0 ||
		!model_load_preset(arena, preset, &model, NULL))
		return false;
	const struct architecture *is = &model->architecture;
	return same_size(shape->layers, is->layers) && same_size(shape->hidden, is->hidden) &&
	       same_size(shape->heads, is->heads) && same_size(shape->kv_heads, is->kv_heads) &&
	       same_size(shape->ffn, is->ffn);
}

/* The preset that is the model which the file spells out: as many parameters in the same shape. */
static const char *preset_spelled(struct arena *arena, const struct imported *imported)
{
	struct model *spelled, *model;

	if (!model_parse(arena, "MODEL", imported->model, strlen(imported->model), &spelled, NULL))
		return NULL;
	for (int i = 0; i < n_model_presets; i++) {
		const char *preset = model_presets[i].name;
		if (has_shape(arena, preset, &imported->shape) &&
			model_load_preset(arena, preset, &model, NULL) &&
			model_subtree_parameters(model, 0) == model_subtree_parameters(spelled, 0))
			return preset;
	}
	return NULL;
}

static int64_t said_seq_len(const struct imported *imported)
{
	for (int i = 0; i < imported->n_settings; i++)
		if (imported->settings[i].knob == KNOB_SEQ_LEN)
			return strtoll(imported->settings[i].value, NULL, 10);
	return 0;
}

/* A preset of the file's shape; of several the first that was trained with sequences as long. */
static const char *preset_shaped(struct arena *arena, const struct imported *imported)
{
	const char *shaped = NULL;
	struct model *model;

	for (int i = 0; i < n_model_presets; i++) {
		const char *preset = model_presets[i].name;
		if (!has_shape(arena, preset, &imported->shape) ||
			!model_load_preset(arena, preset, &model, NULL))
			continue;
		if (model->architecture.context >= said_seq_len(imported))
			return preset;
		shaped = shaped == NULL ? preset : shaped;
	}
	return shaped;
}

/* The preset that the file names or describes; NULL. */
static const char *find_model(struct arena *arena, const struct imported *imported)
{
	for (int i = 0; i < n_model_presets; i++) {
		const char *preset = model_presets[i].name;
		if (imported->model != NULL && names_preset(imported->model, preset))
			return preset;
	}
	if (imported->model != NULL && imported->model[0] == '{') {
		const char *preset = preset_spelled(arena, imported);
		return preset != NULL ? preset : imported->model;
	}
	if (imported->model != NULL && file_is_folder(imported->model))
		return imported->model;
	return preset_shaped(arena, imported);
}

/* --- from settings to arguments ------------------------------------------------------------- */

static void take_settings(struct importation *importation)
{
	struct arguments *arguments = &importation->arguments;
	const struct imported *imported = &importation->imported;

	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		const struct option *option = option_find(setting->option);
		if (option == NULL)
			continue;
		const char **value = &arguments->values[option - all_options];
		if (*value != NULL)
			output_note("--%s %s stands for the file's %s", setting->option, *value,
				setting->value);
		else
			*value = setting->value;
	}
}

static void add_group(
	struct arena *arena, struct importation *importation, const struct topology *topology)
{
	struct arguments *arguments = &importation->arguments;
	const char **group = &arguments->values[option_of_knob(KNOB_SHARD_GROUP) - all_options];
	int64_t replicas = importation->imported.replicas;

	if (replicas > 0 && *group == NULL && topology_devices(topology) % replicas == 0)
		*group = arena_printf(
			arena, "%lld", (long long)(topology_devices(topology) / replicas));
}

/* "--prefetch post: ..." of a value that the file gave: where it is in the file. */
static bool place_error(
	const struct importation *importation, const struct error *why, struct error *error)
{
	const struct imported *imported = &importation->imported;

	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		size_t length = strlen(setting->option);
		if (strncmp(why->message, "--", 2) != 0 ||
			strncmp(why->message + 2, setting->option, length) != 0 ||
			strchr(" :", why->message[2 + length]) == NULL)
			continue;
		if (setting->node != NULL)
			return error_at(error, EXIT_CODE_INPUT, importation->contents.name,
				setting->node->line, setting->node->column, "%s", why->message);
		return error_at(error, EXIT_CODE_INPUT, importation->contents.name, 0, 0, "%s",
			why->message);
	}
	return error_set(error, why->code, "%s", why->message);
}

static bool read_gpus(const struct arguments *arguments, int64_t *gpus, struct error *error)
{
	const char *text = argument(arguments, "gpus");

	*gpus = 0;
	if (text == NULL || (parse_int(text, gpus) && *gpus > 0))
		return true;
	return error_set(
		error, EXIT_CODE_USAGE, "--gpus: expected a whole number above 0, got %s", text);
}

/* What the file leaves to the model and to the number of ranks, too. */
static bool ask_for(struct arena *arena, const struct importation *importation, struct asked *asked,
	struct plan *plan, struct error *error)
{
	const struct arguments *arguments = &importation->arguments;
	bool reshards = argument_of_knob(arguments, KNOB_RESHARD_AFTER_FORWARD) != NULL;

	if (!ask_plan(arena, importation->model, importation->topology, arguments, asked, plan,
		    error))
		return false;
	import_settle(&importation->imported, asked->model, reshards, arena, plan);
	return plan_check(plan, asked->model, asked->topology, error);
}

static bool make_plan(struct arena *arena, struct importation *importation, struct asked *asked,
	struct plan *plan, struct error *error)
{
	struct topology *topology;
	struct error why = {0};
	int64_t gpus;

	if (!read_gpus(&importation->arguments, &gpus, error))
		return false;
	if (!input_topology(arena, importation->topology, gpus, &topology, &why))
		return importation->imported.has_ranks
			       ? place_error(importation, &why, error)
			       : error_set(error, why.code, "%s", why.message);
	add_group(arena, importation, topology);
	return ask_for(arena, importation, asked, plan, &why) ||
	       place_error(importation, &why, error);
}

/* --- what comes of it ----------------------------------------------------------------------- */

/* The batch, the arithmetic, how the script computes it and the runtime stay, unless it shards
 * nothing; how it is sharded is searched. */
static bool search(struct arena *arena, const struct asked *asked, const struct plan *plan,
	struct answer *answer, struct error *error)
{
	struct question question = {.model = asked->model,
		.topology = asked->topology,
		.memory_limit_bytes = asked->question.memory_limit_bytes};
	uint64_t kept = knobs_of_role(KNOB_WORK) | knobs_of_role(KNOB_NEVER_WORSE);

	if (plan->runtime != RUNTIME_PYTORCH_DDP)
		kept |= KNOB_BIT(KNOB_RUNTIME);
	for (int id = 0; id < KNOB_COUNT; id++) {
		if (kept & KNOB_BIT(id))
			question_take(&question, (enum knob_id)id, plan);
	}
	ask_same_batch(plan, &question);
	return planner_plan(&question, arena, answer, error);
}

static bool print_prediction(const struct invocation *invocation, const struct asked *asked,
	const struct evaluation *evaluation, struct text *text, struct error *error)
{
	const struct prediction *prediction = &evaluation->simulation.prediction;
	struct answer answer;
	struct style style;

	if (!output_style(&invocation->arguments, &style, error) ||
		!search(invocation->arena, asked, &evaluation->plan, &answer, error))
		return false;
	if (argument_given(&invocation->arguments, "json")) {
		report_imported_json(
			&asked->text, &evaluation->plan, prediction, answer.chosen, text);
		return true;
	}
	text_add_char(text, '\n');
	report_prediction_text(
		&evaluation->plan, asked->model, asked->topology, prediction, &style, text);
	report_better_text(&evaluation->plan, prediction, answer.chosen, text);
	return true;
}

static bool is_unknown_to(enum runtime_kind runtime, enum knob_id id)
{
	return knob_table[id].runtimes != 0 && !(knob_table[id].runtimes >> runtime & 1);
}

/* It says how an axis is used that this plan has not. */
static bool is_of_no_axis(enum knob_id id, const struct plan *plan)
{
	static const struct {
		enum knob_id knob, axis;
	} of[] = {
		{KNOB_SEQUENCE_PARALLEL, KNOB_TENSOR},
		{KNOB_ASYNC_TENSOR, KNOB_TENSOR},
		{KNOB_SERIAL_TENSOR, KNOB_TENSOR},
		{KNOB_CONTEXT_METHOD, KNOB_CONTEXT},
		{KNOB_PIPELINE_SCHEDULE, KNOB_PIPELINE},
		{KNOB_VIRTUAL_STAGES, KNOB_PIPELINE},
		{KNOB_LAYERS_PER_STAGE, KNOB_PIPELINE},
		{KNOB_EXPERT_TENSOR, KNOB_EXPERT},
		{KNOB_EXPERT_LOAD, KNOB_EXPERT},
		{KNOB_CAPACITY_FACTOR, KNOB_EXPERT},
		{KNOB_EXPERT_DISPATCH, KNOB_EXPERT},
		{KNOB_EXPERT_OVERLAP, KNOB_EXPERT},
	};
	for (int i = 0; i < COUNT_OF(of); i++)
		if (of[i].knob == id)
			return knob_get(of[i].axis, plan).number <= 1;
	return false;
}

/* It follows from others, means nothing for this plan, or its runtime does not have it. */
static bool follows(const struct arguments *arguments, enum knob_id id, const struct plan *plan)
{
	if (id == KNOB_MICRO_BATCH || id == KNOB_GRAD_ACCUM)
		return argument_of_knob(arguments, KNOB_GLOBAL_BATCH) != NULL;
	if (id == KNOB_SYNC_EACH_MICRO_BATCH)
		return plan->grad_accum == 1;
	if (id == KNOB_REDUCE_DTYPE && plan_reduces_masters(plan))
		return true;
	return id == KNOB_GLOBAL_BATCH || id == KNOB_GRADIENT_SUMS || id == KNOB_GELU ||
	       id == KNOB_FP8 || id == KNOB_FP8_PARAM_GATHER || is_unknown_to(plan->runtime, id) ||
	       is_of_no_axis(id, plan) || id >= KNOB_IN_MESH ||
	       (knob_table[id].roles & KNOB_FOLLOWS) != 0 ||
	       (knob_table[id].group == KNOB_GROUP_SHARDING && plan->strategy == STRATEGY_NO_SHARD);
}

/* What few scripts change: the note of defaults would be too long to be read with them. */
static bool is_rarely_changed(enum knob_id id)
{
	return id == KNOB_LIBRARIES || id == KNOB_LOADER_RATE || id == KNOB_ACTIVATION_OFFLOAD ||
	       id == KNOB_LIGER || id == KNOB_DOCUMENT_LEN;
}

/* What neither the file nor an option says, and its framework does not settle, takes our default;
 * all that people are likely to have otherwise is said. */
static void note_defaults(
	struct arena *arena, const struct importation *importation, const struct plan *plan)
{
	const struct arguments *arguments = &importation->arguments;
	const char *list = "";

	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (!follows(arguments, id, plan) && !is_rarely_changed(id) &&
			argument_of_knob(arguments, id) == NULL)
			list = arena_printf(arena, "%s --%s %s", list, option_of_knob(id)->name,
				knob_typed(id, plan, arena));
	}
	if (list[0] != '\0')
		output_note("the file does not say, so defaults are taken:%s "
			    "(`shardplan help defaults` has all)",
			list);
}

static bool predict(struct invocation *invocation, struct importation *importation,
	struct text *text, struct error *error)
{
	const char *path = argument(&invocation->arguments, "output");
	struct asked asked;
	struct plan plan;
	struct evaluation evaluation;

	if (!make_plan(invocation->arena, importation, &asked, &plan, error))
		return false;
	note_defaults(invocation->arena, importation, &plan);
	if (!argument_given(&invocation->arguments, "json"))
		import_print(&importation->imported, &plan, text);
	if (!plan_evaluate(&asked.question, &plan, EVALUATION_FIGURES, invocation->arena,
		    &evaluation, error) ||
		!print_prediction(invocation, &asked, &evaluation, text, error))
		return false;
	if (evaluation.simulation.prediction.fits == FITS_NO)
		invocation->verdict = EXIT_CODE_NO;
	return path == NULL || save_plan(invocation->arena, path, &asked.text, asked.model,
				       asked.topology, &evaluation, error);
}

/* What is missing for a prediction is asked for by name. */
static bool lacks(const struct importation *importation, const struct arguments *arguments,
	struct error *error)
{
	const char *what = importation->model == NULL && importation->topology == NULL
				   ? "MODEL TOPOLOGY"
			   : importation->model == NULL ? "--model MODEL"
							: "--topology TOPOLOGY";

	if (argument_given(arguments, "output") || argument_given(arguments, "json"))
		return error_set(error, EXIT_CODE_USAGE,
			"import: a plan needs what the file does not say: add %s", what);
	output_note("the file does not say what it trains or where: add %s for a prediction", what);
	return true;
}

/* "config_registry.py:llama3_8b", unless that is a file. */
static const char *split_name(struct arena *arena, const char *file, const char **function)
{
	const char *colon = strrchr(file, ':');
	const char *front =
		colon != NULL ? arena_strndup(arena, file, (size_t)(colon - file)) : NULL;

	if (colon == NULL || file_exists(file) || !file_exists(front))
		return file;
	*function = colon + 1;
	return front;
}

/* Other words may have taken the place of the file. */
static bool comes_first(const char *file, struct error *error)
{
	if (file_exists(file))
		return true;
	if (model_preset_name(file) != NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s is a model, and the file comes first: import FILE MODEL TOPOLOGY",
			file);
	return export_find(file, NULL) == NULL ||
	       error_set(error, EXIT_CODE_USAGE,
		       "%s is a target, and the file comes first: import FILE --from %s", file,
		       file);
}

/* Blocks of the model that is named beside the file; 0: none is, or standard input has it. That a
 * name stands for a preset is noted later, once. */
static bool layers_beside(
	struct arena *arena, const char *named, int64_t *layers, struct error *error)
{
	const char *preset = named != NULL ? model_preset_name(named) : NULL;
	struct model *model;

	*layers = 0;
	if (named == NULL || strcmp(named, "-") == 0)
		return true;
	if (preset != NULL ? !model_load_preset(arena, preset, &model, error)
			   : !input_model(arena, named, &model, error))
		return false;
	*layers = model->architecture.layers;
	return true;
}

static bool read_file(
	struct invocation *invocation, struct importation *importation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *from = argument(arguments, "from");
	const struct export_target *target = from != NULL ? export_find(from, error) : NULL;
	struct contents *contents = &importation->contents;
	int64_t layers;

	const char *file = arguments->operands[0], *function = argument(arguments, "config");

	if (function == NULL)
		file = split_name(invocation->arena, file, &function);
	if ((from != NULL && target == NULL) || !comes_first(file, error) ||
		!file_read(invocation->arena, file, contents, error) ||
		!layers_beside(invocation->arena, operand(arguments, 1, "model"), &layers, error) ||
		!import_config(invocation->arena, contents->name, contents->text, contents->length,
			target, function, layers, &importation->imported, error))
		return false;
	for (int i = 0; i < importation->imported.n_notes; i++)
		output_note("%s", importation->imported.notes[i].text);
	importation->arguments = *arguments;
	importation->model = operand(arguments, 1, "model");
	importation->topology = operand(arguments, 2, "topology");
	if (importation->model == NULL) {
		importation->model = find_model(invocation->arena, &importation->imported);
		if (importation->model != NULL)
			output_note("the model is %s%s",
				importation->model[0] == '{' ? "what the file spells out"
							     : "taken for ",
				importation->model[0] == '{' ? "" : importation->model);
	}
	take_settings(importation);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "output");
	bool aside = path != NULL && strcmp(path, "-") == 0;
	struct importation importation = {.imported = {0}};
	struct text text = {0};

	if (!read_file(invocation, &importation, error))
		return false;
	bool enough = importation.model != NULL && importation.topology != NULL;
	bool ok = enough ? predict(invocation, &importation, &text, error)
			 : lacks(&importation, arguments, error);
	if (ok && !enough)
		import_print(&importation.imported, NULL, &text);
	ok = ok && (aside ? output_aside(&text) : output_text(&text, error));
	text_finish(&text);
	return ok;
}

const struct command command_import = {
	.name = "import",
	.summary = "predict another framework's configuration: does it fit",
	.operands = "FILE [MODEL TOPOLOGY]",
	.least = 1,
	.most = 3,
	.details = "Reads what `export` writes and what people have: " FRAMEWORK_NAMES
		   ", PyTorch scripts; the content tells which. "
		   "Prints what was understood and from which line, "
		   "its prediction, and what the planner would do with the same batch. "
		   "What the file does not say takes an option, or its default; "
		   "an option also overrides the file. "
		   "Keys that are unknown or cannot be honoured are named on stderr. "
		   "Exit code 1: it does not fit.",
	.examples = {"shardplan import accelerate.yaml llama-2-7b 2xdgx-a100-80gb",
		"shardplan import ds_config.json llama-2-7b dgx-h100 --micro-batch 2",
		"shardplan import axolotl.yaml --topology 2xdgx-h100"},
	.run = run,
};
