/* The parts of the first screen of an answer, without labels and line ends. */
#ifndef REPORTS_TEXT_SCREEN_H
#define REPORTS_TEXT_SCREEN_H

#include "reports/text/text.h"

enum { SCREEN_LINES = 24, SCREEN_COLUMNS = 100, SCREEN_INDENT = 9, FACT_INDENT = 13 };

/* --- plan_words.c --- */
/* Examples: "FULL_SHARD (pytorch-fsdp2): ... sharded over 16 devices"; "wrap block, prefetch pre,
 * ...". */
void add_plan_words(const struct question *question, const struct plan *plan, struct text *strategy,
	struct text *settings);
/* Example: "TP 8 x FULL_SHARD, full checkpointing". */
void add_plan_briefly(const struct plan *plan, struct text *text);
/* Example: "64 sequences of 4096 tokens a step (262 k), bf16, flash attention, ...". */
void add_work(const struct plan *plan, struct text *text);
/* "GPU" or "rank". */
const char *device_noun(const struct topology *topology);
void add_time_figure(const struct prediction *prediction, struct text *text);
void add_speed_figure(const char *noun, const struct prediction *prediction, struct text *text);
void add_memory_figure(
	const struct question *question, const struct answer *answer, struct text *text);
/* For a plan that does not fit. */
void add_missing_memory(
	const struct question *question, const struct prediction *prediction, struct text *text);

/* --- levers.c --- */
/* What a plan with this global batch saves: "time", or "time a token" where the chosen plan has
 * another batch, so that times of a step cannot be compared. */
const char *saved_time(const struct answer *answer, int64_t global_batch);
/* Example: "11.4 % less time, 10.9 GiB less memory". `time`: of saved_time. */
void add_lever_gain(const struct answer *answer, double gain, const char *time, int64_t peak,
	struct text *text);

#endif
