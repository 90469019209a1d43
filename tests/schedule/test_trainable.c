/* Laws of frozen parameters: no gradient, no reduction, no state, and never more memory. */
#include "schedule/memory/memory.h"
#include "schedule/resolve/resolve.h"
#include "support.h"

/* The plan, with the model trained as `text` says; `reshard` NULL: as the strategy has it. */
static struct schedule *build_resharded(struct arena *arena, const char *text, const char *runtime,
	const char *strategy, const char *checkpointing, const char *reshard)
{
	struct question question = {.topology = gpu_cluster(arena, 2, 4)};
	struct model *model = preset_model(arena, "llama-nano"), *trained;
	struct plan plan;
	struct schedule *schedule = NULL;
	struct error error = {0};
	const char *const typed[][2] = {{"trainable", text}, {"runtime", runtime},
		{"strategy", strategy}, {"activation_checkpointing", checkpointing},
		{"param_dtype", "bf16"}, {"grad_accum", "2"}, {"reshard_after_forward", reshard}};
	for (int i = 0; i < COUNT_OF(typed) - (reshard == NULL); i++)
		assert_true(question_set_by_name(
			&question, typed[i][0], typed[i][0], typed[i][1], arena, &error));
	assert_true(model_train(arena, model, &question.asked.trainable, &trained, &error));
	question.model = trained;
	if (!plan_resolve(&question, arena, &plan, &error) ||
		!schedule_build(arena, &plan, trained, question.topology, &schedule, &error))
		fail_msg("%s", error.message);
	return schedule;
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
	{"shardplan", "ZERO_2", "full"}, {"shardplan", "NO_SHARD", "none"}};

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_states),
		cmocka_unit_test(test_more_frozen_needs_no_more),
		cmocka_unit_test(test_backward_ends)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
