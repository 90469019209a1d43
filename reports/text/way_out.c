/* What would make something fit. */
#include "reports/text/text.h"

void way_out_sentence(const struct way_out *way, struct text *text)
{
	char peak[32], tokens[32];

	if (way->topology != NULL)
		text_printf(text, "%s (%lld GPUs)", way->topology, (long long)way->devices);
	text_add(text, way->typed);
	if (way->note[0] != '\0')
		text_printf(text, ", %s", way->note);
	text_printf(text, ": needs %s, %s tokens/s/GPU",
		format_bytes(peak, (double)prediction_needed_bytes(&way->prediction)),
		format_tokens(tokens, way->prediction.tokens_per_s_per_gpu));
}

void useless_devices_sentence(const struct answer *answer, struct text *text)
{
	if (answer->useless_devices > 0)
		text_printf(text, "More of these devices do not help: nothing fits on %lld either",
			(long long)answer->useless_devices);
}

void report_way_out_text(const struct answer *answer, struct text *text)
{
	struct text raw = {0};

	if (answer->n_ways_out == 0 && answer->useless_devices == 0)
		return;
	text_add(text, "The way out: what to type, each planned again\n");
	for (int i = 0; i < answer->n_ways_out; i++) {
		text_clear(&raw);
		way_out_sentence(&answer->ways_out[i], &raw);
		text_add(text, " - ");
		add_terminal(text, text_string(&raw));
		text_add_char(text, '\n');
	}
	text_clear(&raw);
	useless_devices_sentence(answer, &raw);
	text_printf(text, "%s%s%s\n", raw.length > 0 ? " - " : "", text_string(&raw),
		raw.length > 0 ? "\n" : "");
	text_finish(&raw);
}
