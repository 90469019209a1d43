/* Options that nobody typed: from the environment (SHARDPLAN_SEQ_LEN) and from the file of settings
 * ($XDG_CONFIG_HOME/shardplan/config.yaml). What is typed wins over the environment, that over the
 * file, that over the defaults. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/options.h"

/* Fills what was not typed, where the command has the option. EXIT_CODE_USAGE for a variable that
 * is no option, EXIT_CODE_INPUT at the place of a key that is none. */
bool settings_apply(struct arguments *arguments, struct arena *arena, struct error *error);

/* `help settings`: every option that can be set, its value and where that comes from. */
bool help_settings(struct arena *arena, struct text *text, struct error *error);

#endif
