#include "base/runs.h"

#include <string.h>

#include "base/text.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_word_character(char c)
{
	return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-';
}

/* "12x" moves the cursor and gives 12; anything else gives 0. */
static int64_t read_count(const char **cursor)
{
	int64_t count = 0;
	const char *c = *cursor;
	for (; is_digit(*c) && count <= RUNS_COUNT_MAX; c++)
		count = 10 * count + (*c - '0');
	if (*c != 'x' || count < 1 || count > RUNS_COUNT_MAX)
		return 0;
	*cursor = c + 1;
	return count;
}

bool runs_next(const char **cursor, struct value_run *run)
{
	const char *c = *cursor;
	*run = (struct value_run){.count = read_count(&c), .word = c};
	while (is_digit(*run->word) ? is_digit(*c) : is_word_character(*c))
		c++;
	run->length = (int)(c - run->word);
	bool more = *c == '+' && c[1] != '\0' && run->count > 0;
	if (run->length == 0 || *run->word == '-' || (*c != '\0' && !more))
		return false;
	*cursor = more ? c + 1 : c;
	return true;
}

bool runs_valid(const char *text)
{
	const char *cursor = text;
	struct value_run run;
	int n = 0;
	bool counted = true;
	while (runs_next(&cursor, &run)) {
		counted = counted && run.count > 0;
		n++;
	}
	return n > 0 && *cursor == '\0' && (n == 1 || counted) &&
	       runs_total(text) <= RUNS_COUNT_MAX;
}

int64_t runs_total(const char *text)
{
	struct value_run run;
	int64_t total = 0;
	while (runs_next(&text, &run) && total <= RUNS_COUNT_MAX)
		total += run.count;
	return total;
}

bool run_is(const struct value_run *run, const char *word)
{
	return strncmp(run->word, word, (size_t)run->length) == 0 && word[run->length] == '\0';
}

/* --- normal forms ----------------------------------------------------------------------------- */

/* Runs on their way out: the last one stays open, in case the next has the same word. */
struct printer {
	struct text text;
	const char *word;
	int length;
	int64_t count;
	bool any; /* something is in `text` */
};

static void flush(struct printer *p)
{
	text_printf(&p->text, "%s%lldx%.*s", p->any ? "+" : "", (long long)p->count, p->length,
		p->word);
	p->any = true;
}

static void add(struct printer *p, const char *word, int length, int64_t count)
{
	bool same = p->word != NULL && p->length == length &&
		    strncmp(p->word, word, (size_t)length) == 0;
	if (p->word != NULL && !same)
		flush(p);
	p->count = same ? p->count + count : count;
	p->word = word;
	p->length = length;
}

static const char *finish(struct printer *p, struct arena *arena)
{
	const char *result;
	if (p->any) {
		flush(p);
		result = arena_strdup(arena, text_string(&p->text));
	} else {
		result = arena_strndup(arena, p->word != NULL ? p->word : "", (size_t)p->length);
	}
	text_finish(&p->text);
	return result;
}

const char *runs_print(struct arena *arena, const char *const *words, int64_t n)
{
	struct printer p = {.count = 0};
	for (int64_t i = 0; i < n; i++)
		add(&p, words[i], (int)strlen(words[i]), 1);
	return finish(&p, arena);
}

const char *runs_normalise(struct arena *arena, const char *text, const char *from, const char *to)
{
	struct printer p = {.count = 0};
	struct value_run run;
	while (runs_next(&text, &run)) {
		bool replaced = from != NULL && run_is(&run, from);
		add(&p, replaced ? to : run.word, replaced ? (int)strlen(to) : run.length,
			run.count);
	}
	return finish(&p, arena);
}
