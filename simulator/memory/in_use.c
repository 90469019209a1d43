/* Memory in time order: a block is in use from the start of the operation that takes it to the end
 * of the one that gives it. Blocks of one stream follow one another as its operations do; how far
 * streams overlap is what the list order of the ledger cannot know. */
#include <string.h>

#include "schedule/documents/documents.h"
#include "simulator/memory/memory.h"

struct meter {
	const struct engine *engine;
	struct memory_peaks *peaks;
	struct memory_curve *curve; /* NULL: not wanted */
	double origin;              /* the curve's time 0 */
	int *held;                  /* by buffer: takes minus gives */
	int64_t live[CATEGORY_COUNT], total;
	int64_t host; /* of the host's pool */
};

static void change(struct meter *meter, int index, int sign)
{
	const struct buffer *buffer = &meter->engine->program->buffers[index];
	int64_t bytes = sign * buffer->bytes;

	meter->held[index] += sign;
	if (buffer_in_host(buffer)) {
		meter->host += bytes;
		meter->peaks->host_peak_bytes = max_i64(meter->peaks->host_peak_bytes, meter->host);
		return;
	}
	meter->live[buffer_role_category(buffer->role)] += bytes;
	meter->total += bytes;
}

static void add_resident(struct meter *meter)
{
	const struct program *program = meter->engine->program;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			change(meter, i, 1);
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

static void on_start(struct meter *meter, int instance)
{
	const struct program *program = meter->engine->program;
	const struct op *op = &program->ops[instance % meter->engine->n_ops];
	const int *takes = slice_of(program, op->takes);

	if (op->takes.count == 0)
		return;
	for (int i = 0; i < op->takes.count; i++)
		change(meter, takes[i], 1);
	note_peaks(meter, instance % meter->engine->n_ops);
	plot(meter, meter->engine->start[instance]);
}

/* What the step before the first would have taken cannot be given. */
static void on_finish(struct meter *meter, int instance)
{
	const struct program *program = meter->engine->program;
	const struct op *op = &program->ops[instance % meter->engine->n_ops];
	const int *gives = slice_of(program, op->gives);

	if (op->gives.count == 0)
		return;
	for (int i = 0; i < op->gives.count; i++)
		if (meter->held[gives[i]] > 0)
			change(meter, gives[i], -1);
	plot(meter, meter->engine->end[instance]);
}

static void curve_init(struct meter *meter, struct arena *arena)
{
	int points = 2 * meter->engine->n_instances + 1;

	*meter->curve = (struct memory_curve){0};
	meter->curve->times = ARENA_ARRAY(arena, double, points);
	meter->curve->bytes = arena_alloc(arena, (size_t)points, sizeof(*meter->curve->bytes));
}

void memory_peaks(const struct engine *engine, struct arena *arena, struct memory_peaks *peaks,
	struct memory_curve *curve)
{
	struct meter meter = {.engine = engine, .peaks = peaks, .curve = curve};

	*peaks = (struct memory_peaks){.peak_op = -1};
	meter.origin = engine->finished[SIMULATED_STEPS - 2];
	meter.held = ARENA_ARRAY(arena, int, engine->program->n_buffers);
	if (curve != NULL)
		curve_init(&meter, arena);
	add_resident(&meter);
	note_peaks(&meter, 0);
	plot(&meter, 0);
	for (int i = 0; i < engine->n_log; i++) {
		if (engine->log[i] >= 0)
			on_start(&meter, engine->log[i]);
		else
			on_finish(&meter, ~engine->log[i]);
	}
}
