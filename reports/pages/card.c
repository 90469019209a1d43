/* The card with the answer: the strategy in large letters, its figures, and warnings. */
#include "reports/pages/card.h"

#include <string.h>

void add_raw(struct text *raw, struct text *text)
{
	add_html(text, text_string(raw));
	text_finish(raw);
}

void add_sentence(const char *sentence, struct text *text)
{
	struct text part = {0};
	bool typed = false;

	for (; *sentence != '\0'; sentence += *sentence == '`') {
		size_t length = strcspn(sentence, "`");
		text_clear(&part);
		text_add_bytes(&part, sentence, length);
		add_html(text, text_string(&part));
		sentence += length;
		if (*sentence != '`' && !typed)
			break;
		text_add(text, typed ? "</code>" : "<code>");
		typed = !typed;
	}
	text_add(text, typed ? "</code>" : "");
	text_finish(&part);
}

void add_options_typed(const char *typed, struct text *text)
{
	struct text option = {0};

	text_add(text, "<code>");
	while (*typed != '\0') {
		const char *next = strstr(typed, " --");
		size_t length = next != NULL ? (size_t)(next - typed) : strlen(typed);
		text_clear(&option);
		text_add_bytes(&option, typed, length);
		text_add(text, "<span>");
		add_html(text, text_string(&option));
		text_add(text, next != NULL ? "</span> " : "</span>");
		typed += length + (next != NULL);
	}
	text_add(text, "</code>");
	text_finish(&option);
}

static void begin_tile(const char *name, struct text *text)
{
	text_printf(text, "<div><dt>%s</dt><dd>", name);
}

static void end_tile(struct text *text)
{
	text_add(text, "</dd></div>\n");
}

/* Adds a string that is not broken, so that a unit stays on the line of its number. */
static void add_unbroken(const char *string, struct text *text)
{
	for (; *string != '\0'; string++)
		text_add_bytes(text, *string == ' ' ? "\xc2\xa0" : string, *string == ' ' ? 2 : 1);
}

static void step_note(const char *what, double seconds, struct text *text)
{
	char buffer[32];

	if (seconds <= 0)
		return;
	text_printf(text, "<small>%s", what);
	add_unbroken(format_seconds(buffer, seconds), text);
	text_add(text, "</small>");
}

static void time_tiles(const struct prediction *prediction, struct text *text)
{
	char buffer[32];
	double exposed = prediction->time.exposed_communication;

	begin_tile("Step time", text);
	text_add(text, format_seconds(buffer, prediction->step_time));
	if (prediction->step_time_high > 0) {
		text_add(text, "<small>80 % sure: ");
		add_unbroken(format_seconds(buffer, prediction->step_time_low), text);
		text_add(text, " to ");
		add_unbroken(format_seconds(buffer, prediction->step_time_high), text);
		text_add(text, "</small>");
	}
	step_note("95 of 100 steps within ", prediction->step_time_p95, text);
	step_note("at best ", prediction->step_time_best, text);
	end_tile(text);
	begin_tile("Throughput", text);
	text_printf(text, "%s<small>tokens/s per device</small>",
		format_tokens(buffer, prediction->tokens_per_s_per_gpu));
	end_tile(text);
	begin_tile("Exposed communication", text);
	text_add(text, format_seconds(buffer, exposed));
	if (prediction->step_time > 0)
		text_printf(text, "<small>%.1f %% of the step</small>",
			exposed / prediction->step_time * 100);
	end_tile(text);
}

static void other_tiles(const struct prediction *prediction, struct text *text)
{
	char buffer[32], limit[32];

	if (prediction->mfu > 0) {
		begin_tile("MFU", text);
		text_printf(text, "%s<small>of ", format_percent(buffer, prediction->mfu));
		add_html(text, prediction->peak_name);
		text_add(text, "</small>");
		end_tile(text);
	}
	begin_tile("Peak memory", text);
	text_add(text, format_bytes(buffer, (double)prediction->peak_memory_bytes));
	if (prediction->memory_limit_bytes > 0)
		text_printf(text, "<small>%.0f %% of %s</small>",
			(double)prediction->peak_memory_bytes /
				(double)prediction->memory_limit_bytes * 100,
			format_bytes(limit, (double)prediction->memory_limit_bytes));
	end_tile(text);
	begin_tile("Sent by each rank", text);
	text_printf(text, "%s<small>per step</small>",
		format_bytes(buffer, prediction->wire_bytes_per_rank));
	end_tile(text);
}

static bool nothing_fits(const struct report *report)
{
	return report->answer != NULL && report->answer->chosen == NULL;
}

/* Adds the strategy in large letters, and the rest of the plan below it. */
static void add_winner(const struct report *report, struct text *text)
{
	const struct plan *plan = &report->explained.schedule->plan;
	struct text raw = {0};

	if (nothing_fits(report)) {
		text_add(text, "<p class=\"winner\">");
		add_no_answer(report->answer, &raw);
		add_raw(&raw, text);
		text_add(text, "</p>\n");
		return;
	}
	bool tight = report->answer != NULL && report->answer->tight;
	text_printf(text, "<p class=\"winner\">%s",
		tight                    ? "Tight, for no plan leaves enough memory free: use "
		: report->answer != NULL ? "Use "
					 : "");
	plan_add_name(plan, &raw);
	add_raw(&raw, text);
	text_add(text, "</p>\n<p class=\"how\">");
	plan_summary(plan, &raw);
	add_raw(&raw, text);
	text_add(text, "</p>\n");
}

static void add_warnings(const struct answer *answer, struct text *text)
{
	for (int i = 0; answer != NULL && i < answer->n_warnings; i++) {
		text_add(text, "<p class=\"note\"><strong>Warning</strong>: ");
		add_sentence(answer->warnings[i].sentence, text);
		text_add(text, ".</p>\n");
	}
}

void add_card(const struct report *report, struct text *text)
{
	const struct schedule *schedule = report->explained.schedule;
	struct text raw = {0};

	text_printf(text, "<section class=\"answer%s\" aria-label=\"the answer\">\n",
		nothing_fits(report) ? " none" : "");
	add_winner(report, text);
	text_add(text, "<p class=\"lead\">");
	add_subject_line(schedule->model, schedule->topology, &raw);
	add_raw(&raw, text);
	text_add(text, "</p>\n<dl class=\"tiles\">\n");
	time_tiles(report->explained.prediction, text);
	other_tiles(report->explained.prediction, text);
	text_add(text, "</dl>\n");
	add_warnings(report->answer, text);
	text_add(text, "</section>\n");
}
