/* What several writers show: words for operations, sums over a timeline, exposed communication. */
#ifndef REPORTS_TEXT_SUMMARIES_H
#define REPORTS_TEXT_SUMMARIES_H

#include "reports/text/types.h"

/* "" for NULL. */
const char *or_empty(const char *string);

const char *format_percent(char buffer[32], double ratio); /* "41.2 %", "-" for 0: unknown */
/* Seconds, in the unit of `other`, so that "103 s to 122 s" is no range from seconds to minutes. */
const char *format_beside(char buffer[32], double seconds, double other);
const char *format_tokens(char buffer[32], double tokens_per_s); /* "3412" */
/* measured / predicted: "1.04x", "-" when there is nothing to compare. */
const char *format_ratio(char buffer[32], double predicted, double measured);

/* "forward model.layers.3, micro-batch 0", raw (not escaped). Without a model: "forward layer 3".
 */
void operation_label(const struct schedule *schedule, const struct op *op, struct text *text);

/* How a kind is drawn. Kinds share colour and words where they share a purpose. */
struct appearance {
	char letter;     /* in rows of text: capitals compute or communicate, small ones prepare */
	const char *css; /* class, html_style.c */
	const char *label;
};
struct appearance kind_appearance(enum op_kind kind);

/* Times by kind of operation. */
struct kind_sum {
	int count;
	int64_t bytes;
	double predicted, measured; /* s */
};
void sum_kinds(const struct explained *explained, struct kind_sum sums[OP_KIND_COUNT]);

struct interval {
	double start, end; /* s */
};
/* When a collective runs and no other stream computes; ascending, from `arena`. */
int exposed_intervals(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct interval **intervals);
/* Seconds in which the stream is busy. */
double stream_busy(
	const struct schedule *schedule, const struct timeline *timeline, enum stream stream);
/* Which streams have operations. */
void streams_used(const struct schedule *schedule, bool used[STREAM_COUNT]);

int64_t sum_categories(const int64_t bytes[CATEGORY_COUNT]);
/* The curve with the runtime's overhead, as it is at the peak, in every point: the simulator's
 * curve is of what is allocated. A curve that has overhead of its own is copied. */
void memory_with_overhead(const struct memory_curve *curve, const struct prediction *prediction,
	struct arena *arena, struct memory_curve *full);
/* At most `limit` points; each keeps the fullest moment of its stretch, so that peaks survive. */
void memory_sample(const struct memory_curve *curve, double end, int limit, struct arena *arena,
	struct memory_curve *sampled);
/* The ledger of a timeline as a curve over issue times; empty when it has none. */
void memory_of_ledger(
	const struct timeline *timeline, struct arena *arena, struct memory_curve *curve);

/* The longest of the step time and the last end of an operation. */
double timeline_end(const struct timeline *timeline);

/* 1, 2 or 5 times a power of ten, the nearest to `about`: how far ticks are apart. */
double round_step(double about);

#endif
