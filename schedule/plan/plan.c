/* Plans as data: their names, fields, and small questions about them. resolve.c fills and checks
 * them. */
#include "schedule/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct field mesh_fields[] = {
	FIELD_INT(struct mesh, replicate, "replicate", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct mesh, shard, "shard", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_INT(struct mesh, tensor, "tensor", FIELD_POSITIVE),
	FIELD_INT(struct mesh, pipeline, "pipeline", FIELD_POSITIVE),
	FIELD_INT(struct mesh, context, "context", FIELD_POSITIVE),
	FIELD_INT(struct mesh, expert, "expert", FIELD_POSITIVE),
	FIELD_END,
};

enum dtype plan_gradient_dtype(const struct plan *plan)
{
	return plan->gradient_sums == SUMS_EXACT ? DTYPE_INT64 : plan->reduce_dtype;
}

enum dtype plan_optimizer_gradient_dtype(const struct plan *plan)
{
	return runtime_of(plan->runtime)->fp32_gradient_shards ? DTYPE_FP32 : plan->master_dtype;
}

enum dtype plan_gradient_shard_dtype(const struct plan *plan)
{
	if (plan->gradient_sums == SUMS_EXACT)
		return DTYPE_INT64;
	return plan_optimizer_gradient_dtype(plan);
}

int64_t plan_data_parallel(const struct plan *plan)
{
	return plan->mesh.replicate * plan->mesh.shard;
}

struct plan plan_with_batch(const struct plan *plan, int64_t micro_batch, int64_t grad_accum)
{
	struct plan other = *plan;
	other.micro_batch = micro_batch;
	other.grad_accum = grad_accum;
	other.global_batch = micro_batch * grad_accum * plan_data_parallel(plan);
	return other;
}

struct plan plan_with_micro_batches(const struct plan *plan, int64_t n)
{
	return plan_with_batch(plan, plan->micro_batch, n);
}

int64_t plan_shard_ranks(const struct plan *plan)
{
	return strategy_shards(plan->strategy) ? plan->mesh.shard * plan->mesh.context : 1;
}

int64_t plan_reduce_ranks(const struct plan *plan)
{
	return plan->mesh.replicate * plan->mesh.shard * plan->mesh.context;
}

int64_t plan_expert_tensor(const struct plan *plan)
{
	return plan->mesh.expert > 1 ? plan->expert_tensor : plan->mesh.tensor;
}

int64_t plan_expert_domain(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;
	int64_t replicas = strategy_shards(plan->strategy) ? 1 : mesh->replicate;
	return replicas * mesh->shard * mesh->context * mesh->tensor;
}

int64_t plan_expert_reduce_ranks(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;
	return plan_reduce_ranks(plan) * mesh->tensor / (mesh->expert * plan_expert_tensor(plan));
}

int64_t plan_expert_shard_ranks(const struct plan *plan)
{
	return strategy_shards(plan->strategy)
		       ? plan_expert_reduce_ranks(plan) / plan->mesh.replicate
		       : 1;
}

bool plan_attends_by(
	const struct plan *plan, const struct architecture *a, enum context_method method)
{
	bool window = a->attention_window > 0 || a->attention_chunk > 0;
	if (!runtime_of(plan->runtime)->ring_sees_all || plan->mesh.context == 1)
		return true;
	return a->attention_sinks ? method == CONTEXT_ALL_TO_ALL
				  : !window || method != CONTEXT_RING;
}

enum context_method plan_usual_context_method(const struct plan *plan, const struct architecture *a)
{
	bool ring = runtime_of(plan->runtime)->goes_by_ring && plan->mesh.context > 1;
	return ring && plan_attends_by(plan, a, CONTEXT_RING) ? CONTEXT_RING
	       : plan_attends_by(plan, a, CONTEXT_ALL_GATHER) ? CONTEXT_ALL_GATHER
							      : CONTEXT_ALL_TO_ALL;
}

int64_t plan_tensor_place(const struct plan *plan, int64_t rank)
{
	return rank % plan->mesh.tensor;
}

int64_t plan_expert_place(const struct plan *plan, int64_t rank)
{
	return rank / plan_expert_tensor(plan) % plan->mesh.expert;
}

int64_t plan_part_place(const struct plan *plan, int64_t rank)
{
	return plan->mesh.expert > 1 ? plan_expert_place(plan, rank)
				     : plan_tensor_place(plan, rank);
}

int64_t plan_data_place(const struct plan *plan, int64_t rank)
{
	return rank / (plan->mesh.context * plan->mesh.tensor) % plan_data_parallel(plan);
}

int64_t plan_shard_place(const struct plan *plan, int64_t rank)
{
	return rank / plan->mesh.tensor % plan_shard_ranks(plan);
}

int64_t plan_attention_rounds(const struct plan *plan)
{
	const struct ring_rules *ring = runtime_of(plan->runtime)->ring;
	bool gathers = ring != NULL && ring->gathers_blocks && plan->attention != ATTENTION_EAGER &&
		       plan->context_method == CONTEXT_ALL_GATHER;
	return gathers || plan->context_method == CONTEXT_RING ? plan->mesh.context : 1;
}

struct attending plan_attending(const struct plan *plan)
{
	return (struct attending){.kind = plan->attention,
		.windows = runtime_of(plan->runtime)->skips_windows &&
			   plan_attention_rounds(plan) == 1,
		.document = plan->document_len};
}

int64_t plan_attended_len(const struct plan *plan)
{
	return plan->document_len > 0 ? plan->document_len : plan->seq_len;
}

/* Does a rank route its tokens of the residual stream? */
static bool routes_stream(const struct plan *plan)
{
	const struct expert_rules *experts = &runtime_of(plan->runtime)->experts;
	bool whole = plan->mesh.expert > 1 && plan_expert_tensor(plan) == 1;
	return experts->routes_stream ||
	       (experts->routes_stream_of_whole && whole && plan->sequence_parallel);
}

struct division plan_division(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;
	return (struct division){.tensor = mesh->tensor,
		.stream = plan->sequence_parallel ? mesh->tensor : 1,
		.context = mesh->context,
		.expert = mesh->expert,
		.expert_tensor = plan_expert_tensor(plan),
		.expert_load = plan->expert_load,
		.expert_capacity = plan->capacity_factor,
		.keeps_room =
			runtime_of(plan->runtime)->experts.keeps_room && plan->expert_load == 0,
		.routes_stream = routes_stream(plan),
		.gathers_tokens = plan_gathers_tokens(plan),
		.words = runtime_of(plan->runtime)->vocab_multiple * mesh->tensor};
}

bool plan_divides_alike(const struct plan *a, const struct plan *b)
{
	const struct division one = plan_division(a), other = plan_division(b);
	return divisions_are_alike(&one, &other);
}

bool plan_divides(const struct plan *plan)
{
	const struct division division = plan_division(plan);
	return plan->mesh.pipeline > 1 || division_divides(&division);
}

const struct model *plan_model(
	const struct plan *plan, const struct model *model, struct arena *arena)
{
	const struct division division = plan_division(plan);
	struct model *part;
	struct error error = {0};
	if (!division_divides(&division) || model->whole != NULL)
		return model;
	return model_divide(arena, model, &division, &part, &error) ? part : model;
}

int64_t plan_ranks(const struct plan *plan)
{
	const struct mesh *mesh = &plan->mesh;
	return mesh->replicate * mesh->shard * mesh->tensor * mesh->pipeline * mesh->context;
}

double plan_tokens_per_rank(const struct plan *plan)
{
	return (double)plan->global_batch * (double)plan->seq_len / (double)plan_ranks(plan);
}

double plan_loader_time(const struct plan *plan)
{
	double tokens = (double)(plan->micro_batch * plan->grad_accum * plan->seq_len);

	return plan->loader_rate > 0 ? tokens / plan->loader_rate : 0;
}

int64_t plan_reshard_group(const struct plan *plan)
{
	int64_t group = 0;
	for (int64_t place = 0; group == 0 && place <= plan->reshard_after_forward.n; place++)
		group = plan_reshard_group_at(plan, place);
	return group;
}

/* Counts what logits that are cut need (torch/distributed/tensor/parallel/loss.py), in fp32.
 * Forward has a copy, the same less its maximum, and exponentials. Backward has the log-softmax,
 * zeros, exponentials and their sum, when the logits are gone, unless they are the output of a
 * stage. */
static int64_t cut_loss_bytes(const struct plan *plan)
{
	int64_t gone = plan->mesh.pipeline > 1 ? 0 : dtype_bytes(plan->param_dtype);
	return plan->loss == LOSS_UPCAST ? 16 - gone : 12;
}

/* Megatron-LM compiles its functions for the loss (fusions/fused_cross_entropy.py, jit_fuser). From
 * Hopper on exponentials are written over the copy of the logits. */
static int64_t compiled_loss_bytes(enum device_generation generation)
{
	return generation >= GENERATION_HOPPER ? 8 : 12;
}

/* A log-softmax, its gradient and that of the loss exist at once; in fp32 there is also a copy of
 * the logits. */
int64_t plan_loss_bytes(const struct plan *plan, enum device_generation generation)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	int64_t compute = dtype_bytes(plan->param_dtype);
	bool cut = plan->mesh.tensor > 1 && !runtime->parallel_loss && !runtime->loss_in_place;
	if (cut && (plan->loss == LOSS_NATIVE || plan->loss == LOSS_UPCAST))
		return cut_loss_bytes(plan);
	switch (plan->loss) {
	case LOSS_NATIVE:
		return 3 * compute;
	case LOSS_UPCAST:
		return runtime->compiles_loss ? compiled_loss_bytes(generation) : 12;
	case LOSS_FLOAT:
		return compute < 4 ? 14 : 12;
	case LOSS_PARALLEL: /* the fp32 copy, and the softmax that its gradient overwrites */
		return runtime->loss_in_place ? 4 : 8;
	case LOSS_FUSED:
	case LOSS_FUSED_LINEAR:
	case LOSS_COUNT:
		break;
	}
	return runtime->loss_in_place ? 0 : compute;
}

enum dtype plan_default_dtype(const struct topology *topology)
{
	const struct device *device = &topology->device;
	if (device->kind == DEVICE_CPU)
		return DTYPE_FP32;
	return device->bf16_flops > 0   ? DTYPE_BF16
	       : device->fp16_flops > 0 ? DTYPE_FP16
					: DTYPE_FP32;
}

bool plan_syncs(const struct plan *plan, bool *each)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	int stage = strategy_stage(plan->strategy);
	*each = zero != NULL ? zero->each_micro_batch >> stage & 1 : stage != 1;
	return zero != NULL || stage == 1 || stage == 2;
}

/* DistributedDataParallel reduces parameters' own gradients, without a mixed precision policy. */
bool plan_reduces_masters(const struct plan *plan)
{
	return plan_layout(plan) == LAYOUT_WHOLE && runtime_of(plan->runtime)->zero == NULL;
}

bool plan_has_zero_groups(const struct plan *plan)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	int stage = strategy_stage(plan->strategy);
	return stage > 0 && (zero == NULL || zero->groups >> stage & 1);
}

bool plan_chunks_head(const struct plan *plan)
{
	return plan->loss == LOSS_FUSED_LINEAR && runtime_of(plan->runtime)->chunks_head;
}

/* A GPU fills its multiprocessors with 4096 rows, and a CPU sums up 2 KiB of a column at a time. */
static int64_t most_chunk_rows(const struct plan *plan, enum device_kind device)
{
	return device == DEVICE_CPU ? 2048 / dtype_bytes(plan->param_dtype) : 4096;
}

int64_t plan_head_chunks(const struct plan *plan, enum device_kind device, int64_t rows)
{
	int64_t most = most_chunk_rows(plan, device);
	return (rows + most - 1) / most;
}

/* Terms of bf16 come in pairs, so a chunk begins at an even row. */
int64_t plan_head_chunk_at(const struct plan *plan, int64_t rows, int64_t chunks, int64_t i)
{
	int64_t pair = dtype_bytes(plan->param_dtype) < 4 ? 2 : 1;
	return i < chunks ? i * rows / chunks / pair * pair : rows;
}

/* An odd row makes the last chunk longer by one. */
int64_t plan_head_chunk_rows(const struct plan *plan, enum device_kind device, int64_t tokens)
{
	return min_i64(tokens, most_chunk_rows(plan, device) + plan->seq_len % 2);
}

int64_t plan_logits_stride(const struct plan *plan, int64_t vocab)
{
	return round_up(vocab, max_i64(runtime_of(plan->runtime)->logits_row, 1));
}

enum layout_kind plan_layout(const struct plan *plan)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	return strategy_stage(plan->strategy) == 3 ? runtime->stage3_layout : runtime->layout;
}

bool plan_softmax_in_fp32(const struct plan *plan)
{
	return plan->attention == ATTENTION_EAGER && plan->param_dtype != DTYPE_FP32 &&
	       !runtime_of(plan->runtime)->softmax_in_kernel;
}

struct activation_rules plan_activation_rules(
	const struct plan *plan, enum device_generation generation)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	bool fused = plan->compile || plan->liger;
	return (struct activation_rules){
		.dtype = plan->param_dtype,
		.attention = plan_engine_attention(plan, generation),
		.norm_unfused = runtime->norm_unfused && !fused,
		.keeps_activated_gate = runtime->keeps_activated_gate && !fused,
		.softmax_fp32 = plan_softmax_in_fp32(plan),
		.projection_keeps_input = runtime->projection_keeps_input,
		.keeps_products_whole = runtime->keeps_products_whole,
		.fp8_inputs = plan->fp8 != FP8_OFF && runtime->keeps_fp8_copies,
		.fp8_per_byte = fp8_rules_of(plan->fp8)->per_byte,
		.fp8_scaled = fp8_rules_of(plan->fp8)->scaled,
		.dropout = plan->dropout,
		.drops_unread = !runtime->keeps_unread,
		.weighs_activations = plan_weighs_activations(plan),
		.routes_in_fp32 = runtime->experts.routes_in_fp32,
		.keeps_row_order = plan_weighs_activations(plan),
		.keeps_picked_rows = plan_keeps_picked_rows(plan),
		.keeps_gathered_input = runtime->keeps_gathered_input || plan->keep_gathered,
		.alignment = runtime->tensor_alignment,
	};
}

/* Lists the keys of a plan but for the mesh. */
static void fields_of_plan(struct field fields[KNOB_IN_MESH + 1])
{
	for (int id = 0; id < KNOB_IN_MESH; id++)
		fields[id] = knob_table[id].field;
	fields[KNOB_IN_MESH] = (struct field)FIELD_END;
}

bool plan_read(struct arena *arena, const struct node *map, struct plan *plan, struct error *error)
{
	static const char *const others[] = {"mesh", NULL};
	struct field fields[KNOB_IN_MESH + 1];
	fields_of_plan(fields);
	*plan = (struct plan){.mesh = {1, 1, 1, 1, 1, 1}, .libraries = libraries_unknown};
	if (!fields_read(fields, map, others, plan, arena, error))
		return false;
	const struct node *mesh = node_get(map, "mesh");
	if (mesh == NULL)
		return node_error(
			map, error, "mesh: missing, expected the axes {replicate, shard}");
	return fields_read(mesh_fields, mesh, NULL, &plan->mesh, arena, error);
}

void plan_write(const struct plan *plan, struct writer *writer)
{
	struct field fields[KNOB_IN_MESH + 1];
	fields_of_plan(fields);
	fields_write(fields, plan, writer);
	writer_begin_map(writer, "mesh");
	fields_write(mesh_fields, &plan->mesh, writer);
	writer_end_map(writer);
}

void plan_add_axes(const struct plan *plan, struct text *text)
{
	const struct mesh *mesh = &plan->mesh;
	const struct {
		const char *name;
		int64_t size;
	} axes[] = {{"PP", mesh->pipeline}, {"TP", mesh->tensor}, {"CP", mesh->context},
		{"EP", mesh->expert}};
	for (int i = 0; i < COUNT_OF(axes); i++)
		if (axes[i].size > 1)
			text_printf(text, "%s %lld x ", axes[i].name, (long long)axes[i].size);
}

void plan_add_name(const struct plan *plan, struct text *text)
{
	plan_add_axes(plan, text);
	text_add(text, strategy_names[plan->strategy]);
	if (strategy_is_hybrid(plan->strategy) && plan->mesh.shard > 1)
		text_printf(text, "/%lld", (long long)plan->mesh.shard);
}

void plan_add_order(const struct plan *plan, struct text *text)
{
	if (plan->mesh.pipeline > 1)
		text_printf(text, ", %s", pipeline_schedule_names[plan->pipeline_schedule]);
	if (plan->virtual_stages > 1)
		text_printf(text, " of %lld stages a rank", (long long)plan->virtual_stages);
	if (plan->layers_per_stage.text != NULL) {
		text_add(text, ", layers ");
		rows_say(&plan->layers_per_stage, "stage", text);
	}
}

const char *plan_reduction(const struct plan *plan)
{
	return plan->late_all_reduce         ? "gradients scattered in each, all-reduced once"
	       : plan->sync_each_micro_batch ? "gradients reduced in each"
					     : "gradients reduced once";
}

const char *format_micro_batch(char buffer[48], int64_t micro_batch, int64_t grad_accum)
{
	if (grad_accum == 1)
		snprintf(buffer, 48, "%lld", (long long)micro_batch);
	else
		snprintf(buffer, 48, "%lld x %lld", (long long)micro_batch, (long long)grad_accum);
	return buffer;
}

void plan_summary(const struct plan *plan, struct text *text)
{
	char batch[48];

	plan_add_axes(plan, text);
	text_add(text, strategy_names[plan->strategy]);
	if (strategy_is_hybrid(plan->strategy))
		text_printf(text, " (groups of %lld)", (long long)plan->mesh.shard);
	if (plan->context_method != CONTEXT_ALL_GATHER)
		text_printf(text, ", context by %s",
			knob_name(KNOB_CONTEXT_METHOD, (int)plan->context_method));
	if (plan->expert_dispatch == DISPATCH_DEEPEP)
		text_add(text, ", rows through DeepEP");
	if (plan->expert_overlap)
		text_add(text, ", rows beside another micro-batch");
	plan_add_order(plan, text);
	if (plan_reshard_group(plan) > 0 || plan->reshard_after_forward.n > 0) {
		text_add(text, ", ");
		plan_say_reshard(plan, text);
	}
	text_printf(text, ", wrap %s, prefetch %s%s", plan->wrap.text,
		knob_name(KNOB_PREFETCH, (int)plan->prefetch),
		plan->forward_prefetch ? " + forward" : "");
	text_add(text, ", checkpointing ");
	rows_say(&plan->activation_checkpointing, "block", text);
	if (plan->recompute_modules.of != 0)
		text_printf(text, " (%s)", plan->recompute_modules.text);
	if (plan->activation_offload != ACTIVATIONS_STAY)
		text_printf(text, " (%s on the host)",
			knob_name(KNOB_ACTIVATION_OFFLOAD, (int)plan->activation_offload));
	if (plan_offloads_any(plan)) {
		text_add(text, ", offload ");
		rows_say(&plan->cpu_offload, "unit", text);
	}
	if (plan->document_len > 0)
		text_printf(text, ", documents of %lld", (long long)plan->document_len);
	if (!trainable_is_all(&plan->trainable))
		text_printf(text, ", trains %s", plan->trainable.text);
	if (plan->fp8 != FP8_OFF)
		text_printf(text, plan->fp8 == FP8_NVFP4 ? ", %s" : ", fp8 %s",
			knob_name(KNOB_FP8, (int)plan->fp8));
	if (plan->cuda_graph_scope.of != 0)
		text_printf(text, ", CUDA graphs of %s", plan->cuda_graph_scope.text);
	if (plan->gradient_sums == SUMS_EXACT)
		text_add(text, ", exact gradient sums");
	if (plan->gelu == GELU_IN_PRODUCT)
		text_add(text, ", GELU in products");
	text_printf(text, ", micro-batch %s",
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	if (plan->grad_accum > 1)
		text_printf(text, " (%s)", plan_reduction(plan));
	text_printf(text, ", %s", runtime_names[plan->runtime]);
	if (libraries_named(&plan->libraries))
		text_printf(text, " (%s)", plan->libraries.text);
}
