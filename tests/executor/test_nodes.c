/* Collectives over machines: each machine a segment of its own, sockets between them. Every element
 * against a sum in the declared order, for layouts that divide well and others; what crosses the
 * network; and what happens when ranks disagree, hang or go. */
#include "collective_checks.h"
#include "support.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/memory/memory.h"
#include "executor/transports/nodes/state.h"

enum { MAX_NODES = 6 };

/* One rank of a test. */
struct member {
	struct segment segment;
	struct comm comm;
	struct kernel_context context;
	struct checked checked;
	struct layout layout;
};

/* A run: sockets between all ranks, segments of all machines, made before the ranks are. */
struct cluster {
	int ranks, per_node;
	int fds[MAX_RANKS][MAX_RANKS]; /* [a][b]: what a has towards b */
	struct segment segments[MAX_NODES];
};

static void make_sockets(struct cluster *cluster)
{
	for (int a = 0; a < cluster->ranks; a++)
		for (int b = 0; b <= a; b++) {
			int pair[2] = {-1, -1};

			if (a != b)
				assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
			cluster->fds[a][b] = pair[0];
			cluster->fds[b][a] = pair[1];
		}
}

static void make_segments(struct cluster *cluster, double timeout)
{
	const struct job job = {
		.ranks = cluster->per_node, .threads = 1, .collective_timeout = timeout};
	static const char *const texts[TEXT_COUNT];
	struct error error = {0};

	for (int n = 0; n < cluster->ranks / cluster->per_node; n++)
		assert_true(segment_create(&cluster->segments[n], &job, texts, 0, 0,
			2 * MAX_COUNT * (int64_t)sizeof(float) + NODES_BOUNCE_BYTES, &error));
}

/* Whoever goes must be seen to: nobody else may hold an end of its sockets. */
static void close_others(const struct cluster *cluster, int rank)
{
	for (int a = 0; a < cluster->ranks; a++)
		for (int b = 0; b < cluster->ranks; b++)
			if (a != rank && a != b)
				close(cluster->fds[a][b]);
}

static bool open_member(struct member *m, const struct cluster *cluster, int rank)
{
	const struct kernels *kernels = kernels_cpu();
	int local = rank % cluster->per_node;
	struct error error = {0};
	struct wire wire;

	close_others(cluster, rank);
	*m = (struct member){.layout = {rank, cluster->ranks, cluster->per_node}};
	if (!segment_attach(&m->segment, dup(cluster->segments[rank / cluster->per_node].fd), local,
		    &error))
		return false;
	m->context = (struct kernel_context){
		.workspace = workspace_reserve(), .workspace_bytes = KERNELS_WORKSPACE_BYTES};
	float *window = (float *)segment_window(&m->segment, local);
	m->checked = (struct checked){&m->comm, window, window + MAX_COUNT};
	return kernels->open(&m->context, &error) &&
	       wire_open_sockets(&wire, cluster->fds[rank], cluster->ranks, &error) &&
	       comm_open_nodes(&m->comm, &m->layout, &m->segment, &m->segment, &wire, kernels,
		       &m->context, &error);
}

static void run_one(const struct cluster *cluster, int rank, bool (*body)(struct member *))
{
	struct member member;

	alarm(60);
	_exit(open_member(&member, cluster, rank) && body(&member) ? 0 : 1);
}

/* How many ranks did not return true; the faults of all machines. */
static int run_cluster(
	int ranks, int per_node, double timeout, bool (*body)(struct member *), struct error *fault)
{
	struct cluster cluster = {.ranks = ranks, .per_node = per_node};
	pid_t pids[MAX_RANKS];
	int failed = 0;

	make_sockets(&cluster);
	make_segments(&cluster, timeout);
	for (int r = 0; r < ranks; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			run_one(&cluster, r, body);
	}
	for (int a = 0; a < ranks; a++)
		for (int b = 0; b < ranks; b++)
			if (a != b)
				close(cluster.fds[a][b]);
	for (int r = 0; r < ranks; r++) {
		int status;

		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		failed += status != 0;
	}
	for (int n = 0; n < ranks / per_node; n++) {
		struct error own = {0};

		char *end = fault->message + strlen(fault->message);
		size_t room = sizeof(fault->message) - (size_t)(end - fault->message);

		if (!segment_outcome(&cluster.segments[n], &own)) {
			fault->code = own.code;
			if (snprintf(end, room, "%s\n", own.message) >= (int)room)
				fault->code = EXIT_CODE_INTERNAL; /* more than there is room for */
		}
		segment_finish(&cluster.segments[n]);
	}
	return failed;
}

/* --- sums --- */

static bool every_group(struct member *m)
{
	static const int64_t counts[] = {0, 1, 17, 129, 4801};

	return check_every_group(&m->checked, counts, COUNT_OF(counts));
}

static void sums_follow_the_tree(void **state)
{
	/* Powers of two; three to a machine, whose subtrees are several; one each. */
	static const int layouts[][2] = {
		{4, 2}, {8, 4}, {6, 3}, {6, 2}, {9, 3}, {3, 1}, {12, 6}, {10, 5}, {2, 2}};

	(void)state;
	for (int i = 0; i < COUNT_OF(layouts); i++) {
		struct error error = {0};

		if (run_cluster(layouts[i][0], layouts[i][1], 30, every_group, &error) != 0)
			fail_msg("%d ranks, %d to a machine: %s", layouts[i][0], layouts[i][1],
				error.message);
	}
}

/* Several pieces, the last of them short, and more than are on their way at once. */
static bool long_ones(struct member *m)
{
	const struct group world = {.size = 4, .stride = 1};
	struct comm_group group = comm_group_of(&world, m->comm.rank);

	return check_gather(&m->checked, group, MAX_COUNT / 4) &&
	       check_scatter(&m->checked, group, MAX_COUNT / 4) &&
	       check_reduce(&m->checked, group, MAX_COUNT) &&
	       check_exchange(&m->checked, group, MAX_COUNT / 4) &&
	       check_rotation(&m->checked, group, MAX_COUNT);
}

static bool long_ones_of_one_each(struct member *m)
{
	const struct group world = {.size = 2, .stride = 1};

	return check_reduce(&m->checked, comm_group_of(&world, m->comm.rank), MAX_COUNT);
}

static void pieces_follow_each_other(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_cluster(4, 2, 30, long_ones, &error), 0);
	assert_int_equal(run_cluster(2, 1, 30, long_ones_of_one_each, &error), 0);
}

static bool hybrids(struct member *m)
{
	return check_hybrid(&m->checked, 2) && check_hybrid(&m->checked, 4);
}

static void subtrees_give_the_same_bits(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_cluster(8, 2, 30, hybrids, &error), 0);
}

/* The control: another order gives other bits. */
static bool reduce_in_another_order(struct member *m)
{
	const struct comm_group world = {.size = 8, .stride = 1, .index = m->comm.rank};

	m->comm.fault = (struct fault){.kind = FAULT_REDUCE_ORDER, .rank = -1, .step = -1};
	return !check_scatter(&m->checked, world, 4801);
}

static void the_order_matters(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_cluster(8, 4, 30, reduce_in_another_order, &error), 0);
}

/* Private memory is reached through the bounce, in several parts. */
static bool exchange_privately(struct member *m)
{
	enum { BYTES = 700000 };
	static char gathered[4 * BYTES];

	memset(m->checked.input, 1 + m->comm.rank, 200000);
	if (!comm_exchange(&m->comm, m->checked.input, gathered, 200000))
		return false;
	for (int64_t i = 0; i < 800000; i++)
		if (gathered[i] != 1 + i / 200000)
			return false;
	return true;
}

static void private_memory_is_filled(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_cluster(4, 2, 30, exchange_privately, &error), 0);
}

/* --- what crosses --- */

/* As docs/cost-model.md says: of a payload S, (N - 1) / N leave a machine in a gather or a
 * reduction, twice that in an all-reduce; and each rank takes in (n - 1) / n. An exchange sends
 * each rank of another machine its part, a ring one message to it. */
static bool bytes_are_counted(struct member *m)
{
	const struct comm_group world = {.size = 8, .stride = 1, .index = m->comm.rank};
	const struct comm_counters *counters = &m->comm.counters;

	if (!check_gather(&m->checked, world, 1024) || counters->network_bytes != 4096 ||
		counters->wire_bytes != 7 * 4096)
		return false;
	if (!check_scatter(&m->checked, world, 1024) || counters->network_bytes != 2 * 4096 ||
		counters->wire_bytes != 14 * 4096)
		return false;
	if (!check_reduce(&m->checked, world, 8192) || counters->network_bytes != 4 * 4096 ||
		counters->wire_bytes != 28 * 4096)
		return false;
	if (!check_exchange(&m->checked, world, 1024) || counters->network_bytes != 8 * 4096 ||
		counters->wire_bytes != 35 * 4096)
		return false;
	int leaves = m->comm.rank % 4 == 3;
	return check_rotation(&m->checked, world, 1024) &&
	       counters->network_bytes == (8 + leaves) * 4096 && counters->wire_bytes == 36 * 4096;
}

static void bytes_on_the_network(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_cluster(8, 4, 30, bytes_are_counted, &error), 0);
}

/* --- messages between programs --- */

static bool messages(struct member *m)
{
	return check_messages(&m->checked);
}

/* To other machines, to this one, and both. */
static void messages_come_in_order(void **state)
{
	static const int layouts[][2] = {{2, 1}, {4, 2}, {4, 4}, {6, 2}};

	(void)state;
	for (int i = 0; i < COUNT_OF(layouts); i++) {
		struct error error = {0};

		if (run_cluster(layouts[i][0], layouts[i][1], 30, messages, &error) != 0)
			fail_msg("%d ranks, %d to a machine: %s", layouts[i][0], layouts[i][1],
				error.message);
	}
}

/* --- disagreement and silence --- */

static bool one_rank_differs(struct member *m)
{
	return comm_run(&m->comm, &(struct collective){.kind = COLLECTIVE_ALL_REDUCE,
					  .element = COMM_FP32,
					  .group = {.size = 2,
						  .stride = 2,
						  .index = m->comm.rank / 2,
						  .first = m->comm.rank % 2},
					  .count = m->comm.rank == 3 ? 65 : 64,
					  .input = m->checked.input,
					  .output = m->checked.input,
					  .op = 7,
					  .unit = 1});
}

static void different_calls_are_refused(void **state)
{
	struct error error = {0};

	(void)state;
	assert_true(run_cluster(4, 2, 30, one_rank_differs, &error) > 0);
	assert_int_equal(error.code, EXIT_CODE_FAULT);
	assert_non_null(strstr(error.message, "rank 1:"));
	assert_non_null(strstr(error.message, "rank 3:"));
}

static bool world_reduce(struct member *m)
{
	const struct comm_group world = {.size = m->comm.ranks, .stride = 1, .index = m->comm.rank};

	return check_reduce(&m->checked, world, 64);
}

static bool another_message(struct member *m)
{
	struct comm_message message = check_message(&m->checked, m->comm.rank == 0 ? 1 : 2);

	m->comm.program_ranks = 1;
	if (m->comm.rank == 1)
		return comm_receive(&m->comm, &message);
	return comm_send(&m->comm, &message) && world_reduce(m);
}

static void other_messages_are_refused(void **state)
{
	struct error error = {0};

	(void)state;
	assert_true(run_cluster(2, 1, 30, another_message, &error) > 0);
	if (strstr(error.message, "rank 1 expects another message (forward)") == NULL)
		fail_msg("%s", error.message);
}

static bool rank_3_sleeps(struct member *m)
{
	if (m->comm.rank != 3)
		return world_reduce(m);
	while (!segment_aborted(&m->segment))
		usleep(10000);
	return true;
}

/* Its neighbour names it, before those who only see that the neighbour does not come. */
static void a_silent_rank_is_named(void **state)
{
	struct error error = {0};

	(void)state;
	assert_true(run_cluster(4, 2, 0.5, rank_3_sleeps, &error) > 0);
	if (strstr(error.message, "rank 3 hangs") == NULL)
		fail_msg("rank 3 is not named in: %s", error.message);
}

/* This rank was seen waiting for another machine, and then does nothing any more. */
static bool rank_3_freezes(struct member *m)
{
	if (m->comm.rank == 3)
		atomic_fetch_add(&segment_board(&m->segment, 1)->beats, 1);
	return rank_3_sleeps(m);
}

static void a_rank_that_froze_in_the_network_is_named(void **state)
{
	struct error error = {0};

	(void)state;
	assert_true(run_cluster(4, 2, 0.5, rank_3_freezes, &error) > 0);
	if (strstr(error.message, "rank 3 hangs") == NULL)
		fail_msg("rank 3 is not named in: %s", error.message);
}

/* As under srun and torchrun, where each rank has a launcher of its own: 2 looks after 3, whose
 * process has ended. */
static bool rank_2_sees(struct member *m)
{
	static const char *const texts[TEXT_COUNT];
	const struct job job = {.ranks = 1, .threads = 1, .collective_timeout = 30};
	struct nodes *nodes = m->comm.state;
	struct segment control;
	struct error error = {0};
	double started = clock_now();
	pid_t dead = fork();

	if (dead == 0)
		_exit(0);
	if (waitpid(dead, NULL, 0) != dead ||
		!segment_create(&control, &job, texts, 0, 0, 0, &error))
		return false;
	control.rank = 0;
	control.shared = &m->segment;
	nodes->link.control = &control;
	/* 3 writes its own number when it comes. */
	while (atomic_load(&segment_board(&m->segment, 1)->pid) == 0)
		usleep(1000);
	atomic_store(&segment_board(&m->segment, 1)->pid, (int32_t)dead);
	bool went_on = world_reduce(m);
	return !went_on && !segment_outcome(&control, &error) && clock_now() - started < 10 &&
	       strstr(error.message, "rank 3 has gone") != NULL;
}

static bool rank_3_has_gone(struct member *m)
{
	return m->comm.rank == 2 ? rank_2_sees(m) : rank_3_sleeps(m) || m->comm.rank < 2;
}

static void a_dead_neighbour_is_named(void **state)
{
	struct error error = {0};

	(void)state;
	/* The other machine only sees that nothing comes. */
	assert_int_equal(run_cluster(4, 2, 5, rank_3_has_gone, &error), 0);
}

static bool rank_1_goes(struct member *m)
{
	if (m->comm.rank == 1)
		_exit(0);
	return world_reduce(m);
}

static void a_rank_that_went_is_named(void **state)
{
	struct error error = {0};

	(void)state;
	assert_true(run_cluster(2, 1, 30, rank_1_goes, &error) > 0);
	if (strstr(error.message, "rank 1 broke") == NULL)
		fail_msg("rank 1 is not named in: %s", error.message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_follow_the_tree),
		cmocka_unit_test(pieces_follow_each_other),
		cmocka_unit_test(subtrees_give_the_same_bits),
		cmocka_unit_test(the_order_matters),
		cmocka_unit_test(private_memory_is_filled),
		cmocka_unit_test(messages_come_in_order),
		cmocka_unit_test(other_messages_are_refused),
		cmocka_unit_test(bytes_on_the_network),
		cmocka_unit_test(different_calls_are_refused),
		cmocka_unit_test(a_silent_rank_is_named),
		cmocka_unit_test(a_rank_that_froze_in_the_network_is_named),
		cmocka_unit_test(a_dead_neighbour_is_named),
		cmocka_unit_test(a_rank_that_went_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
