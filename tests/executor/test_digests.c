/* One number of ranks, one micro-batch, one accumulation mode: one digest, whatever the strategy,
 * shard group, wrap, prefetch, limiter and checkpointing. The measured ledger equals the schedule's
 * in every run. With "slow" as argument many more configurations. */
#include "digest_cases.h"

#include <stdlib.h>

enum {
	STEPS = 3,
	SLOW_STEPS = 20,
	MOST_VARIANTS = 40 + DIGEST_ZERO_VARIANTS + DIGEST_UNIT_VARIANTS
};

/* Of each group's variants every how many-th runs; sanitizers look for something else. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY_ZERO = 4, EVERY_UNIT = 16 };
static int per_group = 1;
#else
enum { EVERY_ZERO = 2, EVERY_UNIT = 8 };
static int per_group = 2;
#endif
static int64_t steps = STEPS;

static bool slow(void)
{
	return steps == SLOW_STEPS;
}

/* Of the groups in bf16 every third one. */
static bool chosen(int model, int ranks, int mode)
{
	return slow() || mode < DIGEST_BF16_MODE || (model + ranks + mode) % 3 == 0;
}

struct tally {
	int configurations, groups;
	struct digest *seen; /* of the groups */
};

/* Keeps every `every`-th, another one in each group; slow: all. */
static int keep_some(struct digest_variant *variants, int all, int every, int group)
{
	int n = 0;

	for (int i = 0; i < all; i++)
		if (slow() || (i + group) % every == 0)
			variants[n++] = variants[i];
	return n;
}

static void check_group(
	struct tally *tally, const struct digest_model *model, int64_t ranks, int mode)
{
	struct digest_variant variants[MOST_VARIANTS];
	int n = digest_some_variants(
		ranks, per_group, (uint32_t)(tally->groups * 7919 + 1), variants);
	struct digest first = {""};
	char text[256];

	n += keep_some(variants + n, digest_zero_variants(ranks, mode, variants + n), EVERY_ZERO,
		tally->groups);
	n += keep_some(variants + n, digest_unit_variants(ranks, model->layers, variants + n),
		EVERY_UNIT, tally->groups);
	for (int i = 0; i < n; i++) {
		struct error error = {0};
		struct digest digest = digest_train(
			model->text, ranks, digest_modes[mode], &variants[i], steps, NULL, &error);

		digest_describe(&variants[i], text);
		if (error.message[0] != '\0')
			fail_msg("%s on %lld ranks, %s, %s: %s", model->name, (long long)ranks,
				digest_modes[mode], text, error.message);
		if (i == 0)
			first = digest;
		else if (strcmp(first.hex, digest.hex) != 0)
			fail_msg("%s on %lld ranks, %s, %s: %s, NO_SHARD has %s", model->name,
				(long long)ranks, digest_modes[mode], text, digest.hex, first.hex);
		tally->configurations++;
	}
	tally->seen[tally->groups++] = first;
}

/* Equal digests would also come from a digest that looks at nothing. */
static void check_distinct(const struct tally *tally)
{
	for (int i = 0; i < tally->groups; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(tally->seen[i].hex, tally->seen[j].hex);
}

static void plans_give_equal_bits(void **state)
{
	struct tally tally = {
		.seen = calloc((size_t)(n_digest_models * n_slow_digest_ranks * n_digest_modes),
			sizeof(*tally.seen))};

	(void)state;
	for (int m = 0; m < n_digest_models; m++)
		for (int r = 0; r < (slow() ? n_slow_digest_ranks : n_digest_ranks); r++)
			for (int mode = 0; mode < n_digest_modes; mode++)
				if (chosen(m, r, mode))
					check_group(
						&tally, &digest_models[m], digest_ranks[r], mode);
	check_distinct(&tally);
	print_message("%d configurations in %d groups\n", tally.configurations, tally.groups);
	free(tally.seen);
}

/* Queries and keys are turned in place, normalised or not; each family keeps other results. */
static void families_and_optimizers_keep_the_bits(void **state)
{
	static const char *const models[] = {TINY_GPT2, TINY_LLAMA, TINY_QWEN};
	static const char *const optimizers[] = {"", " optimizer=sgd"};
	static const struct digest_variant variants[] = {
		{"NO_SHARD", "block", "pre", "none", false, true},
		{"FULL_SHARD", "block", "pre", "selective", false, true},
		{"SHARD_GRAD_OP cpu_offload=optimizer", "model", "pre", "full", false, true},
	};
	struct digest of_optimizer[COUNT_OF(optimizers)];

	(void)state;
	for (int m = 0; m < COUNT_OF(models); m++)
		for (int o = 0; o < COUNT_OF(optimizers); o++)
			for (int v = 0; v < COUNT_OF(variants); v++) {
				char mode[64];
				struct error error = {0};

				snprintf(mode, sizeof(mode), "micro_batch=1 clip=0.5%s",
					optimizers[o]);
				struct digest digest = digest_train(
					models[m], 2, mode, &variants[v], steps, NULL, &error);
				if (error.message[0] != '\0')
					fail_msg("%s %s: %s", mode, variants[v].strategy,
						error.message);
				if (v == 0)
					of_optimizer[o] = digest;
				assert_string_equal(digest.hex, of_optimizer[o].hex);
				if (v == 0 && o == 1)
					assert_string_not_equal(digest.hex, of_optimizer[0].hex);
			}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_give_equal_bits),
		cmocka_unit_test(families_and_optimizers_keep_the_bits),
	};

	run_as_rank(argc, argv);
	if (argc > 1 && strcmp(argv[1], "slow") == 0) {
		per_group = MOST_VARIANTS - DIGEST_ZERO_VARIANTS - DIGEST_UNIT_VARIANTS;
		steps = SLOW_STEPS;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
