/* Exported plans read back equal: tensor, context, expert and pipeline ranks through every
 * target. */
#include "support.h"

#include "schedule/pipeline/pipeline.h"

struct degree {
	enum knob_id knob;
	int64_t ranks;
};

/* Writes a plan with these degrees and reads it back. False: the target has no words for it, and
 * says `refused`. */
static bool says_degrees(struct trip *trip, const char *model, const struct degree *degrees, int n,
	const char *refused, struct plan *back)
{
	struct error error = {0};

	load(trip->arena, model, "2xdgx-a100-80gb", &trip->file);
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	for (int i = 0; i < n; i++)
		question_put(
			&question, degrees[i].knob, (union knob_value){.number = degrees[i].ranks});
	assert_true(plan_resolve(&question, trip->arena, &trip->file.plan, &error));
	if (!export_plan(trip->target, 0, &trip->file, trip->target->file, trip->arena,
		    &trip->exported, &trip->text, &error)) {
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		assert_non_null(strstr(error.message, refused));
		return false;
	}
	read_back(trip, back);
	for (int i = 0; i < n; i++)
		assert_int_equal(knob_get(degrees[i].knob, back).number, degrees[i].ranks);
	compare(trip, back);
	text_finish(&trip->text);
	return true;
}

/* Writes the plan of a question, finds these words in the file, and reads it back. */
static void says_words(
	struct trip *trip, const struct question *question, const char *words, struct plan *back)
{
	struct error error = {0};

	assert_true(plan_resolve(question, trip->arena, &trip->file.plan, &error));
	assert_true(export_plan(trip->target, 0, &trip->file, trip->target->file, trip->arena,
		&trip->exported, &trip->text, &error));
	if (strstr(text_string(&trip->text), words) == NULL)
		fail_msg("%s", text_string(&trip->text));
	read_back(trip, back);
}

/* Files of torchtitan, Megatron-LM and accelerate say ranks that divide the model; no other does,
 * and says so. accelerate cuts no sequence. */
static void axes(void **state)
{
	static const struct degree degrees[] = {{KNOB_TENSOR, 4}, {KNOB_CONTEXT, 2}};
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		const char *name = trip.target->name;
		bool has_tensor = strcmp(name, "nanotron") == 0 || strcmp(name, "axolotl") == 0;
		bool is_fsdp1 = strcmp(name, "accelerate-fsdp1") == 0;
		bool by_plan = strcmp(name, "accelerate") == 0 || strcmp(name, "trl") == 0;
		struct plan back;
		if (!says_degrees(&trip, "llama-2-7b", degrees, COUNT_OF(degrees),
			    has_tensor ? "context 2"
			    : is_fsdp1 ? "FSDP1"
				       : "tensor 4",
			    &back))
			continue;
		said++;
		assert_true(by_plan || strstr(name, "torchtitan") != NULL ||
			    strcmp(name, "megatron") == 0 || strcmp(name, "megatron-bridge") == 0);
		assert_int_equal(back.sequence_parallel, !by_plan);
	}
	assert_true(said > 0);
	arena_finish(&arena);
}

#define MEGATRON RUNTIME_MEGATRON, STRATEGY_ZERO_1
#define FSDP2    RUNTIME_PYTORCH_FSDP2, STRATEGY_FULL_SHARD
/* Weights that stay in fp8 have an option in Megatron-LM; its bridge's recipes of fp8
 * have them; torchtitan gathers them. */
static void weights_in_fp8(void **state)
{
	static const struct {
		const char *target, *expected;
		bool kept, back;
		enum runtime_kind runtime;
		enum strategy strategy;
		enum fp8_recipe fp8;
	} cases[] = {{"megatron", "--fp8-param-gather", true, true, MEGATRON, FP8_DELAYED},
		{"megatron", "--fp8-recipe delayed", false, false, MEGATRON, FP8_DELAYED},
		{"megatron", "--reuse-grad-buf-for-mxfp8-param-ag", true, true, MEGATRON,
			FP8_MXFP8},
		{"megatron", "--fp4-param-gather", true, true, MEGATRON, FP8_NVFP4},
		{"megatron", "--fp4-recipe nvfp4", false, false, MEGATRON, FP8_NVFP4},
		{"megatron-bridge", "bf16_with_fp8_delayed_scaling_mixed", true, true, MEGATRON,
			FP8_DELAYED},
		{"megatron-bridge", "bf16_with_fp8_delayed_scaling_mixed", false, true, MEGATRON,
			FP8_DELAYED},
		{"megatron-bridge", "bf16_with_nvfp4_mixed", false, true, MEGATRON, FP8_NVFP4},
		{"torchtitan-toml", "enable_fsdp_float8_all_gather = true", true, true, FSDP2,
			FP8_TENSORWISE},
		{"torchtitan-toml", "recipe_name = \"tensorwise\"", false, false, FSDP2,
			FP8_TENSORWISE}};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct trip trip = {.arena = &arena, .target = export_find(cases[i].target, NULL)};
		struct plan back;
		load(&arena, "llama-3.1-8b",
			cases[i].fp8 >= FP8_MXFP8 ? "2xdgx-b200" : "2xdgx-h100", &trip.file);
		struct question question = {
			.model = trip.file.model, .topology = trip.file.topology};
		question_put(&question, KNOB_RUNTIME,
			(union knob_value){.choice = (int)cases[i].runtime});
		question_put(&question, KNOB_STRATEGY,
			(union knob_value){.choice = (int)cases[i].strategy});
		question_put(&question, KNOB_FP8, (union knob_value){.choice = (int)cases[i].fp8});
		question_put(
			&question, KNOB_FP8_PARAM_GATHER, (union knob_value){.on = cases[i].kept});
		says_words(&trip, &question, cases[i].expected, &back);
		assert_int_equal(back.fp8, cases[i].fp8);
		assert_int_equal(back.fp8_param_gather, cases[i].back);
		assert_int_equal(trip.exported.plan.fp8_param_gather, cases[i].back);
		text_finish(&trip.text);
	}
	arena_finish(&arena);
}

/* Asynchronous tensor parallelism has words in torchtitan, others since it is compilation's, and,
 * without compilation, in Megatron-LM and its bridge. */
static void async_tensor(void **state)
{
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		bool titan = strstr(trip.target->name, "torchtitan") != NULL;
		bool toml = strcmp(trip.target->name, "torchtitan-toml") == 0;
		bool megatron = strcmp(trip.target->name, "megatron") == 0;
		bool bridge = strcmp(trip.target->name, "megatron-bridge") == 0;
		bool says = titan || megatron || bridge;
		for (int version = 0; version < (titan && !toml ? 2 : 1); version++) {
			struct error error = {0};
			struct plan back;
			load(&arena, "llama-3.1-8b", "2xdgx-a100-80gb", &trip.file);
			struct question question = {
				.model = trip.file.model, .topology = trip.file.topology};
			question_put(&question, KNOB_TENSOR, (union knob_value){.number = 4});
			question_put(&question, KNOB_MICRO_BATCH, (union knob_value){.number = 1});
			if (megatron || bridge)
				question_put(&question, KNOB_RUNTIME,
					(union knob_value){.choice = RUNTIME_MEGATRON});
			else
				question_put(
					&question, KNOB_COMPILE, (union knob_value){.on = true});
			question_put(&question, KNOB_ASYNC_TENSOR, (union knob_value){.on = true});
			assert_true(plan_resolve(&question, &arena, &trip.file.plan, &error));
			if (!export_plan(trip.target, version, &trip.file, trip.target->file,
				    &arena, &trip.exported, &trip.text, &error))
				continue; /* no tensor ranks */
			assert_int_equal(trip.exported.plan.async_tensor, says);
			if (!says) {
				text_finish(&trip.text);
				continue;
			}
			assert_non_null(strstr(text_string(&trip.text),
				megatron       ? "tp-comm-overlap"
				: bridge       ? "tp_comm_overlap"
				: version == 0 ? "enable_async_tensor_parallel"
					       : "compile.enable_async_tensor_parallel"));
			read_back(&trip, &back);
			assert_true(back.async_tensor);
			text_finish(&trip.text);
			said++;
		}
	}
	assert_int_equal(said, 7);
	arena_finish(&arena);
}

/* So it is with experts on several ranks, which prefetch in forward under torchtitan. */
static void experts(void **state)
{
	static const struct degree degrees[] = {
		{KNOB_TENSOR, 2}, {KNOB_EXPERT, 4}, {KNOB_EXPERT_TENSOR, 2}};
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		struct plan back;
		if (!says_degrees(
			    &trip, "qwen3-30b-a3b", degrees, COUNT_OF(degrees), "expert 4", &back))
			continue;
		said++;
		bool is_torch = strstr(trip.target->name, "torchtitan") != NULL;
		assert_true(is_torch || strcmp(trip.target->name, "megatron") == 0 ||
			    strcmp(trip.target->name, "megatron-bridge") == 0);
		assert_int_equal(trip.exported.plan.forward_prefetch, is_torch);
	}
	assert_true(said > 0);
	arena_finish(&arena);
}

/* DeepEP has words in Megatron-LM, its bridge and torchtitan's TOML; since then torchtitan's script
 * says it. */
static void dispatch(void **state)
{
	struct arena arena = {0};
	int said = 0;

	(void)state;
	for (int t = 0; t < n_export_targets; t++) {
		struct trip trip = {.arena = &arena, .target = export_targets[t]};
		bool megatron = strncmp(trip.target->name, "megatron", 8) == 0;
		bool toml = strcmp(trip.target->name, "torchtitan-toml") == 0;
		bool says = megatron || toml;
		struct error error = {0};
		struct plan back;
		load(&arena, "qwen3-30b-a3b", "2xdgx-h100", &trip.file);
		struct question question = {
			.model = trip.file.model, .topology = trip.file.topology};
		question_put(&question, KNOB_EXPERT, (union knob_value){.number = 8});
		question_put(&question, KNOB_MICRO_BATCH, (union knob_value){.number = 1});
		question_put(&question, KNOB_GRAD_ACCUM, (union knob_value){.number = 2});
		question_put(&question, KNOB_EXPERT_DISPATCH,
			(union knob_value){.choice = DISPATCH_DEEPEP});
		if (megatron) {
			question_put(&question, KNOB_RUNTIME,
				(union knob_value){.choice = RUNTIME_MEGATRON});
			question_put(
				&question, KNOB_EXPERT_OVERLAP, (union knob_value){.on = true});
		}
		assert_true(plan_resolve(&question, &arena, &trip.file.plan, &error));
		if (!export_plan(trip.target, 0, &trip.file, trip.target->file, &arena,
			    &trip.exported, &trip.text, &error))
			continue; /* no expert ranks */
		assert_int_equal(trip.exported.plan.expert_dispatch, DISPATCH_DEEPEP);
		assert_int_equal(is_beside(&trip, "expert_dispatch"), !says);
		assert_non_null(strstr(text_string(&trip.text), megatron ? "flex"
								: toml   ? "comm_backend"
									 : "moe_comm_backend"));
		if (strcmp(trip.target->name, "megatron-bridge") == 0) /* recipes may have it on */
			assert_non_null(strstr(
				text_string(&trip.text), "moe_shared_expert_overlap: false"));
		read_back(&trip, &back);
		assert_int_equal(back.expert_dispatch, DISPATCH_DEEPEP);
		assert_int_equal(trip.exported.plan.expert_overlap, megatron);
		assert_int_equal(back.expert_overlap, megatron);
		text_finish(&trip.text);
		said++;
	}
	assert_int_equal(said, 5);
	arena_finish(&arena);
}

/* Names of a set are words of an option, and elements of a list. CUDA graphs need a generator of
 * random numbers that they can capture, and whole passes that no NaN is looked for. A recipe may
 * have graphs, so that its file says where there are none. */
static void sets(void **state)
{
	static const struct {
		const char *target, *knob, *value, *words;
	} cases[] = {
		{"megatron", "recompute_modules", "moe_act+layernorm",
			"--recompute-modules layernorm moe_act\n"},
		{"megatron-bridge", "recompute_modules", "moe_act+layernorm",
			"  recompute_modules:\n    - layernorm\n    - moe_act\n"},
		{"megatron", "cuda_graph_scope", "attn+moe_router",
			"--cuda-graph-impl transformer_engine\n"
			"--cuda-graph-modules attn moe_router\n--te-rng-tracker\n"},
		{"megatron-bridge", "cuda_graph_scope", "attn+moe_router",
			"  cuda_graph_impl: transformer_engine\n  cuda_graph_scope:\n    - attn\n"
			"    - moe_router\n  use_te_rng_tracker: true\n"},
		{"megatron-bridge", "cuda_graph_scope", "attn+moe_router",
			"rng:\n  te_rng_tracker: true\n"},
		{"megatron-bridge", "cuda_graph_scope", "off", "  cuda_graph_impl: none\n"},
		{"megatron", "cuda_graph_scope", "full_iteration",
			"--cuda-graph-impl full_iteration\n--te-rng-tracker\n"
			"--no-check-for-nan-in-loss-and-grad\n"},
		{"megatron-bridge", "cuda_graph_scope", "full_iteration",
			"  cuda_graph_impl: local\n  cuda_graph_scope:\n    - full_iteration\n"},
		{"megatron-bridge", "cuda_graph_scope", "full_iteration",
			"rerun_state_machine:\n  check_for_nan_in_loss: false\n"},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct trip trip = {.arena = &arena, .target = export_find(cases[i].target, NULL)};
		bool whole = strcmp(cases[i].value, "full_iteration") == 0;
		struct error error = {0};
		struct plan back;
		load(&arena, whole ? "llama-3.1-8b" : "qwen3-30b-a3b", "2xdgx-h100", &trip.file);
		struct question question = {
			.model = trip.file.model, .topology = trip.file.topology};
		question_put(
			&question, KNOB_RUNTIME, (union knob_value){.choice = RUNTIME_MEGATRON});
		assert_true(question_set_by_name(
			&question, cases[i].knob, cases[i].knob, cases[i].value, &arena, &error));
		says_words(&trip, &question, cases[i].words, &back);
		assert_true(knob_equal(knob_find(cases[i].knob), &back, &trip.file.plan));
		assert_true(knobs_alike_but(
			~KNOB_BIT(KNOB_ACTIVATION_CHECKPOINTING), &back, &trip.file.plan));
		text_finish(&trip.text);
	}
	arena_finish(&arena);
}

/* Stages, in the words of torchtitan, nanotron and Megatron-LM; others say that they have none. */
static const struct {
	const char *strategy, *schedule, *virtual_stages, *layers;
	bool beside; /* torchtitan has no word for such stages */
} stages[] = {
	{"SHARD_GRAD_OP", "1f1b", NULL, NULL, false},
	{"FULL_SHARD", "gpipe", NULL, NULL, false},
	{"FULL_SHARD", "interleaved", "2", NULL, false},
	{"SHARD_GRAD_OP", "interleaved", "3", NULL, false},
	{"SHARD_GRAD_OP", "1f1b", NULL, "9,9,8,6", false},
	{"SHARD_GRAD_OP", "1f1b", NULL, "8,9,7,8", true},
	{"SHARD_GRAD_OP", "interleaved", "5", NULL, true},
	{"SHARD_GRAD_OP", "zb-h1", "2", NULL, false},
	{"FULL_SHARD", "zbv", "2", NULL, false},
	{"SHARD_GRAD_OP", "dualpipev", "2", NULL, false},
};

static void plan_stages(struct trip *trip, int c)
{
	const char *const given[][2] = {{"pipeline", "4"}, {"grad_accum", "8"},
		{"micro_batch", "2"}, {"strategy", stages[c].strategy},
		{"pipeline_schedule", stages[c].schedule},
		{"virtual_stages", stages[c].virtual_stages},
		{"layers_per_stage", stages[c].layers}};
	struct error error = {0};

	load(trip->arena, "llama-2-7b", "2xdgx-a100-80gb", &trip->file);
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	for (int i = 0; i < COUNT_OF(given); i++)
		if (given[i][1] != NULL)
			assert_true(question_set_by_name(&question, given[i][0], given[i][0],
				given[i][1], trip->arena, &error));
	if (!plan_resolve(&question, trip->arena, &trip->file.plan, &error))
		fail_msg("%s", error.message);
}

static void compare_stages(struct trip *trip, const struct plan *back, int c)
{
	const struct plan *plan = &trip->file.plan;

	assert_int_equal(back->mesh.pipeline, 4);
	assert_int_equal(back->grad_accum, 8);
	assert_int_equal(back->micro_batch, 2);
	assert_false(back->sync_each_micro_batch);
	compare(trip, back);
	check_notes(trip);
	if (strstr(trip->target->name, "torchtitan") == NULL)
		return;
	const char *const *sayers;
	int n = export_sayers(
		trip->file.model, trip->file.topology, &trip->exported.plan, trip->arena, &sayers);
	assert_int_equal(n, stages[c].beside ? 0 : 3);
	if (n > 0)
		assert_string_equal(sayers[0], "torchtitan");
	assert_int_equal(back->strategy, plan->strategy);
	assert_int_equal(back->pipeline_schedule, plan->pipeline_schedule);
	assert_int_equal(is_beside(trip, "layers_per_stage") || is_beside(trip, "virtual_stages"),
		stages[c].beside);
}

/* Only a file with a word for it says what is trained: the others' programs train everything. */
static void adapters(void **state)
{
	static const char *const given[][2] = {
		{"tensor", "2"}, {"trainable", "lora:16"}, {"wrap", "block+embedding+head"}};
	(void)state;
	for (int n = 1; n <= 2; n++) {
		struct arena arena = {0};
		struct plan_file file = {0};
		struct error error = {0};
		struct model *model;
		const char *const *sayers;
		load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &file);
		struct question question = {.topology = file.topology};
		for (int i = 0; i < COUNT_OF(given); i++)
			if (n == 2 || i != 1)
				assert_true(question_set_by_name(&question, given[i][0],
					given[i][0], given[i][1], &arena, &error));
		assert_true(
			model_train(&arena, file.model, &question.asked.trainable, &model, &error));
		question.model = model;
		assert_true(plan_resolve(&question, &arena, &file.plan, &error));
		int said = export_sayers(model, file.topology, &file.plan, &arena, &sayers);
		bool titan = false;
		for (int i = 0; i < said; i++)
			titan = titan || strcmp(sayers[i], "torchtitan") == 0;
		assert_int_equal(titan, n == 1);
		arena_finish(&arena);
	}
}

/* Megatron-Bridge's LoRA: what is written is read back. Adapters of single projections are another
 * class's, which its YAML does not say. */
static void adapters_of_layers(void **state)
{
	static const struct {
		const char *text, *words; /* NULL: it says them not */
	} rows[] = {{"lora:16:linear_qkv:alpha=32", "dim: 16\n  alpha: 32\n"},
		{"lora:8:linear_proj,linear_fc1:alpha=4", "    - linear_proj\n    - linear_fc1\n"},
		{"lora:16:q_proj", NULL}, {"lm_head*", NULL}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct trip trip = {.arena = &arena, .target = target_of("megatron-bridge")};
		struct error error = {0};
		const char *const *sayers;
		struct plan back;
		load(&arena, "llama-2-7b", "2xdgx-a100-80gb", &trip.file);
		struct question question = {.topology = trip.file.topology};
		question_put(
			&question, KNOB_RUNTIME, (union knob_value){.choice = RUNTIME_MEGATRON});
		question_put(&question, KNOB_CLIP, (union knob_value){.real = 1});
		assert_true(question_set_by_name(
			&question, "trainable", "trainable", rows[i].text, &arena, &error));
		assert_true(model_train(&arena, trip.file.model, &question.asked.trainable,
			&trip.file.model, &error));
		question.model = trip.file.model;
		if (rows[i].words != NULL) {
			says_words(&trip, &question, rows[i].words, &back);
			assert_string_equal(back.trainable.text, rows[i].text);
			text_finish(&trip.text);
		}
		assert_true(plan_resolve(&question, &arena, &trip.file.plan, &error));
		assert_int_equal(export_sayers(trip.file.model, trip.file.topology, &trip.file.plan,
					 &arena, &sayers),
			rows[i].words != NULL);
		arena_finish(&arena);
	}
}

/* Megatron-LM stops at stages that are not equal, unless a layout lists them. */
static void check_layout(const struct trip *trip)
{
	const struct plan *plan = &trip->file.plan;
	int64_t n = 4 * plan_pipeline(plan).chunks;
	bool uneven = plan->layers_per_stage.text != NULL || 32 % n != 0;

	if (strcmp(trip->target->name, "megatron") == 0)
		assert_int_equal(
			strstr(text_string(&trip->text), "-parallel-layout ") != NULL, uneven);
}

static void pipelines(void **state)
{
	int said = 0;

	(void)state;
	for (int i = 0; i < n_export_targets * COUNT_OF(stages); i++) {
		struct arena arena = {0};
		struct trip trip = {
			.arena = &arena, .target = export_targets[i / COUNT_OF(stages)]};
		struct error error = {0};
		struct plan back;
		plan_stages(&trip, i % COUNT_OF(stages));
		for (trip.version = 0; trip.version < count_versions(trip.target); trip.version++) {
			text_clear(&trip.text);
			if (!export_plan(trip.target, trip.version, &trip.file, trip.target->file,
				    &arena, &trip.exported, &trip.text, &error)) {
				assert_int_equal(error.code, EXIT_CODE_USAGE);
				assert_non_null(strstr(error.message, "pipeline 4"));
				continue;
			}
			said++;
			/* So it is in the line that starts it. */
			if (strcmp(trip.target->name, "torchtitan-flags") == 0)
				text_add(&trip.text, "--config llama3_8b\n");
			check_layout(&trip);
			read_back(&trip, &back);
			compare_stages(&trip, &back, i % COUNT_OF(stages));
		}
		text_finish(&trip.text);
		arena_finish(&arena);
	}
	/* torchtitan's three, two of them in two versions, nanotron, Megatron-LM and
	 * Megatron-Bridge. */
	assert_int_equal(said, 8 * COUNT_OF(stages));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adapters),
		cmocka_unit_test(adapters_of_layers),
		cmocka_unit_test(axes),
		cmocka_unit_test(weights_in_fp8),
		cmocka_unit_test(async_tensor),
		cmocka_unit_test(experts),
		cmocka_unit_test(dispatch),
		cmocka_unit_test(sets),
		cmocka_unit_test(pipelines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
