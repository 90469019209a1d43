/* What Megatron-LM's layers compute again: the keys that say so. */
#include <string.h>

#include "frameworks/targets/megatron.h"

/* --- export --------------------------------------------------------------------------------- */

const char *megatron_granularity(struct exporting *exporting)
{
	const char *value =
		export_knob(exporting->plan, KNOB_ACTIVATION_CHECKPOINTING, exporting->arena);

	return strcmp(value, "none") == 0 ? NULL : value;
}

static const char *of_full(struct exporting *exporting, const char *text)
{
	const char *value = megatron_granularity(exporting);

	return value != NULL && strcmp(value, "selective") != 0 ? text : NULL;
}

const char *megatron_recompute_method(struct exporting *exporting)
{
	return of_full(exporting, "uniform");
}

const char *megatron_recompute_layers(struct exporting *exporting)
{
	return of_full(exporting, "1");
}

const char *megatron_words(struct exporting *exporting, const struct name_set *set)
{
	char *words;

	if (set->of == 0)
		return NULL;
	words = arena_strdup(exporting->arena, set->text);
	for (char *plus; (plus = strchr(words, '+')) != NULL;)
		*plus = ' ';
	return words;
}

const char *megatron_modules(struct exporting *exporting)
{
	return megatron_words(exporting, &exporting->plan->recompute_modules);
}

/* --- import --------------------------------------------------------------------------------- */

/* Without a list it is attention's core; so it is where all that is listed is not known here. */
static bool finish_modules(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *path = import_list(importing, names->modules);
	bool experts = false;
	unsigned of = 0;

	if (!import_switch(importing, names->experts_again, &experts, false, error))
		return false;
	if (!experts && !import_is(importing, names->granularity, "selective"))
		return true;
	if (path != NULL)
		of = import_names(importing, path, recompute_module_names);
	if (experts) {
		of = (of != 0 ? of : 1u << RECOMPUTE_CORE_ATTN) | 1u << RECOMPUTE_MOE;
		import_set(importing, KNOB_ACTIVATION_CHECKPOINTING, "selective",
			names->experts_again);
	}
	if (of != 0)
		import_set(importing, KNOB_RECOMPUTE_MODULES,
			recompute_modules_of(of, importing->arena).text,
			experts ? names->experts_again : path);
	return true;
}

/* The method "uniform" with one layer a piece is every block; else not what was asked for. */
bool megatron_finish_recomputation(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *method = import_text(importing, names->method, "uniform");
	int64_t layers = import_layers(importing), pieces;

	if (!import_count(importing, names->pieces, &pieces, 1, error))
		return false;
	if (!import_is(importing, names->granularity, "full"))
		return finish_modules(importing, names, error);
	if (strcmp(method, "uniform") == 0 && pieces > 1)
		import_note(importing, names->pieces, "%lld: predicted as pieces of one layer",
			(long long)pieces);
	if (strcmp(method, "block") == 0 && pieces < layers &&
		import_value(importing, KNOB_PIPELINE) == NULL)
		import_set(importing, KNOB_ACTIVATION_CHECKPOINTING,
			arena_printf(importing->arena, "%lldxfull+%lldxnone", (long long)pieces,
				(long long)(layers - pieces)),
			names->pieces);
	else if (strcmp(method, "block") == 0 && pieces < layers)
		import_note(importing, names->pieces,
			"%lld of each stage: predicted as all of them", (long long)pieces);
	return true;
}
