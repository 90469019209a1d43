/* torchtitan's pipelines: degree and schedule, micro-batches, and what makes the stages; how
 * context and tensor ranks exchange.
 *
 * Stages are even, with the embedding and the head counting as blocks. A rank has one, or two where
 * the schedule is neither 1F1B nor GPipe; a number of blocks a stage makes it as many as that
 * takes.
 */
#include <string.h>

#include "frameworks/targets/torchtitan.h"
#include "schedule/pipeline/pipeline.h"

#define KEY(name) "parallelism.pipeline_parallel_" name

static const char schedule_path[] = KEY("schedule"), size_path[] = KEY("microbatch_size"),
		  stage_path[] = KEY("layers_per_stage");
static const char first_path[] = KEY("first_stage_less_layers"),
		  last_path[] = KEY("last_stage_less_layers");

bool titan_is_pipelined(const struct exporting *exporting)
{
	return exporting->plan->mesh.pipeline > 1;
}

/* --- writing -------------------------------------------------------------------------------- */

/* Up to 0.2 pipelines have replicas and parameters in another dtype with FSDP alone
 * (models/llama3/infra/parallelize.py, distributed/utils.py). */
static void adapt_unsharded_stages(struct exporting *exporting, struct plan *plan)
{
	if (plan->mesh.replicate > 1)
		export_change(exporting, plan, KNOB_STRATEGY, "SHARD_GRAD_OP",
			"DDP has no pipelines there");
	else if (plan->master_dtype == DTYPE_FP32)
		export_change(exporting, plan, KNOB_PARAM_DTYPE, "fp32",
			"a pipeline mixes precisions with FSDP alone");
}

void titan_adapt_stages(struct exporting *exporting, struct plan *plan)
{
	bool pipelined = plan->mesh.pipeline > 1;

	if (plan->grad_accum > 1)
		export_change(exporting, plan, KNOB_SYNC_EACH_MICRO_BATCH,
			pipelined ? "false" : "true",
			pipelined ? "a pipeline reduces after its last micro-batch"
				  : "torchtitan reduces after every micro-batch");
	if (plan->pipeline_schedule == PIPELINE_ZB_H1 && plan_pipeline(plan).chunks == 1)
		export_change(exporting, plan, KNOB_VIRTUAL_STAGES, "2",
			"InterleavedZeroBubble has several stages a rank there");
	if (pipelined && plan->strategy == STRATEGY_NO_SHARD &&
		exporting->target->syntax == SYNTAX_TOML)
		adapt_unsharded_stages(exporting, plan);
}

static const char *number(struct exporting *exporting, int64_t value)
{
	return arena_printf(exporting->arena, "%lld", (long long)value);
}

const char *titan_schedule(struct exporting *exporting)
{
	static const char *const names[PIPELINE_SCHEDULE_COUNT] = {[PIPELINE_1F1B] = "1F1B",
		[PIPELINE_GPIPE] = "GPipe",
		[PIPELINE_INTERLEAVED] = "Interleaved1F1B",
		[PIPELINE_ZB_H1] = "InterleavedZeroBubble",
		[PIPELINE_ZBV] = "ZBVZeroBubble",
		[PIPELINE_DUALPIPEV] = "DualPipeV"};

	return titan_is_pipelined(exporting) ? names[exporting->plan->pipeline_schedule] : NULL;
}

const char *titan_micro_batch(struct exporting *exporting)
{
	return titan_is_pipelined(exporting) ? number(exporting, exporting->plan->micro_batch)
					     : NULL;
}

const char *titan_micro_batches(struct exporting *exporting)
{
	return titan_is_pipelined(exporting) ? number(exporting, exporting->plan->grad_accum)
					     : NULL;
}

const char *titan_local_batch(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	int64_t together = titan_is_pipelined(exporting) ? plan->grad_accum : 1;

	return number(exporting, plan->micro_batch * together);
}

static struct pipeline_split usual_split(const struct exporting *exporting)
{
	const struct pipeline pipeline = plan_pipeline(exporting->plan);

	return (struct pipeline_split){.blocks = (int)exporting->model->architecture.layers,
		.ranks = pipeline.ranks,
		.chunks = pipeline.chunks,
		.embedding = 1,
		.head = 1};
}

/* What the ends have to count as for the plan's stages; false: nothing makes them. */
static bool find_ends(const struct exporting *exporting, struct pipeline_split *split)
{
	struct error error = {0};
	*split = usual_split(exporting);
	int n = split->ranks * split->chunks, most = split->blocks / n + 2;
	int *wanted = ARENA_ARRAY(exporting->arena, int, n);
	int *made = ARENA_ARRAY(exporting->arena, int, n);

	if (exporting->plan->layers_per_stage.text == NULL)
		return true;
	if (!plan_split(exporting->plan, exporting->model, wanted, &error))
		return false;
	for (split->embedding = 0; split->embedding <= most; split->embedding++) {
		for (split->head = 0; split->head <= most; split->head++) {
			if (pipeline_split_even(split, made, &error) &&
				memcmp(made, wanted, (size_t)n * sizeof(*made)) == 0)
				return true;
		}
	}
	*split = usual_split(exporting);
	return false;
}

static const char *end(struct exporting *exporting, bool is_head)
{
	struct pipeline_split split;

	if (!titan_is_pipelined(exporting) || !find_ends(exporting, &split) ||
		(split.embedding == 1 && split.head == 1))
		return NULL;
	return number(exporting, is_head ? split.head : split.embedding);
}

const char *titan_embedding(struct exporting *exporting)
{
	return end(exporting, false);
}

const char *titan_head(struct exporting *exporting)
{
	return end(exporting, true);
}

static int ceiling(int a, int b)
{
	return (a + b - 1) / b;
}

/* 0: no size makes so many stages. */
static int stage_size(const struct exporting *exporting)
{
	struct pipeline_split split;
	find_ends(exporting, &split);
	int all = split.blocks + split.embedding + split.head;
	int n = split.ranks * split.chunks, size = ceiling(all, n);

	return ceiling(all, size) == n ? size : 0;
}

/* The framework's own number. */
static bool has_usual_stages(const struct exporting *exporting)
{
	return plan_pipeline(exporting->plan).chunks <= 2;
}

const char *titan_stage(struct exporting *exporting)
{
	if (!titan_is_pipelined(exporting) || has_usual_stages(exporting))
		return NULL;
	int size = stage_size(exporting);
	return size > 0 ? number(exporting, size) : NULL;
}

static bool lacks_split(const struct exporting *exporting)
{
	struct pipeline_split split;

	return titan_is_pipelined(exporting) && !find_ends(exporting, &split);
}

static bool lacks_number(const struct exporting *exporting)
{
	return titan_is_pipelined(exporting) && !has_usual_stages(exporting) &&
	       stage_size(exporting) == 0;
}

bool titan_leaves_stages(const struct exporting *exporting)
{
	return lacks_split(exporting) || lacks_number(exporting);
}

void titan_note_stages(struct exporting *exporting)
{
	static const char words[] = "module_fqns_per_model_part";
	const struct plan *plan = exporting->plan;

	if (lacks_split(exporting))
		export_note_elsewhere(exporting, "layers_per_stage", "%s: %s",
			plan->layers_per_stage.text, words);
	if (lacks_number(exporting))
		export_note_elsewhere(exporting, "virtual_stages", "%lld: %s",
			(long long)plan->virtual_stages, words);
}

/* --- import ---------------------------------------------------------------------------------- */

/* Stages that are listed by name, and orders of one's own. */
static bool refuse_lists(const struct importing *importing, struct error *error)
{
	static const char *const paths[] = {"parallelism.module_fqns_per_model_part*",
		KEY("split_points*"), KEY("schedule_csv")};

	for (int i = 0; i < COUNT_OF(paths); i++) {
		const struct node *node = import_find(importing, paths[i]);
		if (node != NULL && node->kind != NODE_NULL && node->text != NULL &&
			node->text[0] != '\0' && strcmp(node->text, "None") != 0)
			return import_fail(importing, paths[i], error,
				"stages by name are not read, expected none; "
				"use --layers-per-stage");
	}
	return true;
}

static bool read_end(
	const struct importing *importing, const char *path, int *count, struct error *error)
{
	const char *text = import_text(importing, path, "1");
	int64_t number;

	if (!parse_whole_number(text, &number) || number < 0 || number > 1000)
		return import_fail(
			importing, path, error, "expected a number of blocks, got \"%.60s\"", text);
	*count = (int)number;
	return true;
}

/* The text of --layers-per-stage. */
static const char *list_stages(struct arena *arena, const int *stages, int n)
{
	const char *text = "";

	for (int s = 0; s < n; s++)
		text = arena_printf(arena, "%s%s%d", text, s > 0 ? "," : "", stages[s]);
	return text;
}

static bool finish_ends(
	struct importing *importing, const struct pipeline_split *split, struct error *error)
{
	const char *path = split->embedding != 1 ? first_path : last_path;
	int n = split->ranks * split->chunks, *stages = ARENA_ARRAY(importing->arena, int, n);
	struct error why = {0};

	if (split->embedding == 1 && split->head == 1)
		return true;
	if (split->blocks == 0) {
		import_note(importing, path, "add --layers-per-stage: the model is not named here");
		return true;
	}
	if (!pipeline_split_even(split, stages, &why))
		return import_fail(importing, path, error, "%s", why.message);
	import_set(
		importing, KNOB_LAYERS_PER_STAGE, list_stages(importing->arena, stages, n), path);
	return true;
}

/* As many stages as so many blocks each make. */
static bool count_chunks(struct importing *importing, int64_t each, struct pipeline_split *split,
	struct error *error)
{
	int64_t all = split->blocks + split->embedding + split->head;
	bool several = split->chunks > 1;

	if (split->blocks == 0) {
		import_note(
			importing, stage_path, "add --virtual-stages: the model is not named here");
		return true;
	}
	int64_t n = (all - 1) / each + 1;
	split->chunks = (int)(n / split->ranks);
	if (n % split->ranks != 0 || several != (split->chunks > 1) || split->chunks < 1)
		return import_fail(importing, stage_path, error,
			"%lld blocks with embedding and head make %lld stages, "
			"expected %s for each of %d ranks",
			(long long)all, (long long)n, several ? "two or more" : "one",
			split->ranks);
	return true;
}

bool titan_finish_stages(
	struct importing *importing, int64_t layers, int64_t ranks, struct error *error)
{
	struct pipeline_split split = {.blocks = (int)layers, .ranks = (int)ranks, .chunks = 1};
	int64_t each;

	if (ranks > 10000)
		return import_fail(importing, KEY("degree"), error, "expected at most 10000");
	if (!refuse_lists(importing, error) ||
		!import_key(importing, schedule_path, "1f1b", error) ||
		!read_end(importing, first_path, &split.embedding, error) ||
		!read_end(importing, last_path, &split.head, error) ||
		!import_count(importing, stage_path, &each, 0, error))
		return false;
	const char *schedule = import_value(importing, KNOB_PIPELINE_SCHEDULE);
	bool several = strcmp(schedule, "1f1b") != 0 && strcmp(schedule, "gpipe") != 0;
	split.chunks = several ? 2 : 1;
	if (each > 0 && !count_chunks(importing, each, &split, error))
		return false;
	if (several) {
		import_set_count(
			importing, KNOB_VIRTUAL_STAGES, split.chunks, each > 0 ? stage_path : NULL);
		import_note(importing, schedule_path,
			"embedding and head, units of their own, are predicted with the root");
	}
	return finish_ends(importing, &split, error);
}

const char *titan_local_path(const struct importing *importing)
{
	static const char older[] = "training.batch_size";

	return import_find(importing, older) != NULL ? older : "training.local_batch_size";
}

bool titan_finish_micro_batches(struct importing *importing, struct error *error)
{
	const char *local_path = titan_local_path(importing);
	static const char count_path[] = "parallelism.num_pp_microbatches",
			  tokens_path[] = "training.num_tokens_per_microbatch_per_dp_rank";
	int64_t local, size, count;

	if (!import_count(importing, local_path, &local, 0, error) ||
		!import_count(importing, size_path, &size, 1, error) ||
		!import_count(importing, count_path, &count, 1, error))
		return false;
	if (import_find(importing, count_path) != NULL ||
		import_find(importing, tokens_path) != NULL) {
		import_set_count(importing, KNOB_GRAD_ACCUM, count, count_path);
		return true;
	}
	import_set_count(importing, KNOB_MICRO_BATCH, size, size_path);
	if (local == 0)
		import_note(importing, NULL, "training.local_batch_size: add --grad-accum");
	else if (local % size != 0)
		return import_fail(importing, local_path, error,
			"expected a multiple of pipeline_parallel_microbatch_size %lld, got %lld",
			(long long)size, (long long)local);
	else
		import_set_count(importing, KNOB_GRAD_ACCUM, local / size, local_path);
	return true;
}

/* --- context ranks -----------------------------------------------------------------------------
 */

void titan_adapt_context(struct exporting *exporting, struct plan *plan)
{
	bool rotates = exporting->target->syntax == SYNTAX_TOML;

	if (plan->mesh.context == 1 || (rotates && plan->context_method == CONTEXT_RING))
		return;
	export_change(exporting, plan, KNOB_CONTEXT_METHOD, "all-gather",
		rotates ? "torchtitan has no all-to-all of heads"
			: "torchtitan gathers keys and values, since 0.3");
}

const char *titan_rotation(struct exporting *exporting)
{
	return exporting->plan->context_method == CONTEXT_RING ? "alltoall" : NULL;
}

const char *titan_comm_backend(struct exporting *exporting)
{
	return exporting->plan->expert_dispatch == DISPATCH_DEEPEP ? "deepep" : NULL;
}

/* One rank sends nothing, whatever the file says. */
static bool finish_comm_backend(struct importing *importing, struct error *error)
{
	static const char path[] = "parallelism.expert_parallel_comm_backend";
	const char *backend = import_text(importing, path, "standard");
	const char *ranks = import_text(importing, "parallelism.expert_parallel_degree", "1");

	if (strcmp(backend, "standard") != 0 && strcmp(backend, "deepep") != 0)
		return import_fail(importing, path, error,
			"expected standard or deepep, got \"%.40s\"", backend);
	if (strcmp(ranks, "1") != 0 && strcmp(backend, "deepep") == 0)
		import_set(importing, KNOB_EXPERT_DISPATCH, "deepep", path);
	return true;
}

/* One rank gathers nothing, whatever the file says. */
static bool finish_rotation(struct importing *importing, struct error *error)
{
	static const char path[] = "parallelism.context_parallel_rotate_method";
	const char *method = import_text(importing, path, "allgather");
	const char *ranks = import_text(importing, "parallelism.context_parallel_degree", "1");

	if (strcmp(method, "allgather") != 0 && strcmp(method, "alltoall") != 0)
		return import_fail(importing, path, error,
			"expected allgather or alltoall, got \"%.40s\"", method);
	if (strcmp(ranks, "1") != 0)
		import_set(importing, KNOB_CONTEXT_METHOD,
			strcmp(method, "alltoall") == 0 ? "ring" : "all-gather",
			import_find(importing, path) != NULL ? path : NULL);
	return true;
}

bool titan_finish_exchanges(struct importing *importing, struct error *error)
{
	return finish_rotation(importing, error) && finish_comm_backend(importing, error);
}

/* --- asynchronous tensor parallelism -------------------------------------------------------- */

const char *titan_async(struct exporting *exporting)
{
	bool from_shipped = exporting->target->syntax != SYNTAX_TOML &&
			    exporting->model->architecture.hidden == 16384;

	return exporting->plan->async_tensor ? "true" : from_shipped ? "false" : NULL;
}

bool titan_finish_async(struct importing *importing, int64_t tensor, struct error *error)
{
	static const char *const paths[] = {
		"parallelism.enable_async_tensor_parallel", "compile.enable_async_tensor_parallel"};

	for (int i = 0; i < COUNT_OF(paths); i++) {
		bool on;
		if (!import_switch(importing, paths[i], &on, false, error))
			return false;
		if (on && tensor > 1)
			import_set(importing, KNOB_ASYNC_TENSOR, "on", paths[i]);
	}
	return true;
}
