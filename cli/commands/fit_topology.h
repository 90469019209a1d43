/* `topologies fit`. */
#ifndef CLI_FIT_TOPOLOGY_H
#define CLI_FIT_TOPOLOGY_H

#include "cli/commands/commands.h"

/* The constants of TOPOLOGY from the runs of the other operands: tables of runs, and plans with
 * what was measured of each. The topology goes to -o or to stdout, the tables aside then; --json
 * has both in one document. EXIT_CODE_INPUT for what is no run. */
bool topologies_fit(struct invocation *invocation, struct text *text, struct error *error);

#endif
