/* Starts the rank processes of a run and sees them through. */
#ifndef EXECUTOR_LAUNCH_H
#define EXECUTOR_LAUNCH_H

#include "executor/launch/join.h"

struct launch {
	const char *program; /* NULL = this executable */
	struct segment *segment;
	int first, count; /* the ranks to start; count 0 = all */
	/* Called when a step was done, from the launching thread; may be NULL. */
	void (*progress)(int64_t steps_done, void *data);
	/* Called once when a signal asks for an end after this step; may be NULL. */
	void (*stopping)(void *data);
	/* Names an operation for the message about a rank that died; may be NULL. */
	void (*describe)(struct text *text, int rank, int op, void *data);
	void *data;
};

/* s that ranks get to leave by themselves after a fault, for struct job. Communicators of GPUs are
 * aborted meanwhile: a rank that is killed before it has done so leaves others waiting in NCCL. */
#define LAUNCH_GRACE     1.0
#define LAUNCH_GRACE_GPU 10.0

/* Runs one process per rank to its end. When one dies, stops answering or reports a fault, all are
 * gone a second after the grace, and the error says which rank, where, and why. */
bool launch_ranks(const struct launch *launch, struct error *error);

/* A rank that is in a call into MPI for longer than that may last is a fault (EXIT_CODE_FAULT). */
void launch_watch_call(struct segment *segment, int rank);

/* Who started this process, from the environment, whose strings stay there. EXIT_CODE_USAGE when
 * that contradicts itself. */
bool launcher_find(struct launcher *launcher, struct error *error);
/* How the ranks of that launcher find each other, and for how long they wait for all, s. */
enum meets launcher_meets(const struct launcher *launcher);
double launcher_join_timeout(const struct launcher *launcher);

/* Of many launchers one says why a run ended, and the others leave after it: the process that
 * started them may end all when the first has gone. */
void launch_let_others_speak(void);

/* In a rank process: dies with the launcher. False when the launcher is gone already. */
bool launch_follow_parent(const struct segment *segment);

#endif
