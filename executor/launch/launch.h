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

/* s that ranks have to leave by themselves after a fault (struct job). GPU ranks abort their
 * communicators in this time: a rank that is killed before would leave others waiting in NCCL. */
#define LAUNCH_GRACE     1.0
#define LAUNCH_GRACE_GPU 10.0

/* Runs one process per rank to its end. When one dies, stops answering or reports a fault, all are
 * gone a second after the grace, and the error says which rank, where, and why. */
bool launch_ranks(const struct launch *launch, struct error *error);

/* Records a fault when the rank has been in a call into MPI for longer than that call may last. */
void launch_watch_call(struct segment *segment, int rank);

/* Finds out from the environment who started this process; strings in `launcher` point into the
 * environment. EXIT_CODE_USAGE when it contradicts itself. */
bool launcher_find(struct launcher *launcher, struct error *error);
/* How the ranks of that launcher find each other, and how long they wait (s) until all are
 * there. */
enum meets launcher_meets(const struct launcher *launcher);
double launcher_join_timeout(const struct launcher *launcher);

/* Pauses in all launchers but the one that says why a run ended: the process that started them may
 * kill all when the first one leaves. */
void launch_let_others_speak(void);

/* Lets a rank process die with its launcher. False: the launcher is gone already. */
bool launch_follow_parent(const struct segment *segment);

#endif
