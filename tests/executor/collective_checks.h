/* The duties of every transport, checked by one of its ranks: every element is compared with a sum
 * in the declared order. Each function returns false at the first wrong element, or if the
 * collective fails. */
#ifndef TESTS_EXECUTOR_COLLECTIVE_CHECKS_H
#define TESTS_EXECUTOR_COLLECTIVE_CHECKS_H

#include "executor/transports/comm.h"

enum { MAX_RANKS = 12, MAX_COUNT = 600000 };

/* A rank: MAX_COUNT floats each, where the transport can reach them. */
struct checked {
	struct comm *comm;
	float *input, *output;
};

bool check_gather(const struct checked *m, struct comm_group group, int64_t chunk);
bool check_scatter(const struct checked *m, struct comm_group group, int64_t chunk);
bool check_reduce(const struct checked *m, struct comm_group group, int64_t count);
/* Each rank's chunk for each; what each sends to the next one. */
bool check_exchange(const struct checked *m, struct comm_group group, int64_t chunk);
bool check_rotation(const struct checked *m, struct comm_group group, int64_t count);
/* Shard groups lie together, replica groups apart; of every size that divides. */
bool check_every_group(const struct checked *m, const int64_t *counts, int n_counts);
/* Two programs of half of the ranks each, which do not carry out equally many collectives: more
 * messages than may be on their way, in both directions and of several sizes, and a sum over all.
 */
bool check_messages(const struct checked *m);
/* The n-th message between a rank of the first program and that of the second one, forward. */
struct comm_message check_message(const struct checked *m, int n);
/* Hybrid: scatter inside, all-reduce across gives the world's sum, bit for bit. */
bool check_hybrid(const struct checked *m, int shard);

#endif
