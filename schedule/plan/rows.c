/* Per-block and per-unit knobs: decoding, counting, normal forms. */

#include "schedule/plan/plan.h"

#include <string.h>

/* The value that a row's text has at a place; `absent` behind its end. */
static int value_at(const char *text, int64_t place, const char *const *names, int absent)
{
	struct value_run run;
	if (!runs_at(text, place, &run))
		return absent;
	for (int i = 0; names[i] != NULL; i++)
		if (run_is(&run, names[i]))
			return i;
	return absent;
}

/* --- blocks --------------------------------------------------------------------------------------
 */

enum checkpointing plan_block_checkpointing(const struct plan *plan, int64_t block)
{
	if (block < 0)
		return CHECKPOINTING_NONE;
	return (enum checkpointing)value_at(
		plan->activation_checkpointing, block, checkpointing_names, CHECKPOINTING_NONE);
}

int64_t plan_count_checkpointing(const struct plan *plan, enum checkpointing kind, int64_t blocks)
{
	const char *cursor = plan->activation_checkpointing;
	struct value_run run;
	int64_t total = 0;
	while (runs_next(&cursor, &run))
		if (run_is(&run, checkpointing_names[kind]))
			total += run.count > 0 ? run.count : blocks;
	return total;
}

bool plan_checkpoints(const struct plan *plan, enum checkpointing kind)
{
	return runs_have(plan->activation_checkpointing, checkpointing_names[kind]);
}

const char *plan_checkpointing_text(struct arena *arena, const enum checkpointing *row, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	for (int64_t i = 0; i < n; i++)
		words[i] = checkpointing_names[row[i]];
	return runs_print(arena, words, n);
}

/* --- units ---------------------------------------------------------------------------------------
 */

/* "true" of every unit and of the root too. */
static const char with_root[] = "all";

static int64_t group_of(const struct value_run *run)
{
	char digits[24];
	int64_t group = 0;
	if (run_is(run, "true") || run_is(run, with_root))
		return -1;
	if (run->length >= (int)sizeof(digits))
		return 0;
	memcpy(digits, run->word, (size_t)run->length);
	digits[run->length] = '\0';
	return parse_int(digits, &group) ? group : 0;
}

int64_t plan_reshard_group_at(const struct plan *plan, int64_t place)
{
	struct value_run run;
	return runs_at(plan->reshard_after_forward, place, &run) ? group_of(&run) : 0;
}

bool plan_reshards_root(const struct plan *plan)
{
	return strcmp(plan->reshard_after_forward, with_root) == 0;
}

const char *plan_reshard_text(struct arena *arena, const int64_t *groups, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	for (int64_t i = 0; i < n; i++)
		words[i] = groups[i] < 0    ? "true"
			   : groups[i] == 0 ? "false"
					    : arena_printf(arena, "%lld", (long long)groups[i]);
	return runs_print(arena, words, n);
}

enum offload plan_offload_at(const struct plan *plan, int64_t place)
{
	int offload = value_at(plan->cpu_offload, place, offload_names, OFFLOAD_NONE);
	return offload == OFFLOAD_ALL ? OFFLOAD_PARAMETERS : (enum offload)offload;
}

bool plan_offloads(const struct plan *plan, enum offload kind)
{
	return runs_have(plan->cpu_offload, offload_names[kind]) ||
	       (kind == OFFLOAD_PARAMETERS &&
		       runs_have(plan->cpu_offload, offload_names[OFFLOAD_ALL]));
}

bool plan_offloads_any(const struct plan *plan)
{
	return plan_offloads(plan, OFFLOAD_OPTIMIZER) || plan_offloads(plan, OFFLOAD_PARAMETERS);
}

const char *plan_offload_text(struct arena *arena, const enum offload *row, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	for (int64_t i = 0; i < n; i++)
		words[i] = offload_names[row[i] == OFFLOAD_ALL ? OFFLOAD_PARAMETERS : row[i]];
	return runs_print(arena, words, n);
}

/* --- normal form ----------------------------------------------------------------------
 */

void plan_normalise(struct plan *plan, struct arena *arena)
{
	plan->activation_checkpointing =
		runs_normalise(arena, plan->activation_checkpointing, NULL, NULL);
	plan->reshard_after_forward =
		runs_normalise(arena, plan->reshard_after_forward, NULL, NULL);
	plan->cpu_offload = runs_normalise(arena, plan->cpu_offload, offload_names[OFFLOAD_ALL],
		offload_names[OFFLOAD_PARAMETERS]);
}

/* --- selective checkpointing -------
 */

static bool is_product(const struct model *model, int module)
{
	return model->modules[module].n_parameters == 1 &&
	       module_is_linear(model->modules[module].kind);
}

bool plan_selective_keeps(const struct plan *plan, const struct model *model, int module)
{
	const struct module *modules = model->modules;
	bool flash = modules[module].kind == MODULE_ATTENTION_CORE &&
		     attention_is_flash(plan->attention);
	int products = 0;
	if (flash || !is_product(model, module))
		return flash;
	for (int m = module; m >= 0 && modules[m].layer == modules[module].layer; m--)
		products += is_product(model, m);
	return products % 2 == 1;
}
