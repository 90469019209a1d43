/* What a target makes of a plan: rules are data, and every change is a note. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "frameworks/common/writing.h"

const char *export_knob(const struct plan *plan, const char *name, struct arena *arena)
{
	enum knob_id id = knob_find(name);
	struct text text = {0};

	if (id == KNOB_COUNT)
		return NULL;
	knob_print(id, plan, &text);
	const char *value = text_string(&text);
	size_t length = text.length, quoted = length >= 2 && value[0] == '"';
	const char *copy = arena_strndup(arena, value + quoted, length - 2 * quoted);
	text_finish(&text);
	return copy;
}

/* --- one rule ------------------------------------------------------------------------------ */

static bool matches(const char *value, const char *pattern, size_t length)
{
	if (length > 0 && pattern[length - 1] == '*')
		return strncmp(value, pattern, length - 1) == 0;
	return strlen(value) == length && strncmp(value, pattern, length) == 0;
}

static const char *right_side(
	const struct exporting *exporting, const struct plan *plan, const char *word, size_t length)
{
	const char *copy = arena_strndup(exporting->arena, word, length);

	if (strcmp(copy, "@node") == 0)
		return arena_printf(
			exporting->arena, "%lld", (long long)exporting->topology->devices_per_node);
	return copy[0] == '@' ? export_knob(plan, copy + 1, exporting->arena) : copy;
}

/* What the rule makes of a value. */
static const char *ruled(const struct exporting *exporting, const struct plan *plan,
	const struct export_rule *rule, const char *value)
{
	const char *word = rule->values != NULL ? rule->values : "";

	while (*word != '\0') {
		size_t length = strcspn(word, " "), left = strcspn(word, ">");
		left = left < length ? left : length;
		if (matches(value, word, left))
			return left < length ? right_side(exporting, plan, word + left + 1,
						       length - left - 1)
					     : value;
		word += length + (word[length] == ' ');
	}
	return value;
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
	if (!strategy_reshards(plan->strategy))
		plan->reshard_after_forward = "false";
	else if (strcmp(plan->reshard_after_forward, "false") == 0)
		plan->reshard_after_forward = "true";
}

static bool set_knob(
	const struct exporting *exporting, struct plan *plan, const char *knob, const char *value)
{
	int64_t shard, ranks = plan_data_parallel(plan);

	if (strcmp(knob, "shard_group") != 0)
		return knob_set(knob_find(knob), plan, knob, value, exporting->arena, NULL);
	if (!parse_int(value, &shard) || shard <= 0 || ranks % shard != 0)
		return false;
	plan->mesh.shard = shard;
	plan->mesh.replicate = ranks / shard;
	return true;
}

/* Knobs without effect on this plan need no words. */
static bool is_moot(const struct plan *plan, const char *knob)
{
	static const char *const of_sharding[] = {"wrap", "prefetch", "forward_prefetch",
		"limit_all_gathers", "reshard_after_forward", NULL};

	if (strcmp(knob, "global_batch") == 0) /* follows from the other three */
		return true;
	if (strcmp(knob, "shard_group") == 0)
		return !strategy_is_hybrid(plan->strategy);
	if (strcmp(knob, "sync_each_micro_batch") == 0)
		return plan->grad_accum == 1;
	return plan->strategy == STRATEGY_NO_SHARD && export_has(of_sharding, knob);
}

/* What a script does when nobody says anything. */
static bool is_nothing(const char *knob, const char *value)
{
	static const char *const nothing[] = {"0", "none", "false", "", NULL};

	/* Transformers and most scripts compute the loss in fp32. */
	if (strcmp(knob, "loss") == 0 && strcmp(value, "upcast") == 0)
		return true;
	if (strcmp(knob, "libraries") == 0 && !libraries_named(value))
		return true;
	if (strcmp(knob, "allocator") == 0 &&
		strcmp(value, allocator_names[ALLOCATOR_SEGMENTS]) == 0)
		return true;
	return export_has(nothing, value) && strcmp(knob, "sync_each_micro_batch") != 0;
}

/* "..." stands for the value, as Python spells it. */
static void add_beside(
	struct exporting *exporting, const struct export_rule *rule, const char *value)
{
	const char *dots = strstr(rule->words, "...");
	const char *python = strcmp(value, "true") == 0    ? "True"
			     : strcmp(value, "false") == 0 ? "False"
							   : value;

	if (dots == NULL)
		export_add_note(exporting, rule->knob, SAYS_BESIDE, "%s: %s", value, rule->words);
	else
		export_add_note(exporting, rule->knob, SAYS_BESIDE, "%s: %.*s%s%s", value,
			(int)(dots - rule->words), rule->words, python, dots + 3);
}

/* Knobs that the new runtime has not; a runtime without the limiter says nothing about one that has
 * it: PyTorch's default counts. */
static void settle_runtime(const char *knob, enum runtime_kind before, struct plan *plan)
{
	if (strcmp(knob, "runtime") != 0)
		return;
	if (!knob_honoured(KNOB_LIMIT_ALL_GATHERS, before, true))
		plan->limit_all_gathers = true;
	for (int id = KNOB_PREFETCH; id <= KNOB_LIMIT_ALL_GATHERS; id++)
		knob_take_honoured((enum knob_id)id, plan);
}

void export_change(struct exporting *exporting, struct plan *plan, const char *knob,
	const char *value, const char *why)
{
	const char *before = export_knob(plan, knob, exporting->arena);
	enum runtime_kind runtime = plan->runtime;

	if (strcmp(before, value) == 0 || !set_knob(exporting, plan, knob, value))
		return;
	settle(plan);
	settle_runtime(knob, runtime, plan);
	export_add_note(exporting, knob, SAYS_KEY, "%s -> %s%s%s", before, value,
		why != NULL ? ": " : "", why != NULL ? why : "");
}

static void apply(struct exporting *exporting, const struct export_rule *rule, struct plan *plan)
{
	const char *value = export_knob(plan, rule->knob, exporting->arena);

	if (value == NULL || is_moot(plan, rule->knob))
		return;
	if (rule->saying == SAYS_BESIDE) {
		if (!is_nothing(rule->knob, value))
			add_beside(exporting, rule, value);
		return;
	}
	const char *becomes = ruled(exporting, plan, rule, value);
	if (becomes != NULL)
		export_change(exporting, plan, rule->knob, becomes, rule->words);
}

static const struct export_rule *rule_of(const struct export_target *target, const char *knob)
{
	for (const struct export_rule *rule = target->rules; rule->knob != NULL; rule++) {
		if (strcmp(rule->knob, knob) == 0)
			return rule;
	}
	return NULL;
}

/* A knob that the target's table does not know yet is said to be unsaid, never dropped. */
static void note_unruled(struct exporting *exporting, const struct plan *plan)
{
	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		const char *value = export_knob(plan, field->name, exporting->arena);
		if (rule_of(exporting->target, field->name) == NULL &&
			!is_moot(plan, field->name) && !is_nothing(field->name, value))
			export_add_note(exporting, field->name, SAYS_BESIDE,
				"%s: the file does not say it", value);
	}
}

/* Hybrids of one group or of groups of one have simpler names, which files use. */
static void simplify(struct exporting *exporting, struct plan *plan)
{
	if (!strategy_is_hybrid(plan->strategy))
		return;
	if (plan->mesh.replicate == 1)
		export_change(exporting, plan, "strategy",
			strategy_reshards(plan->strategy) ? "FULL_SHARD" : "SHARD_GRAD_OP",
			"there is one group, which is the same");
	else if (plan->mesh.shard == 1)
		export_change(
			exporting, plan, "strategy", "NO_SHARD", "groups of one rank are replicas");
}

/* Accelerate 1.15 and torchtitan give embedding and head units of their own, but not when they
 * share a weight. */
static void adapt_wrap(struct exporting *exporting, struct plan *plan)
{
	const struct export_target *target = exporting->target;
	size_t length = strcspn(plan->wrap, "+");
	const char *base = arena_strndup(exporting->arena, plan->wrap, length);
	bool said = false;

	if (target->wraps == NULL || plan->strategy == STRATEGY_NO_SHARD)
		return;
	for (const char *word = target->wraps; *word != '\0' && !said;) {
		size_t left = strcspn(word, " ");
		said = matches(base, word, left);
		word += left + (word[left] == ' ');
	}
	base = said ? base : "block";
	bool apart = target->wraps_apart && strcmp(base, "model") != 0 &&
		     !exporting->model->architecture.tied_head;
	export_change(exporting, plan, "wrap",
		arena_printf(exporting->arena, "%s%s", base, apart ? "+embedding+head" : ""),
		apart ? "embedding and head are always units of their own there"
		: strcmp(target->wraps, "block") == 0 ? "its units are the blocks"
						      : "it wraps by class or by size");
}

void export_adapt(struct exporting *exporting, struct plan *plan)
{
	*plan = exporting->file->plan;
	simplify(exporting, plan);
	if (exporting->target->adapt != NULL)
		exporting->target->adapt(exporting, plan);
	if (plan->strategy == STRATEGY_NO_SHARD && !exporting->target->has_own_ddp) {
		export_change(exporting, plan, "runtime", "pytorch-ddp", "what is not sharded");
		export_change(exporting, plan, "cpu_offload", "none", "DDP has no offload");
	}
	for (const struct export_rule *rule = exporting->target->rules; rule->knob != NULL; rule++)
		apply(exporting, rule, plan);
	adapt_wrap(exporting, plan);
	note_unruled(exporting, plan);
}
