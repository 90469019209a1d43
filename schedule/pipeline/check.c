/* Checks which orders there are, and finds the values nearest to one that does not work. */
#include "schedule/pipeline/slots.h"

/* --- stages on each rank -------------------------------------------------------------------------
 */

static const struct {
	int least, most; /* stages on each rank; most is 0 for any number */
	const char *has; /* part of a message */
	const char *instead;
} chunks_of[PIPELINE_SCHEDULE_COUNT] = {
	[PIPELINE_GPIPE] = {1, 1, "one stage", "1, or --pipeline-schedule interleaved"},
	[PIPELINE_1F1B] = {1, 1, "one stage", "1, or --pipeline-schedule interleaved"},
	[PIPELINE_INTERLEAVED] = {2, 0, "several stages", "2, or --pipeline-schedule 1f1b"},
	[PIPELINE_ZB_H1] = {1, 0, "", ""},
	[PIPELINE_ZBV] = {2, 2, "two stages", "2"},
	[PIPELINE_DUALPIPEV] = {2, 2, "two stages", "2"},
};

static bool check_chunks(const struct pipeline *pipeline, struct error *error)
{
	enum pipeline_schedule schedule = pipeline->schedule;
	int most = chunks_of[schedule].most;

	if (pipeline->chunks >= chunks_of[schedule].least &&
		(most == 0 || pipeline->chunks <= most))
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"--virtual-stages %d: %s has %s on each rank; use %s", pipeline->chunks,
		pipeline_schedule_names[schedule], chunks_of[schedule].has,
		chunks_of[schedule].instead);
}

/* --- micro-batches -------------------------------------------------------------------------------
 */

/* Returns how many micro-batches a chunk has before the next chunk has its turn, or 0 for torch's
 * rule. */
static int group_of(const struct pipeline *pipeline)
{
	return pipeline->schedule == PIPELINE_INTERLEAVED ? pipeline->group : 0;
}

/* Do the groups go round with so many micro-batches? In torch groups have one size. In Megatron the
 * last one may be smaller, but must still reach all ranks. */
static bool groups_fit(const struct pipeline *pipeline, int micro_batches)
{
	int p = pipeline->ranks, g = group_of(pipeline);

	if (pipeline->schedule != PIPELINE_INTERLEAVED && pipeline->schedule != PIPELINE_ZB_H1)
		return true;
	if (g == 0)
		return micro_batches < p || micro_batches % (micro_batches / p) == 0;
	return micro_batches >= g && (micro_batches % g == 0 || micro_batches % g >= p);
}

static int fewest(const struct pipeline *pipeline, bool torch)
{
	return pipeline->schedule == PIPELINE_DUALPIPEV       ? 2 * pipeline->ranks
	       : pipeline->schedule == PIPELINE_1F1B && torch ? pipeline->ranks
							      : 1;
}

static bool check_micro_batches(const struct pipeline *pipeline, bool torch, struct error *error)
{
	const char *name = pipeline_schedule_names[pipeline->schedule];
	int m = pipeline->micro_batches, least = fewest(pipeline, torch), below, above;

	if (m < least)
		return error_set(error, EXIT_CODE_USAGE,
			"--grad-accum %d: %s over %d ranks needs at least %d micro-batches; use %d",
			m, name, pipeline->ranks, least, least);
	if (groups_fit(pipeline, m))
		return true;
	for (below = m - 1; below > 0 && !groups_fit(pipeline, below); below--)
		;
	for (above = m + 1; !groups_fit(pipeline, above); above++)
		;
	if (below == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--grad-accum %d: %s over %d ranks has groups of %d micro-batches; use %d",
			m, name, pipeline->ranks, pipeline->group, above);
	return error_set(error, EXIT_CODE_USAGE,
		"--grad-accum %d: %s over %d ranks cannot share it out in groups; use %d or %d", m,
		name, pipeline->ranks, below, above);
}

/* A chunk whose turn ends before its first micro-batch has been round would wait for itself. */
static bool check_group(const struct pipeline *pipeline, struct error *error)
{
	if (group_of(pipeline) == 0 || pipeline->group >= pipeline->ranks)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"groups of %d micro-batches: %s over %d ranks needs groups of at least %d; use %d",
		pipeline->group, pipeline_schedule_names[pipeline->schedule], pipeline->ranks,
		pipeline->ranks, pipeline->ranks);
}

bool pipeline_check(const struct pipeline *pipeline, bool torch, struct error *error)
{
	return check_chunks(pipeline, error) && check_group(pipeline, error) &&
	       check_micro_batches(pipeline, torch, error);
}
