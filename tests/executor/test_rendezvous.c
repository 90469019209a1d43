/* Processes that know only what torchrun tells them find one another, share memory on a node, and
 * send messages; and the errors if one is missing or is a stranger. */
#include "guests.h"

#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/launch/tcp.h"
#include "executor/ranks/event.h"

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

/* A number of milliseconds that no int holds is not the one that poll() takes for "at once". */
static void deadlines_may_be_far_away(void **state)
{
	(void)state;
	assert_int_equal(tcp_milliseconds_to(clock_now() + 1e12), INT_MAX);
	assert_int_equal(tcp_milliseconds_to(INFINITY), INT_MAX);
	assert_int_equal(tcp_milliseconds_to(clock_now() - 1e12), 0);
	int near = tcp_milliseconds_to(clock_now() + 1000);
	assert_true(near > 900 * 1000 && near <= 1000 * 1000);
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

static void other_settings_are_named(void **state)
{
	(void)state;
	invite(3, 3, TIMEOUT_S);
	for (int r = 0; r < 3; r++)
		strcpy(guests[r].agreement.values[5], r == 2 ? "0.1" : "0.0003");
	hold(3, 0, 7);
	expect_words(3, 0, EXIT_CODE_USAGE,
		"rank 2 has --lr 0.1, rank 0 has 0.0003; start all ranks with the same options");
	/* Nodes of two kinds: options are not to blame. */
	invite(2, 1, TIMEOUT_S);
	for (int r = 0; r < 2; r++)
		strcpy(guests[r].agreement.values[14],
			r == 1 ? "cpu-v3 (built-in)" : "cpu-v4 (built-in)");
	hold(2, 0, 3);
	expect_words(2, 0, EXIT_CODE_USAGE,
		"rank 1 has kernels cpu-v3 (built-in), rank 0 has cpu-v4 (built-in); use nodes "
		"whose processors have the same instructions, and the same build");
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
		cmocka_unit_test(deadlines_may_be_far_away),
		cmocka_unit_test(who_is_missing_is_named),
		cmocka_unit_test(contradictions_are_refused),
		cmocka_unit_test(addresses_are_judged),
		cmocka_unit_test(strangers_are_sent_away),
		cmocka_unit_test(other_settings_are_named),
		cmocka_unit_test(listeners_are_where_they_must),
	};

	(void)argc, (void)argv;
	if (!guests_open())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
