/* Private to launch: serves the callers of a rank that listens. All that have connected are served
 * together, each with a deadline of its own. Strangers are sent away, with a line in `note` for the
 * first few of them; they cost no time, and no memory beyond MOST_WAITING seats. */
#ifndef EXECUTOR_LAUNCH_RECEPTION_H
#define EXECUTOR_LAUNCH_RECEPTION_H

#include "executor/launch/agreement.h"
#include "executor/launch/secret.h"
#include "executor/launch/tcp.h"

/* Messages are structs as they lie in memory: all processes are of one version, on machines of one
 * kind. PROTOCOL changes with them. */
enum { PROTOCOL = 2, MACHINE_BYTES = 96, MOST_WAITING = 128 };

/* The first message of both sides, the caller's first. */
struct opening {
	char magic[8];
	int32_t protocol, has_secret;
	struct nonce nonce;
};

/* The second message of the caller: who it is. */
struct hello {
	uint64_t key; /* of the meeting; 0 on the way to rank 0, which has yet to give it */
	int32_t rank, ranks, local_rank, port;
	char machine[MACHINE_BYTES];
	struct agreement agreement;
	struct proof proof; /* over all members before it */
};

/* A caller that has said hello, and proved it where there is a secret. */
struct guest {
	int fd;
	struct opening caller, called;
	struct hello hello;
};

struct reception {
	const struct tcp_listener *listener;
	const struct secret *secret;
	void (*note)(void *data, const char *line);
	void *note_data;
	uint64_t key;
	struct waiting *waiting; /* [MOST_WAITING] */
	int n_waiting, strangers;
};

void reception_open(struct reception *reception, const struct tcp_listener *listener,
	const struct secret *secret, struct arena *arena);
/* Waits for the next guest. False at the deadline, and when one of the sockets `seated` [n] (-1:
 * none) was closed by the other side: *gone is its index then, else -1. Both may happen at once.
 * The caller closes guest->fd. */
bool reception_next(struct reception *reception, const int *seated, int n, double deadline,
	struct guest *guest, int *gone);
/* Closes the connections that still wait, and notes how many strangers were not named. */
void reception_close(struct reception *reception);

bool opening_fill(struct opening *opening, const struct secret *secret, struct error *error);
bool opening_is_ours(const struct opening *opening);
struct proof hello_prove(const struct secret *secret, const struct opening *caller,
	const struct opening *called, const struct hello *hello);

#endif
