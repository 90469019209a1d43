/* Megatron-Core's experts (transformer/moe/experts.py, fusions/fused_bias_geglu.py, d98e8a64).
 *
 * Its gated activation is one kernel, but a clamp before it is not: two clamps and a copy that puts
 * both halves together again; in backward a mask for each, and a copy. A bias behind the last
 * product belongs to rows that were weighed before it, so it is weighed, too, and added expert by
 * expert (`_apply_bias`): b*p, t + b*p and a copy of all; in backward a copy, and g*p and g*b, each
 * made and added up. */
#include "simulator/costs/experts.h"

/* Does the model's family clamp gate and up projections (swiglu_limit)? */
static bool clamps(const struct architecture *a, enum module_kind kind)
{
	return kind == MODULE_EXPERTS_ACTIVATION && a->family == FAMILY_GPT_OSS;
}

static bool adds_bias(const struct architecture *a, enum module_kind kind)
{
	return kind == MODULE_EXPERTS_DOWN && a->mlp_bias;
}

double experts_operations(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, struct cost *cost)
{
	const struct architecture *a = &model->architecture;
	const struct expert_rules *rules = &runtime_of(plan->runtime)->experts;
	enum module_kind kind = model->modules[module].kind;
	bool is_bias = adds_bias(a, kind), back = pass != PASS_FORWARD;

	if (!(is_bias || clamps(a, kind)) || pass == PASS_BACKWARD_WEIGHT)
		return 0;
	const struct copies *copies = is_bias ? &rules->bias : &rules->clamp;
	const struct row_counts rows = model_rows(model, plan->micro_batch, plan->seq_len);
	int64_t width = is_bias ? a->hidden : a->expert_ffn;
	int64_t experts = a->experts_held > 0 ? a->experts_held : a->experts;
	double elements = copies->elements[back] * (double)(rows.received * width);
	double bytes = elements * (double)dtype_bytes(plan->param_dtype);
	double launches = copies->launches[back] * (double)(is_bias ? experts : 1);

	cost->memory += bytes / machine->memory_bandwidth;
	cost->device += bytes / machine->memory_bandwidth + launches * machine->kernel_overhead;
	return launches * runtime_of(RUNTIME_PYTORCH_FSDP2)->host_per_kernel /
	       runtime_of(plan->runtime)->host_per_kernel;
}
