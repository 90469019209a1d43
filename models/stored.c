/* Tensors of files compared with an architecture block by block: names inside of a block differ
 * between versions of a library (fused or not), sums do not. */
#include "models/stored.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "models/safetensors.h"

struct stored_tensor {
	const char *name, *part; /* "model.layers.3" of "model.layers.3.mlp.up_proj.weight" */
	int64_t elements;
	bool packed; /* a dtype that holds something else than one parameter an element */
	bool counts;
};

/* Elements of one part. */
struct part {
	const char *name;
	int64_t elements;
};

struct stored {
	struct arena *arena;
	int n, capacity;
	struct stored_tensor *tensors; /* grown in the arena */
};

struct stored *stored_new(struct arena *arena)
{
	struct stored *stored = ARENA_NEW(arena, struct stored);

	stored->arena = arena;
	return stored;
}

int64_t stored_tensors(const struct stored *stored)
{
	return stored->n;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Libraries and wrappers put different words in front of the same tensor. */
static const char *without_prefix(const char *name)
{
	static const char *const prefixes[] = {
		"module.", "base_model.", "language_model.", "model.", "transformer."};
	bool found = true;

	while (found) {
		found = false;
		for (int i = 0; i < COUNT_OF(prefixes); i++) {
			size_t length = strlen(prefixes[i]);

			if (strncmp(name, prefixes[i], length) == 0) {
				name += length;
				found = true;
			}
		}
	}
	return name;
}

/* Up to and with the number of the block; "" for what is outside of blocks. */
static const char *part_of(struct arena *arena, const char *name)
{
	const char *start = without_prefix(name);

	for (const char *at = start; (at = strchr(at, '.')) != NULL;) {
		size_t digits = strspn(++at, "0123456789");

		if (digits > 0 && at[digits] == '.')
			return arena_strndup(
				arena, start, (size_t)(at + (ptrdiff_t)digits - start));
	}
	return "";
}

static bool ends_with(const char *name, const char *end)
{
	size_t a = strlen(name), b = strlen(end);

	return a >= b && strcmp(name + a - b, end) == 0;
}

/* Not parameters: tables that older files carry, the other parts of multi-modal models. */
static bool is_other(const char *name)
{
	static const char *const parts[] = {"vision_tower", "vision_model", "visual.",
		"multi_modal_projector", "audio_tower", "mtp.", "image_newline"};
	static const char *const buffers[] = {".rotary_emb.inv_freq", ".attn.bias",
		".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
		".e_score_correction_bias", ".num_batches_tracked"};
	const char *start = without_prefix(name);

	for (int i = 0; i < COUNT_OF(parts); i++)
		if (strncmp(start, parts[i], strlen(parts[i])) == 0)
			return true;
	for (int i = 0; i < COUNT_OF(buffers); i++)
		if (ends_with(name, buffers[i]))
			return true;
	return false;
}

static void reserve(struct stored *s, int more)
{
	struct stored_tensor *old = s->tensors;

	if (s->n + more <= s->capacity)
		return;
	s->capacity = 2 * (s->n + more);
	s->tensors = ARENA_ARRAY(s->arena, struct stored_tensor, s->capacity);
	if (s->n > 0)
		memcpy(s->tensors, old, (size_t)s->n * sizeof(*old));
}

bool stored_add_header(struct stored *stored, const char *name, const char *text, size_t length,
	struct error *error)
{
	struct safetensors_entry *entries;
	int n;

	if (!safetensors_read_header(stored->arena, name, text, length, &entries, &n, error))
		return false;
	reserve(stored, n);
	for (int i = 0; i < n; i++)
		stored->tensors[stored->n++] = (struct stored_tensor){
			.name = entries[i].name,
			.part = part_of(stored->arena, entries[i].name),
			.elements = entries[i].elements,
			.packed = entries[i].dtype->packed,
		};
	return true;
}

/* --- comparison ------------------------------------------------------------------------------- */

static bool has(const struct stored *c, const char *end)
{
	for (int i = 0; i < c->n; i++)
		if (strcmp(without_prefix(c->tensors[i].name), end) == 0)
			return true;
	return false;
}

/* Some files hold a tied weight under every name that it has. */
static bool is_copy(const struct stored *c, const struct model *model, const char *name)
{
	const char *start = without_prefix(name);

	if (model->architecture.tied_head &&
		(strcmp(start, "lm_head.weight") == 0 || strcmp(start, "embed_out.weight") == 0))
		return true;
	return ends_with(start, "coder.embed_tokens.weight") && has(c, "shared.weight");
}

int64_t stored_parameters(struct stored *stored, const struct model *model, bool *quantised)
{
	int64_t total = 0;

	*quantised = false;
	for (int i = 0; i < stored->n; i++) {
		struct stored_tensor *e = &stored->tensors[i];

		e->counts = !is_other(e->name) && !is_copy(stored, model, e->name);
		if (!e->counts)
			continue;
		*quantised |= e->packed;
		if (!checked_add(total, e->elements, &total))
			return INT64_MAX;
	}
	return total;
}

static int compare_parts(const void *a, const void *b)
{
	return strcmp(((const struct part *)a)->name, ((const struct part *)b)->name);
}

/* Sorted by name, each once. */
static int merge(struct part *parts, int n)
{
	int kept = 0;

	qsort(parts, (size_t)n, sizeof(*parts), compare_parts);
	for (int i = 0; i < n; i++) {
		if (kept > 0 && strcmp(parts[kept - 1].name, parts[i].name) == 0)
			parts[kept - 1].elements += parts[i].elements;
		else
			parts[kept++] = parts[i];
	}
	return kept;
}

static const char *describe(struct arena *arena, const char *part, int64_t expected, int64_t got)
{
	return arena_printf(arena, "%s: expected %" PRId64 " parameters, got %" PRId64,
		part[0] != '\0' ? part : "outside of blocks", expected, got);
}

int stored_differences(struct arena *arena, const struct stored *stored, const struct model *model,
	const char **lines, int max)
{
	struct part *want = ARENA_ARRAY(arena, struct part, model->n_parameters + 1);
	struct part *got = ARENA_ARRAY(arena, struct part, stored->n + 1);
	int n_want = 0, n_got = 0, n = 0;

	for (int i = 0; i < model->n_parameters; i++)
		want[n_want++] = (struct part){
			part_of(arena, model->parameters[i].name), model->parameters[i].elements};
	for (int i = 0; i < stored->n; i++)
		if (stored->tensors[i].counts)
			got[n_got++] =
				(struct part){stored->tensors[i].part, stored->tensors[i].elements};
	n_want = merge(want, n_want);
	n_got = merge(got, n_got);
	for (int i = 0, k = 0; i < n_want || k < n_got;) {
		int order = i == n_want ? 1 : k == n_got ? -1 : strcmp(want[i].name, got[k].name);
		int64_t expected = order <= 0 ? want[i].elements : 0;
		int64_t found = order >= 0 ? got[k].elements : 0;
		const char *part = order <= 0 ? want[i].name : got[k].name;

		if (expected != found && n++ < max)
			lines[n - 1] = describe(arena, part, expected, found);
		i += order <= 0;
		k += order >= 0;
	}
	return n;
}
