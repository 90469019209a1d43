/* Laws of frozen parameters: no gradient, no reduction, no state, and never more memory. */
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "support.h"

/* A step of a model that is trained as the words say ("trainable=lora:4 tensor=2"). */
static bool try_trained(struct arena *arena, const char *preset, const char *words,
	struct schedule **schedule, struct error *error)
{
	struct question question = {.topology = strstr(words, "fp8") != NULL
							? cluster(arena, "dgx-h100")
							: gpu_cluster(arena, 2, 4)};
	struct model *model = preset_model(arena, preset);
	struct plan plan;
	for (const char *word = words; *word != '\0'; word += strspn(word, " ")) {
		size_t length = strcspn(word, " "), name = strcspn(word, "=");
		const char *key = arena_strndup(arena, word, name);
		const char *value = arena_strndup(arena, word + name + 1, length - name - 1);
		assert_true(question_set_by_name(&question, key, key, value, arena, error));
		word += length;
	}
	assert_true(model_train(arena, model, &question.asked.trainable, &model, error));
	question.model = model;
	return plan_resolve(&question, arena, &plan, error) &&
	       schedule_build(arena, &plan, model, question.topology, schedule, error);
}

static struct schedule *trained(struct arena *arena, const char *preset, const char *words)
{
	struct schedule *schedule = NULL;
	struct error error = {0};
	if (!try_trained(arena, preset, words, &schedule, &error))
		fail_msg("%s: %s", words, error.message);
	return schedule;
}

/* `reshard` NULL: as the strategy has it. */
static struct schedule *build_resharded(struct arena *arena, const char *text, const char *runtime,
	const char *strategy, const char *checkpointing, const char *reshard)
{
	return trained(arena, "llama-nano",
		arena_printf(arena,
			"trainable=%s runtime=%s strategy=%s activation_checkpointing=%s "
			"param_dtype=bf16 grad_accum=2%s%s",
			text, runtime, strategy, checkpointing,
			reshard != NULL ? " reshard_after_forward=" : "",
			reshard != NULL ? reshard : ""));
}

static struct schedule *build(struct arena *arena, const char *text, const char *runtime,
	const char *strategy, const char *checkpointing)
{
	return build_resharded(arena, text, runtime, strategy, checkpointing, NULL);
}

static const struct {
	const char *runtime, *strategy, *checkpointing;
} ways[] = {{"pytorch-fsdp2", "FULL_SHARD", "none"}, {"pytorch-fsdp2", "SHARD_GRAD_OP", "full"},
	{"pytorch-fsdp2", "HYBRID_SHARD", "selective"}, {"pytorch-ddp", "NO_SHARD", "none"},
	{"shardplan", "FULL_SHARD", "none"}, {"shardplan", "SHARD_GRAD_OP", "selective"},
	{"shardplan", "ZERO_2", "full"}, {"shardplan", "NO_SHARD", "none"},
	{"megatron", "ZERO_1", "none"}, {"megatron", "ZERO_1", "full"},
	{"megatron", "NO_SHARD", "selective"}};

/* Bytes of states follow from what is trained: the sum over ranks, padding apart. */
static void test_states(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(ways); i++) {
		struct arena arena = {0};
		struct schedule *s = build(&arena, "lora:4:all-linear", ways[i].runtime,
			ways[i].strategy, ways[i].checkpointing);
		struct model_states states = schedule_model_states(s, 0);
		int64_t least = 8 * s->model->trained_count / s->plan.mesh.shard;
		assert_true(states.optimizer_state >= least);
		assert_true(states.optimizer_state < 2 * least);
		for (int b = 0; b < s->programs->n_buffers; b++) {
			const struct buffer *buffer = &s->programs->buffers[b];
			bool of_trained = buffer->role == BUFFER_OPTIMIZER_STATE ||
					  buffer->role == BUFFER_GRADIENT ||
					  buffer->role == BUFFER_GRADIENT_SHARD ||
					  buffer->role == BUFFER_REDUCE_INPUT;
			if (of_trained && buffer->unit >= 0)
				assert_false(unit_is_frozen(&s->programs->units[buffer->unit]));
		}
		arena_finish(&arena);
	}
}

/* Each of these freezes what the one before trains, and more. */
static void test_more_frozen_needs_no_more(void **state)
{
	static const char *const texts[] = {"all", "model.layers.*,model.norm*,lm_head*",
		"*.1.*,model.norm*,lm_head*", "lm_head*"};
	(void)state;
	for (int i = 0; i < COUNT_OF(ways); i++) {
		int64_t before = INT64_MAX;
		for (int t = 0; t < COUNT_OF(texts); t++) {
			struct arena arena = {0};
			struct schedule *s = build(&arena, texts[t], ways[i].runtime,
				ways[i].strategy, ways[i].checkpointing);
			struct ledger ledger;
			schedule_ledger(s, 0, &arena, &ledger);
			if (ledger.peak_bytes > before)
				fail_msg("%s %s: %s takes %lld, before it %lld", ways[i].runtime,
					ways[i].strategy, texts[t], (long long)ledger.peak_bytes,
					(long long)before);
			before = ledger.peak_bytes;
			arena_finish(&arena);
		}
	}
}

/* The second of six blocks is trained: no backward comes before it, no other has gradients. Each of
 * two micro-batches gathers five blocks from their parts in backward; the part of the first block
 * is freed, and the next forward gathers that from all ranks. */
static void test_backward_ends(void **state)
{
	static const struct {
		const char *runtime, *reshard;
		int from_parts;
	} rows[] = {{"shardplan", "true", 0}, {"shardplan", "2", 10}, {"pytorch-fsdp2", "true", 0},
		{"pytorch-fsdp2", "2", 10}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct schedule *s = build_resharded(
			&arena, "*.1.*", rows[i].runtime, "FULL_SHARD", "none", rows[i].reshard);
		assert_int_equal(exchanged(s, OP_ALL_GATHER, GROUP_RESHARD).n, rows[i].from_parts);
		for (int x = 0; x < s->programs->n_ops; x++) {
			const struct op *op = &s->programs->ops[x];
			assert_false(op->kind == OP_BACKWARD && op->layer == 0);
			if (op->kind != OP_REDUCE_SCATTER)
				continue;
			int module = s->programs->units[op->unit].module;
			assert_int_equal(s->model->modules[module].layer, 1);
		}
		arena_finish(&arena);
	}
}

/* --- ranks that divide the model ----------------------------------------------------------------
 */

/* Does the operation exchange what lies between the matrices of an adapter of that kind of leaf? */
static bool is_of_adapter(const struct schedule *s, const struct op *op, enum module_kind kind)
{
	return op->group >= 0 && s->groups[op->group].kind == GROUP_TENSOR &&
	       op->end_module == op->first_module + 1 && op->bytes < 1 << 20 &&
	       s->model->modules[op->first_module].kind == kind;
}

/* Of seven adapters a block, ranks exchange 2 bytes a token and rank of the adapter, forward and
 * back: five are gathered one way and scattered the other, two the other way round. The stream is
 * exchanged as without adapters (test_axes.c), but for the gradient of the frozen embedding. */
static void test_tensor_ranks(void **state)
{
	enum { BLOCKS = 32, TOKENS = 2048, STREAM = TOKENS * 4096 * 2, ADAPTER = TOKENS * 16 * 2 };
	struct arena arena = {0};
	struct schedule *s =
		trained(&arena, "llama-2-7b", "trainable=lora:16:all-linear tensor=4 seq_len=2048");
	struct exchanged gathers = exchanged(s, OP_ALL_GATHER, GROUP_TENSOR);
	struct exchanged scatters = exchanged(s, OP_REDUCE_SCATTER, GROUP_TENSOR);
	(void)state;
	assert_int_equal(gathers.n, 4 * BLOCKS + 1 + 7 * BLOCKS);
	assert_int_equal(scatters.n, 4 * BLOCKS + 2 + 7 * BLOCKS);
	assert_int_equal(
		gathers.bytes, (int64_t)(4 * BLOCKS + 1) * STREAM + (int64_t)7 * BLOCKS * ADAPTER);
	assert_int_equal(
		scatters.bytes, (int64_t)(4 * BLOCKS + 2) * STREAM + (int64_t)7 * BLOCKS * ADAPTER);
	bool back = false;
	for (int x = 0; x < s->programs->n_ops; x++) {
		const struct op *op = &s->programs->ops[x];
		back = back || op->kind == OP_LOSS;
		if (is_of_adapter(s, op, MODULE_QUERY))
			assert_int_equal(op->kind, back ? OP_REDUCE_SCATTER : OP_ALL_GATHER);
		if (is_of_adapter(s, op, MODULE_DOWN))
			assert_int_equal(op->kind, back ? OP_ALL_GATHER : OP_REDUCE_SCATTER);
	}
	arena_finish(&arena);
}

/* Megatron-Core: an adapter a block beside queries, keys and values. Inputs of frozen layers are
 * not gathered again in backward; the head is frozen, too. What the adapter reads is gathered in
 * bf16, and once more by itself where its layer gathers in pieces. */
static void test_layers_over_ranks(void **state)
{
	enum { BLOCKS = 32, TOKENS = 2048, STREAM = TOKENS * 4096 * 2, ADAPTER = TOKENS * 16 * 2 };
	static const struct {
		const char *words;
		int64_t gathered, scattered;
	} rows[] = {
		{"", (int64_t)(4 * BLOCKS + 1) * STREAM, (int64_t)(4 * BLOCKS + 2) * STREAM},
		{" fp8=tensorwise",
			(int64_t)(4 * BLOCKS + 1) * STREAM - (int64_t)3 * BLOCKS * STREAM / 2,
			(int64_t)(4 * BLOCKS + 2) * STREAM},
		{" fp8=tensorwise async_tensor=on",
			(int64_t)(4 * BLOCKS + 1) * STREAM - (int64_t)4 * BLOCKS * STREAM / 2 +
				(int64_t)BLOCKS * STREAM,
			(int64_t)(5 * BLOCKS + 2) * STREAM},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct schedule *s = trained(&arena, "llama-2-7b",
			arena_printf(&arena,
				"trainable=lora:16:linear_qkv runtime=megatron tensor=4 "
				"sequence_parallel=on seq_len=2048%s",
				rows[i].words));
		struct exchanged gathers = exchanged(s, OP_ALL_GATHER, GROUP_TENSOR);
		struct exchanged scatters = exchanged(s, OP_REDUCE_SCATTER, GROUP_TENSOR);
		assert_int_equal(gathers.bytes, rows[i].gathered + (int64_t)BLOCKS * ADAPTER);
		assert_int_equal(scatters.bytes, rows[i].scattered + (int64_t)BLOCKS * ADAPTER);
		arena_finish(&arena);
	}
}

/* Megatron-LM's distributed optimizer: everything once in bf16, and of what is trained the
 * gradients whole, and a shard of masters and moments. Only that is cast, reduced and gathered;
 * frozen layers in fp8 have one byte, but embedding and head. */
static void test_whole(void **state)
{
	enum { RANKS = 8 };
	static const struct {
		const char *words;
		int64_t frozen; /* bytes of frozen parameters */
	} rows[] = {{"", (int64_t)2 * 6738415616},
		{" fp8=tensorwise fp8_param_gather=on",
			(int64_t)2 * 6738415616 - (int64_t)32 * (4 * 4096 + 3 * 11008) * 4096}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct schedule *s = trained(&arena, "llama-2-7b",
			arena_printf(&arena,
				"trainable=lora:16:linear_qkv runtime=megatron strategy=ZERO_1 "
				"reduce_dtype=bf16%s",
				rows[i].words));
		struct model_states states = schedule_model_states(s, 0);
		int64_t all = s->model->trained_count, cast = 0;
		for (int x = 0; x < s->programs->n_ops; x++)
			cast += s->programs->ops[x].kind == OP_CAST_PARAMETERS
					? s->programs->ops[x].bytes
					: 0;
		assert_int_equal(states.parameters, rows[i].frozen + 2 * all + 4 * all / RANKS);
		assert_int_equal(states.gradients, 2 * all);
		assert_int_equal(states.optimizer_state, 8 * all / RANKS);
		assert_int_equal(exchanged(s, OP_ALL_GATHER, GROUP_SHARD).bytes, 2 * all);
		assert_int_equal(exchanged(s, OP_REDUCE_SCATTER, GROUP_SHARD).bytes, 2 * all);
		assert_int_equal(cast, (2 + 4) * all / RANKS);
		arena_finish(&arena);
	}
}

/* Backward of every stage but the first goes on to the one before: each sends as many gradients as
 * it received activations. States are those of what is trained. */
static void test_stages(void **state)
{
	struct arena arena = {0};
	struct schedule *s = trained(&arena, "llama-2-7b",
		"trainable=lora:16:all-linear pipeline=4 grad_accum=8 seq_len=2048");
	int64_t trained_states = 0;
	(void)state;
	assert_int_equal(s->n_classes, 4);
	for (int c = 0; c < s->n_classes; c++) {
		int sent = 0;
		for (int x = 0; x < s->programs[c].n_ops; x++) {
			const struct op *op = &s->programs[c].ops[x];
			sent += op->kind == OP_SEND;
			assert_false(op->kind == OP_BACKWARD && op->layer < 0 && c < 3);
		}
		assert_int_equal(sent, (c == 0 || c == 3 ? 1 : 2) * 8);
		trained_states += schedule_model_states(s, c).optimizer_state;
	}
	assert_int_equal(trained_states, 8 * s->model->trained_count / s->plan.mesh.shard);
	arena_finish(&arena);
}

static void test_refused(void **state)
{
	static const struct {
		const char *words, *message;
	} rows[] = {{"trainable=lora:6 tensor=4", "the rank of the adapters, 6; use 3 or 6"},
		{"trainable=lora:16 tensor=2 runtime=shardplan",
			"runtime shardplan does not divide"},
		{"trainable=lora:16 pipeline=2 runtime=shardplan",
			"runtime shardplan does not divide"},
		{"trainable=*.0.* pipeline=2", "stages that train nothing are not modelled"},
		{"trainable=lm_head* pipeline=2", "stages that train nothing are not modelled"},
		{"trainable=lora:16 pipeline=2 pipeline_schedule=zb-h1", "splits backward"},
		{"trainable=lora:16:linear_qkv", "Megatron-Core alone has such layers"},
		{"trainable=lora:16:linear_fc2 runtime=megatron tensor=2",
			"whose whole results Megatron-Core gathers"}};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct arena arena = {0};
		struct schedule *schedule;
		struct error error = {0};
		assert_false(try_trained(&arena, "llama-2-7b", rows[i].words, &schedule, &error));
		assert_non_null(strstr(error.message, rows[i].message));
		assert_int_equal(error.code, EXIT_CODE_USAGE);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_states),
		cmocka_unit_test(test_more_frozen_needs_no_more),
		cmocka_unit_test(test_backward_ends), cmocka_unit_test(test_tensor_ranks),
		cmocka_unit_test(test_layers_over_ranks), cmocka_unit_test(test_whole),
		cmocka_unit_test(test_stages), cmocka_unit_test(test_refused)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
