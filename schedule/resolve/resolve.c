/* Makes a complete plan of a question: defaults, the mesh and the batch arithmetic. */
#include <stdio.h>
#include <string.h>

#include "schedule/resolve/resolve.h"

/* The fullest rank has so many times the mean number of rows where routers balance well [U]. */
static const double expert_load = 1.1;

/* --- defaults (docs/commands.md) -----------------------------------------------------------------
 */

int64_t plan_usual_length(const struct model *model)
{
	return min_i64(model->architecture.context, 4096);
}

/* Where the question leaves a knob open, the table's default holds, or what the model or the
 * machine say. */
static void take_defaults(struct plan *plan, const struct question *question)
{
	const struct architecture *architecture = &question->model->architecture;
	bool cpu = question->topology->device.kind == DEVICE_CPU;

	for (int id = 0; id < KNOB_IN_MESH; id++)
		if (!question_gives(question, (enum knob_id)id))
			knob_set_default((enum knob_id)id, plan, cpu);
	if (!question_gives(question, KNOB_PARAM_DTYPE))
		plan->param_dtype = plan_default_dtype(question->topology);
	if (!question_gives(question, KNOB_WRAP))
		plan->wrap = wrap_of_kind(WRAP_BLOCK);
	if (!question_gives(question, KNOB_LIBRARIES))
		plan->libraries = libraries_unknown;
	if (!question_gives(question, KNOB_TRAINABLE))
		plan->trainable = architecture->trainable;
	if (!question_gives(question, KNOB_SEQ_LEN))
		plan->seq_len = plan_usual_length(question->model);
}

/* The default is fp32 inside of the loss, as in scripts of PyTorch, or the runtime's own loss if it
 * has one. MPT models are trained by llm-foundry, whose default is flash-attn's fused loss. */
static enum loss_kind default_loss(enum runtime_kind kind, const struct model *model)
{
	const struct runtime *runtime = runtime_of(kind);
	bool fused = runtime->loss_in_place || model->architecture.family == FAMILY_MPT;

	if (runtime->parallel_loss)
		return LOSS_PARALLEL;
	return fused && knob_honoured(KNOB_LOSS, kind, LOSS_FUSED) ? LOSS_FUSED : LOSS_UPCAST;
}

/* The default is FULL_SHARD if the runtime has it, or else the highest stage of ZeRO. */
static enum strategy default_strategy(enum runtime_kind runtime)
{
	unsigned has = knob_values(KNOB_STRATEGY, runtime);
	int strategy = STRATEGY_COUNT - 1;
	if (has >> STRATEGY_FULL_SHARD & 1)
		return STRATEGY_FULL_SHARD;
	while (!(has >> strategy & 1))
		strategy--;
	return (enum strategy)strategy;
}

/* ZeRO fixes when gradients are reduced and, unless the question says otherwise, in which dtype.
 * DDP reduces them in the dtype of its parameters. */
static void adapt_to_zero(struct plan *plan, const struct question *question)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	bool each, given = question_gives(question, KNOB_REDUCE_DTYPE);
	if (plan_syncs(plan, &each) && !question_gives(question, KNOB_SYNC_EACH_MICRO_BATCH))
		plan->sync_each_micro_batch = each;
	if (zero != NULL && !zero->fp32_gradients && !given)
		plan->reduce_dtype = plan->param_dtype;
	if (plan_reduces_masters(plan) && !given)
		plan->reduce_dtype = plan->master_dtype;
}

static bool asks_for_stages(const struct question *question)
{
	return question_gives(question, KNOB_PIPELINE) && question->asked.mesh.pipeline > 1;
}

/* Between the micro-batches of a pipeline gradients are added up. torchtitan leaves parameters
 * gathered after forward there (fsdp_reshard_after_forward "default"). */
static void adapt_to_pipeline(struct plan *plan, const struct question *question)
{
	if (!asks_for_stages(question))
		return;
	if (!question_gives(question, KNOB_SYNC_EACH_MICRO_BATCH) &&
		knob_honoured(KNOB_SYNC_EACH_MICRO_BATCH, plan->runtime, false))
		plan->sync_each_micro_batch = false;
	if (!question_gives(question, KNOB_STRATEGY) && plan->strategy == STRATEGY_FULL_SHARD)
		plan->strategy = STRATEGY_SHARD_GRAD_OP;
}

/* FSDP1 over a single rank warns and goes on as NO_SHARD. With offload it stays here as it was
 * asked. */
static bool becomes_unsharded(const struct plan *plan, const struct topology *topology)
{
	return runtime_of(plan->runtime)->one_rank_is_unsharded &&
	       topology_devices(topology) == 1 && !plan_offloads(plan, OFFLOAD_PARAMETERS);
}

/* FSDP2 has no NO_SHARD. People run DDP instead, and the row says so. A knob that the runtime does
 * not have, and that nobody asked for, takes the value that the runtime really has. */
static void adapt_to_runtime(struct plan *plan, const struct question *question)
{
	if (plan->runtime == RUNTIME_PYTORCH_FSDP2 && plan->strategy == STRATEGY_NO_SHARD)
		plan->runtime = RUNTIME_PYTORCH_DDP;
	const struct runtime *runtime = runtime_of(plan->runtime);
	bool unsharded = becomes_unsharded(plan, question->topology);
	if (unsharded || !question_gives(question, KNOB_STRATEGY))
		plan->strategy = unsharded ? STRATEGY_NO_SHARD : default_strategy(plan->runtime);
	adapt_to_pipeline(plan, question);
	adapt_to_zero(plan, question);
	if (!knob_honoured(KNOB_LIMIT_ALL_GATHERS, plan->runtime, true) &&
		!question_gives(question, KNOB_LIMIT_ALL_GATHERS))
		plan->limit_all_gathers = false;
	if (!question_gives(question, KNOB_OPTIMIZER) &&
		(plan->runtime == RUNTIME_SHARDPLAN || runtime->zero != NULL))
		plan->optimizer = OPTIMIZER_ADAMW_FUSED;
	if (!question_gives(question, KNOB_LOSS))
		plan->loss = default_loss(plan->runtime, question->model);
	if (plan->recompute_modules.of != 0 &&
		!question_gives(question, KNOB_ACTIVATION_CHECKPOINTING))
		plan->activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_SELECTIVE);
	if (!plan_checkpoints(plan, CHECKPOINTING_SELECTIVE))
		plan->recompute_modules = (struct name_set){0};
	if (!question_gives(question, KNOB_RESHARD_AFTER_FORWARD) || unsharded)
		plan->reshard_after_forward = rows_of_reshard(strategy_reshards(plan->strategy));
}

/* --- mesh ----------------------------------------------------------------------------------------
 */

const char *nearest_divisors(int64_t n, int64_t size, char text[48])
{
	int64_t below = min_i64(n, size), above = size;
	while (n % below != 0)
		below--;
	while (above < n && n % above != 0)
		above++;
	if (above > n || above == below || n % above != 0)
		snprintf(text, 48, "%lld", (long long)below);
	else
		snprintf(text, 48, "%lld or %lld", (long long)below, (long long)above);
	return text;
}

static const char *smaller_groups(enum strategy strategy)
{
	if (strategy_stage(strategy) > 0)
		return "leave it out";
	return strategy == STRATEGY_FULL_SHARD ? "use HYBRID_SHARD for smaller groups"
					       : "use HYBRID_SHARD_ZERO2 for smaller groups";
}

/* Takes the axes that the question gives, and finds how many ranks they leave to data
 * parallelism. */
static bool lay_out_axes(
	struct plan *plan, const struct question *question, int64_t *ranks, struct error *error)
{
	const struct architecture *a = &question->model->architecture;
	char nearest[48];
	*ranks = topology_devices(question->topology);
	for (int i = 0; i < KNOBS_OF_AXES; i++) {
		int64_t size = 1;
		if (question_gives(question, knobs_of_axes[i]))
			size = knob_get(knobs_of_axes[i], &question->asked).number;
		if (*ranks % size != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"--%s %lld: does not divide the %lld rank%s%s; use %s",
				knob_table[knobs_of_axes[i]].field.name, (long long)size,
				(long long)*ranks, *ranks == 1 ? "" : "s",
				*ranks < topology_devices(question->topology)
					? " that the axes before it leave"
					: "",
				knobs_of_axes[i] == KNOB_TENSOR
					? nearest_tensor(a, *ranks, size, nearest)
					: nearest_divisors(*ranks, size, nearest));
		knob_put(knobs_of_axes[i], plan, (union knob_value){.number = size});
		*ranks /= size;
	}
	if (!question_gives(question, KNOB_SEQUENCE_PARALLEL))
		plan->sequence_parallel = plan->mesh.tensor > 1;
	if (!question_gives(question, KNOB_CONTEXT_METHOD))
		plan->context_method =
			plan_usual_context_method(plan, &question->model->architecture);
	return true;
}

/* Where rows are dropped all ranks get as many; where there is memory for all rows, the fullest
 * rank is not asked for. */
static bool has_load(const struct plan *plan)
{
	return plan->capacity_factor == 0 && !runtime_of(plan->runtime)->experts.keeps_room;
}

/* Expert ranks are the ranks of the shard group once more, and no axis of the world. With experts
 * torchtitan also prefetches in forward, and Megatron-LM cuts experts as it cuts the rest, unless
 * DeepEP wants whole ones. How full
 * the fullest rank is says nothing if each rank has all experts or all ranks are equally full. */
static void lay_out_experts(struct plan *plan, const struct question *question)
{
	bool several = question_gives(question, KNOB_EXPERT) && question->asked.mesh.expert > 1;
	bool cuts = runtime_of(plan->runtime)->experts.routes_stream &&
		    plan->expert_dispatch == DISPATCH_ALL_TO_ALL;
	plan->mesh.expert = several ? question->asked.mesh.expert : 1;
	if (several && !question_gives(question, KNOB_EXPERT_TENSOR))
		plan->expert_tensor = cuts ? plan->mesh.tensor : 1;
	if (several && !question_gives(question, KNOB_EXPERT_LOAD))
		plan->expert_load = has_load(plan) ? expert_load : 0;
	if (several && !question_gives(question, KNOB_FORWARD_PREFETCH) &&
		runtime_of(plan->runtime)->copies_out)
		plan->forward_prefetch = true;
	if (!several)
		plan->expert_load = 0;
	if (!several && (question_gives(question, KNOB_EXPERT) || plan->expert_tensor == 1))
		plan->expert_tensor = 0;
}

/* Chooses the size of the shard group, out of `ranks` data-parallel ranks: as given, or the
 * strategy's own, which for a hybrid one is the node, or what pipeline stages leave of it. */
static bool choose_shard_group(const struct plan *plan, const struct question *question,
	int64_t ranks, int64_t *shard, struct error *error)
{
	const struct mesh *mesh = &plan->mesh;
	int64_t devices = question->topology->devices_per_node;
	int64_t node = max_i64(devices / (mesh->tensor * mesh->context), 1);
	int64_t given = question_gives(question, KNOB_SHARD_GROUP) ? question->asked.mesh.shard : 0;
	if (plan->strategy == STRATEGY_NO_SHARD) {
		*shard = 1;
		return given <= 1 ||
		       error_set(error, EXIT_CODE_USAGE,
			       "--shard-group %lld: NO_SHARD has no shard group, use HYBRID_SHARD",
			       (long long)given);
	}
	if (strategy_is_hybrid(plan->strategy)) {
		*shard = given > 0 ? given : node > 1 ? min_i64(node, ranks) : ranks;
		return true;
	}
	*shard = given > 0 ? given : ranks;
	return *shard == ranks || plan_has_zero_groups(plan) ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--shard-group %lld: %s shards over all %lld ranks; %s", (long long)given,
		       strategy_names[plan->strategy], (long long)ranks,
		       smaller_groups(plan->strategy));
}

static bool lay_out_mesh(struct plan *plan, const struct question *question, struct error *error)
{
	int64_t ranks, shard;
	char nearest[48];
	if (!lay_out_axes(plan, question, &ranks, error))
		return false;
	if (question_gives(question, KNOB_EXPERT_LOAD) && question->asked.expert_load > 0 &&
		question->model->architecture.experts == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--expert-load: %s has no experts; leave it out",
			question->model->architecture.name);
	lay_out_experts(plan, question);
	if (!choose_shard_group(plan, question, ranks, &shard, error))
		return false;
	if (shard > ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"--shard-group %lld: %s only %lld ranks; use at most %lld",
			(long long)shard,
			ranks < topology_devices(question->topology) ? "the other axes leave"
								     : "there are",
			(long long)ranks, (long long)ranks);
	if (ranks % shard != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--shard-group %lld: does not divide %lld ranks; %s would",
			(long long)shard, (long long)ranks,
			nearest_divisors(ranks, shard, nearest));
	plan->mesh.shard = shard;
	plan->mesh.replicate = ranks / shard;
	return true;
}

/* --- batch ---------------------------------------------------------------------------------------
 */

/* Ends a message on a batch that nobody trains with, as tokens were meant. */
static const char *tokens_meant(const struct plan *plan)
{
	enum { PUBLISHED_MOST = 1 << 28 }; /* tokens in a step, and some room */
	return plan->global_batch > PUBLISHED_MOST / plan->seq_len
		       ? "; it counts sequences, not tokens"
		       : "";
}

/* ", or use --tensor 2": with so many tensor ranks of a node, data parallelism has ranks that
 * divide the batch; else "". */
static void tensor_ranks_that_divide(
	const struct plan *plan, const struct question *question, int64_t product, char text[48])
{
	const struct architecture *a = &question->model->architecture;
	int64_t node = question->topology->devices_per_node;

	text[0] = '\0';
	if (question_gives(question, KNOB_TENSOR) || tokens_meant(plan)[0] != '\0' ||
		(knob_table[KNOB_TENSOR].runtimes >> plan->runtime & 1) == 0)
		return;
	for (int64_t t = node; t > 1; t--)
		if (plan_data_parallel(plan) % t == 0 && plan->global_batch % (product / t) == 0 &&
			tensor_divides(a, node, t))
			snprintf(text, 48, ", or use --tensor %lld", (long long)t);
}

/* ", or use --gpus 64": where none of the node's tensor ranks do, so many of its devices divide the
 * batch. Leaves `text` as it is where neither does. */
static void devices_that_divide(
	const struct plan *plan, const struct question *question, int64_t product, char text[48])
{
	int64_t node = question->topology->devices_per_node;

	if (text[0] != '\0' || question->topology->nodes > 1 || tokens_meant(plan)[0] != '\0')
		return;
	for (int64_t n = node - 1; 2 * n >= node && text[0] == '\0'; n--)
		if (product * n % node == 0 && plan->global_batch % (product * n / node) == 0)
			snprintf(text, 48, ", or use --gpus %lld", (long long)n);
}

static bool batch_remainder(const struct plan *plan, const struct question *question,
	const char *what, int64_t product, struct error *error)
{
	char others[48];
	int64_t global = plan->global_batch, ranks = plan_data_parallel(plan);
	int64_t below = global / product * product;
	if (below > INT64_MAX - product)
		return error_set(error, EXIT_CODE_USAGE, "--global-batch %lld: is too large",
			(long long)global);
	if (global < ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"--global-batch %lld: each of %lld data-parallel ranks needs a sequence; "
			"use %lld, or fewer devices",
			(long long)global, (long long)ranks, (long long)product);
	tensor_ranks_that_divide(plan, question, product, others);
	devices_that_divide(plan, question, product, others);
	return error_set(error, EXIT_CODE_USAGE,
		"--global-batch %lld: not a multiple of %s = %lld; %lld or %lld would be%s%s",
		(long long)global, what, (long long)product,
		(long long)(below > 0 ? below : product),
		(long long)(below > 0 ? below + product : 2 * product), others, tokens_meant(plan));
}

/* global_batch = micro_batch x grad_accum x data-parallel ranks, so two of them give the third. A
 * pipeline gets four micro-batches a rank, from where on GPipe's paper calls the bubble small
 * (arXiv:1811.06965, section 2.3). */
static bool batch_arithmetic(
	struct plan *plan, const struct question *question, struct error *error)
{
	bool micro = question_gives(question, KNOB_MICRO_BATCH);
	bool accum = question_gives(question, KNOB_GRAD_ACCUM);
	bool global = question_gives(question, KNOB_GLOBAL_BATCH);
	int64_t ranks = plan_data_parallel(plan), product;
	if (!micro && !(global && accum))
		plan->micro_batch = 1;
	if (!accum && !global)
		plan->grad_accum = plan->mesh.pipeline > 1 ? 4 * plan->mesh.pipeline : 1;
	if (global && accum && !micro) {
		if (!checked_mul(ranks, plan->grad_accum, &product))
			return error_set(error, EXIT_CODE_USAGE,
				"--grad-accum %lld: the batch is too large",
				(long long)plan->grad_accum);
		if (plan->global_batch % product != 0)
			return batch_remainder(plan, question, "data-parallel ranks x --grad-accum",
				product, error);
		plan->micro_batch = plan->global_batch / product;
	} else if (global && !accum) {
		if (!checked_mul(ranks, plan->micro_batch, &product))
			return error_set(error, EXIT_CODE_USAGE,
				"--micro-batch %lld: the batch is too large",
				(long long)plan->micro_batch);
		if (plan->global_batch % product != 0)
			return batch_remainder(plan, question,
				"data-parallel ranks x --micro-batch", product, error);
		plan->grad_accum = plan->global_batch / product;
	}
	if (!checked_mul(plan->micro_batch, plan->grad_accum, &product) ||
		!checked_mul(product, ranks, &product))
		return error_set(error, EXIT_CODE_USAGE,
			"--micro-batch %lld: the batch is too large", (long long)plan->micro_batch);
	if (global && plan->global_batch != product)
		return error_set(error, EXIT_CODE_USAGE,
			"--global-batch %lld: "
			"micro-batch %lld x accumulation %lld x %lld ranks is %lld; "
			"drop one of the options or use --global-batch %lld",
			(long long)plan->global_batch, (long long)plan->micro_batch,
			(long long)plan->grad_accum, (long long)ranks, (long long)product,
			(long long)product);
	plan->global_batch = product;
	return true;
}

/* --- the whole -----------------------------------------------------------------------------------
 */

/* Takes defaults and lays out the mesh. */
static bool lay_out(const struct question *question, struct plan *plan, struct error *error)
{
	*plan = question->asked;
	plan->mesh = (struct mesh){1, 1, 1, 1, 1, 1};
	take_defaults(plan, question);
	adapt_to_runtime(plan, question);
	return lay_out_mesh(plan, question, error);
}

bool plan_has_mesh(const struct question *question, struct error *error)
{
	struct plan plan;
	return lay_out(question, &plan, error);
}

bool plan_resolve(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error)
{
	if (!lay_out(question, plan, error) || !batch_arithmetic(plan, question, error) ||
		!plan_check(plan, question->model, question->topology, error))
		return false;
	plan_normalise(plan, arena);
	return true;
}
