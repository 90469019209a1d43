/* Evaluates a candidate: builds its schedule, simulates it, and finds the exposed communication. */
#include "planner/evaluation/evaluation.h"
#include "planner/evaluation/steady.h"

#include <math.h>
#include <string.h>

#include "schedule/fold/fold.h"
#include "schedule/schedule.h"
#include "simulator/simulator.h"

/* --- costs ------------------------------------------------------------------------------------ */

static int64_t whole(double value)
{
	return value < 9e18 ? (int64_t)(value + 0.5) : INT64_C(9000000000000000000);
}

int64_t costs_time(const struct plan *plan, double step_time)
{
	return whole(step_time * 1e15 / plan_tokens(plan));
}

int64_t costs_network(const struct plan *plan, double bytes)
{
	return whole(bytes * 1e3 / plan_tokens(plan));
}

double costs_step_above(const struct plan *plan, int64_t time)
{
	return ((double)time + 1) * plan_tokens(plan) * 1e-15 * (1 + 1e-12);
}

struct costs costs_of(const struct question *question, const struct plan *plan,
	const struct prediction *prediction)
{
	double network = question->topology->nodes > 1 ? prediction->wire_bytes_node_egress
						       : prediction->wire_bytes_per_rank;
	return (struct costs){{
		[COST_TIME] = costs_time(plan, prediction->step_time),
		[COST_MEMORY] = prediction_wanted_bytes(prediction),
		[COST_NETWORK] = costs_network(plan, network),
		[COST_HOST] = prediction->host_memory_bytes,
	}};
}

/* --- exposure --------------------------------------------------------------------------------- */

static struct exposure exposure_of(const struct simulation *simulation)
{
	const struct exposed *exposed = &simulation->exposed;
	struct exposure exposure = {.slowed = exposed->slowed,
		.idle = simulation->prediction.step_time - exposed->computing -
			simulation->prediction.time.allocator - simulation->prediction.time.bubble};
	for (int k = 0; k < COUNT_OF(exposure.seconds); k++) {
		exposure.seconds[k] = exposed->seconds[k];
		exposure.over_network[k] = exposed->over_network[k] > exposed->seconds[k] / 2;
		exposure.idle -= exposed->seconds[k];
	}
	exposure.idle = fmax(0, exposure.idle);
	return exposure;
}

/* --- evaluation ------------------------------------------------------------------------------- */

static const char *copy(struct arena *arena, const char *string)
{
	return string != NULL ? arena_strdup(arena, string) : NULL;
}

static void keep_strings(struct prediction *prediction, struct arena *arena)
{
	prediction->schedule_digest = copy(arena, prediction->schedule_digest);
	prediction->peak_name = copy(arena, prediction->peak_name);
	prediction->peak_at = copy(arena, prediction->peak_at);
	prediction->uncertainty_source = copy(arena, prediction->uncertainty_source);
	if (prediction->classes == NULL)
		return;
	struct class_figures *classes =
		ARENA_ARRAY(arena, struct class_figures, prediction->n_classes);
	for (int c = 0; c < prediction->n_classes; c++) {
		classes[c] = prediction->classes[c];
		classes[c].name = copy(arena, classes[c].name);
	}
	prediction->classes = classes;
}

struct prediction evaluator_kept(const struct prediction *prediction, struct arena *arena)
{
	struct prediction kept = *prediction;
	keep_strings(&kept, arena);
	return kept;
}

static struct simulation_options sketch(struct evaluator *evaluator)
{
	return (struct simulation_options){
		.memory_limit_bytes = evaluator->question->memory_limit_bytes,
		.quick_interval = true,
		.no_bounds = true,
		.scratch = &evaluator->simulating};
}

/* One evaluation of one plan on one machine. `closely`: the operation at the memory peak gets a
 * name. `list`: the micro-batches of a pipeline that are simulated; NULL: all. */
struct trial {
	const struct topology *topology;
	const struct plan *plan;
	const struct short_list *list;
	struct simulation_options options;
	bool closely;
	struct schedule *schedule;
	struct simulation simulation;
};

/* Evaluators may read the known models at the same time, because none of them adds a model. */
static const struct model *model_of(struct evaluator *evaluator, const struct plan *plan)
{
	const struct model *model = evaluator->question->model, *part = NULL;
	const struct division division = plan_division(plan);
	if (evaluator->known != NULL)
		part = divided_before(evaluator->known, model, &division);
	return part != NULL ? part : divided_model(&evaluator->divided, model, &division);
}

static struct schedule *schedule_of(struct evaluator *evaluator, const struct trial *trial)
{
	struct arena *scratch = &evaluator->scratch;
	const struct model *model = model_of(evaluator, trial->plan);
	struct schedule *schedule = NULL;
	if (trial->list != NULL)
		schedule = schedule_fold_rounds(
			scratch, trial->plan, trial->list, model, trial->topology);
	if (schedule != NULL)
		return schedule;
	return (trial->closely ? schedule_fold_printable : schedule_fold)(
		scratch, trial->plan, model, trial->topology);
}

static bool run_once(struct evaluator *evaluator, struct trial *trial, struct error *error)
{
	struct arena *scratch = &evaluator->scratch;
	/* Small blocks find room again where large ones do not, but for what is as large. */
	if (trial->plan->mesh.pipeline > 1)
		evaluator_release(evaluator);
	arena_reset(scratch);
	trial->schedule = schedule_of(evaluator, trial);
	return simulate(
		trial->schedule, &trial->options, false, scratch, &trial->simulation, error);
}

/* --- pipelines -------------------------------------------------------------------------------- */

/* Where a list is not steady, the step that it tells is at most so many times too long. */
#define UNSTEADY 1.01

/* Keeps what another simulation would overwrite. */
static void keep(struct simulation *simulation, struct arena *arena)
{
	int n = simulation->prediction.n_classes;
	struct simulation *classes = ARENA_ARRAY(arena, struct simulation, n);
	memcpy(classes, simulation->classes, (size_t)n * sizeof(*classes));
	simulation->classes = classes; /* without their strings */
	keep_strings(&simulation->prediction, arena);
}

/* Takes over the simulation of a list. Without `is_step` its step time becomes a lower bound,
 * because the list is not steady. */
static void take_list(const struct simulation *list, bool is_step, struct arena *arena,
	struct simulation *simulation)
{
	*simulation = *list;
	keep(simulation, arena);
	if (!is_step)
		simulation->prediction.step_time /= UNSTEADY;
}

/* Simulates a list. `*enough`: it is steady, or treated as such because none is longer.
 * `*settled`: it says exactly how long a round takes. */
static bool run_list(struct evaluator *evaluator, struct trial *trial,
	const struct short_list *list, int attempt, bool *enough, bool *settled,
	struct error *error)
{
	struct short_list next;
	bool is_last =
		!steady_may_run_all(trial->plan) && !steady_of(trial->plan, attempt + 1, &next);
	trial->list = list;
	trial->options.spans = true;
	if (!run_once(evaluator, trial, error))
		return false;
	bool steady = steady_is(list, trial->schedule, &trial->simulation);
	*enough = is_last || steady;
	*settled = steady || steady_has_settled(list, trial->schedule, &trial->simulation);
	return true;
}

/* A list of one round less says how long a round takes: from the second round on, each one makes a
 * step longer by as much, although no two of them are alike. */
static bool find_pace(struct evaluator *evaluator, const struct trial *trial,
	const struct short_list *list, struct simulation *simulation, struct error *error)
{
	const struct plan *plan = trial->plan;
	const struct plan shorter = plan_with_micro_batches(plan, list->listed - list->round);
	struct trial other = {
		.topology = trial->topology, .plan = &shorter, .options = sketch(evaluator)};
	double step = simulation->prediction.step_time;
	double listed = step - simulation->more_rounds;
	double rounds = (double)((plan->grad_accum - list->listed) / list->round);
	other.options.memory = MEMORY_IGNORED;
	if (!run_once(evaluator, &other, error))
		return false;
	double round = listed - other.simulation.prediction.step_time;
	steady_stretch((listed + rounds * round) / step, &simulation->prediction);
	return true;
}

static bool run_all(struct evaluator *evaluator, struct trial *trial, struct simulation *simulation,
	struct error *error)
{
	trial->list = NULL;
	trial->options.spans = false;
	if (!run_once(evaluator, trial, error))
		return false;
	steady_take(&trial->simulation, simulation);
	return true;
}

/* A list that is longer than the first one, and long enough, says how long a step takes, or all
 * micro-batches do. */
static bool run_longer(struct evaluator *evaluator, struct trial *trial,
	struct simulation *simulation, struct error *error)
{
	struct short_list list;
	bool enough = false, settled = true;
	for (int i = 1; !enough && steady_of(trial->plan, i, &list); i++)
		if (!run_list(evaluator, trial, &list, i, &enough, &settled, error))
			return false;
	if (!enough)
		return run_all(evaluator, trial, simulation, error);
	steady_take(&trial->simulation, simulation);
	simulation->more_rounds = trial->simulation.more_rounds;
	return settled || find_pace(evaluator, trial, &list, simulation, error);
}

/* The step time of a plan whose first list, already simulated, has memory without retries: only
 * time is left to find. */
static bool find_step(struct evaluator *evaluator, struct trial *trial,
	const struct short_list *list, bool enough, bool settled, struct error *error)
{
	struct trial longer = *trial;
	longer.options.memory = MEMORY_IGNORED;
	longer.options.slow = 0;
	if (!enough)
		return run_longer(evaluator, &longer, &trial->simulation, error);
	return settled || find_pace(evaluator, trial, list, &trial->simulation, error);
}

/* Memory is that of a short list: where it is to fit and does not, or where the step is too slow,
 * its time is left at what the list says. All longer lists are without memory, unless retries of
 * the allocator are part of the time: these come when they like, and only lists that are too long
 * are treated as steady. */
static bool run_steady(struct evaluator *evaluator, struct trial *trial,
	const struct short_list *list, struct arena *kept, struct error *error)
{
	struct simulation *simulation = &trial->simulation;
	const struct prediction *prediction = &simulation->prediction;
	struct trial shorter = *trial;
	bool enough, settled, only_fits = trial->options.memory == MEMORY_FITS;
	shorter.options.slow *= UNSTEADY;
	if (!run_list(evaluator, &shorter, list, 0, &enough, &settled, error))
		return false;
	take_list(&shorter.simulation, enough || !(only_fits || trial->options.slow > 0), kept,
		simulation);
	if (trial->options.slow > 0 && prediction->step_time > trial->options.slow)
		return true; /* its memory may not have been looked at */
	bool retries = prediction->time.allocator > 0;
	if (prediction->fits == FITS_NO || (only_fits && prediction->fits != FITS_YES))
		return true; /* nobody runs it */
	if (retries && steady_may_run_all(trial->plan))
		return run_all(evaluator, &shorter, simulation, error);
	return retries || find_step(evaluator, trial, list, enough, settled, error);
}

/* First without retries of the allocator, which take the most of a simulation and make no step
 * faster: what does not fit, or is too slow without, is left at that. */
static bool run_unless_slow(struct evaluator *evaluator, struct trial *trial,
	const struct short_list *list, struct arena *kept, struct error *error)
{
	const struct prediction *prediction = &trial->simulation.prediction;
	struct trial without = *trial;
	bool enough, settled;
	without.options.memory = MEMORY_UNLIMITED;
	without.options.slow = 0;
	if (!run_list(evaluator, &without, list, 0, &enough, &settled, error))
		return false;
	take_list(&without.simulation, enough, kept, &trial->simulation);
	if (prediction->fits == FITS_NO || prediction->step_time > trial->options.slow)
		return true;
	return prediction->fits == FITS_YES
		       ? find_step(evaluator, trial, list, enough, settled, error)
		       : run_steady(evaluator, trial, list, kept, error);
}

/* For a pipeline `schedule` stays empty. */
static bool run(struct evaluator *evaluator, struct trial *trial, struct error *error)
{
	struct short_list list;
	struct arena kept = {0};
	evaluator->evaluated++;
	if (!steady_of(trial->plan, 0, &list))
		return run_once(evaluator, trial, error);
	bool unless_slow = trial->options.slow > 0 && trial->options.memory == MEMORY_FIGURES;
	bool ok =
		(unless_slow ? run_unless_slow : run_steady)(evaluator, trial, &list, &kept, error);
	trial->simulation.classes = NULL;
	if (ok)
		keep_strings(&trial->simulation.prediction, &evaluator->scratch);
	arena_finish(&kept);
	return ok;
}

bool evaluator_run_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, struct prediction *prediction, struct error *error)
{
	struct trial trial = {.topology = topology, .plan = plan, .options = sketch(evaluator)};
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	return true;
}

/* Of a pipeline, the rank with the most parameters, and those with the most micro-batches in
 * flight: the first has the embedding, and often fewer blocks for it than the second. */
enum { FULLEST_STAGES = 3 };

static int find_fullest(
	struct evaluator *evaluator, const struct plan *plan, int stages[FULLEST_STAGES])
{
	int n = 0;
	stages[n++] = bounds_heaviest_stage(plan, model_of(evaluator, plan));
	for (int s = 1; s >= 0; s--)
		if (s != stages[0])
			stages[n++] = s;
	return n;
}

static const struct schedule *stage_of(
	struct evaluator *evaluator, const struct plan *plan, int stage)
{
	const struct plan filling = steady_filling(plan), *own = &filling;
	arena_reset(&evaluator->scratch);
	return schedule_emit_class(&evaluator->scratch, own, model_of(evaluator, own),
		evaluator->question->topology, stage);
}

static int64_t limit_of(const struct evaluator *evaluator)
{
	const struct question *question = evaluator->question;
	return device_limit(question->topology, question->memory_limit_bytes);
}

static int64_t bound_stage(struct evaluator *evaluator, const struct plan *plan, int stage)
{
	return bounds_memory(stage_of(evaluator, plan, stage), stage, &evaluator->scratch);
}

int64_t evaluator_bound_last(struct evaluator *evaluator, const struct plan *plan)
{
	return bound_stage(evaluator, plan, (int)plan->mesh.pipeline - 1);
}

int64_t evaluator_bound_memory(struct evaluator *evaluator, const struct plan *plan)
{
	struct arena *scratch = &evaluator->scratch;
	int stages[FULLEST_STAGES];
	int n = plan->mesh.pipeline > 1 ? find_fullest(evaluator, plan, stages) : 0;
	int64_t most = 0, limit = limit_of(evaluator);
	for (int i = 0; i < n && most <= limit; i++)
		most = max_i64(most, bound_stage(evaluator, plan, stages[i]));
	if (n > 0)
		return most;
	arena_reset(scratch);
	return bounds_memory(schedule_fold(scratch, plan, model_of(evaluator, plan),
				     evaluator->question->topology),
		0, scratch);
}

bool evaluator_stages_overflow(
	struct evaluator *evaluator, const struct plan *plan, int64_t enough, int64_t *held)
{
	const struct simulation_options options = sketch(evaluator);
	int stages[FULLEST_STAGES], n = find_fullest(evaluator, plan, stages);
	bool overflows = false;
	int64_t stage = 0, most = 0;
	for (int i = 0; i < n && (held != NULL ? most <= enough : !overflows); i++) {
		const struct schedule *schedule = stage_of(evaluator, plan, stages[i]);
		overflows = simulate_overflow(schedule, stages[i], &options, &evaluator->scratch,
				    held != NULL ? &stage : NULL) ||
			    overflows;
		most = max_i64(most, stage);
	}
	if (held != NULL)
		*held = most;
	return overflows;
}

struct bound evaluator_bound_path(struct evaluator *evaluator, const struct plan *plan)
{
	struct bound bound;
	arena_reset(&evaluator->scratch);
	bounds_path(plan, model_of(evaluator, plan), evaluator->question->topology, &bound,
		&evaluator->scratch);
	return bound;
}

double evaluator_bound_time(struct evaluator *evaluator, const struct plan *plan)
{
	return evaluator_bound_path(evaluator, plan).time;
}

bool evaluator_run_unless_slow(struct evaluator *evaluator, const struct plan *plan, double slow,
	struct prediction *prediction, struct error *error)
{
	struct trial trial = {.topology = evaluator->question->topology,
		.plan = plan,
		.options = sketch(evaluator)};
	trial.options.slow = slow;
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	evaluator->evaluated -= slow > 0 && prediction->step_time > slow;
	return true;
}

bool evaluator_run_time(struct evaluator *evaluator, const struct plan *plan, double *step_time,
	int64_t *memory, struct error *error)
{
	struct trial trial = {.topology = evaluator->question->topology,
		.plan = plan,
		.options = sketch(evaluator)};
	trial.options.memory = MEMORY_IGNORED;
	if (!run(evaluator, &trial, error))
		return false;
	*step_time = trial.simulation.prediction.step_time;
	*memory = bounds_memory(trial.schedule, 0, &evaluator->scratch);
	evaluator->evaluated--;
	return true;
}

bool evaluator_run(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	return evaluator_run_unless_slow(evaluator, plan, 0, prediction, error);
}

static bool judge(struct evaluator *evaluator, struct trial *trial, enum memory_detail memory,
	double slow, struct prediction *prediction, struct error *error)
{
	trial->options.memory = memory;
	trial->options.slow = slow;
	if (!run(evaluator, trial, error))
		return false;
	*prediction = trial->simulation.prediction;
	return true;
}

bool evaluator_judge_on(struct evaluator *evaluator, const struct topology *topology,
	const struct plan *plan, double slow, struct prediction *prediction, struct error *error)
{
	struct trial trial = {.topology = topology, .plan = plan, .options = sketch(evaluator)};
	return judge(evaluator, &trial, MEMORY_FITS, slow, prediction, error);
}

bool evaluator_run_unlimited(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	struct trial trial = {.topology = evaluator->question->topology,
		.plan = plan,
		.options = sketch(evaluator)};
	return judge(evaluator, &trial, MEMORY_UNLIMITED, 0, prediction, error);
}

bool evaluator_judge(struct evaluator *evaluator, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	return evaluator_judge_on(
		evaluator, evaluator->question->topology, plan, 0, prediction, error);
}

static bool run_closely(struct evaluator *evaluator, const struct plan *plan,
	enum memory_detail memory, struct arena *arena, struct prediction *prediction,
	struct exposure *exposure, struct error *error)
{
	struct trial trial = {.topology = evaluator->question->topology,
		.plan = plan,
		.options = {.memory_limit_bytes = evaluator->question->memory_limit_bytes,
			.quick_interval = plan->mesh.pipeline > 1,
			.exposure = true,
			.memory = memory},
		.closely = true};
	if (!run(evaluator, &trial, error))
		return false;
	*prediction = trial.simulation.prediction;
	keep_strings(prediction, arena);
	*exposure = exposure_of(&trial.simulation);
	return true;
}

bool evaluator_run_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error)
{
	return run_closely(evaluator, plan, MEMORY_FIGURES, arena, prediction, exposure, error);
}

bool evaluator_judge_closely(struct evaluator *evaluator, const struct plan *plan,
	struct arena *arena, struct prediction *prediction, struct exposure *exposure,
	struct error *error)
{
	return run_closely(evaluator, plan, MEMORY_FITS, arena, prediction, exposure, error);
}

void evaluator_interval(struct evaluator *evaluator, const struct plan *plan, struct arena *arena,
	struct prediction *prediction)
{
	const struct simulation_options options = {0};
	struct short_list list;
	struct trial trial = {.topology = evaluator->question->topology, .plan = plan};
	if (plan->mesh.pipeline == 1)
		return;
	if (steady_of(plan, 0, &list))
		trial.list = &list;
	arena_reset(&evaluator->scratch);
	simulate_interval(schedule_of(evaluator, &trial), &options, arena, prediction);
}

const char *evaluator_digest(
	struct evaluator *evaluator, const struct plan *plan, struct arena *arena)
{
	struct arena *scratch = &evaluator->scratch;
	arena_reset(scratch);
	const struct schedule *schedule = schedule_fold_printable(
		scratch, plan, model_of(evaluator, plan), evaluator->question->topology);
	return arena_strdup(arena, schedule_digest(schedule).hex);
}

void evaluator_release(struct evaluator *evaluator)
{
	arena_finish(&evaluator->scratch);
	arena_finish(&evaluator->simulating);
}

void evaluator_finish(struct evaluator *evaluator)
{
	divided_models_finish(&evaluator->divided);
	evaluator_release(evaluator);
}
