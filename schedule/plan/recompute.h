/* What selective checkpointing computes again: by operator, or the modules that the plan names. */
#ifndef SCHEDULE_RECOMPUTE_H
#define SCHEDULE_RECOMPUTE_H

#include "base/base.h"
#include "models/models.h"
#include "schedule/plan/names.h"

/* X(suffix, name): Megatron-Core's modules (--recompute-modules, transformer_config.py): attention
 * between its projections; experts' activations; norms that are kernels of their own, which are
 * those before experts and before latent attention; the up projections of latent attention; dense
 * MLPs; all that belongs to experts; shared experts. */
#define RECOMPUTE_MODULES(X)                                                                       \
	X(CORE_ATTN, "core_attn")                                                                  \
	X(LAYERNORM, "layernorm")                                                                  \
	X(MLA_UP_PROJ, "mla_up_proj")                                                              \
	X(MOE_ACT, "moe_act")                                                                      \
	X(MLP, "mlp")                                                                              \
	X(MOE, "moe")                                                                              \
	X(SHARED_EXPERTS, "shared_experts")

enum recompute_module {
#define X(suffix, name) RECOMPUTE_##suffix,
	RECOMPUTE_MODULES(X)
#undef X
		RECOMPUTE_MODULE_COUNT
};

extern const char *const recompute_module_names[];

struct plan;

/* How the knob is decoded; no name: "usual", attention's core. */
extern const struct field_decoded recompute_modules_decoded;
struct name_set recompute_modules_of(unsigned of, struct arena *arena);

/* Would selective checkpointing keep the result of this leaf of a block? Else it computes it again.
 */
bool plan_selective_keeps(const struct plan *plan, const struct model *model, int module);

/* Has the model a leaf that this module would compute again? */
bool model_has_recompute_module(const struct model *model, enum recompute_module which);

#endif
