/* Causal attention's forward, or its backward, as a graph of cuDNN's operations, and the plans that
 * cuDNN makes of it. Nothing here needs a GPU but a handle and attention_graph_run: with a
 * description of a device in place of the handle, tests build plans for any. */
#ifndef KERNELS_CUDA_ATTENTION_GRAPH_H
#define KERNELS_CUDA_ATTENTION_GRAPH_H

#include "kernels/cuda/attention_operations.h"

struct cudnn_target {
	const struct cudnn_api *api;
	void *handle; /* of the GPU whose context is current */
	void *device; /* or a finished CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR; NULL with a handle */
};

enum { ATTENTION_DESCRIPTORS = 160 };

struct attention_graph {
	struct cudnn_target target;
	enum attention_pass pass;
	int status; /* the first that was not 0 */
	int n_made;
	void *made[ATTENTION_DESCRIPTORS]; /* all of them, to be destroyed */
	void *tensors[ATTENTION_TENSORS];  /* NULL: not of this pass */
	void *graph, *plan;
	int64_t sums_bytes;      /* of DELTAS, at the workspace's begin */
	int64_t workspace_bytes; /* with these */
};

/* For attention of that shape and strides (pointers unused), in bf16. False: cuDNN refuses it; then
 * too the graph is to be dropped. */
bool attention_graph_build(struct attention_graph *graph, const struct cudnn_target *target,
	enum attention_pass pass, const struct attention_call *shape);
void attention_graph_drop(struct attention_graph *graph);

/* Ways that can be asked for again, that need no more workspace than that and are not known to vary
 * from run to run; the one first that cuDNN thinks best. How many, and what each needs. */
int attention_graph_algorithms(struct attention_graph *graph, int64_t workspace,
	struct attention_algorithm *algorithms, int64_t *bytes, int most);

/* Makes the graph's plan, by that one of cuDNN's proposals. False where it is none of them. */
bool attention_graph_plan(
	struct attention_graph *graph, const struct attention_algorithm *algorithm);

/* Runs the graph on the handle's stream. Returns cuDNN's status, 0 for success. */
int attention_graph_run(
	const struct attention_graph *graph, const struct attention_call *call, void *workspace);

#endif
