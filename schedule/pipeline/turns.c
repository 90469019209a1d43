/* These orders take forwards, then a forward and a backward by turns, then the backwards that are
 * left. */
#include "schedule/pipeline/slots.h"

struct turns {
	int forwards; /* how many come before the first backward */
	int group;
	bool splits; /* backward passes in two, and dW of each comes... */
	int delay;   /* ...so many backwards later */
	bool pairs;
};

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* Returns torch's size where the question names none. */
static int group_of(const struct pipeline *pipeline, int group)
{
	int m = pipeline->micro_batches, p = pipeline->ranks;

	return group > 0 ? group : m < p ? m : m / (m / p);
}

/* If a round has more micro-batches than there are ranks, each of two ranks may have to send before
 * it asks for what the other one sends. */
bool pipeline_receives_early(const struct pipeline *pipeline)
{
	int group = group_of(pipeline, pipeline->group);
	bool rounds = group > pipeline->ranks && pipeline->micro_batches > group;

	return pipeline_splits_backward(pipeline->schedule) ||
	       (pipeline->schedule == PIPELINE_INTERLEAVED && rounds);
}

/* Adds the i-th chunk and micro-batch in turn. Chunks come in order, each with a group of
 * micro-batches. */
static void add(struct slots *slots, const struct pipeline *pipeline, const struct turns *turns,
	enum pipeline_pass pass, int i)
{
	int round = i / (turns->group * pipeline->chunks), first = round * turns->group;
	int size = smaller(turns->group, pipeline->micro_batches - first);
	int place = i - first * pipeline->chunks, chunk = place / size;

	slots_add(slots, pass, pass == PIPELINE_FORWARD ? chunk : pipeline->chunks - 1 - chunk,
		first + place % size);
}

static void take_turns(
	const struct pipeline *pipeline, const struct turns *turns, struct slots *slots)
{
	int total = pipeline->micro_batches * pipeline->chunks;
	int forward = 0, forwards = smaller(turns->forwards, total), weight = 0;
	enum pipeline_pass backward = turns->splits ? PIPELINE_BACKWARD_INPUT : PIPELINE_BACKWARD;

	while (forward < forwards)
		add(slots, pipeline, turns, PIPELINE_FORWARD, forward++);
	for (int i = 0; i < total; i++) {
		if (forward < total) {
			add(slots, pipeline, turns, PIPELINE_FORWARD, forward++);
			slots->of[slots->n - 1].with_next = turns->pairs;
		}
		add(slots, pipeline, turns, backward, i);
		if (turns->splits && i >= turns->delay)
			add(slots, pipeline, turns, PIPELINE_BACKWARD_WEIGHT, weight++);
	}
	while (turns->splits && weight < total)
		add(slots, pipeline, turns, PIPELINE_BACKWARD_WEIGHT, weight++);
}

void order_gpipe(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	int m = pipeline->micro_batches;

	(void)rank;
	take_turns(pipeline, &(struct turns){.forwards = m, .group = m}, slots);
}

void order_1f1b(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	struct turns turns = {.forwards = pipeline->ranks - 1 - rank + pipeline->pairs,
		.group = pipeline->micro_batches,
		.pairs = pipeline->pairs};

	take_turns(pipeline, &turns, slots);
}

void order_interleaved(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	int group = group_of(pipeline, pipeline->group);
	struct turns turns = {.forwards = 2 * (pipeline->ranks - 1 - rank) +
					  (pipeline->chunks - 1) * group + pipeline->pairs,
		.group = group,
		.pairs = pipeline->pairs};

	take_turns(pipeline, &turns, slots);
}

void order_zb_h1(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	int group = group_of(pipeline, 0);
	struct turns turns = {
		.forwards = pipeline->ranks - 1 - rank + (pipeline->chunks - 1) * group,
		.group = group,
		.splits = true,
		.delay = rank};

	take_turns(pipeline, &turns, slots);
}
