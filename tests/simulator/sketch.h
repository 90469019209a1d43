/* Schedules drawn by hand, with durations that are easy to compute. */
#ifndef TESTS_SIMULATOR_SKETCH_H
#define TESTS_SIMULATOR_SKETCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simulator/simulator.h"

enum { SKETCH_OPS = 1200, SKETCH_LINKS = 8, SKETCH_RANKS = 4 };

enum link { LINK_WAIT, LINK_HOST_WAIT, LINK_TAKE, LINK_GIVE, LINK_USE, LINK_COUNT };

/* Four GPUs of one node. TRAFFIC moves 1 byte per picosecond, collectives take 1 ns per byte, the
 * host needs `host` seconds for each operation. */
struct sketch {
	struct arena arena;
	struct topology topology;
	struct calibration_collective pieces[3];
	struct schedule schedule;
	struct program program;
	struct group groups[2]; /* on engines 0 and 1 */
	struct op ops[SKETCH_OPS];
	struct buffer buffers[SKETCH_OPS];
	int links[SKETCH_OPS][LINK_COUNT][SKETCH_LINKS], n_links[SKETCH_OPS][LINK_COUNT];
	int indices[SKETCH_OPS * LINK_COUNT * SKETCH_LINKS];
	struct simulation_options options;
	struct simulation simulation;
};

void sketch_init(struct sketch *sketch, double host);
void sketch_finish(struct sketch *sketch);
/* All return the index. */
int sketch_traffic(struct sketch *sketch, enum stream stream, double seconds);
int sketch_gather(struct sketch *sketch, enum stream stream, int engine, double seconds);
int sketch_mark(struct sketch *sketch);
int sketch_buffer(struct sketch *sketch, enum buffer_role role, enum stream pool, int64_t bytes);
void sketch_link(struct sketch *sketch, int op, enum link link, int target);
/* Lays the schedule out and simulates it, with details; fails the test on an error. */
void sketch_run(struct sketch *sketch);
/* The same, giving back what simulate says. */
bool sketch_try(struct sketch *sketch, struct error *error);
const struct span *sketch_span(const struct sketch *sketch, int op);

/* Its devices become processes of one machine. */
void make_processes(struct topology *topology);

/* A copy of the catalogue's topology, whose insides live in `arena`; fails the test without it. */
struct topology load_topology(struct arena *arena, const char *name);

/* Changes that make a topology's links better: none may make a collective slower. */
enum { BETTER_LINKS = 5 };
extern void (*const better_links[BETTER_LINKS])(struct topology *t);

/* Seconds of one collective alone; `libraries` NULL: recent ones. */
double collective_seconds(const struct topology *topology, const struct libraries *libraries,
	const struct runtime *runtime, enum op_kind kind, const struct group *group, int64_t bytes);

/* Equal but for rounding. */
void assert_seconds(double got, double expected);

#endif
