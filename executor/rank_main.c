
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "executor/calibration/calibration.h"
#include "executor/executor.h"
#include "executor/launch/launch.h"
#include "executor/training/training.h"
#include "kernels/kernels.h"

static bool run_job(struct segment *segment, struct error *error)
{
	switch (segment->header->job.kind) {
	case JOB_TRAIN:
		return rank_train(segment, error);
	case JOB_COLLECTIVES:
		return rank_time_collectives(segment, error);
	}
	return error_set(error, EXIT_CODE_INTERNAL, "no such job");
}

static bool run_rank(struct segment *segment)
{
	struct board *board = segment_board(segment, segment->rank);
	struct error error = {0};

	atomic_store(&board->op, -1);
	if (!run_job(segment, &error)) {
		atomic_store(&board->state, BOARD_GAVE_UP);
		return error.code != EXIT_CODE_OK ? segment_fault_error(segment, &error) : false;
	}
	atomic_store(&board->state, BOARD_DONE);
	return true;
}

/* --- ranks as threads --- */

struct member {
	pthread_t thread;
	struct segment segment;
	bool started, ok;
};

static void *run_member(void *argument)
{
	struct member *member = argument;

	member->ok = run_rank(&member->segment);
	return NULL;
}

static bool start_member(struct member *member, struct segment *first, int rank)
{
	struct error error = {0};

	/* Each thread has a mapping of its own, as a rank has that is a process. */
	if (!segment_attach(&member->segment, dup(first->fd), rank, &error))
		return segment_fault_error(first, &error);
	member->segment.threads = first->threads;
	if (pthread_create(&member->thread, NULL, run_member, member) != 0)
		return segment_fault(
			first, EXIT_CODE_ENVIRONMENT, "rank %d: no thread can be started", rank);
	member->started = true;
	return true;
}

static bool run_threads(struct segment *segment)
{
	struct arena arena = {0};
	struct rank_threads threads = {.ranks = segment->header->job.ranks};
	struct member *members = ARENA_ARRAY(&arena, struct member, threads.ranks);
	bool ok = true;

	threads.slots = arena_alloc(&arena, (size_t)threads.ranks, sizeof(threads.slots[0]));
	stream_pool_open(&threads.streams, threads.ranks, &arena);
	segment->threads = &threads;
	for (int i = 0; i < threads.ranks && ok; i++)
		ok = start_member(&members[i], segment, i);
	for (int i = 0; i < threads.ranks; i++) {
		if (members[i].started)
			pthread_join(members[i].thread, NULL);
		ok = ok && members[i].ok;
		if (members[i].segment.base != NULL)
			segment_finish(&members[i].segment);
	}
	stream_pool_close(&threads.streams);
	arena_finish(&arena);
	return ok;
}

static bool parse_arguments(int argc, char **argv, int64_t *fd, int64_t *rank)
{
	return argc == 4 && strcmp(argv[1], EXECUTOR_RANK_ARGUMENT) == 0 &&
	       parse_int(argv[2], fd) && parse_int(argv[3], rank) && *fd >= 0 && *fd <= INT32_MAX &&
	       *rank >= 0 && *rank <= INT32_MAX;
}

/* --- a rank process --- */

static struct segment_header *asked_header;

/* Asks for an end as if the launcher had been asked, so all ranks leave after the same step. The
 * next signal is the usual death (SA_RESETHAND). */
static void on_request(int number)
{
	uint32_t none = 0;

	atomic_compare_exchange_strong(&asked_header->stop, &none, (uint32_t)number);
}

/* Only training takes requests: a calibration keeps nothing, and ends at once. */
static void take_requests(struct segment *segment)
{
	const struct sigaction action = {
		.sa_handler = on_request, .sa_flags = SA_RESTART | (int)SA_RESETHAND};

	asked_header = segment->header;
	if (segment->header->job.kind == JOB_TRAIN)
		sigaction(SIGTERM, &action, NULL);
	/* Ctrl-C and a closed terminal are for the launcher, which decides whether anything is to
	 * be kept. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

/* Says why a rank has no segment: in its first page, if that can be had, else to whoever started
 * it. */
static int leave_without_segment(int64_t fd, int64_t rank, const struct error *error)
{
	if (!segment_leave_fault((int)fd, (int)rank, error))
		fprintf(stderr, "shardplan: %s\n", error->message);
	return EXIT_CODE_USAGE;
}

int executor_rank_main(int argc, char **argv)
{
	struct segment segment;
	struct error error = {0};
	int64_t fd = -1, rank = -1;

	if (!parse_arguments(argc, argv, &fd, &rank))
		error_set(&error, EXIT_CODE_USAGE,
			"%s is for rank processes that shardplan starts itself",
			EXECUTOR_RANK_ARGUMENT);
	if (error.code != EXIT_CODE_OK || !segment_attach(&segment, (int)fd, (int)rank, &error))
		return leave_without_segment(fd, rank, &error);
	take_requests(&segment);
	/* Without its launcher no process would read what this rank computes. */
	bool ok = launch_follow_parent(&segment) &&
		  (segment.header->job.one_process ? run_threads(&segment) : run_rank(&segment));
	segment_finish(&segment);
	return ok ? EXIT_CODE_OK : EXIT_CODE_FAULT;
}
