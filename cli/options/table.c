/* All options of all commands. Options of a plan are the rows of the table of knobs. */
#include <stdio.h>

#include "cli/options/options.h"
#include "executor/gpu_transports.h"

enum { KNOB_NAME_MOST = 40 };

#define ON(command) (1u << COMMAND_##command)
#define ASKING      (ON(PLAN) | ON(PREDICT) | ON(REPORT) | ON(IMPORT))
#define PRINTING                                                                                   \
	(ASKING | ON(EXPLAIN) | ON(CHECK) | ON(DIAGNOSE) | ON(TRAIN) | ON(MODELS) |                \
		ON(TOPOLOGIES) | ON(CALIBRATE))
#define ALL      ((1u << COMMAND_COUNT) - 1)
#define QUESTION OPTION_QUESTION

static const char batch[] = "Machine and batch", goal[] = "Limits and goal",
		  training[] = "Training", output[] = "Output";

/* Options before the knobs of a plan, which have their own table. */
static const struct option machine[] = {
	{"gpus", batch, "N", "devices: a part of one node, or whole nodes; on `local` ranks",
		ASKING | ON(TOPOLOGIES), QUESTION},
	{"vocab", batch, "N", "pads the vocabulary to so many words, such as 50304", ASKING,
		QUESTION},
	{"mtp-layers", batch, "N",
		"runtime megatron: adds so many modules of multi-token prediction", ASKING,
		QUESTION},
	{"nodes", batch, "N", "nodes, when the files do not say", ON(TOPOLOGIES), 0},
	{"gpu-name", batch, "NAME", "the device, as the catalogue calls it", ON(TOPOLOGIES), 0},
	{"network", batch, "KIND:NxRATE", "NICs of a node, such as infiniband:8x200Gbit/s; or none",
		ON(TOPOLOGIES), 0},
	{"collective", batch, "NAME", "what a log measured, when it does not say", ON(TOPOLOGIES),
		0},
	{"like", batch, "TOPOLOGY", "whose values stand for what no file says", ON(TOPOLOGIES), 0},
};

/* Options behind the knobs. */
static const struct option others[] = {
	{"forbid", goal, "KNOB=VALUE,...",
		"values that the search may not use: strategy=NO_SHARD,wrap=model",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"for", goal, "TARGET",
		"plan what the configuration of this framework can say, and nothing else; "
		"`export --list` has the names",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"free", goal, "LIST|all",
		"levers that the search may pull besides: "
		"lines of the script that leave the mathematics as it is, such as loss,compile",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"memory-limit", goal, "SIZE", "of one device, such as 70GiB", ASKING, QUESTION},
	{"headroom", goal, "SIZE|P%",
		"of the device's memory that stays free; default: the doubt of the prediction",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"simplicity", goal, "P%",
		"how much slower the plan may be that is nearest to its framework's defaults; "
		"default: 1%",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"objective", goal, "time|memory|network", "what the best plan has least of",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"pareto", goal, "",
		"also every plan that no other beats in step time, "
		"memory, host memory and network at once, up to twice the best's cost",
		ON(PLAN), OPTION_SWITCH},
	{"thorough", goal, "", "the search never gives up, however long it takes", ON(PLAN),
		OPTION_SWITCH},
	{"compare", goal, "PLAN.yaml",
		"your plan beside the best one for the same work: "
		"what it costs, why, and which knob to turn",
		ON(PLAN), 0},
	{"find", goal, "WHAT",
		"instead of the best plan: max-seq-len, max-micro-batch, "
		"min-gpus, network-for=90% (of an infinitely fast network) or scaling (over nodes)",
		ON(PLAN), 0},
	{"cases", goal, "FILE.csv",
		"one prediction per row; columns: "
		"case, model, topology and any option above, _ for -",
		ON(PREDICT), 0},
	{"threads", goal, "N", "cores to use; default: all that the process may run on",
		ON(PLAN) | ON(PREDICT) | ON(REPORT) | ON(TOPOLOGIES), 0},
	{"data", training, "FILE", "text (tokens are bytes) or a .bin file of tokens", ON(TRAIN),
		0},
	{"steps", training, "N", "optimizer steps; default: 100", ON(TRAIN), 0},
	{"seed", training, "N", "of weights and data order; default: 0", ON(TRAIN), 0},
	{"ranks", training, "N", "local ranks, if not as many as the plan has", ON(TRAIN), 0},
	{"lr", training, "RATE", "learning rate; default: 3e-4", ON(TRAIN), 0},
	{"warmup", training, "N", "steps of linear warm-up; default: 0", ON(TRAIN), 0},
	{"lr-schedule", training, "constant|linear|cosine",
		"the learning rate after the warm-up, until --steps; default: constant", ON(TRAIN),
		0},
	{"min-lr", training, "RATE", "what it decays to; default: 0", ON(TRAIN), 0},
	{"measured", training, "FILE",
		"where the measurement goes; default: measured.json beside the plan", ON(TRAIN), 0},
	{"reproducible", training, "run|plan|world",
		"level to train at: "
		"bits that repeat, that are the same under every plan for so many ranks, "
		"or on any number of ranks (exact gradient sums); default: the plan's",
		ON(TRAIN), 0},
	{"device", training, "host|cuda|null",
		"what computes, or is calibrated: CPUs, GPUs, or nothing",
		ON(TRAIN) | ON(CALIBRATE), 0},
	{"transport", training, GPU_TRANSPORT_NAMES,
		"between GPUs; device: ranks share one. As there are GPUs, unless given", ON(TRAIN),
		0},
	{"cuda-graphs", training, "auto|on|off",
		"a step of a GPU is one launch, from the second on; default: where the plan allows",
		ON(TRAIN), 0},
	{"nccl", training, "SETTING=VALUE,...", "settings of NCCL's communicators (docs/gpu.md)",
		ON(TRAIN) | ON(CALIBRATE), 0},
	{"fault", training, "NAME[=RANK][@step=N]", "seeded fault, for tests", ON(TRAIN),
		OPTION_HIDDEN},
	{"checkpoint", training, "DIR", "write checkpoints to DIR/step-N, one at the end",
		ON(TRAIN), 0},
	{"every", training, "N", "a checkpoint every N steps too", ON(TRAIN), 0},
	{"keep", training, "N", "the newest N checkpoints stay; default: all", ON(TRAIN), 0},
	{"checkpoint-background", training, "on|off",
		"write a copy of the state while training goes on; default: off", ON(TRAIN), 0},
	{"weights", training, "FILE",
		"start from a .safetensors file, or a folder with one, instead of random weights",
		ON(TRAIN), 0},
	{"resume", training, "DIR",
		"go on from a checkpoint, or from the newest of a folder; as the folder of "
		"--checkpoint: start there too; --steps counts from the first start",
		ON(TRAIN), 0},
	{"emulate", training, "TOPOLOGY",
		"local ranks stand in for its devices: "
		"operations last as long as they would there, "
		"in slow motion where this machine is slower",
		ON(TRAIN), 0},
	{"pace", training, "none|compute|collectives|all",
		"hold these operations to their predicted times; default: all with --emulate",
		ON(TRAIN), 0},
	{"slow-motion", training, "FACTOR",
		"predicted times are held to that many times as long; "
		"default: as this machine needs",
		ON(TRAIN), 0},
	{"join-timeout", training, "SECONDS",
		"under torchrun: until all ranks must have come; default: 60",
		ON(TRAIN) | ON(CALIBRATE), 0},
	{"collective-timeout", training, "SECONDS",
		"until a rank that does not come is called hung; default: by prediction", ON(TRAIN),
		0},
	{"view", output, "VIEW", "what to show; see below", ON(EXPLAIN), 0},
	{"svg", output, "", "the view as a picture, where it has one", ON(EXPLAIN), OPTION_SWITCH},
	{"analyze", output, "FILE", "measured.json of `train`, on the same lines", ON(EXPLAIN), 0},
	{"step-time", output, "TIME", "measured, such as 2.9s", ON(DIAGNOSE), 0},
	{"mfu", output, "PERCENT", "measured, by whatever convention", ON(DIAGNOSE), 0},
	{"tolerance-time", output, "PERCENT", "judge the step time too", ON(CHECK), 0},
	{"quick", output, "", "seconds instead of a minute", ON(CALIBRATE), OPTION_SWITCH},
	{"format", output, "html|markdown|json|csv|trace|snapshot",
		"default: by the end of FILE's name, else html", ON(REPORT), 0},
	{"no-alternatives", output, "", "do not plan again what was not chosen", ON(REPORT),
		OPTION_SWITCH},
	{"from", output, "TARGET", "the framework, where the content does not tell", ON(IMPORT), 0},
	{"config", output, "NAME", "the function, of a torchtitan file with several; or FILE:NAME",
		ON(IMPORT), 0},
	{"model", output, "MODEL", "in the place of the operand", ON(IMPORT), 0},
	{"topology", output, "TOPOLOGY", "in the place of the operand", ON(IMPORT), 0},
	{"to", output, "TARGET", "the framework; --list shows them", ON(EXPORT), 0},
	{"for-version", output, "VERSION",
		"of the framework, where files differ; else its newest release", ON(EXPORT), 0},
	{"list", output, "", "the targets, with their files", ON(EXPORT), OPTION_SWITCH},
	{"knobs", output, "", "what each target can say, as a Markdown table", ON(EXPORT),
		OPTION_SWITCH},
	{"output", output, "FILE", "write the plan, topology or report to FILE (- is stdout)",
		ASKING | ON(CALIBRATE) | ON(EXPORT) | ON(TOPOLOGIES), 0, 'o'},
	{"explain", output, "",
		"instead of one screen: "
		"every strategy with its figures, why, what would change the decision, what if",
		ON(PLAN), OPTION_SWITCH, 'v'},
	{"json", output, "", "one JSON document", PRINTING, OPTION_SWITCH},
	{"json-lines", output, "", "one JSON line per step", ON(TRAIN), OPTION_SWITCH},
	{"color", output, "auto|always|never", "auto: on a terminal, unless NO_COLOR is set", ALL,
		0},
	{"help", output, "", "this text", ALL, OPTION_SWITCH, 'h'},
};

static struct option table[COUNT_OF(machine) + KNOB_COUNT + COUNT_OF(others)];
_Static_assert(COUNT_OF(table) <= OPTIONS_MOST, "struct arguments has room for every option");
const struct option *const all_options = table;
const int n_options = COUNT_OF(table);

static struct option make_option(const struct knob *knob, char name[KNOB_NAME_MOST])
{
	snprintf(name, KNOB_NAME_MOST, "%s", knob->field.name);
	for (char *c = name; *c != '\0'; c++)
		*c = *c == '_' ? '-' : *c;
	return (struct option){
		.name = name,
		.group = knob_group_names[knob->group],
		.value = knob->metavar,
		.help = knob->help,
		.commands = ASKING | (knob->roles & KNOB_OF_TRAIN ? ON(TRAIN) : 0),
		.flags = QUESTION,
		.knob = knob,
	};
}

void options_make(void)
{
	static char names[KNOB_COUNT][KNOB_NAME_MOST];
	struct option *next = table;

	for (int i = 0; i < COUNT_OF(machine); i++)
		*next++ = machine[i];
	for (int i = 0; i < KNOB_COUNT; i++)
		*next++ = make_option(&knob_table[knobs_in_help[i]], names[i]);
	for (int i = 0; i < COUNT_OF(others); i++)
		*next++ = others[i];
}
