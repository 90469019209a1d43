/* `models`: lists the presets, or shows one. */
#include "cli/commands/commands.h"
#include "cli/commands/listing.h"
#include "cli/commands/model_folder.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

static void add_line(const struct model *model, const char *name, struct text *text)
{
	const struct architecture *a = &model->architecture;
	char count[32];

	text_add(text, name);
	text_column(text, 20);
	text_printf(text, "%-10s", model_family_names[a->family]);
	text_printf(text, "%10s %7lld %7lld %6lld %8lld\n",
		format_count(count, (double)model->parameter_count), (long long)a->layers,
		(long long)a->hidden, (long long)a->heads, (long long)a->context);
}

static void write_line(const struct model *model, const char *name, struct writer *writer)
{
	const struct architecture *a = &model->architecture;

	writer_begin_map(writer, NULL);
	writer_string(writer, "name", name);
	writer_string(writer, "family", model_family_names[a->family]);
	writer_int(writer, "parameters", model->parameter_count);
	writer_int(writer, "layers", a->layers);
	writer_int(writer, "hidden", a->hidden);
	writer_int(writer, "heads", a->heads);
	writer_int(writer, "context", a->context);
	writer_end_map(writer);
}

static bool add(struct arena *arena, const char *name, struct writer *writer, struct text *text,
	struct error *error)
{
	struct model *model;

	if (!input_model(arena, name, &model, error))
		return false;
	if (writer != NULL)
		write_line(model, name, writer);
	else
		add_line(model, name, text);
	return true;
}

/* For a mixture of experts a text like ", 12879925248 active (12.9 B)", else "". */
static const char *active_parameters(struct arena *arena, const struct model *model)
{
	char count[32];

	if (model->active_parameter_count == model->parameter_count)
		return "";
	return arena_printf(arena, ", %lld active (%s)", (long long)model->active_parameter_count,
		format_count(count, (double)model->active_parameter_count));
}

static void write_json(
	const struct model *model, const struct stored_summary *stored, struct text *text)
{
	struct writer writer;

	document_begin(&writer, text, "shardplan/model/1");
	model_write_details(model, &writer);
	if (stored->present)
		stored_write(stored, &writer);
	writer_finish(&writer);
}

/* Writes text that is a model file. */
static void write_file(struct arena *arena, const struct model *model,
	const struct stored_summary *stored, struct text *text)
{
	struct writer writer;
	char count[32];

	writer_init(&writer, text, WRITER_YAML);
	writer_comment(&writer, arena_printf(arena, "%lld parameters (%s)%s, %d modules",
					(long long)model->parameter_count,
					format_count(count, (double)model->parameter_count),
					active_parameters(arena, model), model->n_modules));
	if (stored->present)
		writer_comment(&writer, stored_line(arena, stored));
	writer_string(&writer, "shardplan", "model/1");
	model_write(model, &writer);
	writer_finish(&writer);
}

/* The verdict is "no" if the weights do not match the config. */
static void judge(struct invocation *invocation, const struct stored_summary *stored)
{
	int n = stored->n_differences;

	if (!stored->present || stored->equal || stored->quantised)
		return;
	invocation->verdict = EXIT_CODE_NO;
	output_note("%s", stored_line(invocation->arena, stored));
	for (int i = 0; i < n && i < STORED_LINES; i++)
		output_note("%s", stored->differences[i]);
	if (n > STORED_LINES)
		output_note("and %d more", n - STORED_LINES);
}

static bool show(struct invocation *invocation, struct text *text, struct error *error)
{
	const char *typed = invocation->arguments.operands[1];
	struct stored_summary stored;
	struct model *model;

	if (!input_model(invocation->arena, typed, &model, error) ||
		!stored_summarise(invocation->arena, typed, model, &stored, error))
		return false;
	if (argument_given(&invocation->arguments, "json"))
		write_json(model, &stored, text);
	else
		write_file(invocation->arena, model, &stored, text);
	judge(invocation, &stored);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct listing listing = {
		.schema = "shardplan/models/1",
		.key = "models",
		.header = "name                family    parameters  layers  hidden  heads  "
			  "context\n",
		.embedded = model_presets,
		.n_embedded = n_model_presets,
		.add = add,
		.show = show,
		.expected = "`models list` or `models show NAME`",
	};

	return listing_run(invocation, &listing, error);
}

const struct command command_models = {
	.name = "models",
	.summary = "list the models that are known by name, or show one",
	.operands = "[list | show MODEL]",
	.least = 0,
	.most = 2,
	.details = "`show` prints a model file, which can be edited and used as MODEL; "
		   "with --json every module and parameter. Beside a config.json, "
		   "the headers of model*.safetensors and the index are compared with it "
		   "(exit code 1: they are another model). "
		   "MODEL may be a Hugging Face config.json or its folder, of the families"
#define X(suffix, name) " " name
	MODEL_FAMILIES(X)
#undef X
		".",
	.examples = {"shardplan models", "shardplan models show llama-2-7b --json"},
	.run = run,
};
