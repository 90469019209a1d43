/* Private to the executor: how processes that know only RANK, WORLD_SIZE, LOCAL_RANK and the
 * address of the first one (as torchrun and others start them) find each other over TCP.
 *
 * All ranks come to the first one and say who they are, where they listen, and with what they were
 * started. When all are there and agree it sends each the list, with a key of this meeting; then
 * every pair is connected, the higher rank calling the lower one. On each connection both sides
 * draw a number and, where the job has a secret, prove over both numbers that they know it: first
 * who calls, then who is called. Who cannot is a stranger. What the first rank refuses it tells
 * itself: the others' error is "". */
#ifndef EXECUTOR_LAUNCH_RENDEZVOUS_H
#define EXECUTOR_LAUNCH_RENDEZVOUS_H

#include "executor/launch/agreement.h"
#include "executor/launch/secret.h"
#include "executor/transports/nodes/nodes.h"

struct rendezvous {
	const char *name; /* of the launcher, for messages */
	const char *host; /* where the first rank is, and listens */
	int port;
	int rank, ranks;
	int local_rank; /* 0 begins a node */
	double timeout; /* s until all must have come */
	struct secret secret;
	const struct agreement *agreement;
	/* Takes what is worth a line, which is not text from outside. */
	void (*note)(void *data, const char *line);
	void *note_data;
	const char *machine; /* the same for processes that can share memory; NULL: asks the kernel
			      */
};

struct meeting {
	struct layout layout;
	struct arena arena;
	int *fds; /* [ranks] a socket to each other rank, -1 for oneself; not blocking */
	double timeout;
};

/* EXIT_CODE_FAULT when a process does not come in time; EXIT_CODE_USAGE when processes contradict
 * each other; EXIT_CODE_ENVIRONMENT when an address or port cannot be used. */
bool rendezvous_meet(const struct rendezvous *with, struct meeting *meeting, struct error *error);
/* As mpi_share_descriptor. */
bool rendezvous_share_descriptor(struct meeting *meeting, int *fd, struct error *error);
/* Gives the sockets away: the new owner closes them. */
void meeting_forget_sockets(struct meeting *meeting);
void meeting_finish(struct meeting *meeting);

#endif
