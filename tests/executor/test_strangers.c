/* Connections from outside of the job: strangers of every kind, wrong secrets, ranks that leave. */
#include "guests.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/launch/reception.h"
#include "executor/launch/tcp.h"
#include "executor/ranks/event.h"

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

/* A process that proves that it is a rank and goes is a rank that died. */
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strangers_neither_enter_nor_delay),
		cmocka_unit_test(floods_cost_nothing),
		cmocka_unit_test(secrets_must_be_the_same),
		cmocka_unit_test(a_rank_that_goes_is_named),
		cmocka_unit_test(secrets_come_from_files),
	};

	(void)argc, (void)argv;
	if (!guests_open())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
