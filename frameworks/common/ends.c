/* Sources: accelerate 1.15 (src/accelerate/utils/fsdp_utils.py: fsdp2_prepare_model), torchtitan
 * (torchtitan/models/llama3/parallelize.py: apply_fsdp). */
#include <string.h>

#include "frameworks/common/ends.h"
#include "schedule/resolve/resolve.h"

const char *ends_wrap(struct arena *arena, const struct model *model, const char *wrap)
{
	if (model->architecture.tied_head || strncmp(wrap, "model", 5) == 0)
		return wrap;
	return arena_printf(arena, "%.*s+embedding+head", (int)strcspn(wrap, "+"), wrap);
}

const char *ends_reshard(struct arena *arena, const struct model *model, const struct plan *plan)
{
	bool root;

	if (!plan->wrap.head || model->architecture.tied_head || !strategy_reshards(plan->strategy))
		return NULL;
	int64_t units = plan_units(plan, model, &root) - root;
	return units > 1 ? arena_printf(arena, "%lldxtrue+1xfalse", (long long)(units - 1)) : NULL;
}

bool ends_tail_stays(struct arena *arena, const struct model *model, const struct plan *plan)
{
	const char *stays = ends_reshard(arena, model, plan);

	return stays != NULL && strcmp(plan->reshard_after_forward.text, stays) == 0;
}
