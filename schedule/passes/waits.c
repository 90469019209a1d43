/* Finds what each operation waits for on its stream.
 *
 * The rows of ACTIONS (action.h) say for every kind of action which results it needs, and which one
 * it leaves behind. We walk the operations in issue order and keep the last operation that left
 * each result: that is what a later one waits for. The same step is walked twice, because a step
 * also waits for results of the step before; only the second walk writes waits down. */
#include "schedule/passes/step.h"

#include <stddef.h>
#include <stdlib.h>

/* An operation of this step or of the one before; op < 0: none. */
struct ref {
	int step, op;
};

/* What an action waits for. */
enum need {
	NOTHING,
	/* All that was issued so far on a stream, or on several. */
	COMPUTE,
	GATHERS,
	REDUCE,
	HOST,
	REDUCTIONS, /* reductions over both groups; on the host also copies from the device */
	COPIES,     /* host only: copies that read what it will write, or wrote what it reads */
	COMPUTE_IF_KEPT,      /* compute, where it still reads the unit that is gathered anew */
	FLATTENED,            /* the stream that makes flat gradients */
	REDUCE_IF_OVERLAPPED, /* so that no more than one reduction is under way */
	COMPUTE_IF_SECOND,    /* compute, unless the action is the first of its kind */
	/* A result of the action's unit. */
	READY,    /* the parameters that compute reads */
	PART,     /* READY, where a gather starts from the part that a smaller group kept */
	PREPARED, /* the shard, copied in or cast for its gather */
	REDUCED,  /* the reduced gradient */
	RETURNED, /* the shard that the host has updated */
	WEIGHTS,  /* whatever compute reads parameters from under this method */
	/* A result of the step. */
	BEGUN, /* the optimizer of the step before, for the first operation on a stream */
	PREPARED_OR_BEGUN,
	UPDATED,         /* the optimizer of this step, for what comes after it */
	RELEASED,        /* FSDP2: the copy-out that released a buffer to gather into */
	INPUT_IN_FLIGHT, /* FSDP2: the reduction whose input the action releases */
	GRADIENTS_GONE,  /* all but two of the gradients made where it makes another one */
	ADDED,           /* the gradient added to that of earlier micro-batches, where limited */
	MOVED,           /* the last copy of activations */
	SENT_BEFORE,     /* the message of this forward, which backward would overwrite */
	EXCHANGED,       /* all exchanges so far between ranks that divide the model */
	INPUT,           /* the input that was gathered beside the input part of backward */
	ROWS,            /* the last exchange of rows with experts of other ranks */
	MESSAGE,         /* the message that the pass begins with */
	MESSAGE_IF_READ, /* MESSAGE, where our own runtime reads it in this gather */
};

/* What an action leaves behind for others to wait for: the results above, and some that only the
 * functions below tell apart. */
enum result {
	IS_NOTHING,
	IS_READY,
	IS_COPIED_OUT,
	IS_RESHARDED,
	IS_PREPARED,
	IS_REDUCED,
	IS_ADDED,
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

/* The last operations that left the results of one unit. */
struct results {
	struct ref ready, prepared, reduced, added, returned;
};

/* So many gradients may wait for their reduction while compute makes another one, and so many that
 * are reduced for their copy to the host. */
enum { GRADIENTS_PENDING = 2 };

/* Where gradients are made. */
static const enum stream pools[] = {STREAM_COMPUTE, STREAM_REDUCE};

/* The operations of a backward pass that gave a gradient back on another stream than it was made
 * on: the last ones, the oldest first. */
struct leaving {
	struct ref gone[GRADIENTS_PENDING + 1];
	int micro_batch, chunk; /* the pass */
};

struct waiting {
	struct step *step;
	/* The operation that the walk has come to, and what was found for it. */
	const struct action *at;
	const struct op *op;
	struct ref here;
	struct numbers waits;
	/* The last operation on each stream, and the one before that. */
	struct ref last[STREAM_COUNT], before[STREAM_COUNT];
	/* The last operation that left each result. */
	struct results *units; /* [n_units] */
	struct ref optimizer, whole;
	struct ref copied_out, released; /* the last copy-out, and the one that gathers wait for */
	struct ref in_flight;
	struct leaving leaving[COUNT_OF(pools)];
	struct ref moved;
	struct ref arrived, arriving;   /* blocks of keys, for this round and for the next one */
	struct ref input, before_input; /* gathered beside compute; the exchange before that */
	struct ref *received; /* messages, by stage of the rank, direction and micro-batch */
	struct ref *sent;     /* by flight: the message that its forward sent */
};

static const struct ref none = {0, -1};

static struct results *unit_of(struct waiting *w)
{
	return &w->units[w->at->unit];
}

/* --- waits ------------------------------------------------------------------------------------ */

/* Writes a wait down, unless it says nothing new: older steps than the one before are over, and
 * operations of one stream run in order anyway. */
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

/* A round of a ring waits only for the block of keys that it computes with: the next block may
 * still be under way. */
static void wait_for_block(struct waiting *w)
{
	wait_for(w, w->arrived);
	w->arrived = w->arriving;
	w->arriving = none;
}

/* The message that the pass of this micro-batch begins with; none once compute has waited for it.
 */
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

/* The last operation on a stream. An action that runs beside its neighbour (a product beside the
 * gather issued just before it) does not wait for that one, but for the one before. */
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

/* A product does not wait for what compute does just before it (last_apart). */
static void wait_for_compute(struct waiting *w)
{
	if (w->op->stream != STREAM_COMPUTE)
		wait_for(w, last_apart(w, STREAM_COMPUTE));
}

static void wait_for_flattened(struct waiting *w)
{
	wait_for_stream(w, w->step->method.flattens_on);
}

static bool has_gradient(const struct waiting *w, struct slice slice, enum stream pool)
{
	for (int i = 0; i < slice.count; i++) {
		const struct buffer *buffer =
			&w->step->buffers[w->step->indices.items[slice.first + i]];
		bool is_gradient =
			buffer->role == BUFFER_GRADIENT || buffer->role == BUFFER_GRADIENT_SHARD;
		if (is_gradient && buffer->pool == pool)
			return true;
	}
	return false;
}

static bool limits_gradients(const struct waiting *w)
{
	return w->step->method.limits_gradients;
}

/* A pass begins without any of the one before, which had a forward's time to leave. */
static void wait_for_leaving(struct waiting *w, struct leaving *leaving)
{
	if (leaving->micro_batch == w->at->micro_batch && leaving->chunk == w->at->chunk) {
		wait_for(w, leaving->gone[0]);
		return;
	}
	wait_for(w, leaving->gone[GRADIENTS_PENDING]);
	*leaving = (struct leaving){{none, none, none}, w->at->micro_batch, w->at->chunk};
}

static void wait_for_gradients(struct waiting *w)
{
	for (int p = 0; p < COUNT_OF(pools); p++)
		if (w->op->stream == pools[p] && has_gradient(w, w->op->takes, pools[p]))
			wait_for_leaving(w, &w->leaving[p]);
}

static void note_gone(struct waiting *w)
{
	for (int p = 0; p < COUNT_OF(pools); p++) {
		struct ref *gone = w->leaving[p].gone;
		if (w->op->stream == pools[p] || !has_gradient(w, w->op->gives, pools[p]))
			continue;
		for (int i = 0; i < GRADIENTS_PENDING; i++)
			gone[i] = gone[i + 1];
		gone[GRADIENTS_PENDING] = w->here;
	}
}

static void wait_for_prepared_or_begin(struct waiting *w)
{
	if (unit_of(w)->prepared.op >= 0)
		wait_for(w, unit_of(w)->prepared);
	else
		wait_for_begin(w);
}

static void wait_for_input(struct waiting *w)
{
	wait_for(w, w->input);
	w->input = none;
	if (w->last[STREAM_PEER].step == w->here.step)
		wait_for(w, w->last[STREAM_PEER]);
}

static bool is_kept(const struct waiting *w)
{
	return w->step->resident[w->at->unit].kept >= 0;
}

static bool overlaps(const struct waiting *w)
{
	return w->step->method.overlaps;
}

static bool is_second(const struct waiting *w)
{
	return !(w->at->flags & FIRST);
}

static bool is_after_batches(const struct waiting *w)
{
	return w->at->micro_batch < 0;
}

static bool reads_message(const struct waiting *w)
{
	return w->step->method.adds_in_compute && !(w->at->flags & OF_INPUT);
}

/* How a need is met. */
static const struct {
	bool (*applies)(const struct waiting *w); /* NULL: always */
	unsigned flags;                           /* only where the action has these */
	void (*find)(struct waiting *w);          /* NULL: as `place` says */
	enum { NO_PLACE, ON_STREAM, OF_UNIT, OF_STEP } place;
	size_t what; /* the stream, or where the result stands in `struct results` or `waiting` */
} met[] = {
#define ON(stream)   .place = ON_STREAM, .what = STREAM_##stream
#define UNIT(result) .place = OF_UNIT, .what = offsetof(struct results, result)
#define STEP(result) .place = OF_STEP, .what = offsetof(struct waiting, result)
	[NOTHING] = {.place = NO_PLACE},
	[COMPUTE] = {.find = wait_for_compute},
	[GATHERS] = {ON(GATHER)},
	[REDUCE] = {ON(REDUCE)},
	[HOST] = {ON(HOST)},
	[REDUCTIONS] = {.find = wait_for_reductions},
	[COPIES] = {.find = wait_for_copies},
	[COMPUTE_IF_KEPT] = {is_kept, ON(COMPUTE)},
	[FLATTENED] = {.find = wait_for_flattened},
	[REDUCE_IF_OVERLAPPED] = {overlaps, ON(REDUCE)},
	[COMPUTE_IF_SECOND] = {is_second, ON(COMPUTE)},
	[READY] = {UNIT(ready)},
	[PART] = {.flags = FROM_PART, UNIT(ready)},
	[PREPARED] = {UNIT(prepared)},
	[REDUCED] = {UNIT(reduced)},
	[RETURNED] = {UNIT(returned)},
	[WEIGHTS] = {.find = wait_for_weights},
	[BEGUN] = {.find = wait_for_begin},
	[PREPARED_OR_BEGUN] = {.find = wait_for_prepared_or_begin},
	[UPDATED] = {is_after_batches, STEP(optimizer)},
	[RELEASED] = {STEP(released)},
	[INPUT_IN_FLIGHT] = {.flags = RELEASES_INPUT, STEP(in_flight)},
	[GRADIENTS_GONE] = {limits_gradients, .find = wait_for_gradients},
	[ADDED] = {limits_gradients, UNIT(added)},
	[MOVED] = {STEP(moved)},
	[SENT_BEFORE] = {.find = wait_for_sent},
	[EXCHANGED] = {.find = wait_for_exchanges},
	[INPUT] = {.find = wait_for_input},
	[ROWS] = {.find = wait_for_rows},
	[MESSAGE] = {.find = wait_for_message},
	[MESSAGE_IF_READ] = {reads_message, .find = wait_for_message},
#undef ON
#undef UNIT
#undef STEP
};

static struct ref result_at(const void *results, size_t offset)
{
	return *(const struct ref *)((const char *)results + offset);
}

static void wait_for_need(struct waiting *w, enum need need)
{
	unsigned flags = met[need].flags;
	if ((w->at->flags & flags) != flags || (met[need].applies != NULL && !met[need].applies(w)))
		return;
	if (met[need].find != NULL)
		met[need].find(w);
	else if (met[need].place == ON_STREAM)
		wait_for_stream(w, (enum stream)met[need].what);
	else if (met[need].place == OF_UNIT)
		wait_for(w, result_at(unit_of(w), met[need].what));
	else if (met[need].place == OF_STEP)
		wait_for(w, result_at(w, met[need].what));
}

/* --- results ---------------------------------------------------------------------------------- */

/* FSDP2 without explicit forward prefetch releases a gathered buffer only at the copy-out of the
 * unit after it. */
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
	case IS_REDUCED:
	case IS_ADDED:
	case IS_SCATTERED:
		unit_of(w)->reduced = w->here;
		if (result == IS_ADDED)
			unit_of(w)->added = w->here;
		if (result == IS_SCATTERED)
			w->in_flight = w->here;
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

/* --- the walks -------------------------------------------------------------------------------- */

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
	for (int p = 0; p < COUNT_OF(pools); p++)
		w->leaving[p] = (struct leaving){{none, none, none}, -1, -1};
	for (int f = 0; f < w->step->n_flights; f++)
		w->sent[f] = none;
	for (int u = 0; u < w->step->n_units; u++) {
		w->units[u].reduced = w->units[u].added = w->units[u].prepared = none;
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
	note_gone(w);
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
		w.units[u] = (struct results){none, none, none, none, none};
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
