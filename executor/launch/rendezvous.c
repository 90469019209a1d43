#include "executor/launch/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "executor/launch/reception.h"

enum { MOST_NAMED = 8 };

/* The first rank knows more, so the others let it speak for so many seconds. */
#define LAST_WORD 5.0
/* A rank waits so many seconds before it calls a listener again that has hung up: strangers may
 * have filled it. */
#define CALL_AGAIN 0.1

/* The called rank's proved answer to a hello. That of the first rank is followed by the places
 * where all ranks listen, when code is EXIT_CODE_OK. */
struct answer {
	uint64_t key;
	int32_t code, per_node;
	struct proof proof; /* covers all before it, and the places */
};

/* Says where a rank listens; host "" stands for the first rank's machine. */
struct place {
	char host[TCP_HOST_BYTES];
	int32_t port;
};

struct party {
	const struct rendezvous *with;
	struct meeting *meeting;
	double deadline;
	struct tcp_listener listener;
	struct reception reception;
	struct hello own;
	struct place *places; /* [ranks] */
	struct guest *guests; /* [ranks], only the first rank has them */
	uint64_t key;
};

/* --- who we are --- */

/* Names the kernel and its space of process numbers: ranks that have both alike can read each
 * other's descriptors in /proc. */
static void name_machine(char machine[MACHINE_BYTES])
{
	char boot[48] = "", space[40] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (file != NULL) {
		if (fgets(boot, sizeof(boot), file) == NULL)
			boot[0] = '\0';
		fclose(file);
	}
	boot[strcspn(boot, "\n")] = '\0';
	ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
	space[n > 0 ? n : 0] = '\0';
	snprintf(machine, MACHINE_BYTES, "%s %s", boot, space);
}

static void introduce(struct party *p)
{
	const struct rendezvous *with = p->with;

	p->own = (struct hello){.rank = with->rank,
		.ranks = with->ranks,
		.local_rank = with->local_rank,
		.port = p->listener.port,
		.agreement = *with->agreement};
	if (with->machine != NULL)
		snprintf(p->own.machine, MACHINE_BYTES, "%s", with->machine);
	else
		name_machine(p->own.machine);
}

/* Raises the limit on descriptors, because each rank needs a socket. */
static void allow_descriptors(int ranks)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)ranks + 256)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static bool listen_at(struct party *p, const char *host, int port, struct error *error)
{
	const struct rendezvous *with = p->with;
	struct error why = {0};

	if (!tcp_listen(&p->listener, host, port, &why))
		return error_set(error, why.code, "%s: rank %d %s%s", with->name, with->rank,
			why.message, with->rank == 0 ? " (MASTER_PORT)" : "");
	reception_open(&p->reception, &p->listener, &with->secret, &p->meeting->arena);
	p->reception.note = with->note;
	p->reception.note_data = with->note_data;
	introduce(p);
	return true;
}

/* --- answers --- */

static size_t place_bytes(const struct party *p)
{
	return (size_t)p->with->ranks * sizeof(*p->places);
}

/* Proves an answer and the `n` places that follow it. */
static struct proof answer_prove(const struct party *p, const struct opening *caller,
	const struct opening *called, const struct answer *answer, int n)
{
	struct text said = {0};

	text_add_bytes(&said, (const char *)answer, offsetof(struct answer, proof));
	text_add_bytes(&said, (const char *)p->places, (size_t)n * sizeof(*p->places));
	struct proof proof = secret_prove(&p->with->secret, "answer", &caller->nonce,
		&called->nonce, text_string(&said), said.length);
	text_finish(&said);
	return proof;
}

/* Answers a guest, also with a refusal: no process shall wait for what will not come. */
static bool answer_one(struct party *p, const struct guest *guest, enum exit_code code)
{
	struct answer answer = {
		.code = (int32_t)code, .key = p->key, .per_node = p->meeting->layout.per_node};
	int places = p->with->rank == 0 && code == EXIT_CODE_OK ? p->with->ranks : 0;
	double deadline = clock_now() + LAST_WORD;

	answer.proof = answer_prove(p, &guest->caller, &guest->called, &answer, places);
	return tcp_send(guest->fd, &answer, sizeof(answer), deadline) &&
	       (places == 0 || tcp_send(guest->fd, p->places, place_bytes(p), deadline));
}

/* --- the first rank --- */

static bool answer_all(struct party *p, enum exit_code code, int *silent)
{
	*silent = 0;
	for (int r = 1; r < p->with->ranks; r++)
		if (p->meeting->fds[r] >= 0 && !answer_one(p, &p->guests[r], code))
			*silent = r;
	return *silent == 0;
}

static bool check_guest(const struct party *p, const struct hello *hello, struct error *error)
{
	const struct rendezvous *with = p->with;

	if (hello->ranks != with->ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: WORLD_SIZE is %d for rank %d and %d for the first one; "
			"expected one number for all",
			with->name, hello->ranks, hello->rank, with->ranks);
	if (hello->rank < 1 || hello->rank >= with->ranks || p->meeting->fds[hello->rank] >= 0)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: two processes say that they are rank %d (RANK); "
			"expected each number once",
			with->name, hello->rank);
	return true;
}

static bool report_missing(const struct party *p, int came, struct error *error)
{
	const struct rendezvous *with = p->with;
	struct text names = {0};
	int missing = with->ranks - came, named = 0;

	for (int r = 1; r < with->ranks && named < MOST_NAMED; r++)
		if (p->meeting->fds[r] < 0)
			text_printf(&names, "%s%d", named++ > 0 ? ", " : "", r);
	error_set(error, EXIT_CODE_FAULT,
		"%s: %d of %d ranks came to %s, port %d, within %.3g s; missing: %s%s. "
		"Are they started, and can they reach this machine%s?",
		with->name, came, with->ranks, with->host, with->port, with->timeout,
		text_string(&names), missing > named ? ", ..." : "",
		with->secret.known ? " and know its secret" : "");
	text_finish(&names);
	return false;
}

static void seat(struct party *p, const struct guest *guest)
{
	int rank = guest->hello.rank;

	p->meeting->fds[rank] = guest->fd;
	p->guests[rank] = *guest;
	p->places[rank].port = guest->hello.port;
	tcp_peer(guest->fd, p->places[rank].host);
}

/* A rank with the job's secret is one of ours, so its death ends the start; without a secret it may
 * have been anybody. */
static bool clear_seat(struct party *p, int rank, struct error *error)
{
	if (p->with->secret.known)
		return error_set(error, EXIT_CODE_FAULT,
			"%s: rank %d came and went again before all were there", p->with->name,
			rank);
	close(p->meeting->fds[rank]);
	p->meeting->fds[rank] = -1;
	return true;
}

static bool receive_guests(struct party *p, struct error *error)
{
	struct guest guest;
	int came = 1, gone;

	while (came < p->with->ranks) {
		bool found = reception_next(
			&p->reception, p->meeting->fds, p->with->ranks, p->deadline, &guest, &gone);

		if (gone >= 0 && !clear_seat(p, gone, error)) {
			if (found)
				close(guest.fd);
			return false;
		}
		came -= gone >= 0;
		if (!found && gone < 0)
			return report_missing(p, came, error);
		if (!found)
			continue;
		if (!check_guest(p, &guest.hello, error)) {
			answer_one(p, &guest, EXIT_CODE_USAGE);
			close(guest.fd);
			return false;
		}
		seat(p, &guest);
		came++;
	}
	return true;
}

static bool all_agree(const struct party *p, struct error *error)
{
	for (int r = 1; r < p->with->ranks; r++)
		if (!agreement_check(p->with->name, 0, p->with->agreement, r,
			    &p->guests[r].hello.agreement, error))
			return false;
	return true;
}

/* Finds the nodes. A node begins with each local rank 0; all nodes have equally many ranks, which
 * are numbered one node after the other. */
static bool find_layout(struct party *p, struct error *error)
{
	struct layout *layout = &p->meeting->layout;
	int ranks = p->with->ranks, per_node = 1;

	while (per_node < ranks && p->guests[per_node].hello.local_rank != 0)
		per_node++;
	for (int r = 0; r < ranks; r++) {
		const struct hello *hello = &p->guests[r].hello;
		const struct hello *first = &p->guests[r - r % per_node].hello;

		if (hello->local_rank != r % per_node || ranks % per_node != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: expected ranks numbered node by node, equally many on each, "
				"got LOCAL_RANK %d for rank %d where the first node has %d ranks",
				p->with->name, hello->local_rank, r, per_node);
		if (strcmp(hello->machine, first->machine) != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: ranks %d and %d are on one node by LOCAL_RANK, "
				"and on two machines (or containers) by their kernels; "
				"expected LOCAL_RANK to count the ranks of a machine",
				p->with->name, first->rank, r);
	}
	layout->per_node = per_node;
	return true;
}

static bool receive_all(struct party *p, struct error *error)
{
	struct error refusal = {0};
	struct nonce key;
	int silent;

	if (!listen_at(p, p->with->host, p->with->port, error))
		return false;
	p->guests = ARENA_ARRAY(&p->meeting->arena, struct guest, p->with->ranks);
	p->guests[0].hello = p->own;
	if (!receive_guests(p, &refusal) || !all_agree(p, &refusal) || !find_layout(p, &refusal) ||
		!nonce_draw(&key, &refusal)) {
		answer_all(p, refusal.code, &silent);
		return error_set(error, refusal.code, "%s", refusal.message);
	}
	memcpy(&p->key, key.bytes, sizeof(p->key));
	return answer_all(p, EXIT_CODE_OK, &silent) ||
	       error_set(error, EXIT_CODE_FAULT,
		       "%s: rank %d came and went again before all were there", p->with->name,
		       silent);
}

/* --- who calls --- */

enum called { CALLED_OURS, CALLED_HUNG_UP, CALLED_OTHER };

/* Exchanges openings. A listener that hangs up at once may have had too many strangers. */
static enum called open_talk(struct guest *self, double until)
{
	int fd = self->fd;
	char first;

	if (!tcp_send(fd, &self->caller, sizeof(self->caller), until) ||
		!tcp_receive(fd, &first, 1, until))
		return clock_now() < until ? CALLED_HUNG_UP : CALLED_OTHER;
	self->called.magic[0] = first;
	if (!tcp_receive(fd, self->called.magic + 1, sizeof(self->called) - 1, until))
		return CALLED_OTHER;
	return opening_is_ours(&self->called) ? CALLED_OURS : CALLED_OTHER;
}

/* Sends a proved hello. */
static bool introduce_oneself(struct party *p, struct guest *self, double until)
{
	self->hello = p->own;
	self->hello.key = p->key;
	self->hello.proof =
		hello_prove(&p->with->secret, &self->caller, &self->called, &self->hello);
	return tcp_send(self->fd, &self->hello, sizeof(self->hello), until);
}

static bool check_called(
	const struct party *p, const struct guest *self, const char *whom, struct error *error)
{
	const struct rendezvous *with = p->with;

	if (self->called.protocol != PROTOCOL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: rank %d and %s are of different versions of shardplan; "
			"use one on all nodes",
			with->name, with->rank, whom);
	if (self->called.has_secret == with->secret.known)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"%s: rank %d has %s SHARDPLAN_SECRET and %s has %s; give all ranks the same",
		with->name, with->rank, with->secret.known ? "a" : "no", whom,
		with->secret.known ? "none" : "one");
}

/* Calls the place where a rank listens: connects, and both say their openings. Calls again while
 * the listener hangs up. */
static bool call(struct party *p, const char *host, int port, struct guest *self, const char *whom,
	struct error *error)
{
	double until = p->deadline + LAST_WORD;
	struct error why = {0};
	enum called called;

	do {
		if (!opening_fill(&self->caller, &p->with->secret, error))
			return false;
		self->fd = tcp_connect(host, port, p->deadline, &why);
		if (self->fd < 0)
			return error_set(error, why.code, "%s: rank %d does not reach %s: %s",
				p->with->name, p->with->rank, whom, why.message);
		called = open_talk(self, until);
		if (called == CALLED_OURS)
			return check_called(p, self, whom, error);
		close(self->fd);
		self->fd = -1;
		if (called == CALLED_HUNG_UP)
			usleep((useconds_t)(1e6 * CALL_AGAIN));
	} while (called == CALLED_HUNG_UP && clock_now() < p->deadline);
	return error_set(error, EXIT_CODE_FAULT,
		"%s: rank %d was connected to %s, port %d, and got no answer of %s; "
		"is something else listening there?",
		p->with->name, p->with->rank, host, port, whom);
}

static bool receive_answer(
	struct party *p, const struct guest *self, int places, struct answer *answer, double until)
{
	if (!tcp_receive(self->fd, answer, sizeof(*answer), until))
		return false;
	places = answer->code == EXIT_CODE_OK ? places : 0;
	if (places > 0 && !tcp_receive(self->fd, p->places, place_bytes(p), until))
		return false;
	struct proof proof = answer_prove(p, &self->caller, &self->called, answer, places);
	return proof_equal(&proof, &answer->proof);
}

static void end_texts(struct party *p)
{
	for (int r = 0; r < p->with->ranks; r++)
		p->places[r].host[TCP_HOST_BYTES - 1] = '\0';
}

/* Listens at the address by which this rank has reached the first one, so others can reach it
 * there. */
static bool listen_beside(struct party *p, int fd, struct error *error)
{
	char own[TCP_HOST_BYTES];

	tcp_own(fd, own);
	bool astray = tcp_is_loopback(own) && !tcp_is_loopback(p->with->host);
	return listen_at(p, astray || own[0] == '\0' ? NULL : own, 0, error);
}

static bool ask_first(struct party *p, struct error *error)
{
	const struct rendezvous *with = p->with;
	struct guest self = {.fd = -1};
	struct answer answer = {0};
	double until = p->deadline + with->timeout + LAST_WORD;
	bool reached = call(p, with->host, with->port, &self,
		"the first rank (MASTER_ADDR, MASTER_PORT)", error);

	p->meeting->fds[0] = self.fd;
	if (!reached || !listen_beside(p, self.fd, error))
		return false;
	if (!introduce_oneself(p, &self, until) ||
		!receive_answer(p, &self, with->ranks, &answer, until))
		return error_set(error, EXIT_CODE_FAULT,
			"%s: rank %d was sent away by %s, port %d%s", with->name, with->rank,
			with->host, with->port,
			with->secret.known ? "; has the first rank the same SHARDPLAN_SECRET?"
					   : ": the first rank went away");
	if (answer.code != EXIT_CODE_OK)
		return error_set(error, (enum exit_code)answer.code, "%s", "");
	end_texts(p);
	p->key = answer.key;
	p->meeting->layout.per_node = answer.per_node;
	return (answer.per_node > 0 && with->ranks % answer.per_node == 0) ||
	       error_set(
		       error, EXIT_CODE_FAULT, "%s: the first rank has sent nonsense", with->name);
}

/* --- pairs --- */

static bool call_rank(struct party *p, int rank, struct error *error)
{
	const struct place *place = &p->places[rank];
	const char *host = place->host[0] != '\0' ? place->host : p->with->host;
	struct guest self = {.fd = -1};
	struct answer answer;
	char whom[32];

	snprintf(whom, sizeof(whom), "rank %d", rank);
	bool ok = call(p, host, place->port, &self, whom, error) &&
		  introduce_oneself(p, &self, p->deadline) &&
		  receive_answer(p, &self, 0, &answer, p->deadline);
	p->meeting->fds[rank] = self.fd;
	return ok ||
	       error_set(error, EXIT_CODE_FAULT, "%s: rank %d does not reach rank %d: it went away",
		       p->with->name, p->with->rank, rank);
}

/* Gives a caller its seat; returns false when it is no guest to be seated. */
static bool seat_caller(struct party *p, const struct guest *guest)
{
	int rank = guest->hello.rank;

	if (rank <= p->with->rank || rank >= p->with->ranks || p->meeting->fds[rank] >= 0 ||
		!answer_one(p, guest, EXIT_CODE_OK)) {
		close(guest->fd);
		return false;
	}
	p->meeting->fds[rank] = guest->fd;
	return true;
}

/* Connects each pair once: this rank calls the lower ranks, and the higher ones call it. */
static bool connect_pairs(struct party *p, struct error *error)
{
	struct guest guest;
	int left = p->with->ranks - p->with->rank - 1, gone;

	p->deadline = clock_now() + p->with->timeout;
	p->reception.key = p->key;
	for (int r = 1; r < p->with->rank; r++)
		if (!call_rank(p, r, error))
			return false;
	while (left > 0) {
		if (!reception_next(&p->reception, NULL, 0, p->deadline, &guest, &gone))
			return error_set(error, EXIT_CODE_FAULT,
				"%s: %d of %d ranks did not connect to rank %d", p->with->name,
				left, p->with->ranks, p->with->rank);
		left -= seat_caller(p, &guest);
	}
	return true;
}

bool rendezvous_meet(const struct rendezvous *with, struct meeting *meeting, struct error *error)
{
	bool first = with->rank == 0;

	*meeting =
		(struct meeting){.layout = {with->rank, with->ranks, 1}, .timeout = with->timeout};
	struct party p = {
		.with = with, .meeting = meeting, .deadline = clock_now() + with->timeout};
	allow_descriptors(with->ranks);
	meeting->fds = ARENA_ARRAY(&meeting->arena, int, with->ranks);
	for (int r = 0; r < with->ranks; r++)
		meeting->fds[r] = -1;
	p.places = ARENA_ARRAY(&meeting->arena, struct place, with->ranks);
	/* The first rank has all its connections when all have come. */
	bool ok = first ? receive_all(&p, error) : ask_first(&p, error) && connect_pairs(&p, error);
	reception_close(&p.reception);
	tcp_stop_listening(&p.listener);
	return ok;
}

/* --- a descriptor for the ranks of a node --- */

/* Says where the first rank's descriptor is; fd -1 means that it has none. */
struct descriptor {
	int32_t pid, fd;
};

static bool open_descriptor(const struct descriptor *there, int *fd, struct error *error)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", there->pid, there->fd);
	*fd = there->fd >= 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (*fd >= 0)
		return true;
	if (there->fd < 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "%s", "");
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"ranks of one node cannot share memory (%s): "
		"%s; they must see each other's processes",
		path, strerror(errno));
}

bool rendezvous_share_descriptor(struct meeting *meeting, int *fd, struct error *error)
{
	const struct layout *layout = &meeting->layout;
	int first = layout->rank / layout->per_node * layout->per_node;
	struct descriptor there = {.pid = (int32_t)getpid(), .fd = *fd};
	double deadline = clock_now() + meeting->timeout;
	bool ok = true, heard = true;
	char thanks = 1;

	if (layout->rank != first) {
		if (!tcp_receive(meeting->fds[first], &there, sizeof(there), deadline))
			return error_set(error, EXIT_CODE_FAULT, "rank %d went away", first);
		ok = open_descriptor(&there, fd, error);
		return tcp_send(meeting->fds[first], &thanks, 1, deadline) && ok;
	}
	for (int r = first + 1; r < first + layout->per_node; r++)
		heard = tcp_send(meeting->fds[r], &there, sizeof(there), deadline) && heard;
	/* The descriptor must stay open until all ranks have it. */
	for (int r = first + 1; r < first + layout->per_node; r++)
		heard = tcp_receive(meeting->fds[r], &thanks, 1, deadline) && heard;
	if (!heard)
		return error_set(error, EXIT_CODE_FAULT, "a rank of this node went away");
	return *fd >= 0 || error_set(error, EXIT_CODE_ENVIRONMENT, "%s", "");
}

void meeting_forget_sockets(struct meeting *meeting)
{
	for (int r = 0; meeting->fds != NULL && r < meeting->layout.ranks; r++)
		meeting->fds[r] = -1;
}

void meeting_finish(struct meeting *meeting)
{
	struct arena arena = meeting->arena;

	for (int r = 0; meeting->fds != NULL && r < meeting->layout.ranks; r++)
		if (meeting->fds[r] >= 0)
			close(meeting->fds[r]);
	arena_finish(&arena);
	*meeting = (struct meeting){0};
}
