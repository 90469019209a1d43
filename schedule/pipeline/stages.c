/* Finds what a plan says of its pipeline: the order of micro-batches, and what each rank holds. */
#include "schedule/pipeline/pipeline.h"

/* Schedules with several stages on a rank have two unless more are asked for. */
static bool has_several(enum pipeline_schedule schedule)
{
	return schedule != PIPELINE_1F1B && schedule != PIPELINE_GPIPE &&
	       schedule != PIPELINE_ZB_H1;
}

struct pipeline plan_pipeline(const struct plan *plan)
{
	int64_t fewest = has_several(plan->pipeline_schedule) ? 2 : 1;
	return (struct pipeline){.schedule = plan->pipeline_schedule,
		.ranks = (int)plan->mesh.pipeline,
		.chunks = (int)max_i64(plan->virtual_stages, fewest),
		.micro_batches = (int)plan->grad_accum,
		.pairs = plan->expert_overlap};
}

/* The cost is that of a column of products as wide as the hidden size. Keys and values count as
 * queries do (nanotron/models/llama.py, get_block_compute_costs). */
static double block_cost(const struct architecture *a)
{
	return (double)(4 * a->hidden + (architecture_is_gated(a) ? 3 : 2) * a->ffn);
}

bool plan_split(
	const struct plan *plan, const struct model *model, int *stages, struct error *error)
{
	const struct architecture *a = &model_whole(model)->architecture;
	const struct pipeline pipeline = plan_pipeline(plan);
	const struct rows *listed = &plan->layers_per_stage;
	int n = pipeline.ranks * pipeline.chunks;
	int ends = runtime_of(plan->runtime)->ends_are_blocks;
	const struct pipeline_split split = {.blocks = (int)model->architecture.layers,
		.ranks = pipeline.ranks,
		.chunks = pipeline.chunks,
		.embedding = ends,
		.head = ends};
	if (listed->text == NULL && runtime_of(plan->runtime)->cuts_by_cost)
		return pipeline_split_by_cost(
			&split, block_cost(a), (double)a->vocab, stages, error);
	if (listed->text == NULL)
		return pipeline_split_even(&split, stages, error);
	for (int s = 0; s < n; s++)
		stages[s] = listed->n > 0 && s >= listed->n ? 0 : rows_at(listed, s);
	return pipeline_split_listed(&split, stages, listed->n > 0 ? listed->n : n, error);
}

/* Returns the first block of a stage. */
static int first_of(const int *stages, int stage)
{
	int first = 0;
	for (int s = 0; s < stage; s++)
		first += stages[s];
	return first;
}

const struct model *plan_stage(const struct plan *plan, const struct model *model, int rank,
	struct arena *arena, const int **chunks)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int n_stages = pipeline.ranks * pipeline.chunks;
	int blocks = (int)model->architecture.layers, n = 0;
	int *stages = ARENA_ARRAY(arena, int, n_stages);
	int *layers = ARENA_ARRAY(arena, int, blocks), *of = ARENA_ARRAY(arena, int, blocks);
	struct stage_part stage = {.layers = layers};
	struct error error = {0};
	*chunks = of;
	if (pipeline.ranks == 1 || !plan_split(plan, model, stages, &error))
		return model;
	for (int c = 0; c < pipeline.chunks; c++) {
		int s = pipeline_stage(&pipeline, rank, c), first = first_of(stages, s);
		stage.embedding = stage.embedding || s == 0;
		stage.head = stage.head || s == n_stages - 1;
		for (int l = 0; l < stages[s]; l++, n++) {
			layers[n] = first + l;
			of[n] = c;
		}
	}
	stage.n_layers = n;
	return model_stage(arena, model, &stage);
}
