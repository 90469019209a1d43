/* Experts of Megatron-Core (transformer/moe/experts.py, fusions/fused_bias_geglu.py, d98e8a64), and
 * dispatchers of torchtitan, which copy rows and add them up by an index.
 *
 * Megatron-Core's gated activation is one kernel, but a clamp before it is not: two clamps and a
 * copy that puts both halves together again; in backward a mask for each, and a copy. A bias behind
 * the last product belongs to rows that were weighed before it, so it is weighed, too, and added
 * expert by expert (`_apply_bias`): b*p, t + b*p and a copy of all; in backward a copy, and g*p and
 * g*b, each made and added up. */
#include "simulator/costs/experts.h"

#include <math.h>

/* Does the model's family clamp gate and up projections (swiglu_limit)? */
static bool clamps(const struct architecture *a, enum module_kind kind)
{
	return kind == MODULE_EXPERTS_ACTIVATION && a->family == FAMILY_GPT_OSS;
}

static bool adds_bias(const struct architecture *a, enum module_kind kind)
{
	return kind == MODULE_EXPERTS_DOWN && a->mlp_bias;
}

/* The dispatcher of gathered tokens (MoEAllGatherTokenDispatcher, cac60ce4c8, 0.6), in forward and
 * in backward: elements of rows, and of gathered tokens, that are read and written at the rate of
 * memory; rows that are copied by an index, one element at a time; launches.
 *
 * To experts: a gather of rows from tokens, and one into the order of experts; in backward both are
 * scatter_add to zeros. From experts: a scatter and a scatter_add, whose zeros are copied first,
 * and the weight between them; in backward two gathers, and gradients of rows and of their weights.
 * Of the small launches two thirds are the router's (its balancing loss and top-k), the rest find
 * out which rows are whose (masked_select, nonzero, argsort, histc). */
struct dispatcher {
	double rows[2], tokens[2], indexed[2];
	int launches[2];
};
static const struct dispatcher to_experts = {{0, 1}, {0, 1}, {2, 2}, {38, 22}};
static const struct dispatcher from_experts = {{5, 6}, {3, 0}, {2, 2}, {7, 6}};

/* Elements a second of PyTorch's gather and scatter of two bytes until its 2.7, which has one
 * thread for each element: 33.5 million in 0.224 ms, in fp32 0.259, scatter_add 0.266 (issue
 * 121389); index_select 21 million in 0.136 ms (issue 151612). Rows that are added up by an index
 * take as long still. On B200 403 million take 1.85 ms (torchao, pull 4623). */
static double indexed_rate(const struct machine *machine)
{
	return machine->topology->device.generation == GENERATION_BLACKWELL ? 218e9 : 150e9;
}

/* Without fused kernels (moe_utils.py, permute and unpermute, d98e8a64) rows are copied by an
 * index, which PyTorch does as fast as memory since 2.8, and added up by one, element by element:
 * in backward where they were copied, in forward where they come back, each instead of a kernel
 * that reads and writes a row, and after zeros for the tokens. A stable sort of all tokens and
 * experts finds the order. */
static const struct dispatcher unfused_to = {{0, -2}, {0, 1}, {0, 1}, {12, 4}};
static const struct dispatcher unfused_from = {{-2, 0}, {1, 0}, {1, 0}, {4, 3}};

/* torchtitan's dispatchers (models/common/token_dispatcher.py, 7e3f2ebc): rows are copied to
 * experts by an index, so backward adds their gradients up (index_put), and results are added up by
 * one (deterministic_scatter_add, which is index_put). By all-to-all a second index puts rows in
 * the order of experts: backward adds up there, too. DeepEP brings tokens, which are copied and
 * added up on the rank of the experts alone (distributed/deepep/deepep.py). Launches are those of
 * the sort of an index. */
enum exchange { EXCHANGE_NONE, EXCHANGE_ALL_TO_ALL, EXCHANGE_DEEPEP, EXCHANGE_COUNT };
static const struct dispatcher index_to[EXCHANGE_COUNT] = {
	[EXCHANGE_NONE] = {{0, -3}, {0, 1}, {0, 1}, {0, 10}},
	[EXCHANGE_ALL_TO_ALL] = {{0, -3}, {0, 1}, {0, 1}, {0, 10}},
	[EXCHANGE_DEEPEP] = {{-2, -3}, {0, 0}, {0, 0}, {0, 0}},
};
static const struct dispatcher index_from[EXCHANGE_COUNT] = {
	[EXCHANGE_NONE] = {{-1, -1}, {1, 0}, {1, 0}, {10, 0}},
	[EXCHANGE_ALL_TO_ALL] = {{-1, -4}, {1, 0}, {1, 1}, {10, 10}},
	[EXCHANGE_DEEPEP] = {{-3, -7}, {1, 1}, {1, 1}, {0, 0}},
};

/* Results are weighed in fp32. Not compiled, that is two launches more than one forward, and four
 * more than one in backward. */
static const struct copies weighed_apart = {{8, 15}, {2, 4}};

static enum exchange exchange_of(const struct plan *plan, const struct model *model)
{
	return !division_sends_rows(&model->division)     ? EXCHANGE_NONE
	       : plan->expert_dispatch == DISPATCH_DEEPEP ? EXCHANGE_DEEPEP
							  : EXCHANGE_ALL_TO_ALL;
}

static const struct dispatcher *dispatcher_of(
	const struct plan *plan, const struct model *model, enum module_kind kind)
{
	bool gathers = model->division.gathers_tokens, to = kind == MODULE_ROUTER;

	if (!to && kind != MODULE_EXPERTS_DOWN)
		return NULL;
	if (runtime_of(plan->runtime)->experts.adds_by_index)
		return to ? &index_to[exchange_of(plan, model)]
			  : &index_from[exchange_of(plan, model)];
	if (gathers)
		return to ? &to_experts : &from_experts;
	return !plan->unfused_permute ? NULL : to ? &unfused_to : &unfused_from;
}

/* What comes through all-to-all is put in the order of experts by sort_chunks_by_idxs: one split
 * and one concatenation of a piece for each expert of all ranks, of rows and, on their way there,
 * of their weights. A piece takes the issuing thread a third of a launch [U]. */
static double pieces_sorted(
	const struct plan *plan, const struct model *model, enum module_kind kind)
{
	const struct architecture *a = &model->architecture;
	bool sorts = plan->unfused_permute && plan->expert_dispatch == DISPATCH_ALL_TO_ALL &&
		     architecture_experts_held(a) > 1;

	return sorts ? (double)a->experts * (kind == MODULE_ROUTER ? 2 : 1) / 3 : 0;
}

static double dispatcher_operations(const struct machine *machine, const struct plan *plan,
	const struct model *model, const struct dispatcher *dispatcher, bool back,
	struct cost *cost)
{
	const struct row_counts rows = model_rows(model, plan->micro_batch, plan->seq_len);
	bool gathers = model->division.gathers_tokens;
	double hidden = (double)model->architecture.hidden;
	double row = (double)(gathers ? rows.received : rows.sent) * hidden;
	double token = (double)(gathers ? rows.gathered : rows.tokens) * hidden;
	double width = (double)dtype_bytes(plan->param_dtype), indexed = dispatcher->indexed[back];
	double streamed = (dispatcher->rows[back] * row + dispatcher->tokens[back] * token) *
			  width / machine->memory_bandwidth;
	double launches = dispatcher->launches[back];

	cost->memory += streamed + 2 * indexed * row * width / machine->memory_bandwidth;
	cost->device += streamed + launches * machine->kernel_overhead +
			fmax(indexed * row / indexed_rate(machine),
				2 * indexed * row * width / machine->memory_bandwidth);
	return launches;
}

/* PyTorch's operations take less of the issuing thread than what the runtime's own count for. */
static double launched(const struct plan *plan, double launches)
{
	return launches * runtime_of(RUNTIME_PYTORCH_FSDP2)->host_per_kernel /
	       plan_host_per_kernel(plan);
}

/* Passes over what a leaf makes, operation by operation. */
static double add_copies(const struct machine *machine, const struct copies *copies,
	double elements, const struct plan *plan, bool back, double times, struct cost *cost)
{
	double bytes = copies->elements[back] * elements * (double)dtype_bytes(plan->param_dtype);
	double launches = copies->launches[back] * times;

	cost->memory += bytes / machine->memory_bandwidth;
	cost->device += bytes / machine->memory_bandwidth + launches * machine->kernel_overhead;
	return launches;
}

double experts_operations(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, struct cost *cost)
{
	const struct architecture *a = &model->architecture;
	const struct expert_rules *rules = &runtime_of(plan->runtime)->experts;
	enum module_kind kind = model->modules[module].kind;
	const struct dispatcher *dispatcher = dispatcher_of(plan, model, kind);
	bool weighs = rules->adds_by_index && kind == MODULE_EXPERTS_DOWN && !plan->compile;
	bool back = pass != PASS_FORWARD;
	double launches = 0;

	/* Most leaves end here; simulations ask for each of them many times. */
	if (pass == PASS_BACKWARD_WEIGHT ||
		!(dispatcher != NULL || weighs || adds_bias(a, kind) || clamps(a, kind)))
		return 0;
	const struct row_counts rows = model_rows(model, plan->micro_batch, plan->seq_len);
	double received = (double)rows.received;
	if (dispatcher != NULL)
		launches += dispatcher_operations(machine, plan, model, dispatcher, back, cost) +
			    pieces_sorted(plan, model, kind);
	if (weighs)
		launches += add_copies(
			machine, &weighed_apart, received * (double)a->hidden, plan, back, 1, cost);
	if (adds_bias(a, kind))
		launches += add_copies(machine, &rules->bias, received * (double)a->hidden, plan,
			back, (double)architecture_experts_held(a), cost);
	if (clamps(a, kind))
		launches += add_copies(machine, &rules->clamp, received * (double)a->expert_ffn,
			plan, back, 1, cost);
	return launched(plan, launches);
}
