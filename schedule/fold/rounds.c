/* A pipeline with a round of micro-batches that stands for others. */
#include "schedule/fold/fold.h"
#include "schedule/passes/passes.h"

/* The first forward of a micro-batch from operation `first` on; -1: there is none. */
static int find_forward(const struct program *program, int first, int64_t micro_batch)
{
	for (int i = first; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_FORWARD &&
			program->ops[i].micro_batch == micro_batch)
			return i;
	return -1;
}

/* The operation at which the repeated round begins, or a round `rounds` later; -1: there is none.
 * With several stages a round is counted from the second stage on, so that it does not contain
 * operations after the last forward, or beside the last forwards of other ranks. */
static int find_round(const struct short_list *list, const struct program *program, int rounds)
{
	int64_t first = list->filling + rounds * list->round;
	if (list->round == 1)
		return find_forward(program, 0, first);
	first -= list->round;
	int last = find_forward(program, 0, first + list->round - 1);
	return last < 0 ? -1 : find_forward(program, last, first);
}

static bool mark_round(
	const struct short_list *list, int64_t micro_batches, struct program *program)
{
	int first = find_round(list, program, 0), next = find_round(list, program, 1);
	if (first < 0 || next <= first)
		return false;
	int more = (int)((micro_batches - list->listed) / list->round);
	program->rounds = (struct rounds){first, next - first, 1 + more, list->round};
	return true;
}

struct schedule *schedule_fold_rounds(struct arena *arena, const struct plan *plan,
	const struct short_list *list, const struct model *model, const struct topology *topology)
{
	const struct plan shorter = plan_with_micro_batches(plan, list->listed);
	struct schedule *schedule = steps_run(arena, &shorter, model, topology);
	bool found = true;
	for (int c = 0; c < schedule->n_classes; c++)
		found = mark_round(list, plan->grad_accum, &schedule->programs[c]) && found;
	schedule->plan.grad_accum = plan->grad_accum;
	schedule->plan.global_batch = plan->global_batch;
	return found ? schedule : NULL;
}
