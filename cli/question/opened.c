/* Plan files: read and compiled again, and written. */
#include <math.h>
#include <string.h>

#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

/* --- whether a file says what is predicted now --------------------------------------------------
 */

/* Times are compared as far as other compilers round them; of exact figures are other rows. */
static bool same_value(const char *a, const char *b)
{
	double x, y;

	if (!parse_number(a, &x) || !parse_number(b, &y))
		return strcmp(a, b) == 0;
	return fabs(x - y) <= fmax(1e-6 * fmax(fabs(x), fabs(y)), 1e-9);
}

/* A line of YAML: blanks before the key, the key, and the value, "" in the line above a map. */
struct line {
	int indent;
	const char *key, *value;
};

static struct line next_line(struct arena *arena, const char **at)
{
	size_t length = strcspn(*at, "\n"), indent = strspn(*at, " -");
	char *text = arena_strndup(arena, *at + indent, length - indent);
	char *colon = strstr(text, ": ");

	*at += length + ((*at)[length] == '\n');
	if (colon != NULL)
		*colon = '\0';
	return (struct line){(int)indent, text, colon != NULL ? colon + 2 : ""};
}

static const char *prediction_text(struct arena *arena, const struct prediction *prediction)
{
	struct text text = {0};
	struct writer writer;

	writer_init(&writer, &text, WRITER_YAML);
	prediction_write(prediction, &writer);
	writer_finish(&writer);
	const char *copy = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return copy;
}

/* The first figure of which they differ: "time_s compute 2.5, it is now 1.25". NULL: none. The
 * file's digest is of its schedule alone: all figures may be those of another topology. */
static const char *first_difference(
	struct arena *arena, const struct prediction *written, const struct prediction *now)
{
	const char *left = prediction_text(arena, written), *right = prediction_text(arena, now);
	const char *above = "";

	while (*left != '\0' || *right != '\0') {
		const struct line a = next_line(arena, &left), b = next_line(arena, &right);

		if (a.value[0] == '\0')
			above = a.key;
		else if (a.indent == 0)
			above = "";
		const char *key = arena_printf(arena, "%.*s%s%s", (int)strcspn(above, ":"), above,
			above[0] != '\0' ? " " : "", a.key);
		/* A figure that is zero may have no line. */
		if (strcmp(a.key, b.key) != 0)
			return arena_printf(
				arena, "%s %s; other figures are predicted now", key, a.value);
		if (!same_value(a.value, b.value))
			return arena_printf(arena, "%s %s; it is now %s", key, a.value, b.value);
	}
	return NULL;
}

static bool same_headline(const struct prediction *written, const struct prediction *now)
{
	return fabs(written->step_time - now->step_time) <= 1e-6 * now->step_time &&
	       written->memory_limit_bytes == now->memory_limit_bytes &&
	       written->peak_memory_bytes == now->peak_memory_bytes;
}

static const char *figures(struct arena *arena, const struct prediction *prediction)
{
	char time[32], peak[32], limit[32];

	return arena_printf(arena, "%s a step, %s of %s",
		format_seconds(time, prediction->step_time),
		format_bytes(peak, (double)prediction->peak_memory_bytes),
		format_bytes(limit, (double)prediction->memory_limit_bytes));
}

/* What the file says otherwise than it is predicted now; NULL: nothing. */
static const char *predicts_otherwise(
	struct arena *arena, const struct prediction *written, const struct prediction *now)
{
	if (same_headline(written, now))
		return first_difference(arena, written, now);
	return arena_printf(
		arena, "%s; it is now %s", figures(arena, written), figures(arena, now));
}

/* --- opening ------------------------------------------------------------------------------------
 */

/* The limit that was asked for, else what the device has. */
static int64_t limit_of(struct arena *arena, const struct plan_file *file)
{
	const char *options = file->question.options;
	struct arguments arguments;
	struct error none = {0};
	bool asked = options != NULL && question_scan(options, &arguments, arena, &none) &&
		     argument(&arguments, "memory-limit") != NULL;

	return asked ? file->prediction.memory_limit_bytes : file->topology->device.memory_bytes;
}

bool open_plan(struct arena *arena, const char *path, struct opened *opened, struct error *error)
{
	struct plan_file *file = &opened->file;

	opened->path = path;
	if (!input_plan_file(arena, path, file, &opened->text, error))
		return false;
	const struct question question = {.model = file->model,
		.topology = file->topology,
		.memory_limit_bytes = limit_of(arena, file)};
	if (!plan_evaluate(
		    &question, &file->plan, EVALUATION_WHOLE, arena, &opened->evaluation, error))
		return false;
	if (strcmp(file->schedule_digest, opened->evaluation.digest) != 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: the plan compiles to schedule %s, expected its schedule_digest %s: "
			"it was edited, or made by another version; plan again",
			path, opened->evaluation.digest, file->schedule_digest);
	const struct prediction *now = &opened->evaluation.simulation.prediction;
	const char *otherwise = predicts_otherwise(arena, &file->prediction, now);
	if (otherwise != NULL) {
		output_note("%s predicts %s: it was edited, or made by another version; plan again",
			path, otherwise);
		file->prediction = *now;
	}
	/* A plan file has only the sum. */
	file->prediction.communicator_bytes = now->communicator_bytes;
	/* It has no figures of axes either. */
	if (prediction_axes(&file->prediction) == 0)
		memcpy(file->prediction.axes, now->axes, sizeof(file->prediction.axes));
	return true;
}

struct explained opened_explained(const struct opened *opened, const struct measurement *measured)
{
	struct explained explained = evaluation_explained(&opened->evaluation);

	explained.prediction = &opened->file.prediction;
	explained.measured = measured;
	return explained;
}

void opened_tell_measured(struct opened *opened)
{
	struct evaluation *evaluation = &opened->evaluation;
	const struct prediction worst = evaluation->simulation.prediction;
	struct simulation *stages = evaluation->simulation.classes;
	struct prediction *told = &evaluation->simulation.prediction;

	if (stages == NULL)
		return;
	evaluation->simulation = stages[0];
	evaluation->simulation.classes = stages;
	told->schedule_digest = worst.schedule_digest;
	told->n_classes = worst.n_classes;
	told->classes = worst.classes;
	told->rank_class = 0;
	told->wire_bytes_per_rank = told->wire_bytes_rows = 0;
	for (int c = 0; c < worst.n_classes; c++) {
		const struct prediction *one = &stages[c].prediction;

		told->wire_bytes_per_rank += one->wire_bytes_per_rank / worst.n_classes;
		told->wire_bytes_rows += one->wire_bytes_rows / worst.n_classes;
	}
	evaluation->told.programs = evaluation->schedule->programs;
	opened->file.prediction = *told;
}

void print_plan(const struct question_text *text, struct model *model, struct topology *topology,
	const struct evaluation *evaluation, struct text *yaml)
{
	const struct plan_file file = {
		.question = *text,
		.model = model,
		.topology = topology,
		.plan = evaluation->plan,
		.prediction = evaluation->simulation.prediction,
		.schedule_digest = evaluation->digest,
	};

	plan_file_write(&file, yaml);
}

bool save_plan(struct arena *arena, const char *path, const struct question_text *text,
	struct model *model, struct topology *topology, const struct evaluation *evaluation,
	struct error *error)
{
	struct text yaml = {0};

	print_plan(text, model, topology, evaluation, &yaml);
	bool ok = file_write(arena, path, &yaml, error);
	text_finish(&yaml);
	if (ok && strcmp(path, "-") != 0)
		output_note("the plan is in %s", path);
	return ok;
}
