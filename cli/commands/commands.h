/* The commands, each with a file and a row of the table. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "cli/options/options.h"

#define X(suffix, name) extern const struct command command_##name;
COMMANDS(X)
#undef X

#endif
