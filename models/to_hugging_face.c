/* A Hugging Face config.json of a model, beside weights that were trained here. */
#include "models/families.h"
#include "models/models.h"

static void write_gpt2(const struct architecture *a, struct writer *writer)
{
	writer_int(writer, "n_layer", a->layers);
	writer_int(writer, "n_embd", a->hidden);
	writer_int(writer, "n_head", a->heads);
	writer_int(writer, "n_inner", a->ffn);
	writer_int(writer, "n_positions", a->context);
	writer_number(writer, "layer_norm_epsilon", a->norm_epsilon);
	writer_string(writer, "activation_function", a->gelu_tanh ? "gelu_new" : "gelu");
	/* The original tokens are outside of other vocabularies. */
	writer_string(writer, "bos_token_id", NULL);
	writer_string(writer, "eos_token_id", NULL);
}

static void write_llama(const struct architecture *a, struct writer *writer)
{
	writer_int(writer, "num_hidden_layers", a->layers);
	writer_int(writer, "hidden_size", a->hidden);
	writer_int(writer, "num_attention_heads", a->heads);
	writer_int(writer, "num_key_value_heads", a->kv_heads);
	writer_int(writer, "head_dim", a->head_dim);
	writer_int(writer, "intermediate_size", a->experts > 0 ? a->expert_ffn : a->ffn);
	writer_int(writer, "max_position_embeddings", a->context);
	writer_number(writer, "rms_norm_eps", a->norm_epsilon);
	writer_number(writer, "rope_theta", a->rope_theta);
	writer_string(writer, "hidden_act", "silu");
	writer_bool(writer, "attention_bias", a->qkv_bias);
	writer_bool(writer, "mlp_bias", a->mlp_bias);
	writer_string(writer, "bos_token_id", NULL);
	writer_string(writer, "eos_token_id", NULL);
}

static void write_mixtral(const struct architecture *a, struct writer *writer)
{
	write_llama(a, writer);
	writer_int(writer, "num_local_experts", a->experts);
	writer_int(writer, "num_experts_per_tok", a->experts_per_token);
	writer_string(writer, "sliding_window", NULL);
}

static const struct {
	enum model_family family;
	const char *class_name;
	void (*write)(const struct architecture *a, struct writer *writer);
} writers[] = {
	{FAMILY_GPT2, "GPT2LMHeadModel", write_gpt2},
	{FAMILY_LLAMA, "LlamaForCausalLM", write_llama},
	{FAMILY_MISTRAL, "MistralForCausalLM", write_llama},
	{FAMILY_MIXTRAL, "MixtralForCausalLM", write_mixtral},
	{FAMILY_QWEN2, "Qwen2ForCausalLM", write_llama},
	{FAMILY_QWEN3, "Qwen3ForCausalLM", write_llama},
};

bool model_write_hugging_face(const struct model *model, struct text *text)
{
	const struct architecture *a = &model->architecture;
	struct writer writer;

	for (int i = 0; i < COUNT_OF(writers); i++) {
		if (writers[i].family != a->family)
			continue;
		writer_init(&writer, text, WRITER_JSON);
		writer_begin_list(&writer, "architectures");
		writer_string(&writer, NULL, writers[i].class_name);
		writer_end_list(&writer);
		writer_string(&writer, "model_type", model_family_names[a->family]);
		writer_int(&writer, "vocab_size", a->vocab);
		writers[i].write(a, &writer);
		writer_bool(&writer, "tie_word_embeddings", a->tied_head);
		writer_string(&writer, "torch_dtype", "float32");
		writer_finish(&writer);
		return true;
	}
	return false;
}

/* --- adapters ----------------------------------------------------------------------------------
 */

/* "q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight"; false for other parameters. */
static bool adapted_module(const char *parameter, const char **name, size_t *length)
{
	const char *end = strstr(parameter, ".lora_A.");

	if (end == NULL)
		return false;
	*name = end;
	while (*name > parameter && (*name)[-1] != '.')
		(*name)--;
	*length = (size_t)(end - *name);
	return true;
}

static bool is_first_of_its_name(const struct model *model, int parameter)
{
	const char *name, *other;
	size_t length, other_length;

	if (!adapted_module(model->parameters[parameter].name, &name, &length))
		return false;
	for (int p = 0; p < parameter; p++) {
		if (adapted_module(model->parameters[p].name, &other, &other_length) &&
			length == other_length && strncmp(name, other, length) == 0)
			return false;
	}
	return true;
}

const char **model_adapted_modules(const struct model *model, struct arena *arena, int *n)
{
	const char *typed = model->architecture.trainable.modules;
	const char **names = ARENA_ARRAY(arena, const char *, model->n_parameters);
	const char *name;
	size_t length;

	*n = 0;
	if (typed != NULL && strcmp(typed, "all-linear") != 0) {
		for (; *typed != '\0'; typed += typed[length] != '\0' ? length + 1 : length) {
			length = strcspn(typed, ",");
			names[(*n)++] = arena_strndup(arena, typed, length);
		}
		return names;
	}
	for (int p = 0; p < model->n_parameters; p++)
		if (is_first_of_its_name(model, p) &&
			adapted_module(model->parameters[p].name, &name, &length))
			names[(*n)++] = arena_strndup(arena, name, length);
	return names;
}

static void write_target_modules(const struct model *model, struct writer *writer)
{
	struct arena arena = {0};
	int n;
	const char **names = model_adapted_modules(model, &arena, &n);

	writer_begin_list(writer, "target_modules");
	for (int i = 0; i < n; i++)
		writer_string(writer, NULL, names[i]);
	writer_end_list(writer);
	arena_finish(&arena);
}

void model_write_adapter_config(const struct model *model, struct text *text)
{
	const struct architecture *a = &model->architecture;
	struct writer writer;

	writer_init(&writer, text, WRITER_JSON);
	writer_string(&writer, "peft_type", "LORA");
	writer_string(&writer, "task_type", "CAUSAL_LM");
	writer_string(&writer, "base_model_name_or_path", a->name);
	writer_int(&writer, "r", a->trainable.rank);
	writer_number(&writer, "lora_alpha", a->trainable.alpha);
	writer_number(&writer, "lora_dropout", 0);
	writer_string(&writer, "bias", "none");
	/* GPT-2's projections are Conv1D, which lie transposed. */
	writer_bool(&writer, "fan_in_fan_out", a->family == FAMILY_GPT2);
	write_target_modules(model, &writer);
	writer_bool(&writer, "inference_mode", true);
	writer_finish(&writer);
}
