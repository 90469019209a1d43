/* Physical memory in time order. A block counts from its issue until it is reusable: for a give on
 * the stream of the block's own pool that is the give's issue (stream-ordered reuse), on another
 * stream it is when that stream has passed (rule 5 of docs/schedule.md). */
#include <string.h>

#include "simulator/engine.h"

struct meter {
	const struct engine *engine;
	struct memory_peaks *peaks;
	struct memory_curve *curve; /* NULL: not wanted */
	double origin;              /* the curve's time 0 */
	int *held;                  /* by buffer: takes minus gives */
	int64_t live[CATEGORY_COUNT], total;
	int64_t pool[STREAM_COUNT], pool_peak[STREAM_COUNT];
};

static void change(struct meter *meter, int index, int sign)
{
	const struct buffer *buffer = &meter->engine->program->buffers[index];
	int64_t bytes = sign * buffer->bytes;
	int64_t *pool = &meter->pool[buffer->pool];

	meter->live[buffer_role_category(buffer->role)] += bytes;
	meter->total += bytes;
	*pool += bytes;
	meter->pool_peak[buffer->pool] = max_i64(meter->pool_peak[buffer->pool], *pool);
}

static void add_resident(struct meter *meter)
{
	const struct program *program = meter->engine->program;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			change(meter, i, 1);
}

static void take(struct meter *meter, int op)
{
	const struct program *program = meter->engine->program;
	const int *takes = slice_of(program, program->ops[op].takes);

	for (int i = 0; i < program->ops[op].takes.count; i++) {
		meter->held[takes[i]]++;
		change(meter, takes[i], 1);
	}
}

/* The gives that become effective when `op` is issued (own pool) or has finished (others). What the
 * step before the first would have taken cannot be given. */
static void give(struct meter *meter, int op, bool issued)
{
	const struct program *program = meter->engine->program;
	const int *gives = slice_of(program, program->ops[op].gives);

	for (int i = 0; i < program->ops[op].gives.count; i++) {
		bool own = program->buffers[gives[i]].pool == program->ops[op].stream;

		if (own != issued || meter->held[gives[i]] == 0)
			continue;
		meter->held[gives[i]]--;
		change(meter, gives[i], -1);
	}
}

static void note_peaks(struct meter *meter, int op)
{
	struct memory_peaks *peaks = meter->peaks;

	for (int c = 0; c < CATEGORY_COUNT; c++)
		peaks->category_peak[c] = max_i64(peaks->category_peak[c], meter->live[c]);
	if (meter->total <= peaks->peak_bytes)
		return;
	peaks->peak_bytes = meter->total;
	peaks->peak_op = op;
	memcpy(peaks->at_peak, meter->live, sizeof(peaks->at_peak));
}

/* Whatever happened before the step becomes its first point. */
static void plot(struct meter *meter, double time)
{
	struct memory_curve *curve = meter->curve;

	if (curve == NULL)
		return;
	time = time > meter->origin ? time - meter->origin : 0;
	if (time <= 0)
		curve->n = 0;
	curve->times[curve->n] = time;
	memcpy(curve->bytes[curve->n++], meter->live, sizeof(meter->live));
}

static bool gives_to_others(const struct program *program, const struct op *op)
{
	const int *gives = slice_of(program, op->gives);

	for (int i = 0; i < op->gives.count; i++)
		if (program->buffers[gives[i]].pool != op->stream)
			return true;
	return false;
}

static void on_issue(struct meter *meter, int instance)
{
	const struct engine *engine = meter->engine;
	int op = instance % engine->n_ops;
	const struct op *o = &engine->program->ops[op];
	double time = engine->issued[instance];

	if (o->takes.count == 0 && o->gives.count == 0)
		return;
	take(meter, op);
	note_peaks(meter, op);
	if (o->takes.count > 0)
		plot(meter, time);
	give(meter, op, true);
	if (o->gives.count > 0)
		plot(meter, time);
}

static void on_finish(struct meter *meter, int instance)
{
	const struct engine *engine = meter->engine;
	int op = instance % engine->n_ops;

	if (!gives_to_others(engine->program, &engine->program->ops[op]))
		return;
	give(meter, op, false);
	plot(meter, engine->end[instance]);
}

static void curve_init(struct meter *meter, struct arena *arena)
{
	int points = 3 * meter->engine->n_ops + 1;

	/* Issues and finishes of the last step, and the run-ahead of the steps before. */
	*meter->curve = (struct memory_curve){0};
	meter->curve->times = ARENA_ARRAY(arena, double, 3 * points);
	meter->curve->bytes =
		arena_alloc(arena, (size_t)(3 * points), sizeof(*meter->curve->bytes));
}

void memory_peaks(const struct engine *engine, struct arena *arena, struct memory_peaks *peaks,
	struct memory_curve *curve)
{
	struct meter meter = {.engine = engine, .peaks = peaks, .curve = curve};
	int issued = 0, finished = 0;

	*peaks = (struct memory_peaks){.peak_op = -1};
	meter.origin = engine->finished[SIMULATED_STEPS - 2];
	meter.held = ARENA_ARRAY(arena, int, engine->program->n_buffers);
	if (curve != NULL)
		curve_init(&meter, arena);
	add_resident(&meter);
	note_peaks(&meter, 0);
	plot(&meter, 0);
	/* Both sequences ascend. What has finished is reusable for whoever is issued then. */
	while (issued < engine->n_instances || finished < engine->n_completed) {
		int next = finished < engine->n_completed ? engine->completed[finished] : -1;

		if (next >= 0 && next < issued &&
			(issued == engine->n_instances ||
				engine->end[next] <= engine->issued[issued])) {
			on_finish(&meter, next);
			finished++;
		} else {
			on_issue(&meter, issued++);
		}
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		peaks->pool_peaks += meter.pool_peak[s];
}
