/* Refuses plans whose ranks the model cannot be divided over, or not by this runtime. */
#include <stdio.h>

#include "schedule/pipeline/pipeline.h"
#include "schedule/resolve/resolve.h"

bool tensor_divides(const struct architecture *a, int64_t ranks, int64_t tensor)
{
	return ranks % tensor == 0 && a->heads % tensor == 0 &&
	       (tensor % a->kv_heads == 0 || a->kv_heads % tensor == 0) && a->ffn % tensor == 0;
}

const char *nearest_tensor(const struct architecture *a, int64_t ranks, int64_t size, char text[48])
{
	int64_t below = min_i64(ranks, size), above = size;

	while (below > 1 && !tensor_divides(a, ranks, below))
		below--;
	while (above <= ranks && !tensor_divides(a, ranks, above))
		above++;
	if (above > ranks || above == below)
		snprintf(text, 48, "%lld", (long long)below);
	else
		snprintf(text, 48, "%lld or %lld", (long long)below, (long long)above);
	return text;
}

static bool check_divides(const struct plan *plan, int64_t whole, const char *what,
	const struct model *model, struct error *error)
{
	const struct mesh *mesh = &plan->mesh;
	int64_t ranks = plan_ranks(plan) / (mesh->pipeline * mesh->context);
	char nearest[48];
	if (whole % mesh->tensor == 0)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--tensor %lld: does not divide the %s of %s, %lld; use %s",
		(long long)mesh->tensor, what, model->architecture.name, (long long)whole,
		nearest_tensor(&model->architecture, ranks, mesh->tensor, nearest));
}

static bool check_axis(const struct plan *plan, enum knob_id id, struct error *error)
{
	char size[24];
	int64_t value = knob_get(id, plan).number;
	if (value == 1 || knob_table[id].runtimes >> plan->runtime & 1)
		return true;
	snprintf(size, sizeof(size), "%lld", (long long)value);
	return error_set(error, EXIT_CODE_USAGE,
		"--%s %s: runtime %s cannot do that; use 1, or --runtime pytorch-fsdp2",
		knob_table[id].field.name, size, runtime_names[plan->runtime]);
}

/* Each rank has as many whole tokens, and exact sums are made sequence by sequence. */
static bool check_tokens(const struct plan *plan, struct error *error)
{
	int64_t tokens = plan->micro_batch * plan->seq_len, tensor = plan->mesh.tensor;
	if (!plan->sequence_parallel)
		return true;
	if (plan->gradient_sums == SUMS_EXACT)
		return error_set(error, EXIT_CODE_USAGE,
			"--sequence-parallel on: "
			"--gradient-sums exact needs whole sequences on every tensor rank; "
			"use off");
	return tokens % tensor == 0 || error_set(error, EXIT_CODE_USAGE,
					       "--sequence-parallel on: "
					       "the %lld tokens of a micro-batch "
					       "are no multiple of the %lld tensor ranks; use off",
					       (long long)tokens, (long long)tensor);
}

/* Refuses what the executor does not cut over tensor ranks. */
static bool check_executed(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct architecture *a = &model->architecture;
	const struct {
		bool has;
		const char *what;
	} lacks[] = {
		{a->experts > 0, "experts"},
		{plan_chunks_head(plan), "the chunks of --loss fused-linear"},
	};
	if (plan->mesh.tensor == 1 || !runtime_of(plan->runtime)->adds_in_compute)
		return true;
	for (int i = 0; i < COUNT_OF(lacks); i++)
		if (lacks[i].has)
			return error_set(error, EXIT_CODE_USAGE,
				"--tensor %lld: runtime %s does not cut %s over tensor ranks; "
				"use 1",
				(long long)plan->mesh.tensor, runtime_names[plan->runtime],
				lacks[i].what);
	if (a->kv_heads % plan->mesh.tensor != 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--tensor %lld: runtime %s does not repeat key and value heads; "
			"use a divisor of the %lld of %s",
			(long long)plan->mesh.tensor, runtime_names[plan->runtime],
			(long long)a->kv_heads, a->name);
	return check_tokens(plan, error);
}

static bool check_expert_width(
	const char *option, int64_t ranks, const struct model *model, struct error *error)
{
	int64_t width = model->architecture.expert_ffn;
	char nearest[48];

	return width % ranks == 0 ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--%s %lld: does not divide the width of an expert of %s, %lld; use %s",
		       option, (long long)ranks, model->architecture.name, (long long)width,
		       nearest_divisors(width, ranks, nearest));
}

/* Megatron-Bridge's adapter of a row-parallel layer gathers its whole result. */
static bool gathers_adapters(const struct plan *plan, const struct model *model)
{
	for (int m = 0; m < model->n_modules && plan->runtime == RUNTIME_MEGATRON; m++)
		if (model->modules[m].adapter >= 0 &&
			module_cut(model->modules[m].kind) == CUT_COLUMNS)
			return true;
	return false;
}

/* Adapters are cut along their rank. */
static bool check_frozen(
	const struct plan *plan, const struct model *model, enum knob_id axis, struct error *error)
{
	int64_t ranks = knob_get(axis, plan).number, rank = plan->trainable.rank;
	char nearest[48];
	if (trainable_is_all(&plan->trainable) || ranks == 1)
		return true;
	if (plan->runtime == RUNTIME_SHARDPLAN)
		return error_set(error, EXIT_CODE_USAGE,
			"--%s %lld: runtime shardplan does not divide models with frozen "
			"parameters; use 1, --trainable all, or --runtime pytorch-fsdp2",
			knob_table[axis].field.name, (long long)ranks);
	if (axis == KNOB_TENSOR && gathers_adapters(plan, model))
		return error_set(error, EXIT_CODE_USAGE,
			"--tensor %lld: adapters of linear_proj and linear_fc2, whose whole "
			"results Megatron-Core gathers, are not modelled over ranks; use 1, or "
			"adapt linear_qkv and linear_fc1",
			(long long)ranks);
	return axis != KNOB_TENSOR || rank % ranks == 0 ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--tensor %lld: does not divide the rank of the adapters, %lld; use %s",
		       (long long)ranks, (long long)rank, nearest_divisors(rank, ranks, nearest));
}

/* Heads stay whole. Key and value heads are repeated where there are fewer of them than ranks. */
static bool check_tensor(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct architecture *a = &model->architecture;
	int64_t t = plan->mesh.tensor;
	if (plan->sequence_parallel && t == 1)
		return error_set(error, EXIT_CODE_USAGE,
			"--sequence-parallel on: there is one tensor rank; "
			"leave it out, or give --tensor");
	if (t == 1)
		return true;
	if (a->encoder_layers > 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--tensor %lld: an encoder's decoder is not cut over tensor ranks yet; "
			"use 1",
			(long long)t);
	return check_frozen(plan, model, KNOB_TENSOR, error) &&
	       check_divides(plan, a->heads, "attention heads", model, error) &&
	       (t % a->kv_heads == 0 ||
		       check_divides(plan, a->kv_heads, "key and value heads", model, error)) &&
	       check_divides(plan, a->ffn, "feed-forward width", model, error) &&
	       (a->experts == 0 ||
		       check_expert_width("tensor", plan_expert_tensor(plan), model, error));
}

/* Rounds are merged by what flash attention returns beside its result. With all-to-all each rank
 * gets whole heads, of queries and of keys (Transformer Engine's AttnFuncWithCPAndQKVOA2A). */
static bool check_context_method(
	const struct plan *plan, const struct model *model, struct error *error)
{
	const struct architecture *a = &model->architecture;
	const char *method = knob_name(KNOB_CONTEXT_METHOD, (int)plan->context_method);
	int64_t c = plan->mesh.context, heads = max_i64(a->kv_heads / plan->mesh.tensor, 1);
	char nearest[48];
	if (!plan_attends_by(plan, a, plan->context_method))
		return error_set(error, EXIT_CODE_USAGE,
			"--context-method %s: it computes no %s, which %s has; use %s", method,
			a->attention_sinks ? "attention sinks" : "windows", a->name,
			a->attention_sinks ? "all-to-all" : "all-gather or all-to-all");
	if (plan->context_method == CONTEXT_ALL_GATHER)
		return true;
	if (c == 1)
		return error_set(error, EXIT_CODE_USAGE,
			"--context-method %s: there is one context rank; "
			"leave it out, or give --context",
			method);
	if (plan->attention == ATTENTION_EAGER)
		return error_set(error, EXIT_CODE_USAGE,
			"--context-method %s: eager attention has none of it; "
			"use all-gather, or --attention flash",
			method);
	if (plan->context_method == CONTEXT_RING || heads % c == 0)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--context %lld: all-to-all shares out key and value heads, "
		"and %lld ranks do not divide the %lld of %s on a rank; "
		"use %s, or --context-method ring",
		(long long)c, (long long)c, (long long)heads, a->name,
		nearest_divisors(heads, c, nearest));
}

/* A rank has two chunks of each sequence, one from either end, which balances causal attention. */
static bool check_context(const struct plan *plan, const struct model *model, struct error *error)
{
	int64_t c = plan->mesh.context;
	if (!check_context_method(plan, model, error))
		return false;
	if (c == 1 || plan->seq_len % (2 * c) == 0)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--context %lld: %lld tokens do not make %lld chunks; use --seq-len %lld or %lld",
		(long long)c, (long long)plan->seq_len, (long long)(2 * c),
		(long long)max_i64(plan->seq_len / (2 * c), 1) * 2 * c,
		(long long)(plan->seq_len / (2 * c) + 1) * 2 * c);
}

/* Refuses knobs that say something of pipelines alone. */
static bool check_without_pipeline(const struct plan *plan, struct error *error)
{
	static const enum knob_id knobs[] = {
		KNOB_PIPELINE_SCHEDULE, KNOB_VIRTUAL_STAGES, KNOB_LAYERS_PER_STAGE};
	const struct plan none = {0};
	struct arena arena = {0};
	bool ok = true;
	for (int i = 0; i < COUNT_OF(knobs) && ok; i++)
		if (!knob_equal(knobs[i], plan, &none))
			ok = error_set(error, EXIT_CODE_USAGE,
				"--%s: there is one pipeline rank; "
				"leave it out, or give --pipeline",
				knob_option(knobs[i], &arena));
	arena_finish(&arena);
	return ok;
}

static bool trains_each_block(const struct model *model)
{
	int64_t next = 0; /* the first block without a trained parameter so far */
	for (int p = 0; p < model->n_parameters; p++) {
		int64_t layer = model->modules[model->parameters[p].module].layer;
		next += model->parameters[p].trainable && layer == next;
	}
	return next == model->architecture.layers;
}

/* Refuses what stages of a model cannot have. */
static bool check_parts(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct architecture *a = &model->architecture;
	bool splits = pipeline_splits_backward(plan->pipeline_schedule);
	const struct {
		bool is_so;
		const char *what;
	} refused[] = {
		{a->encoder_layers > 0, "an encoder and its decoder are not cut into stages yet; "
					"use 1"},
		{a->tied_head && !runtime_of(plan->runtime)->ties_stages,
			"the head is tied to the embedding, which is on another stage; use 1"},
		{a->tied_head && a->head_bias && plan_layout(plan) != LAYOUT_WHOLE,
			"the head has a bias beside the table that it shares with another stage; "
			"use 1"},
		{!trainable_is_all(&plan->trainable) && splits,
			"it splits backward, which is not modelled with frozen parameters; "
			"use another --pipeline-schedule, or --trainable all"},
		{!trains_each_block(model), "stages that train nothing are not modelled; "
					    "use 1, or name parameters of every block"},
		{plan_offloads_any(plan), "offload is not cut into stages yet; "
					  "use 1, or --cpu-offload none"},
		{plan_pipeline(plan).chunks > 1 && plan->wrap.kind != WRAP_BLOCK,
			"with several stages on each rank only blocks are wrapped; "
			"use --wrap block"},
		{plan->grad_accum > 1 && plan->sync_each_micro_batch,
			"gradients are reduced after the last micro-batch; "
			"use --sync-each-micro-batch off"},
		{plan->activation_offload != ACTIVATIONS_STAY,
			"offload is not cut into stages yet; use 1, or --activation-offload none"},
		{plan->reshard_after_forward.n > 0,
			"--reshard-after-forward by unit is not cut into stages; use one value"},
		/* torch.distributed.pipelining (docs/runtimes.md). */
		{splits && plan->runtime == RUNTIME_PYTORCH_DDP && plan_reduce_ranks(plan) > 1,
			"DDP does not see gradients of a backward in two parts; "
			"use --runtime pytorch-fsdp2, or --pipeline-schedule 1f1b"},
		{splits && plan->compile,
			"torch compiles no stages whose backward is in two parts; "
			"use --compile off, or --pipeline-schedule 1f1b"},
		{splits && (plan_checkpoints(plan, CHECKPOINTING_FULL) ||
				   plan_checkpoints(plan, CHECKPOINTING_SELECTIVE)),
			"in two parts backward computes a block again for each weight; "
			"use --activation-checkpointing none, or --pipeline-schedule 1f1b"},
	};
	for (int i = 0; i < COUNT_OF(refused); i++)
		if (refused[i].is_so)
			return error_set(error, EXIT_CODE_USAGE, "--pipeline %lld: %s",
				(long long)plan->mesh.pipeline, refused[i].what);
	return true;
}

/* A message may be cut into parts of tokens that all tensor ranks have. With sequence parallelism
 * each rank has tokens of its own. */
static bool check_messages(const struct plan *plan, struct error *error)
{
	const char *why = plan->mesh.pipeline == 1 ? "there is one pipeline rank"
			  : plan->mesh.tensor == 1 ? "there is one tensor rank"
			  : plan->sequence_parallel
				  ? "with sequence parallelism each rank sends its own tokens"
				  : NULL;
	return !plan->scatter_gather || why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--scatter-gather on: %s; leave it out", why);
}

/* Modules of multi-token prediction stand beside the loss. */
static bool check_last_stage(const struct model *model, int blocks, struct error *error)
{
	int64_t modules = model_whole(model)->architecture.mtp_layers;
	return blocks >= modules ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--mtp-layers: the last stage has %d of the %lld modules of multi-token "
		       "prediction, expected all; use other --layers-per-stage, which counts them",
		       blocks, (long long)modules);
}

static bool check_pipeline(const struct plan *plan, const struct model *model, struct error *error)
{
	int64_t stages = plan->mesh.pipeline, most = model->architecture.layers + 2;
	struct arena arena = {0};
	if (stages == 1)
		return check_without_pipeline(plan, error);
	if (stages > most || plan->virtual_stages > most / stages)
		return error_set(error, EXIT_CODE_USAGE,
			"--%s %lld: %s has %lld blocks; use at most %lld",
			stages > most ? "pipeline" : "virtual-stages",
			(long long)(stages > most ? stages : plan->virtual_stages),
			model->architecture.name, (long long)most - 2,
			(long long)max_i64(stages > most ? most - 2 : (most - 2) / stages, 1));
	if (plan->pipeline_schedule == PIPELINE_INTERLEAVED && plan->virtual_stages == 1)
		return error_set(error, EXIT_CODE_USAGE,
			"--virtual-stages 1: interleaved has several stages on each rank; use 2, "
			"or --pipeline-schedule 1f1b");
	const struct pipeline pipeline = plan_pipeline(plan);
	bool torch = runtime_of(plan->runtime)->ends_are_blocks;
	int64_t n = stages * pipeline.chunks;
	int *blocks = ARENA_ARRAY(&arena, int, n);
	bool ok = check_frozen(plan, model, KNOB_PIPELINE, error) &&
		  check_parts(plan, model, error) && pipeline_check(&pipeline, torch, error) &&
		  plan_split(plan, model, blocks, error) &&
		  check_last_stage(model, blocks[n - 1], error);
	arena_finish(&arena);
	return ok;
}

/* In torchtitan's layout expert ranks are whole rows of context ranks, and of tensor ranks where
 * experts are not cut over these, and divide the ranks that states are sharded over. In Megatron-LM
 * they only divide these. */
static bool fits_experts(const struct plan *plan, const struct model *model, int64_t ranks)
{
	const struct mesh *mesh = &plan->mesh;
	int64_t row = mesh->context * mesh->tensor / plan_expert_tensor(plan);
	int64_t domain = plan_expert_domain(plan) / plan_expert_tensor(plan);
	if (runtime_of(plan->runtime)->experts.routes_stream)
		row = 1;
	return ranks >= 1 && ranks % row == 0 && domain % ranks == 0 &&
	       model->architecture.experts % ranks == 0;
}

/* Names the nearest numbers of expert ranks that would do. 1 always does. */
static const char *nearest_experts(
	const struct plan *plan, const struct model *model, char text[48])
{
	int64_t asked = plan->mesh.expert, experts = model->architecture.experts;
	int64_t below = min_i64(asked, experts), above = asked;
	while (below > 1 && !fits_experts(plan, model, below))
		below--;
	while (above <= experts && !fits_experts(plan, model, above))
		above++;
	if (above > experts)
		snprintf(text, 48, "%lld", (long long)below);
	else
		snprintf(text, 48, "%lld or %lld", (long long)below, (long long)above);
	return text;
}

/* With a capacity factor all experts get as many rows. */
static bool check_capacity(const struct plan *plan, struct error *error)
{
	if (plan->capacity_factor == 0)
		return true;
	if (!runtime_of(plan->runtime)->experts.drops_rows)
		return error_set(error, EXIT_CODE_USAGE,
			"--capacity-factor: runtime %s drops no tokens; "
			"use --expert-load, or --runtime megatron",
			runtime_names[plan->runtime]);
	if (plan->mesh.expert == 1)
		return error_set(error, EXIT_CODE_USAGE,
			"--capacity-factor: there is one expert rank; "
			"leave it out, or give --expert");
	return plan->expert_load == 0 ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--expert-load: with --capacity-factor all ranks get as many rows; "
		       "leave it out");
}

static bool check_load(const struct plan *plan, struct error *error)
{
	bool unsaid = plan->expert_load == 0 && runtime_of(plan->runtime)->experts.keeps_room;
	if (plan->capacity_factor > 0 || plan->expert_load >= 1 || unsaid)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--expert-load: the fullest rank gets no less than the mean; use 1 or more");
}

static bool check_expert_tensor(
	const struct plan *plan, const struct model *model, struct error *error)
{
	int64_t t = plan->mesh.tensor, each = plan->expert_tensor;
	if (plan->mesh.expert == 1)
		return each == 0 || error_set(error, EXIT_CODE_USAGE,
					    "--expert-tensor %lld: there is one expert rank; "
					    "leave it out, or give --expert",
					    (long long)each);
	if (each != 1 && each != t)
		return error_set(error, EXIT_CODE_USAGE,
			"--expert-tensor %lld: an expert is whole, or cut over all tensor ranks; "
			"use 1%s",
			(long long)each, t > 1 ? ", or as many as --tensor" : "");
	return check_load(plan, error) && check_expert_width("expert-tensor", each, model, error);
}

/* MoELayer refuses to train with tensor ranks but without sequence parallelism. */
static bool check_routing(const struct plan *plan, const struct model *model, struct error *error)
{
	bool whole = plan->mesh.tensor > 1 && !plan->sequence_parallel;
	if (model->architecture.experts == 0 || !whole ||
		!runtime_of(plan->runtime)->experts.routes_stream)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--sequence-parallel off: "
		"beside tensor ranks runtime %s trains experts with it alone; "
		"use on, or --tensor 1",
		runtime_names[plan->runtime]);
}

static const char *expert_rows(const struct plan *plan)
{
	return runtime_of(plan->runtime)->experts.routes_stream
		       ? ""
		       : ", in whole rows of context and tensor ranks";
}

static bool check_experts(const struct plan *plan, const struct model *model, struct error *error)
{
	int64_t e = plan->mesh.expert;
	char nearest[48];
	if (e > 1 && model->architecture.experts == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--expert %lld: %s has no experts; leave it out", (long long)e,
			model->architecture.name);
	if (!check_capacity(plan, error) || !check_expert_tensor(plan, model, error))
		return false;
	if (e == 1)
		return true;
	if (!fits_experts(plan, model, e))
		return error_set(error, EXIT_CODE_USAGE,
			"--expert %lld: "
			"expected a divisor of %lld experts and of the %s of %lld ranks%s; use %s",
			(long long)e, (long long)model->architecture.experts,
			strategy_shards(plan->strategy) ? "shard group" : "replicas",
			(long long)(plan_expert_domain(plan) / plan->expert_tensor),
			expert_rows(plan), nearest_experts(plan, model, nearest));
	if (!check_frozen(plan, model, KNOB_EXPERT, error))
		return false;
	if (plan_reshard_group(plan) > 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--expert %lld: experts are sharded over other ranks "
			"than --reshard-after-forward %.60s keeps parameters on; use true or false",
			(long long)e, plan->reshard_after_forward.text);
	return true;
}

bool plan_check_axes(const struct plan *plan, const struct model *model, struct error *error)
{
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		if (!check_axis(plan, knobs_of_axes[i], error))
			return false;
	return check_axis(plan, KNOB_EXPERT, error) && check_experts(plan, model, error) &&
	       check_routing(plan, model, error) && check_tensor(plan, model, error) &&
	       check_executed(plan, model, error) && check_context(plan, model, error) &&
	       check_messages(plan, error) && check_pipeline(plan, model, error);
}
