/* DualPipeV: two stages on each rank, laid as a V; a forward of one is computed together with a
 * backward of the other, so that each hides the other's messages
 * (github.com/deepseek-ai/DualPipe). */
#include "schedule/pipeline/slots.h"

/* Holds the list, the next micro-batch of forward and backward of each chunk, and the backwards
 * whose dW waits: of the slots in order, those from `pending` on that are BACKWARD_INPUT. */
struct dual {
	struct slots *slots;
	int forward[2], backward[2];
	int pending;
};

static void forward(struct dual *dual, int chunk)
{
	slots_add(dual->slots, PIPELINE_FORWARD, chunk, dual->forward[chunk]++);
}

static void backward(struct dual *dual, int chunk, enum pipeline_pass pass)
{
	slots_add(dual->slots, pass, chunk, dual->backward[chunk]++);
}

static void pair(struct dual *dual, int forward_chunk)
{
	forward(dual, forward_chunk);
	dual->slots->of[dual->slots->n - 1].with_next = true;
	backward(dual, 1 - forward_chunk, PIPELINE_BACKWARD);
}

/* Adds the oldest dW that waits, if there is one. */
static void weight(struct dual *dual)
{
	while (dual->pending < dual->slots->n) {
		struct pipeline_slot slot = dual->slots->of[dual->pending++];
		if (slot.pass != PIPELINE_BACKWARD_INPUT)
			continue;
		slots_add(dual->slots, PIPELINE_BACKWARD_WEIGHT, slot.chunk, slot.micro_batch);
		return;
	}
}

static void fill(struct dual *dual, int ranks, int rank)
{
	for (int i = 0; i < 2 * (ranks - rank - 1); i++)
		forward(dual, 0);
	for (int i = 0; i < rank + 1; i++) {
		forward(dual, 0);
		forward(dual, 1);
	}
	for (int i = 0; i < ranks - rank - 1; i++) {
		backward(dual, 1, PIPELINE_BACKWARD_INPUT);
		weight(dual);
		forward(dual, 1);
	}
}

static void run(struct dual *dual, const struct pipeline *pipeline, int rank)
{
	int ranks = pipeline->ranks;

	for (int i = 0; i < pipeline->micro_batches - 2 * ranks + rank + 1; i++) {
		/* On the last rank the first backward waits for the forward before it. */
		pair(dual, 0);
		if (i == 0 && rank == ranks - 1)
			dual->slots->of[dual->slots->n - 2].with_next = false;
		pair(dual, 1);
	}
	for (int i = 0; i < ranks - rank - 1; i++) {
		backward(dual, 1, PIPELINE_BACKWARD);
		pair(dual, 1);
	}
}

/* The first half of what is left to each rank goes back whole, and the second half goes back
 * split. */
static void drain(struct dual *dual, int ranks, int rank)
{
	int whole = rank + 1, n = 0;

	for (int i = 0; i < 2 * (rank + 1); i++)
		backward(
			dual, 1 - i % 2, n++ < whole ? PIPELINE_BACKWARD : PIPELINE_BACKWARD_INPUT);
	for (int i = 0; i < ranks - rank - 1; i++) {
		weight(dual);
		backward(dual, 0, PIPELINE_BACKWARD_INPUT);
	}
	for (int i = 0; i < rank + 1; i++)
		weight(dual);
}

void order_dualpipev(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	struct dual dual = {.slots = slots};

	fill(&dual, pipeline->ranks, rank);
	run(&dual, pipeline, rank);
	drain(&dual, pipeline->ranks, rank);
}
