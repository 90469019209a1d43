/* The head with its loss in chunks of rows (--loss fused-linear): losses, weights and moments equal
 * those of the head in one piece to the last bit, and memory falls as the plan says. */
#include "tests/executor/support.h"

#include "schedule/memory/memory.h"

enum { STEPS = 2, HEAD_ROW = 320 }; /* of fewer than 320 logits, in rows of a multiple of 64 */

struct outcome {
	char digest[64];
	double losses[STEPS], norms[STEPS];
	int64_t logits; /* bytes of logits and losses */
};

/* And the ledger that was measured is the schedule's. */
static struct outcome train(const char *model, int64_t ranks, const char *options, const char *loss)
{
	struct executor_job job = run_job(STEPS);
	struct outcome outcome = {""};
	struct arena arena = {0};
	struct ledger ledger;
	struct run run;
	char text[256];

	snprintf(text, sizeof(text), "seq_len=11 loss=%s %s", loss, options);
	run_plan(&run, model, ranks, text);
	if (!run_train(&run, &job))
		fail_msg("%s: %s", text, run.error.message);
	snprintf(outcome.digest, sizeof(outcome.digest), "%s", run.measurement.weights_digest);
	assert_int_equal(run.measurement.n_losses, STEPS);
	for (int i = 0; i < STEPS; i++) {
		outcome.losses[i] = run.measurement.losses[i];
		outcome.norms[i] = run.measurement.gradient_norms[i];
	}
	schedule_ledger(run.schedule, 0, &arena, &ledger);
	for (int i = 0; i < run.measurement.timeline.n_ops; i++)
		assert_memory_equal(
			run.measurement.timeline.live[i], ledger.live[i], sizeof(ledger.live[0]));
	const struct program *program = &run.schedule->programs[0];
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].role == BUFFER_LOGITS ||
			program->buffers[i].role == BUFFER_LOSS_WORK)
			outcome.logits += program->buffers[i].bytes;
	arena_finish(&arena);
	run_finish(&run);
	return outcome;
}

/* Sizes that end in the middle of sequences; of odd numbers of tokens; one chunk alone. */
static void bits_are_those_of_one_piece(void **state)
{
	static const struct {
		const char *model;
		int64_t ranks;
		const char *options;
		int64_t tokens, chunk, width; /* of the plan; the largest chunk; bytes a logit */
	} cases[] = {
		{TINY_GPT2, 2, "micro_batch=100 strategy=FULL_SHARD", 1100, 513, 4},
		{TINY_GPT2, 2, "micro_batch=51 strategy=FULL_SHARD wrap=size:1500 clip=0.5", 561,
			513, 4},
		{TINY_LLAMA, 3, "micro_batch=60 strategy=ZERO_2", 660, 513, 4},
		{TINY_LLAMA, 1, "micro_batch=2 strategy=NO_SHARD", 22, 22, 4},
		{TINY_LLAMA, 2,
			"micro_batch=50 strategy=SHARD_GRAD_OP gradient_sums=exact "
			"sync_each_micro_batch=off",
			550, 513, 4},
		{TINY_QWEN, 2, "micro_batch=201 strategy=FULL_SHARD param_dtype=bf16", 2211, 1025,
			2},
		{TINY_GPT2, 2,
			"micro_batch=95 strategy=NO_SHARD param_dtype=bf16 cpu_offload=optimizer",
			1045, 1025, 2},
	};
	char seen[COUNT_OF(cases)][64];

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct outcome whole =
			train(cases[i].model, cases[i].ranks, cases[i].options, "fused");
		struct outcome chunks =
			train(cases[i].model, cases[i].ranks, cases[i].options, "fused-linear");
		int64_t row = HEAD_ROW * cases[i].width + 4;

		if (strcmp(whole.digest, chunks.digest) != 0)
			fail_msg("%s: %s in chunks, %s in one piece", cases[i].options,
				chunks.digest, whole.digest);
		assert_memory_equal(whole.losses, chunks.losses, sizeof(whole.losses));
		assert_memory_equal(whole.norms, chunks.norms, sizeof(whole.norms));
		assert_int_equal(whole.logits, cases[i].tokens * row);
		assert_int_equal(chunks.logits, cases[i].chunk * row);
		snprintf(seen[i], sizeof(seen[i]), "%s", whole.digest);
		for (int j = 0; j < i; j++)
			assert_string_not_equal(seen[i], seen[j]);
	}
}

/* Gradients of later micro-batches are added to those that are there. */
static void accumulation_keeps_the_bits(void **state)
{
	static const char options[] = "micro_batch=60 grad_accum=3 sync_each_micro_batch=off "
				      "strategy=FULL_SHARD activation_checkpointing=full";

	(void)state;
	struct outcome whole = train(TINY_GPT2, 2, options, "fused");
	struct outcome chunks = train(TINY_GPT2, 2, options, "fused-linear");
	assert_string_equal(whole.digest, chunks.digest);
	assert_memory_equal(whole.losses, chunks.losses, sizeof(whole.losses));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_one_piece),
		cmocka_unit_test(accumulation_keeps_the_bits),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
