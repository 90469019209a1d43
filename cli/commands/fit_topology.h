/* `topologies fit`. */
#ifndef CLI_FIT_TOPOLOGY_H
#define CLI_FIT_TOPOLOGY_H

#include "cli/commands/commands.h"

/* Fits the constants of TOPOLOGY to the runs of the other operands: tables of runs, and plans with
 * their measurements. The topology goes to -o or to stdout (then the tables go to stderr); --json
 * has both in one document. EXIT_CODE_INPUT if an operand is not a run. */
bool topologies_fit(struct invocation *invocation, struct text *text, struct error *error);

#endif
