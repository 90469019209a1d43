/* The memory that the processes of one run share: an anonymous file (memfd), so that nothing is
 * left behind however they end, and no name, port or /dev/shm limit is in the way.
 *
 *     header | boards | strings | step results | report | windows, one a rank
 *
 * Everything before the windows is writable for all. A window is writable for its rank only: the
 * others read in it, so no rank can damage another's memory. */
#ifndef EXECUTOR_RANKS_SHARED_SEGMENT_H
#define EXECUTOR_RANKS_SHARED_SEGMENT_H

#include <stdarg.h>
#include <sys/types.h>

#include "base/base.h"
#include "executor/job/job.h"
#include "executor/ranks/board.h"

/* The first fault wins; the others are its consequences. */
struct fault_record {
	_Atomic int32_t state; /* 0 none, 1 being written, 2 there */
	int32_t code;
	char message[sizeof(((struct error *)NULL)->message)];
};

enum job_kind { JOB_TRAIN, JOB_COLLECTIVES };

/* Texts that a job hands to its ranks. */
enum job_text {
	TEXT_PLAN,
	TEXT_DATA,
	TEXT_DEVICE,
	TEXT_KERNELS,
	TEXT_FAULT,
	TEXT_CHECKPOINT,
	TEXT_RESUME,
	TEXT_WEIGHTS,
	TEXT_TRANSPORT,
	TEXT_EXPECTED, /* expectation.h */
	TEXT_LAUNCHER, /* its name, and where the first rank listens: MEETS_OVER_TCP */
	TEXT_HOST,
	TEXT_COUNT
};

/* How the ranks of a run find each other. */
enum meets {
	MEETS_HERE, /* one launcher has started them all */
	MEETS_OVER_MPI,
	MEETS_OVER_TCP,
};

struct job {
	enum job_kind kind;
	int ranks;
	enum meets meets;     /* not here: a launcher started them, on several machines */
	int port, local_rank; /* MEETS_OVER_TCP: of the first rank; on this machine */
	double join_timeout;  /* s until all must have come */
	enum graph_wish cuda_graphs;
	struct nccl_wish nccl;
	bool any_rounding;         /* bits need not be those of other plans */
	int threads;               /* of the kernels, per rank */
	int64_t cpus;              /* that this machine's ranks may run on, all together */
	double collective_timeout; /* s until a rank that does not come is called hung; 0 = never */
	double setup_timeout;      /* GPUs: the same, until the second step has ended */
	double grace;              /* s that ranks may take to leave after a fault */
	double slow_motion;        /* measured times are divided by it; >= 1 */
	struct training training;
	int64_t first_step;   /* > 0: resumed; a damaged checkpoint may make it less */
	bool resume_or_older; /* so that it may */
	char run_id[sizeof(((struct digest *)NULL)->hex)]; /* of the checkpoints; first rank's */
	int64_t checkpoint_every, checkpoint_keep;
	bool checkpoint_background;
	bool one_process; /* ranks are threads, not processes: they share a GPU */
	bool paced;       /* some operations last as long as predicted, at least */
	bool quick;       /* JOB_COLLECTIVES */
};

struct step_result {
	double loss, gradient_norm, step_time;
};

struct segment_header {
	uint64_t magic;
	struct job job;
	pid_t parent; /* of the ranks */
	int64_t bytes, boards, texts[TEXT_COUNT], results, n_results, report, report_bytes, windows,
		window_bytes;
	_Atomic uint32_t abort;
	_Atomic uint32_t stop; /* a signal's number: leave after a step, all after the same one */
	_Atomic int64_t stopped_after; /* steps; 0 = it was not asked for */
	_Atomic int64_t resumed;       /* steps that were done before */
	/* Lines for people, from rank 0; the length grows when they are there. */
	_Atomic uint32_t notes_length;
	char notes[4096];
	struct event steps_done;
	struct fault_record fault;
	int64_t report_length; /* text that rank 0 left at `report` */
};

struct segment {
	int fd;
	int rank; /* -1: the parent, which maps no window */
	char *base;
	int64_t mapped;
	struct segment_header *header; /* = base */
	/* Over machines: the one of this machine's ranks, who then give up together; else NULL. */
	struct segment *shared;
	struct rank_threads *threads; /* ranks that are threads of one process; else NULL */
};

/* `texts` may hold NULLs. window_bytes is only reserved: pages come when they are touched. */
bool segment_create(struct segment *segment, const struct job *job, const char *const *texts,
	int64_t n_results, int64_t report_bytes, int64_t window_bytes, struct error *error);
bool segment_attach(struct segment *segment, int fd, int rank, struct error *error);
/* For a rank that cannot attach: leaves why, prefixed with its number, as the run's fault. False
 * when not even the header can be had. */
bool segment_leave_fault(int fd, int rank, const struct error *error);
void segment_finish(struct segment *segment);

struct board *segment_board(const struct segment *segment, int rank);
char *segment_window(const struct segment *segment, int rank);
/* NULL when that text was not given. */
const char *segment_text(const struct segment *segment, enum job_text text);
struct step_result *segment_results(const struct segment *segment);
char *segment_report(const struct segment *segment);

/* Leaves a document for the launcher. False when it is longer than the room in the segment. */
bool segment_leave_report(struct segment *segment, const struct text *text, struct error *error);

/* Leaves lines for people; what has no room is cut. */
void segment_leave_notes(struct segment *segment, const struct text *lines);

/* The activity of this rank from now on; `segment` is the one that its launcher reads. */
void segment_begin_call(struct segment *segment, enum rank_call call);
void segment_end_call(struct segment *segment);

/* Records the fault unless there is one, and makes all ranks give up. Always false. */
bool segment_fault(struct segment *segment, enum exit_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool segment_fault_error(struct segment *segment, const struct error *error);
bool segment_aborted(const struct segment *segment);
/* The fault that was recorded, as an error; true when there is none. */
bool segment_outcome(const struct segment *segment, struct error *error);

#endif
