/* Private to the executor: how processes that know only RANK, WORLD_SIZE, LOCAL_RANK and the
 * address of the first one (as torchrun and others start them) find each other over TCP.
 *
 * All ranks connect to rank 0 and say who they are, where they listen, and what they were started
 * with. When all have come and agree, rank 0 sends each of them the list of addresses and a key of
 * this meeting. Then every pair connects, the higher rank calling the lower one. On each connection
 * both sides draw a random number. Where the job has a secret, they prove over both numbers that
 * they know it, the caller first; whoever cannot is sent away as a stranger. When rank 0 refuses to
 * start it prints why; the error of the others is "" then. */
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
	double timeout; /* s within which all ranks must have come */
	struct secret secret;
	const struct agreement *agreement;
	/* Gets lines for the user; they contain no text from strangers. */
	void (*note)(void *data, const char *line);
	void *note_data;
	/* Names the machine: equal for processes that can share memory. NULL: the kernel is asked.
	 */
	const char *machine;
};

struct meeting {
	struct layout layout;
	struct arena arena;
	int *fds; /* [ranks] a non-blocking socket to each other rank; -1 for this one */
	double timeout;
};

/* EXIT_CODE_FAULT when a process does not come in time; EXIT_CODE_USAGE when processes contradict
 * each other; EXIT_CODE_ENVIRONMENT when an address or port cannot be used. meeting_finish() frees
 * `meeting` in every case. */
bool rendezvous_meet(const struct rendezvous *with, struct meeting *meeting, struct error *error);
/* Does over TCP what mpi_share_descriptor does over MPI. */
bool rendezvous_share_descriptor(struct meeting *meeting, int *fd, struct error *error);
/* Gives the sockets away: the new owner closes them. */
void meeting_forget_sockets(struct meeting *meeting);
void meeting_finish(struct meeting *meeting);

#endif
