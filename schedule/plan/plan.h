/* struct plan: every knob of a training step, and the runtime that carries it out. */
#ifndef SCHEDULE_PLAN_H
#define SCHEDULE_PLAN_H

#include "base/base.h"
#include "models/models.h"
#include "schedule/plan/libraries.h"
#include "schedule/plan/rows.h"
#include "schedule/plan/runtimes.h"
#include "schedule/plan/values.h"
#include "topologies/topologies.h"

/* Named axes, innermost last; rank = replicate index * shard + shard index (row-major). The last
 * four are 1 until tensor, pipeline, context and expert parallelism exist. */
struct mesh {
	int64_t replicate, shard, tensor, pipeline, context, expert;
};

/* A step is one flat list: more micro-batches than this are a typing error. */
enum { PLAN_MAX_GRAD_ACCUM = 16384 };

struct plan {
	enum strategy strategy;
	struct mesh mesh;
	/* Three knobs may differ by block or unit: runs, decoded by rows.h. */
	const char *reshard_after_forward; /* "true", "false", a group size; "20xtrue+12xfalse" */
	const char *wrap;       /* "block", "blocks:K", "size:N", "model"; "+embedding", "+head" */
	enum prefetch prefetch; /* backward */
	bool forward_prefetch;
	bool limit_all_gathers;
	const char *activation_checkpointing; /* "full", "8xfull+24xnone" */
	enum attention_kind attention;
	enum loss_kind loss;
	bool compile;
	enum dtype param_dtype;  /* of the compute copy */
	enum dtype master_dtype; /* of the sharded parameters and the optimizer */
	enum dtype reduce_dtype;
	enum gradient_sums gradient_sums;
	enum gelu_place gelu; /* on GPUs; in a product it is rounded otherwise */
	enum optimizer optimizer;
	const char *cpu_offload; /* "none", "10xoptimizer+23xnone" */
	enum runtime_kind runtime;
	const char *libraries; /* "pytorch:2.1.0+cuda:12.1", or "unknown" (libraries.h) */
	enum allocator_kind allocator;
	int64_t seq_len;
	int64_t micro_batch;        /* sequences per rank and forward pass */
	int64_t grad_accum;         /* micro-batches per step */
	int64_t global_batch;       /* sequences per step, of all data-parallel ranks */
	bool sync_each_micro_batch; /* reduce gradients after every micro-batch */
	double clip;                /* gradient norm; 0 = no clipping */
	double loader_rate; /* tokens/s of a rank's data loader; 0 = it is never waited for */
};

/* Every knob but the mesh, in this order; the names are the option names with '_' for '-'. */
extern const struct field plan_fields[];
extern const int n_plan_fields;
extern const struct field mesh_fields[];

/* A plan in the making: which fields were given. Bit i stands for plan_fields[i]. */
struct choices {
	struct plan plan;
	uint64_t given;
	int64_t shard_group; /* --shard-group; 0 = not given */
};

/* The index of a field by name, -1 when there is none. */
int plan_field_index(const char *name);
bool choices_given(const struct choices *choices, const char *name);
/* Sets one choice from text; `where` starts the message. */
bool choices_set(struct choices *choices, const char *name, const char *where, const char *value,
	struct arena *arena, struct error *error);

int64_t plan_data_parallel(const struct plan *plan); /* mesh.replicate * mesh.shard */
int64_t plan_ranks(const struct plan *plan);
/* Seconds that the data loader takes for one step; 0: it has no rate. */
double plan_loader_time(const struct plan *plan);
/* Decodes plan->wrap. False when malformed. */
bool plan_wrap(const struct plan *plan, struct wrap_policy *policy);
/* Size of the group that parameters are resharded to after forward: 0 = not resharded, -1 = the
 * whole shard group, k = groups of k. Of the first unit that is resharded. */
int64_t plan_reshard_group(const struct plan *plan);
/* Bytes per logit while the loss is computed, beside the logits (docs/runtimes.md). */
int64_t plan_loss_bytes(const struct plan *plan);

/* Elements from one token's logits to the next one's: the vocabulary, or more (docs/runtimes.md).
 */
int64_t plan_logits_stride(const struct plan *plan, int64_t vocab);
/* Of gradients while they are reduced, and of the shard that they end in, until the optimizer reads
 * it: what the plan says, or 64 bits for exact sums. */
enum dtype plan_gradient_dtype(const struct plan *plan);
enum dtype plan_gradient_shard_dtype(const struct plan *plan);
/* Of what the norm, clipping and the optimizer read: exact sums are rounded to it in place. */
enum dtype plan_optimizer_gradient_dtype(const struct plan *plan);
/* Does the strategy fix when gradients are reduced, and does it so in each micro-batch? */
bool plan_syncs(const struct plan *plan, bool *each);
/* How parameters lie: of the runtime, and for ZeRO of the stage. */
enum layout_kind plan_layout(const struct plan *plan);
/* What saved tensors look like where nothing is checkpointed (rows.h: of one block). */
struct activation_rules plan_activation_rules(const struct plan *plan);

/* The `plan:` map of a plan file and its inverse. */
bool plan_read(struct arena *arena, const struct node *map, struct plan *plan, struct error *error);
void plan_write(const struct plan *plan, struct writer *writer);
/* One line for people: "FULL_SHARD, wrap block, prefetch pre, ...", only what distinguishes plans.
 */
void plan_summary(const struct plan *plan, struct text *text);

/* What parameters are computed in where nobody says: the best that the device has units for. */
enum dtype plan_default_dtype(const struct topology *topology);

/* May the shard group be smaller than all ranks? InternEvo's groups, DeepSpeed's MiCS: ZeRO over
 * fewer ranks than there are. */
bool plan_has_zero_groups(const struct plan *plan);

#endif
