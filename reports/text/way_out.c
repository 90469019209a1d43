/* Sentences about options with which something fits. */
#include "reports/text/screen.h"

void way_out_sentence(const struct way_out *way, struct text *text)
{
	char peak[32], tokens[32];

	if (way->topology != NULL)
		text_printf(text, "%s (%lld GPUs", way->topology, (long long)way->devices);
	text_add(text, way->typed);
	if (way->note[0] != '\0')
		text_printf(text, ", %s", way->note);
	text_add(text, way->topology != NULL ? "): " : ": ");
	add_plan_briefly(&way->plan, text);
	text_printf(text, "; needs %s, %s tokens/s/GPU",
		format_bytes(peak, (double)prediction_needed_bytes(&way->prediction)),
		format_tokens(tokens, way->prediction.tokens_per_s_per_gpu));
}

void useless_devices_sentence(const struct answer *answer, struct text *text)
{
	if (answer->useless_devices > 0)
		text_printf(text, "More of these devices do not help: nothing fits on %lld either",
			(long long)answer->useless_devices);
}

static void put_way(struct text *raw, const struct style *style, struct text *text)
{
	struct text line = {0};

	add_terminal(&line, text_string(raw));
	put_line(" - ", 3, text_string(&line), style->width, text);
	text_finish(&line);
	text_clear(raw);
}

void report_way_out_text(const struct answer *answer, const struct style *style, struct text *text)
{
	struct text raw = {0};

	if (answer->n_ways_out == 0 && answer->useless_devices == 0)
		return;
	text_add(text, "The way out: what to type, each planned again\n");
	for (int i = 0; i < answer->n_ways_out; i++) {
		way_out_sentence(&answer->ways_out[i], &raw);
		put_way(&raw, style, text);
	}
	useless_devices_sentence(answer, &raw);
	if (raw.length > 0)
		put_way(&raw, style, text);
	text_add_char(text, '\n');
	text_finish(&raw);
}
