/* Completion of command lines, from the tables of commands and options. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include "base/base.h"

/* `help completion SHELL`: "bash", "zsh" or "fish"; another name is EXIT_CODE_USAGE. */
bool help_completion(
	const char *shell, struct arena *arena, struct text *text, struct error *error);

#endif
