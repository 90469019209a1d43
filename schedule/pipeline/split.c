/* Finds how many blocks every stage has, by the rules of frameworks or as they are listed. */
#include "schedule/pipeline/pipeline.h"

static int count_stages(const struct pipeline_split *split)
{
	return split->ranks * split->chunks;
}

/* Counts what there is to share out, in blocks. */
static int count_all(const struct pipeline_split *split)
{
	return split->blocks + split->embedding + split->head;
}

/* Takes from both ends what embedding and head count as. */
static void take_ends(const struct pipeline_split *split, int *stages)
{
	stages[0] -= split->embedding;
	stages[count_stages(split) - 1] -= split->head;
}

/* --- even ----------------------------------------------------------------------------------------
 */

bool pipeline_split_even(const struct pipeline_split *split, int *stages, struct error *error)
{
	int n = count_stages(split), all = count_all(split), each = all / n;
	int heavier = split->embedding > split->head ? split->embedding : split->head;

	if (each == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--pipeline %d: %d blocks, embedding and head do not fill %d stages; "
			"use at most %d",
			split->ranks, split->blocks, n,
			all / split->chunks > 0 ? all / split->chunks : 1);
	if (n > 1 && heavier > each)
		return error_set(error, EXIT_CODE_USAGE,
			"--pipeline %d: the %s counts as %d blocks, more than the %d of a stage; "
			"use fewer stages, or let it count as %d",
			split->ranks, heavier == split->head ? "head" : "embedding", heavier, each,
			each);
	for (int s = 0; s < n; s++)
		stages[s] = each + (s < all % n);
	take_ends(split, stages);
	return true;
}

/* --- by cost -------------------------------------------------------------------------------------
 */

/* Modules come one after the other, each on the stage that is being filled. */
struct filling {
	int ranks, stage;
	double all, so_far;
};

static int put(struct filling *f, double cost)
{
	int stage = f->stage;
	f->so_far += cost;
	f->stage += f->so_far > f->all * ((double)(stage + 1) / f->ranks);
	return stage;
}

static bool cut_by_cost(
	const struct pipeline_split *split, int ranks, double block, double head, int *stages)
{
	struct filling f = {.ranks = ranks, .all = split->blocks * block + head};
	bool ok = true;

	for (int s = 0; s < ranks; s++)
		stages[s] = 0;
	put(&f, 0); /* the embedding */
	for (int b = 0; b < split->blocks; b++)
		stages[put(&f, block)]++;
	put(&f, 0); /* the final norm */
	for (int s = 1; s < ranks - 1; s++)
		ok = ok && stages[s] > 0;
	return ok && put(&f, head) == ranks - 1;
}

bool pipeline_split_by_cost(const struct pipeline_split *split, double block, double head,
	int *stages, struct error *error)
{
	int most = split->ranks;

	if (cut_by_cost(split, most, block, head, stages))
		return true;
	while (most > 1 && !cut_by_cost(split, most, block, head, stages))
		most--;
	return error_set(error, EXIT_CODE_USAGE,
		"--pipeline %d: cut by cost, %d blocks and the head do not fill %d stages; use %d, "
		"or --layers-per-stage",
		split->ranks, split->blocks, split->ranks, most);
}

/* --- listed --------------------------------------------------------------------------------------
 */

bool pipeline_split_listed(
	const struct pipeline_split *split, const int *listed, int n, struct error *error)
{
	int64_t sum = 0;

	if (n != count_stages(split))
		return error_set(error, EXIT_CODE_USAGE,
			"--layers-per-stage: %d counts for %d stages "
			"(--pipeline %d, --virtual-stages %d); give one for each",
			n, count_stages(split), split->ranks, split->chunks);
	for (int s = 0; s < n; s++) {
		if (listed[s] < (s > 0 && s < n - 1))
			return error_set(error, EXIT_CODE_USAGE,
				"--layers-per-stage: stage %d has %d blocks; "
				"only the first and the last may have 0, beside embedding and head",
				s, listed[s]);
		sum += listed[s];
	}
	return sum == split->blocks ||
	       error_set(error, EXIT_CODE_USAGE,
		       "--layers-per-stage: the counts make %lld blocks, the model has %d; %s %lld",
		       (long long)sum, split->blocks, sum < split->blocks ? "add" : "take away",
		       (long long)(sum < split->blocks ? split->blocks - sum
						       : sum - split->blocks));
}
