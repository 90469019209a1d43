/* The job of the executor and its reports: types shared by all its folders. */
#ifndef EXECUTOR_JOB_H
#define EXECUTOR_JOB_H

#include "executor/job/fault.h"
#include "executor/job/nccl_wish.h"
#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* The operations that are held to predicted times: those of the device, or transfers between ranks
 * or tiers. */
enum pace { PACE_NONE = 0, PACE_COMPUTE = 1, PACE_COLLECTIVES = 2, PACE_ALL = 3 };

/* The learning rate after the warm-up, until the last step of the run. */
enum lr_schedule { LR_CONSTANT, LR_LINEAR, LR_COSINE };
extern const char *const lr_schedule_names[];

/* Does a GPU get a step as one CUDA graph? If it is possible, or as requested. */
enum graph_wish { GRAPHS_AUTO, GRAPHS_ON, GRAPHS_OFF };

struct training {
	int64_t steps;
	int64_t seed;
	double learning_rate;
	int64_t warmup; /* steps of linear warm-up */
	enum lr_schedule lr_schedule;
	double min_lr; /* what it decays to */
	double beta1, beta2, epsilon, weight_decay;
};

/* The defaults of docs/commands.md. */
struct training training_defaults(void);

/* The learning rate of step `step`, from 0. With s = step + 1 and w steps of warm-up out of n: rate
 * * s / w in the warm-up, then with p = (s - 1 - w) / (n - w): linear rate - (rate - min) p, cosine
 * min + (rate - min) (1 + cos(pi p)) / 2, as get_cosine_schedule_with_warmup of transformers. */
double training_learning_rate(const struct training *training, int64_t step);

struct progress {
	int64_t step, steps; /* `step` of them are done */
	double loss, gradient_norm, step_time, tokens_per_s;
};

/* What a checkpoint records of the run that wrote it. */
struct checkpoint_info {
	const char *folder; /* of the checkpoint itself */
	int64_t step;       /* so many are done */
	struct model *model;
	struct training training;
	const char *plan; /* in a line */
	int64_t ranks, seq_len, global_batch, data_tokens;
	bool has_moments;  /* AdamW's; SGD has none */
	const char *run;   /* id of the run; NULL: 0.1.0 gave none */
	bool newest;       /* found as the newest of a run's folder */
	const char *notes; /* lines for people: what was newer and damaged; written by 0.1.0 */
};

/* Who started this process as one of many ranks; ranks = 1: no launcher did. */
struct launcher {
	const char *name; /* "mpirun", "srun", "mpiexec", "torchrun" */
	int rank, ranks;
	int local_rank, local_ranks; /* local_ranks 0 = the launcher does not say */
	bool starts_mpi;             /* ranks can find each other by MPI; else over TCP: */
	const char *host;            /* the first rank's machine; NULL with MPI */
	int port;                    /* where it listens there */
	double join_timeout;         /* s until all must have come; 0 = LAUNCHER_JOIN_TIMEOUT */
};
#define LAUNCHER_JOIN_TIMEOUT 60.0

struct executor_job {
	const struct plan_file *plan; /* of runtime shardplan; the schedule is built from it */
	const char *plan_text;        /* the same as text: what the rank processes read */
	struct training training;
	const char *data;   /* path of a text file (tokens are bytes) or a .bin file of tokens */
	const char *device; /* "host", "cuda" or "null" (no arithmetic, for tests); NULL = host */
	const char *transport; /* of cuda: "nccl" or "device" (ranks share a GPU); NULL: NCCL where
				* every rank has a GPU */
	bool one_process; /* ranks with a GPU each are threads, as those that share one always are:
			   * for tests, whose machine is a process's */
	enum graph_wish cuda_graphs;
	struct nccl_wish nccl;
	int threads;         /* of each rank on CPUs; 0 = those that its part of the CPUs allows */
	const char *kernels; /* name of a table; NULL = cpu */
	const char *program; /* of the rank processes; NULL = this executable */
	const char *checkpoint; /* folder for checkpoints; NULL = none. One is written at the end */
	int64_t checkpoint_every;   /* steps; 0 = only at the end */
	int64_t checkpoint_keep;    /* the newest so many stay; 0 = all */
	bool checkpoint_background; /* a thread writes a copy of the state (12 bytes a parameter
				     * and shard group) while training goes on */
	const char *weights;  /* .safetensors file or its folder to start from; NULL = by seed */
	const char *resume;   /* a checkpoint or a folder of them; NULL = from the start. steps
			       * counts from the start of the first run */
	bool resume_or_older; /* `resume` was the newest of its folder: where its files turn out
			       * damaged, an older one is taken. A folder of them always means so */
	const char *fault;    /* seeded faults for tests, docs/reliability.md; NULL = none */
	/* Predicted; for watchdog deadlines and pacing. May be NULL without `pace`. */
	const struct timeline *expected;
	const struct timeline *const *expected_of_classes; /* of a pipeline: of each stage */
	unsigned pace; /* PACE_*: which operations last as long as predicted, at least */
	double collective_timeout; /* s until a rank that does not come is called hung; 0 = by the
				    * prediction, and ten minutes or join_timeout where a GPU is set
				    * up and in its first two steps */
	double slow_motion;        /* >= 1, 0 = 1: that many times as long, while measured times are
				    * divided by it */
	bool all_plans;            /* level "plan" was asked for, which NCCL's sums cannot keep */
	bool any_rounding; /* bits need only repeat for this plan (level "run"): a GPU may then
			    * round where other plans would not */
	struct launcher launcher; /* ranks > 1: this process is for one rank of them, and only the
				   * first one's is told and measured. Zeroed: starts all ranks */
	void (*report)(
		const struct progress *progress, void *data); /* rank 0, per step; may be NULL */
	/* Called several times a second while `done` steps are done; may be NULL. */
	void (*alive)(int64_t done, int64_t steps, void *report_data);
	/* Called when a signal asks for an end after this step; may be NULL. */
	void (*stopping)(void *report_data);
	/* Called with a line that people should see, such as what the ranks found damaged; may be
	 * NULL. What executor_find_checkpoint has noted is not said again. */
	void (*note)(const char *line, void *report_data);
	void *report_data;
};

/* The argv[1] of a rank process. */
#define EXECUTOR_RANK_ARGUMENT "--shardplan-rank"

struct calibrate_options {
	bool choose;          /* GPUs: between cuBLASLt's ways of doing each product */
	bool quick;           /* seconds instead of a minute */
	const int64_t *ranks; /* group sizes for collectives; NULL = 2, 4, 8 */
	int n_ranks;
	const char *program; /* as in executor_job */
	struct nccl_wish nccl;
	/* ranks > 1: a cluster's, of which the first one measures its node and is told; the others
	 * only take part, and their `calibration` stays empty. */
	struct launcher launcher;
	void (*report)(const char *line, void *data); /* one line per measurement; may be NULL */
	void *report_data;
};

#endif
