/* Checks that knobs which differ by block or unit have as many values as the model and the wrap
 * policy need. */
#include "schedule/resolve/resolve.h"
#include "schedule/units/units.h"

/* As many units, whatever ranks share them: a plan whose expert ranks are not laid out yet has
 * units too. */
static struct plan with_few_ranks(const struct plan *plan)
{
	struct plan few = *plan;
	int64_t expert = plan->mesh.expert;
	few.mesh = (struct mesh){.replicate = 1,
		.shard = expert,
		.tensor = 1,
		.context = 1,
		.pipeline = 1,
		.expert = expert};
	few.expert_tensor = 1;
	return few;
}

int64_t plan_units(const struct plan *plan, const struct model *model, bool *root)
{
	const struct plan few = with_few_ranks(plan);
	struct arena arena = {0};
	struct unit *units;
	int64_t total = 0;
	*root = false;
	if (plan_layout(plan) == LAYOUT_WHOLE)
		return 0;
	int n = units_build(&few, model, &arena, &units);
	for (int u = 0; u < n; u++)
		total += units[u].parameters > 0 &&
			 !(u > 0 && units_are_twins(&units[u - 1], &units[u]));
	*root = n > 0 && units[0].parameters > 0;
	arena_finish(&arena);
	return total;
}

static bool check_total(const char *option, const struct rows *rows, int64_t expected,
	const char *what, struct error *error)
{
	if (rows->n == 0 || rows->n == expected)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--%s %.60s: its runs count %lld, expected the %lld %s", option, rows->text,
		(long long)rows->n, (long long)expected, what);
}

static bool check_units(const struct plan *plan, const struct model *model, struct error *error)
{
	bool root;
	if (plan->reshard_after_forward.n == 0 && plan->cpu_offload.n == 0)
		return true; /* there is nothing to count */
	int64_t units = plan_units(plan, model, &root);
	return check_total("reshard-after-forward", &plan->reshard_after_forward, units - root,
		       "units without the root", error) &&
	       check_total("cpu-offload", &plan->cpu_offload, units,
		       root ? "units with the root" : "units", error);
}

bool plan_check_rows(const struct plan *plan, const struct model *model, struct error *error)
{
	return check_total("activation-checkpointing", &plan->activation_checkpointing,
		       model->architecture.layers, "blocks of the model", error) &&
	       check_units(plan, model, error);
}
