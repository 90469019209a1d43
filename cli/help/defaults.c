/* `help defaults`: the values are asked of the code that fills them in, not repeated here. */
#include <string.h>

#include "cli/help/help.h"
#include "executor/executor.h"
#include "schedule/schedule.h"

/* What a value alone does not say. */
static const struct remark {
	const char *name, *value, *remark;
} remarks[] = {
	{"strategy", NULL, "searched by `plan`"},
	{"reshard_after_forward", NULL, "as the strategy says"},
	{"wrap", NULL, "searched by `plan`"},
	{"prefetch", NULL, "searched by `plan`"},
	{"limit_all_gathers", NULL, "on for runtimes that have a rate limiter"},
	{"activation_checkpointing", NULL, "searched by `plan`"},
	{"loss", NULL, "as most scripts; MPT models (llm-foundry), InternEvo and ours: fused"},
	{"param_dtype", NULL, "GPUs without bf16: fp16"},
	{"optimizer", NULL, "pytorch runtimes: as PyTorch does"},
	{"libraries", NULL, "taken to be recent; the interval is wider than with versions"},
	{"allocator", NULL, "expandable: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
	{"runtime", NULL, "NO_SHARD under pytorch-fsdp2 is priced as pytorch-ddp"},
	{"seq_len", "min(context, 4096)", "context: of the model"},
	{"micro_batch", NULL, "searched by `plan` when only the global batch is given"},
	{"global_batch", "by the other two", "micro-batch x grad-accum x data-parallel ranks"},
	{"clip", NULL, "no clipping"},
	{"loader_rate", NULL, "the data loader is never waited for"},
};

static const struct remark *remark_on(const char *name)
{
	static const struct remark none = {"", NULL, ""};

	for (int i = 0; i < COUNT_OF(remarks); i++) {
		if (strcmp(remarks[i].name, name) == 0)
			return &remarks[i];
	}
	return &none;
}

/* The defaults as they are filled in, on two GPU nodes and on a CPU machine. */
static bool resolve_both(
	struct arena *arena, struct plan *gpu, struct plan *cpu, struct error *error)
{
	struct choices nothing = {0};
	struct model *model;
	struct topology *topology;

	if (!model_load_preset(arena, "llama-2-7b", &model, error) ||
		!topology_load_name(arena, "2xdgx-a100-80gb", &topology, error) ||
		!plan_resolve(&nothing, model, topology, arena, gpu, error))
		return false;
	struct topology machine = *topology;
	machine.nodes = 1;
	machine.device.kind = DEVICE_CPU;
	machine.device.generation = GENERATION_CPU;
	return plan_resolve(&nothing, model, &machine, arena, cpu, error);
}

static void add_row(
	struct text *text, const char *name, const char *gpu, const char *cpu, const char *remark)
{
	text_printf(text, "| %-28s | %-20s | %-20s | %-54s |\n", name, gpu, cpu, remark);
}

/* As one would type it. */
static void add_value(const struct field *field, const struct plan *plan, struct text *text)
{
	const char *member = (const char *)plan + field->offset;

	if (field->type == FIELD_TYPE_BOOL)
		text_add(text, *(const bool *)member ? "on" : "off");
	else if (field->type == FIELD_TYPE_STRING)
		text_add(text, *(const char *const *)member);
	else
		fields_print_one(field, plan, text);
}

static void add_knobs(
	const struct plan *gpu, const struct plan *cpu, struct arena *arena, struct text *text)
{
	struct text values[2] = {{0}, {0}};

	add_row(text, "option", "GPU topologies", "`local`, CPUs", "");
	add_row(text, "---", "---", "---", "---");
	for (int i = 0; i < n_plan_fields; i++) {
		const struct field *field = &plan_fields[i];
		const struct remark *remark = remark_on(field->name);
		const char *option = swap_dashes(field->name, '_', '-', arena);
		text_clear(&values[0]);
		text_clear(&values[1]);
		add_value(field, gpu, &values[0]);
		add_value(field, cpu, &values[1]);
		add_row(text, arena_printf(arena, "`--%s`", option),
			remark->value != NULL ? remark->value : text_string(&values[0]),
			remark->value != NULL ? remark->value : text_string(&values[1]),
			remark->remark);
	}
	add_row(text, "`--gpus`", "all", "cores of the machine", "");
	add_row(text, "`--shard-group`", "a node's devices", "a node's devices",
		"of hybrid strategies");
	text_finish(&values[0]);
	text_finish(&values[1]);
}

static void add_training(struct text *text)
{
	const struct training defaults = training_defaults();

	text_add(text, "\n`train`: AdamW with learning rate ");
	text_number(text, defaults.learning_rate);
	text_add(text, ", betas ");
	text_number(text, defaults.beta1);
	text_add(text, " and ");
	text_number(text, defaults.beta2);
	text_add(text, ", epsilon ");
	text_number(text, defaults.epsilon);
	text_add(text, " and weight\ndecay ");
	text_number(text, defaults.weight_decay);
	text_printf(text,
		" on matrices; %lld steps, seed %lld, %lld steps of warm-up, no clipping. Weights "
		"start as\nN(0, 0.02), residual projections divided by sqrt(2 x layers), drawn by "
		"Philox keyed by (seed,\ntensor, element). Sequences are windows of seq-len + 1 "
		"tokens, permuted by the seed.\n",
		(long long)defaults.steps, (long long)defaults.seed, (long long)defaults.warmup);
}

bool help_defaults(struct arena *arena, struct text *text, struct error *error)
{
	struct plan gpu, cpu;

	if (!resolve_both(arena, &gpu, &cpu, error))
		return false;
	text_add(text, "# Defaults\n\n"
		       "What an option has that nobody gave. Every plan file stores all of them in "
		       "full.\n\n");
	add_knobs(&gpu, &cpu, arena, text);
	add_training(text);
	return true;
}
