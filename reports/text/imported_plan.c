/* What a file asks for beside what the planner would do with the same batch. */
#include <string.h>

#include "reports/text/text.h"

static void add_figures(struct text *text, const char *who, const struct prediction *prediction)
{
	char time[32], memory[32];

	text_printf(text, "  %-10s %10s a step, %8.0f tokens/s/GPU, peak %s%s\n", who,
		format_seconds(time, prediction->step_time), prediction->tokens_per_s_per_gpu,
		format_bytes(memory, (double)prediction->peak_memory_bytes),
		prediction->fits == FITS_NO      ? ", does not fit"
		: prediction->fits == FITS_TIGHT ? ", tight"
						 : "");
}

static void add_difference(
	struct text *text, const char *knob, const char *before, const char *after)
{
	bool quotes = before[0] == '"', quoted = after[0] == '"';

	if (strcmp(before, after) != 0)
		text_printf(text, "  --%s %.*s  (the file: %.*s)\n", knob,
			(int)strlen(after) - 2 * quoted, after + quoted,
			(int)strlen(before) - 2 * quotes, before + quotes);
}

static void add_differences(const struct plan *from, const struct plan *to, struct text *text)
{
	struct text before = {0}, after = {0};

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		char knob[64];
		size_t n = 0;
		for (; field->name[n] != '\0' && n + 1 < sizeof(knob); n++)
			knob[n] = (char)(field->name[n] == '_' ? '-' : field->name[n]);
		knob[n] = '\0';
		text_clear(&before);
		text_clear(&after);
		fields_print_one(field, from, &before);
		fields_print_one(field, to, &after);
		add_difference(text, knob, text_string(&before), text_string(&after));
	}
	if (from->mesh.shard != to->mesh.shard)
		text_printf(text, "  --shard-group %lld  (the file: %lld)\n",
			(long long)to->mesh.shard, (long long)from->mesh.shard);
	text_finish(&before);
	text_finish(&after);
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
