/* Negative controls: every seeded fault either changes the digest or ends the run with a message.
 * A digest that stays equal would mean that the comparison of digests cannot fail. */
#include "digest_cases.h"

/* Where a fault must matter; NULL as message: another digest. */
static const struct seeded {
	const char *fault;
	int64_t ranks;
	const char *mode;
	struct digest_variant variant;
	const char *message;
} seeded[] = {
#define FULL                                                                                       \
	{                                                                                          \
		"FULL_SHARD", "block", "pre", "none", false, true                                  \
	}
#define HYBRID                                                                                     \
	{                                                                                          \
		"HYBRID_SHARD shard_group=2", "block", "pre", "none", false, true                  \
	}
#define CHECKPOINTED                                                                               \
	{                                                                                          \
		"FULL_SHARD", "block", "pre", "full", false, true                                  \
	}
#define OFFLOADED(kind)                                                                            \
	{                                                                                          \
		"FULL_SHARD cpu_offload=" kind, "block", "pre", "none", false, true                \
	}
	{"drop_wait", 2, "micro_batch=1", FULL, NULL},
	{"drop_wait", 2, "micro_batch=1", OFFLOADED("parameters"), NULL},
	{"missing_divide", 2, "micro_batch=1", FULL, NULL},
	{"scale_gradient", 2, "micro_batch=1", FULL, NULL},
	{"wrong_shard_offset", 2, "micro_batch=1", FULL, NULL},
	{"wrong_shard_offset=1@step=1", 2, "micro_batch=1", FULL, NULL},
	{"skip_reduce", 2, "micro_batch=1", FULL, NULL},
	{"skip_reduce=1@step=2", 3, "micro_batch=1", FULL, NULL},
	{"reduce_order", 4, "micro_batch=1", FULL, NULL},
	{"skip_replicate", 4, "micro_batch=1", HYBRID, "replicas differ"},
	{"stale_gather", 2, "micro_batch=1", FULL, NULL},
	{"dirty_gradient", 2, "micro_batch=1", FULL, NULL},
	{"double_accumulate", 2, "micro_batch=1 grad_accum=3", FULL, NULL},
	{"skip_optimizer@step=1", 2, "micro_batch=1", FULL, NULL},
	{"drop_last_element", 2, "micro_batch=1", FULL, NULL},
	{"round_by_shard", 2, "micro_batch=1 param_dtype=bf16 master_dtype=bf16", FULL, NULL},
	{"bf16_reduce", 2, "micro_batch=1", FULL, NULL},
	{"stale_recompute", 2, "micro_batch=1", CHECKPOINTED, NULL},
	{"stale_copy", 2, "micro_batch=1", OFFLOADED("parameters"), NULL},
	{"stale_copy", 2, "micro_batch=1", OFFLOADED("optimizer"), NULL},
	{"wrong_sequence", 2, "micro_batch=1", FULL, NULL},
	{"wild_token=1@step=1", 2, "micro_batch=1", FULL, "is outside the vocabulary"},
	{"ledger_leak", 2, "micro_batch=1", FULL, "another ledger"},
	{"nan@step=1", 2, "micro_batch=1", FULL, "step 1: the gradient norm is"},
	{"nan=1@step=0", 4, "micro_batch=1", HYBRID, "step 0: the gradient norm is"},
	{"mismatch_rank=1@step=1", 2, "micro_batch=1", FULL, "different collectives"},
	{"kill_rank=1@step=1", 2, "micro_batch=1", FULL, "rank 1 was killed by signal 9"},
	{"exit_rank=0@step=1", 2, "micro_batch=1", FULL, "rank 0 left with code 0"},
};

static void check_fault(const struct seeded *s)
{
	struct error clean = {0}, error = {0};
	struct digest right =
		digest_train(TINY_GPT2, s->ranks, s->mode, &s->variant, 3, NULL, &clean);
	struct digest wrong =
		digest_train(TINY_GPT2, s->ranks, s->mode, &s->variant, 3, s->fault, &error);

	assert_string_equal(clean.message, "");
	if (s->message != NULL) {
		if (strstr(error.message, s->message) == NULL)
			fail_msg("%s: expected \"%s\", got \"%s\"", s->fault, s->message,
				error.message);
		return;
	}
	/* Some faults make weights explode before the last step, which is noticed too. */
	if (strcmp(right.hex, wrong.hex) == 0)
		fail_msg("%s: the digest is the same", s->fault);
}

static void faults_are_noticed(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(seeded); i++)
		check_fault(&seeded[i]);
}

/* Wherever the dropped wait is. Without sharding it is the reduction that nobody waits for. */
static void dropped_waits_are_noticed_by_every_strategy(void **state)
{
	static const char *const strategies[] = {
		"NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD shard_group=2"};

	(void)state;
	for (int i = 0; i < COUNT_OF(strategies); i++) {
		struct seeded s = {"drop_wait", 4, "micro_batch=1",
			{strategies[i], "block", "pre", "none", false, true}, NULL};

		check_fault(&s);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_are_noticed),
		cmocka_unit_test(dropped_waits_are_noticed_by_every_strategy),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
