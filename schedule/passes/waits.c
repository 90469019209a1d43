/* What the stream of an operation waits for. For every kind its row of ACTIONS says which results
 * it needs and which it leaves behind; results are looked up by meaning in two walks over the same
 * step: the first knows only what a step leaves to the next one. */
#include "schedule/passes/step.h"

#include <stdlib.h>

/* An operation of this step or of the one before; op < 0: none. */
struct ref {
	int step, op;
};

enum need {
	NOTHING,
	/* all that was issued on a stream so far */
	COMPUTE,
	GATHERS,
	REDUCE,
	HOST,
	REDUCTIONS,      /* of both groups; for the host also what left the device */
	COPIES,          /* the host writes what they have read, and reads what they have written */
	COMPUTE_IF_KEPT, /* it reads the unit until then */
	FLATTENED,       /* the stream that makes flat gradients, and what it gathers */
	REDUCE_IF_OVERLAPPED, /* one reduction under way */
	COMPUTE_IF_SECOND,
	/* of the unit */
	READY,    /* compute may read it */
	PART,     /* READY, where the gather reads the part of a smaller group */
	PREPARED, /* its shard, copied in or cast */
	REDUCED,
	RETURNED, /* the host has updated it */
	WEIGHTS,  /* of compute, whatever it reads */
	/* of the step */
	BEGUN, /* the first on a stream comes after the optimizer of the step before */
	PREPARED_OR_BEGUN,
	UPDATED,  /* at the end of a step: its optimizer */
	RELEASED, /* FSDP2: gathers come after the copy-out that released a buffer, so that they
		   * never run further ahead than the buffers (docs/runtimes.md) */
	INPUT_IN_FLIGHT, /* FSDP2: the reduction whose input is released */
	MOVED,           /* activations: the last copy */
	SENT_BEFORE,     /* the last of a stage's backward: what forward has sent is still read */
	EXCHANGED,       /* what the ranks that divide the model have exchanged so far */
	INPUT,           /* of it, what was gathered beside the part before */
	ROWS,            /* of it, to and from experts */
	MESSAGE,         /* what the pass begins with */
	MESSAGE_IF_READ, /* by ours, which gathers it: others have it in what they gather */
};

enum result {
	IS_NOTHING,
	IS_READY,
	IS_COPIED_OUT,
	IS_RESHARDED,
	IS_PREPARED,
	IS_REDUCED,
	IS_SCATTERED,
	IS_RETURNED,
	IS_WHOLE,
	IS_UPDATED,
	IS_MOVED,
	IS_SENT,
	IS_RECEIVED,
	IS_ROTATING,
	IS_GATHERED,
};

static const struct {
	enum need needs[6];
	enum result result;
} rules[ACTION_KIND_COUNT] = {
#define X(suffix, kind, stream, leaves, ...) [ACTION_##suffix] = {{__VA_ARGS__}, IS_##leaves},
	ACTIONS(X)
#undef X
};

/* The last operation that left each result. */
struct results {
	struct ref ready, prepared, reduced, returned;
};

struct waiting {
	struct step *step;
	const struct action *at;
	const struct op *op;
	struct ref here;
	struct numbers waits;
	struct ref last[STREAM_COUNT];
	struct results *units;
	struct ref optimizer, whole;
	struct ref copied_out, released; /* the last copy-out, and the one that gathers wait for */
	struct ref in_flight;
	struct ref moved;
	struct ref arrived, arriving;   /* blocks of keys: for this round, and for the next */
	struct ref input, before_input; /* gathered beside compute; the exchange before it */
	/* The one before the last. */
	struct ref before[STREAM_COUNT];
	struct ref *received; /* per stage of the rank, direction and micro-batch */
	struct ref *sent;     /* per flight: in its forward */
};

static const struct ref none = {0, -1};

static struct results *unit_of(struct waiting *w)
{
	return &w->units[w->at->unit];
}

/* --- waits ---------------------------------------------------------------------------------------
 */

/* Steps before the one before are long over; on one stream the order says it already. */
static void wait_for(struct waiting *w, struct ref ref)
{
	if (ref.op < 0 || ref.step < w->here.step - 1)
		return;
	bool here = ref.step == w->here.step;
	int code = here ? ref.op : ref.op - w->step->n_ops;
	if (here && w->step->ops[ref.op].stream == w->op->stream)
		return;
	for (int i = 0; i < w->waits.n; i++)
		if (w->waits.items[i] == code)
			return;
	number_add(&w->waits, code);
}

static void wait_for_stream(struct waiting *w, enum stream stream)
{
	if (stream != w->op->stream)
		wait_for(w, w->last[stream]);
}

static void wait_for_reductions(struct waiting *w)
{
	wait_for_stream(w, STREAM_REDUCE);
	wait_for_stream(w, STREAM_REPLICATE);
	if (w->op->stream != STREAM_HOST)
		return;
	wait_for_stream(w, STREAM_COPY_OUT);
	wait_for_stream(w, STREAM_COMPUTE); /* DeepSpeed copies out there */
}

static void wait_for_copies(struct waiting *w)
{
	if (w->op->stream != STREAM_HOST)
		return;
	wait_for_stream(w, STREAM_COMPUTE);
	wait_for_stream(w, STREAM_COPY_IN);
	wait_for_stream(w, STREAM_GATHER_COPY_IN);
}

/* The first compute of a step comes after the gather that ended the step before. */
static void wait_for_whole(struct waiting *w)
{
	wait_for(w, w->whole);
	if (w->whole.step < w->here.step)
		w->whole = none;
}

/* Each bucket once, by the first forward that reads it. */
static void wait_for_buckets(struct waiting *w)
{
	for (int u = 0; u < w->step->n_units; u++) {
		struct ref *ready = &w->units[u].ready;
		if (ready->op < 0 || w->step->bucket_done[u] > w->at->range)
			continue;
		wait_for(w, *ready);
		*ready = none;
	}
}

static void wait_for_weights(struct waiting *w)
{
	const struct method *method = &w->step->method;
	if (method->gathers == GATHERS_BY_BUCKET)
		wait_for_buckets(w);
	if (method->gathers == GATHERS_AT_END || method->gathers == GATHERS_BUCKETS_AT_END)
		wait_for_whole(w);
	if (method->weights != WEIGHTS_OF_UNIT || !unit_has_parameters(w->step, w->at->unit))
		return;
	wait_for(w, unit_of(w)->ready);
	if (unit_twin(w->step, w->at->unit) >= 0)
		wait_for(w, w->units[unit_twin(w->step, w->at->unit)].ready);
	if (!method->shards)
		wait_for(w, unit_of(w)->returned);
}

static void wait_for_begin(struct waiting *w)
{
	struct ref last = w->last[w->op->stream];
	if (last.op < 0 || last.step < w->here.step)
		wait_for(w, w->optimizer);
}

/* Of a ring, a round waits for the block of keys that it computes with alone. */
static void wait_for_block(struct waiting *w)
{
	wait_for(w, w->arrived);
	w->arrived = w->arriving;
	w->arriving = none;
}

/* What the pass begins with, until compute has waited for it. */
static struct ref *received_at(const struct waiting *w)
{
	int direction = w->at->flags & IN_BACKWARD ? DIRECTION_BACKWARD : DIRECTION_FORWARD;
	int m = (int)w->step->plan->grad_accum;
	return &w->received[(2 * w->at->chunk + direction) * m + w->at->micro_batch];
}

static void wait_for_message(struct waiting *w)
{
	wait_for(w, *received_at(w));
	*received_at(w) = none;
}

static bool waits_at_once(const struct plan *plan)
{
	return plan->compile && runtime_of(plan->runtime)->ring->waits_when_compiled;
}

/* The last one on a stream, but for the neighbour that an operation goes beside: compute behind a
 * gather, a sum behind compute. */
static struct ref last_apart(const struct waiting *w, enum stream stream)
{
	struct ref last = w->last[stream];
	bool sums = w->at->kind == ACTION_SCATTER_TOKENS;
	bool beside = (w->at->flags & BESIDE) &&
		      (stream == STREAM_PEER ? w->at->kind != ACTION_ADD_SUM : sums);
	bool neighbour = last.step == w->here.step && last.op == w->here.op - 1;
	return beside && neighbour ? w->before[stream] : last;
}

static void wait_for_exchanges(struct waiting *w)
{
	static const enum stream streams[] = {
		STREAM_TENSOR, STREAM_PEER, STREAM_CONTEXT, STREAM_EXPERT};
	bool in_rounds = w->at->flags & IN_ROUNDS && !waits_at_once(w->step->plan);
	for (int i = 0; i < COUNT_OF(streams); i++) {
		struct ref last = w->last[streams[i]];
		if (w->input.op >= 0 && streams[i] == STREAM_TENSOR)
			last = w->before_input;
		if (streams[i] == STREAM_PEER)
			last = last_apart(w, STREAM_PEER);
		if (last.step == w->here.step && !(in_rounds && streams[i] == STREAM_CONTEXT))
			wait_for(w, last);
	}
	if (in_rounds)
		wait_for_block(w);
	wait_for_message(w);
}

static void wait_for_sent(struct waiting *w)
{
	if (w->step->ranges[w->at->range].last_of_chunk)
		wait_for(w, w->sent[w->at->flight]);
}

static void wait_for_rows(struct waiting *w)
{
	if (w->last[STREAM_EXPERT].step == w->here.step)
		wait_for(w, w->last[STREAM_EXPERT]);
}

static bool is_kept(const struct waiting *w)
{
	return w->step->resident[w->at->unit].kept >= 0;
}

static void wait_for_need(struct waiting *w, enum need need)
{
	switch (need) {
	case NOTHING:
		break;
	case COMPUTE:
		if (w->op->stream != STREAM_COMPUTE)
			wait_for(w, last_apart(w, STREAM_COMPUTE));
		break;
	case GATHERS:
		wait_for_stream(w, STREAM_GATHER);
		break;
	case REDUCE:
		wait_for_stream(w, STREAM_REDUCE);
		break;
	case HOST:
		wait_for_stream(w, STREAM_HOST);
		break;
	case REDUCTIONS:
		wait_for_reductions(w);
		break;
	case COPIES:
		wait_for_copies(w);
		break;
	case COMPUTE_IF_KEPT:
		if (is_kept(w))
			wait_for_stream(w, STREAM_COMPUTE);
		break;
	case FLATTENED:
		wait_for_stream(w, w->step->method.flattens_on);
		break;
	case REDUCE_IF_OVERLAPPED:
		if (w->step->method.overlaps)
			wait_for_stream(w, STREAM_REDUCE);
		break;
	case COMPUTE_IF_SECOND:
		if (!(w->at->flags & FIRST))
			wait_for_stream(w, STREAM_COMPUTE);
		break;
	case READY:
		wait_for(w, unit_of(w)->ready);
		break;
	case PART:
		if (w->at->flags & FROM_PART)
			wait_for(w, unit_of(w)->ready);
		break;
	case PREPARED:
		wait_for(w, unit_of(w)->prepared);
		break;
	case REDUCED:
		wait_for(w, unit_of(w)->reduced);
		break;
	case RETURNED:
		wait_for(w, unit_of(w)->returned);
		break;
	case WEIGHTS:
		wait_for_weights(w);
		break;
	case BEGUN:
		wait_for_begin(w);
		break;
	case PREPARED_OR_BEGUN:
		if (unit_of(w)->prepared.op >= 0)
			wait_for(w, unit_of(w)->prepared);
		else
			wait_for_begin(w);
		break;
	case UPDATED:
		if (w->at->micro_batch < 0)
			wait_for(w, w->optimizer);
		break;
	case RELEASED:
		wait_for(w, w->released);
		break;
	case INPUT_IN_FLIGHT:
		if (w->at->flags & RELEASES_INPUT)
			wait_for(w, w->in_flight);
		break;
	case MOVED:
		wait_for(w, w->moved);
		break;
	case SENT_BEFORE:
		wait_for_sent(w);
		break;
	case ROWS:
		wait_for_rows(w);
		break;
	case EXCHANGED:
		wait_for_exchanges(w);
		break;
	case MESSAGE:
		wait_for_message(w);
		break;
	case MESSAGE_IF_READ:
		if (w->step->method.adds_in_compute && !(w->at->flags & OF_INPUT))
			wait_for_message(w);
		break;
	case INPUT:
		wait_for(w, w->input);
		w->input = none;
		if (w->last[STREAM_PEER].step == w->here.step)
			wait_for(w, w->last[STREAM_PEER]);
		break;
	}
}

/* --- results -------------------------------------------------------------------------------------
 */

/* FSDP2: in implicit forward mode a buffer is released by the copy-out behind its own. */
static void leave_copied_out(struct waiting *w)
{
	bool implicit = !(w->at->flags & IN_BACKWARD) && !w->step->plan->forward_prefetch;
	unit_of(w)->ready = w->here;
	w->released = implicit ? w->copied_out : w->here;
	w->copied_out = w->here;
}

static void leave_result(struct waiting *w, enum result result)
{
	switch (result) {
	case IS_NOTHING:
		break;
	case IS_READY:
		unit_of(w)->ready = w->here;
		unit_of(w)->prepared = none;
		if (w->step->method.gathers == GATHERS_BUCKETS_AT_END)
			w->whole = w->here;
		break;
	case IS_COPIED_OUT:
		leave_copied_out(w);
		break;
	case IS_RESHARDED:
		unit_of(w)->ready = w->at->flags & KEEPS_PART ? w->here : none;
		break;
	case IS_PREPARED:
		unit_of(w)->prepared = w->at->flags & DROPS ? none : w->here;
		break;
	case IS_SCATTERED:
		w->in_flight = w->here;
		unit_of(w)->reduced = w->here;
		break;
	case IS_REDUCED:
		unit_of(w)->reduced = w->here;
		break;
	case IS_RETURNED:
		unit_of(w)->returned = w->here;
		break;
	case IS_WHOLE:
		w->whole = w->here;
		break;
	case IS_UPDATED:
		if (w->op->stream == STREAM_COMPUTE)
			w->optimizer = w->here;
		break;
	case IS_MOVED:
		w->moved = w->here;
		break;
	case IS_SENT:
		if (!(w->at->flags & IN_BACKWARD))
			w->sent[w->at->flight] = w->here;
		break;
	case IS_RECEIVED:
		*received_at(w) = w->here;
		break;
	case IS_GATHERED:
		if (!(w->at->flags & BESIDE) || w->op->stream == STREAM_PEER)
			break;
		w->before_input = w->last[STREAM_TENSOR];
		w->input = w->here;
		break;
	case IS_ROTATING:
		w->arriving = w->here;
		break;
	}
}

/* --- the walks -----------------------------------------------------------------------------------
 */

static int received_count(const struct step *step)
{
	return 2 * step->pipeline.chunks * (int)step->plan->grad_accum;
}

static void begin(struct waiting *w, int step)
{
	w->here.step = step;
	w->copied_out = w->released = w->in_flight = w->moved = w->input = none;
	for (int i = 0; i < received_count(w->step); i++)
		w->received[i] = none;
	w->arrived = w->arriving = none;
	for (int f = 0; f < w->step->n_flights; f++)
		w->sent[f] = none;
	for (int u = 0; u < w->step->n_units; u++) {
		w->units[u].reduced = w->units[u].prepared = none;
		if (w->step->resident[u].kept < 0)
			w->units[u].ready = none;
	}
}

static void keep_waits(struct waiting *w, struct op *op)
{
	op->waits = (struct slice){w->step->indices.n, w->waits.n};
	for (int i = 0; i < w->waits.n; i++)
		number_add(&w->step->indices, w->waits.items[i]);
	w->waits.n = 0;
}

static void visit(struct waiting *w, const struct action *action, bool is_last_walk)
{
	w->at = action;
	w->op = &w->step->ops[w->here.op];
	if (action->flags & REDUCED_HERE)
		unit_of(w)->reduced = w->last[STREAM_COMPUTE];
	for (int i = 0; i < COUNT_OF(rules[0].needs) && is_last_walk; i++)
		wait_for_need(w, rules[action->kind].needs[i]);
	if (is_last_walk)
		keep_waits(w, &w->step->ops[w->here.op]);
	leave_result(w, rules[action->kind].result);
	w->before[w->op->stream] = w->last[w->op->stream];
	w->last[w->op->stream] = w->here;
}

void pass_waits(struct step *step)
{
	struct waiting w = {.step = step, .optimizer = none, .whole = none};
	w.units = ARENA_ARRAY(step->arena, struct results, step->n_units);
	w.sent = ARENA_ARRAY(step->arena, struct ref, step->n_flights);
	w.received = ARENA_ARRAY(step->arena, struct ref, received_count(step));
	for (int s = 0; s < STREAM_COUNT; s++)
		w.last[s] = w.before[s] = none;
	for (int u = 0; u < step->n_units; u++)
		w.units[u] = (struct results){none, none, none, none};
	for (int walk = 0; walk < 2; walk++) {
		begin(&w, walk);
		for (int i = 0; i < step->actions.n; i++) {
			w.here.op = step->of_action[i];
			if (w.here.op >= 0)
				visit(&w, &step->actions.items[i], walk == 1);
		}
	}
	free(w.waits.items);
}
