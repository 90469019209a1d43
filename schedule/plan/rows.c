/* Knobs of blocks and units, and the wrap policy: decodes them, asks about them and finds their
 * normal forms. */

#include "schedule/plan/plan.h"

#include <string.h>

/* No model has as many blocks or units. */
enum { ROWS_MAX = 1 << 16 };

/* --- decoding --------------------------------------------------------------------------------- */

/* Finds the value of a run's word. False when it is none. */
typedef bool value_of_word(const struct field *field, const struct value_run *run, int32_t *value);

static bool parse_rows(const struct field *field, const char *text, value_of_word *value_of,
	struct rows *rows, struct arena *arena)
{
	const char *cursor = text;
	struct value_run run;
	int64_t n = runs_valid(text) ? runs_total(text) : ROWS_MAX + 1;
	if (n > ROWS_MAX)
		return false;
	int32_t *of = ARENA_ARRAY(arena, int32_t, n > 0 ? n : 1), *next = of;
	while (runs_next(&cursor, &run)) {
		int32_t value;
		if (!value_of(field, &run, &value))
			return false;
		for (int64_t i = 0; i < run.count || (run.count == 0 && i == 0); i++)
			*next++ = value;
	}
	*rows = (struct rows){arena_strdup(arena, text), of[0], (int32_t)n, of};
	return true;
}

static bool name_of_word(const struct field *field, const struct value_run *run, int32_t *value)
{
	for (int i = 0; field->names[i] != NULL; i++) {
		*value = i;
		if (run_is(run, field->names[i])) {
			if (field->names == offload_names && i == OFFLOAD_ALL)
				*value = OFFLOAD_PARAMETERS;
			return true;
		}
	}
	return false;
}

/* Reads a whole number from 0 on. */
static bool count_of_word(const struct field *field, const struct value_run *run, int32_t *value)
{
	char digits[12];
	int64_t count;
	(void)field;
	if (run->length >= (int)sizeof(digits))
		return false;
	memcpy(digits, run->word, (size_t)run->length);
	digits[run->length] = '\0';
	if (!parse_int(digits, &count) || count < 0 || count > INT32_MAX)
		return false;
	*value = (int32_t)count;
	return true;
}

static bool group_of_word(const struct field *field, const struct value_run *run, int32_t *value)
{
	*value = run_is(run, "true") ? RESHARD_WHOLE : RESHARD_NOT;
	if (*value == RESHARD_WHOLE || run_is(run, "false"))
		return true;
	if (run_is(run, "all") && run->count == 0) {
		*value = RESHARD_WHOLE_AND_ROOT;
		return true;
	}
	return run->word[0] != '0' && count_of_word(field, run, value);
}

static bool parse_names(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	return parse_rows(field, text, name_of_word, member, arena);
}

static bool parse_groups(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	return parse_rows(field, text, group_of_word, member, arena);
}

/* Reads runs, or a list with commas, which becomes runs. */
static bool parse_counts(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	const char **words = ARENA_ARRAY(arena, const char *, strlen(text) + 1);
	char *list = arena_strdup(arena, text), *at = list;
	int64_t n = 0;
	if (strchr(text, ',') == NULL)
		return parse_rows(field, text, count_of_word, member, arena);
	for (char *end = list; end != NULL && n < ROWS_MAX; n++) {
		end = strchr(at, ',');
		if (end != NULL)
			*end = '\0';
		words[n] = at;
		at = end != NULL ? end + 1 : at;
	}
	return parse_rows(field, runs_print(arena, words, n), count_of_word, member, arena);
}

/* Cuts the ending off if the text has it. */
static bool take_ending(char *text, const char *ending)
{
	size_t length = strlen(text), wanted = strlen(ending);
	bool ends = length > wanted && strcmp(text + length - wanted, ending) == 0;
	if (ends)
		text[length - wanted] = '\0';
	return ends;
}

/* Reads a word, if it ends in ':' a count ("2e7" or "20000000"), and what is wrapped apart. */
static bool parse_wrap(
	const struct field *field, const char *text, void *member, struct arena *arena)
{
	static const char *const words[] = {[WRAP_BLOCK] = "block",
		[WRAP_BLOCKS] = "blocks:",
		[WRAP_SIZE] = "size:",
		[WRAP_MODEL] = "model"};
	struct wrap_policy *policy = member;
	char *typed = arena_strdup(arena, text);
	(void)field;
	*policy = (struct wrap_policy){.text = arena_strdup(arena, text)};
	policy->head = take_ending(typed, "+head");
	policy->embedding = take_ending(typed, "+embedding");
	size_t word = strcspn(typed, ":");
	word += typed[word] == ':';
	for (int i = 0; i < COUNT_OF(words); i++) {
		if (strlen(words[i]) != word || strncmp(words[i], typed, word) != 0)
			continue;
		policy->kind = (enum wrap_kind)i;
		if (words[i][word - 1] == ':')
			return parse_whole_number(typed + word, &policy->argument) &&
			       policy->argument > 0;
		return i != WRAP_MODEL || (!policy->embedding && !policy->head);
	}
	return false;
}

const struct field_decoded rows_decoded = {sizeof(struct rows), NULL, parse_names};
const struct field_decoded reshard_decoded = {
	sizeof(struct rows), "true, false or a group size", parse_groups};
const struct field_decoded counts_decoded = {sizeof(struct rows),
	"counts of blocks such as 7,8,8,7 or 1x7+14x8+1x7, or auto", parse_counts};
const struct field_decoded wrap_decoded = {sizeof(struct wrap_policy),
	"block, blocks:K, size:N or model, and after the first three +embedding, +head or both",
	parse_wrap};

/* --- rows ------------------------------------------------------------------------------------- */

int32_t rows_at(const struct rows *rows, int64_t place)
{
	if (rows->n == 0)
		return rows->all;
	return place >= 0 && place < rows->n ? rows->of[place] : 0;
}

static bool rows_have(const struct rows *rows, int32_t value)
{
	for (int32_t i = 0; i < rows->n; i++)
		if (rows->of[i] == value)
			return true;
	return rows->n == 0 && rows->all == value;
}

struct rows rows_of_name(const char *const *names, int value)
{
	return (struct rows){.text = names[value], .all = value};
}

struct rows rows_of_checkpointing(enum checkpointing kind)
{
	return rows_of_name(checkpointing_names, (int)kind);
}

struct rows rows_of_offload(enum offload kind)
{
	return rows_of_name(offload_names, (int)kind);
}

struct rows rows_of_reshard(bool reshards)
{
	return reshards ? (struct rows){.text = "true", .all = RESHARD_WHOLE}
			: (struct rows){.text = "false", .all = RESHARD_NOT};
}

static struct rows make(struct arena *arena, const char *const *words, int32_t *of, int64_t n)
{
	const char *text = runs_print(arena, words, n);
	bool alike = runs_total(text) == 0;
	return (struct rows){text, n > 0 ? of[0] : 0, alike ? 0 : (int32_t)n, of};
}

struct rows rows_split(struct arena *arena, const struct rows *first, int64_t n,
	const struct rows *second, int64_t m)
{
	int32_t *of = ARENA_ARRAY(arena, int32_t, n + m);
	for (int64_t i = 0; i < n + m; i++)
		of[i] = i < n ? first->all : second->all;
	const char *text = arena_printf(
		arena, "%lldx%s+%lldx%s", (long long)n, first->text, (long long)m, second->text);
	return (struct rows){text, of[0], (int32_t)(n + m), of};
}

/* --- blocks ----------------------------------------------------------------------------------- */

enum checkpointing plan_block_checkpointing(const struct plan *plan, int64_t block)
{
	return block < 0 ? CHECKPOINTING_NONE
			 : (enum checkpointing)rows_at(&plan->activation_checkpointing, block);
}

int64_t plan_count_checkpointing(const struct plan *plan, enum checkpointing kind, int64_t blocks)
{
	const struct rows *rows = &plan->activation_checkpointing;
	int64_t total = 0;
	if (rows->n == 0)
		return rows->all == (int32_t)kind ? blocks : 0;
	for (int32_t i = 0; i < rows->n; i++)
		total += rows->of[i] == (int32_t)kind;
	return total;
}

bool plan_checkpoints(const struct plan *plan, enum checkpointing kind)
{
	return rows_have(&plan->activation_checkpointing, (int32_t)kind);
}

struct rows rows_make_checkpointing(struct arena *arena, const enum checkpointing *row, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	int32_t *of = ARENA_ARRAY(arena, int32_t, n);
	for (int64_t i = 0; i < n; i++) {
		of[i] = (int32_t)row[i];
		words[i] = checkpointing_names[row[i]];
	}
	return make(arena, words, of, n);
}

/* --- units ------------------------------------------------------------------------------------ */

int64_t plan_reshard_group_at(const struct plan *plan, int64_t place)
{
	int32_t group = rows_at(&plan->reshard_after_forward, place);
	return group < 0 ? RESHARD_WHOLE : group;
}

bool plan_reshards_root(const struct plan *plan)
{
	return rows_have(&plan->reshard_after_forward, RESHARD_WHOLE_AND_ROOT);
}

struct rows rows_make_reshard(struct arena *arena, const int64_t *groups, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	int32_t *of = ARENA_ARRAY(arena, int32_t, n);
	for (int64_t i = 0; i < n; i++) {
		of[i] = (int32_t)groups[i];
		words[i] = groups[i] < 0    ? "true"
			   : groups[i] == 0 ? "false"
					    : arena_printf(arena, "%lld", (long long)groups[i]);
	}
	return make(arena, words, of, n);
}

enum offload plan_offload_at(const struct plan *plan, int64_t place)
{
	return (enum offload)rows_at(&plan->cpu_offload, place);
}

bool plan_offloads(const struct plan *plan, enum offload kind)
{
	return rows_have(&plan->cpu_offload, (int32_t)kind);
}

bool plan_offloads_any(const struct plan *plan)
{
	return plan_offloads(plan, OFFLOAD_OPTIMIZER) || plan_offloads(plan, OFFLOAD_PARAMETERS);
}

struct rows rows_make_offload(struct arena *arena, const enum offload *row, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	int32_t *of = ARENA_ARRAY(arena, int32_t, n);
	for (int64_t i = 0; i < n; i++) {
		of[i] = (int32_t)(row[i] == OFFLOAD_ALL ? OFFLOAD_PARAMETERS : row[i]);
		words[i] = offload_names[of[i]];
	}
	return make(arena, words, of, n);
}

struct rows rows_make_counts(struct arena *arena, const int *counts, int64_t n)
{
	const char **words = ARENA_ARRAY(arena, const char *, n);
	int32_t *of = ARENA_ARRAY(arena, int32_t, n);
	for (int64_t i = 0; i < n; i++) {
		of[i] = counts[i];
		words[i] = arena_printf(arena, "%d", counts[i]);
	}
	return make(arena, words, of, n);
}

struct wrap_policy wrap_of_kind(enum wrap_kind kind)
{
	return (struct wrap_policy){.text = kind == WRAP_MODEL ? "model" : "block", .kind = kind};
}

bool wrap_equal(const struct wrap_policy *a, const struct wrap_policy *b)
{
	return a->kind == b->kind && a->argument == b->argument && a->embedding == b->embedding &&
	       a->head == b->head;
}

/* --- normal form ------------------------------------------------------------------------------ */

static void normalise(struct rows *rows, const char *from, const char *to, struct arena *arena)
{
	rows->text = runs_normalise(arena, rows->text, from, to);
	if (runs_total(rows->text) == 0)
		rows->n = 0;
}

void plan_normalise(struct plan *plan, struct arena *arena)
{
	normalise(&plan->activation_checkpointing, NULL, NULL, arena);
	normalise(&plan->reshard_after_forward, NULL, NULL, arena);
	if ((plan->recompute_modules.of & ~(1u << RECOMPUTE_CORE_ATTN)) == 0)
		plan->recompute_modules = (struct name_set){0};
	if (plan->layers_per_stage.text != NULL)
		normalise(&plan->layers_per_stage, NULL, NULL, arena);
	normalise(&plan->cpu_offload, offload_names[OFFLOAD_ALL], offload_names[OFFLOAD_PARAMETERS],
		arena);
}

/* --- in words --------------------------------------------------------------------------------- */

typedef void add_word(const struct value_run *run, struct text *text);

static void add_as_typed(const struct value_run *run, struct text *text)
{
	text_add_bytes(text, run->word, (size_t)run->length);
}

static void add_group(const struct value_run *run, struct text *text)
{
	if (run_is(run, "true"))
		text_add(text, "fully");
	else if (run_is(run, "false"))
		text_add(text, "not");
	else if (run_is(run, "all"))
		text_add(text, "fully, the root too");
	else
		text_printf(text, "to groups of %.*s", run->length, run->word);
}

/* Writes " in the first 8 blocks", then " in the next 3", then " in the last". */
static void add_place(
	const struct value_run *run, const char *thing, bool first, bool last, struct text *text)
{
	text_add(text, first ? " in the first" : last ? " in the last" : " in the next");
	if (run->count > 1)
		text_printf(text, " %lld", (long long)run->count);
	if (first)
		text_printf(text, " %s%s", thing, run->count > 1 ? "s" : "");
}

static void add_runs(const char *runs, const char *thing, add_word *add, struct text *text)
{
	bool first = true;
	struct value_run run;
	while (runs_next(&runs, &run)) {
		bool last = *runs == '\0';
		text_add(text, first ? "" : ", ");
		add(&run, text);
		if (!first || !last)
			add_place(&run, thing, first, last, text);
		first = false;
	}
}

void rows_say(const struct rows *rows, const char *thing, struct text *text)
{
	add_runs(rows->text, thing, add_as_typed, text);
}

/* Of two runs one must be resharded whole and the other not at all. */
static bool add_exception(const char *runs, struct text *text)
{
	struct value_run run, rest;
	if (!runs_next(&runs, &run) || !runs_next(&runs, &rest) || *runs != '\0')
		return false;
	bool head = run_is(&run, "false") && run_is(&rest, "true");
	if (!head && !(run_is(&run, "true") && run_is(&rest, "false")))
		return false;
	int64_t n = head ? run.count : rest.count;
	text_printf(text, "in all units but the %s", head ? "first" : "last");
	if (n > 1)
		text_printf(text, " %lld", (long long)n);
	return true;
}

void plan_say_reshard(const struct plan *plan, struct text *text)
{
	const char *runs = plan->reshard_after_forward.text;
	text_add(text, "reshard after forward ");
	if (!add_exception(runs, text))
		add_runs(runs, "unit", add_group, text);
}
