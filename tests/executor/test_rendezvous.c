/* Processes that know only what torchrun tells them find each other, share memory by node, and send
 * each other messages; and what is said when somebody is missing or somebody else. */
#include "support.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/launch/rendezvous.h"
#include "executor/launch/tcp.h"
#include "executor/ranks/event.h"
#include "executor/transports/nodes/wire.h"

enum { MOST = 8, TIMEOUT_S = 20 };

/* Of a process: who it says it is, and how it ended. */
struct guest {
	struct rendezvous with;
	double late; /* s after the others */
	bool ok;
	struct error error;
};

static struct guest *guests; /* [MOST], shared with the children */

static void invite(int ranks, int per_node, double timeout)
{
	int port = free_port();

	memset(guests, 0, MOST * sizeof(*guests));
	for (int r = 0; r < ranks; r++)
		guests[r].with = (struct rendezvous){.name = "torchrun",
			.host = "localhost",
			.port = port,
			.rank = r,
			.ranks = ranks,
			.local_rank = r % per_node,
			.timeout = timeout};
}

/* A word from everybody to everybody. */
static bool everybody_hears_everybody(struct meeting *meeting, struct error *error)
{
	struct wire_message sent[MOST], received[MOST];
	int ranks = meeting->layout.ranks, own = meeting->layout.rank, words[MOST];
	struct wire wire;
	bool done = false, ok = true;

	if (!wire_open_sockets(&wire, meeting->fds, ranks, error))
		return false;
	meeting_forget_sockets(meeting);
	for (int r = 0; r < ranks; r++) {
		sent[r].done = received[r].done = r == own;
		if (r == own)
			continue;
		wire_send(&wire, r, &own, sizeof(own), &sent[r]);
		wire_receive(&wire, r, &words[r], sizeof(words[r]), &received[r]);
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

static void take_part(struct guest *guest, int per_node)
{
	struct meeting meeting;

	alarm(60);
	usleep((useconds_t)(1e6 * guest->late));
	guest->ok = rendezvous_meet(&guest->with, &meeting, &guest->error);
	if (guest->ok && per_node > 0)
		guest->ok = meeting.layout.per_node == per_node &&
			    nodes_share(&meeting, &guest->error) &&
			    everybody_hears_everybody(&meeting, &guest->error);
	meeting_finish(&meeting);
	_exit(0);
}

/* Those of `ranks` whose bit is set in `who`; the others never come. */
static void hold(int ranks, int per_node, unsigned who)
{
	pid_t pids[MOST] = {0};

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

static void all_find_all(void **state)
{
	static const int layouts[][2] = {{2, 1}, {2, 2}, {4, 2}, {6, 3}, {8, 2}, {5, 5}, {3, 1}};

	(void)state;
	for (int i = 0; i < COUNT_OF(layouts); i++) {
		int ranks = layouts[i][0], per_node = layouts[i][1];

		invite(ranks, per_node, TIMEOUT_S);
		/* In any order: the first rank may be the last to come. */
		guests[i % ranks].late = 0.2;
		hold(ranks, per_node, 0xff);
		for (int r = 0; r < ranks; r++)
			if (!guests[r].ok)
				fail_msg("%d ranks, %d a node: rank %d: %s", ranks, per_node, r,
					guests[r].error.message);
	}
}

/* One says `words`, with that code; all others nothing. */
static void expect_words(int ranks, int speaker, enum exit_code code, const char *words)
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

static void who_is_missing_is_named(void **state)
{
	(void)state;
	invite(4, 2, 0.5);
	hold(4, 0, 1 | 2 | 8);
	expect_words(4, 0, EXIT_CODE_FAULT, "3 of 4 ranks came");
	assert_non_null(strstr(guests[0].error.message, "missing: 2."));
	/* Nobody is there to be asked. */
	invite(2, 2, 0.3);
	hold(2, 0, 2);
	expect_words(2, 1, EXIT_CODE_FAULT, "rank 1 does not reach the first rank");
}

static void contradictions_are_refused(void **state)
{
	(void)state;
	invite(3, 3, TIMEOUT_S);
	guests[2].with.rank = 1;
	hold(3, 0, 7);
	expect_words(3, 0, EXIT_CODE_USAGE, "two processes say that they are rank 1");
	invite(2, 2, TIMEOUT_S);
	guests[1].with.ranks = 4;
	hold(2, 0, 3);
	expect_words(2, 0, EXIT_CODE_USAGE, "WORLD_SIZE is 4 for rank 1");
	invite(3, 2, TIMEOUT_S);
	hold(3, 0, 7);
	expect_words(3, 0, EXIT_CODE_USAGE, "equally many on each");
	invite(4, 2, TIMEOUT_S);
	guests[3].with.machine = "elsewhere";
	hold(4, 0, 15);
	expect_words(4, 0, EXIT_CODE_USAGE, "ranks 2 and 3 are on one node by LOCAL_RANK");
}

static void addresses_are_judged(void **state)
{
	struct error error = {0};
	int port = 0, taken = tcp_listen(&port, &error);

	(void)state;
	invite(2, 2, 0.3);
	guests[0].with.port = port;
	hold(2, 0, 1);
	expect_words(2, 0, EXIT_CODE_ENVIRONMENT, "cannot listen on port");
	/* Somebody listens there who is no first rank. */
	invite(2, 2, 0.3);
	guests[1].with.port = port;
	pid_t pid = fork();
	if (pid == 0) {
		int fd = tcp_accept(taken, clock_now() + TIMEOUT_S);

		if (fd >= 0)
			tcp_send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n................", 40,
				clock_now() + 1);
		_exit(0);
	}
	hold(2, 0, 2);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	expect_words(2, 1, EXIT_CODE_FAULT, "is something else listening there?");
	close(taken);
	invite(2, 2, 0.3);
	guests[1].with.host = "no.such.host.invalid";
	hold(2, 0, 2);
	assert_non_null(strstr(guests[1].error.message, "no.such.host.invalid"));
}

/* Strangers at the door are sent away, and nobody waits for their ranks. */
static void strangers_are_sent_away(void **state)
{
	struct error error = {0};

	(void)state;
	invite(2, 2, TIMEOUT_S);
	guests[1].late = 0.5;
	pid_t pid = fork();
	if (pid == 0) {
		int fd = tcp_connect(
			"localhost", guests[0].with.port, clock_now() + TIMEOUT_S, &error);

		tcp_send(fd, "GET / HTTP/1.1\r\n\r\n", 18, clock_now() + 1);
		shutdown(fd, SHUT_WR);
		char byte;
		_exit(tcp_receive(fd, &byte, 1, clock_now() + TIMEOUT_S) ? 1 : 0);
	}
	hold(2, 2, 3);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(guests[0].ok && guests[1].ok);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_find_all),
		cmocka_unit_test(who_is_missing_is_named),
		cmocka_unit_test(contradictions_are_refused),
		cmocka_unit_test(addresses_are_judged),
		cmocka_unit_test(strangers_are_sent_away),
	};

	(void)argc, (void)argv;
	guests = mmap(NULL, MOST * sizeof(*guests), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guests == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
