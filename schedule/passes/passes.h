/* Builds a step by passes over one structure, in the order of run.c. A pass reads what earlier
 * passes have written, and calls none of them. */
#ifndef SCHEDULE_PASSES_H
#define SCHEDULE_PASSES_H

#include "schedule/program/program.h"

struct step;

/* The step of the ranks of one class, which is a stage of the pipeline (0 without a pipeline). */
struct step *step_begin(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int class);
/* For a model that is shorter than the one asked for: layer l stands for times[l] equal layers.
 * With `units` given none are built, because units outside of blocks hold parameters of all blocks,
 * also of those left out. The caller keeps `times` until step_end. */
void step_repeat(struct step *step, const int *times, struct unit *units, int n_units);
/* All passes, in their order. */
void step_run(struct step *step);
/* [n_ops] How many frees the host had not waited for when it issued each operation. In the arena.
 */
const int *step_frees_pending(const struct step *step);
/* Returns the product, a schedule with the program of this class only, and frees all else. */
struct schedule *step_end(struct step *step);

/* A schedule of all classes, each by a step of its own. */
struct schedule *steps_run(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology);

/* The same with the program of only one class, at its place. */
struct schedule *steps_run_class(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, int class);

/* These find what there is, before anything happens. */
void pass_units(struct step *step);    /* units or buckets, and the order of their hooks */
void pass_ranges(struct step *step);   /* runs of leaves, and the marks round them */
void pass_groups(struct step *step);   /* communicators */
void pass_resident(struct step *step); /* buffers that live between steps */

/* The list of actions: marks first, which the later passes replace. */
void pass_order(struct step *step);               /* forward and backward of micro-batches */
void pass_compute(struct step *step);             /* FORWARD, LOSS, BACKWARD, and the marks */
void pass_messages(struct step *step);            /* what stages send each other */
void pass_recompute(struct step *step);           /* what checkpointing computes again */
void pass_tensor(struct step *step);              /* what tensor ranks exchange */
void pass_context(struct step *step);             /* likewise context ranks */
void pass_experts(struct step *step);             /* and ranks with other experts */
void pass_pairs(struct step *step);               /* two passes side by side */
void pass_delay(struct step *step);               /* FSDP1: hooks that run one range late */
void pass_gather_by_hook(struct step *step);      /* FSDP: gathers, prefetch, resharding */
void pass_gather_by_trace(struct step *step);     /* DeepSpeed's ZeRO-3: the same */
void pass_gather_by_bucket(struct step *step);    /* Megatron-LM: what the update has left */
void pass_cast_by_range(struct step *step);       /* DDP under autocast: low-precision weights */
void pass_reduce_units(struct step *step);        /* gradients of FSDP's units */
void pass_reduce_buckets(struct step *step);      /* of buckets: DDP, ZeRO with whole parameters */
void pass_reduce_partitions(struct step *step);   /* of DeepSpeed's ZeRO-3 */
void pass_update(struct step *step);              /* norm, clipping, the optimizer */
void pass_offload(struct step *step);             /* copies from and to the host */
void pass_offload_activations(struct step *step); /* what waits there for backward */

/* These turn actions into operations. */
void pass_lower(struct step *step);  /* operations and their buffers */
void pass_waits(struct step *step);  /* what their streams wait for */
void pass_limit(struct step *step);  /* what the host waits for */
void pass_finish(struct step *step); /* the program */

#endif
