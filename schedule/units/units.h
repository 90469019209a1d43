/* FSDP units: which parameters are gathered, reduced and sharded together, and how they lie. */
#ifndef SCHEDULE_UNIT_H
#define SCHEDULE_UNIT_H

#include "schedule/plan/plan.h"

/* One parameter inside a unit. Offsets and counts are elements of the unsharded unit. */
struct unit_slice {
	int parameter; /* index in model->parameters */
	int64_t offset;
	int64_t elements;        /* without padding */
	int64_t padded_elements; /* LAYOUT_PER_PARAMETER: group * ceil(dim0 / group) * rest */
};

struct unit {
	const char *name; /* of the wrapped module; "root" for the outermost */
	int module;       /* first wrapped module; the unit covers [module, end_module) */
	int end_module;   /* of the preorder list (several blocks with "blocks:K") */
	int n_slices;
	struct unit_slice *slices;
	int64_t elements;   /* unsharded, with alignment padding */
	int64_t chunk;      /* elements of one rank's shard, padding included */
	int64_t gathered;   /* group * chunk: what an all-gather delivers */
	int64_t parameters; /* without any padding */
	/* The same counts of the trained parameters, which alone have gradients and optimizer
	 * states. A unit of FSDP2 may hold trained and frozen parameters; a flat unit holds either,
	 * and a module with both has two units (units_are_twins). */
	int64_t trained_elements, trained_chunk, trained_gathered, trained_parameters;
	int64_t fp8_elements; /* the elements of `gathered` in fp8 (KNOB_FP8_PARAM_GATHER) */
	bool of_experts; /* expert ranks share them out, so fewer ranks shard them than others */
	int times;       /* folded schedules: how many equal units it stands for; else 1 */
	/* The plan's choices for this unit (plan.h). The text form prints them as plan lines. */
	int64_t reshard_group; /* 0 = stays gathered after forward, -1 = resharded, k */
	enum offload offload;
};

/* A run of the preorder list that a wrap policy makes a unit. */
struct wrapped {
	int module, end_module;
};

/* Wrap policies (PyTorch's torch/distributed/fsdp/wrap.py): which modules become units, in
 * preorder; [0] is the top (root). A module that holds one end of a tied parameter but not the
 * other is never wrapped apart: both ends must be gathered together. Returns their number. */
int wrap_modules(const struct plan *plan, const struct model *model, struct arena *arena,
	struct wrapped **wrapped);

/* Nothing of a frozen unit is trained: it has no gradient, and is kept in the compute dtype. */
static inline bool unit_is_frozen(const struct unit *unit)
{
	return unit->trained_parameters == 0;
}
static inline bool unit_has_slice(const struct unit *unit, int parameter)
{
	for (int i = 0; i < unit->n_slices; i++)
		if (unit->slices[i].parameter == parameter)
			return true;
	return false;
}
/* Do two units cover the same modules, one with their frozen and one with their trained parameters?
 */
static inline bool units_are_twins(const struct unit *frozen, const struct unit *trained)
{
	return frozen->module == trained->module && frozen->end_module == trained->end_module;
}
/* How many ranks shard the unit, how far apart their numbers are, and the place of one of them. */
int64_t unit_shard_ranks(const struct unit *unit, const struct plan *plan);
int64_t unit_shard_stride(const struct unit *unit, const struct plan *plan);
int64_t unit_shard_place(const struct unit *unit, const struct plan *plan, int64_t rank);
/* The number of ranks that reduce its gradient. */
int64_t unit_reduce_ranks(const struct unit *unit, const struct plan *plan);
/* Bytes of a shard: frozen parameters in the compute dtype, the others in the master dtype. */
int64_t unit_shard_bytes(const struct unit *unit, const struct plan *plan);

/* "model.layers.0", or "model.layers.0..1" for several. */
const char *unit_name(const struct model *model, struct wrapped wrapped, struct arena *arena);

/* The units of a plan; units[0] is the root, possibly without parameters. Every parameter belongs
 * to the innermost unit that contains it. */
int units_build(const struct plan *plan, const struct model *model, struct arena *arena,
	struct unit **units);

/* Fills reshard_group and offload. */
void units_choose(const struct plan *plan, struct unit *units, int n);

/* DDP's buckets (docs/runtimes.md): trained parameters in reverse order, closed when 25 MiB (first:
 * 1 MiB) are reached. The frozen ones are one more unit, the last. `chunks` says for each
 * parameter which of the rank's stages it belongs to, which Megatron-LM wraps apart; NULL: there is
 * one. */
int buckets_build(const struct plan *plan, const struct model *model, const int *chunks,
	struct arena *arena, struct unit **units);

#endif
