/* What to type for options and words that a command has not, where nothing of ours is called so. */
#include <string.h>

#include "cli/options/options.h"

#define ON(command) (1u << COMMAND_##command)
#define ASKING      (ON(PLAN) | ON(PREDICT) | ON(REPORT) | ON(IMPORT))
#define PLANNED     (ON(TRAIN) | ON(EXPLAIN) | ON(CHECK) | ON(DIAGNOSE) | ON(EXPORT))

#define FIRST_WORD "is the first word, without dashes"
#define EPOCHS     "steps are counted, not epochs: type --steps N"
#define OWN_PLACE  "what was measured is the second word, without dashes"
#define TOTAL      "a step is planned; a whole run takes its tokens / (tokens/s/GPU x GPUs) seconds"
#define ALL_MEASURED                                                                               \
	"`calibrate local` measures all of this machine; a cluster is measured by "                \
	"`mpirun ... shardplan calibrate cluster`"

static const struct hint {
	const char *typed;
	unsigned commands;
	const char *words;
} hints[] = {
	{"plan", PLANNED | ON(REPORT), "PLAN.yaml " FIRST_WORD},
	{"m", ASKING, "MODEL " FIRST_WORD ": llama-3.1-8b 2xdgx-h100"},
	{"t", ASKING, "TOPOLOGY is the second word, without dashes: llama-3.1-8b 2xdgx-h100"},
	{"n", ASKING, "type --gpus N, or the number of nodes before their name: 2xdgx-h100"},
	{"mem", ASKING, "type --memory-limit SIZE, such as 40GiB"},
	{"memory", ASKING, "type --memory-limit SIZE, such as 40GiB"},
	{"verbose", ON(PLAN), "type --explain, or -v"},
	{"tokens", ON(PLAN) | ON(PREDICT), TOTAL},
	{"train-tokens", ON(PLAN) | ON(PREDICT), TOTAL},
	{"epochs", ON(PLAN) | ON(PREDICT), TOTAL},
	{"tokens-per-batch", ASKING, "type --global-batch N (sequences): tokens / --seq-len"},
	{"tokens-per-step", ASKING, "type --global-batch N (sequences): tokens / --seq-len"},
	{"csv", ON(PLAN) | ON(PREDICT), "rows come from `predict --cases FILE.csv`"},
	{"html", ON(REPORT), "type --format html"},
	{"csv", ON(REPORT), "type --format csv"},
	{"markdown", ON(REPORT), "type --format markdown"},
	{"md", ON(REPORT), "type --format markdown"},
	{"trace", ON(REPORT), "type --format trace"},
	{"measured", ON(REPORT) | ON(CHECK) | ON(DIAGNOSE), OWN_PLACE},
	{"log", ON(DIAGNOSE), OWN_PLACE},
	{"trace", ON(DIAGNOSE), OWN_PLACE},
	{"measured", ON(EXPLAIN), "type --analyze FILE"},
	{"format", ON(EXPLAIN), "its text goes to stdout; type --json, or `report --format`"},
	{"output", ON(EXPLAIN), "its text goes to stdout: type > FILE"},
	{"timeline", ON(EXPLAIN), "type --view streams"},
	{"gpus", ON(CALIBRATE), ALL_MEASURED},
	{"nodes", ON(CALIBRATE), ALL_MEASURED},
	{"epochs", ON(TRAIN), EPOCHS},
	{"num-epochs", ON(TRAIN), EPOCHS},
	{"num-train-epochs", ON(TRAIN), EPOCHS},
	{"weight-decay", ON(TRAIN), "it is 0.1 on matrices, and 0 on the rest"},
	{"nvidia-smi", ON(TOPOLOGIES), "give a file of its output: `topologies import FILE`"},
};

static const char *find(const char *typed, unsigned command)
{
	for (int i = 0; i < COUNT_OF(hints); i++)
		if (hints[i].commands & command && same_name(hints[i].typed, typed))
			return hints[i].words;
	return NULL;
}

/* The views of `explain` are no options of their own. */
static const char *find_view(const char *typed, struct arena *arena)
{
	for (int i = 0; i < n_report_views; i++)
		if (same_name(report_views[i].name, typed))
			return arena_printf(arena, "type --view %s", report_views[i].name);
	return NULL;
}

const char *option_hint(const char *typed, enum command_index command, struct arena *arena)
{
	const char *name = typed + strspn(typed, "-"), *words;
	const char *hint = find(name, 1u << command);

	if (hint == NULL && command == COMMAND_EXPLAIN)
		hint = find_view(name, arena);
	if (hint != NULL || !(1u << command & PLANNED))
		return hint;
	const struct option *option = option_called(name, &words);
	bool asked = option != NULL ? (option->commands & ASKING) != 0 : words != NULL;
	return asked ? "the plan has that: `shardplan plan MODEL TOPOLOGY ... -o PLAN.yaml` plans "
		       "with it"
		     : NULL;
}
