/* The shm collectives between real processes: every element against a sum in the declared order,
 * group by group; and what happens when ranks disagree, hang or die. */
#include "collective_checks.h"
#include "support.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/memory/heap.h"
#include "executor/memory/memory.h"
#include "executor/ranks/shared_segment.h"
#include "executor/transports/comm.h"
#include "kernels/common/exact_sum.h"

/* One rank of a test. */
struct member {
	struct segment segment;
	struct comm comm;
	struct kernel_context context;
	struct checked checked;
	float *input;
};

static bool open_member(struct member *m, int fd, int rank)
{
	struct error error = {0};
	const struct kernels *kernels = kernels_cpu();

	*m = (struct member){0};
	if (!segment_attach(&m->segment, fd, rank, &error))
		return false;
	m->context = (struct kernel_context){
		.workspace = workspace_reserve(), .workspace_bytes = KERNELS_WORKSPACE_BYTES};
	m->input = (float *)segment_window(&m->segment, rank);
	m->checked = (struct checked){&m->comm, m->input, m->input + MAX_COUNT};
	return kernels->open(&m->context, &error) &&
	       comm_open_shm(&m->comm, &m->segment, kernels, &m->context, &error);
}

/* Runs `body` in one process per rank; how many did not return true. */
static int run_ranks(int ranks, double timeout, bool (*body)(struct member *), struct error *fault)
{
	const struct job job = {.ranks = ranks, .threads = 1, .collective_timeout = timeout};
	static const char *const texts[TEXT_COUNT];
	struct segment segment;
	pid_t pids[MAX_RANKS];
	int failed = 0;

	assert_true(segment_create(
		&segment, &job, texts, 0, 0, 2 * MAX_COUNT * (int64_t)sizeof(float), fault));
	for (int r = 0; r < ranks; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			struct member member;
			int fd = dup(segment.fd);

			alarm(60);
			_exit(open_member(&member, fd, r) && body(&member) ? 0 : 1);
		}
	}
	for (int r = 0; r < ranks; r++) {
		int status;

		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		failed += status != 0;
	}
	segment_outcome(&segment, fault);
	segment_finish(&segment);
	return failed;
}

static bool every_group(struct member *m)
{
	static const int64_t counts[] = {0, 1, 15, 16, 17, 129, 4801};

	return check_every_group(&m->checked, counts, COUNT_OF(counts));
}

static void sums_follow_the_tree(void **state)
{
	static const int ranks[] = {1, 2, 3, 4, 5, 6, 8};

	(void)state;
	for (int i = 0; i < COUNT_OF(ranks); i++) {
		struct error error = {0};

		if (run_ranks(ranks[i], 30, every_group, &error) != 0)
			fail_msg("%d ranks: %s", ranks[i], error.message);
	}
}

/* The control: another order gives other bits, so the test above can fail. */
static bool reduce_in_another_order(struct member *m)
{
	m->comm.fault = (struct fault){.kind = FAULT_REDUCE_ORDER, .rank = -1, .step = -1};
	return !check_scatter(&m->checked,
		(struct comm_group){.size = 4, .stride = 1, .index = m->comm.rank}, 4801);
}

static void the_order_matters(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(4, 30, reduce_in_another_order, &error), 0);
}

static bool hybrid_equals_world(struct member *m)
{
	return check_hybrid(&m->checked, 2);
}

static void subtrees_give_the_same_bits(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(8, 30, hybrid_equals_world, &error), 0);
}

/* Digits of exact sums: any number of ranks, one value. */
static bool digits_add_up(struct member *m)
{
	struct exact_sum *sum = (struct exact_sum *)m->input;
	double expected = 0;

	*sum = (struct exact_sum){0};
	exact_sum_add(sum, 0x1p-60 * (m->comm.rank + 1));
	exact_sum_add(sum, m->comm.rank % 2 == 0 ? 0x1p+60 : -0x1p+60);
	exact_sum_normalise(sum);
	if (!comm_run(&m->comm,
		    &(struct collective){.kind = COLLECTIVE_ALL_REDUCE,
			    .element = COMM_INT64,
			    .group = {.size = m->comm.ranks, .stride = 1, .index = m->comm.rank},
			    .count = EXACT_SUM_LIMBS,
			    .input = sum,
			    .output = sum}))
		return false;
	for (int r = 0; r < m->comm.ranks; r++)
		expected += 0x1p-60 * (r + 1);
	return exact_sum_value(sum) == expected;
}

static void exact_sums_over_ranks(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(2, 30, digits_add_up, &error), 0);
	assert_int_equal(run_ranks(8, 30, digits_add_up, &error), 0);
}

/* Fetched bytes: (n-1)/n of the payload; all-reduce twice that, on average over the ranks. */
static bool wire_bytes_are_counted(struct member *m)
{
	const struct comm_group world = {.size = 4, .stride = 1, .index = m->comm.rank};

	if (!check_gather(&m->checked, world, 1024) || m->comm.counters.wire_bytes != 3 * 4096)
		return false;
	if (!check_scatter(&m->checked, world, 1024) || m->comm.counters.wire_bytes != 6 * 4096)
		return false;
	/* Equal slices here. */
	return check_reduce(&m->checked, world, 4096) && m->comm.counters.wire_bytes == 12 * 4096 &&
	       m->comm.counters.collectives[COLLECTIVE_ALL_REDUCE] == 1;
}

static void wire_bytes(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(4, 30, wire_bytes_are_counted, &error), 0);
}

/* --- messages between programs --- */

static bool messages(struct member *m)
{
	return check_messages(&m->checked);
}

static void messages_come_in_order(void **state)
{
	static const int ranks[] = {2, 4, 6};

	(void)state;
	for (int i = 0; i < COUNT_OF(ranks); i++) {
		struct error error = {0};

		if (run_ranks(ranks[i], 30, messages, &error) != 0)
			fail_msg("%d ranks: %s", ranks[i], error.message);
	}
}

static bool another_message(struct member *m)
{
	struct comm_message message = check_message(&m->checked, m->comm.rank == 0 ? 1 : 2);

	m->comm.program_ranks = 1;
	return m->comm.rank == 0 ? comm_send(&m->comm, &message) : comm_receive(&m->comm, &message);
}

static bool no_message(struct member *m)
{
	const struct comm_message message = check_message(&m->checked, 0);

	m->comm.program_ranks = 1;
	return m->comm.rank == 1 ? comm_receive(&m->comm, &message) : true;
}

static void other_messages_are_refused(void **state)
{
	struct error other = {0}, none = {0};

	(void)state;
	assert_int_equal(run_ranks(2, 30, another_message, &other), 1);
	assert_non_null(strstr(other.message, "rank 1 expects another message (forward)"));
	assert_non_null(strstr(other.message, "micro-batch 1, stage 0 of rank 0"));
	assert_int_equal(run_ranks(2, 0.5, no_message, &none), 1);
	assert_non_null(
		strstr(none.message, "rank 0 hangs: it did not come to its message to rank 1"));
}

/* --- disagreement --- */

enum difference { OTHER_KIND, OTHER_COUNT, OTHER_ELEMENT, OTHER_GROUP, OTHER_OP, DIFFERENCES };
static enum difference difference;
static int victim;

static bool one_rank_differs(struct member *m)
{
	struct collective c = {.kind = COLLECTIVE_ALL_REDUCE,
		.element = COMM_FP32,
		.group = {.size = 3, .stride = 1, .index = m->comm.rank},
		.count = 64,
		.input = m->input,
		.output = m->input,
		.op = 7,
		.unit = 1};

	memset(m->input, 0, 64 * sizeof(float));
	if (m->comm.rank == victim) {
		c.kind = difference == OTHER_KIND ? COLLECTIVE_REDUCE_SCATTER : c.kind;
		c.count += difference == OTHER_COUNT;
		c.element = difference == OTHER_ELEMENT ? COMM_BYTE : c.element;
		c.group.size -= difference == OTHER_GROUP && victim < 2;
		c.group.first += difference == OTHER_GROUP && victim == 2;
		c.group.size -= difference == OTHER_GROUP && victim == 2;
		c.op += difference == OTHER_OP;
	}
	return comm_run(&m->comm, &c);
}

static void different_calls_are_refused(void **state)
{
	char name[16];

	(void)state;
	for (int d = 0; d < DIFFERENCES; d++)
		for (victim = 0; victim < 3; victim++) {
			struct error error = {0};

			difference = (enum difference)d;
			if (run_ranks(3, 30, one_rank_differs, &error) == 0)
				fail_msg("difference %d of rank %d went unnoticed", d, victim);
			assert_int_equal(error.code, EXIT_CODE_FAULT);
			snprintf(name, sizeof(name), "rank %d:", victim);
			if (strstr(error.message, name) == NULL)
				fail_msg("rank %d is not named in: %s", victim, error.message);
		}
}

/* --- silence --- */

static bool (*awaited)(const struct checked *m, struct comm_group group, int64_t count);

static bool one_rank_stays_away(struct member *m)
{
	if (m->comm.rank == 1) {
		/* Until another rank has given up. */
		while (!segment_aborted(&m->segment))
			usleep(10000);
		return true;
	}
	return awaited(&m->checked, (struct comm_group){.size = 2, .stride = 1, .index = 0}, 64);
}

static void a_silent_rank_is_named(void **state)
{
	static const struct {
		bool (*awaited)(const struct checked *m, struct comm_group group, int64_t count);
		const char *name;
	} kinds[] = {{check_reduce, "all_reduce"}, {check_exchange, "all_to_all"},
		{check_rotation, "send_recv"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(kinds); i++) {
		struct error error = {0};
		double start = clock_now();
		char told[96];

		awaited = kinds[i].awaited;
		assert_int_equal(run_ranks(2, 0.5, one_rank_stays_away, &error), 1);
		assert_int_equal(error.code, EXIT_CODE_FAULT);
		snprintf(told, sizeof(told), "rank 1 hangs: it did not come to %s", kinds[i].name);
		if (strstr(error.message, told) == NULL)
			fail_msg("expected %s, got: %s", told, error.message);
		/* Not before its time. */
		assert_true(clock_now() - start > 0.5);
	}
}

static bool give_up(struct member *m)
{
	if (m->comm.rank == 1)
		return segment_fault(&m->segment, EXIT_CODE_FAULT, "as the test wants");
	return check_reduce(
		&m->checked, (struct comm_group){.size = 2, .stride = 1, .index = 0}, 64);
}

static void a_fault_ends_all_waits(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(2, 0, give_up, &error), 2);
	assert_string_equal(error.message, "as the test wants");
}

/* A rank can read in the others' windows, and write only in its own. */
static bool write_elsewhere(struct member *m)
{
	signal(SIGSEGV, SIG_DFL); /* not cmocka's */
	*(volatile float *)segment_window(&m->segment, m->comm.rank) = 1;
	if (m->comm.rank == 0)
		*(volatile float *)segment_window(&m->segment, 1) = 1;
	return true;
}

static void windows_are_protected(void **state)
{
	struct error error = {0};

	(void)state;
	assert_int_equal(run_ranks(2, 5, write_elsewhere, &error), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_follow_the_tree),
		cmocka_unit_test(the_order_matters),
		cmocka_unit_test(subtrees_give_the_same_bits),
		cmocka_unit_test(exact_sums_over_ranks),
		cmocka_unit_test(wire_bytes),
		cmocka_unit_test(messages_come_in_order),
		cmocka_unit_test(other_messages_are_refused),
		cmocka_unit_test(different_calls_are_refused),
		cmocka_unit_test(a_silent_rank_is_named),
		cmocka_unit_test(a_fault_ends_all_waits),
		cmocka_unit_test(windows_are_protected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
