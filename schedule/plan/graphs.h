/* What Megatron-LM captures as CUDA graphs: both passes whole, or parts of each block. The host
 * launches a graph at once, and issues the rest kernel by kernel. */
#ifndef SCHEDULE_GRAPHS_H
#define SCHEDULE_GRAPHS_H

#include "models/models.h"
#include "schedule/plan/names.h"

/* X(suffix, name): Megatron-Core's scopes (--cuda-graph-modules, until 2026 --cuda-graph-scope;
 * transformer_layer.py): attention with its norm; a dense block's MLP with its norm; all that
 * belongs to experts, with the norm; the norm, the router and shared experts; how many rows each
 * expert gets. The first one is --cuda-graph-impl full_iteration. */
#define GRAPH_SCOPES(X)                                                                            \
	X(FULL_ITERATION, "full_iteration")                                                        \
	X(ATTN, "attn")                                                                            \
	X(MLP, "mlp")                                                                              \
	X(MOE, "moe")                                                                              \
	X(MOE_ROUTER, "moe_router")                                                                \
	X(MOE_PREPROCESS, "moe_preprocess")

enum graph_scope {
#define X(suffix, name) GRAPH_##suffix,
	GRAPH_SCOPES(X)
#undef X
		GRAPH_SCOPE_COUNT
};
#define GRAPH_BIT(suffix) (1u << GRAPH_##suffix)

extern const char *const graph_scope_names[];

/* How the knob is decoded; no name: "off". */
extern const struct field_decoded cuda_graph_scope_decoded;
struct name_set graph_scopes_of(unsigned of, struct arena *arena);

struct plan;

/* Is this leaf of the model in a graph of its block? Not so where graphs are whole passes. */
bool plan_captures(const struct plan *plan, const struct model *model, int leaf);

/* Is it the first one of such a graph? */
bool plan_begins_graph(const struct plan *plan, const struct model *model, int leaf);

/* Has the model a leaf that this scope would capture? */
bool model_has_graph_scope(const struct model *model, enum graph_scope scope);

#endif
