/* Weights and moments that are kept in bf16: one digest whatever the sharding, the number of ranks
 * and kills, because the random bits of a rounding belong to the element; and training that goes
 * where fp32 weights go, which rounding to nearest does not. */
#include "digest_cases.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/common/bf16.h"

enum { STEPS = 3 };

#define BF16 "param_dtype=bf16 master_dtype=bf16"

static struct digest train_variant(
	const char *mode, int64_t ranks, const struct digest_variant *variant, const char *fault)
{
	struct error error = {0};
	struct digest digest = digest_train(TINY_GPT2, ranks, mode, variant, STEPS, fault, &error);

	if (error.message[0] != '\0')
		fail_msg("%s on %lld ranks, %s: %s", variant->strategy, (long long)ranks, mode,
			error.message);
	return digest;
}

static const struct digest_variant variants[] = {
	{"NO_SHARD", "block", "pre", "none", false, true},
	{"FULL_SHARD", "block", "pre", "none", false, true},
	{"FULL_SHARD", "size:1500", "post", "full", true, false},
	{"SHARD_GRAD_OP", "model", "none", "selective", false, true},
	{"FULL_SHARD reshard_after_forward=2", "block", "pre", "none", false, true},
	{"HYBRID_SHARD shard_group=2", "blocks:2", "pre", "none", false, true},
	{"ZERO_3", "block", "pre", "none", false, true},
	{"FULL_SHARD cpu_offload=parameters", "block", "pre", "none", false, true},
	{"FULL_SHARD cpu_offload=optimizer", "blocks:2", "pre", "full", false, true},
	{"NO_SHARD cpu_offload=optimizer", "block", "pre", "none", false, true},
	{"SHARD_GRAD_OP cpu_offload=1xnone+1xparameters+1xoptimizer+1xnone", "block", "pre", "none",
		false, true},
};

static const struct digest_variant zero_variants[] = {
	{"ZERO_1", "block", "pre", "none", false, true},
	{"ZERO_1 shard_group=2", "size:1500", "none", "full", true, true},
	{"ZERO_2", "model", "post", "none", false, false},
};

/* Also checked by digest_train: the ledger is the schedule's. Half of them in all modes but one. */
static void plans_give_equal_bits(void **state)
{
	static const char *const modes[] = {
		"micro_batch=2 " BF16,
		"micro_batch=1 grad_accum=2 sync_each_micro_batch=on clip=0.5 "
		"reduce_dtype=bf16 " BF16,
		"micro_batch=1 clip=0.5 optimizer=sgd " BF16,
		"micro_batch=2 master_dtype=bf16",
	};
	struct digest seen[COUNT_OF(modes)];

	(void)state;
	for (int m = 0; m < COUNT_OF(modes); m++) {
		for (int v = 0; v < COUNT_OF(variants); v++) {
			if (m > 0 && v > 0 && (m + v) % 2 != 0)
				continue;
			struct digest digest = train_variant(modes[m], 4, &variants[v], NULL);
			if (v == 0)
				seen[m] = digest;
			assert_string_equal(digest.hex, seen[m].hex);
		}
		for (int v = 0; m != 1 && v < COUNT_OF(zero_variants); v++)
			assert_string_equal(train_variant(modes[m], 4, &zero_variants[v], NULL).hex,
				seen[m].hex);
		for (int other = 0; other < m; other++)
			assert_string_not_equal(seen[m].hex, seen[other].hex);
	}
}

/* The negative control: elements counted from the start of the shard make every sharding another
 * run. */
static void elements_of_shards_do_not(void **state)
{
	static const char mode[] = "micro_batch=1 " BF16, fault[] = "round_by_shard";

	(void)state;
	struct digest right = train_variant(mode, 2, &variants[0], NULL);
	struct digest whole = train_variant(mode, 2, &variants[0], fault);
	struct digest sharded = train_variant(mode, 2, &variants[1], fault);

	assert_string_not_equal(right.hex, whole.hex);
	assert_string_not_equal(right.hex, sharded.hex);
	assert_string_not_equal(whole.hex, sharded.hex);
}

/* --- over ranks, checkpoints and kills --- */

struct case_ {
	int64_t ranks;
	const char *options; /* 24 sequences a step */
};

static const struct case_ world[] = {
	{1, "strategy=NO_SHARD micro_batch=24"},
	{2, "strategy=FULL_SHARD micro_batch=4 grad_accum=3"},
	{3, "strategy=SHARD_GRAD_OP micro_batch=8 cpu_offload=optimizer"},
	{4, "strategy=ZERO_2 micro_batch=6"},
	{6, "strategy=HYBRID_SHARD_ZERO2 shard_group=3 micro_batch=4 wrap=model"},
	{8, "strategy=FULL_SHARD micro_batch=3 cpu_offload=parameters"},
};

static struct digest train_world(const struct case_ *c, struct executor_job job)
{
	struct digest digest;
	struct run run;
	char options[256];

	snprintf(options, sizeof(options),
		"%s seq_len=8 clip=0.5 gradient_sums=exact master_dtype=bf16", c->options);
	run_plan(&run, TINY_GPT2, c->ranks, options);
	if (!run_train(&run, &job))
		fail_msg("%lld ranks, %s: %s", (long long)c->ranks, options, run.error.message);
	snprintf(digest.hex, sizeof(digest.hex), "%s", run.measurement.weights_digest);
	assert_string_equal(run.measurement.reproducible, "world");
	run_finish(&run);
	return digest;
}

static void any_number_of_ranks_ends_in_the_same_bits(void **state)
{
	struct digest first = train_world(&world[0], run_job(STEPS));

	(void)state;
	for (int i = 1; i < COUNT_OF(world); i++)
		assert_string_equal(train_world(&world[i], run_job(STEPS)).hex, first.hex);
}

static void remove_folder(const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

/* Killed in the step after a checkpoint, written in the background or not, and resumed by others:
 * what bf16 holds is the same in the fp32 of a file. */
static void killed_and_resumed_it_ends_in_the_same_bits(void **state)
{
	struct digest whole = train_world(&world[0], run_job(STEPS));

	(void)state;
	for (int w = 1; w < 4; w += 2) {
		char folder[] = "/tmp/shardplan-master-XXXXXX", options[256];
		struct executor_job job = run_job(STEPS), rest = run_job(STEPS);
		struct run run;

		assert_non_null(mkdtemp(folder));
		job.checkpoint = folder;
		job.checkpoint_every = 1;
		job.checkpoint_background = w == 3;
		job.fault = "kill_rank=0@step=2";
		snprintf(options, sizeof(options),
			"%s seq_len=8 clip=0.5 gradient_sums=exact master_dtype=bf16",
			world[w].options);
		run_plan(&run, TINY_GPT2, world[w].ranks, options);
		assert_false(run_train(&run, &job));
		assert_int_equal(run.error.code, EXIT_CODE_FAULT);
		run_finish(&run);
		rest.resume = folder;
		for (int r = 0; r < COUNT_OF(world); r += 2)
			assert_string_equal(train_world(&world[r], rest).hex, whole.hex);
		remove_folder(folder);
	}
}

/* --- memory --- */

static int64_t peak(const struct run *run, enum category category)
{
	return (int64_t)run->measurement.values.ledger_category_peak[category];
}

/* Half the bytes of weights and moments; gradients stay fp32. */
static void states_take_half(void **state)
{
	struct executor_job job = run_job(2);
	struct run wide, narrow;

	(void)state;
	run_plan(&wide, TINY_GPT2, 2, "strategy=FULL_SHARD micro_batch=1 seq_len=8");
	run_plan(&narrow, TINY_GPT2, 2,
		"strategy=FULL_SHARD micro_batch=1 seq_len=8 master_dtype=bf16");
	assert_true(run_train(&wide, &job));
	assert_true(run_train(&narrow, &job));
	assert_int_equal(
		2 * peak(&narrow, CATEGORY_OPTIMIZER_STATE), peak(&wide, CATEGORY_OPTIMIZER_STATE));
	assert_int_equal(peak(&narrow, CATEGORY_GRADIENTS), peak(&wide, CATEGORY_GRADIENTS));
	assert_int_equal(narrow.measurement.undeclared_bytes, 0);
	run_finish(&wide);
	run_finish(&narrow);
}

/* --- loss curves --- */

/* What one would write without a thought: fp32 arithmetic, the result rounded to nearest even. */
static void adamw_to_nearest(struct kernel_context *context, const struct adamw *a)
{
	void *arrays[] = {a->w, a->m, a->v};
	float *wide[3];
	struct adamw fp32 = *a;

	for (int i = 0; i < 3; i++) {
		wide[i] = malloc((size_t)a->n * sizeof(float));
		kernels_cpu()->convert(context, DTYPE_FP32, wide[i], DTYPE_BF16, arrays[i], a->n);
	}
	fp32.dtype = DTYPE_FP32;
	fp32.w = wide[0];
	fp32.m = wide[1];
	fp32.v = wide[2];
	kernels_cpu()->adamw(context, &fp32);
	for (int i = 0; i < 3; i++) {
		kernels_cpu()->convert(context, DTYPE_BF16, arrays[i], DTYPE_FP32, wide[i], a->n);
		free(wide[i]);
	}
}

/* The mean loss of the last steps, and of the first ones. */
struct curve {
	double first, last;
};

static struct curve loss_curve(const char *options, const struct kernels *kernels, double rate)
{
	enum { LENGTH = 400, MEAN = 50 };
	struct training training = training_defaults();
	struct curve curve = {0};
	struct solo solo;
	struct run run;

	training.steps = LENGTH;
	training.learning_rate = rate;
	run_plan(&run, TINY_GPT2, 1, options);
	solo_open(&solo, &run, kernels, false, training);
	weights_init(&(struct weights){run.schedule, &run.schedule->programs[0], &solo.buffers, 0},
		training.seed, 1);
	for (int64_t step = 0; step < LENGTH; step++) {
		solo_step(&solo, step);
		double loss = exact_sum_value(&solo.compute.loss) / (double)solo.compute.tokens;

		if (step < MEAN)
			curve.first += loss / MEAN;
		if (step >= LENGTH - MEAN)
			curve.last += loss / MEAN;
	}
	solo_close(&solo);
	run_finish(&run);
	return curve;
}

/* At a rate whose updates are below half a unit in the last place of most weights. */
static void the_loss_follows_fp32(void **state)
{
	static const char fp32[] = "strategy=NO_SHARD micro_batch=8 seq_len=16";
	static const char bf16[] = "strategy=NO_SHARD micro_batch=8 seq_len=16 master_dtype=bf16";
	struct kernels nearest = *kernels_cpu();
	const double rate = 3e-5;

	(void)state;
	nearest.adamw = adamw_to_nearest;
	struct curve wide = loss_curve(fp32, kernels_cpu(), rate);
	struct curve chance = loss_curve(bf16, kernels_cpu(), rate);
	struct curve lost = loss_curve(bf16, &nearest, rate);
	double fall = wide.first - wide.last;

	print_message("loss falls by %.4f with fp32, %.4f by chance, %.4f to nearest\n", fall,
		chance.first - chance.last, lost.first - lost.last);
	assert_true(fabs(chance.first - chance.last - fall) <= 0.1 * fall);
	assert_true(lost.first - lost.last <= 0.7 * fall);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_give_equal_bits),
		cmocka_unit_test(elements_of_shards_do_not),
		cmocka_unit_test(any_number_of_ranks_ends_in_the_same_bits),
		cmocka_unit_test(killed_and_resumed_it_ends_in_the_same_bits),
		cmocka_unit_test(states_take_half),
		cmocka_unit_test(the_loss_follows_fp32),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
