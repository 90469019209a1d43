#include "cli/commands/resumption.h"

#include <string.h>

#include "cli/terminal/terminal.h"

/* --- one command for all starts of a run --- */

/* Does --resume name the folder of --checkpoint? */
static bool is_restarted(const struct arguments *arguments, struct arena *arena)
{
	const char *from = argument(arguments, "resume"), *to = argument(arguments, "checkpoint");

	return from != NULL && to != NULL && file_same_path(arena, from, to);
}

/* Returns true, and says so, where no checkpoint was ever completed. */
static bool is_first_start(struct arena *arena, const char *folder)
{
	const char *unfinished;

	if (!executor_may_begin(arena, folder, &unfinished))
		return false;
	if (unfinished != NULL)
		output_note("%s: no checkpoint yet (%s was not completed): "
			    "training from the beginning",
			folder, unfinished);
	else
		output_note("%s: no checkpoint yet: training from the beginning", folder);
	return true;
}

static void say_finished(const struct checkpoint_info *from, int64_t steps)
{
	output_note("%s has done %lld of --steps %lld (counted from the first run's start): "
		    "nothing to train",
		from->folder, (long long)from->step, (long long)steps);
}

/* --- what a run goes on from --- */

/* What was not given is as in the run that is resumed, so that it goes on as if undisturbed. */
static void take_over(
	const struct arguments *arguments, const struct training *before, struct training *training)
{
	if (!argument_given(arguments, "seed"))
		training->seed = before->seed;
	if (!argument_given(arguments, "lr"))
		training->learning_rate = before->learning_rate;
	if (!argument_given(arguments, "warmup"))
		training->warmup = before->warmup;
	if (!argument_given(arguments, "lr-schedule"))
		training->lr_schedule = before->lr_schedule;
	if (!argument_given(arguments, "min-lr"))
		training->min_lr = before->min_lr;
	training->beta1 = before->beta1;
	training->beta2 = before->beta2;
	training->epsilon = before->epsilon;
	training->weight_decay = before->weight_decay;
}

/* Ranks look at the contents of what they go on from. Of one that has all steps already none goes
 * on, and the last one may be damaged: then an older one is to be gone on from. */
static bool find(struct arena *arena, const char *path, const struct model *model, int64_t steps,
	struct checkpoint_info *found, struct error *error)
{
	if (!executor_find_checkpoint(arena, path, model, false, found, error) ||
		(found->step >= steps &&
			!executor_find_checkpoint(arena, path, model, true, found, error)))
		return false;
	output_note_lines(found->notes);
	return true;
}

bool resumption_find(const struct arguments *arguments, struct arena *arena,
	const struct model *model, struct training *training, struct resumption *resumption,
	struct error *error)
{
	const char *path = argument(arguments, "resume");
	bool restarted = is_restarted(arguments, arena);

	*resumption = (struct resumption){.weights = argument(arguments, "weights")};
	if (path == NULL || (restarted && is_first_start(arena, path)))
		return true;
	if (!find(arena, path, model, training->steps, &resumption->from, error))
		return false;
	take_over(arguments, &resumption->from.training, training);
	if (!restarted)
		return true;
	/* They were for the first start. */
	resumption->weights = NULL;
	resumption->finished = resumption->from.step >= training->steps;
	if (resumption->finished)
		say_finished(&resumption->from, training->steps);
	return true;
}

void resumption_note(const struct resumption *resumption, const struct training *training,
	const struct plan *plan)
{
	const struct checkpoint_info *before = &resumption->from;
	int64_t ranks = plan_ranks(plan);

	if (before->folder == NULL)
		return;
	output_note("resuming at step %lld from %s", (long long)before->step, before->folder);
	if (training->seed != before->training.seed)
		output_note("  another seed: the data comes in another order");
	if (plan->seq_len != before->seq_len || plan->global_batch != before->global_batch)
		output_note("  batches of %lld x %lld tokens instead of %lld x %lld: "
			    "the data comes in another order",
			(long long)plan->global_batch, (long long)plan->seq_len,
			(long long)before->global_batch, (long long)before->seq_len);
	bool has_moments = plan->optimizer != OPTIMIZER_SGD;
	if (has_moments != before->has_moments)
		output_note(has_moments ? "  AdamW instead of SGD: its moments start at 0"
					: "  SGD instead of AdamW: the moments are not used");
	if (ranks != before->ranks && plan->gradient_sums != SUMS_EXACT)
		output_note("  %lld ranks instead of %lld: sums are made in another order",
			(long long)ranks, (long long)before->ranks);
}
