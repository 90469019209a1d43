/* Processes that know only what torchrun tells them find each other, share memory by node, and send
 * each other messages; and what is said when somebody is missing or somebody else. */
#include "support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/launch/reception.h"
#include "executor/launch/rendezvous.h"
#include "executor/launch/tcp.h"
#include "executor/ranks/event.h"
#include "executor/transports/nodes/wire.h"

enum { MOST = 8, TIMEOUT_S = 20 };

/* Of a process: who it says it is, and how it ended. */
struct member {
	struct rendezvous with;
	struct agreement agreement;
	double late;     /* s after the others */
	int descriptors; /* that it may have at most; 0 = as ever */
	int errors;      /* where its stderr goes; 0 = to ours */
	bool ok;
	struct error error;
};

static struct member *guests; /* [MOST], shared with the children */

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
			.timeout = timeout,
			.agreement = &guests[r].agreement};
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

static void take_part(struct member *guest, int per_node)
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
	struct tcp_listener taken;

	(void)state;
	assert_true(tcp_listen(&taken, NULL, 0, &error));
	invite(2, 2, 0.3);
	guests[0].with.port = taken.port;
	hold(2, 0, 1);
	expect_words(2, 0, EXIT_CODE_ENVIRONMENT, "cannot listen on port");
	/* Somebody listens there who is no first rank. */
	invite(2, 2, 0.3);
	guests[1].with.port = taken.port;
	pid_t pid = fork();
	if (pid == 0) {
		struct pollfd caller = {.fd = taken.fds[0], .events = POLLIN};

		poll(&caller, 1, 1000 * TIMEOUT_S);
		int fd = tcp_accept(taken.fds[0]);
		if (fd >= 0)
			tcp_send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n................", 40,
				clock_now() + 1);
		_exit(0);
	}
	hold(2, 0, 2);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	expect_words(2, 1, EXIT_CODE_FAULT, "is something else listening there?");
	tcp_stop_listening(&taken);
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

/* --- the job's own ranks --- */

static const char own_secret[] = "only for the ranks of this test";

/* False in a build that has no keyed hashes. */
static bool make_secret(const char *text, struct secret *secret)
{
	struct error error = {0};

	setenv("SHARDPLAN_SECRET", text, 1);
	bool ok = secret_find(secret, &error);
	unsetenv("SHARDPLAN_SECRET");
	assert_true(ok || error.code == EXIT_CODE_ENVIRONMENT);
	return ok;
}

static void give_secret(int ranks, const struct secret *secret)
{
	for (int r = 0; r < ranks; r++)
		guests[r].with.secret = *secret;
}

/* What a stranger does at the door of a job with a secret, and stays as long as it can. */
struct intruder {
	int fd;
	struct opening caller, called;
	struct hello hello;
	struct secret secret;
	struct nonce nonce; /* that it proves instead of the listener's */
};

static void say(const struct intruder *i, const void *data, size_t bytes)
{
	tcp_send(i->fd, data, bytes, clock_now() + 2);
}

/* Up to the hello of rank 1, which is right but for the proof. */
static void introduce(struct intruder *i)
{
	struct error error = {0};

	assert_true(opening_fill(&i->caller, &i->secret, &error));
	i->caller.has_secret = 1;
	say(i, &i->caller, sizeof(i->caller));
	tcp_receive(i->fd, &i->called, sizeof(i->called), clock_now() + TIMEOUT_S);
	i->hello = (struct hello){
		.rank = 1, .ranks = 2, .local_rank = 1, .port = 1, .agreement = {{{0}}}};
}

static void say_hello(struct intruder *i)
{
	say(i, &i->hello, sizeof(i->hello));
}

static void be_silent(struct intruder *i)
{
	(void)i;
}

static void talk_garbage(struct intruder *i)
{
	static const char garbage[4096] = {7, 100, 1, 99};

	say(i, garbage, sizeof(garbage));
}

static void talk_http(struct intruder *i)
{
	say(i, "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30);
}

static void stop_halfway(struct intruder *i)
{
	say(i, "shardpl\0\2", 9);
}

static void open_and_stay(struct intruder *i)
{
	introduce(i);
}

static void hang_up(struct intruder *i)
{
	shutdown(i->fd, SHUT_RDWR);
}

static void flood(struct intruder *i)
{
	static char much[1 << 20];

	memset(much, 's', sizeof(much));
	say(i, much, sizeof(much));
}

static void prove_nothing(struct intruder *i)
{
	introduce(i);
	say_hello(i);
}

static void know_another_secret(struct intruder *i)
{
	struct secret other;

	assert_true(make_secret("another job's, in another place", &other));
	introduce(i);
	i->hello.proof = hello_prove(&other, &i->caller, &i->called, &i->hello);
	say_hello(i);
}

/* What was heard on another connection: proved over another number of the listener's. */
static void replay(struct intruder *i)
{
	introduce(i);
	i->called.nonce = i->nonce;
	i->hello.proof = hello_prove(&i->secret, &i->caller, &i->called, &i->hello);
	say_hello(i);
}

static void claim_another_rank(struct intruder *i)
{
	introduce(i);
	i->hello.rank = 99;
	say_hello(i);
}

static void claim_another_world(struct intruder *i)
{
	introduce(i);
	i->hello.ranks = 1 << 30;
	say_hello(i);
}

static void speak_another_protocol(struct intruder *i)
{
	struct error error = {0};

	assert_true(opening_fill(&i->caller, &i->secret, &error));
	i->caller.protocol++;
	say(i, &i->caller, sizeof(i->caller));
	say_hello(i);
}

static void (*const kinds[])(struct intruder *) = {be_silent, talk_garbage, talk_http, stop_halfway,
	open_and_stay, hang_up, flood, prove_nothing, know_another_secret, replay,
	claim_another_rank, claim_another_world, speak_another_protocol};

/* `n` of them, of all kinds in turn, who stay until they are killed. `ready`: one byte when all are
 * there. */
static pid_t let_loose(int n, int only, const struct secret *secret, int ready[2])
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	signal(SIGPIPE, SIG_IGN);
	alarm(60);
	for (int k = 0; k < n; k++) {
		struct error error = {0};
		struct intruder intruder = {.secret = *secret};

		/* The first rank may not listen yet; it listens to the end. */
		intruder.fd = tcp_connect("localhost", guests[0].with.port,
			clock_now() + (k == 0 ? TIMEOUT_S : 1), &error);
		if (intruder.fd < 0)
			_exit(1);
		kinds[only >= 0 ? only : k % COUNT_OF(kinds)](&intruder);
	}
	if (write(ready[1], "", 1) != 1)
		_exit(1);
	pause();
	_exit(0);
}

static int count_lines(int fd, const char *words)
{
	static char text[1 << 16];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	int lines = 0;

	text[n > 0 ? n : 0] = '\0';
	for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
		lines++;
	return lines;
}

/* A job of two whose second rank comes when all strangers have. */
static void hold_among_strangers(int n, int only, int descriptors, const struct secret *secret)
{
	int ready[2], status, errors = memfd_create("stderr", 0);
	pid_t first, strangers;
	char byte;

	invite(2, 2, TIMEOUT_S);
	give_secret(2, secret);
	guests[0].descriptors = descriptors;
	guests[0].errors = errors;
	assert_int_equal(pipe(ready), 0);
	first = fork();
	if (first == 0)
		take_part(&guests[0], 2);
	strangers = let_loose(n, only, secret, ready);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	hold(2, 2, 2);
	assert_int_equal(waitpid(first, &status, 0), first);
	kill(strangers, SIGKILL);
	assert_int_equal(waitpid(strangers, &status, 0), strangers);
	for (int r = 0; r < 2; r++)
		if (!guests[r].ok)
			fail_msg("rank %d among %d strangers: %s", r, n, guests[r].error.message);
	assert_in_range(count_lines(errors, "note: port "), 1, 5);
	close(ready[0]);
	close(errors);
}

static void strangers_neither_enter_nor_delay(void **state)
{
	struct secret secret;

	(void)state;
	if (make_secret(own_secret, &secret))
		hold_among_strangers(40, -1, 0, &secret);
}

/* More than it has room and descriptors for. Without a secret too. */
static void floods_cost_nothing(void **state)
{
	const struct secret none = {0};

	(void)state;
	hold_among_strangers(300, 0, 64, &none);
}

static void secrets_must_be_the_same(void **state)
{
	struct secret secret, other;

	(void)state;
	if (!make_secret(own_secret, &secret) || !make_secret("of another job, elsewhere", &other))
		return;
	invite(4, 2, TIMEOUT_S);
	give_secret(4, &secret);
	hold(4, 2, 0xff);
	for (int r = 0; r < 4; r++)
		if (!guests[r].ok)
			fail_msg("rank %d: %s", r, guests[r].error.message);
	invite(2, 2, 1);
	guests[0].with.secret = secret;
	hold(2, 0, 3);
	assert_non_null(strstr(guests[1].error.message, "rank 1 has no SHARDPLAN_SECRET"));
	assert_non_null(strstr(guests[0].error.message, "1 of 2 ranks came"));
	invite(2, 2, 1);
	give_secret(2, &secret);
	guests[1].with.secret = other;
	hold(2, 0, 3);
	assert_non_null(strstr(guests[1].error.message, "the same SHARDPLAN_SECRET?"));
	assert_non_null(strstr(guests[0].error.message, "and know its secret?"));
}

/* Who proves that it is a rank and goes is a rank that died. */
static void a_rank_that_goes_is_named(void **state)
{
	struct secret secret;
	struct intruder i = {0};
	struct error error = {0};

	(void)state;
	if (!make_secret(own_secret, &secret))
		return;
	invite(3, 3, TIMEOUT_S);
	give_secret(3, &secret);
	pid_t pid = fork();
	if (pid == 0) {
		i.secret = secret;
		i.fd = tcp_connect(
			"localhost", guests[0].with.port, clock_now() + TIMEOUT_S, &error);
		introduce(&i);
		i.hello.ranks = 3;
		i.hello.proof = hello_prove(&secret, &i.caller, &i.called, &i.hello);
		say_hello(&i);
		close(i.fd);
		_exit(0);
	}
	hold(3, 0, 1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_non_null(strstr(guests[0].error.message, "rank 1 came and went again"));
	assert_int_equal(guests[0].error.code, EXIT_CODE_FAULT);
}

static void other_settings_are_named(void **state)
{
	(void)state;
	invite(3, 3, TIMEOUT_S);
	for (int r = 0; r < 3; r++)
		strcpy(guests[r].agreement.values[5], r == 2 ? "0.1" : "0.0003");
	hold(3, 0, 7);
	expect_words(3, 0, EXIT_CODE_USAGE,
		"rank 2 has --lr 0.1, rank 0 has 0.0003; start all ranks with the same options");
}

static void expect_refusal(enum exit_code code, const char *words)
{
	struct secret secret;
	struct error error = {0};

	assert_false(secret_find(&secret, &error));
	if (error.code != code || strstr(error.message, words) == NULL)
		fail_msg("\"%s\" is not in: %s (code %d)", words, error.message, (int)error.code);
}

static void secrets_come_from_files(void **state)
{
	char path[] = "/tmp/shardplan-secret-XXXXXX";
	struct secret by_text, by_file;
	struct error error = {0};
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	if (!make_secret(own_secret, &by_text)) {
		close(fd);
		unlink(path);
		return;
	}
	dprintf(fd, "%s\n", own_secret);
	setenv("SHARDPLAN_SECRET_FILE", path, 1);
	assert_true(secret_find(&by_file, &error));
	assert_memory_equal(by_file.key, by_text.key, SECRET_BYTES);
	assert_int_equal(fchmod(fd, 0640), 0);
	expect_refusal(EXIT_CODE_INPUT, "others can read it");
	assert_int_equal(fchmod(fd, 0600), 0);
	setenv("SHARDPLAN_SECRET", own_secret, 1);
	expect_refusal(EXIT_CODE_USAGE, "are both set");
	unsetenv("SHARDPLAN_SECRET_FILE");
	setenv("SHARDPLAN_SECRET", "short", 1);
	expect_refusal(EXIT_CODE_USAGE, "expected a secret of 16 to 4096 characters, got 5");
	unsetenv("SHARDPLAN_SECRET");
	setenv("SHARDPLAN_SECRET_FILE", "/", 1);
	expect_refusal(EXIT_CODE_INPUT, "expected a plain file");
	unsetenv("SHARDPLAN_SECRET_FILE");
	close(fd);
	unlink(path);
}

/* Where one listens: nobody comes from another machine when all are on this one. */
static void listeners_are_where_they_must(void **state)
{
	static const struct {
		const char *host;
		bool loopback;
	} cases[] = {{"localhost", true}, {"127.0.0.1", true}, {NULL, false}, {"192.0.2.1", false}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct tcp_listener listener;
		struct error error = {0};
		char host[TCP_HOST_BYTES];

		assert_true(tcp_listen(
			&listener, cases[i].host, cases[i].loopback ? free_port() : 0, &error));
		for (int k = 0; k < listener.n; k++) {
			tcp_own(listener.fds[k], host);
			if (tcp_is_loopback(host) != cases[i].loopback)
				fail_msg("%s: listens at %s", cases[i].host, host);
		}
		tcp_stop_listening(&listener);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_find_all),
		cmocka_unit_test(who_is_missing_is_named),
		cmocka_unit_test(contradictions_are_refused),
		cmocka_unit_test(addresses_are_judged),
		cmocka_unit_test(strangers_are_sent_away),
		cmocka_unit_test(strangers_neither_enter_nor_delay),
		cmocka_unit_test(floods_cost_nothing),
		cmocka_unit_test(secrets_must_be_the_same),
		cmocka_unit_test(a_rank_that_goes_is_named),
		cmocka_unit_test(other_settings_are_named),
		cmocka_unit_test(secrets_come_from_files),
		cmocka_unit_test(listeners_are_where_they_must),
	};

	(void)argc, (void)argv;
	guests = mmap(NULL, MOST * sizeof(*guests), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (guests == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
