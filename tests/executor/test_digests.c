/* One number of ranks, one micro-batch, one accumulation mode: one digest, whatever the strategy,
 * shard group, wrap, prefetch, limiter, checkpointing, offload and transport. The measured ledger
 * equals the schedule's in every run. "slow MODEL RANKS" as arguments: many more configurations and
 * steps, for that model on so many ranks; a number after it: in that one of the modes only. */
#include "digest_cases.h"

#include <stdlib.h>

enum {
	STEPS = 3,
	SLOW_STEPS = 20,
	SLOW_PER_GROUP = 24,
	SLOW_EVERY_NODES = 4, /* so many-th variant goes over nodes; else one in so many groups: */
	EVERY_NODES = 3,
	MOST_VARIANTS = SLOW_PER_GROUP + DIGEST_ZERO_VARIANTS + DIGEST_UNIT_VARIANTS
};

/* Of each group's variants only some run; sanitizers look for something else. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY_ZERO = 4, EVERY_UNIT = 16 };
static int per_group = 1;
#else
enum { EVERY_ZERO = 2, EVERY_UNIT = 8 };
static int per_group = 2;
#endif
static int64_t steps = STEPS;
static const char *only_model;
static int64_t only_ranks, only_mode = -1;

static bool slow(void)
{
	return steps == SLOW_STEPS;
}

/* Of the groups in bf16 only every third one runs. */
static bool chosen(int model, int ranks, int mode)
{
	if (slow())
		return strcmp(digest_models[model].name, only_model) == 0 &&
		       digest_ranks[ranks] == only_ranks && (only_mode < 0 || mode == only_mode);
	return mode < DIGEST_BF16_MODE || (model + ranks + mode) % 3 == 0;
}

struct tally {
	int configurations, over_nodes, groups;
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

/* Different ones for each group. */
static int choose_variants(
	int64_t ranks, int layers, int mode, int group, struct digest_variant *variants)
{
	int n = digest_some_variants(ranks, per_group, (uint32_t)(group * 7919 + 1), variants);

	n += keep_some(
		variants + n, digest_zero_variants(ranks, mode, variants + n), EVERY_ZERO, group);
	n += keep_some(
		variants + n, digest_unit_variants(ranks, layers, variants + n), EVERY_UNIT, group);
	if (slow())
		digest_spread(ranks, SLOW_EVERY_NODES, variants, n);
	else if (group % EVERY_NODES == 0 && n > 1)
		digest_spread(ranks, n, variants, n);
	return n;
}

static void check_group(
	struct tally *tally, const struct digest_model *model, int64_t ranks, int mode)
{
	struct digest_variant variants[MOST_VARIANTS];
	int group = slow() ? mode : tally->groups;
	int n = choose_variants(ranks, model->layers, mode, group, variants);
	struct digest first = {""};
	char text[256];

	for (int i = 0; i < n; i++) {
		const struct digest_variant *v = &variants[i];
		struct error error = {0};
		struct digest digest = digest_train(
			model->text, ranks, digest_modes[mode], v, steps, NULL, &error);

		digest_describe(v, text);
		if (i == 0)
			first = digest;
		if (error.message[0] != '\0' || strcmp(first.hex, digest.hex) != 0)
			fail_msg("%s on %lld ranks (nodes of %d, 0 = shared memory), %s, %s: %s; "
				 "%s, NO_SHARD has %s",
				model->name, (long long)ranks, v->per_node, digest_modes[mode],
				text, error.message, digest.hex, first.hex);
		tally->configurations++;
		tally->over_nodes += v->per_node > 0;
	}
	if (slow())
		print_message("%s on %lld ranks, %s: %d configurations, all %s\n", model->name,
			(long long)ranks, digest_modes[mode], n, first.hex);
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
	assert_true(tally.groups > 0);
	print_message("%d configurations in %d groups, %d of them over nodes\n",
		tally.configurations, tally.groups, tally.over_nodes);
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
	const struct CMUnitTest slow_tests[] = {
		cmocka_unit_test(plans_give_equal_bits),
	};

	run_as_rank(argc, argv);
	if (argc >= 4 && strcmp(argv[1], "slow") == 0 && parse_int(argv[3], &only_ranks) &&
		(argc == 4 || parse_int(argv[4], &only_mode))) {
		only_model = argv[2];
		per_group = SLOW_PER_GROUP;
		steps = SLOW_STEPS;
		return cmocka_run_group_tests(slow_tests, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
