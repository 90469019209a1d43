/* Real schedules: a preset, a catalogue entry, and choices as a user would give them. */
#ifndef TESTS_SIMULATOR_CASES_H
#define TESTS_SIMULATOR_CASES_H

#include "simulator/simulator.h"

struct case_ {
	struct arena arena;
	struct model *model;
	struct topology *topology;
	struct plan plan;
	struct schedule *schedule;
	struct simulation simulation;
};

/* Failing a test on any error. */
void case_load(struct case_ *c, const char *model, const char *topology);
/* `choices`: "strategy=FULL_SHARD micro_batch=2 shard_group=4". Builds the schedule. */
void case_plan(struct case_ *c, const char *choices);
/* False when these choices are refused (not every runtime has every knob). */
bool case_try_plan(struct case_ *c, const char *choices);
const struct prediction *case_simulate(
	struct case_ *c, const struct simulation_options *options, bool details);
void case_finish(struct case_ *c);

#endif
