#include "cli/question/question.h"

#include <string.h>

#include "cli/terminal/terminal.h"

enum { LIST_MAX = 64 };

/* The options of a question that are no field of struct plan. */
struct other_options {
	int64_t gpus, memory_limit;
	enum objective objective;
};

static bool read_others(const struct arguments *arguments, struct other_options *others,
	struct arena *arena, struct error *error)
{
	const struct field fields[] = {
		FIELD_INT(struct other_options, gpus, "gpus", FIELD_POSITIVE),
		FIELD_BYTES(struct other_options, memory_limit, "memory_limit", FIELD_POSITIVE),
		FIELD_ENUM(struct other_options, objective, "objective", 0, objective_names),
		FIELD_END,
	};

	*others = (struct other_options){0};
	return arguments_set(arguments, fields, others, arena, error);
}

/* "FULL_SHARD,HYBRID_SHARD" -> bits. */
static bool read_strategies(const char *where, const char *list, unsigned *strategies,
	struct arena *arena, struct error *error)
{
	while (true) {
		size_t length = strcspn(list, ",");
		const struct field field = {"strategy", FIELD_TYPE_ENUM, 0, 0, strategy_names};
		int strategy = 0;
		if (!fields_set(&field, where, arena_strndup(arena, list, length), &strategy, arena,
			    error))
			return false;
		*strategies |= 1u << strategy;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
}

/* --- lists: what the search may choose from ------------------------------------------------------
 */

/* Takes one more value of a list that starts at `*list`; NULL at its end. */
static const char *next_value(const char **list, struct arena *arena)
{
	if (*list == NULL)
		return NULL;
	size_t length = strcspn(*list, ",");
	const char *value = arena_strndup(arena, *list, length);
	*list = (*list)[length] == ',' ? *list + length + 1 : NULL;
	return value;
}

static bool is_searched(const char *knob)
{
	static const char *const single[] = {"seq_len", "global_batch", "clip", "loader_rate",
		"runtime", "gradient_sums", "gelu", NULL};
	for (int i = 0; single[i] != NULL; i++)
		if (strcmp(knob, single[i]) == 0)
			return false;
	return true;
}

static struct restriction *restriction_new(
	struct question *question, const char *knob, bool forbidden, struct arena *arena)
{
	for (int i = 0; i < question->n_restrictions; i++)
		if (question->restrictions[i].forbidden == forbidden &&
			strcmp(question->restrictions[i].knob, knob) == 0)
			return &question->restrictions[i];
	if (question->n_restrictions == QUESTION_RESTRICTIONS_MAX)
		return NULL;
	struct restriction *restriction = &question->restrictions[question->n_restrictions++];
	*restriction = (struct restriction){.knob = knob,
		.forbidden = forbidden,
		.values = ARENA_ARRAY(arena, const char *, LIST_MAX)};
	return restriction;
}

/* One value; it must be one that the knob can have at all. Repetitions are dropped. */
static bool restrict_to(struct restriction *restriction, const char *where, const char *value,
	struct arena *arena, struct error *error)
{
	struct choices scratch = {0};
	if (!choices_set(&scratch, restriction->knob, where, value, arena, error))
		return false;
	for (int i = 0; i < restriction->n; i++)
		if (strcmp(restriction->values[i], value) == 0)
			return true;
	if (restriction->n == LIST_MAX)
		return error_set(
			error, EXIT_CODE_USAGE, "%s: more than %d values", where, LIST_MAX);
	restriction->values[restriction->n++] = value;
	return true;
}

static bool read_list(const char *knob, const char *where, const char *list, struct arena *arena,
	struct question *question, struct error *error)
{
	if (!is_searched(knob))
		return error_set(error, EXIT_CODE_USAGE, "%s: takes one value, got a list", where);
	struct restriction *restriction = restriction_new(question, knob, false, arena);
	const char *value;
	while (restriction != NULL && (value = next_value(&list, arena)) != NULL)
		if (!restrict_to(restriction, where, value, arena, error))
			return false;
	return true;
}

/* "wrap=model" */
static bool forbid_one(const char *where, const char *rule, struct arena *arena,
	struct question *question, struct error *error)
{
	const char *equals = strchr(rule, '=');
	if (equals == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: expected KNOB=VALUE such as wrap=model, got \"%s\"", where, rule);
	char *typed = arena_strndup(arena, rule, (size_t)(equals - rule));
	const char *knob = swap_dashes(typed, '-', '_', arena);
	if (strcmp(knob, "strategy") == 0) {
		unsigned forbidden = 0;
		if (!read_strategies(where, equals + 1, &forbidden, arena, error))
			return false;
		question->strategies = question->strategies != 0 ? question->strategies
								 : (1u << STRATEGY_COUNT) - 1;
		question->strategies &= ~forbidden;
		return question->strategies != 0 ||
		       error_set(error, EXIT_CODE_USAGE, "%s: no strategy is left", where);
	}
	if (!is_searched(knob))
		return error_set(error, EXIT_CODE_USAGE, "%s: %s is not searched", where, typed);
	struct restriction *restriction = restriction_new(question, knob, true, arena);
	return restriction == NULL || restrict_to(restriction, where, equals + 1, arena, error);
}

static bool read_forbidden(const char *where, const char *rules, struct arena *arena,
	struct question *question, struct error *error)
{
	const char *rule;
	while ((rule = next_value(&rules, arena)) != NULL)
		if (!forbid_one(where, rule, arena, question, error))
			return false;
	return true;
}

static bool set_choice(const struct option *option, const char *value,
	const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error)
{
	const char *where = argument_where(arguments, option, arena);
	const char *name = swap_dashes(option->name, '-', '_', arena);

	/* One value is a choice, several are a narrower search. */
	if (strchr(value, ',') == NULL)
		return choices_set(&question->choices, name, where, value, arena, error);
	if (strcmp(name, "strategy") == 0)
		return read_strategies(where, value, &question->strategies, arena, error);
	return read_list(name, where, value, arena, question, error);
}

bool ask_options(struct arena *arena, const struct arguments *arguments, bool only_one,
	struct question *question, struct error *error)
{
	struct other_options others;

	if (!read_others(arguments, &others, arena, error))
		return false;
	question->memory_limit_bytes = others.memory_limit;
	question->objective = others.objective;
	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (option->knob != NULL && arguments->values[i] != NULL &&
			!set_choice(
				option, arguments->values[i], arguments, arena, question, error))
			return false;
	}
	if (only_one && (question->strategies != 0 || question->n_restrictions > 0))
		return error_set(error, EXIT_CODE_USAGE,
			"%s: expected one value, got a list; `plan` compares several",
			argument_where(arguments,
				option_find(question->strategies != 0
						    ? "strategy"
						    : swap_dashes(question->restrictions[0].knob,
							      '_', '-', arena)),
				arena));
	const char *forbidden = argument(arguments, "forbid");
	return forbidden == NULL || read_forbidden("--forbid", forbidden, arena, question, error);
}

/* Rotary and ALiBi positions have no last one; what a model learned beyond its own context is
 * another question, hence the note. */
static void extend_context(const struct question *question, struct model *model)
{
	int64_t length = question->choices.plan.seq_len;

	if (!choices_given(&question->choices, "seq_len") ||
		model->architecture.positions == POSITIONS_LEARNED ||
		length <= model->architecture.context)
		return;
	output_note("%s was trained with %lld tokens; its positions are extended to %lld",
		model->architecture.name, (long long)model->architecture.context,
		(long long)length);
	model->architecture.context = length;
}

bool ask(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, bool only_one, struct asked *asked, struct error *error)
{
	struct other_options others;

	*asked = (struct asked){.text = {model, topology, question_print(arguments, arena)}};
	if (!ask_options(arena, arguments, only_one, &asked->question, error) ||
		!read_others(arguments, &others, arena, error) ||
		!input_model(arena, model, &asked->model, error) ||
		!input_topology(arena, topology, others.gpus, &asked->topology, error))
		return false;
	extend_context(&asked->question, asked->model);
	asked->question.model = asked->model;
	asked->question.topology = asked->topology;
	return true;
}

bool ask_plan(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error)
{
	const struct question *question = &asked->question;

	return ask(arena, model, topology, arguments, true, asked, error) &&
	       plan_resolve(&question->choices, question->model, question->topology, arena, plan,
		       error) &&
	       plan_honours(&question->choices, plan, error);
}

bool plan_question(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error)
{
	waiting_begin("planning");
	bool ok = planner_plan(question, arena, answer, error);
	waiting_end();
	return ok;
}

bool find_question(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error)
{
	waiting_begin("searching");
	bool ok = planner_find(question, find, target, arena, finding, error);
	waiting_end();
	return ok;
}

static bool compile_and_simulate(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology,
	const struct simulation_options *options, bool details, struct evaluation *evaluation,
	struct error *error)
{
	evaluation->plan = *plan;
	return schedule_build(arena, plan, model, topology, &evaluation->schedule, error) &&
	       simulate(evaluation->schedule, options, details, arena, &evaluation->simulation,
		       error);
}

bool plan_evaluate(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error)
{
	const struct simulation_options options = {.memory_limit_bytes = memory_limit};

	if (!compile_and_simulate(arena, plan, model, topology, &options, true, evaluation, error))
		return false;
	evaluation->digest = evaluation->simulation.prediction.schedule_digest;
	return true;
}

bool plan_evaluate_briefly(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error)
{
	const struct simulation_options options = {.memory_limit_bytes = memory_limit};

	evaluation->digest = NULL;
	return compile_and_simulate(
		arena, plan, model, topology, &options, false, evaluation, error);
}

bool plan_evaluate_point(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int64_t memory_limit, struct evaluation *evaluation,
	struct error *error)
{
	const struct simulation_options options = {
		.memory_limit_bytes = memory_limit, .quick_interval = true, .no_bounds = true};

	evaluation->digest = NULL;
	return compile_and_simulate(
		arena, plan, model, topology, &options, false, evaluation, error);
}

bool open_plan(struct arena *arena, const char *path, struct opened *opened, struct error *error)
{
	struct plan_file *file = &opened->file;

	opened->path = path;
	if (!input_plan_file(arena, path, file, &opened->text, error) ||
		!plan_evaluate(arena, &file->plan, file->model, file->topology,
			file->prediction.memory_limit_bytes, &opened->evaluation, error))
		return false;
	if (strcmp(file->schedule_digest, opened->evaluation.digest) != 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: the plan compiles to schedule %s, expected its schedule_digest %s: "
			"it was edited, or made by another version; plan again",
			path, opened->evaluation.digest, file->schedule_digest);
	return true;
}

struct explained opened_explained(const struct opened *opened, const struct measurement *measured)
{
	const struct simulation *simulation = &opened->evaluation.simulation;

	return (struct explained){
		.schedule = opened->evaluation.schedule,
		.prediction = &opened->file.prediction,
		.predicted = &simulation->timeline,
		.memory = &simulation->memory,
		.critical = &simulation->critical,
		.measured = measured,
	};
}

bool save_plan(struct arena *arena, const char *path, const struct question_text *text,
	struct model *model, struct topology *topology, const struct evaluation *evaluation,
	struct error *error)
{
	const struct plan_file file = {
		.question = *text,
		.model = model,
		.topology = topology,
		.plan = evaluation->plan,
		.prediction = evaluation->simulation.prediction,
		.schedule_digest = evaluation->digest,
	};
	struct text yaml = {0};

	plan_file_write(&file, &yaml);
	bool ok = file_write(arena, path, &yaml, error);
	text_finish(&yaml);
	return ok;
}
