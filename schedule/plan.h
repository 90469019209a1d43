/* struct plan: every knob of a training step, and the runtime that carries it out. */
#ifndef SCHEDULE_PLAN_H
#define SCHEDULE_PLAN_H

#include "base/base.h"
#include "models/models.h"
#include "schedule/libraries.h"
#include "schedule/runtime.h"
#include "topologies/topologies.h"

/* X(suffix, name, shards parameters, reshards after forward, replicates over nodes by default,
 * stage of ZeRO; 0: not called so) */
#define STRATEGIES(X)                                                                              \
	X(NO_SHARD, "NO_SHARD", false, false, false, 0)                                            \
	X(SHARD_GRAD_OP, "SHARD_GRAD_OP", true, false, false, 0)                                   \
	X(FULL_SHARD, "FULL_SHARD", true, true, false, 0)                                          \
	X(HYBRID_SHARD, "HYBRID_SHARD", true, true, true, 0)                                       \
	X(HYBRID_SHARD_ZERO2, "HYBRID_SHARD_ZERO2", true, false, true, 0)                          \
	X(ZERO_1, "ZERO_1", true, false, false, 1) /* optimizer state and master copy */           \
	X(ZERO_2, "ZERO_2", true, false, false, 2) /* and gradients */                             \
	X(ZERO_3, "ZERO_3", true, true, false, 3)  /* and parameters */

enum strategy {
#define X(suffix, name, shards, reshards, hybrid, stage) STRATEGY_##suffix,
	STRATEGIES(X)
#undef X
		STRATEGY_COUNT
};

enum prefetch { PREFETCH_NONE, PREFETCH_PRE, PREFETCH_POST };
enum checkpointing { CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE, CHECKPOINTING_FULL };
/* PyTorch's caching allocator: segments as large as the request, or PYTORCH_CUDA_ALLOC_CONF's
 * expandable_segments:True. */
enum allocator_kind { ALLOCATOR_SEGMENTS, ALLOCATOR_EXPANDABLE };
/* How gradients are summed up over sequences, micro-batches and ranks: in fp32, in one declared
 * tree over the ranks; or exactly, as 64-bit multiples of 2^-GRADIENT_QUANTUM_BITS of each
 * sequence, so that bits depend on neither micro-batches nor ranks (docs/reproducible.md). */
enum gradient_sums { SUMS_TREE, SUMS_EXACT };
enum gelu_place { GELU_IN_KERNEL, GELU_IN_PRODUCT };
enum { GRADIENT_QUANTUM_BITS = 52 };
enum optimizer { OPTIMIZER_ADAMW_FUSED, OPTIMIZER_ADAMW_FOREACH, OPTIMIZER_ADAMW, OPTIMIZER_SGD };
enum offload { OFFLOAD_NONE, OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS, OFFLOAD_ALL };
enum wrap_kind { WRAP_BLOCK, WRAP_BLOCKS, WRAP_SIZE, WRAP_MODEL };

/* plan->wrap, decoded. */
struct wrap_policy {
	enum wrap_kind kind;
	int64_t argument;     /* K or N, else 0 */
	bool embedding, head; /* wrapped apart: the token embedding; final norm and head */
};

extern const char *const strategy_names[];
extern const char *const prefetch_names[];
extern const char *const checkpointing_names[];
extern const char *const loss_names[];
extern const char *const allocator_names[];
extern const char *const gradient_sums_names[];
extern const char *const gelu_place_names[];
extern const char *const optimizer_names[];
extern const char *const offload_names[];

bool strategy_shards(enum strategy strategy);
bool strategy_reshards(enum strategy strategy);
bool strategy_is_hybrid(enum strategy strategy);
int strategy_stage(enum strategy strategy);
/* ZeRO-1 and -2: every rank has all parameters in the compute dtype between steps. */
bool strategy_keeps_parameters(enum strategy strategy);

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
	/* Three knobs may differ by block or unit: runs, decoded by per_unit.h. */
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

/* Fills what was not given with the defaults of docs/defaults.md (`help defaults`),
 * does the batch arithmetic, lays out the mesh, and checks every knob against the runtime table.
 * Errors are EXIT_CODE_USAGE and name the option and the nearby values that would do. */
bool plan_resolve(const struct choices *choices, const struct model *model,
	const struct topology *topology, struct arena *arena, struct plan *plan,
	struct error *error);

/* Other values than the defaults that the user gave and that mean nothing under the resolved plan:
 * DDP's buckets are no units, NO_SHARD gathers nothing. EXIT_CODE_USAGE. A search that tries many
 * strategies does not ask. */
bool plan_honours(const struct choices *choices, const struct plan *plan, struct error *error);

/* The same checks on a complete plan (from a file). */
bool plan_check(const struct plan *plan, const struct model *model, const struct topology *topology,
	struct error *error);

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
/* What saved tensors look like where nothing is checkpointed (per_unit.h: of one block). */
struct activation_rules plan_activation_rules(const struct plan *plan);

/* The `plan:` map of a plan file and its inverse. */
bool plan_read(struct arena *arena, const struct node *map, struct plan *plan, struct error *error);
void plan_write(const struct plan *plan, struct writer *writer);
/* One line for people: "FULL_SHARD, wrap block, prefetch pre, ...", only what distinguishes plans.
 */
void plan_summary(const struct plan *plan, struct text *text);

#endif
