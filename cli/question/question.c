#include "cli/question/question.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cores/cores.h"
#include "cli/terminal/terminal.h"
#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"

enum { THREADS_MOST = 1024 };

bool ask_threads(const struct arguments *arguments, int *threads, struct error *error)
{
	struct arena arena = {0};
	int64_t asked = 0;
	const struct field fields[] = {
		{"threads", FIELD_TYPE_INT, 0, FIELD_POSITIVE, NULL}, FIELD_END};
	bool ok = arguments_set(arguments, fields, &asked, &arena, error);

	if (ok && asked > THREADS_MOST)
		ok = error_set(error, EXIT_CODE_USAGE, "--threads %lld: expected 1 to %d",
			(long long)asked, THREADS_MOST);
	*threads = asked > 0 ? (int)asked : cores_available();
	arena_finish(&arena);
	return ok;
}

/* Answers name a hybrid with the size of its groups: "HYBRID_SHARD/8". Two options say that. */
static bool is_one_strategy(const char *where, const char *word, struct error *error)
{
	const char *slash = strchr(word, '/');
	if (word[0] == '\0')
		return error_set(error, EXIT_CODE_USAGE,
			"%s: a name is missing before or after a comma", where);
	return slash == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "%s %s: type --strategy %.*s --shard-group %s",
		       where, word, (int)(slash - word), word, slash + 1);
}

/* Reads "FULL_SHARD,HYBRID_SHARD" into bits. */
static bool read_strategies(const char *where, const char *list, unsigned *strategies,
	struct arena *arena, struct error *error)
{
	while (true) {
		size_t length = strcspn(list, ",");
		struct plan one = {0};
		const char *word = arena_strndup(arena, list, length);
		if (!is_one_strategy(where, word, error) ||
			!fields_set(
				&knob_table[KNOB_STRATEGY].field, where, word, &one, arena, error))
			return false;
		*strategies |= 1u << one.strategy;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
}

/* --- lists: values that the search may choose from -------------------------------------------- */

/* Takes the next value of the list at `*list`; NULL at its end. */
static const char *next_value(const char **list, struct arena *arena)
{
	if (*list == NULL)
		return NULL;
	size_t length = strcspn(*list, ",");
	const char *value = arena_strndup(arena, *list, length);
	*list = (*list)[length] == ',' ? *list + length + 1 : NULL;
	return value;
}

static bool is_searched(enum knob_id id)
{
	return !(knob_table[id].roles & KNOB_ONE_VALUE);
}

static bool read_list(enum knob_id id, const char *where, const char *list, struct arena *arena,
	struct question *question, struct error *error)
{
	const char *value;
	if (id == KNOB_STRATEGY)
		return read_strategies(where, list, &question->strategies, arena, error);
	if (!is_searched(id))
		return error_set(error, EXIT_CODE_USAGE, "%s: takes one value, got a list", where);
	while ((value = next_value(&list, arena)) != NULL)
		if (!question_restrict(question, id, false, where, value, arena, error))
			return false;
	return true;
}

static bool forbid_strategies(const char *where, const char *list, struct arena *arena,
	struct question *question, struct error *error)
{
	unsigned forbidden = 0;
	if (!read_strategies(where, list, &forbidden, arena, error))
		return false;
	question->strategies =
		question->strategies != 0 ? question->strategies : (1u << STRATEGY_COUNT) - 1;
	question->strategies &= ~forbidden;
	return question->strategies != 0 ||
	       error_set(error, EXIT_CODE_USAGE, "%s: no strategy is left", where);
}

/* Reads a rule like "wrap=model". */
static bool forbid_one(const char *where, const char *rule, struct arena *arena,
	struct question *question, struct error *error)
{
	const char *equals = strchr(rule, '=');
	if (equals == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: expected KNOB=VALUE such as wrap=model, got \"%s\"", where, rule);
	char *typed = arena_strndup(arena, rule, (size_t)(equals - rule));
	enum knob_id id = knob_find(swap_dashes(typed, '-', '_', arena));
	if (id == KNOB_STRATEGY)
		return forbid_strategies(where, equals + 1, arena, question, error);
	if (id == KNOB_COUNT) /* the error suggests the nearest name */
		return question_set_by_name(question, typed, where, "", arena, error);
	if (!is_searched(id))
		return error_set(error, EXIT_CODE_USAGE, "%s: %s is not searched", where, typed);
	return question_restrict(question, id, true, where, equals + 1, arena, error);
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

/* Refuses a list, because `predict` and others have one plan. */
static bool refuse_list(const char *where, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE,
		"%s: expected one value, got a list; `plan` compares several", where);
}

/* Reads "5%" as a share. */
static bool read_share(const char *typed, double *share)
{
	struct arena arena = {0};
	size_t length = strlen(typed);
	bool ok = length > 1 && typed[length - 1] == '%' &&
		  parse_number(arena_strndup(&arena, typed, length - 1), share) && *share >= 0 &&
		  *share < 100;
	*share /= 100;
	arena_finish(&arena);
	return ok;
}

/* Reads "4GiB" or "5%". */
static bool read_headroom(
	const struct arguments *arguments, struct headroom *headroom, struct error *error)
{
	const char *typed = argument(arguments, "headroom");

	*headroom = (struct headroom){.given = typed != NULL};
	if (typed == NULL || read_share(typed, &headroom->share))
		return true;
	headroom->share = 0;
	return (unit_parse_bytes(typed, &headroom->bytes) && headroom->bytes >= 0) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--headroom: expected a size such as 4GiB, "
		       "or a share of the device such as 5%%, got \"%.40s\"",
		       typed);
}

/* The usual difference between two runs of one plan. */
#define SIMPLICITY_USUAL 0.01

static bool read_simplicity(
	const struct arguments *arguments, double *simplicity, struct error *error)
{
	const char *typed = argument(arguments, "simplicity");

	*simplicity = SIMPLICITY_USUAL;
	return typed == NULL || read_share(typed, simplicity) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--simplicity: expected a share of the step such as 1%%, got \"%.40s\"",
		       typed);
}

/* A size without a unit is in bytes; one below this limit is surely a mistake. */
enum { SMALLEST_BARE_SIZE = 1 << 20 };

/* Checks a size. A note says how it was read if that is unexpected: GB, or G alone. */
static bool check_size(
	const char *where, const char *typed, bool share, bool notes, struct error *error)
{
	size_t digits = strspn(typed, "0123456789.");
	int64_t bytes;
	struct text exact = {0};

	if (digits == 0 || !unit_parse_bytes(typed, &bytes))
		return true; /* refused later, where it is read */
	if (typed[digits] == '\0' && bytes > 0 && bytes < SMALLEST_BARE_SIZE)
		return error_set(error, EXIT_CODE_USAGE, "%s: %s is %s bytes; write %sGiB%s%s%s",
			where, typed, typed, typed, share ? " or " : "", share ? typed : "",
			share ? "%" : "");
	char shown[32];
	if (!notes)
		return true;
	unit_print_bytes(&exact, bytes);
	if (typed[digits] != '\0' && strchr(typed, 'B') == NULL)
		output_note("%s %s is read as %s", where, typed, text_string(&exact));
	else if (typed[digits] != '\0' && strchr(typed, 'i') == NULL && bytes >= 1000000000)
		output_note("%s %s is %s (GB is 10^9 bytes, GiB is 2^30)", where, typed,
			format_bytes(shown, (double)bytes));
	text_finish(&exact);
	return true;
}

/* Checks the options and cells that are sizes. */
static bool check_sizes(const struct arguments *arguments, struct arena *arena, struct error *error)
{
	static const char *const sizes[] = {"memory-limit", "headroom"};

	for (int i = 0; i < COUNT_OF(sizes); i++) {
		const char *typed = argument(arguments, sizes[i]);
		if (typed != NULL &&
			!check_size(argument_where(arguments, option_find(sizes[i]), arena), typed,
				i == 1, !arguments->cells, error))
			return false;
	}
	return true;
}

bool ask_options(struct arena *arena, const struct arguments *arguments, bool only_one,
	struct question *question, struct error *error)
{
	static const struct field others[] = {
		FIELD_INT(struct question, gpus, "gpus", FIELD_POSITIVE),
		FIELD_INT(struct question, vocab, "vocab", FIELD_POSITIVE),
		FIELD_INT(struct question, mtp_layers, "mtp_layers", FIELD_POSITIVE),
		FIELD_BYTES(struct question, memory_limit_bytes, "memory_limit", FIELD_POSITIVE),
		FIELD_ENUM(struct question, objective, "objective", 0, objective_names),
		FIELD_END,
	};

	question->memory_limit_bytes = 0;
	if (!check_sizes(arguments, arena, error) ||
		!arguments_set(arguments, others, question, arena, error) ||
		!read_headroom(arguments, &question->headroom, error) ||
		!read_simplicity(arguments, &question->simplicity, error))
		return false;
	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		const char *value = arguments->values[i];
		if (option->knob == NULL || value == NULL)
			continue;
		enum knob_id id = (enum knob_id)(option->knob - knob_table);
		const char *where = argument_where(arguments, option, arena);
		if (id == KNOB_LAYERS_PER_STAGE && strcmp(value, "auto") == 0) {
			question->shares = true;
			continue;
		}
		bool is_list =
			strchr(value, ',') != NULL && !(knob_table[id].roles & KNOB_HAS_COMMAS);
		if (!option_value_allowed(option, where, value, error))
			return false;
		if (id == KNOB_STRATEGY && !is_list && value[0] != '\0' &&
			!is_one_strategy(where, value, error))
			return false;
		/* One value fixes the knob, several restrict the search. */
		if (is_list ? !read_list(id, where, value, arena, question, error)
			    : !question_set(question, id, where, value, arena, error))
			return false;
		if (is_list && only_one)
			return refuse_list(where, error);
	}
	const char *forbidden = argument(arguments, "forbid");
	if (!ask_levers(arguments, arena, question, error))
		return false;
	return forbidden == NULL || read_forbidden("--forbid", forbidden, arena, question, error);
}

/* Extends the model's context to the sequence length. Rotary and ALiBi positions have no limit, but
 * the model has not learned longer contexts, so a note says it. */
static void extend_context(const struct question *question, struct model *model)
{
	int64_t length = question->asked.seq_len;

	if (!question_gives(question, KNOB_SEQ_LEN) ||
		model->architecture.positions == POSITIONS_LEARNED ||
		length <= model->architecture.context)
		return;
	output_note("%s was trained with %lld tokens; its positions are extended to %lld",
		model->architecture.name, (long long)model->architecture.context,
		(long long)length);
	model->architecture.context = length;
}

/* What computes attention as if all blocks saw the whole sequence; NULL: nothing does. */
static const char *computes_whole(const struct asked *asked)
{
	const struct question *question = &asked->question;
	bool cpu = asked->topology->device.kind != DEVICE_GPU;
	struct plan plan = {.runtime = question->asked.runtime};

	if (!question_gives(question, KNOB_RUNTIME))
		knob_set_default(KNOB_RUNTIME, &plan, cpu);
	if (question_gives(question, KNOB_ATTENTION) &&
		!attention_is_flash(question->asked.attention))
		return "eager attention";
	return runtime_of(plan.runtime)->skips_windows ? NULL : runtime_names[plan.runtime];
}

static void note_window(const struct asked *asked)
{
	const struct question *question = &asked->question;
	const struct architecture *a = &asked->model->architecture;
	int64_t length = question_gives(question, KNOB_SEQ_LEN) ? question->asked.seq_len
								: plan_usual_length(asked->model);
	int64_t seen = a->attention_chunk > 0 ? a->attention_chunk : a->attention_window;
	const char *what = computes_whole(asked);

	if (seen > 0 && length > seen && what != NULL)
		output_note("%s has blocks that see %lld tokens back; %s computes all %lld",
			a->name, (long long)seen, what, (long long)length);
}

/* A limit above the device's memory is allowed, to ask what more memory would give, with a note. */
static void note_more_memory(const struct arguments *arguments, const struct asked *asked)
{
	const struct device *device = &asked->topology->device;
	char limit[32], memory[32];

	if (asked->question.memory_limit_bytes > device->memory_bytes && !arguments->cells)
		output_note("--memory-limit %s is more than %s has: %s",
			format_bytes(limit, (double)asked->question.memory_limit_bytes),
			device->name, format_bytes(memory, (double)device->memory_bytes));
}

bool ask(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, bool only_one, struct asked *asked, struct error *error)
{
	if (input_swapped(arena, model, topology))
		return error_set(error, EXIT_CODE_USAGE,
			"the model comes first, then the topology; type %s %s", topology, model);
	*asked = (struct asked){.text = {model, topology, question_print(arguments, arena)}};
	if (!ask_options(arena, arguments, only_one, &asked->question, error) ||
		!input_model(arena, model, &asked->model, error) ||
		!input_topology(arena, topology, asked->question.gpus, &asked->topology, error))
		return false;
	extend_context(&asked->question, asked->model);
	note_window(asked);
	note_more_memory(arguments, asked);
	if (asked->question.vocab > 0 &&
		!model_pad(arena, asked->model, asked->question.vocab, &asked->model, error))
		return false;
	if (asked->question.mtp_layers > 0 &&
		!model_predict_next(
			arena, asked->model, asked->question.mtp_layers, &asked->model, error))
		return false;
	if (question_gives(&asked->question, KNOB_TRAINABLE) &&
		!model_train(arena, asked->model, &asked->question.asked.trainable, &asked->model,
			error))
		return false;
	asked->question.model = asked->model;
	asked->question.topology = asked->topology;
	return ask_wording(arguments, arena, &asked->question, error);
}

void ask_same_batch(const struct plan *plan, struct question *question)
{
	int64_t devices = topology_devices(question->topology);

	if (plan_ranks(plan) == devices && plan->global_batch > devices &&
		plan->global_batch % devices != 0)
		question_take_axes(question, plan);
}

/* PyTorch accepts it without a word, and reduces over groups of one rank. */
static void note_one_group(const struct arguments *arguments, const struct plan *plan)
{
	if (strategy_is_hybrid(plan->strategy) && plan->mesh.replicate == 1 && !arguments->cells)
		output_note("%s in one group of %lld ranks is the same as %s",
			strategy_names[plan->strategy], (long long)plan->mesh.shard,
			strategy_names[strategy_reshards(plan->strategy) ? STRATEGY_FULL_SHARD
									 : STRATEGY_SHARD_GRAD_OP]);
}

bool ask_plan(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error)
{
	const struct question *question = &asked->question;

	if (!ask(arena, model, topology, arguments, true, asked, error) ||
		!plan_resolve(question, arena, plan, error) ||
		!plan_honours(question, plan, error) ||
		(question->shares && !planner_share_stages(question, arena, plan, error)))
		return false;
	note_one_group(arguments, plan);
	return true;
}

/* --- the planner, with threads, a clock and a terminal ---------------------------------------- */

static void each_on_cores(
	void *context, int n, void (*piece)(void *data, int index, int worker), void *data)
{
	const int *threads = context;

	cores_each(*threads, n, piece, data);
}

/* Formats 1204 as "1,204". */
static const char *grouped(char buffer[32], int64_t number)
{
	char digits[24];
	int n = snprintf(digits, sizeof(digits), "%lld", (long long)number), length = 0;

	for (int i = 0; i < n; i++) {
		buffer[length++] = digits[i];
		if ((n - i) % 3 == 1 && i + 1 < n)
			buffer[length++] = ',';
	}
	buffer[length] = '\0';
	return buffer;
}

/* Example: "72 of 1,204 plans looked at, best 2.34 s, gap at most 4 %". */
static bool show_looked(void *context, const struct looked *looked)
{
	char plans[32], of[40] = "", all[32], best[48] = "", gap[40] = "", time[32], line[160];

	(void)context;
	if (looked->of > 0)
		snprintf(of, sizeof(of), " of %s", grouped(all, looked->of));
	if (looked->step_time > 0)
		snprintf(best, sizeof(best), ", best %s", format_seconds(time, looked->step_time));
	if (looked->step_time > 0 && looked->gap >= 0)
		snprintf(gap, sizeof(gap), ", gap at most %.0f %%", ceil(looked->gap * 100));
	snprintf(line, sizeof(line), "%s%s plans looked at%s%s", grouped(plans, looked->plans), of,
		best, gap);
	waiting_say(interrupt_came() ? "interrupted; once more ends at once" : line);
	return !interrupt_came();
}

static bool is_stopped(void *context)
{
	(void)context;
	return interrupt_came();
}

bool plan_question(const struct question *question, int threads, struct arena *arena,
	struct answer *answer, struct error *error)
{
	const struct lent lent = {&threads, threads, each_on_cores, show_looked, is_stopped};
	struct question mine = *question;

	mine.lent = &lent;
	waiting_begin("planning");
	interrupt_begin();
	bool ok = planner_plan(&mine, arena, answer, error);
	interrupt_end();
	waiting_end();
	return ok;
}

bool find_question(const struct question *question, int threads, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error)
{
	const struct lent lent = {&threads, threads, each_on_cores, NULL, NULL};
	struct question mine = *question;

	mine.lent = &lent;
	waiting_begin("searching");
	bool ok = planner_find(&mine, find, target, arena, finding, error);
	waiting_end();
	return ok;
}

bool fit_runs(const struct topology *topology, const struct fit_run *runs, int n, int threads,
	struct arena *arena, struct fitting *fitting, struct error *error)
{
	const struct lent lent = {&threads, threads, each_on_cores, NULL, NULL};

	waiting_begin("fitting");
	bool ok = fit_topology(topology, runs, n, &lent, arena, fitting, error);
	waiting_end();
	return ok;
}

/* Builds the schedule. A folded one is only simulated and not validated: tests compare folded
 * schedules with whole ones, which are. */
static bool build(const struct question *question, const struct plan *plan,
	enum evaluation_detail detail, struct arena *arena, struct schedule **schedule,
	struct error *error)
{
	if (detail == EVALUATION_WHOLE)
		return schedule_build(
			arena, plan, question->model, question->topology, schedule, error);
	*schedule = (detail == EVALUATION_FIGURES ? schedule_fold_printable : schedule_fold)(
		arena, plan, question->model, question->topology);
	return true;
}

/* Chooses the class that views show: of several that were simulated, the one with the most
 * memory. */
static void tell_class(struct evaluation *evaluation, struct arena *arena)
{
	const struct simulation *simulation = &evaluation->simulation;
	int n = evaluation->schedule->n_classes;

	evaluation->told = *evaluation->schedule;
	evaluation->told.n_classes = 1;
	evaluation->timelines = NULL;
	if (n == 1)
		return;
	evaluation->told.programs += simulation->prediction.rank_class;
	evaluation->timelines = ARENA_ARRAY(arena, const struct timeline *, n);
	for (int c = 0; c < n; c++)
		evaluation->timelines[c] = &simulation->classes[c].timeline;
}

bool plan_evaluate(const struct question *question, const struct plan *plan,
	enum evaluation_detail detail, struct arena *arena, struct evaluation *evaluation,
	struct error *error)
{
	const struct simulation_options options = {
		.memory_limit_bytes = question->memory_limit_bytes,
		.quick_interval = detail == EVALUATION_POINT,
		.no_bounds = detail == EVALUATION_POINT,
	};

	evaluation->plan = *plan;
	evaluation->schedule = NULL;
	if (!build(question, plan, detail, arena, &evaluation->schedule, error) ||
		!simulate(evaluation->schedule, &options, detail == EVALUATION_WHOLE, arena,
			&evaluation->simulation, error))
		return false;
	struct prediction *prediction = &evaluation->simulation.prediction;
	if (detail == EVALUATION_FIGURES)
		prediction->schedule_digest =
			arena_strdup(arena, schedule_digest(evaluation->schedule).hex);
	evaluation->digest = prediction->schedule_digest;
	tell_class(evaluation, arena);
	return true;
}

struct explained evaluation_explained(const struct evaluation *evaluation)
{
	const struct simulation *simulation = &evaluation->simulation;

	return (struct explained){
		.schedule = &evaluation->told,
		.whole = evaluation->schedule,
		.stages = evaluation->timelines,
		.prediction = &simulation->prediction,
		.predicted = &simulation->timeline,
		.memory = &simulation->memory,
		.critical = &simulation->critical,
	};
}
