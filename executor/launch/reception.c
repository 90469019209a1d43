#include "executor/launch/reception.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whoever has connected must say who it is within so many seconds; a rank says it at once. */
#define INTRODUCTION 5.0

enum { MOST_NAMED_STRANGERS = 4 };

static const char magic[8] = "shardpl";

struct waiting {
	double deadline;
	size_t got;  /* bytes that came of what is expected next */
	bool opened; /* both sides have sent openings: the hello comes next */
	struct guest guest;
};

/* --- what is said --- */

bool opening_fill(struct opening *opening, const struct secret *secret, struct error *error)
{
	*opening = (struct opening){.protocol = PROTOCOL, .has_secret = secret->known};
	memcpy(opening->magic, magic, sizeof(magic));
	return nonce_draw(&opening->nonce, error);
}

bool opening_is_ours(const struct opening *opening)
{
	return memcmp(opening->magic, magic, sizeof(magic)) == 0;
}

struct proof hello_prove(const struct secret *secret, const struct opening *caller,
	const struct opening *called, const struct hello *hello)
{
	return secret_prove(secret, "hello", &caller->nonce, &called->nonce, hello,
		offsetof(struct hello, proof));
}

/* --- strangers --- */

/* Reports a stranger, but prints nothing that it has said. */
static void tell(struct reception *reception, int fd, const char *why)
{
	char host[TCP_HOST_BYTES], line[TCP_HOST_BYTES + 160];

	if (++reception->strangers > MOST_NAMED_STRANGERS)
		return;
	tcp_peer(fd, host);
	snprintf(line, sizeof(line), "port %d: a caller from %s was sent away: %s",
		reception->listener->port, host[0] != '\0' ? host : "this machine", why);
	reception->note(reception->note_data, line);
}

static void send_away(struct reception *reception, int which, const char *why)
{
	struct waiting *waiting = &reception->waiting[which];

	tell(reception, waiting->guest.fd, why);
	close(waiting->guest.fd);
	*waiting = reception->waiting[--reception->n_waiting];
}

/* Sends away who has waited longest: those who know what to say take no time. */
static void make_room(struct reception *reception)
{
	int oldest = 0;

	for (int i = 1; i < reception->n_waiting; i++)
		if (reception->waiting[i].deadline < reception->waiting[oldest].deadline)
			oldest = i;
	send_away(reception, oldest, "too many others came after it");
}

/* --- serving --- */

static bool out_of_descriptors(void)
{
	return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

static void let_in(struct reception *reception, int listener)
{
	for (int i = 0; i < MOST_WAITING; i++) {
		int fd = tcp_accept(listener);

		if (fd < 0 && (!out_of_descriptors() || reception->n_waiting == 0))
			return;
		if (fd < 0 || reception->n_waiting == MOST_WAITING)
			make_room(reception);
		if (fd >= 0)
			reception->waiting[reception->n_waiting++] = (struct waiting){
				.deadline = clock_now() + INTRODUCTION, .guest = {.fd = fd}};
	}
}

/* Answers an opening. Returns why the caller is sent away, or NULL while all is well. */
static const char *answer_opening(struct reception *reception, struct waiting *waiting)
{
	struct guest *guest = &waiting->guest;
	struct error ignored = {0};

	if (!opening_is_ours(&guest->caller))
		return "it does not speak shardplan's protocol";
	/* These are a few bytes, so the socket has room for them. */
	if (!opening_fill(&guest->called, reception->secret, &ignored) ||
		send(guest->fd, &guest->called, sizeof(guest->called), MSG_NOSIGNAL) !=
			(ssize_t)sizeof(guest->called))
		return "it does not listen";
	if (guest->caller.protocol != PROTOCOL)
		return "it is of another version of shardplan";
	waiting->opened = true;
	waiting->got = 0;
	return NULL;
}

static const char *judge_hello(const struct reception *reception, const struct guest *guest)
{
	struct proof proof =
		hello_prove(reception->secret, &guest->caller, &guest->called, &guest->hello);

	if (!proof_equal(&proof, &guest->hello.proof))
		return guest->caller.has_secret ? "it does not know this job's secret"
						: "it has no secret, and this job has one";
	return guest->hello.key == reception->key ? NULL : "it is of another job";
}

/* Reads what has come. Returns why the caller is sent away; NULL if it goes on to wait, or if it
 * has said all (`*done`). */
static const char *listen_to(struct reception *reception, struct waiting *waiting, bool *done)
{
	struct guest *guest = &waiting->guest;
	const char *why = NULL;

	*done = false;
	while (why == NULL) {
		size_t whole = waiting->opened ? sizeof(guest->hello) : sizeof(guest->caller);
		char *to = waiting->opened ? (char *)&guest->hello : (char *)&guest->caller;
		ssize_t n = recv(guest->fd, to + waiting->got, whole - waiting->got, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return NULL;
		if (n <= 0)
			return "it went away without saying who it is";
		waiting->got += (size_t)n;
		/* A message of another protocol may be shorter, so it is known by its first
		 * bytes. */
		if (!waiting->opened &&
			memcmp(&guest->caller, magic,
				(size_t)min_i64((int64_t)waiting->got, sizeof(magic))) != 0)
			return "it does not speak shardplan's protocol";
		if (waiting->got < whole)
			continue;
		if (waiting->opened) {
			*done = true;
			return judge_hello(reception, guest);
		}
		why = answer_opening(reception, waiting);
	}
	return why;
}

static bool serve(struct reception *reception, int which, short events, struct guest *guest)
{
	struct waiting *waiting = &reception->waiting[which];
	bool done = false;
	const char *why = NULL;

	if (events != 0)
		why = listen_to(reception, waiting, &done);
	else if (clock_now() >= waiting->deadline)
		why = "it did not say in time who it is";
	if (why != NULL) {
		send_away(reception, which, why);
		return false;
	}
	if (!done)
		return false;
	*guest = waiting->guest;
	*waiting = reception->waiting[--reception->n_waiting];
	return true;
}

/* Finds a seated rank that has gone: it has nothing to say, so any event tells that. */
static int find_gone(const struct pollfd *polled, int n)
{
	for (int i = 0; i < n; i++)
		if (polled[i].fd >= 0 && polled[i].revents != 0)
			return i;
	return -1;
}

static double next_deadline(const struct reception *reception, double deadline)
{
	for (int i = 0; i < reception->n_waiting; i++)
		deadline = fmin(deadline, reception->waiting[i].deadline);
	return deadline;
}

static void look(struct pollfd *polled, int n, double until)
{
	poll(polled, (nfds_t)n, tcp_milliseconds_to(until));
}

/* Lists sockets in the order listeners, seated, waiting; returns how many they are. */
static int list_sockets(
	const struct reception *reception, const int *seated, int n, struct pollfd *polled)
{
	int all = 0;

	for (int i = 0; i < reception->listener->n; i++)
		polled[all++] = (struct pollfd){reception->listener->fds[i], POLLIN, 0};
	for (int i = 0; i < n; i++)
		polled[all++] = (struct pollfd){seated[i], POLLIN, 0};
	for (int i = 0; i < reception->n_waiting; i++)
		polled[all++] = (struct pollfd){reception->waiting[i].guest.fd, POLLIN, 0};
	return all;
}

/* Returns true when one of the waiting has become a guest. */
static bool serve_all(struct reception *reception, const struct pollfd *polled, struct guest *guest)
{
	/* The loop begins at the last one, because who leaves gives its place to the last. */
	for (int i = reception->n_waiting - 1; i >= 0; i--)
		if (serve(reception, i, polled[i].revents, guest))
			return true;
	return false;
}

bool reception_next(struct reception *reception, const int *seated, int n, double deadline,
	struct guest *guest, int *gone)
{
	struct arena arena = {0};
	int listeners = reception->listener->n;
	struct pollfd *polled = ARENA_ARRAY(&arena, struct pollfd, listeners + n + MOST_WAITING);
	bool found = false;

	*gone = -1;
	guest->fd = -1;
	while (!found && *gone < 0 && clock_now() < deadline) {
		int all = list_sockets(reception, seated, n, polled);

		look(polled, all, next_deadline(reception, deadline));
		*gone = find_gone(polled + listeners, n);
		found = serve_all(reception, polled + listeners + n, guest);
		for (int i = 0; i < listeners; i++)
			if (polled[i].revents != 0)
				let_in(reception, polled[i].fd);
	}
	arena_finish(&arena);
	return found;
}

void reception_open(struct reception *reception, const struct tcp_listener *listener,
	const struct secret *secret, struct arena *arena)
{
	*reception = (struct reception){.listener = listener,
		.secret = secret,
		.waiting = ARENA_ARRAY(arena, struct waiting, MOST_WAITING)};
}

void reception_close(struct reception *reception)
{
	for (int i = 0; i < reception->n_waiting; i++)
		close(reception->waiting[i].guest.fd);
	reception->n_waiting = 0;
	if (reception->strangers <= MOST_NAMED_STRANGERS)
		return;
	char line[64];

	snprintf(line, sizeof(line), "port %d: %d more were sent away", reception->listener->port,
		reception->strangers - MOST_NAMED_STRANGERS);
	reception->note(reception->note_data, line);
}
