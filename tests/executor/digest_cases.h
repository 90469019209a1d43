/* The configurations whose weights must be equal to the last bit, for one model, number of ranks,
 * micro-batch and accumulation mode, whatever else the plan says (--reproducible plan). */
#ifndef TESTS_EXECUTOR_DIGEST_CASES_H
#define TESTS_EXECUTOR_DIGEST_CASES_H

#include "support.h"

struct digest_model {
	const char *name, *text;
	int layers;
};
extern const struct digest_model digest_models[];
extern const int n_digest_models;

extern const int64_t digest_ranks[];
extern const int n_digest_ranks, n_slow_digest_ranks;

/* Options that a group of equal digests shares. */
extern const char *const digest_modes[];
extern const int n_digest_modes;
/* From this mode on the same ones come again in bf16: reduced in fp32, in bf16, in bf16. */
enum { DIGEST_BF16_MODE = 3 };

/* What ends in one digest at level `world`: 24 sequences a step on 1 to 8 ranks. */
struct digest_world {
	int64_t ranks;
	const char *options;
};
extern const struct digest_world digest_worlds[];
extern const int n_digest_worlds;

/* What may differ inside a group. */
struct digest_variant {
	const char *strategy, *wrap, *prefetch, *checkpointing;
	bool forward_prefetch, limiter;
	/* Ranks a node, nodes connected over TCP, one launcher for each rank; 0 = all share memory.
	 */
	int per_node;
};

/* Every variant that exists for that many ranks: strategies (HYBRID with each divisor) x wrap x
 * prefetch x forward prefetch x checkpointing. From malloc. */
int digest_all_variants(int64_t ranks, struct digest_variant **variants);
/* A selection of `n` of them that changes with `seed`; NO_SHARD, blocks, first. */
int digest_some_variants(int64_t ranks, int n, uint32_t seed, struct digest_variant *variants);

/* ZeRO's stages, which fix when gradients are reduced: those that run in a mode. At most 8. */
enum { DIGEST_ZERO_VARIANTS = 8 };
int digest_zero_variants(
	int64_t ranks, int mode, struct digest_variant variants[DIGEST_ZERO_VARIANTS]);

/* Offload to the host's tier, and choices per block and per unit; `layers` of the model. At
 * most 12.
 */
enum { DIGEST_UNIT_VARIANTS = 15 };
int digest_unit_variants(
	int64_t ranks, int layers, struct digest_variant variants[DIGEST_UNIT_VARIANTS]);

/* Makes every `every`-th of the variants one over nodes, of another size in turn. */
void digest_spread(int64_t ranks, int every, struct digest_variant *variants, int n);

/* A hybrid strategy exists where its shard group divides the ranks; its sums are those of the tree
 * where shard groups are subtrees (powers of two, or all ranks). */
bool digest_strategy_exists(const char *strategy, int64_t ranks);

void digest_describe(const struct digest_variant *variant, char text[256]);

/* Trains, and compares the measured ledger with the schedule's on the way. The digest, "" with the
 * message in `error` when training failed. */
struct digest digest_train(const char *model, int64_t ranks, const char *mode,
	const struct digest_variant *variant, int64_t steps, const char *fault,
	struct error *error);

/* Four ranks on one machine, on two and on four end in the same bits. */
void digest_over_nodes(const char *model, const char *mode, int64_t steps);

/* What a run ends with; of its steps the first few. */
enum { OUTCOME_STEPS = 4 };
struct outcome {
	struct digest digest;
	double losses[OUTCOME_STEPS], norms[OUTCOME_STEPS];
};

/* Trains with the job as it is; the ledger and the schedule's digest are compared on the way. */
struct outcome outcome_of(
	const char *model, int64_t ranks, const char *options, struct executor_job job);

/* Apart by `most` of the second at most. `what` is said when they are not. */
void expect_near(const char *what, double a, double b, double most);
/* All losses and norms. */
void expect_alike(const char *what, const struct outcome *a, const struct outcome *b, double most);
/* To the bit, and the weights. */
void expect_same(const char *what, const struct outcome *a, const struct outcome *b);

#endif
