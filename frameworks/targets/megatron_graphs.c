/* Megatron-LM's CUDA graphs: the keys that say what is captured. */
#include <string.h>

#include "frameworks/targets/megatron.h"

/* --- export --------------------------------------------------------------------------------- */

static bool captures_passes(const struct exporting *exporting)
{
	return exporting->plan->cuda_graph_scope.of & GRAPH_BIT(FULL_ITERATION);
}

static bool captures(const struct exporting *exporting)
{
	return exporting->plan->cuda_graph_scope.of != 0;
}

const char *megatron_graphs(struct exporting *exporting)
{
	return captures_passes(exporting) ? "full_iteration"
	       : captures(exporting)      ? "transformer_engine"
					  : NULL;
}

const char *megatron_graph_scopes(struct exporting *exporting)
{
	const struct name_set *scopes = &exporting->plan->cuda_graph_scope;

	return captures_passes(exporting) ? NULL : megatron_words(exporting, scopes);
}

const char *megatron_rng_tracker(struct exporting *exporting)
{
	return megatron_if_true(captures(exporting));
}

const char *megatron_leaves_nan(struct exporting *exporting)
{
	return megatron_if_true(captures_passes(exporting));
}

/* --- import --------------------------------------------------------------------------------- */

/* The default is the whole block; one of experts refuses it, unless they have a capacity. */
static unsigned whole_block(struct importing *importing, const struct megatron_names *names)
{
	bool experts = import_find(importing, names->experts) != NULL ||
		       import_find(importing, names->expert) != NULL;

	return GRAPH_BIT(ATTN) | (experts ? GRAPH_BIT(MOE) : GRAPH_BIT(MLP));
}

bool megatron_finish_graphs(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *kind = import_text(importing, names->graphs, "none"), *path;
	bool local, external;
	unsigned of;

	if (!import_switch(importing, names->local_graphs, &local, false, error) ||
		!import_switch(importing, names->external_graphs, &external, false, error))
		return false;
	if (strcmp(kind, "none") == 0 && !local && !external)
		return true;
	path = import_list(importing, names->graph_modules);
	if (path == NULL)
		path = import_list(importing, names->graph_scope);
	if (strcmp(kind, "full_iteration") == 0)
		of = GRAPH_BIT(FULL_ITERATION);
	else if (path == NULL || import_is(importing, path, "full"))
		of = whole_block(importing, names);
	else
		of = import_names(importing, path, graph_scope_names);
	if (of == 0)
		return true;
	import_set(importing, KNOB_CUDA_GRAPH_SCOPE, graph_scopes_of(of, importing->arena).text,
		path != NULL ? path
		: local      ? names->local_graphs
		: external   ? names->external_graphs
			     : names->graphs);
	return true;
}
