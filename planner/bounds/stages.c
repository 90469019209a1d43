/* Bounds of pipelines, from the load of the whole model: what its blocks compute, exchange and save
 * for a micro-batch.
 *
 * Time. A rank computes for each of m micro-batches, one after the other, and where tensor or
 * context ranks exchange something, compute waits for it. It begins when the first one has come
 * through the first stage of each rank before it, and those stages' backwards end after its own. So
 * a step takes at least the most over ranks of m times its own passes plus the passes through these
 * stages. Where backward is split, gradients of weights may be what ends last: then these passes do
 * not count. Unless receives are posted early, a rank asks for what a pass begins with when it has
 * computed all that comes before (pass_messages), so that every message is waited for: the more
 * stages a rank has, the longer. Nor does a step end before the thread of any rank has issued it.
 *
 * Memory. The first rank keeps what its blocks save for as many micro-batches as the order lets it
 * begin (pipeline.h), the weight parts of backward to the last. States are shared out over the
 * stages; the largest part is not below the mean, nor below that of the rank whose blocks have the
 * most parameters. */
#include "planner/bounds/bounds.h"

#include <math.h>

#include "planner/bounds/parts.h"
#include "simulator/costs/costs.h"

/* Of the blocks how many each stage has. */
static const int *stages_of(const struct plan *plan, const struct model *model, struct arena *arena)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int *stages = ARENA_ARRAY(arena, int, pipeline.ranks *pipeline.chunks);
	struct error error = {0};
	plan_split(plan, model, stages, &error); /* the plan was checked */
	return stages;
}

static double blocks_of_rank(const struct pipeline *pipeline, const int *stages, int rank)
{
	int blocks = 0;
	for (int c = 0; c < pipeline->chunks; c++)
		blocks += stages[pipeline_stage(pipeline, rank, c)];
	return blocks;
}

/* Between stages of two ranks; both are alike where they are of one. */
struct messages {
	const struct topology *topology;
	struct pipeline pipeline;
	int64_t apart, bytes;
};

static struct messages messages_of(
	const struct topology *topology, const struct plan *plan, const struct model *model)
{
	const struct activation_rules rules =
		plan_activation_rules(plan, topology->device.generation);
	int64_t parts = plan->scatter_gather ? plan->mesh.tensor : 1;
	return (struct messages){topology, plan_pipeline(plan),
		plan_reduce_ranks(plan) * plan->mesh.tensor,
		model_residual_bytes(model, &rules, plan->micro_batch, plan->seq_len) / parts};
}

/* Seconds for which a stage waits for what comes from the stage so far on. */
static double wait_for(const struct messages *messages, int stage, int distance)
{
	const struct pipeline *pipeline = &messages->pipeline;
	int from, to, chunk, sender = stage + distance;
	if (sender < 0 || sender >= pipeline->ranks * pipeline->chunks)
		return 0;
	pipeline_place(pipeline, sender, &from, &chunk);
	pipeline_place(pipeline, stage, &to, &chunk);
	return from == to ? 0
			  : cost_message(
				    messages->topology, messages->apart, from, to, messages->bytes);
}

/* In forward and backward. */
static double waits_of(const struct messages *messages, int stage)
{
	const struct pipeline *pipeline = &messages->pipeline;
	if (pipeline->pairs || pipeline_receives_early(pipeline))
		return 0;
	return wait_for(messages, stage, -1) + wait_for(messages, stage, 1);
}

static double waits_of_rank(const struct messages *messages, int rank)
{
	double waits = 0;
	for (int c = 0; c < messages->pipeline.chunks; c++)
		waits += waits_of(messages, pipeline_stage(&messages->pipeline, rank, c));
	return waits;
}

double bound_stages_time(const struct topology *topology, const struct plan *plan,
	const struct model *model, const struct stage_load *load)
{
	const struct messages messages = messages_of(topology, plan, model);
	const struct pipeline pipeline = messages.pipeline;
	int64_t blocks = model->architecture.layers;
	struct arena arena = {0};
	const int *stages = stages_of(plan, model, &arena);
	double block = load->blocks / (double)blocks, issue = load->issue / (double)blocks;
	double before = 0, time = 0;
	bool splits = pipeline_splits_backward(pipeline.schedule);
	int last, chunk;
	pipeline_place(&pipeline, pipeline.ranks * pipeline.chunks - 1, &last, &chunk);
	for (int k = 0; k < pipeline.ranks; k++) {
		int own = blocks_of_rank(&pipeline, stages, k);
		double pass = block * own + (k == last ? load->head : 0);
		pass += waits_of_rank(&messages, k);
		time = fmax(time, before + pipeline.micro_batches * pass);
		time = fmax(time, pipeline.micro_batches * issue * own);
		before += splits ? 0 : block * stages[k] + waits_of(&messages, k);
	}
	arena_finish(&arena);
	return time * (1 - 1e-3); /* stages begin and end ranges of their own */
}

/* Blocks of the first rank that hold what they have saved, at the most. */
static int most_held(const struct pipeline *pipeline, const int *stages,
	const struct pipeline_slot *slots, int n)
{
	int held = 0, most = 0;
	for (int i = 0; i < n; i++) {
		int blocks = stages[pipeline_stage(pipeline, 0, slots[i].chunk)];
		if (slots[i].pass == PIPELINE_FORWARD)
			held += blocks;
		else if (slots[i].pass != PIPELINE_BACKWARD_INPUT)
			held -= blocks;
		most = held > most ? held : most;
	}
	return most;
}

/* Of a rank's blocks. `before`: of all blocks before each. */
static struct elements elements_of_rank(
	const struct pipeline *pipeline, const int *stages, int rank, const struct elements *before)
{
	struct elements sum = {0};
	int first = 0;
	for (int s = 0; s < pipeline->ranks * pipeline->chunks; s++) {
		int place, chunk, end = first + stages[s];
		pipeline_place(pipeline, s, &place, &chunk);
		if (place == rank) {
			sum.dense += before[end].dense - before[first].dense;
			sum.experts += before[end].experts - before[first].experts;
		}
		first = end;
	}
	return sum;
}

static int find_heaviest(const struct plan *plan, const struct model *part, struct elements *most)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	struct arena arena = {0};
	const int *stages = stages_of(plan, part, &arena);
	const struct elements *before = elements_before(part, &arena);
	int heaviest = 0;
	*most = (struct elements){0};
	for (int k = 0; k < pipeline.ranks; k++) {
		const struct elements own = elements_of_rank(&pipeline, stages, k, before);
		if (own.dense + own.experts <= most->dense + most->experts)
			continue;
		heaviest = k;
		*most = own;
	}
	arena_finish(&arena);
	return heaviest;
}

int bounds_heaviest_stage(const struct plan *plan, const struct model *part)
{
	struct elements most;
	return find_heaviest(plan, part, &most);
}

/* Micro-batches a rank that fill a pipeline. */
enum { FILLING = 2 };

int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load)
{
	struct pipeline pipeline = plan_pipeline(plan);
	int64_t blocks = part->architecture.layers;
	struct arena arena = {0};
	struct pipeline_slot *slots;
	struct elements most, mean = elements_of(part);
	if (pipeline.schedule != PIPELINE_GPIPE) /* more of them are never held */
		pipeline.micro_batches = min_i64(pipeline.micro_batches, FILLING * pipeline.ranks);
	int n = pipeline_order(&pipeline, 0, &arena, &slots);
	const int *stages = stages_of(plan, part, &arena);
	double held = most_held(&pipeline, stages, slots, n) / (double)blocks;
	int heaviest = find_heaviest(plan, part, &most);
	mean.dense /= pipeline.ranks;
	mean.experts /= pipeline.ranks;
	double first = elements_held(plan, &pipeline, 0, &mean, &arena);
	double fullest = elements_held(plan, &pipeline, heaviest, &most, &arena);
	arena_finish(&arena);
	return (int64_t)fmax(0.95 * (load->saved * held + first), 0.99 * fullest);
}
