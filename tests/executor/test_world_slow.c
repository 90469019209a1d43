/* Level `world` at length: one digest for 24 sequences a step on 1, 2, 3, 4, 6 and 8 ranks,
 * whatever the micro-batch, accumulation, strategy and transport; and through kills, after which
 * every other number of ranks goes on. Prints the tables of bench/results. test_world.c is the
 * short one. */
#include "digest_cases.h"

#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 20, EVERY = 4, SEQUENCES = 24, SOME = 4, EVERY_NODES = 4, EVERY_UNIT = 3 };
enum { MOST = SOME + DIGEST_ZERO_VARIANTS + DIGEST_UNIT_VARIANTS };

static const int64_t world_ranks[] = {1, 2, 3, 4, 6, 8};

struct tally {
	int configurations, over_nodes;
	struct digest first;
};

/* --- configurations --- */

/* One rank has no groups and no other nodes. */
static bool is_for_one(const struct digest_variant *v)
{
	return strncmp(v->strategy, "HYBRID", 6) != 0 && strstr(v->strategy, "=2") == NULL;
}

/* Some of all strategies and knobs, ZeRO's stages where they run in that mode, offload and choices
 * per block; others for each `seed`. */
static int choose(int64_t ranks, int layers, int mode, int seed, struct digest_variant *variants)
{
	struct digest_variant all[MOST];
	int n = digest_some_variants(ranks, SOME, (uint32_t)seed, all), kept = 0;

	n += digest_zero_variants(ranks, mode, all + n);
	int units = n + digest_unit_variants(ranks, layers, all + n);
	for (int i = n; i < units; i++)
		if ((i + seed) % EVERY_UNIT == 0)
			all[n++] = all[i];
	for (int i = 0; i < n; i++)
		if (ranks > 1 || is_for_one(&all[i]))
			variants[kept++] = all[i];
	if (ranks > 1)
		digest_spread(ranks, EVERY_NODES, variants, kept);
	return kept;
}

static void train_one(struct tally *tally, const struct digest_model *model, int64_t ranks,
	const char *mode, const struct digest_variant *v)
{
	struct error error = {0};
	struct digest digest = digest_train(model->text, ranks, mode, v, STEPS, NULL, &error);
	char text[256];

	digest_describe(v, text);
	if (tally->configurations == 0)
		tally->first = digest;
	if (error.message[0] != '\0' || strcmp(digest.hex, tally->first.hex) != 0)
		fail_msg("%s on %lld ranks (nodes of %d, 0 = shared memory), %s, %s: %s; %s, the "
			 "first had %s",
			model->name, (long long)ranks, v->per_node, mode, text, error.message,
			digest.hex, tally->first.hex);
	tally->configurations++;
	tally->over_nodes += v->per_node > 0;
}

/* Trains with every micro-batch that divides the rank's sequences. */
static void train_on(
	struct tally *tally, const struct digest_model *model, int64_t ranks, const char *more)
{
	int64_t each = SEQUENCES / ranks;

	for (int64_t micro = 1; micro <= each; micro++) {
		struct digest_variant variants[MOST];
		bool synchronised = micro % 2 == 1;
		int mode = micro == each ? 0 : synchronised ? 1 : 2;
		char text[160];

		if (each % micro != 0)
			continue;
		snprintf(text, sizeof(text),
			"micro_batch=%lld grad_accum=%lld sync_each_micro_batch=%s clip=0.5 "
			"gradient_sums=exact%s",
			(long long)micro, (long long)(each / micro), synchronised ? "on" : "off",
			more);
		int n = choose(ranks, model->layers, mode, (int)(ranks * 100 + micro), variants);
		for (int i = 0; i < n; i++)
			train_one(tally, model, ranks, text, &variants[i]);
	}
}

static struct digest check_world(const struct digest_model *model, const char *more)
{
	struct tally tally = {0};

	print_message("| %s%s |", model->name, more);
	for (int r = 0; r < COUNT_OF(world_ranks); r++) {
		int before = tally.configurations;

		train_on(&tally, model, world_ranks[r], more);
		print_message(" %d |", tally.configurations - before);
	}
	print_message(
		" %d | %d | `%s` |\n", tally.configurations, tally.over_nodes, tally.first.hex);
	return tally.first;
}

static void any_number_of_ranks_ends_in_the_same_bits(void **state)
{
	static const char *const master[] = {"", " master_dtype=bf16"};
	struct digest seen[8];
	int n = 0;

	(void)state;
	print_message("| model | 1 rank | 2 | 3 | 4 | 6 | 8 | together | over nodes | digest |\n"
		      "|---|---|---|---|---|---|---|---|---|---|\n");
	for (int m = 0; m < n_digest_models; m++)
		for (int w = 0; w < COUNT_OF(master); w++)
			seen[n++] = check_world(&digest_models[m], master[w]);
	/* Equal digests would also come from a digest that looks at nothing. */
	for (int i = 0; i < n; i++)
		for (int j = 0; j < i; j++)
			assert_string_not_equal(seen[i].hex, seen[j].hex);
}

/* --- kills --- */

static bool run_at(const struct digest_world *place, const char *model, struct executor_job *job,
	struct digest *digest, struct error *error)
{
	struct run run;
	char options[256];

	snprintf(options, sizeof(options), "%s seq_len=11 clip=0.5 gradient_sums=exact",
		place->options);
	run_plan(&run, model, place->ranks, options);
	assert_int_equal(run.file.plan.global_batch, SEQUENCES);
	bool ok = run_train(&run, job);
	*error = run.error;
	snprintf(digest->hex, sizeof(digest->hex), "%s", ok ? run.measurement.weights_digest : "");
	run_finish(&run);
	return ok;
}

/* Killed after its first checkpoint, at another rank and step for each `number`. */
static void kill_at(
	const struct digest_world *place, const char *model, const char *folder, int number)
{
	struct executor_job job = run_job(STEPS);
	struct digest digest;
	struct error error;
	char fault[64];

	snprintf(fault, sizeof(fault), "kill_rank=%d@step=%d", number % (int)place->ranks,
		EVERY + number * 7 % (STEPS - EVERY));
	job.checkpoint = folder;
	job.checkpoint_every = EVERY;
	job.fault = fault;
	assert_false(run_at(place, model, &job, &digest, &error));
	if (error.code != EXIT_CODE_FAULT ||
		strstr(error.message, "was killed by signal 9") == NULL)
		fail_msg("%s: %s", fault, error.message);
}

static void resumed_by_others_it_ends_in_the_same_bits(void **state)
{
	int kills = 0, resumed = 0;

	(void)state;
	for (int m = 0; m < n_digest_models; m++) {
		struct executor_job job = run_job(STEPS);
		struct digest whole, digest;
		struct error error;

		assert_true(run_at(&digest_worlds[0], digest_models[m].text, &job, &whole, &error));
		for (int w = 0; w < n_digest_worlds; w++) {
			char folder[] = "/tmp/shardplan-world-XXXXXX", command[64];

			assert_non_null(mkdtemp(folder));
			kill_at(&digest_worlds[w], digest_models[m].text, folder, kills++);
			for (int r = 0; r < n_digest_worlds; r++) {
				job = run_job(STEPS);
				job.resume = folder;
				if (!run_at(&digest_worlds[r], digest_models[m].text, &job, &digest,
					    &error) ||
					strcmp(digest.hex, whole.hex) != 0)
					fail_msg("%s, killed on %lld ranks, resumed on %lld (%s): "
						 "%s %s, undisturbed %s",
						digest_models[m].name,
						(long long)digest_worlds[w].ranks,
						(long long)digest_worlds[r].ranks,
						digest_worlds[r].options, error.message, digest.hex,
						whole.hex);
				resumed++;
			}
			snprintf(command, sizeof(command), "rm -rf '%s'", folder);
			assert_int_equal(system(command), 0);
		}
	}
	print_message(
		"%d runs killed, resumed %d times, all in the undisturbed bits\n", kills, resumed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_ranks_ends_in_the_same_bits),
		cmocka_unit_test(resumed_by_others_it_ends_in_the_same_bits),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
