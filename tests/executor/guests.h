/* Processes that come to a rendezvous, and how each one ended. */
#ifndef TESTS_EXECUTOR_GUESTS_H
#define TESTS_EXECUTOR_GUESTS_H

#include "support.h"

#include "executor/launch/rendezvous.h"

enum { MOST_GUESTS = 8, TIMEOUT_S = 20 };

/* A process: who it says it is, and how it ended. */
struct member {
	struct rendezvous with;
	struct agreement agreement;
	double late;     /* s after the others */
	int descriptors; /* that it may have at most; 0 = as ever */
	int errors;      /* where its stderr goes; 0 = to ours */
	bool ok;
	struct error error;
};

extern struct member *guests; /* [MOST_GUESTS], shared with the children */

/* Makes them, before all else; false without memory. */
bool guests_open(void);
/* What so many ranks are started with: at localhost, `timeout` s. */
void invite(int ranks, int per_node, double timeout);
/* In a process of its own, which it ends. `per_node` 0: only the meeting is tried, not what comes
 * after it. */
void take_part(struct member *guest, int per_node);
/* Lets those of `ranks` come whose bit is set in `who`; the others never come. */
void hold(int ranks, int per_node, unsigned who);
/* One says `words`, with that code; all others nothing. */
void expect_words(int ranks, int speaker, enum exit_code code, const char *words);

#endif
