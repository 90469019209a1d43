/* ZB-V has two stages on each rank, laid as a V, and a dW for every bubble (Qi et al. 2401.10241,
 * section 6). The order is made for as many micro-batches as fill the pipeline, and those that the
 * question does not have are left out. */
#include "schedule/pipeline/slots.h"

/* Holds the next micro-batch of each pass of each chunk. */
struct counts {
	int next[4][2];
};

static void add(struct slots *slots, const struct pipeline *pipeline, struct counts *counts,
	enum pipeline_pass pass, int chunk)
{
	int micro_batch = counts->next[pass][chunk]++;

	if (micro_batch < pipeline->micro_batches)
		slots_add(slots, pass, chunk, micro_batch);
}

#define F PIPELINE_FORWARD
#define I PIPELINE_BACKWARD_INPUT
#define W PIPELINE_BACKWARD_WEIGHT

static void backward(
	struct slots *slots, const struct pipeline *pipeline, struct counts *counts, int chunk)
{
	add(slots, pipeline, counts, I, chunk);
	add(slots, pipeline, counts, W, chunk);
}

static void fill(
	const struct pipeline *pipeline, int rank, struct slots *slots, struct counts *counts)
{
	for (int i = 0; i < 2 * (pipeline->ranks - rank) - 1; i++)
		add(slots, pipeline, counts, F, 0);
	for (int i = 0; i < rank; i++) {
		add(slots, pipeline, counts, F, 1);
		add(slots, pipeline, counts, F, 0);
	}
	for (int i = 0; i < pipeline->ranks - rank; i++) {
		add(slots, pipeline, counts, F, 1);
		backward(slots, pipeline, counts, 1);
	}
}

/* Both chunks take turns: a forward, then a backward. */
static void run(const struct pipeline *pipeline, struct slots *slots, struct counts *counts)
{
	int least = 2 * pipeline->ranks - 1;
	int m = pipeline->micro_batches > least ? pipeline->micro_batches : least;

	while (counts->next[F][1] < m) {
		if (counts->next[F][0] < m)
			add(slots, pipeline, counts, F, 0);
		backward(slots, pipeline, counts, 0);
		add(slots, pipeline, counts, F, 1);
		backward(slots, pipeline, counts, 1);
	}
}

static void drain(
	const struct pipeline *pipeline, int rank, struct slots *slots, struct counts *counts)
{
	for (int i = 0; i < rank; i++) {
		add(slots, pipeline, counts, I, 0);
		add(slots, pipeline, counts, I, 1);
	}
	for (int i = 0; i < pipeline->ranks - rank; i++)
		backward(slots, pipeline, counts, 0);
	for (int chunk = 1; chunk >= 0; chunk--)
		while (counts->next[W][chunk] < counts->next[I][chunk])
			add(slots, pipeline, counts, W, chunk);
}

void order_zbv(const struct pipeline *pipeline, int rank, struct slots *slots)
{
	struct counts counts = {0};

	fill(pipeline, rank, slots, &counts);
	run(pipeline, slots, &counts);
	drain(pipeline, rank, slots, &counts);
}
