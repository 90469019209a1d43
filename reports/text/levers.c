/* The gains of levers beside an answer. */
#include <math.h>

#include "reports/text/screen.h"

/* The most rows that a screen shows. */
enum { SHOWN_LEVERS = 6, MIB = 1 << 20 };

/* A smaller gain, as a share of the step time, is not mentioned. */
#define LEAST_TIME 0.0005

const char *saved_time(const struct answer *answer, int64_t global_batch)
{
	return answer->chosen->plan.global_batch == global_batch ? "time" : "time a token";
}

void add_lever_gain(
	const struct answer *answer, double gain, const char *time, int64_t peak, struct text *text)
{
	char bytes[32];
	double less = (double)(prediction_wanted_bytes(&answer->chosen->prediction) - peak);
	bool has_time = fabs(gain) >= LEAST_TIME;

	if (has_time)
		text_printf(
			text, "%.1f %% %s %s", 100 * fabs(gain), gain > 0 ? "less" : "more", time);
	if (fabs(less) >= MIB)
		text_printf(text, "%s%s %s memory", has_time ? ", " : "",
			format_bytes(bytes, fabs(less)), less > 0 ? "less" : "more");
}

static void free_sentence(const struct answer *answer, struct text *text)
{
	const struct plan_option *option = answer->free;
	char time[32], tokens[32], peak[32];

	if (option == NULL)
		return;
	text_printf(text,
		"With the levers free: %s per step, %s tokens/s/GPU (%.1f %% less %s), "
		"peak %s: ",
		format_seconds(time, option->prediction.step_time),
		format_tokens(tokens, option->prediction.tokens_per_s_per_gpu), 100 * option->gain,
		saved_time(answer, option->plan.global_batch),
		format_bytes(peak, (double)option->prediction.peak_memory_bytes));
	text_add(text, option->typed);
}

void elsewhere_sentence(const struct answer *answer, struct text *text)
{
	const struct lever *other = answer->elsewhere;

	if (other == NULL)
		return;
	text_printf(text, "%s: at least ", other->typed);
	add_lever_gain(answer, other->gain, saved_time(answer, other->global_batch),
		other->peak_memory_bytes, text);
}

void lever_sentence(const struct answer *answer, struct text *text)
{
	free_sentence(answer, text);
	if (answer->elsewhere != NULL)
		text_printf(text, "%s%s: ", text->length > 0 ? ". " : "",
			answer->elsewhere->id == KNOB_RUNTIME ? "Another framework"
							      : "Planned anew");
	elsewhere_sentence(answer, text);
}

void lever_grid(const struct answer *answer, struct grid *grid)
{
	static const struct grid_column columns[] = {{"one line of the script", GRID_LEFT},
		{"step time", GRID_RIGHT}, {"change", GRID_RIGHT}, {"peak memory", GRID_RIGHT}};

	grid_init(grid, columns, COUNT_OF(columns));
	double most = 0;
	for (int i = 0; i < answer->n_levers; i++)
		most = fmax(most, fabs(answer->levers[i].gain));
	for (int i = 0; i < answer->n_levers; i++) {
		const struct lever *lever = &answer->levers[i];
		grid_row(grid, GRID_PLAIN);
		grid_add(grid, "%s", lever->typed);
		grid_add_seconds(grid, lever->step_time);
		grid_add_change(grid, -lever->gain, most);
		grid_add_bytes(grid, (double)lever->peak_memory_bytes);
	}
}

void report_levers_text(const struct answer *answer, const struct style *style, struct text *text)
{
	struct text raw = {0}, line = {0};

	if (answer->n_levers == 0 && answer->elsewhere == NULL)
		return;
	if (answer->n_levers > 0)
		text_add(text, "Levers: one line of your script each, alone\n");
	for (int i = 0; i < answer->n_levers && i < SHOWN_LEVERS; i++) {
		add_terminal(&line, answer->levers[i].typed);
		text_add(&line, ": ");
		add_lever_gain(answer, answer->levers[i].gain, "time",
			answer->levers[i].peak_memory_bytes, &line);
		put_line(" - ", 3, text_string(&line), style->width, text);
		text_clear(&line);
	}
	lever_sentence(answer, &raw);
	add_terminal(&line, text_string(&raw));
	if (line.length > 0)
		put_line("", 0, text_string(&line), style->width, text);
	text_add_char(text, '\n');
	text_finish(&raw);
	text_finish(&line);
}
