#include "reports/text/text.h"

#include <stdlib.h>
#include <string.h>

bool goes_with_an_axis(enum knob_id id, const struct plan *plan, const struct plan *chosen)
{
	static const struct plan nothing;

	return knob_table[id].group == KNOB_GROUP_AXES && knob_equal(id, plan, &nothing) &&
	       memcmp(&plan->mesh, &chosen->mesh, sizeof(plan->mesh)) != 0;
}

/* Example: ", wrap model", if the plans differ in that knob. */
static void add_difference(
	enum knob_id id, const struct plan *plan, const struct plan *chosen, struct text *text)
{
	struct arena scratch = {0};
	/* Tensor ranks split sequences, too, which their name says enough. */
	bool usual = id == KNOB_SEQUENCE_PARALLEL && chosen->mesh.tensor == 1;

	if (usual || knob_equal(id, plan, chosen) || goes_with_an_axis(id, plan, chosen))
		return;
	text_add(text, ", ");
	for (const char *c = knob_table[id].field.name; *c != '\0'; c++)
		text_add_char(text, *c == '_' ? ' ' : *c);
	text_printf(text, " %s", knob_typed(id, plan, &scratch));
	arena_finish(&scratch);
}

void candidate_name(const struct plan *plan, const struct plan *chosen, struct text *text)
{
	plan_add_name(plan, text);
	if (chosen != NULL && plan->runtime != chosen->runtime)
		text_printf(text, " (%s)", runtime_names[plan->runtime]);
	if (strcmp(plan->reshard_after_forward.text, "true") != 0 &&
		strcmp(plan->reshard_after_forward.text, "false") != 0) {
		text_add(text, ", ");
		plan_say_reshard(plan, text);
	}
	if (chosen == NULL || plan == chosen || plan->runtime != chosen->runtime)
		return;
	/* Knobs without a column of their own. */
	for (int id = 0; id < KNOB_IN_MESH; id++)
		if (knob_table[id].roles & KNOB_IN_STUDY)
			add_difference((enum knob_id)id, plan, chosen, text);
}

/* --- studies ------------------------------------------------------------------------------------
 */

static void add_point(const struct study_point *point, double first, struct grid *grid)
{
	char tokens[32];

	if (!point->built) {
		grid_add_value(grid, 0, "-");
		return;
	}
	double value = point->tokens_per_s_per_gpu;
	format_tokens(tokens, value);
	if (point->fits == FITS_NO)
		grid_add_value(grid, value, "%s, does not fit", tokens);
	else if (first > 0)
		grid_add_value(grid, value, "%s (%.0f %%)", tokens, value / first * 100);
	else
		grid_add_value(grid, value, "%s", tokens);
}

/* The first value of the study at which a line has a point. */
static double first_of(const struct study_line *line, int n)
{
	for (int i = 0; i < n; i++) {
		if (line->points[i].built)
			return line->points[i].tokens_per_s_per_gpu;
	}
	return 0;
}

void study_grid(const struct study *study, struct arena *arena, struct grid *grid)
{
	int n = study->n_lines + 1;
	struct grid_column *columns = ARENA_ARRAY(arena, struct grid_column, n);

	columns[0] = (struct grid_column){study->quantity, GRID_LEFT};
	for (int l = 0; l < study->n_lines; l++)
		columns[l + 1] = (struct grid_column){study->lines[l].name, GRID_RIGHT};
	grid_init(grid, columns, n);
	for (int i = 0; i < study->n_points; i++) {
		grid_row(grid, GRID_PLAIN);
		grid_add_value(grid, study->values[i], "%s%s", study->names[i],
			i == study->here ? " (asked)" : "");
		for (int l = 0; l < study->n_lines; l++)
			add_point(&study->lines[l].points[i],
				first_of(&study->lines[l], study->n_points), grid);
	}
}

/* The fastest plan that fits at a value; -1: none does. */
static int best_line(const struct study *study, int i)
{
	int best = -1;

	for (int l = 0; l < study->n_lines; l++) {
		const struct study_point *point = &study->lines[l].points[i];
		if (!point->built || point->fits == FITS_NO)
			continue;
		if (best < 0 || point->tokens_per_s_per_gpu >
					study->lines[best].points[i].tokens_per_s_per_gpu)
			best = l;
	}
	return best;
}

/* Examples: "1 node", "4 nodes", "25.0 GB/s". */
static void add_value(const struct study *study, int i, struct text *text)
{
	int length = (int)strlen(study->unit);

	if (strcmp(study->names[i], "1") == 0 && length > 0)
		length--;
	text_printf(text, "%s%s%.*s", study->names[i], length > 0 ? " " : "", length, study->unit);
}

static void add_best(const struct study *study, int i, int best, struct text *text)
{
	char tokens[32];

	add_value(study, i, text);
	if (best < 0)
		text_add(text, " on, none of these fits");
	else
		text_printf(text, " on, %s is the fastest of these that fits (%s tokens/s/GPU)",
			study->lines[best].name,
			format_tokens(tokens, study->lines[best].points[i].tokens_per_s_per_gpu));
}

void study_sentence(const struct study *study, struct text *text)
{
	int before = best_line(study, 0), changes = 0;

	for (int i = 1; i < study->n_points; i++)
		changes += best_line(study, i) != best_line(study, i - 1);
	if (changes == 0 && before >= 0) {
		text_printf(text, "%s is the fastest of these that fits, everywhere.",
			study->lines[before].name);
		return;
	}
	text_add(text, "From ");
	add_best(study, 0, before, text);
	for (int i = 1; i < study->n_points; i++) {
		int best = best_line(study, i);
		if (best == before)
			continue;
		text_add(text, "; from ");
		add_best(study, i, best, text);
		before = best;
	}
	text_add_char(text, '.');
}

/* --- the front ----------------------------------------------------------------------------------
 */

static bool is_worth_drawing(const struct candidate *candidate)
{
	const struct prediction *prediction = &candidate->prediction;

	return candidate->outcome != OUTCOME_IMPOSSIBLE && prediction->step_time > 0 &&
	       (prediction->memory_limit_bytes == 0 ||
		       prediction->peak_memory_bytes / 3 < prediction->memory_limit_bytes);
}

/* Does the chart already have the candidate? The planner's front repeats candidates of the
 * answer. */
static bool is_drawn(const struct front *front, const struct candidate *candidate)
{
	const struct prediction *prediction = &candidate->prediction;

	for (int i = 0; i < front->n; i++) {
		const struct front_point *point = &front->points[i];
		if (point->bytes == prediction->peak_memory_bytes &&
			point->tokens_per_s == prediction->tokens_per_s_per_gpu &&
			point->candidate->plan.strategy == candidate->plan.strategy)
			return true;
	}
	return false;
}

static void add_candidate(const struct candidate *candidate, struct front *front)
{
	if (!is_worth_drawing(candidate) || is_drawn(front, candidate))
		return;
	front->points[front->n] =
		(struct front_point){candidate, front->n, candidate->prediction.peak_memory_bytes,
			candidate->prediction.tokens_per_s_per_gpu, false};
	front->n++;
	front->limit = candidate->prediction.memory_limit_bytes;
}

static int compare_points(const void *a, const void *b)
{
	const struct front_point *left = a, *right = b;

	if (left->bytes != right->bytes)
		return left->bytes < right->bytes ? -1 : 1;
	if (left->tokens_per_s != right->tokens_per_s)
		return left->tokens_per_s > right->tokens_per_s ? -1 : 1;
	return left->order - right->order;
}

void front_of(const struct answer *answer, struct arena *arena, struct front *front)
{
	double most = 0;

	*front = (struct front){0};
	front->points = ARENA_ARRAY(
		arena, struct front_point, answer->n_alternatives + answer->n_front + 1);
	if (answer->chosen != NULL)
		add_candidate(answer->chosen, front);
	for (int i = 0; i < answer->n_alternatives; i++)
		add_candidate(&answer->alternatives[i], front);
	for (int i = 0; i < answer->n_front; i++)
		add_candidate(&answer->front[i], front);
	qsort(front->points, (size_t)front->n, sizeof(*front->points), compare_points);
	for (int i = 0; i < front->n; i++) {
		struct front_point *point = &front->points[i];
		if (point->candidate->outcome == OUTCOME_DOES_NOT_FIT ||
			point->tokens_per_s <= most)
			continue;
		point->best = true;
		most = point->tokens_per_s;
	}
}

/* The next plan of the front from `i` on; front->n: there is none. */
static int next_best(const struct front *front, int i)
{
	while (i < front->n && !front->points[i].best)
		i++;
	return i;
}

static void add_end(const struct front_point *point, const struct plan *chosen, struct text *text)
{
	char bytes[32], tokens[32];

	candidate_name(&point->candidate->plan, chosen, text);
	text_printf(text, " with %s and %s tokens/s/GPU", format_bytes(bytes, (double)point->bytes),
		format_tokens(tokens, point->tokens_per_s));
}

void front_sentence(const struct front *front, const struct answer *answer, struct text *text)
{
	const struct plan *chosen = answer->chosen != NULL ? &answer->chosen->plan : NULL;
	int first = next_best(front, 0), last = first, n = 0;

	for (int i = first; i < front->n; i = next_best(front, i + 1), n++)
		last = i;
	if (n == 0) {
		text_add(text, "Nothing fits.");
		return;
	}
	text_add(text, n == 1 ? "One plan beats all others in both: " : "");
	if (n > 1)
		text_printf(text, "%d plans that nothing here beats in both, from ", n);
	add_end(&front->points[first], chosen, text);
	if (n > 1) {
		text_add(text, " to ");
		add_end(&front->points[last], chosen, text);
	}
	text_add_char(text, '.');
}

void pareto_grid(const struct front *front, const struct plan *chosen, struct grid *grid)
{
	static const struct grid_column columns[] = {{"plan", GRID_LEFT},
		{"checkpointing", GRID_LEFT}, {"batch", GRID_LEFT}, {"peak memory", GRID_RIGHT},
		{"tokens/s/GPU", GRID_RIGHT}};
	struct text name = {0};
	char tokens[32], batch[48];

	grid_init(grid, columns, COUNT_OF(columns));
	for (int i = 0; i < front->n; i++) {
		const struct front_point *point = &front->points[i];
		const struct plan *plan = &point->candidate->plan;
		if (!point->best)
			continue;
		text_clear(&name);
		candidate_name(plan, chosen, &name);
		grid_row(
			grid, point->candidate->outcome == OUTCOME_CHOSEN ? GRID_GOOD : GRID_PLAIN);
		grid_add(grid, "%s", text_string(&name));
		grid_add(grid, "%s", plan->activation_checkpointing.text);
		grid_add(
			grid, "%s", format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
		grid_add_bytes(grid, (double)point->bytes);
		grid_add_value(grid, point->tokens_per_s, "%s",
			format_tokens(tokens, point->tokens_per_s));
	}
	text_finish(&name);
}
