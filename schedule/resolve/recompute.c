/* Modules that selective checkpointing computes again: what each asks of the model and the plan. */
#include "schedule/resolve/resolve.h"

static bool names(const struct plan *plan, enum recompute_module which)
{
	return plan->recompute_modules.of >> which & 1;
}

/* Megatron-Core accepts some of these and computes nothing again. */
static const char *missing(const struct model *model, enum recompute_module which)
{
	static const char *const why[RECOMPUTE_MODULE_COUNT] = {
		[RECOMPUTE_LAYERNORM] = "its norms are computed with the products behind them",
		[RECOMPUTE_MLA_UP_PROJ] = "the model has no latent attention",
		[RECOMPUTE_MOE_ACT] = "the model has no experts",
		[RECOMPUTE_MLP] = "every block of the model has experts",
		[RECOMPUTE_MOE] = "the model has no experts",
		[RECOMPUTE_SHARED_EXPERTS] = "the model has no shared expert",
	};
	return model_has_recompute_module(model, which) ? NULL : why[which];
}

/* From transformer_config.py of Megatron-Core (d98e8a64), which refuses the same. */
static const char *conflict(const struct plan *plan)
{
	bool discards = names(plan, RECOMPUTE_MOE_ACT) || names(plan, RECOMPUTE_LAYERNORM);
	return names(plan, RECOMPUTE_MOE) && plan->expert_overlap
		       ? "experts are computed once beside another micro-batch; leave moe out, or "
			 "use --expert-overlap off"
	       : discards && plan->fp8 == FP8_DELAYED
		       ? "moe_act and layernorm need scales of today's values; use --fp8 tensorwise"
		       : NULL;
}

bool plan_recomputes_nothing(const struct name_set *modules, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE,
		"--recompute-modules %s: no block is checkpointed selectively; leave it out, or "
		"use --activation-checkpointing selective",
		modules->text);
}

bool plan_check_recompute(const struct plan *plan, const struct model *model, struct error *error)
{
	const struct name_set *modules = &plan->recompute_modules;
	const char *why = conflict(plan);
	if (modules->of == 0)
		return true;
	if (!plan_checkpoints(plan, CHECKPOINTING_SELECTIVE))
		return plan_recomputes_nothing(modules, error);
	for (int m = 0; m < RECOMPUTE_MODULE_COUNT; m++) {
		const char *lacks = names(plan, (enum recompute_module)m)
					    ? missing(model, (enum recompute_module)m)
					    : NULL;
		if (lacks != NULL)
			return error_set(error, EXIT_CODE_USAGE,
				"--recompute-modules %s: %s; leave %s out", modules->text, lacks,
				recompute_module_names[m]);
	}
	return why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "--recompute-modules %s: %s", modules->text, why);
}
