#include "checkpoint_runs.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

const struct case_ cases[6] = {
	{RANKS, "strategy=FULL_SHARD micro_batch=1 seq_len=8"},
	{RANKS, "strategy=NO_SHARD micro_batch=1 seq_len=8"},
	{RANKS, "strategy=SHARD_GRAD_OP micro_batch=1 seq_len=8 wrap=model cpu_offload=parameters"},
	{RANKS, "strategy=HYBRID_SHARD micro_batch=1 seq_len=8 shard_group=2 wrap=blocks:2"},
	{RANKS, "strategy=ZERO_1 micro_batch=1 seq_len=8"},
	{RANKS, "strategy=ZERO_2 micro_batch=1 seq_len=8 shard_group=2 wrap=model "
		"cpu_offload=optimizer"},
};

void make_folder(char folder[64])
{
	snprintf(folder, 64, "/tmp/shardplan-checkpoint-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

void remove_folder(const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

int64_t newest(const char *folder)
{
	struct arena arena = {0};
	int64_t *steps;
	int n = checkpoint_list(&arena, folder, &steps);
	int64_t step = n > 0 ? steps[n - 1] : 0;

	arena_finish(&arena);
	return step;
}

struct digest train(
	const struct case_ *c, int64_t steps, struct executor_job job, struct error *error)
{
	struct run run;
	struct digest digest = {0};

	run_plan(&run, TINY_GPT2, c->ranks, c->options);
	job.training.steps = steps;
	*error = (struct error){0};
	if (run_train(&run, &job))
		snprintf(digest.hex, sizeof(digest.hex), "%s", run.measurement.weights_digest);
	else
		*error = run.error;
	run_finish(&run);
	return digest;
}

struct digest train_whole(const struct case_ *c, int64_t steps, struct executor_job job)
{
	struct error error;
	struct digest digest = train(c, steps, job, &error);

	if (digest.hex[0] == '\0')
		fail_msg("%s: %s", c->options, error.message);
	return digest;
}

struct executor_job saving_job(const char *folder, bool background)
{
	struct executor_job job = run_job(STEPS);

	job.checkpoint = folder;
	job.checkpoint_every = EVERY;
	job.checkpoint_background = background;
	return job;
}

void expect_refusal(const struct case_ *c, struct executor_job job, const char *message)
{
	struct error error;

	train(c, STEPS, job, &error);
	if (strstr(error.message, message) == NULL)
		fail_msg("expected \"%s\", got \"%s\"", message, error.message);
}

int count_names(const char *folder, const char *prefix)
{
	DIR *entries = opendir(folder);
	const struct dirent *entry;
	int n = 0;

	assert_non_null(entries);
	while ((entry = readdir(entries)) != NULL)
		n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(entries);
	return n;
}

int64_t tries(int64_t count)
{
	const char *percent = getenv("FAULTS_PERCENT");
	int64_t n = percent != NULL ? count * atoi(percent) / 100 : count;

	return n > 1 ? n : 1;
}
