#include "schedule/traces/log.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

enum figure { STEP_TIME, MFU, TOKENS, FIGURE_COUNT };

/* Says what a log calls a figure; a blank stands for any of " _-". The first label that fits a line
 * counts. */
static const struct label {
	const char *words;
	enum figure figure;
	double scale;
	bool is_rate; /* the figure is in steps/s */
} labels[] = {
	{"elapsed time per iteration (ms)", STEP_TIME, 1e-3, false},
	{"iteration time (ms)", STEP_TIME, 1e-3, false},
	{"step time (ms)", STEP_TIME, 1e-3, false},
	{"step time ms", STEP_TIME, 1e-3, false},
	{"step time s", STEP_TIME, 1, false},
	{"step time", STEP_TIME, 1, false},
	{"iteration time", STEP_TIME, 1, false},
	{"iter time", STEP_TIME, 1, false},
	{"batch time", STEP_TIME, 1, false},
	{"time per step", STEP_TIME, 1, false},
	{"seconds per step", STEP_TIME, 1, false},
	{"train steps per second", STEP_TIME, 1, true},
	{"mfu(%)", MFU, 0.01, false},
	{"mfu percent", MFU, 0.01, false},
	{"mfu", MFU, 1, false},
	{"tokens per second per gpu", TOKENS, 1, false},
	{"tokens per s per gpu", TOKENS, 1, false},
	{"tokens/s/gpu", TOKENS, 1, false},
	{"tokens/sec/gpu", TOKENS, 1, false},
	{"tgs (tokens/gpu/second)", TOKENS, 1, false},
	{"tgs", TOKENS, 1, false},
	{"tps", TOKENS, 1, false},
};

struct series {
	double *values; /* from malloc */
	int n, capacity;
};

static bool is_gap(char c)
{
	return c == ' ' || c == '_' || c == '-';
}

/* Returns what follows the words, or NULL if `at` does not begin with them. */
static const char *skip_words(const char *at, const char *words)
{
	for (; *words != '\0'; words++, at++)
		if (is_gap(*words) ? !is_gap(*at) : tolower((unsigned char)*at) != *words)
			return NULL;
	return isalnum((unsigned char)*at) ? NULL : at;
}

/* Skips colours of a terminal, which are no text. */
static const char *skip_escape(const char *at)
{
	while (*at == '\x1b') {
		at += strcspn(at, "mK\n");
		at += *at == 'm' || *at == 'K';
	}
	return at;
}

/* Returns how many characters of a number start here: a digit, a point, "," before three digits,
 * "e-05". */
static int part_of_number(const char *c, bool first)
{
	if (isdigit((unsigned char)*c) || *c == '.')
		return 1;
	if (first)
		return 0;
	if (*c == ',' && isdigit((unsigned char)c[1]) && isdigit((unsigned char)c[2]) &&
		isdigit((unsigned char)c[3]))
		return 1;
	if (*c != 'e' && *c != 'E')
		return 0;
	int sign = c[1] == '-' || c[1] == '+';
	return isdigit((unsigned char)c[1 + sign]) ? 1 + sign : 0;
}

/* Reads "2,345.6" behind quotes, blanks and any of ":=|". */
static bool read_number(const char **at, double *value)
{
	char digits[32];
	int n = 0;
	const char *c = skip_escape(*at);

	while (*c != '\0' && strchr("\"' \t:=|", *c) != NULL)
		c = skip_escape(c + 1);
	for (int part; n + 3 < COUNT_OF(digits) && (part = part_of_number(c, n == 0)) > 0;)
		for (; part > 0; part--, c++)
			if (*c != ',')
				digits[n++] = *c;
	digits[n] = '\0';
	*at = c;
	return n > 0 && parse_number(digits, value) && *value > 0;
}

/* The unit behind a number counts more than what its label says. */
static double with_unit(const struct label *label, double value, const char *behind)
{
	while (*behind == ' ')
		behind++;
	if (label->is_rate)
		return 1 / value;
	if (label->figure == STEP_TIME && strncasecmp(behind, "ms", 2) == 0)
		return 1e-3 * value;
	if (label->figure == STEP_TIME && *behind == 's' && !isalnum((unsigned char)behind[1]))
		return value;
	if (label->figure == MFU && label->scale >= 1 && (*behind == '%' || value > 1.5))
		return value / 100;
	return value * label->scale;
}

/* Reads a progress bar: "2.90s/it", "3.1it/s". */
static bool read_bar(const char *line, const char *end, double *seconds)
{
	for (const char *c = line + 1; c < end; c++) {
		if (*c != 's' && *c != 'i')
			continue;
		bool slow = strncmp(c, "s/it", 4) == 0, fast = strncmp(c, "it/s", 4) == 0;
		const char *start = c;
		double value;
		if (!slow && !fast)
			continue;
		while (start > line && (isdigit((unsigned char)start[-1]) || start[-1] == '.'))
			start--;
		if (start < c && read_number(&start, &value)) {
			*seconds = slow ? value : 1 / value;
			return true;
		}
	}
	return false;
}

static bool find_label(const struct label *label, const char *line, const char *end, double *value)
{
	for (const char *c = line; c < end; c++) {
		const char *behind;
		if ((*c | ' ') != *label->words) /* skips most characters at once */
			continue;
		if (c > line && isalnum((unsigned char)c[-1]) && c[-1] != 'm') /* ends a colour */
			continue;
		behind = skip_words(c, label->words);
		if (behind == NULL || !read_number(&behind, value))
			continue;
		*value = with_unit(label, *value, behind);
		return true;
	}
	return false;
}

static void add(struct series *series, double value)
{
	series->values = array_grow(
		series->values, &series->capacity, series->n + 1, sizeof(*series->values));
	series->values[series->n++] = value;
}

static void read_line(const char *line, const char *end, struct series series[FIGURE_COUNT])
{
	bool found[FIGURE_COUNT] = {false};
	double value;

	for (int i = 0; i < COUNT_OF(labels); i++) {
		enum figure figure = labels[i].figure;
		if (found[figure] || !find_label(&labels[i], line, end, &value))
			continue;
		found[figure] = true;
		add(&series[figure], value);
	}
	if (!found[STEP_TIME] && read_bar(line, end, &value))
		add(&series[STEP_TIME], value);
}

/* Returns the median of all but the first tenth, or 0 if there are none. */
static double settled(struct series *series, double *spread)
{
	struct trace_facts facts = trace_facts_unknown;

	if (series->n == 0)
		return 0;
	int warm_up = series->n > 2 ? (series->n + 9) / 10 : 0;
	double *steady = series->values + warm_up;
	int n = series->n - warm_up;
	trace_facts_of_steps(&facts, steady, n);
	*spread = facts.step_spread;
	sort_numbers(steady, n);
	return quantile(steady, n, 0.5);
}

bool log_read(const char *text, struct log_figures *figures)
{
	struct series series[FIGURE_COUNT] = {0};
	double ignored;

	while (*text != '\0') {
		const char *end = text + strcspn(text, "\n\r");
		read_line(text, end, series);
		text = end + (*end != '\0');
	}
	*figures = (struct log_figures){.spread = NAN};
	for (int i = FIGURE_COUNT - 1; i >= 0; i--)
		figures->n_steps = series[i].n > 0 ? series[i].n : figures->n_steps;
	figures->step_time = settled(&series[STEP_TIME], &figures->spread);
	figures->mfu = settled(&series[MFU], &ignored);
	figures->tokens_per_s_per_gpu = settled(&series[TOKENS], &ignored);
	for (int i = 0; i < FIGURE_COUNT; i++)
		free(series[i].values);
	return figures->n_steps > 0;
}
