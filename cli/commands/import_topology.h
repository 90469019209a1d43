/* `topologies import FILE...` */
#ifndef CLI_IMPORT_TOPOLOGY_H
#define CLI_IMPORT_TOPOLOGY_H

#include "cli/commands/commands.h"

/* The topology's text goes to `text`, or to -o FILE. */
bool topologies_import(const struct invocation *invocation, struct text *text, struct error *error);

#endif
