/* Names of options and values in other tools. Where the meaning is clear, it is taken and a note
 * says so; else the error says what to type. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/options/options.h"
#include "cli/terminal/terminal.h"

/* --- names of options --------------------------------------------------------------------------
 */

#define TAKES(typed, option)                                                                       \
	{                                                                                          \
		typed, option, NULL, NULL                                                          \
	}
#define STAGE(typed, option, prefix)                                                               \
	{                                                                                          \
		typed, option, prefix, NULL                                                        \
	}
#define SAYS(typed, words)                                                                         \
	{                                                                                          \
		typed, NULL, NULL, words                                                           \
	}

#define BATCHES                                                                                    \
	"two are possible, type --micro-batch N (sequences a GPU takes at once) or "               \
	"--global-batch N (sequences a step, all GPUs together)"
#define IN_TOPOLOGY "nodes and GPUs are the second word: 2xdgx-h100 is two nodes; or type --gpus N"
#define IN_FILE_OF_TOPOLOGY                                                                        \
	"the network is in a file: `shardplan topologies show 2xdgx-h100 > my.yaml`, change "      \
	"network.nic_bandwidth in it, and give my.yaml as TOPOLOGY"
#define DATA_RANKS                                                                                 \
	"data-parallel ranks are those that the other axes leave: --gpus N says how many there "   \
	"are, --shard-group N how many share one copy"

static const struct synonym {
	const char *typed, *option;
	const char *prefix; /* put before the value */
	const char *words;  /* of the error */
} synonyms[] = {
	TAKES("mbs", "micro-batch"),
	TAKES("micro-batch-size", "micro-batch"),
	TAKES("local-batch-size", "micro-batch"),
	TAKES("per-device-train-batch-size", "micro-batch"),
	TAKES("train-micro-batch-size-per-gpu", "micro-batch"),
	TAKES("gbs", "global-batch"),
	TAKES("global-batch-size", "global-batch"),
	TAKES("train-batch-size", "global-batch"),
	SAYS("batch-size", BATCHES),
	SAYS("batch", BATCHES),
	SAYS("bs", BATCHES),
	TAKES("gas", "grad-accum"),
	TAKES("gradient-accumulation", "grad-accum"),
	TAKES("gradient-accumulation-steps", "grad-accum"),
	TAKES("accumulate-grad-batches", "grad-accum"),
	TAKES("seq", "seq-len"),
	TAKES("seq-length", "seq-len"),
	TAKES("sequence-length", "seq-len"),
	TAKES("max-seq-len", "seq-len"),
	TAKES("max-seq-length", "seq-len"),
	TAKES("max-length", "seq-len"),
	TAKES("context-length", "seq-len"),
	TAKES("gpu", "gpus"),
	TAKES("num-gpus", "gpus"),
	TAKES("n-gpus", "gpus"),
	TAKES("ngpus", "gpus"),
	TAKES("world-size", "gpus"),
	TAKES("num-processes", "gpus"),
	TAKES("gpus", "ranks"),
	TAKES("num-gpus", "ranks"),
	TAKES("world-size", "ranks"),
	SAYS("nproc-per-node", IN_TOPOLOGY),
	TAKES("nproc-per-node", "ranks"),
	SAYS("nodes", IN_TOPOLOGY),
	SAYS("nnodes", IN_TOPOLOGY),
	SAYS("num-nodes", IN_TOPOLOGY),
	SAYS("gpu-name", IN_TOPOLOGY),
	SAYS("gpu-type", IN_TOPOLOGY),
	SAYS("network", IN_FILE_OF_TOPOLOGY),
	SAYS("network-bandwidth", IN_FILE_OF_TOPOLOGY),
	SAYS("network-speed", IN_FILE_OF_TOPOLOGY),
	SAYS("bandwidth", IN_FILE_OF_TOPOLOGY),
	SAYS("internode-bandwidth", IN_FILE_OF_TOPOLOGY),
	SAYS("inter-node-bandwidth", IN_FILE_OF_TOPOLOGY),
	SAYS("nic", IN_FILE_OF_TOPOLOGY),
	SAYS("nics", IN_FILE_OF_TOPOLOGY),
	SAYS("nic-bandwidth", IN_FILE_OF_TOPOLOGY),
	SAYS("dp", DATA_RANKS),
	SAYS("dp-size", DATA_RANKS),
	SAYS("data-parallel", DATA_RANKS),
	SAYS("data-parallel-size", DATA_RANKS),
	SAYS("data-parallel-shard-degree", DATA_RANKS),
	SAYS("data-parallel-replicate-degree", DATA_RANKS),
	SAYS("model", "MODEL is the first word, without a dash: llama-3.1-8b 2xdgx-h100"),
	SAYS("topology", "TOPOLOGY is the second word, without a dash: llama-3.1-8b 2xdgx-h100"),
	TAKES("sharding", "strategy"),
	TAKES("sharding-strategy", "strategy"),
	TAKES("fsdp-sharding-strategy", "strategy"),
	STAGE("zero", "strategy", "zero"),
	STAGE("zero-stage", "strategy", "zero"),
	SAYS("fsdp", "type --strategy FULL_SHARD"),
	SAYS("hsdp", "type --strategy HYBRID_SHARD"),
	SAYS("ddp", "type --strategy NO_SHARD"),
	TAKES("backward-prefetch", "prefetch"),
	TAKES("auto-wrap-policy", "wrap"),
	TAKES("offload", "cpu-offload"),
	TAKES("precision", "param-dtype"),
	TAKES("mixed-precision", "param-dtype"),
	TAKES("dtype", "param-dtype"),
	TAKES("torch-dtype", "param-dtype"),
	SAYS("bf16", "type --param-dtype bf16 (masters stay fp32)"),
	SAYS("fp16", "type --param-dtype fp16 (masters stay fp32)"),
	TAKES("float8", "fp8"),
	TAKES("fp8-recipe", "fp8"),
	SAYS("fp8-format", "type --fp8 tensorwise or delayed"),
	TAKES("ac", "activation-checkpointing"),
	TAKES("checkpointing", "activation-checkpointing"),
	TAKES("recompute", "activation-checkpointing"),
	TAKES("recompute-granularity", "activation-checkpointing"),
	SAYS("gradient-checkpointing", "type --activation-checkpointing full"),
	SAYS("grad-checkpointing", "type --activation-checkpointing full"),
	TAKES("attn", "attention"),
	TAKES("attn-implementation", "attention"),
	SAYS("flash-attn", "type --attention flash"),
	SAYS("flash-attention", "type --attention flash"),
	SAYS("torch-compile", "type --compile on"),
	TAKES("optim", "optimizer"),
	TAKES("max-grad-norm", "clip"),
	TAKES("clip-grad", "clip"),
	TAKES("gradient-clipping", "clip"),
	SAYS("lora", "type --trainable lora:16 (16: the rank)"),
	SAYS("lora-rank", "type --trainable lora:16 (16: the rank)"),
	SAYS("lora-r", "type --trainable lora:16 (16: the rank)"),
	SAYS("lora-alpha", "type --trainable lora:16:alpha=32 (16: the rank)"),
	SAYS("qlora",
		"weights of 4 bits are not predicted; --trainable lora:16 keeps them in bf16"),
	SAYS("load-in-4bit",
		"weights of 4 bits are not predicted; --trainable lora:16 keeps them in bf16"),
	SAYS("load-in-8bit",
		"weights of 8 bits are not predicted; --trainable lora:16 keeps them in bf16"),
	TAKES("max-memory", "memory-limit"),
	TAKES("gpu-memory", "memory-limit"),
	TAKES("vram", "memory-limit"),
	TAKES("framework", "for"),
	TAKES("framework", "to"),
	TAKES("framework", "from"),
	TAKES("target", "for"),
	TAKES("target", "to"),
	TAKES("for", "to"),
	TAKES("format", "to"),
	TAKES("backend", "runtime"),
	TAKES("tensor-parallel", "tensor"),
	TAKES("tensor-parallel-size", "tensor"),
	TAKES("tensor-model-parallel-size", "tensor"),
	TAKES("tp", "tensor"),
	TAKES("tensor-parallel-degree", "tensor"),
	TAKES("sp", "sequence-parallel"),
	TAKES("pipeline-parallel", "pipeline"),
	TAKES("pipeline-parallel-size", "pipeline"),
	TAKES("pipeline-parallel-degree", "pipeline"),
	TAKES("pipeline-model-parallel-size", "pipeline"),
	TAKES("pp", "pipeline"),
	TAKES("pipeline-parallel-schedule", "pipeline-schedule"),
	TAKES("pp-schedule", "pipeline-schedule"),
	TAKES("num-virtual-stages-per-pipeline-rank", "virtual-stages"),
	TAKES("vpp", "virtual-stages"),
	TAKES("context-parallel", "context"),
	TAKES("context-parallel-size", "context"),
	TAKES("context-parallel-degree", "context"),
	TAKES("cp", "context"),
	TAKES("expert-parallel", "expert"),
	TAKES("expert-parallel-size", "expert"),
	TAKES("expert-model-parallel-size", "expert"),
	TAKES("expert-parallel-degree", "expert"),
	TAKES("ep", "expert"),
	TAKES("moe-comm-backend", "expert-dispatch"),
	TAKES("expert-parallel-comm-backend", "expert-dispatch"),
	TAKES("overlap-moe-expert-parallel-comm", "expert-overlap"),
	SAYS("moe-token-dispatcher-type", "flex is --expert-dispatch deepep, alltoall the default"),
	SAYS("moe-enable-deepep", "type --expert-dispatch deepep"),
	SAYS("deepep", "type --expert-dispatch deepep"),
	TAKES("expert-tensor-parallel-size", "expert-tensor"),
	TAKES("expert-tensor-parallel-degree", "expert-tensor"),
	TAKES("etp", "expert-tensor"),
	TAKES("learning-rate", "lr"),
	TAKES("warmup-steps", "warmup"),
	TAKES("max-steps", "steps"),
	TAKES("num-steps", "steps"),
	TAKES("train-iters", "steps"),
	TAKES("save-steps", "every"),
	TAKES("save-interval", "every"),
	TAKES("checkpoint-dir", "checkpoint"),
	TAKES("save", "checkpoint"),
	TAKES("save-dir", "checkpoint"),
	TAKES("save-total-limit", "keep"),
	TAKES("load", "resume"),
	TAKES("resume-from", "resume"),
	TAKES("resume-from-checkpoint", "resume"),
	TAKES("iters", "steps"),
	TAKES("dataset", "data"),
	TAKES("data-path", "data"),
	TAKES("train-data", "data"),
	TAKES("scheduler", "lr-schedule"),
	TAKES("lr-scheduler", "lr-schedule"),
	TAKES("lr-scheduler-type", "lr-schedule"),
	TAKES("lr-decay-style", "lr-schedule"),
	TAKES("init-from", "weights"),
	TAKES("pretrained", "weights"),
	TAKES("fast", "quick"),
	TAKES("out", "output"),
	TAKES("output-dir", "output"),
	TAKES("output-dir", "checkpoint"),
};

static const struct synonym *find_synonym(const char *typed, unsigned commands)
{
	for (int i = 0; i < COUNT_OF(synonyms); i++) {
		const struct synonym *synonym = &synonyms[i];
		/* What is said is of a question. */
		const char *option = synonym->option != NULL ? synonym->option : "seq-len";

		if (same_name(synonym->typed, typed) && option_find(option)->commands & commands)
			return synonym;
	}
	return NULL;
}

const struct option *option_spelled(
	const char *typed, enum command_index command, const char **prefix, struct error *error)
{
	const struct synonym *synonym = find_synonym(typed, 1u << command);

	*prefix = "";
	for (int i = 0; i < n_options; i++)
		if (same_name(all_options[i].name, typed) && all_options[i].commands >> command & 1)
			return &all_options[i];
	if (synonym == NULL)
		return NULL;
	if (synonym->option == NULL) {
		error_set(error, EXIT_CODE_USAGE, "--%s: %s", typed, synonym->words);
		return NULL;
	}
	*prefix = synonym->prefix != NULL ? synonym->prefix : "";
	return option_find(synonym->option);
}

const struct option *option_called(const char *typed, const char **words)
{
	const struct synonym *synonym = find_synonym(typed, ~0u);

	*words = synonym != NULL ? synonym->words : NULL;
	return synonym != NULL && synonym->option != NULL ? option_find(synonym->option) : NULL;
}

/* --- values ------------------------------------------------------------------------------------
 */

static const struct word {
	const char *option, *typed, *means;
} words[] = {
	{"strategy", "zero0", "NO_SHARD"},
	{"strategy", "zero1", "ZERO_1"},
	{"strategy", "zero2", "ZERO_2"},
	{"strategy", "zero3", "ZERO_3"},
	{"strategy", "stage1", "ZERO_1"},
	{"strategy", "stage2", "ZERO_2"},
	{"strategy", "stage3", "ZERO_3"},
	{"strategy", "ddp", "NO_SHARD"},
	{"strategy", "fsdp", "FULL_SHARD"},
	{"strategy", "fsdp2", "FULL_SHARD"},
	{"strategy", "hsdp", "HYBRID_SHARD"},
	{"runtime", "fsdp", "pytorch-fsdp2"},
	{"runtime", "fsdp1", "pytorch-fsdp1"},
	{"runtime", "fsdp2", "pytorch-fsdp2"},
	{"runtime", "ddp", "pytorch-ddp"},
	{"runtime", "torchtitan", "pytorch-fsdp2"},
	{"for", "titan", "torchtitan"},
	{"for", "torch", "pytorch"},
	{"for", "fsdp", "pytorch"},
	{"for", "fsdp2", "pytorch"},
	{"for", "fsdp1", "pytorch-fsdp1"},
	{"for", "trainer", "hf-trainer"},
	{"for", "huggingface", "hf-trainer"},
	{"for", "transformers", "hf-trainer"},
	{"for", "megatronlm", "megatron"},
	{"for", "megatroncore", "megatron"},
	{"device", "gpu", "cuda"},
	{"device", "cpu", "host"},
	{"format", "md", "markdown"},
	{"format", "chrome", "trace"},
	{"format", "perfetto", "trace"},
	{"view", "timeline", "streams"},
	{"prefetch", "backwardpre", "pre"},
	{"prefetch", "backwardpost", "post"},
	{"prefetch", "noprefetch", "none"},
	{"wrap", "transformerbasedwrap", "block"},
	{"activation-checkpointing", "true", "full"},
	{"activation-checkpointing", "on", "full"},
	{"activation-checkpointing", "yes", "full"},
	{"activation-checkpointing", "false", "none"},
	{"activation-checkpointing", "off", "none"},
	{"activation-checkpointing", "no", "none"},
	{"attention", "sdpa", "flash"},
	{"attention", "flashattention", "flash"},
	{"attention", "flashattention2", "flash"},
	{"attention", "flashattention3", "flash3"},
	{"attention", "flash2", "flash"},
	{"pipeline-schedule", "interleaved1f1b", "interleaved"},
	{"pipeline-schedule", "interleavedzerobubble", "zb-h1"},
	{"pipeline-schedule", "zbvzerobubble", "zbv"},
	{"pipeline-schedule", "afab", "gpipe"},
	{"optimizer", "adam", "adamw"},
	{"optimizer", "adamwtorch", "adamw-foreach"},
	{"optimizer", "adamwtorchfused", "adamw-fused"},
};

static const struct word dtypes[] = {
	{NULL, "bfloat16", "bf16"},
	{NULL, "bf16mixed", "bf16"},
	{NULL, "float16", "fp16"},
	{NULL, "half", "fp16"},
	{NULL, "16mixed", "fp16"},
	{NULL, "float32", "fp32"},
	{NULL, "float", "fp32"},
	{NULL, "no", "fp32"},
};

/* Are letters and digits equal, apart from capitals? */
static bool same_letters(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (*a == '-' || *a == '_' || *a == ' ')
			a++;
		while (*b == '-' || *b == '_' || *b == ' ')
			b++;
		if (*a == '\0' || tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return *a == *b;
	}
}

static const char *named(const struct option *option, const char *typed)
{
	const struct field *field = &option->knob->field;

	for (int i = 0; field->names != NULL && field->names[i] != NULL; i++)
		if (same_letters(field->names[i], typed))
			return field->names[i];
	return NULL;
}

/* The value for "True" of Python, "YES" or "1"; NULL: it is one of ours, or unknown. */
static const char *switched(const char *typed)
{
	static const char *const ons[] = {"on", "true", "yes", "1"};
	static const char *const offs[] = {"off", "false", "no", "0"};

	for (int i = 0; i < COUNT_OF(ons); i++) {
		if (same_name(typed, ons[i]))
			return i < 2 && strcmp(typed, ons[i]) == 0 ? NULL : "on";
		if (same_name(typed, offs[i]))
			return i < 2 && strcmp(typed, offs[i]) == 0 ? NULL : "off";
	}
	return NULL;
}

static bool takes_dtype(const struct option *option)
{
	return option->knob != NULL &&
	       option->knob->field.names == knob_table[KNOB_PARAM_DTYPE].field.names;
}

/* The option whose values a word is looked for among: targets have one list of names. */
static const char *values_of(const struct option *option)
{
	bool target = strcmp(option->name, "to") == 0 || strcmp(option->name, "from") == 0;

	return target ? "for" : option->name;
}

static const char *one_word(const struct option *option, const char *typed)
{
	const char *name = option->knob != NULL ? named(option, typed) : NULL;

	for (int i = 0; name == NULL && i < COUNT_OF(words); i++)
		if (strcmp(words[i].option, values_of(option)) == 0 &&
			same_letters(words[i].typed, typed))
			name = words[i].means;
	for (int i = 0; name == NULL && takes_dtype(option) && i < COUNT_OF(dtypes); i++)
		if (same_letters(dtypes[i].typed, typed))
			name = dtypes[i].means;
	if (name == NULL && option->knob != NULL && option->knob->field.type == FIELD_TYPE_BOOL)
		name = switched(typed);
	return name != NULL ? name : typed;
}

/* The value of "k" in a count: "8k" tokens are 8192, "2k" steps 2000. 0: the option is not a
 * count. */
static int64_t thousand_of(const struct option *option)
{
	static const char *const binary[] = {
		"seq-len", "micro-batch", "global-batch", "grad-accum", "gpus"};
	static const char *const decimal[] = {"steps", "warmup", "every"};

	for (int i = 0; i < COUNT_OF(binary); i++)
		if (strcmp(option->name, binary[i]) == 0)
			return 1024;
	for (int i = 0; i < COUNT_OF(decimal); i++)
		if (strcmp(option->name, decimal[i]) == 0)
			return 1000;
	return 0;
}

/* The number for "8k"; NULL: the option is not a count, or the text is no such number. */
static const char *thousands(const struct option *option, const char *typed, struct arena *arena)
{
	size_t digits = strspn(typed, "0123456789");
	int64_t step = thousand_of(option), number;
	bool million = typed[digits] == 'm' || typed[digits] == 'M';

	if (step == 0 || digits == 0 || digits > 9 || (!million && tolower(typed[digits]) != 'k') ||
		typed[digits + 1] != '\0' ||
		!parse_int(arena_strndup(arena, typed, digits), &number))
		return NULL;
	return arena_printf(arena, "%lld", (long long)(number * (million ? step * step : step)));
}

/* The number for "4,096", if the option cannot be a list. NULL: it is not of that form. */
static const char *grouped(const struct option *option, const char *typed, struct arena *arena)
{
	size_t digits = strspn(typed, "0123456789");
	bool searched = option->knob != NULL && !(option->knob->roles & KNOB_ONE_VALUE);

	if (searched || thousand_of(option) == 0 || digits == 0 || digits > 3 ||
		typed[digits] != ',' || strspn(typed + digits + 1, "0123456789") != 3 ||
		typed[digits + 4] != '\0')
		return NULL;
	return arena_printf(arena, "%.*s%s", (int)digits, typed, typed + digits + 1);
}

const char *option_value_spelled(
	const struct option *option, const char *typed, struct arena *arena)
{
	const char *number = grouped(option, typed, arena), *value = "";

	if (number != NULL)
		return number;
	while (true) {
		size_t length = strcspn(typed, ",");
		const char *word = arena_strndup(arena, typed, length);
		const char *count = thousands(option, word, arena);
		value = arena_printf(
			arena, "%s%s", value, count != NULL ? count : one_word(option, word));
		if (typed[length] == '\0')
			return value;
		value = arena_printf(arena, "%s,", value);
		typed += length + 1;
	}
}

bool option_value_allowed(
	const struct option *option, const char *where, const char *value, struct error *error)
{
	if (!takes_dtype(option) || (!same_letters(value, "fp8") && !same_letters(value, "float8")))
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"%s: fp8 is an option of its own: type --fp8 tensorwise, or mxfp8 "
		"on Blackwell",
		where);
}
