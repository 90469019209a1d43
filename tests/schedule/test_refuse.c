/* Refusals and their messages: values, knobs that a runtime cannot honour, options without effect,
 * plans from files. */
#include "schedule/resolve/resolve.h"
#include "support.h"

/* --- messages ------------------------------------------------------------------------------------
 */

enum where {
	GPU,
	CPU,
	VOLTA,
	NVL,
	ENDLESS
}; /* the last: of a model with any number of positions */

static const struct {
	enum where where;
	const char *words, *message;
} bad[] = {
	{GPU, "strategy=full_shrad",
		"--strategy: expected one of NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD, "
		"HYBRID_SHARD_ZERO2, ZERO_1, ZERO_2, ZERO_3, got \"full_shrad\", did you mean "
		"\"FULL_SHARD\"?"},
	{GPU, "strategie=FULL_SHARD", "--strategie: no such option, did you mean \"strategy\"?"},
	{GPU, "colour=blue", "--colour: no such option"},
	{GPU, "seq_len=0", "--seq-len: expected a whole number greater than 0, got \"0\""},
	{GPU, "seq_len=", "--seq-len: expected a whole number greater than 0, got \"\""},
	{GPU, "seq_len=99999999999999999999",
		"--seq-len: expected a whole number greater than 0, got "
		"\"99999999999999999999\""},
	{GPU, "seq_len=8192", "--seq-len 8192: llama-2-7b has a context of 4096 tokens"},
	{ENDLESS, "seq_len=5000000000",
		"--seq-len 5000000000: the logits of one sequence would not fit any machine; use "
		"at most 2199023255"},
	{ENDLESS, "seq_len=2000000000 micro_batch=2",
		"--micro-batch 2: the logits of 2000000000 tokens each would not fit any machine; "
		"use at most 1"},
	{GPU, "micro_batch=-1",
		"--micro-batch: expected a whole number greater than 0, got \"-1\""},
	{GPU, "micro_batch=1.5",
		"--micro-batch: expected a whole number greater than 0, got \"1.5\""},
	{GPU, "global_batch=100",
		"--global-batch 100: not a multiple of data-parallel ranks x --micro-batch = 16; "
		"96 or 112 would be, or use --tensor 4"},
	{GPU, "global_batch=100 tensor=2",
		"--global-batch 100: not a multiple of data-parallel ranks x --micro-batch = 8; "
		"96 or 104 would be"},
	{GPU, "global_batch=5 pipeline=8",
		"--global-batch 5: not a multiple of data-parallel ranks x --micro-batch = 2; "
		"4 or 6 would be, or use --tensor 2"},
	{NVL, "global_batch=1024",
		"--global-batch 1024: not a multiple of data-parallel ranks x --micro-batch = 72; "
		"1008 or 1080 would be, or use --gpus 64"},
	{NVL, "global_batch=1021",
		"--global-batch 1021: not a multiple of data-parallel ranks x --micro-batch = 72; "
		"1008 or 1080 would be"},
	{GPU, "global_batch=101",
		"--global-batch 101: not a multiple of data-parallel ranks x --micro-batch = 16; "
		"96 or 112 would be"},
	{GPU, "global_batch=1048570",
		"--global-batch 1048570: not a multiple of data-parallel ranks x --micro-batch = "
		"16; 1048560 or 1048576 would be; it counts sequences, not tokens"},
	{GPU, "global_batch=8",
		"--global-batch 8: each of 16 data-parallel ranks needs a sequence; use 16, or "
		"fewer devices"},
	{GPU, "global_batch=100 grad_accum=2",
		"--global-batch 100: not a multiple of data-parallel ranks x --grad-accum = 32; 96 "
		"or 128 would be, or use --tensor 8"},
	{GPU, "global_batch=64 micro_batch=2 grad_accum=3",
		"--global-batch 64: micro-batch 2 x accumulation 3 x 16 ranks is 96; drop one of "
		"the options or use --global-batch 96"},
	{GPU, "global_batch=9223372036854775807",
		"--global-batch 9223372036854775807: is too large"},
	{GPU, "micro_batch=9000000000000000000",
		"--micro-batch 9000000000000000000: the batch is too large"},
	{GPU, "micro_batch=9000000000000000000 global_batch=16",
		"--micro-batch 9000000000000000000: the batch is too large"},
	{GPU, "grad_accum=9000000000000000000 global_batch=16",
		"--grad-accum 9000000000000000000: the batch is too large"},
	{GPU, "micro_batch=1000000",
		"--micro-batch 1000000: the logits of 4096 tokens each would not fit any machine; "
		"use at most 536870"},
	{GPU, "grad_accum=1000000000",
		"--grad-accum 1000000000: expected at most 16384 micro-batches in a step; use a "
		"larger --micro-batch; --global-batch counts sequences, not tokens"},
	{GPU, "runtime=megatron strategy=ZERO_1 compile=on",
		"--compile on: runtime megatron cannot do that; it does not compile models; use "
		"off"},
	{GPU, "shard_group=0", "--shard-group: expected a whole number greater than 0, got \"0\""},
	{GPU, "shard_group=x", "--shard-group: expected a whole number greater than 0, got \"x\""},
	{GPU, "shard_group=5 strategy=HYBRID_SHARD",
		"--shard-group 5: does not divide 16 ranks; 4 or 8 would"},
	{GPU, "shard_group=32 strategy=HYBRID_SHARD",
		"--shard-group 32: there are only 16 ranks; use at most 16"},
	{GPU, "shard_group=8",
		"--shard-group 8: FULL_SHARD shards over all 16 ranks; use HYBRID_SHARD for "
		"smaller groups"},
	{GPU, "shard_group=8 strategy=SHARD_GRAD_OP",
		"--shard-group 8: SHARD_GRAD_OP shards over all 16 ranks; use HYBRID_SHARD_ZERO2 "
		"for smaller groups"},
	{GPU, "shard_group=8 strategy=NO_SHARD",
		"--shard-group 8: NO_SHARD has no shard group, use HYBRID_SHARD"},
	{GPU, "runtime=pytorch",
		"--runtime: expected one of pytorch-fsdp1, pytorch-fsdp2, pytorch-ddp, shardplan, "
		"deepspeed, nanotron, internevo, megatron, got \"pytorch\""},
	{GPU, "wrap=layer",
		"--wrap: expected block, blocks:K, size:N or model, and after the first "
		"three +embedding, +head or both, got \"layer\""},
	{GPU, "wrap=blocks:0",
		"--wrap: expected block, blocks:K, size:N or model, and after the first "
		"three +embedding, +head or both, got \"blocks:0\""},
	{GPU, "wrap=size:1e30",
		"--wrap: expected block, blocks:K, size:N or model, and after the first "
		"three +embedding, +head or both, got \"size:1e30\""},
	{GPU, "reshard_after_forward=maybe",
		"--reshard-after-forward: expected true, false or a group size, got \"maybe\""},
	{GPU, "reshard_after_forward=16xall+16xtrue",
		"--reshard-after-forward: expected true, false or a group size, got "
		"\"16xall+16xtrue\""},
	{GPU, "reshard_after_forward=all strategy=SHARD_GRAD_OP",
		"--reshard-after-forward all: contradicts SHARD_GRAD_OP; use FULL_SHARD"},
	{GPU, "reshard_after_forward=-1",
		"--reshard-after-forward: expected true, false or a group size, got \"-1\""},
	{GPU, "reshard_after_forward=-5 strategy=SHARD_GRAD_OP",
		"--reshard-after-forward: expected true, false or a group size, got \"-5\""},
	{GPU, "reshard_after_forward=0",
		"--reshard-after-forward: expected true, false or a group size, got \"0\""},
	{GPU, "reshard_after_forward=3",
		"--reshard-after-forward 3: expected a proper divisor (not 1) of the shard group "
		"of 16, with FULL_SHARD or HYBRID_SHARD"},
	{GPU, "reshard_after_forward=4 strategy=HYBRID_SHARD_ZERO2",
		"--reshard-after-forward 4: expected a proper divisor (not 1) of the shard group "
		"of 8, with FULL_SHARD or HYBRID_SHARD"},
	{GPU, "reshard_after_forward=false",
		"--reshard-after-forward false: contradicts FULL_SHARD; use SHARD_GRAD_OP"},
	{GPU, "reshard_after_forward=true strategy=SHARD_GRAD_OP",
		"--reshard-after-forward true: contradicts SHARD_GRAD_OP; use FULL_SHARD"},
	{GPU, "cpu_offload=all runtime=pytorch-ddp",
		"--cpu-offload all: runtime pytorch-ddp cannot do that; use none"},
	{GPU, "cpu_offload=optimizer",
		"--cpu-offload optimizer: runtime pytorch-fsdp2 cannot do that; use parameters or "
		"none"},
	{GPU, "cpu_offload=parameters runtime=shardplan strategy=NO_SHARD",
		"--cpu-offload parameters: NO_SHARD keeps whole parameters on the device; use "
		"optimizer, or a strategy that shards"},
	{GPU, "cpu_offload=all runtime=pytorch-fsdp1 grad_accum=2",
		"--cpu-offload all: runtime pytorch-fsdp1 cannot do that; it does not add "
		"gradients on the host; use --sync-each-micro-batch off"},
	{GPU, "cpu_offload=gpu",
		"--cpu-offload: expected one of none, optimizer, parameters, all, or runs such as "
		"2xoptimizer+1xnone, got \"gpu\""},
	{GPU, "param_dtype=4", "--param-dtype: expected one of fp32, bf16, fp16, got \"4\""},
	{GPU, "master_dtype=fp8", "--master-dtype: expected one of fp32, bf16, fp16, got \"fp8\""},
	{GPU, "reduce_dtype=int8",
		"--reduce-dtype: expected one of fp32, bf16, fp16, got \"int8\""},
	{VOLTA, "param_dtype=bf16",
		"--param-dtype bf16: V100-SXM2-32GB has no bf16 units; use fp16"},
	{CPU, "param_dtype=fp16",
		"--param-dtype fp16: our CPU kernels compute in fp32 and bf16; use one of these"},
	{CPU, "reduce_dtype=bf16",
		"--reduce-dtype bf16: our CPU kernels reduce gradients of fp32 parameters in fp32; "
		"use fp32, or --param-dtype bf16"},
	{CPU, "master_dtype=fp16",
		"--master-dtype fp16: our CPU kernels compute in fp32 and bf16; use one of these"},
	{GPU, "attention=flash3",
		"--attention flash3: its kernels need a GPU of Hopper or later, which "
		"A100-SXM4-80GB is not; use flash or eager"},
	{VOLTA, "attention=flash2",
		"--attention flash2: its kernels need a GPU of Ampere or later, which "
		"V100-SXM2-32GB is not; use flash or eager"},
	{GPU, "attention=flash2 param_dtype=fp32",
		"--attention flash2: its kernels compute in bf16 and fp16, not in fp32; use flash "
		"or eager, or --param-dtype bf16"},
	{GPU, "fp8=tensorwise", "--fp8 tensorwise: A100-SXM4-80GB has no fp8 units; use off"},
	{GPU, "late_all_reduce=on grad_accum=2",
		"--late-all-reduce on: expected a hybrid strategy with replicas, several "
		"micro-batches and --sync-each-micro-batch on; leave it out"},
	{GPU, "activation_offload=all runtime=nanotron strategy=ZERO_1",
		"--activation-offload all: runtime nanotron cannot do that; use none (deepspeed: "
		"or checkpoints)"},
	{GPU, "activation_offload=all runtime=deepspeed strategy=ZERO_1",
		"--activation-offload all: runtime deepspeed cannot do that; use none (deepspeed: "
		"or checkpoints)"},
	{GPU, "clip=-1", "--clip: expected a number of 0 or more, got \"-1\""},
	{GPU, "clip=nan", "--clip: expected a number of 0 or more, got \"nan\""},
	{GPU, "optimizer=adam",
		"--optimizer: expected one of adamw-fused, adamw-foreach, adamw, sgd, got "
		"\"adam\", did you mean \"adamw\"?"},
	{GPU, "compile=maybe", "--compile: expected true, false, on or off, got \"maybe\""},
};

static void test_messages(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topologies[] = {
		[GPU] = cluster(&arena, "2xdgx-a100-80gb"),
		[CPU] = cpu_machine(&arena, 4),
		[VOLTA] = cluster(&arena, "dgx-v100"),
		[NVL] = cluster(&arena, "gb200-nvl72"),
		[ENDLESS] = cluster(&arena, "2xdgx-a100-80gb"),
	};
	struct model endless = *model;
	endless.architecture.context = INT64_MAX;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct plan plan;
		struct error error;
		if (try_words(&arena, bad[i].where == ENDLESS ? &endless : model,
			    topologies[bad[i].where], bad[i].words, &plan, &error))
			fail_msg("%s passes", bad[i].words);
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_string_equal(error.message, bad[i].message);
	}
	arena_finish(&arena);
}

/* --- runtime x knob ------------------------------------------------------------------------------
 */

enum {
	PYTORCH_RUNTIMES =
		1 << RUNTIME_PYTORCH_FSDP1 | 1 << RUNTIME_PYTORCH_FSDP2 | 1 << RUNTIME_PYTORCH_DDP,
	ZERO_RUNTIMES = 1 << RUNTIME_DEEPSPEED | 1 << RUNTIME_NANOTRON | 1 << RUNTIME_INTERNEVO |
			1 << RUNTIME_MEGATRON,
};

static const struct {
	const char *words, *option;
	unsigned refused_by; /* bit r: runtime r */
} knobs[] = {
	{"strategy=NO_SHARD", "--strategy NO_SHARD: ", /* FSDP2 becomes DDP */
		1 << RUNTIME_DEEPSPEED | 1 << RUNTIME_INTERNEVO},
	{"strategy=FULL_SHARD",
		"--strategy FULL_SHARD: ", 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"strategy=SHARD_GRAD_OP",
		"--strategy SHARD_GRAD_OP: ", 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"strategy=HYBRID_SHARD",
		"--strategy HYBRID_SHARD: ", 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"strategy=HYBRID_SHARD_ZERO2",
		"--strategy HYBRID_SHARD_ZERO2: ", 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"strategy=ZERO_1", "--strategy ZERO_1: ", PYTORCH_RUNTIMES},
	{"strategy=ZERO_2", "--strategy ZERO_2: ",
		PYTORCH_RUNTIMES | 1 << RUNTIME_NANOTRON | 1 << RUNTIME_INTERNEVO |
			1 << RUNTIME_MEGATRON},
	{"strategy=ZERO_3", "--strategy ZERO_3: ",
		PYTORCH_RUNTIMES | 1 << RUNTIME_NANOTRON | 1 << RUNTIME_INTERNEVO |
			1 << RUNTIME_MEGATRON},
	{"prefetch=none", "--prefetch none: ", 1 << RUNTIME_PYTORCH_FSDP2 | ZERO_RUNTIMES},
	{"prefetch=pre", "--prefetch pre: ", 0},
	{"prefetch=post", "--prefetch post: ", 1 << RUNTIME_PYTORCH_FSDP2 | ZERO_RUNTIMES},
	{"forward_prefetch=on",
		"--forward-prefetch on: ", 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"allocator=expandable", "--allocator expandable: ", 1 << RUNTIME_SHARDPLAN},
	{"reduce_dtype=bf16",
		"--reduce-dtype bf16: ", 1 << RUNTIME_NANOTRON | 1 << RUNTIME_PYTORCH_DDP},
	{"grad_accum=2 sync_each_micro_batch=on", "--sync-each-micro-batch on: ",
		1 << RUNTIME_NANOTRON | 1 << RUNTIME_INTERNEVO | 1 << RUNTIME_MEGATRON},
	{"grad_accum=2 sync_each_micro_batch=off",
		"--sync-each-micro-batch off: ", 1 << RUNTIME_DEEPSPEED},
	{"forward_prefetch=off", "", 0},
	{"limit_all_gathers=on", "--limit-all-gathers on: ",
		1 << RUNTIME_PYTORCH_FSDP2 | 1 << RUNTIME_PYTORCH_DDP | ZERO_RUNTIMES},
	{"limit_all_gathers=off", "", 0},
	{"reshard_after_forward=2", "--reshard-after-forward 2: ",
		~(1u << RUNTIME_PYTORCH_FSDP2 | 1u << RUNTIME_SHARDPLAN)},
	{"reshard_after_forward=all",
		"--reshard-after-forward all: ", ~(1u << RUNTIME_PYTORCH_FSDP2)},
	{"activation_checkpointing=full", "", 0},
	{"attention=eager", "--attention eager: ", 1 << RUNTIME_SHARDPLAN},
	{"compile=on", "--compile on: ",
		1 << RUNTIME_SHARDPLAN | 1 << RUNTIME_MEGATRON | 1 << RUNTIME_NANOTRON},
	{"overlap=none", "--overlap none: ", ~(1u << RUNTIME_MEGATRON)},
	{"dropout=on", "--dropout on: ", ~(1u << RUNTIME_MEGATRON)},
	{"keep_gathered=on", "--keep-gathered on: ", ~(1u << RUNTIME_NANOTRON)},
	{"serial_tensor=on",
		"--serial-tensor on: ", ~(1u << RUNTIME_MEGATRON | 1u << RUNTIME_NANOTRON)},
	{"cuda_graph_scope=full_iteration",
		"--cuda-graph-scope full_iteration: ", ~(1u << RUNTIME_MEGATRON)},
	{"gelu=kernel", "", 0},
	{"gelu=product", "--gelu product: ", ~(1u << RUNTIME_SHARDPLAN)},
	{"optimizer=adamw-fused", "", 0},
	{"optimizer=adamw-foreach", "--optimizer adamw-foreach: ", 1 << RUNTIME_SHARDPLAN},
	{"optimizer=adamw", "--optimizer adamw: ", 1 << RUNTIME_SHARDPLAN},
	{"optimizer=adamw-foreach", "--optimizer adamw-foreach: ", 1 << RUNTIME_SHARDPLAN},
	{"cpu_offload=optimizer", "--cpu-offload optimizer: ", ~(1u << RUNTIME_SHARDPLAN)},
	{"cpu_offload=parameters", "--cpu-offload parameters: ",
		~(1u << RUNTIME_PYTORCH_FSDP1 | 1u << RUNTIME_PYTORCH_FSDP2 |
			1u << RUNTIME_SHARDPLAN)},
	{"cpu_offload=all", "--cpu-offload all: ",
		~(1u << RUNTIME_PYTORCH_FSDP1 | 1u << RUNTIME_PYTORCH_FSDP2 |
			1u << RUNTIME_SHARDPLAN)},
};

/* What a runtime cannot do is refused, never ignored: the message starts with the option and ends
 * in advice that works. */
static void test_runtime_knobs(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	for (int r = 0; r < RUNTIME_COUNT; r++)
		for (int k = 0; k < COUNT_OF(knobs); k++) {
			struct plan plan;
			struct error error;
			const char *words = arena_printf(
				&arena, "runtime=%s %s", runtime_names[r], knobs[k].words);
			bool ok = try_words(&arena, model, topology, words, &plan, &error);
			if (ok != !(knobs[k].refused_by >> r & 1))
				fail_msg("%s: %s", words, ok ? "passes" : error.message);
			if (ok)
				continue;
			assert_int_equal(error.code, EXIT_CODE_USAGE);
			assert_int_equal(
				strncmp(error.message, knobs[k].option, strlen(knobs[k].option)),
				0);
			if (strstr(error.message, "; use ") == NULL)
				fail_msg("%s", error.message);
		}
	arena_finish(&arena);
}

/* Options that mean nothing under the plan are refused when the user gave them, not when they are
 * defaults. */
static void test_idle_options(void **state)
{
	(void)state;
	static const struct {
		const char *runtime, *strategy, *option, *message; /* NULL: honoured */
	} cases[] = {
		{"pytorch-ddp", "NO_SHARD", "wrap=block", NULL},
		{"pytorch-ddp", "NO_SHARD", "wrap=blocks:2", "--wrap blocks:2: NO_SHARD of"},
		{"pytorch-fsdp2", "NO_SHARD", "wrap=model", "--wrap model: NO_SHARD of runtime"},
		{"pytorch-ddp", "NO_SHARD", "prefetch=post", "--prefetch post: NO_SHARD"},
		{"pytorch-ddp", "NO_SHARD", "prefetch=pre", NULL},
		{"deepspeed", "ZERO_2", "wrap=size:9", "gradient buckets instead of units"},
		{"deepspeed", "ZERO_3", "wrap=model", "every module with parameters"},
		{"deepspeed", "ZERO_3", "prefetch=pre", NULL},
		{"pytorch-fsdp1", "NO_SHARD", "wrap=block", NULL},
		{"pytorch-fsdp1", "NO_SHARD", "limit_all_gathers=on", NULL},
		{"pytorch-fsdp1", "NO_SHARD", "limit_all_gathers=off", NULL},
		{"pytorch-fsdp1", "NO_SHARD", "forward_prefetch=on", "--forward-prefetch on"},
		{"pytorch-fsdp1", "FULL_SHARD", "forward_prefetch=on", NULL},
		{"pytorch-fsdp2", "FULL_SHARD", "wrap=model", NULL},
		{"shardplan", "ZERO_1", "wrap=model", NULL},
		{"shardplan", "ZERO_1", "activation_offload=all", NULL},
		{"shardplan", "ZERO_1", "activation_offload=checkpoints",
			"no block is checkpointed; use all"},
		{"megatron", "ZERO_1", "recompute_modules=mlp", NULL},
	};
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	for (int c = 0; c < COUNT_OF(cases); c++) {
		const char *words[3] = {arena_printf(&arena, "runtime=%s", cases[c].runtime),
			arena_printf(&arena, "strategy=%s", cases[c].strategy), cases[c].option};
		struct question question = {.model = model, .topology = topology};
		struct error error = {0};
		struct plan plan;
		for (int w = 0; w < 3; w++) {
			char *name = arena_strdup(&arena, words[w]), *value = strchr(name, '=');
			*value++ = '\0';
			assert_true(
				question_set_by_name(&question, name, name, value, &arena, &error));
		}
		assert_true(plan_resolve(&question, &arena, &plan, &error));
		assert_int_equal(plan_honours(&question, &plan, &error), cases[c].message == NULL);
		if (cases[c].message != NULL) {
			assert_int_equal(error.code, EXIT_CODE_USAGE);
			if (strstr(error.message, cases[c].message) == NULL)
				fail_msg("%s", error.message);
		}
	}
	arena_finish(&arena);
}

/* `message`: what a refusal says; NULL: nothing is refused. */
static void check_words(struct arena *arena, const struct model *model,
	const struct topology *topology, const char *words, const char *message)
{
	struct plan plan;
	struct error error = {0};
	bool ok = try_words(arena, model, topology, words, &plan, &error);
	if (ok != (message == NULL) || (!ok && strstr(error.message, message) == NULL))
		fail_msg("%s: %s", words, error.message);
}

/* Numbers of ranks that do not go with the model, the runtime or the other axes, with the nearest
 * that do. */
static void test_axes(void **state)
{
	static const struct {
		const char *model, *words, *message; /* NULL: not refused */
	} cases[] = {
		{"llama-3-8b", "context_method=ring", "there is one context rank"},
		{"llama-3-8b", "context=4 context_method=ring runtime=pytorch-ddp",
			"runtime pytorch-ddp cannot"},
		{"llama-3-8b", "context=4 context_method=all-to-all",
			"use all-gather (pytorch-fsdp2: or ring)"},
		{"llama-3-8b", "context=4 context_method=ring attention=eager",
			"eager attention has none"},
		{"llama-3-8b", "context=8 context_method=all-to-all runtime=megatron", NULL},
		{"llama-3-8b", "context=8 tensor=2 context_method=all-to-all runtime=megatron",
			"divide the 4 of llama-3-8b on a rank; use 4, or --context-method ring"},
		{"llama-3-8b", "context=16 context_method=all-to-all runtime=megatron", "use 8"},
		{"llama-3-8b", "context=8 tensor=2 context_method=all-to-all runtime=shardplan",
			"divide the 4 of llama-3-8b on a rank"},
		{"llama-2-7b", "expert=2", "llama-2-7b has no experts"},
		{"llama-2-7b", "expert_load=2", "--expert-load: llama-2-7b has no experts"},
		{"mixtral-8x7b", "expert=8", NULL},
		{"mixtral-8x7b", "expert=16", "divisor of 8 experts"},
		{"mixtral-8x7b", "expert=16", "use 8"},
		{"mixtral-8x7b", "expert=3", "use 2 or 4"},
		{"mixtral-8x7b", "expert=2 tensor=4", "use 1 or 4"},
		{"mixtral-8x7b", "expert=2 tensor=4 expert_tensor=4", NULL},
		{"mixtral-8x7b", "expert=2 tensor=4 expert_tensor=2", "use 1, or as many as"},
		{"mixtral-8x7b", "expert=2 context=4", "use 1 or 4"},
		{"mixtral-8x7b", "expert=8 strategy=HYBRID_SHARD shard_group=4", "use 4"},
		{"mixtral-8x7b", "expert_tensor=2", "there is one expert rank"},
		{"mixtral-8x7b", "expert=8 expert_load=0.5", "use 1 or more"},
		{"mixtral-8x7b", "expert_load=1.5", NULL},
		{"mixtral-8x7b", "expert=8 runtime=pytorch-fsdp1", "runtime pytorch-fsdp1 cannot"},
		{"mixtral-8x7b", "expert=8 reshard_after_forward=8", "use true or false"},
		{"mixtral-8x7b", "expert=8 capacity_factor=1.5",
			"runtime pytorch-fsdp2 drops no tokens; use --expert-load"},
		{"mixtral-8x7b", "runtime=megatron expert=8", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=4 tensor=2 pipeline=2", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=2 context=4", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=2 tensor=4 expert_tensor=1", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=4 strategy=NO_SHARD", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=16", "use 8"},
		{"mixtral-8x7b", "runtime=megatron expert=3", "use 2 or 4"},
		{"mixtral-8x7b", "runtime=megatron expert=8 tensor=4", "ranks; use 4"},
		{"mixtral-8x7b", "runtime=megatron expert=8 shard_group=4", "use 4"},
		{"mixtral-8x7b", "runtime=megatron tensor=2 sequence_parallel=off", "use on"},
		{"mixtral-8x7b", "runtime=megatron expert=8 capacity_factor=1.5", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=8 capacity_factor=1.5 expert_load=1.1",
			"leave it out"},
		{"mixtral-8x7b", "runtime=megatron capacity_factor=1.5", "one expert rank"},
		{"mixtral-8x7b", "runtime=nanotron expert=2", "runtime nanotron cannot"},
		{"mixtral-8x7b", "expert=8 expert_dispatch=deepep", "needs NVLink and Hopper"},
		{"mixtral-8x7b", "expert_dispatch=deepep", "there is one expert rank"},
		{"llama-3-8b", "expert_dispatch=deepep", "has no experts"},
		{"llama-3-8b", "runtime=megatron unfused_permute=on", "has no experts"},
		{"mixtral-8x7b", "runtime=megatron unfused_permute=on", NULL},
		{"mixtral-8x7b", "unfused_permute=on", "its kernels for that are its own; use off"},
		{"llama-3-8b", "runtime=megatron grad_accum=2 expert_overlap=on", "has no experts"},
		{"mixtral-8x7b", "runtime=megatron expert=8 grad_accum=2 expert_overlap=on", NULL},
		{"mixtral-8x7b", "runtime=megatron expert=8 expert_overlap=on", "one micro-batch"},
		{"mixtral-8x7b", "runtime=megatron grad_accum=2 expert_overlap=on",
			"there is one expert rank"},
		{"mixtral-8x7b", "expert=8 grad_accum=2 expert_overlap=on",
			"wait for their tokens"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 grad_accum=8 pipeline=2 expert_overlap=on",
			"--pipeline-schedule interleaved"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 grad_accum=8 pipeline=2 "
			"pipeline_schedule=interleaved expert_overlap=on",
			NULL},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 grad_accum=2 activation_checkpointing=full "
			"expert_overlap=on",
			"none or selective"},
		{"mixtral-8x7b", "runtime=megatron recompute_modules=moe+layernorm", NULL},
		{"mixtral-8x7b", "recompute_modules=moe_act", "runtime pytorch-fsdp2 cannot"},
		{"mixtral-8x7b", "runtime=megatron recompute_modules=mlp", "leave mlp out"},
		{"mixtral-8x7b", "runtime=megatron recompute_modules=shared_experts",
			"no shared expert"},
		{"mixtral-8x7b", "runtime=megatron recompute_modules=layernorm+mla_up_proj",
			"leave mla_up_proj out"},
		{"llama-3-8b", "runtime=megatron recompute_modules=moe_act", "has no experts"},
		{"llama-3-8b", "runtime=megatron recompute_modules=layernorm",
			"with the products behind them"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 grad_accum=2 expert_overlap=on "
			"recompute_modules=moe",
			"leave moe out"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 grad_accum=2 expert_overlap=on "
			"recompute_modules=moe_act",
			NULL},
		{"mixtral-8x7b",
			"runtime=megatron expert=2 tensor=4 expert_tensor=4 expert_dispatch=deepep",
			"use --expert-tensor 1"},
		{"llama-3-8b", "document_len=512", NULL},
		{"llama-3-8b", "seq_len=1024 document_len=2048", "a sequence has 1024 tokens"},
		{"llama-3-8b", "document_len=512 attention=eager", "computes all of a sequence"},
		{"llama-3-8b", "document_len=512 runtime=shardplan", "masks none; leave it out"},
		{"llama-3-8b", "liger=on", NULL},
		{"llama-3-8b", "liger=on tensor=8", "not for tensor or context ranks"},
		{"llama-3-8b", "liger=on context=8", "not for tensor or context ranks"},
		{"gpt2-124m", "liger=on", "models with RMSNorm; use off"},
		{"llama-3-8b", "liger=on runtime=shardplan", "runtime shardplan cannot do that"},
		{"llama-3-8b", "tensor=8 compile=on async_tensor=on", NULL},
		{"llama-3-8b", "compile=on async_tensor=on", "there is one tensor rank"},
		{"llama-3-8b", "tensor=8 async_tensor=on", "use off, or --compile on"},
		{"llama-3-8b", "runtime=megatron tensor=8 async_tensor=on", NULL},
		{"llama-3-8b", "runtime=megatron pipeline=2 cuda_graph_scope=full_iteration",
			"use --pipeline-schedule interleaved"},
		{"llama-3-8b",
			"runtime=megatron pipeline=2 pipeline_schedule=interleaved "
			"cuda_graph_scope=full_iteration",
			NULL},
		{"mixtral-8x7b", "runtime=megatron cuda_graph_scope=full_iteration",
			"or give --capacity-factor"},
		{"llama-3-8b", "runtime=megatron cuda_graph_scope=full_iteration+attn",
			"leave the others out"},
		{"llama-3-8b", "runtime=megatron cuda_graph_scope=attn+mlp", NULL},
		{"mistral-7b", "runtime=megatron context=2", NULL},
		{"mistral-7b", "runtime=megatron context=2 context_method=ring",
			"use all-gather or all-to-all"},
		{"mistral-7b", "context=2 context_method=ring", NULL},
		{"gpt-oss-20b", "runtime=megatron context=2 expert=2", NULL},
		{"gpt-oss-20b", "runtime=megatron context=2 expert=2 context_method=all-gather",
			"use all-to-all"},
		{"llama-3-8b", "cuda_graph_scope=attn+mlp", "runtime pytorch-fsdp2 cannot"},
		{"llama-3-8b", "runtime=megatron cuda_graph_scope=attn+moe_router",
			"leave moe_router out"},
		{"llama-3-8b",
			"runtime=megatron cuda_graph_scope=attn activation_checkpointing=full",
			"use --activation-checkpointing selective"},
		{"mixtral-8x7b", "runtime=megatron cuda_graph_scope=mlp", "leave mlp out"},
		{"mixtral-8x7b", "runtime=megatron cuda_graph_scope=moe",
			"use moe_router+moe_preprocess, or give --capacity-factor"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 cuda_graph_scope=moe+moe_router "
			"capacity_factor=1",
			"leave one of them out"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 cuda_graph_scope=attn+moe capacity_factor=1",
			NULL},
		{"mixtral-8x7b", "runtime=megatron cuda_graph_scope=moe_preprocess", "name both"},
		{"mixtral-8x7b",
			"runtime=megatron expert=8 cuda_graph_scope=moe_router+moe_preprocess "
			"capacity_factor=1",
			"leave moe_preprocess out"},
		{"mixtral-8x7b",
			"runtime=megatron cuda_graph_scope=moe_router recompute_modules=moe",
			"leave moe_router out"},
		{"deepseek-v3",
			"runtime=megatron cuda_graph_scope=attn+mlp+moe_router+moe_preprocess",
			NULL},
		{"llama-3-8b", "runtime=megatron tensor=8 async_tensor=on serial_tensor=on",
			"--serial-tensor off"},
		{"llama-3-8b", "runtime=megatron tensor=16 async_tensor=on",
			"or fewer tensor ranks"},
		{"llama-3-8b", "tensor=8 compile=on sequence_parallel=off async_tensor=on",
			"use off, or --sequence-parallel on"},
		{"llama-3-8b", "tensor=16 compile=on async_tensor=on", "or fewer tensor ranks"},
		{"llama-3-8b", "runtime=nanotron tensor=8 async_tensor=on",
			"runtime nanotron cannot do that"},
		{"llama-3-8b", "pipeline=2 tensor=2 sequence_parallel=off scatter_gather=on",
			"whole messages; use off"},
		{"llama-3-8b", "runtime=megatron tensor=2 sequence_parallel=off scatter_gather=on",
			"one pipeline rank"},
		{"llama-3-8b", "runtime=megatron pipeline=2 scatter_gather=on", "one tensor rank"},
		{"llama-3-8b", "runtime=megatron pipeline=2 tensor=2 scatter_gather=on",
			"sends its own tokens; leave it out"},
		{"llama-3-8b", "runtime=shardplan tensor=2 pipeline=2", NULL},
		{"mixtral-8x7b", "runtime=shardplan tensor=2", "does not cut experts"},
		{"llama-3-8b", "runtime=shardplan tensor=16",
			"use a divisor of the 8 of llama-3-8b"},
		{"llama-3-8b", "runtime=shardplan tensor=2 loss=fused-linear",
			"the chunks of --loss fused-linear"},
		{"llama-3-8b", "runtime=shardplan tensor=2 gradient_sums=exact param_dtype=fp32",
			"needs whole sequences on every tensor rank; use off"},
		{"llama-3-8b", "runtime=shardplan tensor=2 seq_len=11",
			"the 11 tokens of a micro-batch are no multiple of the 2 tensor ranks"},
		{"llama-3-8b", "runtime=shardplan tensor=2 seq_len=11 sequence_parallel=off", NULL},
	};
	(void)state;
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct model *model = preset_model(&arena, cases[c].model);
		struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
		check_words(&arena, model, topology, cases[c].words, cases[c].message);
		arena_finish(&arena);
	}
}

/* A preset, or Llama 2 7B with an MLP of another width, or Mixtral with such experts. */
static struct model *fp8_model(struct arena *arena, const char *name)
{
	const char *wide = strstr(name, " wide");
	bool preset = wide == NULL, mixture = strncmp(name, "experts ", 8) == 0;
	struct model *model = preset_model(arena, preset    ? name
						  : mixture ? "mixtral-8x7b"
							    : "llama-2-7b");
	struct architecture narrow = model->architecture;
	struct error error = {0};
	if (mixture)
		narrow.expert_ffn = strtoll(name + 8, NULL, 10);
	else
		narrow.ffn = strtoll(name, NULL, 10);
	assert_true(preset || model_build(arena, &narrow, &model, &error));
	return model;
}

/* Of devices that have fp8: two nodes of H100, or of the GPU that is named. */
static void test_fp8(void **state)
{
	static const struct {
		const char *model, *words, *message, *nodes;
	} cases[] = {
		{"llama-2-7b", "fp8=tensorwise", NULL},
		{"llama-2-7b", "fp8=rowwise tensor=4", NULL},
		{"llama-2-7b", "fp8=delayed runtime=megatron tensor=8", NULL},
		{"mixtral-8x7b", "fp8=tensorwise expert=8", NULL},
		{"llama-2-7b", "fp8=delayed", "runtime pytorch-fsdp2 cannot do that; use off"},
		{"llama-2-7b", "fp8=rowwise runtime=megatron", "runtime megatron cannot"},
		{"llama-2-7b", "fp8=rowwise runtime=deepspeed", "runtime deepspeed cannot"},
		{"llama-2-7b", "fp8=rowwise runtime=shardplan", NULL},
		{"llama-2-7b", "fp8=delayed runtime=shardplan", "runtime shardplan cannot"},
		{"llama-2-7b", "fp8=rowwise param_dtype=fp32", "results in bf16"},
		{"llama-2-7b", "fp8=rowwise seq_len=1000", "tokens are not a multiple of 16"},
		{"llama-2-7b", "fp8=tensorwise trainable=lora:16", "frozen parameters"},
		{"mixtral-8x7b", "fp8=delayed runtime=megatron expert=8", NULL},
		{"experts 80 wide",
			"fp8=delayed runtime=megatron tensor=2 expert=4 expert_tensor=1", NULL},
		{"experts 80 wide", "fp8=delayed runtime=megatron tensor=2 expert=2",
			"multiple of 16 on each of the tensor ranks"},
		{"llama-2-7b", "fp8=delayed runtime=megatron fp8_param_gather=on", NULL},
		{"llama-2-7b", "runtime=megatron fp8_param_gather=on",
			"--fp8-param-gather on: no weight is multiplied in fp8"},
		{"llama-2-7b", "fp8=delayed runtime=megatron strategy=NO_SHARD fp8_param_gather=on",
			"nothing is gathered; use a --strategy"},
		{"llama-2-7b", "fp8=rowwise fp8_param_gather=on",
			"torchao gathers with a scale a tensor"},
		{"llama-2-7b", "fp8=rowwise runtime=shardplan fp8_param_gather=on",
			"gathers parameters in --param-dtype; use off"},
		{"80 wide", "fp8=tensorwise", NULL},
		{"80 wide", "fp8=tensorwise tensor=2", "multiple of 16 on each of the tensor"},
		{"72 wide", "fp8=tensorwise", NULL},
		{"72 wide", "fp8=tensorwise runtime=megatron", "of llama-2-7b is not a multiple"},
		{"llama-2-7b", "fp8=mxfp8", "needs B200, B300 or a later GPU"},
		{"llama-2-7b", "fp8=mxfp8", "which RTX-5090-32GB is not; use tens", "rtx5090-8x"},
		{"llama-2-7b", "fp8=mxfp8", NULL, "dgx-b200"},
		{"llama-2-7b", "fp8=mxfp8 fp8_param_gather=on",
			"torchao gathers with a scale a tensor", "dgx-b200"},
		{"llama-2-7b", "fp8=mxfp8 fp8_param_gather=on runtime=megatron", NULL, "dgx-b200"},
		{"llama-2-7b", "fp8=mxfp8 runtime=shardplan", "shardplan cannot", "dgx-b200"},
		{"llama-2-7b", "fp8=mxfp8 seq_len=1040", "a multiple of 32", "dgx-b200"},
		{"llama-2-7b", "fp8=tensorwise seq_len=1040", NULL, "dgx-b200"},
		{"80 wide", "fp8=mxfp8 runtime=megatron", "not a multiple of 32", "dgx-b200"},
		{"80 wide", "fp8=blockwise runtime=megatron", NULL},
		{"llama-2-7b", "fp8=nvfp4", "runtime pytorch-fsdp2 cannot", "dgx-b200"},
		{"llama-2-7b", "fp8=nvfp4 runtime=megatron", "needs B200, B300 or a later GPU"},
		{"llama-2-7b", "fp8=nvfp4 fp8_param_gather=on runtime=megatron", NULL, "dgx-b200"},
		{"llama-2-7b", "fp8=nvfp4 runtime=megatron tensor=8 async_tensor=on",
			"does not copy operands with the scales of this --fp8", "dgx-b200"},
		{"llama-2-7b", "fp8=blockwise runtime=megatron tensor=8 async_tensor=on",
			"does not copy operands with the scales of this --fp8"},
		{"llama-2-7b", "fp8=mxfp8 runtime=megatron tensor=8 async_tensor=on", NULL,
			"dgx-b200"},
		{"llama-2-7b", "fp8=blockwise", "runtime pytorch-fsdp2 cannot"},
		{"llama-2-7b", "fp8=blockwise runtime=megatron",
			"needs a Hopper GPU, which B200-SXM-180GB is not; use mxfp8", "dgx-b200"},
		{"llama-2-7b", "fp8=blockwise runtime=megatron", "is not; use tensorwise",
			"rtx5090-8x"},
	};
	(void)state;
	for (int c = 0; c < COUNT_OF(cases); c++) {
		struct arena arena = {0};
		struct model *model = fp8_model(&arena, cases[c].model);
		const char *nodes = cases[c].nodes != NULL ? cases[c].nodes : "2xdgx-h100";
		struct topology *topology = cluster(&arena, nodes);
		check_words(&arena, model, topology, cases[c].words, cases[c].message);
		arena_finish(&arena);
	}
}

/* Two modules of multi-token prediction. */
static void test_prediction(void **state)
{
	static const struct {
		const char *words, *message;
	} cases[] = {{"runtime=megatron", NULL},
		{"runtime=megatron pipeline=4 pipeline_schedule=1f1b", NULL},
		{"runtime=megatron pipeline=2 pipeline_schedule=1f1b layers_per_stage=1x33+1x1",
			"the last stage has 1 of the 2 modules of multi-token prediction"},
		{"runtime=megatron pipeline=2 pipeline_schedule=1f1b layers_per_stage=1x32+1x2",
			NULL},
		{"strategy=FULL_SHARD", "runtime pytorch-fsdp2 trains no modules of multi-token"},
		{"runtime=nanotron", "runtime nanotron trains no modules"}};
	struct arena arena = {0};
	struct error error = {0};
	struct model *model = preset_model(&arena, "llama-3-8b");
	const struct topology *topology = cluster(&arena, "2xdgx-h100");
	(void)state;
	assert_true(model_predict_next(&arena, model, 2, &model, &error));
	for (int c = 0; c < COUNT_OF(cases); c++)
		check_words(&arena, model, topology, cases[c].words, cases[c].message);
	arena_finish(&arena);
}

/* --- complete plans ------------------------------------------------------------------------------
 */

static void check_refused(const struct plan *plan, const struct model *model,
	const struct topology *topology, const char *message)
{
	struct error error = {0};
	assert_false(plan_check(plan, model, topology, &error));
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(error.message, message));
}

/* A plan from a file may say anything. */
static void test_plan_check(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "2xdgx-a100-80gb");
	const struct plan good = plan_of_words(&arena, model, topology, "");
	struct error error = {0};
	assert_true(plan_check(&good, model, topology, &error));
	static const char *const why[] = {"2 is not the topology's 16 devices",
		"2 is not the topology's 16 devices", "2 is not the topology's 16 devices",
		"llama-2-7b has no experts"};
	for (int axis = 0; axis < COUNT_OF(why); axis++) {
		struct plan more = good;
		int64_t *const axes[] = {&more.mesh.tensor, &more.mesh.pipeline, &more.mesh.context,
			&more.mesh.expert};
		*axes[axis] = 2;
		check_refused(&more, model, topology, why[axis]);
	}
	struct plan plan = good;
	plan.mesh.shard = 8;
	check_refused(&plan, model, topology, "shard 8 is not the topology's 16 devices");
	plan.mesh.replicate = 2;
	check_refused(&plan, model, topology, "mesh: FULL_SHARD with replicate 2, shard 8");
	plan = good;
	plan.mesh.shard = plan.mesh.replicate = INT64_C(1) << 62;
	check_refused(&plan, model, topology, "is not the topology's 16 devices");
	plan = good;
	plan.global_batch = 17;
	check_refused(&plan, model, topology, "global_batch 17: is not micro_batch 1 x grad_accum");
	plan = good;
	plan.micro_batch = INT64_MAX;
	check_refused(&plan, model, topology, "--micro-batch 9223372036854775807: the logits");
	plan = good;
	plan.seq_len = 5000;
	check_refused(&plan, model, topology, "has a context of 4096 tokens");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fp8),
		cmocka_unit_test(test_prediction),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_runtime_knobs),
		cmocka_unit_test(test_idle_options),
		cmocka_unit_test(test_axes),
		cmocka_unit_test(test_plan_check),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
