/* Compares the plan of a file with the planner's own for the same batch. */
#include <string.h>

#include "reports/text/text.h"

static void add_figures(struct text *text, const char *who, const struct prediction *prediction)
{
	char time[32], memory[32], limit[32];

	text_printf(text, "  %-10s %10s a step, %8.0f tokens/s/GPU, peak %s of %s%s\n", who,
		format_seconds(time, prediction->step_time), prediction->tokens_per_s_per_gpu,
		format_bytes(memory, (double)prediction->peak_memory_bytes),
		format_bytes(limit, (double)prediction->memory_limit_bytes),
		prediction->fits == FITS_NO      ? ", does not fit"
		: prediction->fits == FITS_TIGHT ? ", tight"
						 : "");
}

static bool has_groups(const struct plan *plan)
{
	return plan->strategy != STRATEGY_NO_SHARD && plan->mesh.replicate > 1;
}

/* Is the difference of no interest? It follows from the strategy or an axis, concerns prefetching
 * where nothing is gathered, or needs more than one micro-batch. */
static bool is_moot(enum knob_id id, const struct plan *from, const struct plan *to)
{
	return (id == KNOB_RESHARD_AFTER_FORWARD && from->strategy != to->strategy) ||
	       (id == KNOB_SHARD_GROUP && !has_groups(to)) || goes_with_an_axis(id, to, from) ||
	       (id == KNOB_PREFETCH && !strategy_reshards(to->strategy)) ||
	       (id == KNOB_SYNC_EACH_MICRO_BATCH && to->grad_accum == 1);
}

static void add_differences(const struct plan *from, const struct plan *to, struct text *text)
{
	struct arena arena = {0};

	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		const char *before = knob_typed(id, from, &arena);
		const char *after = knob_typed(id, to, &arena);
		bool same = strcmp(before, after) == 0;
		if (id == KNOB_SYNC_EACH_MICRO_BATCH && from->grad_accum == 1)
			before = "one micro-batch";
		if (!same && !is_moot(id, from, to))
			text_printf(text, "  --%s %s  (the file: %s)\n", knob_option(id, &arena),
				after, before);
	}
	arena_finish(&arena);
}

void report_better_text(const struct plan *plan, const struct prediction *prediction,
	const struct candidate *best, struct text *text)
{
	if (best == NULL) {
		text_add(text, "\nNo plan of this batch fits this machine.\n");
		return;
	}
	bool fits = prediction->fits != FITS_NO;
	if (fits && best->prediction.step_time >= prediction->step_time * 0.995) {
		text_add(text, "\nThe planner knows nothing faster for this batch.\n");
		return;
	}
	text_add(text, "\nThe planner, with the same batch and numbers:\n");
	add_figures(text, "the file", prediction);
	add_figures(text, "planned", &best->prediction);
	if (fits)
		text_printf(text, "  %.1f %% less time a step; what changes:\n",
			100 * (1 - best->prediction.step_time / prediction->step_time));
	else
		text_add(text, "  what changes:\n");
	add_differences(plan, &best->plan, text);
}
