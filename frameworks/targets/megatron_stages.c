/* Megatron-LM's stages: all alike; all but the ends; or as a layout lists them, which has a letter
 * for everything that a stage holds: E embedding, t a block, L the loss; m, a module of multi-token
 * prediction, is a block here. x*N repeats a letter, (...)*N a group
 * (megatron/core/transformer/pipeline_parallel_layer_layout.py, 00caa53). A layout says how many
 * stages a rank has, and nothing else may (megatron/training/arguments.py). */
#include <string.h>

#include "frameworks/targets/megatron.h"
#include "schedule/pipeline/pipeline.h"

enum { STAGES_MAX = 1024, LETTERS_MAX = 1 << 14 };

/* --- writing -------------------------------------------------------------------------------- */

/* Without one Megatron-LM insists on equal stages (megatron/core/transformer/transformer_block.py,
 * get_num_layers_to_build). */
static bool has_layout(const struct exporting *exporting)
{
	const struct pipeline pipeline = plan_pipeline(exporting->plan);
	const struct architecture *model = &exporting->model->architecture;
	bool even = model->layers % (pipeline.ranks * pipeline.chunks) == 0;

	return pipeline.ranks > 1 &&
	       (exporting->plan->layers_per_stage.text != NULL || !even || model->mtp_layers > 0);
}

const char *megatron_virtual_stages(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;

	return plan->pipeline_schedule == PIPELINE_INTERLEAVED && !has_layout(exporting)
		       ? arena_printf(exporting->arena, "%lld",
				 (long long)max_i64(plan->virtual_stages, 2))
		       : NULL;
}

const char *megatron_layout(struct exporting *exporting)
{
	const struct pipeline pipeline = plan_pipeline(exporting->plan);
	int n = pipeline.ranks * pipeline.chunks;
	int *stages = ARENA_ARRAY(exporting->arena, int, n);
	const char *text = "E";
	struct error error = {0};

	if (!has_layout(exporting) ||
		!plan_split(exporting->plan, exporting->model, stages, &error))
		return NULL;
	int next = (int)exporting->model->architecture.mtp_layers;
	for (int s = 0; s < n; s++) {
		int blocks = stages[s] - (s == n - 1 ? next : 0);
		text = arena_printf(exporting->arena, "%s%s", text, s > 0 ? "|" : "");
		if (blocks > 0)
			text = arena_printf(exporting->arena, "%st*%d", text, blocks);
	}
	for (int m = 0; m < next; m++)
		text = arena_printf(exporting->arena, "%sm", text);
	return arena_printf(exporting->arena, "%sL", text);
}

/* --- reading -------------------------------------------------------------------------------- */

/* `text` with what is repeated written out; NULL: it is no layout, or a very long one. */
static const char *write_out(struct arena *arena, const char *text)
{
	struct text out = {0};

	while (*text != '\0' && out.length < LETTERS_MAX) {
		bool group = *text == '(';
		size_t length = group ? strcspn(text, ")") - 1 : 1;
		const char *first = text + group, *behind = first + length + group;
		int64_t times = 1;
		if (group && first[length] != ')')
			break;
		if (*behind == '*') {
			size_t digits = strspn(++behind, "0123456789");
			if (!parse_whole_number(arena_strndup(arena, behind, digits), &times) ||
				times > LETTERS_MAX)
				break;
			behind += digits;
		}
		const char *inner = arena_strndup(arena, first, length);
		if (group)
			inner = write_out(arena, inner);
		if (inner == NULL)
			break;
		for (int64_t i = 0; i < times && out.length < LETTERS_MAX; i++)
			text_add(&out, inner);
		text = behind;
	}
	const char *written = *text == '\0' ? arena_strdup(arena, text_string(&out)) : NULL;
	text_finish(&out);
	return written;
}

const char *megatron_without(struct arena *arena, const char *text, char unwanted)
{
	char *copy = arena_strdup(arena, text), *to = copy;

	for (const char *from = text; *from != '\0'; from++)
		if (*from != unwanted)
			*to++ = *from;
	*to = '\0';
	return copy;
}

/* Blocks of every stage, among them modules of prediction where these are `counted`; the number of
 * stages, or 0. */
static int read_stages(const char *letters, bool counted, int *stages)
{
	size_t length = strlen(letters);
	int n = 1;

	if (length < 2 || letters[0] != 'E' || letters[length - 1] != 'L')
		return 0;
	stages[0] = 0;
	for (size_t i = 1; i < length - 1; i++) {
		if (letters[i] == '|' && n < STAGES_MAX)
			stages[n++] = 0;
		else if (letters[i] == 't' || (letters[i] == 'm' && counted))
			stages[n - 1]++;
		else if (letters[i] != 'm')
			return 0;
	}
	return n;
}

/* Uneven stages as they are without a list: the first ones have a block more. */
static bool is_default_cut(const int *stages, int n)
{
	int all = 0;
	bool same = true;

	for (int s = 0; s < n; s++)
		all += stages[s];
	for (int s = 0; s < n; s++)
		same = same && stages[s] == all / n + (s < all % n);
	return same && all % n != 0;
}

static bool finish_layout(struct importing *importing, const char *path, int64_t ranks, bool next,
	struct error *error)
{
	struct arena *arena = importing->arena;
	const char *given = import_text(importing, path, ""), *list = "";
	const char *text = given != NULL ? given : "a list";
	const char *letters = write_out(arena, megatron_without(arena, text, ','));
	int *stages = ARENA_ARRAY(arena, int, STAGES_MAX);
	int n = letters != NULL ? read_stages(letters, next, stages) : 0;

	if (n == 0)
		return import_fail(importing, path, error,
			"expected a layout such as Et*7|t*8|t*7L, got \"%.60s\"", text);
	if (n % ranks != 0)
		return import_fail(importing, path, error,
			"%d stages are not as many on %lld ranks", n, (long long)ranks);
	for (int s = 0; s < n; s++)
		list = arena_printf(arena, "%s%s%d", list, s > 0 ? "," : "", stages[s]);
	import_set(importing, KNOB_PIPELINE_SCHEDULE, n > ranks ? "interleaved" : "1f1b", NULL);
	if (n > ranks)
		import_set_count(importing, KNOB_VIRTUAL_STAGES, n / ranks, path);
	if (!is_default_cut(stages, n))
		import_set(importing, KNOB_LAYERS_PER_STAGE, list, path);
	return true;
}

/* Which of embedding and loss count as blocks; `path` of one that does, or NULL. */
struct ends {
	bool first, last;
	const char *path;
};

/* Blocks of the first and of the last stage; the others share the rest. */
static bool finish_split(struct importing *importing, const struct megatron_names *names,
	int64_t stages, struct error *error)
{
	int64_t layers = import_layers(importing), first, last;

	if (!import_count(importing, names->first, &first, 0, error) ||
		!import_count(importing, names->last, &last, 0, error))
		return false;
	const char *path = first > 0 ? names->first : names->last;
	int64_t others = stages - (first > 0) - (last > 0), rest = layers - first - last;
	if (first == 0 && last == 0)
		return true;
	if (layers == 0 || others < 1 || rest < others || rest % others != 0)
		return import_fail(importing, path, error,
			"expected blocks that leave as many to each other stage");
	const char *text = arena_printf(
		importing->arena, "%lldx%lld", (long long)others, (long long)(rest / others));
	if (first > 0)
		text = arena_printf(importing->arena, "1x%lld+%s", (long long)first, text);
	if (last > 0)
		text = arena_printf(importing->arena, "%s+1x%lld", text, (long long)last);
	import_set(importing, KNOB_LAYERS_PER_STAGE, text, path);
	return true;
}

/* The embedding and the loss count as a block each, where the file says so: their stages have one
 * block less than the others. */
static bool finish_counted_ends(
	struct importing *importing, const struct ends *ends, int64_t stages, struct error *error)
{
	int64_t all = import_layers(importing) + ends->first + ends->last;
	int64_t each = all / stages;

	if (all % stages != 0 || stages < 2)
		return import_fail(importing, ends->path, error,
			"expected blocks that, the ends among them, make %lld equal stages",
			(long long)stages);
	const char *text =
		arena_printf(importing->arena, "1x%lld", (long long)(each - ends->first));
	if (stages > 2)
		text = arena_printf(importing->arena, "%s+%lldx%lld", text, (long long)(stages - 2),
			(long long)each);
	text = arena_printf(importing->arena, "%s+1x%lld", text, (long long)(each - ends->last));
	import_set(importing, KNOB_LAYERS_PER_STAGE, text, ends->path);
	return true;
}

static bool read_ends(struct importing *importing, const struct megatron_names *names,
	struct ends *ends, struct error *error)
{
	ends->path = NULL;
	if (!import_switch(importing, names->counts_embedding, &ends->first, false, error) ||
		!import_switch(importing, names->counts_loss, &ends->last, false, error))
		return false;
	ends->path = ends->first ? names->counts_embedding : ends->last ? names->counts_loss : NULL;
	return true;
}

/* Without a layout the last stage has them beside as many blocks as the others have. */
static void finish_next(
	struct importing *importing, const char *path, int64_t modules, bool is_placed)
{
	if (modules > 0 && is_placed)
		import_set_count(importing, KEY_MTP_LAYERS, modules, path);
	else if (modules > 0)
		import_note(importing, path,
			"predicted without these modules, as no layout places them");
}

bool megatron_finish_stages(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *a_rank = names->chunks, *a_stage = names->chunk_blocks;
	struct ends ends;
	int64_t layers = import_layers(importing), ranks, chunks, blocks, next;

	if (!import_count(importing, names->pipeline, &ranks, 1, error) ||
		!import_count(importing, names->next, &next, 0, error) ||
		!import_count(importing, a_rank, &chunks, 1, error) ||
		!import_count(importing, a_stage, &blocks, 0, error) ||
		!read_ends(importing, names, &ends, error))
		return false;
	bool listed = !import_is_unset(import_find(importing, names->layout));
	finish_next(importing, names->next, next, listed || ranks == 1);
	layers += layers > 0 ? ends.first + ends.last : 0;
	if (ranks == 1)
		return true;
	if (listed)
		return finish_layout(importing, names->layout, ranks, next > 0, error);
	if (blocks > 0 && layers == 0)
		return import_fail(importing, a_stage, error,
			"the file does not say how many blocks the model has; name the model: "
			"import FILE MODEL");
	if (blocks > 0 && layers % (ranks * blocks) != 0)
		return import_fail(importing, a_stage, error,
			"expected a size that makes whole stages of %lld blocks on %lld ranks",
			(long long)layers, (long long)ranks);
	if (blocks > 0)
		chunks = layers / (ranks * blocks);
	import_set(importing, KNOB_PIPELINE_SCHEDULE, chunks > 1 ? "interleaved" : "1f1b", NULL);
	if (chunks > 1)
		import_set_count(
			importing, KNOB_VIRTUAL_STAGES, chunks, blocks > 0 ? a_stage : a_rank);
	if (ends.path != NULL && layers > 0)
		return finish_counted_ends(importing, &ends, ranks * chunks, error);
	return finish_split(importing, names, ranks * chunks, error);
}
