#include "executor/launch/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "executor/launch/tcp.h"

/* Of messages between processes of one version on machines of one kind. */
enum { PROTOCOL = 1, MACHINE_BYTES = 96, MOST_NAMED = 8 };
static const char magic[8] = "shardpl";

/* The first rank knows more: the others let it speak. s. */
#define LAST_WORD 5.0
/* Who has connected says who it is at once; s. */
#define INTRODUCTION 5.0

/* What every process says that connects. */
struct hello {
	char magic[8];
	uint64_t key; /* 0 to the first rank, who gives it */
	int32_t protocol, rank, ranks, local_rank, port;
	char machine[MACHINE_BYTES];
};

/* The first rank's answer; where all listen follows when code is EXIT_CODE_OK. */
struct answer {
	char magic[8];
	uint64_t key;
	int32_t code, per_node;
};

/* Host "": on the first rank's machine. */
struct place {
	char host[TCP_HOST_BYTES];
	int32_t port;
};

struct party {
	const struct rendezvous *with;
	struct meeting *meeting;
	double deadline;
	int listener, port;
	struct hello own;
	struct place *places; /* [ranks] */
	struct hello *hellos; /* [ranks], of the first rank */
	uint64_t key;
};

/* --- who we are --- */

/* What processes can read in each other's descriptors (/proc): one kernel, one space of numbers. */
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

	p->own = (struct hello){.protocol = PROTOCOL,
		.rank = with->rank,
		.ranks = with->ranks,
		.local_rank = with->local_rank,
		.port = p->port};
	memcpy(p->own.magic, magic, sizeof(magic));
	if (with->machine != NULL)
		snprintf(p->own.machine, MACHINE_BYTES, "%s", with->machine);
	else
		name_machine(p->own.machine);
}

/* A socket for each rank. */
static void allow_descriptors(int ranks)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)ranks + 256)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- the first rank --- */

/* The next one who says hello in our words; others are sent away. -1 at the deadline. */
static int receive_guest(struct party *p, struct hello *hello)
{
	for (;;) {
		int fd = tcp_accept(p->listener, p->deadline);
		double until = clock_now() + INTRODUCTION;

		if (fd < 0)
			return -1;
		if (tcp_receive(
			    fd, hello, sizeof(*hello), until < p->deadline ? until : p->deadline) &&
			memcmp(hello->magic, magic, sizeof(magic)) == 0 && hello->key == p->key)
			return fd;
		close(fd);
	}
}

/* Also when it is a refusal: no process waits for what will not come. */
static bool answer_one(struct party *p, int fd, enum exit_code code)
{
	struct answer answer = {
		.code = (int32_t)code, .key = p->key, .per_node = p->meeting->layout.per_node};
	double deadline = clock_now() + LAST_WORD;

	memcpy(answer.magic, magic, sizeof(magic));
	return tcp_send(fd, &answer, sizeof(answer), deadline) &&
	       (code != EXIT_CODE_OK ||
		       tcp_send(fd, p->places, (size_t)p->with->ranks * sizeof(*p->places),
			       deadline));
}

static bool answer_all(struct party *p, enum exit_code code)
{
	bool ok = true;

	for (int r = 1; r < p->with->ranks; r++)
		if (p->meeting->fds[r] >= 0)
			ok = answer_one(p, p->meeting->fds[r], code) && ok;
	return ok;
}

static bool check_guest(const struct party *p, const struct hello *hello, struct error *error)
{
	const struct rendezvous *with = p->with;

	if (hello->protocol != PROTOCOL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: processes of different versions of shardplan have come; use one on "
			"all "
			"nodes",
			with->name);
	if (hello->ranks != with->ranks)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: WORLD_SIZE is %d for rank %d and %d for the first one; expected one "
			"number for all",
			with->name, hello->ranks, hello->rank, with->ranks);
	if (hello->rank < 1 || hello->rank >= with->ranks || p->meeting->fds[hello->rank] >= 0)
		return error_set(error, EXIT_CODE_USAGE,
			"%s: two processes say that they are rank %d (RANK); expected each number "
			"once",
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
		"%s: %d of %d ranks came to %s, port %d, within %.3g s; missing: %s%s. Are they "
		"started, and can they reach this machine?",
		with->name, came, with->ranks, with->host, with->port, with->timeout,
		text_string(&names), missing > named ? ", ..." : "");
	text_finish(&names);
	return false;
}

static bool receive_guests(struct party *p, struct error *error)
{
	struct hello hello;

	for (int came = 1; came < p->with->ranks; came++) {
		int fd = receive_guest(p, &hello);

		if (fd < 0)
			return report_missing(p, came, error);
		if (!check_guest(p, &hello, error)) {
			answer_one(p, fd, EXIT_CODE_USAGE);
			close(fd);
			return false;
		}
		p->meeting->fds[hello.rank] = fd;
		p->hellos[hello.rank] = hello;
		p->places[hello.rank].port = hello.port;
		tcp_peer(fd, p->places[hello.rank].host);
	}
	return true;
}

/* A node begins with each local rank 0; all are equally large, and numbered one after the other. */
static bool find_layout(struct party *p, struct error *error)
{
	struct layout *layout = &p->meeting->layout;
	int ranks = p->with->ranks, per_node = 1;

	while (per_node < ranks && p->hellos[per_node].local_rank != 0)
		per_node++;
	for (int r = 0; r < ranks; r++) {
		const struct hello *hello = &p->hellos[r], *first = &p->hellos[r - r % per_node];

		if (hello->local_rank != r % per_node || ranks % per_node != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: expected ranks numbered node by node, equally many on each, "
				"got LOCAL_RANK %d for rank %d where the first node has %d ranks",
				p->with->name, hello->local_rank, r, per_node);
		if (strcmp(hello->machine, first->machine) != 0)
			return error_set(error, EXIT_CODE_USAGE,
				"%s: ranks %d and %d are on one node by LOCAL_RANK, and on two "
				"machines (or containers) by their kernels; expected LOCAL_RANK to "
				"count the ranks of a machine",
				p->with->name, first->rank, r);
	}
	layout->per_node = per_node;
	return true;
}

static bool receive_all(struct party *p, struct error *error)
{
	struct error refusal = {0};

	p->hellos = ARENA_ARRAY(&p->meeting->arena, struct hello, p->with->ranks);
	p->hellos[0] = p->own;
	if (!receive_guests(p, &refusal) || !find_layout(p, &refusal)) {
		answer_all(p, refusal.code);
		return error_set(error, refusal.code, "%s", refusal.message);
	}
	if (getrandom(&p->key, sizeof(p->key), 0) != (ssize_t)sizeof(p->key))
		p->key = (uint64_t)(1e9 * clock_now());
	return answer_all(p, EXIT_CODE_OK) ||
	       error_set(error, EXIT_CODE_FAULT,
		       "%s: a rank came and went again before all were "
		       "there",
		       p->with->name);
}

/* --- the others --- */

static bool ask_first(struct party *p, struct error *error)
{
	const struct rendezvous *with = p->with;
	struct answer answer = {0};
	struct error why = {0};
	size_t bytes = (size_t)with->ranks * sizeof(*p->places);
	int fd = tcp_connect(with->host, with->port, p->deadline, &why);

	if (fd < 0)
		return error_set(error, why.code,
			"%s: rank %d does not reach the first rank (MASTER_ADDR, MASTER_PORT): %s",
			with->name, with->rank, why.message);
	p->meeting->fds[0] = fd;
	double until = clock_now() + with->timeout + LAST_WORD;
	if (!tcp_send(fd, &p->own, sizeof(p->own), until) ||
		!tcp_receive(fd, &answer, sizeof(answer), until) ||
		memcmp(answer.magic, magic, sizeof(magic)) != 0)
		return error_set(error, EXIT_CODE_FAULT,
			"%s: rank %d was connected to %s, port %d, and got no answer of the first "
			"rank; is something else listening there?",
			with->name, with->rank, with->host, with->port);
	if (answer.code != EXIT_CODE_OK)
		return error_set(error, (enum exit_code)answer.code, "%s", "");
	p->key = answer.key;
	p->meeting->layout.per_node = answer.per_node;
	return tcp_receive(fd, p->places, bytes, until) ||
	       error_set(error, EXIT_CODE_FAULT, "%s: the first rank went away", with->name);
}

static bool call(struct party *p, int rank, struct error *error)
{
	const struct place *place = &p->places[rank];
	struct error why = {0};
	int fd = tcp_connect(place->host[0] != '\0' ? place->host : p->with->host, place->port,
		p->deadline, &why);

	p->own.key = p->key;
	p->meeting->fds[rank] = fd;
	if (fd >= 0 && tcp_send(fd, &p->own, sizeof(p->own), p->deadline))
		return true;
	return error_set(error, EXIT_CODE_FAULT, "%s: rank %d does not reach rank %d: %s",
		p->with->name, p->with->rank, rank, fd < 0 ? why.message : "it went away");
}

/* The lower ranks are called, the higher ones call. */
static bool connect_pairs(struct party *p, struct error *error)
{
	struct hello hello;

	p->deadline = clock_now() + p->with->timeout;
	for (int r = 1; r < p->with->rank; r++)
		if (!call(p, r, error))
			return false;
	for (int r = p->with->rank + 1; r < p->with->ranks; r++) {
		int fd = receive_guest(p, &hello);

		if (fd < 0)
			return error_set(error, EXIT_CODE_FAULT,
				"%s: %d of %d ranks did not connect to rank %d", p->with->name,
				p->with->ranks - r, p->with->ranks, p->with->rank);
		if (hello.rank <= p->with->rank || hello.rank >= p->with->ranks ||
			p->meeting->fds[hello.rank] >= 0) {
			close(fd);
			return error_set(error, EXIT_CODE_INTERNAL, "a rank called twice");
		}
		p->meeting->fds[hello.rank] = fd;
	}
	return true;
}

bool rendezvous_meet(const struct rendezvous *with, struct meeting *meeting, struct error *error)
{
	bool first = with->rank == 0;
	struct error why = {0};

	*meeting =
		(struct meeting){.layout = {with->rank, with->ranks, 1}, .timeout = with->timeout};
	struct party p = {.with = with,
		.meeting = meeting,
		.deadline = clock_now() + with->timeout,
		.port = first ? with->port : 0};
	allow_descriptors(with->ranks);
	meeting->fds = ARENA_ARRAY(&meeting->arena, int, with->ranks);
	for (int r = 0; r < with->ranks; r++)
		meeting->fds[r] = -1;
	p.places = ARENA_ARRAY(&meeting->arena, struct place, with->ranks);
	p.listener = tcp_listen(&p.port, &why);
	if (p.listener < 0)
		return error_set(error, why.code, "%s: rank %d %s%s", with->name, with->rank,
			why.message, first ? " (MASTER_PORT)" : "");
	introduce(&p);
	/* The first rank has all its connections when all have come. */
	bool ok = first ? receive_all(&p, error) : ask_first(&p, error) && connect_pairs(&p, error);
	close(p.listener);
	return ok;
}

/* --- a descriptor for the ranks of a node --- */

/* Where the first one's is; -1 = it has none. */
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
		"ranks of one node cannot share memory (%s): %s; they must see each other's "
		"processes",
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
	/* It must stay open until all have it. */
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
