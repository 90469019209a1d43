/* Shared by the tests of this folder: small models, plans from options, a training run. */
#ifndef TESTS_EXECUTOR_SUPPORT_H
#define TESTS_EXECUTOR_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "executor/checkpoints/shards.h"
#include "executor/compute/compute.h"
#include "executor/executor.h"
#include "executor/interpreter/interpreter.h"

/* Odd sizes: heads of 6, widths that are no multiple of anything, padding in every unit. */
#define TINY_GPT2                                                                                  \
	"shardplan: model/1\nname: tiny-gpt2\nfamily: gpt2\nlayers: 3\nhidden: 18\nheads: 3\n"     \
	"ffn: 37\nvocab: 259\ncontext: 16\n"
#define TINY_LLAMA                                                                                 \
	"shardplan: model/1\nname: tiny-llama\nfamily: llama\nlayers: 2\nhidden: 20\nheads: 4\n"   \
	"kv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\n"
#define TINY_QWEN                                                                                  \
	"shardplan: model/1\nname: tiny-qwen\nfamily: qwen3\nlayers: 2\nhidden: 20\nheads: 4\n"    \
	"kv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\ntied_head: true\n"            \
	"qkv_bias: true\n"

#define TINY_MIXTRAL                                                                               \
	"shardplan: model/1\nname: tiny-mixtral\nfamily: mixtral\nlayers: 2\nhidden: 20\n"         \
	"heads: 4\nkv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\nexperts: 3\n"       \
	"experts_per_token: 2\nexpert_ffn: 23\n"

/* Multiples of 16 but for the vocabulary, and GPUs for them that have fp8. */
#define TWO_GPUS                                                                                   \
	"shardplan: topology/1\nname: two\nnodes: 1\ndevices_per_node: 2\ndevice:\n"               \
	"  name: new\n  kind: gpu\n  generation: hopper\n  memory: 80GiB\n"                        \
	"  memory_bandwidth: 3TB/s\n  fp32: 60TFLOPS\n  bf16: 900TFLOPS\n  fp8: 1800TFLOPS\n"      \
	"  multiprocessors: 132\nfabric:\n  kind: nvswitch\n  bandwidth: 300GB/s\n"                \
	"  latency: 3us\n  channels: 12\nhost:\n  memory: 1TiB\n  memory_bandwidth: 100GB/s\n"     \
	"  cores: 64\n  pcie_bandwidth: 10GB/s\n  cpu: amd\n"
#define WHOLE_GPT2                                                                                 \
	"shardplan: model/1\nname: gpt2\nfamily: gpt2\nlayers: 2\nhidden: 32\nheads: 2\n"          \
	"ffn: 48\nvocab: 259\ncontext: 16\n"
#define WHOLE_LLAMA                                                                                \
	"shardplan: model/1\nname: llama\nfamily: llama\nlayers: 2\nhidden: 32\nheads: 4\n"        \
	"kv_heads: 2\nhead_dim: 8\nffn: 48\nvocab: 259\ncontext: 16\n"

struct run {
	struct arena arena;
	struct plan_file file;
	struct schedule *schedule;
	struct measurement measurement;
	struct error error;
};

/* The plan that the options ("strategy=FULL_SHARD wrap=blocks:2 ...") make for a model on `ranks`
 * devices of this machine. Fails the test when they contradict each other. */
void run_plan(struct run *run, const char *model, int64_t ranks, const char *options);
/* Does the same with `per_node` of the ranks on each of several nodes. */
void run_plan_nodes(
	struct run *run, const char *model, int64_t ranks, int64_t per_node, const char *options);
/* Does the same on a topology, given as the text of its file. */
void run_plan_on(struct run *run, const char *model, const char *topology, const char *options);
/* Trains with job->plan filled in. False when it failed; the error is in run->error. */
bool run_train(struct run *run, struct executor_job *job);
void run_finish(struct run *run);

/* That nobody listens at. */
int free_port(void);

/* A job on the text that ships with the repository. */
struct executor_job run_job(int64_t steps);

/* One rank inside the test's own process. With `peers` false it is alone (copies to itself), with
 * true it is rank 0 of many whose data never comes: for memory and order, not for values. */
struct solo {
	struct run *run;
	struct arena arena;
	void *memory;
	int64_t capacity;
	struct buffers buffers;
	struct comm comm;
	struct kernel_context context, background;
	struct data data;
	struct compute compute;
	struct interpreter interpreter;
};
void solo_open(struct solo *solo, struct run *run, const struct kernels *kernels, bool peers,
	struct training training);
/* Fails the test when the step does. */
void solo_step(struct solo *solo, int64_t step);
void solo_close(struct solo *solo);
/* The parameter shard of a unit, in the master dtype; NULL when the unit has none. */
float *solo_shard(const struct solo *solo, int unit);

/* To be called first in main(): a rank process of a test program never comes back. */
void run_as_rank(int argc, char **argv);

/* The invariants: blocks tile the range, no two free neighbours, sums agree. */
bool heap_check(const struct heap *heap);

#endif
