/* What a target makes of a plan: rules are data, and every change is a note. */
#include <string.h>

#include "frameworks/common/words.h"
#include "frameworks/common/writing.h"

const char *export_knob(const struct plan *plan, enum knob_id knob, struct arena *arena)
{
	const char *value = knob_text(knob, plan, arena);
	size_t length = strlen(value), quoted = length >= 2 && value[0] == '"';

	return arena_strndup(arena, value + quoted, length - 2 * quoted);
}

static const struct export_rule *rule_of(const struct export_target *target, enum knob_id knob)
{
	for (const struct export_rule *rule = target->rules; rule->knob != NO_KNOB; rule++) {
		if (rule->knob == (int)knob)
			return rule;
	}
	return NULL;
}

bool target_expresses(
	const struct export_target *target, enum knob_id knob, enum expressed *expressed)
{
	const struct export_rule *rule = rule_of(target, knob);

	*expressed = rule != NULL ? rule->expressed : IN_FILE;
	if (rule != NULL)
		return true;
	/* The global batch follows from others. */
	for (const struct config_key *key = target->format->keys;
		key->path != NULL && knob != KNOB_GLOBAL_BATCH; key++) {
		if (key->knob == (int)knob && (key->when & ONLY_READ) == 0)
			return true;
	}
	return false;
}

/* --- one rule ------------------------------------------------------------------------------ */

/* What the rule makes of a value. */
static const char *ruled(const struct exporting *exporting, const struct plan *plan,
	const struct export_rule *rule, const char *value)
{
	struct arena *arena = exporting->arena;
	struct word word;

	if (!word_find(rule->values, value, &word))
		return value;
	const char *becomes = word_right(arena, &word, value);
	if (strcmp(becomes, "@node") == 0)
		return arena_printf(
			arena, "%lld", (long long)exporting->topology->devices_per_node);
	return becomes[0] == '@' ? export_knob(plan, knob_find(becomes + 1), arena) : becomes;
}

/* Mesh and resharding follow the strategy. */
static void settle(struct plan *plan)
{
	int64_t ranks = plan_data_parallel(plan);

	if (plan->strategy == STRATEGY_NO_SHARD)
		plan->mesh.shard = 1;
	else if (!strategy_is_hybrid(plan->strategy))
		plan->mesh.shard = ranks;
	plan->mesh.replicate = ranks / plan->mesh.shard;
	if (!strategy_reshards(plan->strategy) || plan_reshard_group(plan) == 0)
		plan->reshard_after_forward = rows_of_reshard(strategy_reshards(plan->strategy));
}

static bool set_knob(
	const struct exporting *exporting, struct plan *plan, enum knob_id knob, const char *value)
{
	int64_t shard, ranks = plan_data_parallel(plan);

	if (knob != KNOB_SHARD_GROUP)
		return fields_set(&knob_table[knob].field, knob_table[knob].field.name, value, plan,
			exporting->arena, NULL);
	if (!parse_int(value, &shard) || shard <= 0 || ranks % shard != 0)
		return false;
	plan->mesh.shard = shard;
	plan->mesh.replicate = ranks / shard;
	return true;
}

/* Knobs without effect on this plan need no words. */
static bool is_moot(const struct plan *plan, int knob)
{
	static const uint64_t of_sharding =
		KNOB_BIT(KNOB_WRAP) | KNOB_BIT(KNOB_PREFETCH) | KNOB_BIT(KNOB_FORWARD_PREFETCH) |
		KNOB_BIT(KNOB_LIMIT_ALL_GATHERS) | KNOB_BIT(KNOB_RESHARD_AFTER_FORWARD);

	if (knob == KNOB_GLOBAL_BATCH) /* follows from the other three */
		return true;
	if (knob_table[knob].runtimes == 1u << RUNTIME_SHARDPLAN) /* only ours has it */
		return true;
	if (knob == KNOB_SHARD_GROUP)
		return !strategy_is_hybrid(plan->strategy);
	if (knob == KNOB_SYNC_EACH_MICRO_BATCH)
		return plan->grad_accum == 1;
	if (knob == KNOB_REDUCE_DTYPE && plan_reduces_masters(plan))
		return true;
	if (knob == KNOB_LAYERS_PER_STAGE && plan->layers_per_stage.text == NULL)
		return true;
	if (knob == KNOB_PIPELINE_SCHEDULE || knob == KNOB_VIRTUAL_STAGES)
		return plan->mesh.pipeline == 1;
	if (knob == KNOB_SEQUENCE_PARALLEL || knob == KNOB_KEEP_GATHERED ||
		knob == KNOB_ASYNC_TENSOR || knob == KNOB_SERIAL_TENSOR)
		return plan->mesh.tensor == 1;
	if (knob == KNOB_CONTEXT_METHOD)
		return plan->mesh.context == 1;
	if (knob == KNOB_RECOMPUTE_MODULES)
		return !plan_checkpoints(plan, CHECKPOINTING_SELECTIVE) ||
		       !runtime_of(plan->runtime)->recomputes_modules;
	if (knob == KNOB_EXPERT_DISPATCH || knob == KNOB_EXPERT_OVERLAP)
		return plan->mesh.expert == 1;
	return plan->strategy == STRATEGY_NO_SHARD && (of_sharding >> knob & 1) != 0;
}

/* What a script does by default. Transformers and most scripts compute the loss in fp32. */
static bool is_default(int knob, const char *value)
{
	static const char *const nothing[] = {"0", "none", "off", "false", "unknown", "", NULL};
	static const struct {
		int knob;
		const char *value;
	} usual[] = {{KNOB_LOSS, "upcast"}, {KNOB_ALLOCATOR, "segments"}, {KNOB_TRAINABLE, "all"},
		{KNOB_OVERLAP, "all"}, {KNOB_CONTEXT_METHOD, "all-gather"},
		{KNOB_EXPERT_DISPATCH, "all-to-all"}, {KNOB_RECOMPUTE_MODULES, "usual"}};

	for (int i = 0; i < COUNT_OF(usual); i++) {
		if (usual[i].knob == knob && strcmp(usual[i].value, value) == 0)
			return true;
	}
	return export_has(nothing, value) && knob != KNOB_SYNC_EACH_MICRO_BATCH;
}

/* "..." stands for the value, as Python spells it. */
static void note_value(
	struct exporting *exporting, const struct export_rule *rule, const char *value)
{
	const char *dots = strstr(rule->words, "...");
	const char *python = strcmp(value, "true") == 0    ? "True"
			     : strcmp(value, "false") == 0 ? "False"
							   : value;

	const char *name = knob_table[rule->knob].field.name;

	if (dots == NULL)
		export_note_elsewhere(exporting, name, "%s: %s", value, rule->words);
	else
		export_note_elsewhere(exporting, name, "%s: %.*s%s%s", value,
			(int)(dots - rule->words), rule->words, python, dots + 3);
}

static void note_change(struct exporting *exporting, enum knob_id knob, const char *before,
	const char *after, const char *why)
{
	if (strcmp(before, after) != 0)
		export_add_note(exporting, knob_table[knob].field.name, false,
			arena_printf(exporting->arena, "%s -> %s%s%s", before, after,
				why != NULL ? ": " : "", why != NULL ? why : ""));
}

/* What the target says of a knob that its runtime has not. */
static const char *rule_words(const struct export_target *target, enum knob_id knob)
{
	for (const struct export_rule *rule = target->rules; rule->knob != NO_KNOB; rule++)
		if (rule->knob == (int)knob)
			return rule->words;
	return NULL;
}

/* Knobs that the new runtime has not; after a runtime without the limiter, one that has
 * it takes PyTorch's default. The limiter is a default of its runtime: that it goes needs no words.
 */
static void settle_runtime(struct exporting *exporting, enum runtime_kind before, struct plan *plan)
{
	if (!knob_honoured(KNOB_LIMIT_ALL_GATHERS, before, true))
		plan->limit_all_gathers = true;
	for (int id = KNOB_PREFETCH; id <= KNOB_LIMIT_ALL_GATHERS; id++) {
		enum knob_id knob = (enum knob_id)id;
		const char *was = export_knob(plan, knob, exporting->arena);

		knob_take_honoured(knob, plan);
		if (knob != KNOB_LIMIT_ALL_GATHERS)
			note_change(exporting, knob, was, export_knob(plan, knob, exporting->arena),
				rule_words(exporting->target, knob));
	}
}

void export_change(struct exporting *exporting, struct plan *plan, enum knob_id knob,
	const char *value, const char *why)
{
	const char *before = export_knob(plan, knob, exporting->arena);
	enum runtime_kind runtime = plan->runtime;

	if (strcmp(before, value) == 0 || !set_knob(exporting, plan, knob, value))
		return;
	settle(plan);
	if (knob == KNOB_RUNTIME)
		settle_runtime(exporting, runtime, plan);
	note_change(exporting, knob, before, value, why);
}

static void apply(struct exporting *exporting, const struct export_rule *rule, struct plan *plan)
{
	enum knob_id knob = (enum knob_id)rule->knob;
	const char *value = export_knob(plan, knob, exporting->arena);

	if (is_moot(plan, rule->knob) ||
		(knob == KNOB_RESHARD_AFTER_FORWARD && exporting->target->tail != TAIL_AS_PLANNED &&
			ends_tail_stays(exporting->arena, exporting->model, plan)))
		return;
	if (rule->expressed != ELSEWHERE)
		export_change(
			exporting, plan, knob, ruled(exporting, plan, rule, value), rule->words);
	else if (!is_default(rule->knob, value))
		note_value(exporting, rule, value);
}

/* A knob that neither rules nor keys have is a note, never dropped. */
static void note_others(struct exporting *exporting, const struct plan *plan)
{
	enum expressed expressed;

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		enum knob_id knob = (enum knob_id)id;
		const char *value = export_knob(plan, knob, exporting->arena);
		if (!target_expresses(exporting->target, knob, &expressed) && !is_moot(plan, id) &&
			!is_default(id, value))
			export_note_elsewhere(exporting, knob_table[id].field.name,
				"%s: the file does not say it", value);
	}
}

/* Hybrids of one group or of groups of one have simpler names, which files use. */
static void simplify(struct exporting *exporting, struct plan *plan)
{
	if (!strategy_is_hybrid(plan->strategy))
		return;
	if (plan->mesh.replicate == 1)
		export_change(exporting, plan, KNOB_STRATEGY,
			strategy_reshards(plan->strategy) ? "FULL_SHARD" : "SHARD_GRAD_OP",
			"there is one group, which is the same");
	else if (plan->mesh.shard == 1)
		export_change(exporting, plan, KNOB_STRATEGY, "NO_SHARD",
			"groups of one rank are replicas");
}

static void adapt_wrap(struct exporting *exporting, struct plan *plan)
{
	const struct export_target *target = exporting->target;
	size_t length = strcspn(plan->wrap.text, "+");
	const char *base = arena_strndup(exporting->arena, plan->wrap.text, length);
	struct word word;

	if (target->wraps == NULL)
		return;
	bool splits = exporting->model->architecture.tied_head &&
		      plan->runtime == RUNTIME_PYTORCH_FSDP1 && plan->wrap.kind == WRAP_SIZE;
	base = word_find(target->wraps, base, &word) && !splits ? base : "block";
	const char *wrap =
		target->wraps_apart ? ends_wrap(exporting->arena, exporting->model, base) : base;
	export_change(exporting, plan, KNOB_WRAP, wrap,
		wrap != base ? "embedding and head are always units of their own there"
		: splits ? "FSDP1 cannot wrap one end of the weight that embedding and head share"
		: strcmp(target->wraps, "block") == 0 ? "its units are the blocks"
						      : "it wraps by class or by size");
}

/* The units around the blocks. */
static void adapt_ends(struct exporting *exporting, struct plan *plan)
{
	enum tail tail = exporting->target->tail;
	bool stays = tail != TAIL_AS_PLANNED &&
		     ends_tail_stays(exporting->arena, exporting->model, plan);

	if (plan->strategy == STRATEGY_NO_SHARD)
		return;
	adapt_wrap(exporting, plan);
	if (tail != TAIL_STAYS && !stays)
		return;
	const char *reshard = ends_reshard(exporting->arena, exporting->model, plan);
	export_change(exporting, plan, KNOB_RESHARD_AFTER_FORWARD,
		reshard != NULL                     ? reshard
		: strategy_reshards(plan->strategy) ? "true"
						    : "false",
		"the head stays gathered there until backward begins");
}

/* A plan without a clip asked for none and refused none, unless --clip 0 was typed. */
void export_adapt_clip(struct exporting *exporting, struct plan *plan)
{
	const char *options = exporting->file->question.options;

	if (plan->clip > 0 || (options != NULL && strstr(options, "--clip ") != NULL))
		return;
	exporting->exported->leaves_clip = true;
	if (exporting->target->clips)
		export_change(exporting, plan, KNOB_CLIP, "1",
			"the framework's default, which the file leaves; "
			"`plan --clip 0` says none");
}

/* Without words for them there is none. */
static void adapt_unsaid(struct exporting *exporting, struct plan *plan)
{
	static const struct {
		enum knob_id knob;
		const char *off;
	} knobs[] = {{KNOB_FP8, "off"}, {KNOB_FP8_PARAM_GATHER, "false"},
		{KNOB_ASYNC_TENSOR, "false"}, {KNOB_EXPERT_DISPATCH, "all-to-all"},
		{KNOB_EXPERT_OVERLAP, "false"}, {KNOB_LIGER, "false"}};

	for (int i = 0; i < COUNT_OF(knobs); i++) {
		enum expressed expressed;
		if (!target_expresses(exporting->target, knobs[i].knob, &expressed) ||
			!knob_is_honoured(knobs[i].knob, plan))
			export_change(exporting, plan, knobs[i].knob, knobs[i].off,
				"the file does not say it");
	}
}

void export_adapt(struct exporting *exporting, struct plan *plan)
{
	*plan = exporting->file->plan;
	simplify(exporting, plan);
	if (exporting->target->adapt != NULL)
		exporting->target->adapt(exporting, plan);
	if (plan->strategy == STRATEGY_NO_SHARD && !exporting->target->has_own_ddp) {
		export_change(exporting, plan, KNOB_RUNTIME, "pytorch-ddp", "what is not sharded");
		export_change(exporting, plan, KNOB_CPU_OFFLOAD, "none", "DDP has no offload");
	}
	for (const struct export_rule *rule = exporting->target->rules; rule->knob != NO_KNOB;
		rule++)
		apply(exporting, rule, plan);
	if (plan_reduces_masters(plan))
		export_change(exporting, plan, KNOB_REDUCE_DTYPE, dtype_name(plan->master_dtype),
			"DDP reduces gradients as they are");
	adapt_unsaid(exporting, plan);
	adapt_ends(exporting, plan);
	note_others(exporting, plan);
}
