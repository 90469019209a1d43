#include "guests.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/transports/nodes/wire.h"

struct member *guests;

bool guests_open(void)
{
	guests = mmap(NULL, MOST_GUESTS * sizeof(*guests), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return guests != MAP_FAILED;
}

static void print_note(void *data, const char *line)
{
	(void)data;
	fprintf(stderr, "note: %s\n", line);
}

void invite(int ranks, int per_node, double timeout)
{
	int port = free_port();

	memset(guests, 0, MOST_GUESTS * sizeof(*guests));
	for (int r = 0; r < ranks; r++)
		guests[r].with = (struct rendezvous){.name = "torchrun",
			.host = "localhost",
			.port = port,
			.rank = r,
			.ranks = ranks,
			.local_rank = r % per_node,
			.timeout = timeout,
			.agreement = &guests[r].agreement,
			.note = print_note};
}

/* A word from everybody to everybody. */
static bool everybody_hears_everybody(struct meeting *meeting, struct error *error)
{
	struct wire_message sent[MOST_GUESTS], received[MOST_GUESTS];
	int ranks = meeting->layout.ranks, own = meeting->layout.rank, words[MOST_GUESTS];
	struct wire wire;
	bool done = false, ok = true;

	if (!wire_open_sockets(&wire, meeting->fds, ranks, error))
		return false;
	meeting_forget_sockets(meeting);
	for (int r = 0; r < ranks; r++) {
		sent[r].done = received[r].done = r == own;
		if (r == own)
			continue;
		wire_send(&wire, r, WIRE_COLLECTIVES, &own, sizeof(own), &sent[r]);
		wire_receive(&wire, r, WIRE_COLLECTIVES, &words[r], sizeof(words[r]), &received[r]);
	}
	while (!done && ok) {
		ok = wire_progress(&wire, 0.1, error);
		done = true;
		for (int r = 0; r < ranks; r++)
			done = done && sent[r].done && received[r].done;
	}
	for (int r = 0; r < ranks && ok; r++)
		ok = r == own || words[r] == r;
	wire_finish(&wire);
	return ok;
}

/* What the first rank of a node has written the others of it read. */
static bool nodes_share(struct meeting *meeting, struct error *error)
{
	const struct layout *layout = &meeting->layout;
	int node = layout->rank / layout->per_node, word = -1, fd = -1;

	if (layout->rank % layout->per_node == 0) {
		fd = memfd_create("test", MFD_CLOEXEC);
		if (fd < 0 || pwrite(fd, &node, sizeof(node), 0) != (ssize_t)sizeof(node))
			return false;
	}
	bool ok = rendezvous_share_descriptor(meeting, &fd, error) &&
		  pread(fd, &word, sizeof(word), 0) == (ssize_t)sizeof(word) && word == node;
	if (fd >= 0)
		close(fd);
	return ok;
}

void take_part(struct member *guest, int per_node)
{
	struct meeting meeting;

	alarm(60);
	if (guest->descriptors > 0) {
		const struct rlimit limit = {
			(rlim_t)guest->descriptors, (rlim_t)guest->descriptors};

		setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (guest->errors > 0)
		dup2(guest->errors, STDERR_FILENO);
	usleep((useconds_t)(1e6 * guest->late));
	guest->ok = rendezvous_meet(&guest->with, &meeting, &guest->error);
	if (guest->ok && per_node > 0)
		guest->ok = meeting.layout.per_node == per_node &&
			    nodes_share(&meeting, &guest->error) &&
			    everybody_hears_everybody(&meeting, &guest->error);
	meeting_finish(&meeting);
	_exit(0);
}

void hold(int ranks, int per_node, unsigned who)
{
	pid_t pids[MOST_GUESTS] = {0};

	for (int r = 0; r < ranks; r++) {
		if (!(who >> r & 1))
			continue;
		pids[r] = fork();
		if (pids[r] == 0)
			take_part(&guests[r], per_node);
	}
	for (int r = 0; r < ranks; r++) {
		int status = 0;

		if (pids[r] > 0)
			assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		if (status != 0)
			fail_msg("rank %d ended with status %d", r, status);
	}
}

void expect_words(int ranks, int speaker, enum exit_code code, const char *words)
{
	for (int r = 0; r < ranks; r++) {
		const struct error *error = &guests[r].error;

		if (guests[r].ok || (r != speaker && error->message[0] != '\0'))
			fail_msg("rank %d: %s", r, guests[r].ok ? "all is well" : error->message);
		if (r == speaker && (error->code != code || strstr(error->message, words) == NULL))
			fail_msg("\"%s\" is not in: %s (code %d)", words, error->message,
				(int)error->code);
	}
}
