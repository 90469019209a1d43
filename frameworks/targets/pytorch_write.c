/* PyTorch itself: a script that trains, with FSDP2 or FSDP1, as a skeleton to put a model and data
 * into. The plan stands at its top, as assignments that `import` reads back; the code below them
 * is the same for every plan: scripts/, embedded in the binary.
 *
 * Calls: PyTorch 2.6 and later (torch.distributed.fsdp), Transformers for the model. */
#include <string.h>

#include "base/embedded.h"
#include "base/runs.h"
#include "frameworks/targets/shared.h"

#define PYTORCH_COMMON                                                                             \
	{"activation_checkpointing", SAYS_KEY, NULL, NULL}, ATTENTION_KEY,                         \
		{"compile", SAYS_KEY, NULL, NULL}, {"param_dtype", SAYS_KEY, NULL, NULL},          \
		{"master_dtype", SAYS_KEY, NULL, NULL}, {"reduce_dtype", SAYS_KEY, NULL, NULL},    \
		{"optimizer", SAYS_KEY, NULL, NULL},                                               \
		{"cpu_offload", SAYS_KEY, "none parameters *>parameters",                          \
			"FSDP moves parameters, gradients and optimizer state together"},          \
		{"seq_len", SAYS_KEY, NULL, NULL}, {"micro_batch", SAYS_KEY, NULL, NULL},          \
		{"grad_accum", SAYS_KEY, NULL, NULL},                                              \
		{"sync_each_micro_batch", SAYS_KEY, NULL, NULL},                                   \
	{                                                                                          \
		"clip", SAYS_KEY, NULL, NULL                                                       \
	}

static const struct export_rule fsdp2_rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP2 is the nearest"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp2", "this script is FSDP2's"},
	{"reshard_after_forward", SAYS_KEY, NULL, NULL},
	{"wrap", SAYS_KEY, NULL, NULL},
	{"prefetch", SAYS_ALWAYS, "*>pre",
		"FSDP2 always gathers the next unit before it reduces this one"},
	{"forward_prefetch", SAYS_KEY, NULL, NULL},
	{"limit_all_gathers", SAYS_ALWAYS, "*>false", "FSDP2 has no rate limiter and needs none"},
	PYTORCH_COMMON,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

static const struct export_rule fsdp1_rules[] = {
	{"strategy", SAYS_KEY, ZERO_AS_FSDP, "FSDP1 is the nearest"},
	{"shard_group", SAYS_KEY, NULL, NULL},
	{"runtime", SAYS_ALWAYS, "pytorch-ddp *>pytorch-fsdp1", "this script is FSDP1's"},
	{"reshard_after_forward", SAYS_KEY, "true false *>true", "FSDP1 knows no group sizes"},
	{"wrap", SAYS_KEY, NULL, NULL},
	{"prefetch", SAYS_KEY, NULL, NULL},
	{"forward_prefetch", SAYS_KEY, NULL, NULL},
	{"limit_all_gathers", SAYS_KEY, NULL, NULL},
	PYTORCH_COMMON,
	LOSS_BESIDE,
	ENVIRONMENT_BESIDE,
	{NULL, SAYS_KEY, NULL, NULL},
};

/* --- the plan as assignments --------------------------------------------------------------- */

static void assign_string(struct text *text, const char *name, const char *value)
{
	text_printf(text, "%s = ", name);
	json_escape(text, value); /* the escapes of JSON are Python's too */
	text_add_char(text, '\n');
}

static void assign_int(struct text *text, const char *name, int64_t value)
{
	text_printf(text, "%s = %lld\n", name, (long long)value);
}

static void assign_bool(struct text *text, const char *name, bool value)
{
	text_printf(text, "%s = %s\n", name, value ? "True" : "False");
}

static void assign_dtype(struct text *text, const char *name, enum dtype dtype)
{
	text_printf(text, "%s = torch.%s\n", name, export_torch_dtype(dtype));
}

static void write_sharding(struct exporting *exporting, bool fsdp2)
{
	const struct plan *plan = exporting->plan;
	struct text *text = exporting->text;
	int64_t group = plan_reshard_group(plan);

	assign_string(text, "STRATEGY", strategy_names[plan->strategy]);
	assign_int(text, "REPLICATE", plan->mesh.replicate);
	assign_int(text, "SHARD", plan->mesh.shard);
	if (fsdp2 && (runs_total(plan->reshard_after_forward) > 0 || plan_reshards_root(plan)))
		assign_string(text, "RESHARD_AFTER_FORWARD", plan->reshard_after_forward);
	else if (fsdp2 && group > 0)
		assign_int(text, "RESHARD_AFTER_FORWARD", group);
	else if (fsdp2)
		assign_bool(text, "RESHARD_AFTER_FORWARD", group < 0);
	assign_string(text, "WRAP", plan->wrap);
	if (!fsdp2)
		assign_string(text, "PREFETCH", prefetch_names[plan->prefetch]);
	assign_bool(text, "FORWARD_PREFETCH", plan->forward_prefetch);
	if (!fsdp2)
		assign_bool(text, "LIMIT_ALL_GATHERS", plan->limit_all_gathers);
	assign_bool(text, "CPU_OFFLOAD", plan_offloads_any(plan));
}

static void write_computation(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct text *text = exporting->text;

	assign_string(text, "ACTIVATION_CHECKPOINTING",
		export_knob(plan, "activation_checkpointing", exporting->arena));
	assign_string(text, "ATTENTION",
		plan->attention == ATTENTION_EAGER ? "eager" : "flash_attention_2");
	assign_bool(text, "COMPILE", plan->compile);
	assign_dtype(text, "PARAM_DTYPE", plan->param_dtype);
	assign_dtype(text, "MASTER_DTYPE", plan->master_dtype);
	assign_dtype(text, "REDUCE_DTYPE", plan->reduce_dtype);
	assign_string(text, "OPTIMIZER", optimizer_names[plan->optimizer]);
	text_add(text, "CLIP = ");
	text_number(text, plan->clip);
	text_add(text, "\n\n");
}

static void write_batch(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	struct text *text = exporting->text;

	assign_int(text, "SEQ_LEN", plan->seq_len);
	assign_int(text, "MICRO_BATCH", plan->micro_batch);
	assign_int(text, "GRAD_ACCUM", plan->grad_accum);
	assign_bool(text, "SYNC_EACH_MICRO_BATCH", plan->sync_each_micro_batch);
	assign_string(
		text, "DEVICE", exporting->topology->device.kind == DEVICE_CPU ? "cpu" : "cuda");
}

/* --- the model ----------------------------------------------------------------------------- */

struct named_size {
	const char *key;
	int64_t value;
};

static void write_sizes(struct text *text, const struct named_size *sizes, int n)
{
	for (int i = 0; i < n; i++)
		text_printf(text, "    %s=%lld,\n", sizes[i].key, (long long)sizes[i].value);
}

static void write_gpt2(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"n_embd", model->hidden}, {"n_layer", model->layers},
		{"n_head", model->heads}, {"n_inner", model->ffn}, {"n_positions", model->context},
		{"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
	text_add(text, "    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,\n");
}

static void write_mpt(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"d_model", model->hidden}, {"n_layers", model->layers},
		{"n_heads", model->heads}, {"expansion_ratio", model->ffn / model->hidden},
		{"max_seq_len", model->context}, {"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
}

static void write_llama(const struct architecture *model, struct text *text)
{
	const struct named_size sizes[] = {{"hidden_size", model->hidden},
		{"num_hidden_layers", model->layers}, {"num_attention_heads", model->heads},
		{"num_key_value_heads", model->kv_heads}, {"head_dim", model->head_dim},
		{"intermediate_size", model->ffn}, {"max_position_embeddings", model->context},
		{"vocab_size", model->vocab}};

	write_sizes(text, sizes, COUNT_OF(sizes));
	text_add(text, "    rope_theta=");
	text_number(text, model->rope_theta);
	text_add(text, ", rms_norm_eps=");
	text_number(text, model->norm_epsilon);
	text_printf(text, ",\n    tie_word_embeddings=%s,\n", model->tied_head ? "True" : "False");
}

/* Families whose sizes can be spelled out; the others are loaded by name. */
static const struct {
	const char *family;
	void (*write)(const struct architecture *model, struct text *text);
} configurations[] = {{"gpt2", write_gpt2}, {"mpt", write_mpt}, {"llama", write_llama},
	{"mistral", write_llama}, {"qwen2", write_llama}, {"qwen3", write_llama}};

static void write_model(struct exporting *exporting)
{
	const struct architecture *model = &exporting->model->architecture;
	const char *family = model_family_names[model->family];
	const char *block = export_block_class(family);
	struct text *text = exporting->text;

	assign_string(text, "MODEL", model->name);
	assign_string(text, "BLOCK_CLASS", block != NULL ? block : "");
	for (int i = 0; i < COUNT_OF(configurations); i++) {
		if (strcmp(configurations[i].family, family) != 0)
			continue;
		text_printf(text, "CONFIG = dict(\n    model_type=\"%s\",\n", family);
		configurations[i].write(model, text);
		text_add(text, ")\n\n\n");
		return;
	}
	text_add(text,
		"CONFIG = None  # MODEL is loaded by name: a Hugging Face name or folder\n\n\n");
}

extern const struct embedded_file export_scripts[];
extern const int n_export_scripts;

static void add_code(struct text *text, const char *name)
{
	for (int i = 0; i < n_export_scripts; i++) {
		if (strcmp(export_scripts[i].name, name) == 0)
			text_add(text, export_scripts[i].text);
	}
	text_add(text, strstr(name, "imports") != NULL ? "" : "\n\n");
}

static void write_script(struct exporting *exporting, bool fsdp2)
{
	struct text *text = exporting->text;

	export_class(exporting);
	text_add(text, "#!/usr/bin/env python3\n");
	export_header(exporting);
	add_code(text, fsdp2 ? "fsdp2_imports" : "fsdp1_imports");
	text_add(text, "\n# --- the plan; `shardplan import` reads it back ---\n");
	write_sharding(exporting, fsdp2);
	write_batch(exporting);
	write_computation(exporting);
	write_model(exporting);
	add_code(text, "model");
	add_code(text, fsdp2 ? "fsdp2" : "fsdp1");
	add_code(text, "training");
}

static void write_fsdp2(struct exporting *exporting)
{
	write_script(exporting, true);
}

static void write_fsdp1(struct exporting *exporting)
{
	write_script(exporting, false);
}

const struct export_target export_pytorch_fsdp2 = {
	.name = "pytorch",
	.title = "a PyTorch script with FSDP2",
	.file = "train_fsdp2.py",
	.source = "PyTorch 2.6 and later (torch.distributed.fsdp)",
	.syntax = SYNTAX_PYTHON,
	.rules = fsdp2_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g %f --steps 100",
	.write = write_fsdp2,
	.import = &import_pytorch_fsdp2,
};

const struct export_target export_pytorch_fsdp1 = {
	.name = "pytorch-fsdp1",
	.title = "a PyTorch script with FSDP1",
	.file = "train_fsdp1.py",
	.source = "PyTorch 2.6 and later (torch.distributed.fsdp)",
	.syntax = SYNTAX_PYTHON,
	.wraps = "block model size:*",
	.rules = fsdp1_rules,
	.launch = "torchrun --nnodes %n --nproc-per-node %g %f --steps 100",
	.write = write_fsdp1,
	.import = &import_pytorch_fsdp1,
};
