/* The families: what each takes for granted and how its config.json is read. A family that is made
 * of the same parts is one more row (docs/models.md). */
#include "models/families.h"

#include <string.h>

#define COMMON .norm_epsilon = 1e-5, .rope_theta = 10000
/* RoPE, RMSNorm, SwiGLU, separate q, k, v. */
#define LLAMA .positions = POSITIONS_ROPE, .norm = NORM_RMSNORM, .mlp = MLP_SWIGLU, COMMON
/* LayerNorm with bias, two matrices, biases everywhere. */
#define BIASED                                                                                     \
	.norm = NORM_LAYERNORM, .norm_bias = true, .mlp = MLP_GELU, .qkv_bias = true,              \
	.output_bias = true, .mlp_bias = true, COMMON
#define GEMMA                                                                                      \
	.positions = POSITIONS_ROPE, .norm = NORM_RMSNORM, .mlp = MLP_GEGLU, .gelu_tanh = true,    \
	.tied_head = true, .norm_epsilon = 1e-6, .rope_theta = 10000, .head_dim = 256

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
/* A row: suffix, defaults, dialect, epsilon, class, aliases, names, readers. */
#define ROW(suffix, dialect_, epsilon, class_, aliases_, names_, readers_, ...)                    \
	[FAMILY_##suffix] = {                                                                      \
		.defaults = {.family = FAMILY_##suffix, __VA_ARGS__},                              \
		.dialect = DIALECT_##dialect_,                                                     \
		.config_norm_epsilon = epsilon,                                                    \
		.config_class = class_,                                                            \
		.aliases = aliases_,                                                               \
		.names = &names_##_names,                                                          \
		.readers = read_##readers_,                                                        \
	}

const struct family model_families[] = {
	ROW(GPT2, GPT2, 1e-5, "GPT2LMHeadModel", NULL, gpt2, gpt2, BIASED,
		.positions = POSITIONS_LEARNED, .gelu_tanh = true, .fused_qkv = true,
		.tied_head = true),
	ROW(MPT, MPT, 1e-5, "MptForCausalLM", NULL, mpt, mpt, .positions = POSITIONS_ALIBI,
		.norm = NORM_LAYERNORM, .mlp = MLP_GELU, .fused_qkv = true, .tied_head = true,
		COMMON),
	ROW(LLAMA, LLAMA, 1e-6, "LlamaForCausalLM", NULL, llama, llama, LLAMA),
	ROW(MISTRAL, LLAMA, 1e-6, "MistralForCausalLM", NAMES("ministral"), llama, llama, LLAMA),
	ROW(QWEN2, LLAMA, 1e-6, "Qwen2ForCausalLM",
		NAMES("qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text"), llama, qwen2,
		LLAMA, .qkv_bias = true),
	ROW(QWEN3, LLAMA, 1e-6, "Qwen3ForCausalLM", NAMES("qwen3_vl_text"), llama, llama, LLAMA,
		.qk_norm = true),
	/* Two matrices; relu2 between them. */
	ROW(ARCEE, LLAMA, 1e-5, "ArceeForCausalLM", NULL, llama, llama, .positions = POSITIONS_ROPE,
		.norm = NORM_RMSNORM, .mlp = MLP_GELU, COMMON),
	ROW(BLOOM, GPT2, 1e-5, "BloomForCausalLM", NULL, bloom, bloom, BIASED,
		.positions = POSITIONS_ALIBI, .gelu_tanh = true, .fused_qkv = true,
		.tied_head = true, .embedding_norm = true, .context = 2048),
	ROW(CODEGEN, GPT2, 1e-5, "CodeGenForCausalLM", NULL, codegen, gptj,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_GELU, .gelu_tanh = true, .mlp_bias = true, .fused_qkv = true,
		.head_bias = true, .block = BLOCK_PARALLEL, COMMON),
	ROW(COHERE, LLAMA, 1e-5, "CohereForCausalLM", NULL, llama, cohere,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .mlp = MLP_SWIGLU,
		.tied_head = true, .block = BLOCK_PARALLEL, COMMON),
	ROW(COHERE2, LLAMA, 1e-5, "Cohere2ForCausalLM", NULL, llama, cohere,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .mlp = MLP_SWIGLU,
		.tied_head = true, .block = BLOCK_PARALLEL, COMMON),
	ROW(DBRX, MPT, 1e-5, "DbrxForCausalLM", NULL, dbrx, dbrx, .positions = POSITIONS_ROPE,
		.norm = NORM_LAYERNORM, .mlp = MLP_SWIGLU, .fused_qkv = true, COMMON),
	ROW(DEEPSEEK_V2, LLAMA, 1e-6, "DeepseekV2ForCausalLM", NULL, llama, deepseek, LLAMA),
	ROW(DEEPSEEK_V3, LLAMA, 1e-6, "DeepseekV3ForCausalLM", NAMES("kimi_k2"), llama, deepseek,
		LLAMA),
	ROW(ERNIE4_5, LLAMA, 1e-5, "Ernie4_5ForCausalLM", NULL, llama, ernie, LLAMA,
		.head_dim = 128, .tied_head = true),
	ROW(EXAONE4, LLAMA, 1e-5, "Exaone4ForCausalLM", NULL, olmo2, llama, LLAMA,
		.block = BLOCK_POST_NORM, .qk_norm = true),
	ROW(FALCON, LLAMA, 1e-5, "FalconForCausalLM", NULL, falcon, falcon, .norm = NORM_LAYERNORM,
		.norm_bias = true, .mlp = MLP_GELU, .fused_qkv = true, .tied_head = true,
		.positions = POSITIONS_ROPE, .context = 2048, COMMON),
	ROW(GEMMA, LLAMA, 1e-6, "GemmaForCausalLM", NULL, llama, gemma, GEMMA),
	ROW(GEMMA2, LLAMA, 1e-6, "Gemma2ForCausalLM", NULL, gemma2, gemma, GEMMA,
		.block = BLOCK_SANDWICH),
	/* The sizes that its files leave out are transformers' defaults. */
	ROW(GEMMA3, LLAMA, 1e-6, "Gemma3ForCausalLM", NAMES("gemma3"), gemma2, gemma, GEMMA,
		.block = BLOCK_SANDWICH, .qk_norm = true, .heads = 8, .kv_heads = 4,
		.vocab = 262208, .context = 131072),
	ROW(GLM, LLAMA, 1.5625e-7, "GlmForCausalLM", NULL, llama, separate, LLAMA, .head_dim = 128,
		.qkv_bias = true, .fused_gate_up = true),
	ROW(GLM4, LLAMA, 1e-5, "Glm4ForCausalLM", NULL, glm4, glm, LLAMA, .block = BLOCK_SANDWICH,
		.fused_gate_up = true),
	ROW(GLM4_MOE, LLAMA, 1e-5, "Glm4MoeForCausalLM", NULL, llama, glm_moe, LLAMA),
	ROW(GPT_BIGCODE, GPT2, 1e-5, "GPTBigCodeForCausalLM", NULL, gpt2, bigcode, BIASED,
		.positions = POSITIONS_LEARNED, .gelu_tanh = true, .fused_qkv = true,
		.tied_head = true),
	ROW(GPT_NEO, LLAMA, 1e-5, "GPTNeoForCausalLM", NULL, gpt_neo, gpt_neo,
		.positions = POSITIONS_LEARNED, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_GELU, .gelu_tanh = true, .output_bias = true, .mlp_bias = true,
		.tied_head = true, COMMON),
	ROW(GPT_NEOX, LLAMA, 1e-5, "GPTNeoXForCausalLM", NULL, neox, neox, BIASED,
		.positions = POSITIONS_ROPE, .fused_qkv = true),
	ROW(GPT_OSS, LLAMA, 1e-5, "GptOssForCausalLM", NULL, gpt_oss, gpt_oss, LLAMA,
		.attention_sinks = true, .router_bias = true, .mlp_bias = true),
	ROW(GPTJ, GPT2, 1e-5, "GPTJForCausalLM", NULL, gptj, gptj, .positions = POSITIONS_ROPE,
		.norm = NORM_LAYERNORM, .norm_bias = true, .mlp = MLP_GELU, .gelu_tanh = true,
		.mlp_bias = true, .head_bias = true, .block = BLOCK_PARALLEL, COMMON),
	ROW(GRANITE, LLAMA, 1e-6, "GraniteForCausalLM", NULL, llama, llama, LLAMA),
	ROW(GRANITE_MOE, LLAMA, 1e-6, "GraniteMoeForCausalLM", NULL, granite_moe, mixtral, LLAMA),
	ROW(HELIUM, LLAMA, 1e-8, "HeliumForCausalLM", NULL, llama, separate, LLAMA),
	ROW(HUNYUAN_DENSE, LLAMA, 1e-5, "HunYuanDenseV1ForCausalLM", NULL, hunyuan, llama, LLAMA,
		.qk_norm = true),
	ROW(HUNYUAN_MOE, LLAMA, 1e-5, "HunYuanMoEV1ForCausalLM", NULL, hunyuan, hunyuan_moe, LLAMA,
		.qk_norm = true),
	ROW(LLAMA4, LLAMA, 1e-5, "Llama4ForCausalLM", NAMES("llama4"), llama4, llama4, LLAMA),
	ROW(MIXTRAL, LLAMA, 1e-5, "MixtralForCausalLM", NULL, mixtral, mixtral, LLAMA),
	/* Two matrices; relu2 between them. */
	ROW(NEMOTRON, LLAMA, 1e-5, "NemotronForCausalLM", NULL, llama, llama,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_GELU, COMMON),
	ROW(OLMO, LLAMA, 1e-5, "OlmoForCausalLM", NULL, llama, llama, .positions = POSITIONS_ROPE,
		.norm = NORM_PLAIN, .mlp = MLP_SWIGLU, COMMON),
	ROW(OLMO2, LLAMA, 1e-5, "Olmo2ForCausalLM", NAMES("olmo3"), olmo2, llama, LLAMA,
		.block = BLOCK_POST_NORM, .qk_norm = true, .qk_norm_wide = true),
	ROW(OLMOE, LLAMA, 1e-5, "OlmoeForCausalLM", NULL, llama, olmoe, LLAMA, .qk_norm = true,
		.qk_norm_wide = true),
	ROW(OPT, LLAMA, 1e-5, "OPTForCausalLM", NULL, opt, opt, .positions = POSITIONS_LEARNED,
		.norm = NORM_LAYERNORM, .norm_bias = true, .mlp = MLP_RELU, .tied_head = true,
		.position_extra = 2, COMMON),
	ROW(PHI, LLAMA, 1e-5, "PhiForCausalLM", NULL, phi, phi, BIASED, .positions = POSITIONS_ROPE,
		.gelu_tanh = true, .head_bias = true, .block = BLOCK_PARALLEL),
	ROW(PHI3, LLAMA, 1e-5, "Phi3ForCausalLM", NULL, llama, llama, LLAMA, .fused_qkv = true,
		.fused_gate_up = true),
	ROW(PHIMOE, LLAMA, 1e-5, "PhimoeForCausalLM", NULL, mixtral, mixtral,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_SWIGLU, COMMON),
	ROW(QWEN2_MOE, LLAMA, 1e-6, "Qwen2MoeForCausalLM", NULL, qwen2_moe, qwen2_moe, LLAMA,
		.qkv_bias = true, .shared_gate = true),
	ROW(QWEN3_MOE, LLAMA, 1e-6, "Qwen3MoeForCausalLM", NAMES("qwen3_vl_moe_text"), llama,
		qwen3_moe, LLAMA, .qk_norm = true),
	ROW(SEED_OSS, LLAMA, 1e-6, "SeedOssForCausalLM", NULL, llama, separate, LLAMA,
		.qkv_bias = true),
	ROW(SMOLLM3, LLAMA, 1e-6, "SmolLM3ForCausalLM", NULL, llama, llama, LLAMA,
		.tied_head = true),
	ROW(STABLELM, LLAMA, 1e-5, "StableLmForCausalLM", NULL, llama, stablelm,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_SWIGLU, COMMON),
	ROW(STARCODER2, LLAMA, 1e-5, "Starcoder2ForCausalLM", NULL, starcoder2, starcoder2,
		.positions = POSITIONS_ROPE, .norm = NORM_LAYERNORM, .norm_bias = true,
		.mlp = MLP_GELU, .gelu_tanh = true, .tied_head = true, COMMON),
	ROW(T5, T5, 1e-6, "T5ForConditionalGeneration", NAMES("mt5"), t5, t5,
		.positions = POSITIONS_RELATIVE, .norm = NORM_RMSNORM, .mlp = MLP_RELU,
		.tied_head = true, .context = 512, COMMON),
};
const int n_model_families = COUNT_OF(model_families);
_Static_assert(COUNT_OF(model_families) == MODEL_FAMILY_COUNT, "one row a family");

const char *const model_family_names[] = {
#define X(suffix, name) [FAMILY_##suffix] = name,
	MODEL_FAMILIES(X)
#undef X
		NULL,
};

#define STATE_SPACE                                                                                \
	"a state-space model has no attention and its scan is not modelled; plan a transformer"
#define HYBRID                                                                                     \
	"its blocks are of several kinds (state-space or linear attention beside softmax "         \
	"attention), which is not modelled"
#define ENCODER         "an encoder without a decoder is not modelled; causal models and T5 are"
#define ENCODER_DECODER "of encoder-decoder models only T5 and mT5 are modelled"
#define TWO_KINDS                                                                                  \
	"its blocks have attention of two shapes or weights per layer beside the blocks, which "   \
	"is not modelled"

static const struct refused_type refused_types[] = {
	{"mamba", STATE_SPACE},
	{"mamba2", STATE_SPACE},
	{"falcon_mamba", STATE_SPACE},
	{"rwkv", "a recurrent model has no attention, which is not modelled; plan a transformer"},
	{"xlstm", "a recurrent model has no attention, which is not modelled; plan a transformer"},
	{"jamba", HYBRID},
	{"bamba", HYBRID},
	{"zamba", HYBRID},
	{"zamba2", HYBRID},
	{"nemotron_h", HYBRID},
	{"falcon_h1", HYBRID},
	{"granitemoehybrid", HYBRID},
	{"recurrent_gemma", HYBRID},
	{"lfm2", HYBRID},
	{"minimax", HYBRID},
	{"qwen3_next", HYBRID},
	{"kimi_linear", HYBRID},
	{"bert", ENCODER},
	{"roberta", ENCODER},
	{"xlm-roberta", ENCODER},
	{"distilbert", ENCODER},
	{"deberta-v2", ENCODER},
	{"modernbert", ENCODER},
	{"electra", ENCODER},
	{"vit", ENCODER},
	{"clip", ENCODER},
	{"clip_text_model", ENCODER},
	{"siglip", ENCODER},
	{"bart", ENCODER_DECODER},
	{"mbart", ENCODER_DECODER},
	{"pegasus", ENCODER_DECODER},
	{"whisper", ENCODER_DECODER},
	{"umt5", ENCODER_DECODER},
	{"longt5", ENCODER_DECODER},
	{"gemma3n", TWO_KINDS},
	{"gemma3n_text", TWO_KINDS},
	{"gemma4", TWO_KINDS},
	{"gemma4_text", TWO_KINDS},
	{"mllama_text_model", "its cross-attention blocks to an image encoder are not modelled"},
	{"mllama", "its cross-attention blocks to an image encoder are not modelled"},
	{"persimmon", "its norms of queries and keys have biases, which are not modelled"},
	{"xglm", "its sinusoidal positions are not modelled"},
	{"diffllama", "its differential attention is not modelled"},
	{"apertus", "its activation (xIELU) has weights, which are not modelled"},
	{"bitnet", "its norms inside attention and MLP and its ternary products are not modelled"},
	{"deepseek_v32", "its sparse attention with an indexer is not modelled"},
};

const char *refused_reason(const char *model_type)
{
	for (int i = 0; i < COUNT_OF(refused_types); i++)
		if (strcmp(refused_types[i].type, model_type) == 0)
			return refused_types[i].reason;
	return NULL;
}
