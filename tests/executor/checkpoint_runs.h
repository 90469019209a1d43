/* Shared by the tests of checkpoints: small runs that write them and resume from them. */
#ifndef TESTS_EXECUTOR_CHECKPOINT_RUNS_H
#define TESTS_EXECUTOR_CHECKPOINT_RUNS_H

#include "support.h"

#include "executor/checkpoints/checkpoints.h"

enum { STEPS = 6, EVERY = 2, RANKS = 4 };

void make_folder(char folder[64]);
void remove_folder(const char *folder);
/* The step of the newest checkpoint; 0: there is none. */
int64_t newest(const char *folder);
/* Names in a folder that begin so. */
int count_names(const char *folder, const char *prefix);

struct case_ {
	int64_t ranks;
	const char *options;
};
extern const struct case_ cases[6];

/* Trains and returns the digest, "" when the run failed; the message then is in `error`. */
struct digest train(
	const struct case_ *c, int64_t steps, struct executor_job job, struct error *error);
/* The same, where it may not fail. */
struct digest train_whole(const struct case_ *c, int64_t steps, struct executor_job job);
/* Returns a job that writes a checkpoint every EVERY steps. */
struct executor_job saving_job(const char *folder, bool background);
/* That the message says so. */
void expect_refusal(const struct case_ *c, struct executor_job job, const char *message);

/* How often something is tried: FAULTS_PERCENT of the environment, of `count`; at least once. */
int64_t tries(int64_t count);

#endif
