#include "planner/question/question.h"

const char *const outcome_names[] = {"chosen", "slower", "does_not_fit", "impossible", NULL};
const char *const find_names[] = {
	"max-seq-len", "max-micro-batch", "min-gpus", "network-for", "scaling", NULL};
