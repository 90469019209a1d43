/* How much more memory a plan may need than predicted: 80 % of runs need less than prediction and
 * doubt (docs/planner.md). A table has a row for each thing that is not known. Rows are assumed to
 * be independent, so their squares add up. */
#include "planner/evaluation/evaluation.h"

#include <math.h>

enum { MIB = 1 << 20 };

/* How many times a row counts; 0: what it stands for is known. */
typedef int times(const struct question *question, const struct plan *plan);

static int predicted(const struct question *question, const struct plan *plan)
{
	(void)question;
	return plan->runtime != RUNTIME_SHARDPLAN;
}

static int predicted_ours(const struct question *question, const struct plan *plan)
{
	return !predicted(question, plan);
}

/* Peaks of DDP are nanotron's, whose stage 0 it is. */
static int unseen_runtime(const struct question *question, const struct plan *plan)
{
	static const unsigned unseen = 1u << RUNTIME_DEEPSPEED | 1u << RUNTIME_INTERNEVO;
	(void)question;
	return unseen >> plan->runtime & 1;
}

/* What all published peaks are of: blocks of a norm, attention, a norm and an MLP. */
static int unseen_blocks(const struct question *question, const struct plan *plan)
{
	const struct architecture *a = &question->model->architecture;
	(void)plan;
	return a->experts > 0 || a->kv_rank > 0 || a->encoder_layers > 0 ||
	       a->block != BLOCK_PRE_NORM;
}

/* Replicas have a communicator of their own. */
static int unnamed_nccl(const struct question *question, const struct plan *plan)
{
	if (question->topology->overheads.communicator_bytes > 0 || plan_ranks(plan) == 1 ||
		plan->runtime == RUNTIME_SHARDPLAN ||
		plan_libraries(plan).version[LIBRARY_NCCL] > 0)
		return 0;
	return strategy_is_hybrid(plan->strategy) && plan->mesh.replicate > 1 ? 2 : 1;
}

static int unmeasured_context(const struct question *question, const struct plan *plan)
{
	static const unsigned measured = 1u << GENERATION_AMPERE | 1u << GENERATION_HOPPER;
	const struct topology *topology = question->topology;
	(void)plan;
	return topology->overheads.context_bytes == 0 &&
	       !(measured >> topology->device.generation & 1);
}

static const struct {
	const char *what;
	double share;  /* of the predicted bytes */
	int64_t bytes; /* added to that share */
	times *times;
	const char *source;
} rows[] = {
	{"the prediction", 0.04, 0, predicted,
		"31 published peaks under PyTorch, most of what its allocator had reserved"},
	{"the prediction", 0.01, 0, predicted_ours, "six plans on an H100"},
	{"a runtime without a published peak", 0.03, 0, unseen_runtime,
		"the means of six sources of peaks differ by 2.5 %"},
	{"blocks without a published peak", 0.03, 0, unseen_blocks,
		"the means of six sources of peaks differ by 2.5 %"},
	{"the version of NCCL", 0, 400 * MIB, unnamed_nccl,
		"a communicator took 688 MiB before 2.22 (NVIDIA/nccl issue 964), 288 since"},
	{"the context of this device", 0, 400 * MIB, unmeasured_context,
		"contexts of A100 and H100 were seen to take 0.47 to 0.92 GiB; 0.49 is predicted"},
};
_Static_assert(COUNT_OF(rows) == DOUBTS_MAX, "one of the answer for each");

static double row_bytes(
	int row, const struct question *question, const struct plan *plan, double needed)
{
	return rows[row].times(question, plan) *
	       (rows[row].share * needed + (double)rows[row].bytes);
}

double memory_doubt(const struct question *question, const struct plan *plan, double needed)
{
	double sum = 0;
	if (question->topology->device.kind != DEVICE_GPU)
		return 0;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		double bytes = row_bytes(i, question, plan, needed);
		sum += bytes * bytes;
	}
	return sqrt(sum);
}

int memory_doubts(const struct question *question, const struct plan *plan, double needed,
	struct doubt doubts[DOUBTS_MAX])
{
	int n = 0;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		double bytes = row_bytes(i, question, plan, needed);
		if (bytes > 0 && question->topology->device.kind == DEVICE_GPU)
			doubts[n++] = (struct doubt){rows[i].what, (int64_t)bytes, rows[i].source};
	}
	return n;
}
