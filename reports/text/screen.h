/* The first screen of an answer: what its parts say, without labels and line ends. */
#ifndef REPORTS_TEXT_SCREEN_H
#define REPORTS_TEXT_SCREEN_H

#include "reports/text/text.h"

enum { SCREEN_LINES = 24, SCREEN_COLUMNS = 100, SCREEN_INDENT = 9 };

/* --- plan_words.c --- */
/* "FULL_SHARD (pytorch-fsdp2): ... sharded over 16 devices"; "wrap block, prefetch pre, ..." */
void add_plan_words(const struct question *question, const struct plan *plan, struct text *strategy,
	struct text *settings);
/* "64 sequences of 4096 tokens a step (262 k), bf16, flash attention, ..." */
void add_work(const struct plan *plan, struct text *text);
/* "GPU" or "rank" */
const char *device_noun(const struct question *question);
void add_time_figure(const struct prediction *prediction, struct text *text);
void add_speed_figure(const struct prediction *prediction, struct text *text);
void add_memory_figure(
	const struct question *question, const struct answer *answer, struct text *text);
/* Of a plan that does not fit. */
void add_missing_memory(
	const struct question *question, const struct prediction *prediction, struct text *text);

/* --- levers.c --- */
enum { LEVERS_MAX = 5 };
struct lever {
	char words[96]; /* "--compile on" */
	const struct sensitivity *row;
	double faster; /* share of the step time that it saves */
	double saved;  /* bytes of the peak */
};
/* The best first. Beside a chosen plan: one line of the user's script or of its launch, with the
 * same mathematics; where nothing fits: whatever lowers the peak, what then fits first. */
int find_levers(const struct answer *answer, struct lever levers[LEVERS_MAX]);
/* "10.5 % less time, 7.00 GiB less memory" */
void add_lever_gain(const struct lever *lever, struct text *text);

#endif
