/* `--version`: what this binary is and what was built into it. */
#ifndef CLI_VERSION_H
#define CLI_VERSION_H

#include "base/base.h"

void version_print(struct text *text);

#endif
