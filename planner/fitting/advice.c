/* Which further run would tell most about a constant: tries the given runs with some choices
 * changed, and computes how much each would reduce the constant's doubt. */
#include "planner/fitting/parts.h"

#include <math.h>
#include <string.h>

#include "schedule/fold/fold.h"
#include "schedule/resolve/resolve.h"

/* A run that leaves more than this share of a constant's doubt is not proposed. */
static const double worth = 0.9;

enum { PLACES = 5, LOADS = 4, MODELS = 2, MORE = 4, SHORT = 512, SOME_NODES = 4 };

/* Choices of a run, changed; 0: as it is. */
struct variant {
	int64_t nodes, devices, micro_batch, seq_len;
};

struct candidate_run {
	int run;
	const char *text;
	const struct schedule *schedule;
};

/* --- candidates ------------------------------------------------------------------------------- */

/* The places where a run is tried: where it ran, on one device, one node, some nodes, all nodes. */
static int places_of(const struct fit_state *state, struct variant places[PLACES])
{
	int64_t node = state->topology->devices_per_node, all = state->topology->nodes;
	int n = 0;

	places[n++] = (struct variant){0};
	places[n++] = (struct variant){.nodes = 1, .devices = 1};
	places[n++] = (struct variant){.nodes = 1, .devices = node};
	if (all > SOME_NODES)
		places[n++] = (struct variant){.nodes = SOME_NODES, .devices = node};
	if (all > 1)
		places[n++] = (struct variant){.nodes = all, .devices = node};
	return n;
}

/* The loads with which a run is tried: its own, more tokens, few tokens. */
static int loads_of(const struct fit_run *run, struct variant loads[LOADS])
{
	int n = 0;

	loads[n++] = (struct variant){0};
	loads[n++] = (struct variant){.micro_batch = MORE * run->plan.micro_batch};
	loads[n++] = (struct variant){.micro_batch = 1};
	if (run->plan.seq_len > SHORT)
		loads[n++] = (struct variant){.micro_batch = 1, .seq_len = SHORT};
	return n;
}

/* Example: "gpus 32, micro_batch 1". */
static const char *change_text(const struct variant *change, struct arena *arena)
{
	struct text text = {0};
	const struct {
		const char *name;
		int64_t value;
	} parts[] = {{"gpus", change->nodes * change->devices},
		{"micro_batch", change->micro_batch}, {"seq_len", change->seq_len}};

	for (int i = 0; i < COUNT_OF(parts); i++)
		if (parts[i].value > 0)
			text_printf(&text, "%s%s %lld", text.length > 0 ? ", " : "", parts[i].name,
				(long long)parts[i].value);
	const char *copy = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return copy;
}

static struct topology *cut(
	const struct fit_state *state, const struct variant *change, struct arena *arena)
{
	struct topology *topology = ARENA_NEW(arena, struct topology);

	*topology = *state->topology;
	topology->nodes = change->nodes;
	topology->devices_per_node = change->devices;
	return topology;
}

/* The run's knobs with the change; what follows from the number of devices stays open. */
static const struct schedule *changed(const struct fit_state *state, const struct fit_run *run,
	const struct variant *change, struct arena *arena)
{
	struct question question = {
		.model = run->model, .topology = run->topology, .asked = run->plan};
	struct plan plan;
	struct error why = {0};
	const struct simulation_options options = {
		.quick_interval = true, .no_bounds = true, .memory = MEMORY_FITS};
	struct simulation simulation;

	if (change->nodes > 0)
		question.topology = cut(state, change, arena);
	question.given = KNOBS_OF_FILES;
	question_open(&question, KNOB_GLOBAL_BATCH);
	if (change->micro_batch > 0)
		question.asked.micro_batch = change->micro_batch;
	if (change->seq_len > 0)
		question.asked.seq_len = change->seq_len;
	if (!plan_resolve(&question, arena, &plan, &why))
		return NULL;
	struct schedule *schedule = schedule_fold(arena, &plan, run->model, question.topology);
	if (!simulate(schedule, &options, false, arena, &simulation, &why) ||
		simulation.prediction.fits != FITS_YES)
		return NULL;
	return schedule;
}

/* Of several runs with the same model only one is tried. */
static bool is_first(const struct fit_state *state, int run)
{
	for (int i = 0; i < run; i++)
		if (state->runs[i].model->parameter_count ==
			state->runs[run].model->parameter_count)
			return false;
	return true;
}

static int add_candidates(const struct fit_state *state, int run, struct arena *arena,
	struct candidate_run *candidates)
{
	struct variant places[PLACES], loads[LOADS];
	int n_places = places_of(state, places), n_loads = loads_of(&state->runs[run], loads);
	int n = 0;

	for (int i = 1; i < n_places * n_loads; i++) {
		struct variant change = loads[i % n_loads];

		change.nodes = places[i / n_loads].nodes;
		change.devices = places[i / n_loads].devices;
		const struct schedule *schedule = changed(state, &state->runs[run], &change, arena);
		if (schedule != NULL)
			candidates[n++] =
				(struct candidate_run){run, change_text(&change, arena), schedule};
	}
	return n;
}

static int candidates_of(
	const struct fit_state *state, struct arena *arena, struct candidate_run *candidates)
{
	int n = 0, models = 0;

	for (int i = 0; i < state->linear.n && models < MODELS; i++) {
		if (!is_first(state, i))
			continue;
		models++;
		n += add_candidates(state, i, arena, &candidates[n]);
	}
	return n;
}

/* --- how much each would tell ----------------------------------------------------------------- */

/* A constant's doubt after one more run / before it (rank-one update of the covariance). */
static double left_of(
	const struct fit_state *state, const struct linear *candidates, int run, int constant)
{
	const struct posterior *posterior = &state->posterior;
	const double *slopes = candidates->slopes[run];
	double shared = 0;

	for (int k = 0; k < CONSTANTS; k++)
		shared += posterior->covariance[constant][k] * slopes[k];
	double told = shared * shared /
		      (run_variance(candidates, run) + posterior_variance(posterior, slopes));
	return sqrt(fmax(0, 1 - told / posterior->covariance[constant][constant]));
}

void advise(const struct fit_state *state, struct arena *arena, struct fitted_constant *constants)
{
	struct candidate_run candidates[MODELS * PLACES * LOADS];
	int n = candidates_of(state, arena, candidates);
	const struct schedule **schedules = ARENA_ARRAY(arena, const struct schedule *, n);
	double(*slopes)[CONSTANTS] = arena_alloc(arena, (size_t)n, sizeof(*slopes));

	for (int i = 0; i < n; i++)
		schedules[i] = candidates[i].schedule;
	steps_derive(state->steps, schedules, n, state->linear.x, state->linear.free, slopes);
	struct linear asked = state->linear;
	asked.slopes = (const double(*)[CONSTANTS])slopes;
	for (int j = 0; j < CONSTANTS; j++) {
		double least = worth;

		for (int i = 0; i < n && constants[j].verdict != FIT_ABSENT; i++) {
			double left = left_of(state, &asked, i, j);

			if (left >= least)
				continue;
			least = left;
			constants[j].advice = (struct fit_advice){
				state->runs[candidates[i].run].name, candidates[i].text, left};
		}
	}
}
