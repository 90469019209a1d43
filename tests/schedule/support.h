/* Shared by the tests of schedule/: seeded random models and plans, presets, clusters. */
#ifndef TESTS_SCHEDULE_SUPPORT_H
#define TESTS_SCHEDULE_SUPPORT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "schedule/schedule.h"
#include "toy.h"

/* Draws the same numbers on every machine (xorshift64). */
int64_t random_below(uint64_t *state, int64_t limit);

/* Fail the test when there is no such thing. */
struct model *preset_model(struct arena *arena, const char *name);
struct topology *cluster(struct arena *arena, const char *name);
/* One machine of `ranks` CPU devices, as `local` describes it. */
struct topology *cpu_machine(struct arena *arena, int64_t ranks);
/* A catalogue node made into `nodes` x `devices` GPUs. */
struct topology *gpu_cluster(struct arena *arena, int64_t nodes, int64_t devices);

/* A model of `blocks` units of equal size D * 2D, an embedding D x D and a head D x D (half a block
 * each), as the traced PyTorch models have them; D = 512. */
struct model *equal_model(struct arena *arena, int blocks);

/* A random architecture of 1..4 layers, every family feature drawn. */
struct model *random_model(struct arena *arena, uint64_t *state);
/* Often the model itself, else one of which only a part is trained. */
struct model *partly_trained(struct arena *arena, uint64_t *state, struct model *model);
struct topology *random_topology(struct arena *arena, uint64_t *state);
/* Draws knobs until plan_resolve accepts them; every runtime and strategy comes up. */
struct plan random_plan(struct arena *arena, uint64_t *state, const struct model *model,
	const struct topology *topology);

/* The schedule of a plan that was drawn; where a law is broken the test fails, with the round. */
struct schedule *build_random(struct arena *arena, int round, const struct plan *plan,
	const struct model *model, const struct topology *topology);

/* Builds a preset on a machine of the catalogue, by words as plan_of_words takes them. */
struct schedule *build_words(
	struct arena *arena, const char *model_name, const char *cluster_name, const char *words);

/* Returns the bytes of the first program's buffers of a role that live between steps. */
int64_t resident_bytes_of(const struct schedule *schedule, enum buffer_role role);

/* deep.c: models of up to 47 blocks, with experts, encoders or presets among them; plans of up to
 * 33 micro-batches, a quarter of them with one choice for the first blocks and another for the
 * rest. */
struct model *deep_model(struct arena *arena, uint64_t *state);
struct plan deep_plan(struct arena *arena, uint64_t *state, const struct model *model,
	const struct topology *topology);

/* The plan with some ranks that divide the model: the topology has as many more devices. Where
 * nothing allows it, as it is, and false. */
bool divide_plan(struct arena *arena, uint64_t *state, const struct model *model,
	struct topology **topology, struct plan *plan);

/* What every block and unit has: offload and reshard group at first as in the plan. */
struct mix {
	int64_t blocks, units;
	bool root; /* unit 0 is the root, which has no reshard group */
	enum checkpointing *checkpointing;
	enum offload *offload;
	int64_t *reshard;
};
struct mix mix_of(
	struct arena *arena, const struct plan *plan, int64_t blocks, int64_t units, bool root);
/* The plan with some of that; where it does not allow it, as it is. */
struct plan mix_plan(struct arena *arena, uint64_t *state, const struct mix *mix, struct plan plan,
	const struct model *model, const struct topology *topology);

/* A model, a topology, a plan and its schedule. */
struct sample {
	struct model *model;
	struct topology *topology;
	struct plan plan;
	struct schedule *schedule;
};
struct sample random_sample(struct arena *arena, uint64_t *state);

/* "NAME=VALUE" strings until NULL; no test failure: false with the error. */
bool try_plan(struct arena *arena, const struct model *model, const struct topology *topology,
	struct plan *plan, struct error *error, ...) __attribute__((sentinel));
/* Does the same with one string with blanks between the words. */
bool try_words(struct arena *arena, const struct model *model, const struct topology *topology,
	const char *words, struct plan *plan, struct error *error);
/* Fails the test when there is no such plan. */
struct plan plan_of_words(struct arena *arena, const struct model *model,
	const struct topology *topology, const char *words);

/* How many operations of a kind, in forward (0), backward (1), or anywhere (-1). */
int count_ops(const struct schedule *schedule, enum op_kind kind, int phase);
/* Counts the same for one kind of group. */
int count_group(const struct schedule *schedule, enum op_kind kind, enum group_kind group);
/* How many they are in the first class's program, and bytes of all of them (op->bytes). */
struct exchanged {
	int64_t n, bytes;
};
struct exchanged exchanged(
	const struct schedule *schedule, enum op_kind kind, enum group_kind group);

#endif
