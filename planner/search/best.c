/* Rows of a finding, and the search of another question for its best plan. */
#include "planner/search/find.h"

#include <string.h>

struct found *find_row(struct finder *finder, const char *what, double value)
{
	struct finding *finding = finder->finding;
	struct found *rows = finding->rows;
	if (finding->n == finder->capacity) {
		finder->capacity = finder->capacity > 0 ? 2 * finder->capacity : 16;
		rows = ARENA_ARRAY(finder->arena, struct found, finder->capacity);
		if (finding->n > 0)
			memcpy(rows, finding->rows, (size_t)finding->n * sizeof(*rows));
		finding->rows = rows;
	}
	rows[finding->n] = (struct found){.what = what, .value = value, .note = ""};
	return &rows[finding->n++];
}

/* The index of the best plan, else of the one that exceeds memory least; -1: no plan could be
 * made. */
static int best_of(const struct search *search)
{
	const struct ranked *best = ranking_best(&search->ranking, STRATEGY_COUNT);
	int closest = -1;
	if (best != NULL)
		return best->plan;
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		int plan = search->closest[s];
		if (plan >= 0 &&
			(closest < 0 || search->known[plan].costs.of[COST_MEMORY] <
						search->known[closest].costs.of[COST_MEMORY]))
			closest = plan;
	}
	return closest;
}

static bool fill_row(struct search *search, int plan, struct arena *arena, struct found *row,
	struct error *error)
{
	struct exposure exposure;
	row->plan = search->space.plans[plan];
	row->has_plan = true;
	if (!search_look_closely(search, plan, arena, &row->prediction, &exposure, error))
		return false;
	row->has_room = has_room(search->question, &row->plan, &row->prediction);
	if (row->prediction.fits == FITS_NO)
		row->note = excess_note(&row->prediction, arena);
	return true;
}

/* `*evaluated`: the number of simulated plans. */
static bool search_row(const struct question *question, struct arena *arena, struct found *row,
	int64_t *evaluated, struct error *error)
{
	struct search search;
	struct error mine = {0};
	row->devices = topology_devices(question->topology);
	bool ok = search_run(question, arena, &search, &mine);
	int plan = ok ? best_of(&search) : -1;
	if (plan >= 0)
		ok = fill_row(&search, plan, arena, row, &mine);
	*evaluated = search.evaluated;
	search_finish(&search);
	if (ok)
		return true;
	row->note = arena_strdup(arena, mine.message);
	return error_is_refusal(&mine, error);
}

bool find_best(struct finder *finder, const struct question *question, const char *what,
	double value, struct found **row, struct error *error)
{
	int64_t evaluated;
	*row = find_row(finder, what, value);
	bool ok = search_row(question, finder->arena, *row, &evaluated, error);
	finder->finding->evaluated += evaluated;
	return ok;
}

/* --- several questions ------------------------------------------------------------------------ */

struct several {
	const struct another *questions;
	struct found *rows;
	struct result {
		struct arena arena;
		int64_t evaluated;
		struct error error;
	} * results;
};

static void search_one(void *data, int index, int worker)
{
	struct several *several = data;
	struct result *result = &several->results[index];
	struct lent quiet;
	const struct question question =
		lent_quietly(&several->questions[index].question, true, &quiet);
	(void)worker;
	search_row(&question, &result->arena, &several->rows[index], &result->evaluated,
		&result->error);
}

bool find_all(struct finder *finder, const struct another *questions, int n, struct error *error)
{
	int first = finder->finding->n;
	struct several several = {questions, NULL, ARENA_ARRAY(finder->arena, struct result, n)};
	for (int i = 0; i < n; i++)
		find_row(finder, questions[i].what, questions[i].value);
	several.rows = &finder->finding->rows[first];
	lent_each(finder->question, n, search_one, &several);
	bool ok = true;
	for (int i = 0; i < n; i++) {
		struct result *result = &several.results[i];
		arena_join(finder->arena, &result->arena);
		finder->finding->evaluated += result->evaluated;
		if (ok && result->error.code != EXIT_CODE_OK) {
			*error = result->error;
			ok = false;
		}
	}
	return ok;
}
