/* Initial weights and the digest of the final ones; both independent of how they are sharded. */
#ifndef EXECUTOR_CHECKPOINTS_SHARDS_H
#define EXECUTOR_CHECKPOINTS_SHARDS_H

#include "executor/memory/memory.h"
#include "executor/transports/transports.h"

/* The weights that a rank holds: shards, among its buffers. Functions number parameters as the
 * whole model does, also when the rank's stage of a pipeline has only some of them. */
struct weights {
	const struct schedule *schedule;
	const struct program *program; /* of the rank */
	struct buffers *buffers;
	int rank;
};
/* The number in the whole model of the parameter that a slice of one of the rank's units is of. */
int weights_parameter(const struct weights *weights, const struct unit_slice *slice);

/* A rank's part of a unit: elements [first, first + unit->chunk) of the weights, of the first and
 * of the second moments. */
struct weights_shard {
	void *arrays[3];
	enum dtype dtype; /* of all arrays: fp32 or bf16; of frozen units the compute dtype */
	int n_arrays;
	int64_t first;
};
/* False when the rank holds nothing of that unit. */
bool weights_shard(const struct weights *weights, int unit, struct weights_shard *shard);
/* Sets elements [at, at + n) of one of the arrays from fp32, rounded to nearest even for bf16. */
void weights_put(
	const struct weights_shard *shard, int array, int64_t at, int64_t n, const float *from);
/* Gets n elements of one of the arrays as fp32, from `element` of the rank's part of the parameter
 * on. They must lie in this rank's shard. */
void weights_get(const struct weights *weights, int parameter, int64_t element, int array,
	int64_t n, float *to);
/* The address of such an element; NULL unless the shard is fp32. */
const float *weights_element(
	const struct weights *weights, int parameter, int64_t element, int array);
/* Elements that callers convert at once, in an array on the stack. */
enum { WEIGHTS_STRIP = 4096 };

/* The resident buffer of that role; -1 where the rank has none. */
int weights_buffer(const struct weights *weights, enum buffer_role role, int unit);

/* N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 layers)), ones and zeros (docs/commands.md),
 * keyed by (seed, parameter, element); A of adapters N(0, 1 / (3 in)), B zero. Each rank fills its
 * own shards with `threads` threads; moments are zero already. */
void weights_init(const struct weights *weights, int64_t seed, int threads);

/* Must be called after the shards have changed. Gathers the parameters that every rank keeps whole
 * (ZeRO-1 and -2), and copies the host's master weights to the device's shard if the optimizer is
 * offloaded. All ranks take part. */
bool weights_spread(const struct weights *weights, struct comm *comm, struct error *error);

/* xxh3-128 of the concatenated xxh3-128 digests of all parameters in model order; that of one
 * parameter is over its name with the NUL, its dimensions as int64, its weights, first moments
 * and second moments as fp32 (little-endian). All ranks take part; the first rank of every shard
 * group gets the result (where tensor ranks cut parameters, the first of these), the others "".
 * Gathers unit by unit through the heap. */
bool weights_digest(const struct weights *weights, struct comm *comm, struct digest *digest,
	struct error *error);

#endif
