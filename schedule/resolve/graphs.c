/* CUDA graphs: what each scope asks of the model and the plan. From transformer_config.py of
 * Megatron-Core (d98e8a64), which refuses the same. */
#include "schedule/resolve/resolve.h"

static bool has(const struct plan *plan, enum graph_scope scope)
{
	return plan->cuda_graph_scope.of >> scope & 1;
}

/* What is captured may not wait for the device (full_cuda_graph.py). */
static const char *passes_conflict(const struct plan *plan, const struct model *model)
{
	bool waits = plan->mesh.pipeline > 1 &&
		     (runtime_of(plan->runtime)->waits_for_messages >> plan->pipeline_schedule & 1);
	bool counts = model->architecture.experts > 0 && plan->capacity_factor <= 0;
	return plan->cuda_graph_scope.of != GRAPH_BIT(FULL_ITERATION)
		       ? "full_iteration is all of both passes; leave the others out"
	       : waits  ? "stages wait for messages; use --pipeline-schedule interleaved"
	       : counts ? "the host reads how many rows experts get; use "
			  "attn+moe_router+moe_preprocess, or give --capacity-factor"
			: NULL;
}

static const char *blocks_conflict(const struct plan *plan)
{
	bool drops = plan->capacity_factor > 0;
	bool all = has(plan, GRAPH_MOE), routes = has(plan, GRAPH_MOE_ROUTER);
	return plan_checkpoints(plan, CHECKPOINTING_FULL)
		       ? "blocks that are computed again whole have no graphs; use "
			 "--activation-checkpointing selective"
	       : all && routes ? "moe holds moe_router; leave one of them out"
	       : all && !drops
		       ? "the host reads how many rows experts get; use moe_router+moe_preprocess, "
			 "or give --capacity-factor"
	       : all && plan->expert_overlap
		       ? "rows travel beside another micro-batch; use moe_router, or "
			 "--expert-overlap off"
	       : has(plan, GRAPH_MOE_PREPROCESS) && !routes
		       ? "moe_preprocess goes with moe_router; name both"
	       : has(plan, GRAPH_MOE_PREPROCESS) && drops &&
			       plan->expert_dispatch != DISPATCH_DEEPEP
		       ? "with a capacity the host reads how many rows are dropped; leave "
			 "moe_preprocess out"
	       : routes && plan->recompute_modules.of >> RECOMPUTE_MOE & 1
		       ? "moe is computed again with its router; leave moe_router out"
		       : NULL;
}

bool plan_check_graphs(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct name_set *scopes = &plan->cuda_graph_scope;
	const char *why = has(plan, GRAPH_FULL_ITERATION) ? passes_conflict(plan, model)
							  : blocks_conflict(plan);
	if (scopes->of == 0)
		return true;
	for (int s = 0; s < GRAPH_SCOPE_COUNT; s++)
		if (has(plan, (enum graph_scope)s) &&
			!model_has_graph_scope(model, (enum graph_scope)s))
			return error_set(error, EXIT_CODE_USAGE,
				"--cuda-graph-scope %s: no block of the model has that; leave %s "
				"out",
				scopes->text, graph_scope_names[s]);
	return why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--cuda-graph-scope %s: %s", scopes->text, why);
}
