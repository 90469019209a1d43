/* simulate: engine, memory, prediction, and on request the details. */
#include "simulator/simulator.h"

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
	int first = instance_of(engine, SIMULATED_STEPS - 1, 0);
	double origin = engine->finished[SIMULATED_STEPS - 2];

	timeline_init(timeline, engine->n_ops, arena);
	timeline->step_time = engine_step_time(engine);
	for (int i = 0; i < engine->n_ops; i++) {
		struct span *span = &timeline->spans[i];

		span->start = engine->start[first + i] - origin;
		span->end = engine->end[first + i] - origin;
		span->issued = engine->issued[first + i] - origin;
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

/* What the step takes longer than it would if a batch were always ready. */
static double waited_for_data(const struct engine *engine, int class,
	const struct simulation_options *options, struct arena *scratch)
{
	enum { LAST = SIMULATED_STEPS - 1 };
	struct engine ready;
	struct error error = {0};

	if (engine->batch_interval <= 0)
		return 0;
	engine_init(&ready, engine->schedule, class, !options->no_contention,
		options->host_runs_ahead, scratch);
	ready.batch_interval = 0;
	if (!engine_run(&ready, &error))
		return 0;
	double step = engine_step_time(engine);
	double longer = step - (ready.finished[LAST] - ready.finished[LAST - 1]);
	return longer > 1e-9 * step ? longer : 0; /* less is rounding */
}

/* One class. `scratch` goes away afterwards, `arena` is the caller's. */
static bool simulate_class(const struct schedule *schedule, int class,
	const struct simulation_options *options, bool details, struct arena *scratch,
	struct arena *arena, struct simulation *simulation, struct error *error)
{
	struct engine engine;
	struct ledger ledger = {0};
	struct memory_peaks peaks;

	engine_init(&engine, schedule, class, !options->no_contention, options->host_runs_ahead,
		scratch);
	if (!engine_run(&engine, error))
		return false;
	*simulation = (struct simulation){0};
	const struct simulation_options wanted = options_for(options, &engine);
	if (!options->no_bounds || details)
		schedule_ledger(schedule, class, scratch, &ledger);
	if (wanted.memory != MEMORY_IGNORED)
		memory_peaks(&engine, details ? arena : scratch, &peaks,
			details ? &simulation->memory : NULL);
	predict(&engine, waited_for_data(&engine, class, options, scratch), &wanted, &peaks,
		&ledger, scratch, arena, &simulation->prediction);
	interval(schedule, class, options, scratch, arena, &simulation->prediction);
	if (details) {
		fill_timeline(&engine, &ledger, arena, &simulation->timeline);
		critical_path(&engine, arena, &simulation->critical);
	}
	return true;
}

/* Classes that do different things would have to be simulated together; as long as a schedule has
 * one, the slowest is that one. */
bool simulate(const struct schedule *schedule, const struct simulation_options *options,
	bool details, struct arena *arena, struct simulation *simulation, struct error *error)
{
	struct arena scratch;
	struct simulation one;
	bool ok = check(schedule, error);

	arena_init(&scratch);
	for (int class = 0; ok && class < schedule->n_classes; class ++) {
		ok = simulate_class(
			schedule, class, options, details, &scratch, arena, &one, error);
		if (ok &&
			(class == 0 || one.prediction.step_time > simulation->prediction.step_time))
			*simulation = one;
	}
	arena_finish(&scratch);
	if (ok && details)
		simulation->prediction.schedule_digest =
			arena_strdup(arena, schedule_digest(schedule).hex);
	return ok;
}
