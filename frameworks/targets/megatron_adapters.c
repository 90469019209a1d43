/* Megatron-Bridge's adapters (peft/lora.py, peft/canonical_lora.py): `peft` of its files. LoRA has
 * one beside each of Megatron-Core's layers, CanonicalLoRA one beside each projection. */
#include <string.h>

#include "frameworks/targets/megatron.h"

#define PEFT(name) "peft." name

/* --- export --------------------------------------------------------------------------------- */

static const struct trainable *trained_layers(struct exporting *exporting)
{
	const struct trainable *trainable = &exporting->plan->trainable;

	return trainable_names_layers(trainable) ? trainable : NULL;
}

const char *megatron_adapter_rank(struct exporting *exporting)
{
	const struct trainable *trainable = trained_layers(exporting);

	return trainable == NULL
		       ? NULL
		       : arena_printf(exporting->arena, "%lld", (long long)trainable->rank);
}

const char *megatron_adapter_alpha(struct exporting *exporting)
{
	const struct trainable *trainable = trained_layers(exporting);

	return trainable == NULL ? NULL : arena_printf(exporting->arena, "%g", trainable->alpha);
}

const char *megatron_adapted(struct exporting *exporting)
{
	const struct trainable *trainable = trained_layers(exporting);
	char *words;

	if (trainable == NULL)
		return NULL;
	words = arena_strdup(exporting->arena, trainable->modules);
	for (char *comma; (comma = strchr(words, ',')) != NULL;)
		*comma = ' ';
	return words;
}

/* What its YAML has no keys for is the recipe's. */
void megatron_note_trained(struct exporting *exporting, const struct plan *plan)
{
	const struct trainable *trainable = &plan->trainable;

	if (trainable_is_all(trainable))
		return;
	export_note_elsewhere(exporting, "trainable", "%s: %s", trainable->text,
		trainable_names_layers(trainable) ? "peft = LoRA() in the recipe"
		: trainable->rank > 0             ? "peft = CanonicalLoRA(...) in the recipe"
						  : "a pre-wrap hook freezes the rest");
}

/* --- import --------------------------------------------------------------------------------- */

/* In the order of `projections`. */
static const char *const layers[] = {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", NULL};
static const char *const canonical[] = {"linear_q", "linear_k", "linear_v", "linear_proj",
	"linear_fc1_gate", "linear_fc1_up", "linear_fc2", NULL};
static const char *const projections[] = {
	"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

/* The named ones; all, unless the file names some. */
static const char *modules(struct importing *importing, bool is_canonical)
{
	const char *const *known = is_canonical ? canonical : layers;
	const char *const *names = is_canonical ? projections : layers;
	const char *path = import_list(importing, PEFT("target_modules")), *text = "";
	unsigned of = path != NULL ? import_names(importing, path, known) : ~0u;

	for (int i = 0; known[i] != NULL; i++)
		if (of & 1u << i)
			text = arena_printf(importing->arena, "%s%s%s", text,
				text[0] != '\0' ? "," : "", names[i]);
	return text;
}

bool megatron_finish_adapters(struct importing *importing, struct error *error)
{
	const char *kind = import_text(importing, PEFT("_target_"), "LoRA");
	const char *alpha = import_text(importing, PEFT("alpha"), "32"), *adapted;
	int64_t rank;

	if (import_find(importing, PEFT("dim")) == NULL &&
		import_find(importing, PEFT("_target_")) == NULL)
		return true;
	if (!import_count(importing, PEFT("dim"), &rank, 32, error))
		return false;
	if (strstr(kind, "DoRA") != NULL)
		import_note(importing, PEFT("_target_"), "is predicted as LoRA");
	adapted = modules(importing, strstr(kind, "Canonical") != NULL);
	if (adapted[0] == '\0')
		return import_fail(importing, import_list(importing, PEFT("target_modules")), error,
			"none of these layers is predicted; name linear_qkv or another one");
	import_set(importing, KNOB_TRAINABLE,
		arena_printf(
			importing->arena, "lora:%lld:%s:alpha=%s", (long long)rank, adapted, alpha),
		import_find(importing, PEFT("dim")) != NULL ? PEFT("dim") : PEFT("_target_"));
	return true;
}
