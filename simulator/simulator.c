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
	timeline->step_time =
		engine->supply != NULL ? engine_last_step(engine) : engine_step_time(engine);
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

static void open_engine(const struct run *run, int class, struct engine *engine)
{
	const struct engine_options options = engine_options_of(run->options);

	engine_init(engine, run->schedule, class, &options, run->scratch);
}

/* What the step takes longer than it would if a batch were always ready. */
static double waited_for_data(const struct run *run, int class, const struct engine *engine)
{
	struct engine ready;
	struct error error = {0};

	if (engine->batch_interval <= 0)
		return 0;
	open_engine(run, class, &ready);
	ready.batch_interval = 0;
	if (!engine_run(&ready, &error))
		return 0;
	double step = engine_step_time(engine);
	double longer = step - (ready.finished[ready.n_steps - 1] - engine_step_begin(&ready));
	return longer > 1e-9 * step ? longer : 0; /* less is rounding */
}

/* One run of the engine and what watches it. */
struct attempt {
	struct engine engine;
	struct meter meter;
	struct exposure_meter exposure;
	struct ledger ledger;
	struct shortage *shortage; /* NULL: of one without a limit */
};

static bool measures(const struct run *run)
{
	return run->options->memory != MEMORY_IGNORED;
}

/* `room`: bytes that the allocator may hold; 0: any. */
static bool attempt(const struct run *run, int class, int64_t room, struct simulation *simulation,
	struct attempt *attempt, struct error *error)
{
	struct engine *engine = &attempt->engine;

	*attempt = (struct attempt){.shortage = NULL};
	*simulation = (struct simulation){0};
	open_engine(run, class, engine);
	if (room > 0)
		attempt->shortage = memory_shortage(engine, room, run->scratch);
	if (run->details || room > 0 || (measures(run) && memory_defers_frees(run->schedule)))
		engine_record(engine, run->details);
	if (measures(run))
		meter_init(&attempt->meter, engine, run->details ? &simulation->memory : NULL,
			run->details ? run->arena : run->scratch);
	if (run->options->exposure)
		exposure_init(&attempt->exposure, engine);
	if (!engine_run(engine, error))
		return false;
	if (measures(run))
		meter_finish(&attempt->meter);
	if (run->options->exposure)
		simulation->exposed = exposure_finish(&attempt->exposure);
	return true;
}

static void read_off(const struct run *run, int class, struct attempt *attempt,
	const struct prediction *unlimited, struct simulation *simulation)
{
	const struct engine *engine = &attempt->engine;
	const struct simulation_options wanted = options_for(run->options, engine);

	if (!wanted.no_bounds || run->details)
		schedule_ledger(run->schedule, class, run->scratch, &attempt->ledger);
	const struct finished finished = {.engine = engine,
		.peaks = &attempt->meter.peaks,
		.ledger = &attempt->ledger,
		.waited = unlimited != NULL ? unlimited->time.data_wait
					    : waited_for_data(run, class, engine),
		.unlimited = unlimited,
		.retries = attempt->shortage != NULL ? memory_retries(attempt->shortage) : 0};
	predict(&finished, &wanted, run->scratch, run->arena, &simulation->prediction);
	if (!run->details)
		return;
	fill_timeline(engine, &attempt->ledger, run->arena, &simulation->timeline);
	critical_path(engine, run->arena, &simulation->critical);
}

/* What is uncertain about a step is so by the same factor where the allocator makes it longer. */
static void stretch_interval(const struct prediction *unlimited, struct prediction *p)
{
	double factor = p->step_time / unlimited->step_time;

	p->step_time_low = unlimited->step_time_low * factor;
	p->step_time_high = unlimited->step_time_high * factor;
	p->step_time_p95 = unlimited->step_time_p95 * factor;
	p->step_time_best = unlimited->step_time_best * factor;
	p->uncertainty_source = unlimited->uncertainty_source;
}

/* The allocator reaches its limit: again, with one that has it. */
static bool run_short(
	const struct run *run, int class, struct simulation *simulation, struct error *error)
{
	const struct prediction unlimited = simulation->prediction;
	int64_t outside = unlimited.peak_memory_bytes - unlimited.peak_reserved_bytes;
	struct attempt again;
	struct simulation limited;

	if (!attempt(run, class, unlimited.memory_limit_bytes - outside, &limited, &again, error))
		return false;
	if (again.engine.starved) {
		simulation->prediction.fits = FITS_NO;
		return true;
	}
	limited.exposed = simulation->exposed; /* what the retries expose is theirs */
	*simulation = limited;
	read_off(run, class, &again, &unlimited, simulation);
	stretch_interval(&unlimited, &simulation->prediction);
	return true;
}

static bool simulate_class(
	const struct run *run, int class, struct simulation *simulation, struct error *error)
{
	struct attempt first;

	if (!attempt(run, class, 0, simulation, &first, error))
		return false;
	read_off(run, class, &first, NULL, simulation);
	interval(run->schedule, class, run->options, run->arena, &simulation->prediction);
	if (simulation->prediction.fits != FITS_TIGHT || run->options->memory == MEMORY_FITS)
		return true;
	return run_short(run, class, simulation, error);
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
