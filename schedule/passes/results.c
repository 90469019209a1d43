/* Notes what operations leave behind for others to wait for. */
#include "schedule/passes/waits.h"

const struct ref no_ref = {0, -1};
const enum stream gradient_pools[GRADIENT_POOLS] = {STREAM_COMPUTE, STREAM_REDUCE};

struct results *results_of_unit(struct waiting *w)
{
	return &w->units[w->at->unit];
}

struct ref *results_received(const struct waiting *w)
{
	int direction = w->at->flags & IN_BACKWARD ? DIRECTION_BACKWARD : DIRECTION_FORWARD;
	int m = (int)w->step->plan->grad_accum;
	return &w->received[(2 * w->at->chunk + direction) * m + w->at->micro_batch];
}

bool results_have_gradient(const struct waiting *w, struct slice buffers, enum stream pool)
{
	for (int i = 0; i < buffers.count; i++) {
		const struct buffer *buffer =
			&w->step->buffers[w->step->indices.items[buffers.first + i]];
		bool is_gradient =
			buffer->role == BUFFER_GRADIENT || buffer->role == BUFFER_GRADIENT_SHARD;
		if (is_gradient && buffer->pool == pool)
			return true;
	}
	return false;
}

static void note_gone(struct waiting *w)
{
	for (int p = 0; p < GRADIENT_POOLS; p++) {
		struct ref *gone = w->leaving[p].gone;
		if (w->op->stream == gradient_pools[p] ||
			!results_have_gradient(w, w->op->gives, gradient_pools[p]))
			continue;
		for (int i = 0; i < GRADIENTS_PENDING; i++)
			gone[i] = gone[i + 1];
		gone[GRADIENTS_PENDING] = w->here;
	}
}

/* FSDP2 without explicit forward prefetch releases a gathered buffer only at the copy-out of the
 * unit after it. */
static void leave_copied_out(struct waiting *w)
{
	bool implicit = !(w->at->flags & IN_BACKWARD) && !w->step->plan->forward_prefetch;
	results_of_unit(w)->ready = w->here;
	w->released = implicit ? w->copied_out : w->here;
	w->copied_out = w->here;
}

static void leave_result(struct waiting *w, enum result result)
{
	switch (result) {
	case IS_NOTHING:
		break;
	case IS_READY:
		results_of_unit(w)->ready = w->here;
		results_of_unit(w)->prepared = no_ref;
		if (w->step->method.gathers == GATHERS_BUCKETS_AT_END)
			w->whole = w->here;
		break;
	case IS_COPIED_OUT:
		leave_copied_out(w);
		break;
	case IS_RESHARDED:
		results_of_unit(w)->ready = w->at->flags & KEEPS_PART ? w->here : no_ref;
		break;
	case IS_PREPARED:
		results_of_unit(w)->prepared = w->at->flags & DROPS ? no_ref : w->here;
		break;
	case IS_REDUCED:
	case IS_ADDED:
	case IS_SCATTERED:
		results_of_unit(w)->reduced = w->here;
		if (result == IS_ADDED)
			results_of_unit(w)->added = w->here;
		if (result == IS_SCATTERED)
			w->in_flight = w->here;
		break;
	case IS_RETURNED:
		results_of_unit(w)->returned = w->here;
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
		*results_received(w) = w->here;
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

void results_leave(struct waiting *w, enum result result)
{
	enum stream stream = w->op->stream;
	int flight = w->at->flight;
	leave_result(w, result);
	note_gone(w);
	if (flight >= 0 && stream == STREAM_COMPUTE)
		w->computed[flight] = w->here;
	if (flight >= 0 && stream == STREAM_EXPERT)
		w->rows[flight] = w->here;
	w->before[stream] = w->last[stream];
	w->last[stream] = w->here;
}
