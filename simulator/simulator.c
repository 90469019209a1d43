/* simulate(): runs engine and memory, makes the prediction, and on request the details. */
#include "simulator/simulator.h"

#include <math.h>

#include "schedule/memory/memory.h"
#include "simulator/devices/devices.h"
#include "simulator/results.h"

static bool check(const struct schedule *schedule, struct error *error)
{
	if (schedule->model == NULL || schedule->topology == NULL)
		return error_set(error, EXIT_CODE_INTERNAL,
			"cannot simulate a schedule without its model and topology "
			"(one that was read from text)");
	for (int c = 0; c < schedule->n_classes || c == 0; c++)
		if (schedule->n_classes < 1 || schedule->programs[c].n_ops < 1)
			return error_set(error, EXIT_CODE_INTERNAL,
				"cannot simulate a schedule without operations");
	return true;
}

static double earlier(double a, double b)
{
	return a < b ? a : b;
}

/* Fills the timeline in seconds from the start of the step. Operations that the host issued ahead
 * of it count as issued at its start. */
static void fill_timeline(const struct engines *engines, const struct engine *engine,
	const struct ledger *ledger, struct arena *arena, struct timeline *timeline)
{
	const struct record *record = engine->record;
	int first = (engine->n_steps - 1) * engine->n_ops;
	double origin = engine_step_begin(engine);

	if (ledger != NULL)
		timeline_init(timeline, engine->n_ops, arena);
	else
		*timeline = (struct timeline){.n_ops = engine->n_ops,
			.spans = ARENA_ARRAY(arena, struct span, engine->n_ops)};
	for (int c = 0; c < engines->n; c++)
		timeline->begins =
			fmin(timeline->begins, origin - engine_step_begin(&engines->of[c]));
	timeline->step_time =
		engine->n_counted > 1 ? engines_last_step(engines) : engines_step_time(engines);
	for (int i = 0; i < engine->n_ops; i++) {
		struct span *span = &timeline->spans[i];

		span->start = record->start[first + i] - origin;
		span->end = record->end[first + i] - origin;
		span->issued = record->issued[first + i] - origin;
		if (span->issued < 0)
			span->issued = earlier(0, span->start);
		for (int c = 0; c < CATEGORY_COUNT && ledger != NULL; c++)
			timeline->live[i][c] = ledger->live[i][c];
	}
}

static struct simulation_options options_for(const struct simulation_options *options, double step)
{
	struct simulation_options wanted = *options;

	if (wanted.slow > 0 && step > wanted.slow)
		wanted.memory = MEMORY_IGNORED;
	return wanted;
}

/* Shared by all classes. `scratch` is freed afterwards, `arena` is the caller's. */
struct run {
	const struct schedule *schedule;
	const struct simulation_options *options;
	bool details;
	struct arena *scratch, *arena;
};

static void open_engines(const struct run *run, struct engines *engines)
{
	const struct engine_options options = engine_options_of(run->options);

	engines_init(engines, run->schedule, &options, run->scratch);
}

/* The time by which the step is longer than if every batch were ready. */
static double waited_for_data(const struct run *run, const struct engines *engines)
{
	struct engines ready;
	struct error error = {0};

	if (engines->of[0].batch_interval <= 0)
		return 0;
	open_engines(run, &ready);
	for (int c = 0; c < ready.n; c++)
		ready.of[c].batch_interval = 0;
	if (!engines_run(&ready, &error))
		return 0;
	double step = engines_step_time(engines);
	double longer = step - engines_last_step(&ready);
	return longer > 1e-9 * step ? longer : 0; /* a smaller difference is rounding */
}

/* The meters of the engine of one class. */
struct watch {
	struct meter meter;
	struct exposure_meter exposure;
	struct ledger ledger;
	struct shortage *shortage; /* NULL: the class has no limit */
};

/* One run of all classes. */
struct attempt {
	struct engines engines;
	struct watch *watches;
};

static bool measures(const struct run *run)
{
	return run->options->memory != MEMORY_IGNORED;
}

/* `room`: bytes that the allocator may hold; 0: unlimited. */
static void watch_class(const struct run *run, struct engine *engine, int64_t room,
	struct watch *watch, struct simulation *simulation)
{
	*watch = (struct watch){.shortage = NULL};
	*simulation = (struct simulation){0};
	if (room > 0)
		watch->shortage = memory_shortage(engine, room, run->scratch);
	bool spans = run->details || run->options->spans;
	if (spans || room > 0 || (measures(run) && memory_defers_frees(run->schedule)))
		engine_record(engine, spans);
	if (measures(run))
		meter_init(&watch->meter, engine, run->details ? &simulation->memory : NULL,
			run->details ? run->arena : run->scratch);
	if (run->options->exposure)
		exposure_init(&watch->exposure, engine);
}

/* `rooms`, `simulations`: one for each class; `rooms` NULL: no class is short of memory. */
static bool attempt(const struct run *run, const int64_t *rooms, struct simulation *simulations,
	struct attempt *attempt, struct error *error)
{
	struct engines *engines = &attempt->engines;

	open_engines(run, engines);
	attempt->watches = ARENA_ARRAY(run->scratch, struct watch, engines->n);
	for (int c = 0; c < engines->n && rooms != NULL; c++)
		engine_supply(&engines->of[c], NULL);
	for (int c = 0; c < engines->n; c++)
		watch_class(run, &engines->of[c], rooms != NULL ? rooms[c] : 0,
			&attempt->watches[c], &simulations[c]);
	if (!engines_run(engines, error))
		return false;
	for (int c = 0; c < engines->n; c++) {
		if (measures(run))
			meter_finish(&attempt->watches[c].meter);
		if (run->options->exposure)
			simulations[c].exposed = exposure_finish(&attempt->watches[c].exposure);
	}
	return true;
}

/* The class whose buffers need the most memory. */
static int heaviest(const struct run *run, const struct attempt *attempt)
{
	int most = 0;

	for (int c = 1; c < run->schedule->n_classes && measures(run); c++)
		if (attempt->watches[c].meter.peaks.peak_bytes >
			attempt->watches[most].meter.peaks.peak_bytes)
			most = c;
	return most;
}

static void read_off(const struct run *run, int class, const struct common *common, double waited,
	struct attempt *attempt, const struct prediction *unlimited, struct simulation *simulation)
{
	const struct engines *engines = &attempt->engines;
	const struct engine *engine = &engines->of[class];
	struct watch *watch = &attempt->watches[class];
	const struct simulation_options wanted =
		options_for(run->options, engines_step_time(engines));

	if (!wanted.no_bounds || run->details)
		schedule_ledger(
			run->schedule, class, run->details ? run->scratch : NULL, &watch->ledger);
	struct finished finished = {.engines = engines,
		.common = common,
		.engine = engine,
		.peaks = &watch->meter.peaks,
		.ledger = &watch->ledger,
		.waited = waited,
		.unlimited = unlimited,
		.is_light = wanted.quick_interval && class != heaviest(run, attempt),
		.retries = watch->shortage != NULL ? memory_retries(watch->shortage) : 0};
	if (watch->shortage != NULL)
		finished.held = memory_held(watch->shortage);
	predict(&finished, &wanted, run->scratch, run->arena, &simulation->prediction);
	simulation->more_rounds = engines->more_rounds;
	simulation->pacemaker = engines->pacemaker;
	if (!run->details && !run->options->spans)
		return;
	fill_timeline(engines, engine, run->details ? &watch->ledger : NULL, run->arena,
		&simulation->timeline);
	if (!run->details)
		return;
	critical_path(engine, run->arena, &simulation->critical);
}

/* The interval keeps its relative width where the allocator makes the step longer. */
static void stretch_interval(const struct prediction *unlimited, struct prediction *p)
{
	double factor = p->step_time / unlimited->step_time;

	p->step_time_low = unlimited->step_time_low * factor;
	p->step_time_high = unlimited->step_time_high * factor;
	p->step_time_p95 = unlimited->step_time_p95 * factor;
	p->step_time_best = unlimited->step_time_best * factor;
	p->uncertainty_source = unlimited->uncertainty_source;
	p->host_decides = unlimited->host_decides;
}

static bool any_starved(const struct engines *engines)
{
	for (int c = 0; c < engines->n; c++)
		if (engines->of[c].starved)
			return true;
	return false;
}

/* Simulates again with limits for the classes whose allocators reach them. The figures without
 * limits are those of each class. */
static bool run_short(const struct run *run, struct simulation *simulations, struct error *error)
{
	int n = run->schedule->n_classes;
	int64_t *rooms = ARENA_ARRAY(run->scratch, int64_t, n);
	struct simulation *limited = ARENA_ARRAY(run->scratch, struct simulation, n);
	struct attempt again;

	for (int c = 0; c < n; c++) {
		const struct prediction *p = &simulations[c].prediction;
		int64_t outside = p->peak_memory_bytes - p->peak_reserved_bytes;

		if (p->fits == FITS_TIGHT)
			rooms[c] = p->memory_limit_bytes - outside;
	}
	if (!attempt(run, rooms, limited, &again, error))
		return false;
	const struct common common = common_of(&again.engines, run->options);
	for (int c = 0; c < n; c++) {
		struct simulation *simulation = &simulations[c];
		const struct prediction unlimited = simulation->prediction;

		if (any_starved(&again.engines)) {
			if (again.engines.of[c].starved)
				simulation->prediction.fits = FITS_NO;
			continue;
		}
		limited[c].exposed = simulation->exposed; /* retries do not change it */
		read_off(run, c, &common, unlimited.time.data_wait, &again,
			rooms[c] > 0 ? &unlimited : NULL, &limited[c]);
		stretch_interval(&unlimited, &limited[c].prediction);
		*simulation = limited[c];
	}
	return true;
}

/* The interval is the same for all classes. */
static void share_interval(const struct prediction *from, struct prediction *to)
{
	to->step_time_low = from->step_time_low;
	to->step_time_high = from->step_time_high;
	to->step_time_p95 = from->step_time_p95;
	to->step_time_best = from->step_time_best;
	to->uncertainty_source = from->uncertainty_source;
	to->host_decides = from->host_decides;
}

static bool simulate_all(const struct run *run, struct simulation *simulations, struct error *error)
{
	int n = run->schedule->n_classes;
	struct attempt first;
	bool tight = false, fits = true;

	if (!attempt(run, NULL, simulations, &first, error))
		return false;
	double waited = waited_for_data(run, &first.engines);
	const struct common common = common_of(&first.engines, run->options);
	for (int c = 0; c < n; c++) {
		read_off(run, c, &common, waited, &first, NULL, &simulations[c]);
		tight = tight || simulations[c].prediction.fits == FITS_TIGHT;
		fits = fits && simulations[c].prediction.fits != FITS_NO;
	}
	simulate_interval(run->schedule, run->options, run->arena, &simulations[0].prediction);
	for (int c = 1; c < n; c++)
		share_interval(&simulations[0].prediction, &simulations[c].prediction);
	return !tight || !fits || run->options->memory != MEMORY_FIGURES ||
	       run_short(run, simulations, error);
}

static bool is_worse(const struct prediction *a, const struct prediction *b)
{
	if (a->fits != b->fits)
		return a->fits > b->fits;
	if (prediction_wanted_bytes(a) != prediction_wanted_bytes(b))
		return prediction_wanted_bytes(a) > prediction_wanted_bytes(b);
	return a->peak_allocated_bytes > b->peak_allocated_bytes;
}

/* Makes the prediction of the worst class that of the plan. */
static void tell_worst(
	const struct run *run, struct simulation *simulations, struct simulation *simulation)
{
	int n = run->schedule->n_classes, worst = 0;
	struct class_figures *figures;

	for (int c = 1; c < n; c++)
		if (is_worse(&simulations[c].prediction, &simulations[worst].prediction))
			worst = c;
	*simulation = simulations[worst];
	if (n == 1)
		return;
	figures = ARENA_ARRAY(run->arena, struct class_figures, n);
	for (int c = 0; c < n; c++) {
		const struct prediction *p = &simulations[c].prediction;

		figures[c] = (struct class_figures){arena_printf(run->arena, "stage %d", c),
			p->step_time, p->peak_memory_bytes, p->time.bubble,
			prediction_wanted_bytes(p)};
	}
	simulation->classes = simulations;
	simulation->prediction.n_classes = n;
	simulation->prediction.rank_class = worst;
	simulation->prediction.classes = figures;
}

bool simulate(const struct schedule *schedule, const struct simulation_options *options,
	bool details, struct arena *arena, struct simulation *simulation, struct error *error)
{
	struct arena own = {0};
	struct arena *scratch = options->scratch != NULL ? options->scratch : &own;
	const struct run run = {schedule, options, details, scratch, arena};
	struct simulation *simulations;
	bool ok = check(schedule, error);

	if (ok) {
		simulations = schedule->n_classes > 1
				      ? ARENA_ARRAY(arena, struct simulation, schedule->n_classes)
				      : simulation;
		ok = simulate_all(&run, simulations, error);
		if (ok)
			tell_worst(&run, simulations, simulation);
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
