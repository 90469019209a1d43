/* Versions of libraries: how they are read, what they exclude, and their attention kernel and
 * NCCL. */
#include "support.h"
#include "tests/schedule/parse.h"

static struct libraries read_libraries(const char *text)
{
	struct libraries libraries;

	if (!libraries_read(text, &libraries))
		fail_msg("%s", text);
	return libraries;
}

static void test_reading(void **state)
{
	static const char *const bad[] = {"", "pytorch", "pytorch:", "pytorch:2.", "pytorch:.1",
		"pytorch:2.1.0.0", "pytorch:2.1+", "+pytorch:2.1", "pytorch:v2", "torch:2.1",
		"cuda:123", "pytorch:2.1+pytorch:2.1", "nccl:0", "compile:on", "unknown+cuda:12.1",
		"pytorch:-2", "pytorch:2.1 +cuda:12"};
	(void)state;
	struct libraries some = read_libraries("flash-attn:1.0.5+pytorch:2.1.2+cuda:12");

	assert_int_equal(some.version[LIBRARY_PYTORCH], 20102);
	assert_int_equal(some.version[LIBRARY_CUDA], LIBRARY_VERSION(12, 0));
	assert_int_equal(some.version[LIBRARY_FLASH_ATTN], 10005);
	assert_int_equal(some.version[LIBRARY_NCCL], 0);
	assert_false(some.compile_unknown);
	assert_true(read_libraries("nccl:2.18+compile:unknown").compile_unknown);
	assert_true(library_before(&some, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 2)));
	assert_false(library_before(&some, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 1)));
	/* What nobody named is not old. */
	assert_false(library_before(&some, LIBRARY_NCCL, LIBRARY_VERSION(99, 0)));
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct libraries none;

		if (libraries_read(bad[i], &none))
			fail_msg("\"%s\" passes", bad[i]);
	}
}

enum where { AMPERE, VOLTA, HOPPER, BLACKWELL, HOST };

static void test_refusals(void **state)
{
	static const struct {
		enum where where;
		const char *words, *message; /* NULL: passes */
	} cases[] = {
		{AMPERE, "libraries=unknown", NULL},
		{AMPERE, "libraries=pytorch:2.3+cuda:12.1", NULL},
		{AMPERE, "libraries=pytorch:2.2",
			"--libraries pytorch:2.2: pytorch 2.2 has no FSDP2; that came with 2.3"},
		{AMPERE, "runtime=pytorch-fsdp1 libraries=pytorch:2.0", NULL},
		{AMPERE, "runtime=megatron libraries=megatron-core:0.6", NULL},
		{AMPERE, "runtime=nanotron libraries=megatron-core:0.6",
			"runtime nanotron has no Megatron-Core in it; leave it out"},
		{AMPERE, "runtime=pytorch-fsdp1 attention=eager libraries=pytorch:1.10",
			"no FSDP; that came with 1.11"},
		{AMPERE, "runtime=pytorch-fsdp1 libraries=pytorch:1.13",
			"no flash attention (name flash-attn, or use --attention eager); that came "
			"with 2.0"},
		{AMPERE, "runtime=pytorch-fsdp1 libraries=pytorch:1.13+flash-attn:1", NULL},
		{AMPERE, "runtime=pytorch-fsdp1 attention=eager libraries=pytorch:1.13", NULL},
		{AMPERE, "runtime=pytorch-fsdp1 attention=eager compile=on libraries=pytorch:1.13",
			"torch.compile; that came with 2.0"},
		{AMPERE, "runtime=pytorch-ddp allocator=expandable libraries=pytorch:2.0",
			"expandable segments; that came with 2.1"},
		{AMPERE,
			"runtime=pytorch-fsdp1 activation_checkpointing=selective "
			"libraries=pytorch:2.0",
			"selective checkpointing; that came with 2.1"},
		{AMPERE, "reshard_after_forward=all libraries=pytorch:2.7",
			"no resharding of FSDP2's root; that came with 2.8"},
		{AMPERE, "reshard_after_forward=all libraries=pytorch:2.8", NULL},
		{AMPERE, "runtime=internevo libraries=pytorch:1.13", NULL},
		{AMPERE, "libraries=cuda:11.0", NULL},
		{AMPERE, "libraries=cuda:10.2", "kernels for this GPU; that came with 11.0"},
		{HOPPER, "libraries=cuda:11.7", "kernels for this GPU; that came with 11.8"},
		{BLACKWELL, "libraries=cuda:12.6", "kernels for this GPU; that came with 12.8"},
		{VOLTA, "libraries=flash-attn:2.5", "no kernels for Volta and Turing from 2.0 on"},
		{VOLTA, "libraries=flash-attn:1", NULL},
		{AMPERE, "compile=on libraries=compile:unknown", "leave one of them out"},
		{AMPERE, "runtime=shardplan libraries=pytorch:2.6", "has no PyTorch in it"},
		{AMPERE, "runtime=shardplan libraries=cuda:12.4+nccl:2.21", NULL},
		{HOST, "libraries=nccl:2.21", "has no GPU to run them"},
		{HOST, "runtime=pytorch-fsdp2 libraries=pytorch:2.6", NULL},
		{AMPERE, "libraries=pytorch", "libraries: expected versions such as"},
	};
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topologies[] = {cluster(&arena, "2xdgx-a100-80gb"),
		cluster(&arena, "dgx-v100"), cluster(&arena, "dgx-h100"),
		cluster(&arena, "dgx-b200"), cpu_machine(&arena, 4)};

	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct plan plan;
		struct error error = {0};
		bool ok = try_words(
			&arena, model, topologies[cases[i].where], cases[i].words, &plan, &error);

		if (ok != (cases[i].message == NULL))
			fail_msg("%s: %s", cases[i].words, ok ? "passes" : error.message);
		if (!ok && strstr(error.message, cases[i].message) == NULL)
			fail_msg("%s: %s", cases[i].words, error.message);
		assert_true(ok || error.code == EXIT_CODE_USAGE);
	}
	arena_finish(&arena);
}

/* FlashAttention-2 came to PyTorch with 2.2; cuDNN's kernel goes first on Hopper from 2.11 on; a
 * named flash-attn goes before both; MPT has Triton's. Megatron's Transformer Engine took cuDNN's
 * on Hopper in no container before PyTorch 2.2. */
static void test_attention_kernel(void **state)
{
	static const struct {
		const char *model, *words;
		enum attention_kind kind;
	} cases[] = {
		{"llama-2-7b", "", ATTENTION_FLASH},
		{"llama-2-7b", "libraries=cuda:12.1", ATTENTION_FLASH},
		{"llama-2-7b", "runtime=pytorch-fsdp1 libraries=pytorch:2.1.2", ATTENTION_FLASH1},
		{"llama-2-7b", "runtime=pytorch-fsdp1 libraries=pytorch:2.2", ATTENTION_FLASH2},
		{"llama-2-7b", "libraries=pytorch:2.10", ATTENTION_FLASH2},
		{"llama-2-7b", "libraries=pytorch:2.11", ATTENTION_FLASH3},
		{"llama-2-7b", "libraries=pytorch:2.11 document_len=512", ATTENTION_FLASH2},
		{"llama-2-7b", "libraries=pytorch:2.6+flash-attn:3", ATTENTION_FLASH3},
		{"llama-2-7b", "attention=flash2 libraries=flash-attn:1.0.9", ATTENTION_FLASH2},
		{"llama-2-7b", "attention=eager libraries=flash-attn:2", ATTENTION_EAGER},
		{"mpt-7b", "runtime=pytorch-fsdp1 libraries=pytorch:1.13.1", ATTENTION_FLASH},
		{"mpt-7b", "libraries=pytorch:2.4+flash-attn:2.5", ATTENTION_FLASH2},
		{"llama-2-7b", "runtime=nanotron libraries=pytorch:2.1", ATTENTION_FLASH},
		{"llama-2-7b", "runtime=megatron", ATTENTION_FLASH3},
		{"llama-2-7b", "runtime=megatron libraries=pytorch:2.2", ATTENTION_FLASH3},
		{"llama-2-7b", "runtime=megatron libraries=pytorch:2.1", ATTENTION_FLASH},
	};
	/* On Blackwell torchtitan took it with 2.8, and what is not named is recent; sinks and
	 * unlike depths of keys and values go to FlexAttention. */
	static const struct {
		const char *model, *words;
		enum attention_kind kind;
	} blackwell[] = {
		{"llama-2-7b", "", ATTENTION_FLASH3},
		{"llama-2-7b", "runtime=pytorch-fsdp1", ATTENTION_FLASH3},
		{"llama-2-7b", "libraries=pytorch:2.8", ATTENTION_FLASH3},
		{"llama-2-7b", "libraries=pytorch:2.7", ATTENTION_FLASH2},
		{"llama-2-7b", "runtime=pytorch-fsdp1 libraries=pytorch:2.8", ATTENTION_FLASH2},
		{"llama-2-7b", "runtime=pytorch-fsdp1 libraries=pytorch:2.11", ATTENTION_FLASH3},
		{"llama-2-7b", "runtime=nanotron", ATTENTION_FLASH},
		{"llama-2-7b", "attention=flash2", ATTENTION_FLASH2},
		{"mpt-7b", "", ATTENTION_FLASH},
		{"gpt-oss-20b", "", ATTENTION_FLASH},
		{"deepseek-v3", "", ATTENTION_FLASH},
		{"deepseek-v3", "libraries=pytorch:2.11", ATTENTION_FLASH2},
		{"mistral-7b", "libraries=pytorch:2.11", ATTENTION_FLASH2},
	};
	(void)state;
	struct arena arena = {0};
	struct topology *topology = cluster(&arena, "dgx-h100");

	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct model *model = preset_model(&arena, cases[i].model);
		struct plan plan = plan_of_words(&arena, model, topology, cases[i].words);

		assert_int_equal(plan_attention(&plan, model, GENERATION_HOPPER), cases[i].kind);
		if (strstr(cases[i].words, "2.11") != NULL)
			assert_int_equal(
				plan_attention(&plan, model, GENERATION_AMPERE), ATTENTION_FLASH2);
	}
	for (int i = 0; i < COUNT_OF(blackwell); i++) {
		struct model *model = preset_model(&arena, blackwell[i].model);
		struct plan plan = plan_of_words(&arena, model, topology, blackwell[i].words);

		assert_int_equal(
			plan_attention(&plan, model, GENERATION_BLACKWELL), blackwell[i].kind);
	}
	arena_finish(&arena);
}

/* PyTorch's wheel brings an NCCL, unless another is named; of wheels to come nothing is known. */
static void test_nccl_of_the_wheel(void **state)
{
	static const struct {
		const char *libraries;
		int nccl;
	} cases[] = {{"unknown", 0}, {"pytorch:2.0.1", LIBRARY_VERSION(2, 14) + 3},
		{"pytorch:2.4", LIBRARY_VERSION(2, 20) + 5},
		{"pytorch:2.4+nccl:2.27", LIBRARY_VERSION(2, 27)}, {"pytorch:1.12", 0},
		{"pytorch:2.15", 0}};
	(void)state;

	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct plan plan = {.libraries = read_libraries(cases[i].libraries)};

		assert_int_equal(plan_libraries(&plan).version[LIBRARY_NCCL], cases[i].nccl);
	}
}

/* nanotron's guide asks for PyTorch 2.1; what is named instead decides. */
static void test_nccl_of_the_runtime(void **state)
{
	struct plan plan = {.runtime = RUNTIME_NANOTRON, .libraries = read_libraries("unknown")};
	(void)state;

	assert_int_equal(plan_libraries(&plan).version[LIBRARY_NCCL], LIBRARY_VERSION(2, 18) + 1);
	plan.libraries = read_libraries("pytorch:2.4");
	assert_int_equal(plan_libraries(&plan).version[LIBRARY_NCCL], LIBRARY_VERSION(2, 20) + 5);
	plan.libraries = read_libraries("pytorch:2.15");
	assert_int_equal(plan_libraries(&plan).version[LIBRARY_NCCL], 0);
}

/* The buffer of a role that an operation takes, or gives; -1. */
static int buffer_among(const struct program *program, struct slice slice, enum buffer_role role)
{
	const int *indices = slice_of(program, slice);

	for (int i = 0; i < slice.count; i++)
		if (program->buffers[indices[i]].role == role)
			return indices[i];
	return -1;
}

/* Flat gradients are made on a stream and in its memory, where their units are resharded behind
 * them. Returns how many. */
static int flattens_on(const struct program *program, enum stream stream)
{
	int n = 0;

	for (int o = 0; o < program->n_ops; o++) {
		const struct op *op = &program->ops[o];

		if (op->kind != OP_FLATTEN_GRADIENTS)
			continue;
		int flat = buffer_among(program, op->takes, BUFFER_FLAT_GRADIENT);
		assert_int_equal(op->stream, stream);
		assert_int_equal(program->buffers[flat].pool, stream);
		assert_int_equal(op[1].kind, OP_RESHARD);
		assert_int_equal(op[1].unit, op->unit);
		assert_int_equal(op[1].stream, stream);
		n++;
	}
	return n;
}

/* FSDP1's flat gradient is made on the stream of gathers from PyTorch 2.0 on: what is gathered
 * behind it starts when the block is done. */
static void test_flat_gradients(void **state)
{
	static const struct {
		const char *words;
		enum stream stream;
		int n; /* blocks and the root */
	} cases[] = {{"runtime=pytorch-fsdp1 prefetch=post", STREAM_GATHER, 13},
		{"runtime=pytorch-fsdp1 prefetch=pre", STREAM_GATHER, 13},
		{"runtime=pytorch-fsdp1 attention=eager libraries=pytorch:2.0", STREAM_GATHER, 13},
		{"runtime=pytorch-fsdp1 attention=eager libraries=pytorch:1.13", STREAM_COMPUTE,
			13},
		{"runtime=pytorch-fsdp2", STREAM_COMPUTE, 0}};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct schedule *schedule =
			build_words(&arena, "gpt2-124m", "dgx-a100-80gb", cases[i].words);

		assert_int_equal(flattens_on(&schedule->programs[0], cases[i].stream), cases[i].n);
		arena_finish(&arena);
	}
}

/* The digest moves only where versions are named, and the text keeps them. */
static void test_text_and_digest(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "gpt2-nano");
	struct topology *topology = cluster(&arena, "dgx-a100-80gb");
	const char *words[] = {"", "libraries=pytorch:2.4+cuda:12.1"};

	for (int i = 0; i < 2; i++) {
		struct plan plan = plan_of_words(&arena, model, topology, words[i]);
		struct schedule *schedule, *again;
		struct error error = {0};
		struct text text = {0};

		assert_true(schedule_build(&arena, &plan, model, topology, &schedule, &error));
		schedule_print(schedule, &text);
		assert_int_equal(strstr(text_string(&text),
					 "\nplan libraries pytorch:2.4+cuda:12.1\n") != NULL,
			i);
		assert_int_equal(strstr(text_string(&text), "libraries") != NULL, i);
		if (!schedule_parse(&arena, "text", text_string(&text), strlen(text_string(&text)),
			    &again, &error))
			fail_msg("%s", error.message);
		assert_string_equal(again->plan.libraries.text, plan.libraries.text);
		text_finish(&text);
	}
	arena_finish(&arena);
}

static void check_newest(struct arena *arena, const char *text, enum device_generation generation,
	const char *expected)
{
	struct libraries some = read_libraries(text), newest, again;
	bool older = libraries_newest(&some, generation, arena, &newest);

	assert_int_equal(older, strcmp(text, expected) != 0);
	assert_string_equal(newest.text, expected);
	again = read_libraries(newest.text);
	assert_memory_equal(again.version, newest.version, sizeof(again.version));
	assert_int_equal(again.compile_unknown, some.compile_unknown);
}

/* Each that is named, and no other; what is newer stays. Volta has no second flash-attn. */
static void test_newest(void **state)
{
	struct arena arena = {0};

	(void)state;
	check_newest(
		&arena, "pytorch:2.1.0+cuda:12.1", GENERATION_HOPPER, "pytorch:2.11+cuda:12.8");
	check_newest(&arena, "nccl:2.18.1+pytorch:2.12.1+compile:unknown", GENERATION_HOPPER,
		"pytorch:2.12.1+nccl:2.28+compile:unknown");
	check_newest(&arena, "flash-attn:1.0.5", GENERATION_AMPERE, "flash-attn:2.8");
	check_newest(&arena, "flash-attn:1.0.5", GENERATION_VOLTA, "flash-attn:1.0.5");
	check_newest(&arena, "pytorch:2.11", GENERATION_HOPPER, "pytorch:2.11");
	check_newest(&arena, "unknown", GENERATION_HOPPER, "unknown");
	arena_finish(&arena);
}

/* Megatron-LM before Megatron-Core launches kernels faster. */
static void test_host(void **state)
{
	static const struct {
		const char *words;
		double seconds;
	} cases[] = {{"runtime=megatron", 80e-6}, {"runtime=megatron libraries=pytorch:2.6", 80e-6},
		{"runtime=megatron libraries=megatron-core:0.6", 80e-6},
		{"runtime=megatron libraries=megatron-core:0.1", 55e-6},
		{"runtime=pytorch-fsdp2", 6e-6}};
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "dgx-h100");
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct plan plan;
		struct error error = {0};
		if (!try_words(&arena, model, topology, cases[i].words, &plan, &error))
			fail_msg("%s", error.message);
		assert_float_equal(plan_host_per_kernel(&plan), cases[i].seconds, 1e-12);
	}
	arena_finish(&arena);
}

/* Liger keeps what compiled code keeps of gated MLPs: silu(gate) is made again. */
static void test_liger_keeps_less(void **state)
{
	struct arena arena = {0};
	struct model *model = preset_model(&arena, "llama-2-7b");
	struct topology *topology = cluster(&arena, "dgx-h100");
	const char *const words[] = {"", "liger=on", "compile=on"};
	(void)state;
	for (int i = 0; i < COUNT_OF(words); i++) {
		const struct plan plan = plan_of_words(&arena, model, topology, words[i]);
		const struct activation_rules rules =
			plan_activation_rules(&plan, topology->device.generation);

		assert_int_equal(rules.keeps_activated_gate, i == 0);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_liger_keeps_less),
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_newest),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_attention_kernel),
		cmocka_unit_test(test_nccl_of_the_wheel),
		cmocka_unit_test(test_nccl_of_the_runtime),
		cmocka_unit_test(test_flat_gradients),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_text_and_digest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
