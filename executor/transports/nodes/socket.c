/* Messages over stream sockets: both sides know the sizes, so the bytes need no frame. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "executor/transports/nodes/wire.h"

/* Messages in one direction, oldest first. */
struct queue {
	struct wire_message *first, *last;
};

struct peer {
	int fd;
	struct queue sending, receiving;
};

struct sockets {
	struct arena arena;
	int ranks;
	struct peer *peers;    /* [ranks] */
	struct pollfd *polled; /* [ranks] */
};

static void append(struct queue *queue, struct wire_message *message)
{
	if (queue->first == NULL)
		queue->first = message;
	else
		queue->last->next = message;
	queue->last = message;
}

static void sockets_send(
	struct wire *wire, int rank, enum wire_channel channel, struct wire_message *message)
{
	struct sockets *sockets = wire->state;

	(void)channel; /* a connection has one order */
	append(&sockets->peers[rank].sending, message);
}

static void sockets_receive(
	struct wire *wire, int rank, enum wire_channel channel, struct wire_message *message)
{
	struct sockets *sockets = wire->state;

	(void)channel; /* a connection has one order */
	append(&sockets->peers[rank].receiving, message);
}

static bool broken(int rank, const char *why, struct error *error)
{
	return error_set(error, EXIT_CODE_FAULT,
		"the connection to rank %d broke (%s): its process or its node has gone", rank,
		why);
}

/* Moves messages of one direction until the socket would block. */
static bool move(struct sockets *sockets, int rank, bool sending, bool *moved, struct error *error)
{
	struct peer *peer = &sockets->peers[rank];
	struct queue *queue = sending ? &peer->sending : &peer->receiving;

	while (queue->first != NULL) {
		struct wire_message *m = queue->first;
		size_t left = (size_t)(m->bytes - m->moved);
		ssize_t n = 0;

		if (left > 0)
			n = sending ? send(peer->fd, m->data + m->moved, left, MSG_NOSIGNAL)
				    : recv(peer->fd, m->data + m->moved, left, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n < 0)
			return broken(rank, strerror(errno), error);
		if (n == 0 && left > 0)
			return broken(rank, "it was closed", error);
		*moved = true;
		m->moved += n;
		if (m->moved < m->bytes)
			continue;
		queue->first = m->next;
		m->done = true;
	}
	return true;
}

static bool move_all(struct sockets *sockets, bool *moved, struct error *error)
{
	for (int r = 0; r < sockets->ranks; r++)
		if (!move(sockets, r, true, moved, error) || !move(sockets, r, false, moved, error))
			return false;
	return true;
}

static bool sockets_progress(struct wire *wire, double seconds, struct error *error)
{
	struct sockets *sockets = wire->state;
	bool moved = false;
	int n = 0;

	if (!move_all(sockets, &moved, error) || moved)
		return moved;
	for (int r = 0; r < sockets->ranks; r++) {
		const struct peer *peer = &sockets->peers[r];
		short events = (short)((peer->sending.first != NULL ? POLLOUT : 0) |
				       (peer->receiving.first != NULL ? POLLIN : 0));

		if (events != 0)
			sockets->polled[n++] = (struct pollfd){.fd = peer->fd, .events = events};
	}
	if (poll(sockets->polled, (nfds_t)n, (int)(1e3 * seconds)) < 0 && errno != EINTR)
		return error_set(error, EXIT_CODE_INTERNAL, "poll: %s", strerror(errno));
	return true;
}

static void sockets_finish(struct wire *wire)
{
	struct sockets *sockets = wire->state;
	struct arena arena = sockets->arena;

	for (int r = 0; r < sockets->ranks; r++)
		if (sockets->peers[r].fd >= 0)
			close(sockets->peers[r].fd);
	arena_finish(&arena);
}

static const struct wire_kind kind_sockets = {.name = "sockets",
	.send = sockets_send,
	.receive = sockets_receive,
	.progress = sockets_progress,
	.finish = sockets_finish};

bool wire_open_sockets(struct wire *wire, const int *fds, int ranks, struct error *error)
{
	struct arena arena = {0};
	struct sockets *sockets = ARENA_NEW(&arena, struct sockets);

	sockets->ranks = ranks;
	sockets->peers = ARENA_ARRAY(&arena, struct peer, ranks);
	sockets->polled = ARENA_ARRAY(&arena, struct pollfd, ranks);
	*wire = (struct wire){.kind = &kind_sockets, .state = sockets};
	for (int r = 0; r < ranks; r++) {
		sockets->peers[r].fd = fds[r];
		if (fds[r] >= 0 && fcntl(fds[r], F_SETFL, O_NONBLOCK) != 0)
			error_set(error, EXIT_CODE_ENVIRONMENT, "socket to rank %d: %s", r,
				strerror(errno));
	}
	sockets->arena = arena;
	return true;
}
