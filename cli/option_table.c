/* Every option of every command. The knobs of a plan take their values from plan_fields. */
#include "cli/options.h"

#define ON(command) (1u << COMMAND_##command)
#define ASKING      (ON(PLAN) | ON(PREDICT) | ON(REPORT))
#define PRINTING                                                                                   \
	(ASKING | ON(EXPLAIN) | ON(CHECK) | ON(TRAIN) | ON(MODELS) | ON(TOPOLOGIES) | ON(CALIBRATE))
#define ALL      ((1u << COMMAND_COUNT) - 1)
#define KNOB     (OPTION_KNOB | OPTION_QUESTION)
#define QUESTION OPTION_QUESTION

static const char batch[] = "Machine and batch", sharding[] = "Sharding", compute[] = "Computation",
		  goal[] = "Limits and goal", training[] = "Training", output[] = "Output";

const struct option all_options[] = {
	{"gpus", batch, "N", "devices: a part of one node, or whole nodes; on `local` ranks",
		ASKING, QUESTION},
	{"seq-len", batch, "N", "tokens in a sequence", ASKING, KNOB},
	{"micro-batch", batch, "N", "sequences per rank and forward pass", ASKING, KNOB},
	{"global-batch", batch, "N",
		"sequences per step: micro-batch x grad-accum x data-parallel ranks", ASKING, KNOB},
	{"grad-accum", batch, "N", "micro-batches per step", ASKING, KNOB},
	{"sync-each-micro-batch", batch, "on|off",
		"reduce gradients after every micro-batch, not only after the last", ASKING, KNOB},
	{"strategy", sharding, "LIST",
		"NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2; ZERO_1, "
		"ZERO_2, ZERO_3 where the runtime has them; `plan` takes several, with commas",
		ASKING, KNOB},
	{"shard-group", sharding, "N",
		"ranks in a shard group of a hybrid strategy, or of ZeRO where it has groups",
		ASKING, QUESTION},
	{"reshard-after-forward", sharding, "true|false|N",
		"free parameters after forward; N: keep them over groups of N; by unit: "
		"20xtrue+12xfalse",
		ASKING, KNOB},
	{"wrap", sharding, "block|blocks:K|size:N|model",
		"what becomes one unit: every transformer block, K blocks, at least N parameters, "
		"or everything; +embedding, +head: these apart",
		ASKING, KNOB},
	{"prefetch", sharding, NULL,
		"gather the next unit of backward before (pre) or after (post) this one's "
		"gradients, or not early",
		ASKING, KNOB},
	{"forward-prefetch", sharding, "on|off", "gather the next unit of forward early", ASKING,
		KNOB},
	{"limit-all-gathers", sharding, "on|off", "FSDP1's rate limiter", ASKING, KNOB},
	{"cpu-offload", sharding, NULL, "what lives in host memory; by unit: 10xoptimizer+23xnone",
		ASKING, KNOB},
	{"activation-checkpointing", compute, NULL,
		"what backward recomputes; by block: 8xfull+24xnone", ASKING, KNOB},
	{"attention", compute, NULL, "attention kernel", ASKING, KNOB},
	{"loss", compute, NULL,
		"how the script computes it: in the logits' dtype, in fp32, from fp32 logits, in "
		"one kernel, or with the head piece by piece",
		ASKING, KNOB},
	{"compile", compute, "on|off", "torch.compile", ASKING, KNOB},
	{"param-dtype", compute, "fp32|bf16|fp16", "parameters that compute reads", ASKING, KNOB},
	{"master-dtype", compute, "fp32|bf16|fp16", "parameters that the optimizer updates", ASKING,
		KNOB},
	{"reduce-dtype", compute, "fp32|bf16|fp16", "gradients while they are reduced", ASKING,
		KNOB},
	{"optimizer", compute, NULL, "optimizer and its implementation", ASKING, KNOB},
	{"clip", compute, "NORM", "clip gradients to this norm; 0: no clipping", ASKING | ON(TRAIN),
		KNOB},
	{"runtime", compute, "NAME",
		"whose behaviour is predicted: pytorch-fsdp1, pytorch-fsdp2, pytorch-ddp, "
		"shardplan, deepspeed, nanotron or internevo",
		ASKING, KNOB},
	{"forbid", goal, "KNOB=VALUE,...",
		"values that the search may not use: strategy=NO_SHARD,wrap=model", ON(PLAN),
		QUESTION},
	{"memory-limit", goal, "SIZE", "of one device, such as 70GiB", ASKING, QUESTION},
	{"objective", goal, "time|memory|network", "what the best plan has least of",
		ON(PLAN) | ON(REPORT), QUESTION},
	{"pareto", goal, "",
		"also every plan that no other beats in step time, memory, host memory and network "
		"at once",
		ON(PLAN), OPTION_SWITCH},
	{"find", goal, "WHAT",
		"instead of the best plan: max-seq-len, max-micro-batch, min-gpus, network-for=90% "
		"(of a network that costs nothing) or scaling (over nodes)",
		ON(PLAN), 0},
	{"cases", goal, "FILE.csv",
		"one prediction per row; columns: case, model, topology and any option above, _ "
		"for -",
		ON(PREDICT), 0},
	{"data", training, "FILE", "text (tokens are bytes) or a .bin token file", ON(TRAIN), 0},
	{"steps", training, "N", "optimizer steps", ON(TRAIN), 0},
	{"seed", training, "N", "of weights and data order", ON(TRAIN), 0},
	{"ranks", training, "N", "local ranks, if not as many as the plan has", ON(TRAIN), 0},
	{"lr", training, "RATE", "learning rate", ON(TRAIN), 0},
	{"warmup", training, "N", "steps of linear warm-up", ON(TRAIN), 0},
	{"measured", training, "FILE",
		"where the measurement goes; default: measured.json beside "
		"the plan",
		ON(TRAIN), 0},
	{"reproducible", training, "run|plan|world",
		"level to train at; `world` is not in this version", ON(TRAIN), 0},
	{"device", training, "host|null", "null: no arithmetic", ON(TRAIN), 0},
	{"kernels", training, "cpu|reference", "who computes", ON(TRAIN), 0},
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
		"go on from a checkpoint, or from the newest of a folder; --steps counts from the "
		"start of the first run",
		ON(TRAIN), 0},
	{"emulate", training, "TOPOLOGY", "", ON(TRAIN), OPTION_HIDDEN | OPTION_LATER},
	{"view", output, "VIEW", "what to show; see below", ON(EXPLAIN), 0},
	{"svg", output, "", "the view as a picture: communication, layout", ON(EXPLAIN),
		OPTION_SWITCH},
	{"analyze", output, "FILE", "measured.json of `train`, on the same lines", ON(EXPLAIN), 0},
	{"tolerance-time", output, "PERCENT", "judge the step time too", ON(CHECK), 0},
	{"quick", output, "", "seconds instead of a minute", ON(CALIBRATE), OPTION_SWITCH},
	{"format", output, "html|markdown|json|csv|trace|snapshot",
		"default: by the end of FILE's name, else html", ON(REPORT), 0},
	{"no-alternatives", output, "", "do not plan again what was not chosen", ON(REPORT),
		OPTION_SWITCH},
	{"to", output, "TARGET", "the framework; --list shows them", ON(EXPORT), 0},
	{"list", output, "", "the targets, with their files", ON(EXPORT), OPTION_SWITCH},
	{"knobs", output, "", "what each target can say, as a Markdown table", ON(EXPORT),
		OPTION_SWITCH},
	{"output", output, "FILE", "write the plan, topology or report to FILE (- is stdout)",
		ASKING | ON(CALIBRATE) | ON(EXPORT), 0, 'o'},
	{"json", output, "", "one JSON document", PRINTING, OPTION_SWITCH},
	{"json-lines", output, "", "one JSON line per step", ON(TRAIN), OPTION_SWITCH},
	{"color", output, "auto|always|never", "auto: on a terminal, unless NO_COLOR is set", ALL,
		0},
	{"help", output, "", "this text", ALL, OPTION_SWITCH, 'h'},
};
const int n_options = COUNT_OF(all_options);
_Static_assert(COUNT_OF(all_options) <= OPTIONS_MOST, "struct arguments has room for every option");
