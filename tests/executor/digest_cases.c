#include "digest_cases.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/compute/random.h"
#include "schedule/memory/memory.h"

const struct digest_model digest_models[] = {
	{"gpt2", TINY_GPT2, 3},
	{"llama", TINY_LLAMA, 2},
};
const int n_digest_models = COUNT_OF(digest_models);

/* "slow" adds 5, 6 and 7. */
const int64_t digest_ranks[] = {2, 3, 4, 8, 5, 6, 7};
const int n_digest_ranks = 4, n_slow_digest_ranks = COUNT_OF(digest_ranks);

const char *const digest_modes[] = {
	"micro_batch=2 grad_accum=1",
	"micro_batch=1 grad_accum=3 sync_each_micro_batch=on",
	"micro_batch=1 grad_accum=3 sync_each_micro_batch=off clip=0.5",
	"micro_batch=2 grad_accum=1 param_dtype=bf16",
	"micro_batch=1 grad_accum=3 sync_each_micro_batch=on param_dtype=bf16 reduce_dtype=bf16",
	("micro_batch=1 grad_accum=3 sync_each_micro_batch=off clip=0.5 param_dtype=bf16 "
	 "reduce_dtype=bf16"),
};
const int n_digest_modes = COUNT_OF(digest_modes);

const struct digest_world digest_worlds[] = {
	{1, "strategy=NO_SHARD micro_batch=24"},
	{1, "strategy=FULL_SHARD micro_batch=3 grad_accum=8 sync_each_micro_batch=off"},
	{2, "strategy=FULL_SHARD micro_batch=4 grad_accum=3"},
	{2, "strategy=SHARD_GRAD_OP micro_batch=12 cpu_offload=optimizer"},
	{3, "strategy=NO_SHARD micro_batch=8 activation_checkpointing=selective"},
	{3, "strategy=FULL_SHARD micro_batch=2 grad_accum=4 sync_each_micro_batch=off"},
	{4, "strategy=HYBRID_SHARD shard_group=2 micro_batch=3 grad_accum=2"},
	{4, "strategy=HYBRID_SHARD shard_group=2 micro_batch=2 grad_accum=3 late_all_reduce=on"},
	{4, "strategy=ZERO_2 micro_batch=6"},
	{2, "strategy=FULL_SHARD micro_batch=4 grad_accum=3 activation_offload=all"},
	{3, "strategy=NO_SHARD micro_batch=8 activation_checkpointing=full "
	    "activation_offload=checkpoints"},
	{6, "strategy=HYBRID_SHARD_ZERO2 shard_group=3 micro_batch=4 wrap=model"},
	{6, "strategy=ZERO_1 micro_batch=1 grad_accum=4"},
	{8, "strategy=FULL_SHARD micro_batch=3 cpu_offload=parameters"},
	{8, "strategy=ZERO_3 shard_group=2 micro_batch=1 grad_accum=3 sync_each_micro_batch=on"},
};
const int n_digest_worlds = COUNT_OF(digest_worlds);

static const struct {
	const char *options;
	int64_t group; /* must divide the ranks */
} strategies[] = {
	{"NO_SHARD", 1},
	{"SHARD_GRAD_OP", 1},
	{"FULL_SHARD", 1},
	{"HYBRID_SHARD shard_group=1", 1},
	{"HYBRID_SHARD shard_group=2", 2},
	{"HYBRID_SHARD shard_group=3", 3},
	{"HYBRID_SHARD shard_group=4", 4},
	{"HYBRID_SHARD shard_group=8", 8},
	{"HYBRID_SHARD_ZERO2 shard_group=1", 1},
	{"HYBRID_SHARD_ZERO2 shard_group=2", 2},
	{"HYBRID_SHARD_ZERO2 shard_group=3", 3},
	{"HYBRID_SHARD_ZERO2 shard_group=4", 4},
	{"HYBRID_SHARD_ZERO2 shard_group=8", 8},
};
static const char *const wraps[] = {"block", "blocks:2", "size:1500", "model"};
static const char *const prefetches[] = {"none", "pre", "post"};
static const char *const checkpointings[] = {"none", "full", "selective"};

enum { VARIANTS_EACH = 4 * 3 * 3 * 2 };

static bool exists(int64_t group, int64_t ranks)
{
	return ranks % group == 0 && (group == ranks || (group & (group - 1)) == 0);
}

bool digest_strategy_exists(const char *strategy, int64_t ranks)
{
	for (int s = 0; s < COUNT_OF(strategies); s++)
		if (strcmp(strategies[s].options, strategy) == 0)
			return exists(strategies[s].group, ranks);
	return false;
}

int digest_all_variants(int64_t ranks, struct digest_variant **variants)
{
	int n = 0;

	*variants = calloc((size_t)COUNT_OF(strategies) * VARIANTS_EACH, sizeof(**variants));
	assert_non_null(*variants);
	for (int s = 0; s < COUNT_OF(strategies); s++)
		for (int i = 0; i < VARIANTS_EACH && exists(strategies[s].group, ranks); i++)
			(*variants)[n++] =
				(struct digest_variant){.strategy = strategies[s].options,
					.wrap = wraps[i % 4],
					.prefetch = prefetches[i / 4 % 3],
					.checkpointing = checkpointings[i / 12 % 3],
					.forward_prefetch = i / 36 % 2,
					.limiter = (i + s) % 3 != 0};
	return n;
}

int digest_some_variants(int64_t ranks, int n, uint32_t seed, struct digest_variant *variants)
{
	struct digest_variant *all;
	int total = digest_all_variants(ranks, &all);

	variants[0] = all[0];
	for (int i = 1; i < n; i++)
		variants[i] = all[random_permute(seed, ranks, total, i)];
	free(all);
	return n;
}

int digest_zero_variants(
	int64_t ranks, int mode, struct digest_variant variants[DIGEST_ZERO_VARIANTS])
{
	enum { ONE = 1, EACH = 2, LAST = 4 }; /* bit m: digest_modes[m] */
	static const struct {
		struct digest_variant variant;
		int64_t group;
		unsigned modes;
	} cases[DIGEST_ZERO_VARIANTS] = {
		{{"ZERO_1", "block", "pre", "none", false, true}, 1, ONE | LAST},
		{{"ZERO_1", "size:1500", "none", "full", true, true}, 1, ONE | LAST},
		{{"ZERO_1 shard_group=2", "model", "post", "none", false, false}, 2, ONE | LAST},
		{{"ZERO_2", "block", "pre", "full", false, true}, 1, ONE | EACH},
		{{"ZERO_2", "blocks:2", "none", "none", false, false}, 1, ONE | EACH},
		{{"ZERO_2 shard_group=2", "block", "pre", "none", false, true}, 2, ONE | EACH},
		{{"ZERO_3", "block", "pre", "none", false, true}, 1, ONE | EACH | LAST},
		{{"ZERO_3 shard_group=2", "block", "post", "full", true, true}, 2,
			ONE | EACH | LAST},
	};
	int n = 0;

	for (int i = 0; i < DIGEST_ZERO_VARIANTS; i++)
		if (ranks % cases[i].group == 0 && (cases[i].modes >> mode % DIGEST_BF16_MODE & 1))
			variants[n++] = cases[i].variant;
	return n;
}

int digest_unit_variants(
	int64_t ranks, int layers, struct digest_variant variants[DIGEST_UNIT_VARIANTS])
{
	static const struct {
		const char *strategy[2]; /* with three blocks, with two */
		const char *wrap, *prefetch, *checkpointing[2];
		int64_t group; /* must divide the ranks, and be less */
	} cases[DIGEST_UNIT_VARIANTS] = {
		{{"FULL_SHARD cpu_offload=parameters", "FULL_SHARD cpu_offload=parameters"},
			"block", "pre", {"none", "none"}, 1},
		{{"FULL_SHARD cpu_offload=optimizer", "FULL_SHARD cpu_offload=optimizer"},
			"blocks:2", "post", {"full", "full"}, 1},
		{{"SHARD_GRAD_OP cpu_offload=parameters", "SHARD_GRAD_OP cpu_offload=parameters"},
			"size:1500", "none", {"none", "none"}, 1},
		{{"NO_SHARD cpu_offload=optimizer", "NO_SHARD cpu_offload=optimizer"}, "block",
			"pre", {"none", "none"}, 1},
		{{"HYBRID_SHARD shard_group=2 cpu_offload=optimizer",
			 "HYBRID_SHARD shard_group=2 cpu_offload=parameters"},
			"block", "pre", {"full", "none"}, 2},
		{{"ZERO_3 cpu_offload=parameters", "ZERO_3 cpu_offload=optimizer"}, "model", "pre",
			{"none", "none"}, 1},
		{{"FULL_SHARD cpu_offload=1xnone+1xparameters+1xoptimizer+1xnone",
			 "FULL_SHARD cpu_offload=1xparameters+1xnone+1xoptimizer"},
			"block", "pre", {"none", "none"}, 1},
		{{"FULL_SHARD", "FULL_SHARD"}, "block", "pre",
			{"1xfull+1xnone+1xfull", "1xnone+1xfull"}, 1},
		{{"FULL_SHARD cpu_offload=parameters", "FULL_SHARD cpu_offload=optimizer"},
			"size:1500", "pre", {"1xfull+1xselective+1xnone", "1xselective+1xfull"}, 1},
		{{"FULL_SHARD reshard_after_forward=1xtrue+2xfalse",
			 "FULL_SHARD reshard_after_forward=1xfalse+1xtrue"},
			"block", "post", {"2xfull+1xnone", "1xfull+1xnone"}, 1},
		{{"FULL_SHARD reshard_after_forward=2", "FULL_SHARD reshard_after_forward=2"},
			"block", "pre", {"none", "full"}, 2},
		{{"FULL_SHARD reshard_after_forward=1x2+1xtrue+1xfalse "
		  "cpu_offload=2xparameters+2xoptimizer",
			 "FULL_SHARD reshard_after_forward=1x2+1xtrue "
			 "cpu_offload=2xparameters+1xoptimizer"},
			"block", "none", {"1xnone+2xfull", "1xfull+1xnone"}, 2},
		{{"HYBRID_SHARD shard_group=4 reshard_after_forward=2 cpu_offload=parameters",
			 "HYBRID_SHARD shard_group=4 reshard_after_forward=2"},
			"block", "pre", {"none", "none"}, 4},
		{{"FULL_SHARD activation_offload=all cpu_offload=optimizer",
			 "FULL_SHARD activation_offload=all"},
			"size:1500", "pre", {"1xfull+2xnone", "none"}, 1},
		{{"NO_SHARD activation_offload=checkpoints",
			 "ZERO_1 activation_offload=checkpoints"},
			"block", "post", {"1xselective+2xfull", "full"}, 1},
	};
	int n = 0, which = layers == 3 ? 0 : 1;

	for (int i = 0; i < DIGEST_UNIT_VARIANTS; i++)
		if (ranks % cases[i].group == 0 && ranks > cases[i].group)
			variants[n++] =
				(struct digest_variant){.strategy = cases[i].strategy[which],
					.wrap = cases[i].wrap,
					.prefetch = cases[i].prefetch,
					.checkpointing = cases[i].checkpointing[which],
					.forward_prefetch = i % 2,
					.limiter = i % 3 != 0};
	return n;
}

void digest_spread(int64_t ranks, int every, struct digest_variant *variants, int n)
{
	int sizes[8], n_sizes = 0;

	for (int64_t size = ranks / 2; size > 0; size--)
		if (ranks % size == 0)
			sizes[n_sizes++] = (int)size;
	for (int i = every - 1; i < n; i += every)
		variants[i].per_node = sizes[i / every % n_sizes];
}

void digest_describe(const struct digest_variant *v, char text[256])
{
	int n = snprintf(text, 256,
		"strategy=%s wrap=%s prefetch=%s forward_prefetch=%s "
		"activation_checkpointing=%s limit_all_gathers=%s",
		v->strategy, v->wrap, v->prefetch, v->forward_prefetch ? "on" : "off",
		v->checkpointing, v->limiter ? "on" : "off");

	assert_in_range(n, 1, 255);
}

static void compare_ledger(const struct run *run, struct error *error)
{
	const struct timeline *measured = &run->measurement.timeline;
	struct arena arena = {0};
	struct ledger ledger;

	schedule_ledger(run->schedule, 0, &arena, &ledger);
	for (int i = 0; i < measured->n_ops; i++)
		if (memcmp(measured->live[i], ledger.live[i], sizeof(ledger.live[0])) != 0)
			error_set(error, EXIT_CODE_NO, "operation %d has another ledger", i);
	if (measured->n_ops != run->schedule->programs[0].n_ops ||
		run->measurement.values.ledger_peak_bytes != ledger.peak_bytes ||
		run->measurement.values.ledger_host_peak_bytes != ledger.host_peak_bytes)
		error_set(error, EXIT_CODE_NO, "the ledgers' peaks differ");
	arena_finish(&arena);
}

/* Trains in this process for all ranks, or in a launcher's for one of them. */
static void train(
	struct run *run, struct executor_job *job, struct digest *digest, struct error *error)
{
	if (!run_train(run, job)) {
		*error = run->error;
	} else if (job->launcher.rank == 0) {
		snprintf(digest->hex, sizeof(digest->hex), "%s", run->measurement.weights_digest);
		compare_ledger(run, error);
	}
}

/* What a launcher's process tells the test. */
struct told {
	struct digest digest;
	struct error error;
};

static pid_t launch(struct run *run, struct executor_job *job, int rank, int ranks, int per_node,
	struct told *told)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	alarm(300);
	job->launcher.rank = rank;
	job->launcher.ranks = ranks;
	job->launcher.local_rank = rank % per_node;
	job->launcher.local_ranks = per_node;
	train(run, job, &told->digest, &told->error);
	_exit(0);
}

/* As torchrun starts them: each rank has a process of its own that starts and watches it. */
static void train_over_nodes(struct run *run, struct executor_job *job, int ranks, int per_node,
	struct digest *digest, struct error *error)
{
	struct told *told = mmap(NULL, (size_t)ranks * sizeof(*told), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[8];

	assert_ptr_not_equal(told, MAP_FAILED);
	assert_in_range(ranks, 2, COUNT_OF(pids));
	job->launcher =
		(struct launcher){.name = "torchrun", .host = "localhost", .port = free_port()};
	for (int r = 0; r < ranks; r++)
		pids[r] = launch(run, job, r, ranks, per_node, &told[r]);
	for (int r = 0; r < ranks; r++) {
		int status = 0;

		if (pids[r] < 0 || waitpid(pids[r], &status, 0) != pids[r] || status != 0)
			error_set(error, EXIT_CODE_INTERNAL, "launcher %d: status %d", r, status);
		else if (told[r].error.message[0] != '\0')
			*error = told[r].error;
	}
	*digest = told[0].digest;
	munmap(told, (size_t)ranks * sizeof(*told));
}

struct digest digest_train(const char *model, int64_t ranks, const char *mode,
	const struct digest_variant *variant, int64_t steps, const char *fault, struct error *error)
{
	struct executor_job job = run_job(steps);
	char described[256], options[640];
	struct digest digest = {""};
	struct run run;

	digest_describe(variant, described);
	snprintf(options, sizeof(options), "seq_len=11 %s %s", mode, described);
	job.fault = fault;
	if (variant->per_node > 0) {
		run_plan_nodes(&run, model, ranks, variant->per_node, options);
		train_over_nodes(&run, &job, (int)ranks, variant->per_node, &digest, error);
	} else {
		run_plan(&run, model, ranks, options);
		train(&run, &job, &digest, error);
	}
	run_finish(&run);
	return digest;
}

void digest_over_nodes(const char *model, const char *mode, int64_t steps)
{
	struct digest_variant variant = {.strategy = "FULL_SHARD",
		.wrap = "block",
		.prefetch = "pre",
		.checkpointing = "none"};
	static const int per_node[] = {0, 2, 1};
	struct digest digests[COUNT_OF(per_node)];

	for (int i = 0; i < COUNT_OF(per_node); i++) {
		struct error error = {0};

		variant.per_node = per_node[i];
		digests[i] = digest_train(model, 4, mode, &variant, steps, NULL, &error);
		if (digests[i].hex[0] == '\0')
			fail_msg("%d to a node: %s", per_node[i], error.message);
		assert_string_equal(digests[i].hex, digests[0].hex);
	}
}

struct outcome outcome_of(
	const char *model, int64_t ranks, const char *options, struct executor_job job)
{
	struct outcome outcome = {0};
	struct run run;

	run_plan(&run, model, ranks, options);
	if (!run_train(&run, &job))
		fail_msg("%lld ranks, %s: %s", (long long)ranks, options, run.error.message);
	const struct measurement *m = &run.measurement;
	snprintf(outcome.digest.hex, sizeof(outcome.digest.hex), "%s", m->weights_digest);
	for (int i = 0; i < m->n_losses && i < OUTCOME_STEPS; i++) {
		outcome.losses[i] = m->losses[i];
		outcome.norms[i] = m->gradient_norms[i];
	}
	assert_int_equal(m->undeclared_bytes, 0);
	assert_string_equal(m->values.schedule_digest, run.file.schedule_digest);
	run_finish(&run);
	return outcome;
}

void expect_near(const char *what, double a, double b, double most)
{
	if (!(fabs(a - b) <= most * fabs(b)))
		fail_msg("%s: %.17g and %.17g differ by %.2g", what, a, b, fabs(a / b - 1));
}

void expect_alike(const char *what, const struct outcome *a, const struct outcome *b, double most)
{
	for (int i = 0; i < OUTCOME_STEPS; i++) {
		expect_near(what, a->losses[i], b->losses[i], most);
		expect_near(what, a->norms[i], b->norms[i], most);
	}
}

void expect_same(const char *what, const struct outcome *a, const struct outcome *b)
{
	if (strcmp(a->digest.hex, b->digest.hex) != 0)
		fail_msg("%s: weights %s and %s", what, a->digest.hex, b->digest.hex);
	for (int i = 0; i < OUTCOME_STEPS; i++)
		if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i])
			fail_msg("%s: step %d has another loss or norm", what, i);
}
