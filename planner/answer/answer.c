#include "planner/answer/answer.h"

const char *const outcome_names[] = {"chosen", "slower", "does_not_fit", "impossible", NULL};
const char *const find_names[] = {
	"max-seq-len", "max-micro-batch", "min-gpus", "network-for", "scaling", NULL};

bool error_is_refusal(const struct error *mine, struct error *error)
{
	return mine->code == EXIT_CODE_USAGE || error_set(error, mine->code, "%s", mine->message);
}

const char *excess_note(const struct prediction *prediction, struct arena *arena)
{
	char bytes[32];

	return arena_printf(arena, "does not fit: over by %s",
		format_bytes(bytes, (double)prediction_excess_bytes(prediction)));
}
