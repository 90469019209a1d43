#include "planner/question/question.h"

#include <string.h>

const char *const objective_names[] = {"time", "memory", "network", NULL};
const char *const outcome_names[] = {"chosen", "slower", "does_not_fit", "impossible", NULL};
const char *const find_names[] = {
	"max-seq-len", "max-micro-batch", "min-gpus", "network-for", "scaling", NULL};

const struct restriction *question_restriction(const struct question *question, const char *knob)
{
	for (int i = 0; i < question->n_restrictions; i++)
		if (strcmp(question->restrictions[i].knob, knob) == 0)
			return &question->restrictions[i];
	return NULL;
}

bool question_leaves_open(const struct question *question, const char *knob)
{
	return !choices_given(&question->choices, knob) &&
	       question_restriction(question, knob) == NULL;
}
