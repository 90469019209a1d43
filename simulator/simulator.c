/* simulate: engine, memory, prediction, and on request the details. */
#include "simulator/simulator.h"

#include "schedule/memory/memory.h"
#include "simulator/devices/devices.h"
#include "simulator/results.h"

static bool check(const struct schedule *schedule, struct error *error)
{
	if (schedule->model == NULL || schedule->topology == NULL)
		return error_set(error, EXIT_CODE_INTERNAL,
			"cannot simulate a schedule without its model and topology (one that was "
			"read from text)");
	if (schedule->n_classes < 1 || schedule->programs[0].n_ops < 1)
		return error_set(
			error, EXIT_CODE_INTERNAL, "cannot simulate a schedule without operations");
	return true;
}

static double earlier(double a, double b)
{
	return a < b ? a : b;
}

/* Seconds from the start of the step. What the host issued ahead of it counts as there from its
 * beginning. */
static void fill_timeline(const struct engine *engine, const struct ledger *ledger,
	struct arena *arena, struct timeline *timeline)
{
	const struct record *record = engine->record;
	int first = (engine->n_steps - 1) * engine->n_ops;
	double origin = engine_step_begin(engine);

	timeline_init(timeline, engine->n_ops, arena);
	timeline->step_time = engine_step_time(engine);
	for (int i = 0; i < engine->n_ops; i++) {
		struct span *span = &timeline->spans[i];

		span->start = record->start[first + i] - origin;
		span->end = record->end[first + i] - origin;
		span->issued = record->issued[first + i] - origin;
		if (span->issued < 0)
			span->issued = earlier(0, span->start);
		for (int c = 0; c < CATEGORY_COUNT; c++)
			timeline->live[i][c] = ledger->live[i][c];
	}
}

static struct simulation_options options_for(
	const struct simulation_options *options, const struct engine *engine)
{
	struct simulation_options wanted = *options;
	double step = engine_step_time(engine);

	if (wanted.slow > 0 && step > wanted.slow)
		wanted.memory = MEMORY_IGNORED;
	return wanted;
}

/* What the classes have in common. `scratch` goes away afterwards, `arena` is the caller's. */
struct run {
	const struct schedule *schedule;
	const struct simulation_options *options;
	bool details;
	struct arena *scratch, *arena;
};

void open_engine(const struct schedule *schedule, int class,
	const struct simulation_options *options, struct arena *arena, struct engine *engine)
{
	double factor = schedule->topology->calibration.host_factor;

	const struct engine_options engine_options = engine_options_of(options);

	engine_init(engine, schedule, class, &engine_options, arena);
	for (int i = 0; i < engine->n_ops && factor > 0; i++) {
		engine->tasks[i].cost.host *= factor;
		engine->tasks[i].cost.host_before *= factor;
	}
}

/* What the step takes longer than it would if a batch were always ready. */
static double waited_for_data(const struct run *run, int class, const struct engine *engine)
{
	struct engine ready;
	struct error error = {0};

	if (engine->batch_interval <= 0)
		return 0;
	open_engine(run->schedule, class, run->options, run->scratch, &ready);
	ready.batch_interval = 0;
	if (!engine_run(&ready, &error))
		return 0;
	double step = engine_step_time(engine);
	double longer = step - (ready.finished[ready.n_steps - 1] - engine_step_begin(&ready));
	return longer > 1e-9 * step ? longer : 0; /* less is rounding */
}

static bool simulate_class(
	const struct run *run, int class, struct simulation *simulation, struct error *error)
{
	struct engine engine;
	struct ledger ledger = {0};
	struct meter meter;
	struct exposure_meter exposure;
	bool details = run->details, measures = run->options->memory != MEMORY_IGNORED;

	*simulation = (struct simulation){0};
	open_engine(run->schedule, class, run->options, run->scratch, &engine);
	if (details || (measures && memory_defers_frees(run->schedule)))
		engine_record(&engine, details);
	if (measures)
		meter_init(&meter, &engine, details ? &simulation->memory : NULL,
			details ? run->arena : run->scratch);
	if (run->options->exposure)
		exposure_init(&exposure, &engine);
	if (!engine_run(&engine, error))
		return false;
	if (measures)
		meter_finish(&meter);
	if (run->options->exposure)
		simulation->exposed = exposure_finish(&exposure);
	const struct simulation_options wanted = options_for(run->options, &engine);
	if (!wanted.no_bounds || details)
		schedule_ledger(run->schedule, class, run->scratch, &ledger);
	const struct finished finished = {
		&engine, &meter.peaks, &ledger, waited_for_data(run, class, &engine)};
	predict(&finished, &wanted, run->scratch, run->arena, &simulation->prediction);
	interval(run->schedule, class, run->options, run->arena, &simulation->prediction);
	if (details) {
		fill_timeline(&engine, &ledger, run->arena, &simulation->timeline);
		critical_path(&engine, run->arena, &simulation->critical);
	}
	return true;
}

/* Classes that do different things would have to be simulated together; as long as a schedule has
 * one, the slowest is that one. */
bool simulate(const struct schedule *schedule, const struct simulation_options *options,
	bool details, struct arena *arena, struct simulation *simulation, struct error *error)
{
	struct arena own = {0};
	struct arena *scratch = options->scratch != NULL ? options->scratch : &own;
	const struct run run = {schedule, options, details, scratch, arena};
	struct simulation one;
	bool ok = check(schedule, error);

	for (int class = 0; ok && class < schedule->n_classes; class ++) {
		ok = simulate_class(&run, class, &one, error);
		if (ok &&
			(class == 0 || one.prediction.step_time > simulation->prediction.step_time))
			*simulation = one;
	}
	arena_reset(scratch);
	arena_finish(&own);
	if (ok && details)
		simulation->prediction.schedule_digest =
			arena_strdup(arena, schedule_digest(schedule).hex);
	return ok;
}

void state_rates(struct topology *topology)
{
	machine_state_rates(topology);
}
