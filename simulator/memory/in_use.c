/* Bytes in use at the same time: buffers live from the start of the operation that takes them to
 * the end of the one that gives them back. Unlike the ledger, which follows list order, this knows
 * how streams overlap. */
#include <string.h>

#include "simulator/memory/memory.h"

static int64_t sum(const int64_t *live)
{
	int64_t total = 0;

	for (int c = 0; c < CATEGORY_COUNT; c++)
		total += live[c];
	return total;
}

static void change(struct meter *meter, int index, int64_t times)
{
	const struct buffer *buffer = &meter->engine->program->buffers[index];
	int64_t bytes = times * buffer->bytes;

	if (buffer_in_host(buffer)) {
		meter->live.host += bytes;
		meter->peaks.host_peak_bytes =
			max_i64(meter->peaks.host_peak_bytes, meter->live.host);
		return;
	}
	meter->live.device[buffer_role_category(buffer->role)] += bytes;
	meter->live.total += bytes;
}

/* Adds what the step before has taken and this one gives back. */
static void find_carried(const struct program *program, bool *carried, struct arena *arena)
{
	bool *taken = ARENA_ARRAY(arena, bool, program->n_buffers);

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const int *takes = slice_of(program, op->takes);
		const int *gives = slice_of(program, op->gives);

		for (int t = 0; t < op->takes.count; t++)
			taken[takes[t]] = true;
		for (int g = 0; g < op->gives.count; g++)
			carried[gives[g]] = carried[gives[g]] || !taken[gives[g]];
	}
}

static void add_what_is_there(struct meter *meter, struct arena *arena)
{
	const struct program *program = meter->engine->program;
	bool *carried = ARENA_ARRAY(arena, bool, program->n_buffers);

	find_carried(program, carried, arena);
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident || carried[i])
			change(meter, i, buffer_times(&program->buffers[i]));
}

/* The optimizer's state counts from the beginning. Where memory is short, the first step has more
 * room without it. */
static bool has_states(const struct meter *meter, const struct cursor *at)
{
	return meter->engine->supply == NULL || at == NULL || at->step > 0;
}

static void note_peaks(struct meter *meter, int op, const struct cursor *at)
{
	struct memory_peaks *peaks = &meter->peaks;

	if (!has_states(meter, at))
		return;
	for (int c = 0; c < CATEGORY_COUNT; c++)
		peaks->category_peak[c] = max_i64(peaks->category_peak[c], meter->live.device[c]);
	if (meter->live.total <= peaks->peak_bytes)
		return;
	peaks->peak_bytes = meter->live.total;
	peaks->peak_op = op;
	peaks->peak_at = at != NULL ? *at : (struct cursor){0};
	memcpy(peaks->at_peak, meter->live.device, sizeof(peaks->at_peak));
}

/* All that happens at the beginning becomes the first point. */
static void plot(struct meter *meter, double time)
{
	struct memory_curve *curve = meter->curve;

	if (curve == NULL)
		return;
	if (time <= 0)
		curve->n = 0;
	curve->times[curve->n] = time;
	memcpy(curve->bytes[curve->n++], meter->live.device, sizeof(meter->live.device));
}

static void on_start(void *self, int index, const struct cursor *at)
{
	struct meter *meter = self;
	const struct program *program = meter->engine->program;
	const struct op *op = &program->ops[index];
	const int *takes = slice_of(program, op->takes);

	if (op->takes.count == 0)
		return;
	for (int i = 0; i < op->takes.count; i++)
		change(meter, takes[i], buffers_at_once(meter->engine->program, op, takes[i]));
	note_peaks(meter, index, at);
	plot(meter, meter->engine->now);
}

static void on_end(void *self, int index)
{
	struct meter *meter = self;
	const struct program *program = meter->engine->program;
	const struct op *op = &program->ops[index];
	const int *gives = slice_of(program, op->gives);

	if (op->gives.count == 0)
		return;
	for (int i = 0; i < op->gives.count; i++)
		change(meter, gives[i], -buffers_at_once(meter->engine->program, op, gives[i]));
	plot(meter, meter->engine->now);
}

static void on_mark(void *self, int depth)
{
	struct meter *meter = self;

	meter->before[depth] = meter->marked[depth];
	meter->marked[depth] = meter->live;
}

/* The bytes in use change equally in every period, so their peak is in the first or in the last
 * one, and these two are simulated. */
static void on_repeat(void *self, int depth, int times)
{
	struct meter *meter = self;
	const struct in_use *before = &meter->before[depth];

	for (int c = 0; c < CATEGORY_COUNT; c++)
		meter->live.device[c] += times * (meter->live.device[c] - before->device[c]);
	meter->live.host += times * (meter->live.host - before->host);
	meter->live.total = sum(meter->live.device);
}

static void init_curve(struct meter *meter, struct arena *arena)
{
	int points = 2 * meter->engine->n_steps * meter->engine->n_carried_out + 1;

	*meter->curve = (struct memory_curve){0};
	meter->curve->times = ARENA_ARRAY(arena, double, points);
	meter->curve->bytes = arena_alloc(arena, (size_t)points, sizeof(*meter->curve->bytes));
}

void meter_init(
	struct meter *meter, struct engine *engine, struct memory_curve *curve, struct arena *arena)
{
	*meter = (struct meter){.engine = engine,
		.curve = curve,
		.peaks.peak_op = -1,
		.observer = {meter, on_start, on_end, on_mark, on_repeat}};
	if (curve != NULL)
		init_curve(meter, arena);
	add_what_is_there(meter, arena);
	note_peaks(meter, 0, NULL);
	plot(meter, 0);
	engine->observer = &meter->observer;
}

/* Whatever happened before the last step becomes its first point. */
void meter_finish(struct meter *meter)
{
	struct memory_curve *curve = meter->curve;
	double origin = engine_step_begin(meter->engine);
	int n = 0;

	for (int i = 0; curve != NULL && i < curve->n; i++) {
		double time = curve->times[i] > origin ? curve->times[i] - origin : 0;

		if (time <= 0)
			n = 0;
		curve->times[n] = time;
		memmove(curve->bytes[n++], curve->bytes[i], sizeof(*curve->bytes));
	}
	if (curve != NULL)
		curve->n = n;
}
