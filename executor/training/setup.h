/* Private to rank_train: everything that a rank of a training run holds, made before the first step
 * and given back after the last one. */
#ifndef EXECUTOR_TRAINING_SETUP_H
#define EXECUTOR_TRAINING_SETUP_H

#include "executor/checkpoints/checkpoints.h"
#include "executor/compute/compute.h"
#include "executor/interpreter/interpreter.h"
#include "executor/launch/launch.h"
#include "executor/ranks/ranks.h"
#include "executor/training/open_gpu.h"

/* The bytes that one rank tells the others after each step. */
struct step_exchange {
	struct exact_sum loss;
	uint32_t stop; /* this rank was asked to */
};

struct trainer {
	struct segment *segment;
	struct cluster cluster;
	struct arena arena;
	struct fault fault;
	struct plan_file file;
	struct schedule *schedule;
	const struct program *program; /* of this rank, */
	int program_ranks;             /* which so many consecutive ones have */
	const struct kernels *kernels; /* of sums, also on the null device */
	bool null_device, on_gpu;
	struct gpu gpu;
	struct buffers *states; /* resident buffers where the host can work on them */
	struct kernel_context context, background;
	struct data data;
	struct buffers buffers;
	struct comm comm;
	struct compute compute;
	struct expectation expected;
	struct interpreter interpreter;
	struct recorder recorder;
	struct checkpointer checkpointer;
	struct manifest resumed; /* folder NULL: from the start */
	int64_t first_step;
	void *scratch;                   /* in the heap */
	struct step_exchange *exchanged; /* [ranks] */
	int64_t undeclared, pss_before, device_used;
	int64_t large_bytes; /* of the heap, in large pages */
	bool stopping;       /* some rank was asked to: no further step */
};

/* Reads the plan, joins the others, takes memory, rehearses a step, makes or reads the weights:
 * when it returns, all ranks are ready for the first step. After a failure trainer_close is due
 * too. */
bool trainer_open(struct trainer *trainer, struct error *error);
void trainer_close(struct trainer *trainer);

/* Moves all that the heap has used so far to large pages; to be called between steps. The rehearsal
 * does not show what a step uses: that depends on how late its collectives are. */
void trainer_large_pages(struct trainer *trainer);

const struct job *trainer_job(const struct trainer *trainer);
/* The kernels of the schedule's operations; trainer->kernels are those of the host. */
const struct kernels *trainer_kernels(const struct trainer *trainer);
struct weights trainer_weights(struct trainer *trainer);

#endif
