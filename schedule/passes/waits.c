/* Finds what each operation waits for on its stream.
 *
 * The rows of ACTIONS (action.h) say for every kind of action which results it needs, and which one
 * it leaves behind. We walk the operations in issue order and keep the last operation that left
 * each result: that is what a later one waits for. The same step is walked twice, because a step
 * also waits for results of the step before; only the second walk writes waits down. */
#include "schedule/passes/waits.h"

#include <stddef.h>
#include <stdlib.h>

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
	MESSAGE_IF_READ, /* MESSAGE, where the exchange is of gradients: a backward may begin with
			    it */
};

static const struct {
	enum need needs[6];
	enum result result;
} rules[ACTION_KIND_COUNT] = {
#define X(suffix, kind, stream, leaves, ...) [ACTION_##suffix] = {{__VA_ARGS__}, IS_##leaves},
	ACTIONS(X)
#undef X
};

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
		w->whole = no_ref;
}

/* Each bucket once, by the first forward that reads it. */
static void wait_for_buckets(struct waiting *w)
{
	for (int u = 0; u < w->step->n_units; u++) {
		struct ref *ready = &w->units[u].ready;
		if (ready->op < 0 || w->step->bucket_done[u] > w->at->range)
			continue;
		wait_for(w, *ready);
		*ready = no_ref;
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
	wait_for(w, results_of_unit(w)->ready);
	if (unit_twin(w->step, w->at->unit) >= 0)
		wait_for(w, w->units[unit_twin(w->step, w->at->unit)].ready);
	if (!method->shards)
		wait_for(w, results_of_unit(w)->returned);
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
	w->arriving = no_ref;
}

/* A product beside its exchange waits for the message itself. */
static void wait_for_message(struct waiting *w)
{
	wait_for(w, *results_received(w));
	if (w->op->stream == STREAM_COMPUTE || !(w->at->flags & BESIDE))
		*results_received(w) = no_ref;
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

/* The last exchange of rows; beside another pass, of the same micro-batch. */
static struct ref last_rows(const struct waiting *w)
{
	return w->at->flags & PAIRED ? w->rows[w->at->flight] : w->last[STREAM_EXPERT];
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
		if (streams[i] == STREAM_EXPERT)
			last = last_rows(w);
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
	if (last_rows(w).step == w->here.step)
		wait_for(w, last_rows(w));
}

/* A product does not wait for what compute does just before it (last_apart), nor rows and results
 * for what compute does with the other one of two micro-batches. */
static void wait_for_compute(struct waiting *w)
{
	bool apart = w->op->stream == STREAM_EXPERT || w->op->stream == STREAM_SEND;
	if (apart && w->at->flags & PAIRED)
		wait_for(w, w->computed[w->at->flight]);
	else if (w->op->stream != STREAM_COMPUTE)
		wait_for(w, last_apart(w, STREAM_COMPUTE));
}

static void wait_for_flattened(struct waiting *w)
{
	wait_for_stream(w, w->step->method.flattens_on);
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
	*leaving = (struct leaving){{no_ref, no_ref, no_ref}, w->at->micro_batch, w->at->chunk};
}

static void wait_for_gradients(struct waiting *w)
{
	for (int p = 0; p < GRADIENT_POOLS; p++)
		if (w->op->stream == gradient_pools[p] &&
			results_have_gradient(w, w->op->takes, gradient_pools[p]))
			wait_for_leaving(w, &w->leaving[p]);
}

static void wait_for_prepared_or_begin(struct waiting *w)
{
	if (results_of_unit(w)->prepared.op >= 0)
		wait_for(w, results_of_unit(w)->prepared);
	else
		wait_for_begin(w);
}

static void wait_for_input(struct waiting *w)
{
	wait_for(w, w->input);
	w->input = no_ref;
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
	return !(w->at->flags & OF_INPUT);
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
		wait_for(w, result_at(results_of_unit(w), met[need].what));
	else if (met[need].place == OF_STEP)
		wait_for(w, result_at(w, met[need].what));
}

/* --- the walks -------------------------------------------------------------------------------- */

static int received_count(const struct step *step)
{
	return 2 * step->pipeline.chunks * (int)step->plan->grad_accum;
}

static void begin(struct waiting *w, int step)
{
	w->here.step = step;
	w->copied_out = w->released = w->in_flight = w->moved = w->input = no_ref;
	for (int i = 0; i < received_count(w->step); i++)
		w->received[i] = no_ref;
	w->arrived = w->arriving = no_ref;
	for (int p = 0; p < GRADIENT_POOLS; p++)
		w->leaving[p] = (struct leaving){{no_ref, no_ref, no_ref}, -1, -1};
	for (int f = 0; f < w->step->n_flights; f++)
		w->sent[f] = w->computed[f] = w->rows[f] = no_ref;
	for (int u = 0; u < w->step->n_units; u++) {
		w->units[u].reduced = w->units[u].added = w->units[u].prepared = no_ref;
		if (w->step->resident[u].kept < 0)
			w->units[u].ready = no_ref;
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
		results_of_unit(w)->reduced = w->last[STREAM_COMPUTE];
	for (int i = 0; i < COUNT_OF(rules[0].needs) && is_last_walk; i++)
		wait_for_need(w, rules[action->kind].needs[i]);
	if (is_last_walk)
		keep_waits(w, &w->step->ops[w->here.op]);
	results_leave(w, rules[action->kind].result);
}

/* What was in the flight before is over. */
static void take_flight(struct waiting *w, const struct action *action)
{
	if (action->kind == ACTION_PASS_BEGINS && !(action->flags & IN_BACKWARD))
		w->computed[action->flight] = w->rows[action->flight] = no_ref;
}

void pass_waits(struct step *step)
{
	struct waiting w = {.step = step, .optimizer = no_ref, .whole = no_ref};
	w.units = ARENA_ARRAY(step->arena, struct results, step->n_units);
	w.sent = ARENA_ARRAY(step->arena, struct ref, step->n_flights);
	w.computed = ARENA_ARRAY(step->arena, struct ref, step->n_flights);
	w.rows = ARENA_ARRAY(step->arena, struct ref, step->n_flights);
	w.received = ARENA_ARRAY(step->arena, struct ref, received_count(step));
	for (int s = 0; s < STREAM_COUNT; s++)
		w.last[s] = w.before[s] = no_ref;
	for (int u = 0; u < step->n_units; u++)
		w.units[u] = (struct results){no_ref, no_ref, no_ref, no_ref, no_ref};
	for (int walk = 0; walk < 2; walk++) {
		begin(&w, walk);
		for (int i = 0; i < step->actions.n; i++) {
			w.here.op = step->of_action[i];
			take_flight(&w, &step->actions.items[i]);
			if (w.here.op >= 0)
				visit(&w, &step->actions.items[i], walk == 1);
		}
	}
	free(w.waits.items);
}
