#include <math.h>

#include "pipelines.h"

static const char letters[] = "FBIW";

const char *order_words(const struct pipeline *pipeline, int rank, struct arena *arena)
{
	struct pipeline_slot *slots;
	int n = pipeline_order(pipeline, rank, arena, &slots);
	struct text text = {0};
	for (int i = 0; i < n; i++)
		text_printf(&text, "%s%d%c%d",
			i == 0                   ? ""
			: slots[i - 1].with_next ? "+"
						 : " ",
			pipeline_stage(pipeline, rank, slots[i].chunk), letters[slots[i].pass],
			slots[i].micro_batch);
	const char *words = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return words;
}

/* --- the run -------------------------------------------------------------------------------------
 */

struct running {
	const struct pipeline *pipeline;
	const struct pass_times *times;
	struct pipeline_slot **slots;
	int *n, *next;   /* of each rank */
	double *free;    /* of each rank: when it can start its next slot */
	double *done[4]; /* by pass, stage and micro-batch: when it ended; < 0: not yet */
	int *forwards;   /* of each rank: that wait for the end of their backward */
	struct pipeline_run run;
};

static double *done(const struct running *r, enum pipeline_pass pass, int stage, int micro_batch)
{
	return &r->done[pass][stage * r->pipeline->micro_batches + micro_batch];
}

/* When its gradient is there for the stage before it; < 0: not yet. */
static double input_done(const struct running *r, int stage, int micro_batch)
{
	return fmax(*done(r, PIPELINE_BACKWARD, stage, micro_batch),
		*done(r, PIPELINE_BACKWARD_INPUT, stage, micro_batch));
}

/* When all that a slot waits for is there; < 0: not yet. */
static double ready(const struct running *r, int rank, const struct pipeline_slot *slot)
{
	int stage = pipeline_stage(r->pipeline, rank, slot->chunk), batch = slot->micro_batch;
	int last = r->pipeline->ranks * r->pipeline->chunks - 1;
	if (slot->pass == PIPELINE_FORWARD)
		return stage == 0 ? 0 : *done(r, PIPELINE_FORWARD, stage - 1, batch);
	if (slot->pass == PIPELINE_BACKWARD_WEIGHT)
		return *done(r, PIPELINE_BACKWARD_INPUT, stage, batch);
	double own = *done(r, PIPELINE_FORWARD, stage, batch);
	double behind = stage == last ? own : input_done(r, stage + 1, batch);
	return own < 0 || behind < 0 ? -1 : fmax(own, behind);
}

static double seconds(const struct pass_times *times, enum pipeline_pass pass)
{
	return pass == PIPELINE_FORWARD          ? times->forward
	       : pass == PIPELINE_BACKWARD       ? times->input + times->weight
	       : pass == PIPELINE_BACKWARD_INPUT ? times->input
						 : times->weight;
}

static void finish_slot(struct running *r, int rank, const struct pipeline_slot *slot, double end)
{
	double *when = done(
		r, slot->pass, pipeline_stage(r->pipeline, rank, slot->chunk), slot->micro_batch);
	assert_true(*when < 0); /* computed once only */
	*when = end;
	r->forwards[rank] += slot->pass == PIPELINE_FORWARD;
	if (r->forwards[rank] > r->run.held[rank])
		r->run.held[rank] = r->forwards[rank];
	r->forwards[rank] -=
		slot->pass == PIPELINE_BACKWARD || slot->pass == PIPELINE_BACKWARD_WEIGHT;
}

/* The next slot of a rank, or the next two where they are a pair. */
static bool advance(struct running *r, int rank)
{
	const struct pipeline_slot *slot = &r->slots[rank][r->next[rank]];
	if (r->next[rank] == r->n[rank])
		return false;
	double start = ready(r, rank, slot), time = seconds(r->times, slot->pass);
	bool pairs = slot->with_next && r->times->pair > 0;
	if (pairs) {
		double other = ready(r, rank, slot + 1);
		start = start < 0 || other < 0 ? -1 : fmax(start, other);
		time = r->times->pair;
	}
	if (start < 0)
		return false;
	start = fmax(start, r->free[rank]);
	if (r->next[rank] == 0)
		r->run.span[rank] = -start;
	r->free[rank] = start + time;
	r->run.busy[rank] += time;
	for (int i = 0; i <= pairs; i++)
		finish_slot(r, rank, slot + i, start + time);
	r->next[rank] += 1 + pairs;
	if (r->next[rank] == r->n[rank])
		r->run.span[rank] += start + time;
	r->run.end = fmax(r->run.end, start + time);
	return true;
}

struct pipeline_run run_pipeline(
	const struct pipeline *pipeline, const struct pass_times *times, struct arena *arena)
{
	int p = pipeline->ranks, all = p * pipeline->chunks * pipeline->micro_batches;
	struct running r = {.pipeline = pipeline,
		.times = times,
		.slots = ARENA_ARRAY(arena, struct pipeline_slot *, p),
		.n = ARENA_ARRAY(arena, int, p),
		.next = ARENA_ARRAY(arena, int, p),
		.free = ARENA_ARRAY(arena, double, p),
		.forwards = ARENA_ARRAY(arena, int, p),
		.run = {.ends = true,
			.span = ARENA_ARRAY(arena, double, p),
			.busy = ARENA_ARRAY(arena, double, p),
			.held = ARENA_ARRAY(arena, int, p)}};
	for (int pass = 0; pass < 4; pass++) {
		r.done[pass] = ARENA_ARRAY(arena, double, all);
		for (int i = 0; i < all; i++)
			r.done[pass][i] = -1;
	}
	for (int k = 0; k < p; k++)
		r.n[k] = pipeline_order(pipeline, k, arena, &r.slots[k]);
	for (bool moved = true; moved;) {
		moved = false;
		for (int k = 0; k < p; k++)
			while (advance(&r, k))
				moved = true;
	}
	for (int k = 0; k < p; k++)
		r.run.ends = r.run.ends && r.next[k] == r.n[k];
	return r.run;
}

/* Idle seconds are p - 1 times a sum of passes, under conditions. */
static const struct {
	int forward, input, weight, pair; /* how many of each the sum has */
	bool even;                        /* holds where F = I = W */
	bool light;                       /* holds where W <= I and W <= F */
	int rounds, spare;                /* holds where m >= rounds * p - spare */
} idles[PIPELINE_SCHEDULE_COUNT] = {
	[PIPELINE_GPIPE] = {.forward = 1, .input = 1, .weight = 1},
	[PIPELINE_1F1B] = {.forward = 1, .input = 1, .weight = 1},
	[PIPELINE_INTERLEAVED] = {.forward = 1, .input = 1, .weight = 1, .rounds = 1},
	[PIPELINE_ZB_H1] = {.forward = 1, .input = 1, .weight = -1, .light = true, .rounds = 1},
	[PIPELINE_ZBV] = {.forward = 1, .even = true, .rounds = 2, .spare = 1},
	[PIPELINE_DUALPIPEV] = {.input = 1, .weight = -2, .pair = 1, .even = true, .rounds = 2},
};

double pipeline_bubble(const struct pipeline *pipeline, const struct pass_times *times)
{
	enum pipeline_schedule s = pipeline->schedule;
	double f = times->forward, i = times->input, w = times->weight;

	if (pipeline->pairs || (idles[s].even && (f != i || i != w)) ||
		(idles[s].light && (w > i || w > f)) ||
		pipeline->micro_batches < idles[s].rounds * pipeline->ranks - idles[s].spare)
		return NAN;
	return (pipeline->ranks - 1) * (idles[s].forward * f + idles[s].input * i +
					       idles[s].weight * w + idles[s].pair * times->pair);
}
