/* Initial weights and the digest of the final ones; both independent of how they are sharded. */
#ifndef EXECUTOR_CHECKPOINTS_SHARDS_H
#define EXECUTOR_CHECKPOINTS_SHARDS_H

#include "executor/memory/memory.h"
#include "executor/transports/transports.h"

/* What a rank holds: its shards among its buffers. Parameters have the numbers that they have in
 * the whole model, of which a stage of a pipeline has a part. */
struct weights {
	const struct schedule *schedule;
	const struct program *program; /* of the rank */
	struct buffers *buffers;
	int rank;
};
/* Of a slice of one of its units. */
int weights_parameter(const struct weights *weights, const struct unit_slice *slice);

/* A rank's part of a unit: elements [first, first + unit->chunk) of weights, first and second
 * moments. */
struct weights_shard {
	void *arrays[3];
	enum dtype dtype; /* fp32 or bf16, of all of them; the compute dtype of what is frozen */
	int n_arrays;
	int64_t first;
};
/* False when the rank holds nothing of that unit. */
bool weights_shard(const struct weights *weights, int unit, struct weights_shard *shard);
/* Elements [at, at + n) of one of the arrays, as fp32; to bf16 they are rounded to nearest even. */
void weights_put(
	const struct weights_shard *shard, int array, int64_t at, int64_t n, const float *from);
/* n elements of the rank's part of a parameter from `element` on, of one of the arrays, as fp32;
 * they must be in this rank's shard. */
void weights_get(const struct weights *weights, int parameter, int64_t element, int array,
	int64_t n, float *to);
/* Where they lie; NULL unless they are fp32. */
const float *weights_element(
	const struct weights *weights, int parameter, int64_t element, int array);
/* What passes through the stack at once. */
enum { WEIGHTS_STRIP = 4096 };

/* The resident buffer of that role; -1 where the rank has none. */
int weights_buffer(const struct weights *weights, enum buffer_role role, int unit);

/* N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 layers)), ones and zeros (docs/commands.md),
 * keyed by (seed, parameter, element); A of adapters N(0, 1 / (3 in)), B zero. Each rank fills its
 * own shards, with that many threads; moments are zero already. */
void weights_init(const struct weights *weights, int64_t seed, int threads);

/* After the shards have changed: what every rank keeps whole (ZeRO-1 and -2) is gathered from them,
 * and where the host has the master copy (offload of the optimizer) the device's shard follows it.
 * All ranks take part. */
bool weights_spread(const struct weights *weights, struct comm *comm, struct error *error);

/* xxh3-128 of the concatenated xxh3-128 digests of all parameters in model order; that of one
 * parameter is over its name with the NUL, its dimensions as int64, its weights, first moments
 * and second moments as fp32 (little-endian). All ranks take part; the first rank of every shard
 * group, of tensor ranks the first, has the result, the others get "". Gathers unit by unit through
 * the heap. */
bool weights_digest(const struct weights *weights, struct comm *comm, struct digest *digest,
	struct error *error);

#endif
