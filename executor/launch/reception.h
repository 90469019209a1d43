/* Private to launch: who comes to a rank that listens. All who wait are served together, each with
 * its own deadline; strangers are sent away with a line each (`note`), and cost neither time nor
 * memory beyond a fixed number of seats. */
#ifndef EXECUTOR_LAUNCH_RECEPTION_H
#define EXECUTOR_LAUNCH_RECEPTION_H

#include "executor/launch/agreement.h"
#include "executor/launch/secret.h"
#include "executor/launch/tcp.h"

/* Of messages between processes of one version on machines of one kind. */
enum { PROTOCOL = 2, MACHINE_BYTES = 96, MOST_WAITING = 128 };

/* What both sides say first, the caller before the called. */
struct opening {
	char magic[8];
	int32_t protocol, has_secret;
	struct nonce nonce;
};

/* Then the caller says who it is. */
struct hello {
	uint64_t key; /* of the meeting; 0 to the first rank, who gives it */
	int32_t rank, ranks, local_rank, port;
	char machine[MACHINE_BYTES];
	struct agreement agreement;
	struct proof proof; /* over all before it */
};

/* One who has said hello, and proved it where there is a secret. */
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
/* The next guest, or none: at the deadline (guest->fd -1), or when one of `seated` [n], -1 =
 * nobody, has gone (its place in *gone, else -1). */
bool reception_next(struct reception *reception, const int *seated, int n, double deadline,
	struct guest *guest, int *gone);
/* Sends away who still waits, and counts those who were not named. */
void reception_close(struct reception *reception);

bool opening_fill(struct opening *opening, const struct secret *secret, struct error *error);
bool opening_is_ours(const struct opening *opening);
struct proof hello_prove(const struct secret *secret, const struct opening *caller,
	const struct opening *called, const struct hello *hello);

#endif
