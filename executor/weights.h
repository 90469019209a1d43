/* Initial weights and the digest of the final ones; both independent of how they are sharded. */
#ifndef EXECUTOR_WEIGHTS_H
#define EXECUTOR_WEIGHTS_H

#include "executor/buffers.h"
#include "executor/comm.h"

/* What a rank holds: its shards among its buffers. */
struct weights {
	const struct schedule *schedule;
	const struct program *program;
	struct buffers *buffers;
	int rank;
};

/* A rank's part of a unit: elements [first, first + unit->chunk) of weights, first and second
 * moments. */
struct weights_shard {
	float *arrays[3];
	int n_arrays;
	int64_t first;
};
/* False when the rank holds nothing of that unit. */
bool weights_shard(const struct weights *weights, int unit, struct weights_shard *shard);
/* Where an element of a parameter lies in one of the arrays; it must be in this rank's shard. */
const float *weights_element(
	const struct weights *weights, int parameter, int64_t element, int array);

/* N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 layers)), ones and zeros (docs/defaults.md),
 * keyed by (seed, parameter, element). Each rank fills its own shards; moments are zero already. */
void weights_init(const struct weights *weights, int64_t seed);

/* After the shards have changed: what every rank keeps whole (ZeRO-1 and -2) is gathered from them,
 * and where the host has the master copy (offload of the optimizer) the device's shard follows it.
 * All ranks take part. */
bool weights_spread(const struct weights *weights, struct comm *comm, struct error *error);

/* xxh3-128 of the concatenated xxh3-128 digests of all parameters in model order; that of one
 * parameter is over its name with the NUL, its dimensions as int64, its fp32 weights, first moments
 * and second moments (little-endian). All ranks take part; the first rank of every shard group has
 * the result, the others get "". Gathers unit by unit through the heap. */
bool weights_digest(const struct weights *weights, struct comm *comm, struct digest *digest,
	struct error *error);

#endif
