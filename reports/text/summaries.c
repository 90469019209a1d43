#include "reports/text/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *or_empty(const char *string)
{
	return string != NULL ? string : "";
}

const char *format_percent(char buffer[32], double ratio)
{
	if (ratio == 0)
		snprintf(buffer, 32, "-");
	else
		snprintf(buffer, 32, "%.1f %%", ratio * 100);
	return buffer;
}

const char *format_change(char buffer[32], double ratio)
{
	snprintf(buffer, 32, "%+.1f %%", fabs(ratio) < 0.0005 ? 0 : ratio * 100);
	return buffer;
}

const char *format_tokens(char buffer[32], double tokens_per_s)
{
	snprintf(buffer, 32, tokens_per_s < 100 ? "%.1f" : "%.0f", tokens_per_s);
	return buffer;
}

const char *format_beside(char buffer[32], double seconds, double other)
{
	/* The values at which format_seconds changes its unit. */
	static const struct {
		double until, scale;
		const char *unit;
	} units[] = {{120, 1, "s"}, {7200, 60, "min"}, {172800, 3600, "h"}};

	for (int i = 0; i < COUNT_OF(units); i++)
		if (other < units[i].until && seconds >= units[i].until) {
			snprintf(buffer, 32, "%.0f %s", seconds / units[i].scale, units[i].unit);
			return buffer;
		}
	return format_seconds(buffer, seconds);
}

const char *format_ratio(char buffer[32], double predicted, double measured)
{
	if (predicted > 0 && measured > 0)
		snprintf(buffer, 32, "%.2fx", measured / predicted);
	else
		snprintf(buffer, 32, "-");
	return buffer;
}

static bool has_leaves(const struct model *model, int first, int end)
{
	for (int i = first; i < end; i++) {
		if (module_kind_is_leaf(model->modules[i].kind))
			return true;
	}
	return false;
}

/* The name of a range of leaves: that of the module with exactly these leaves, else that of the
 * first leaf. */
static const char *range_name(const struct model *model, int first, int end)
{
	int name = first;

	for (int m = first; m >= 0; m = model->modules[m].parent) {
		const struct module *module = &model->modules[m];
		if (module->end > end && has_leaves(model, end, module->end))
			break;
		if (m < first && has_leaves(model, m, first))
			break;
		name = m;
	}
	const char *found = or_empty(model->modules[name].name);
	return found[0] != '\0' ? found : "model";
}

/* Adds the subject of an operation: a module, a layer or a unit. */
static void add_subject(const struct schedule *schedule, const struct op *op, struct text *text)
{
	const struct model *model = schedule->programs->model;
	bool has_range = op->first_module >= 0 && op->first_module < op->end_module;

	if (has_range && model != NULL && op->end_module <= model->n_modules)
		text_printf(text, " %s", range_name(model, op->first_module, op->end_module));
	else if (op->layer >= 0)
		text_printf(text, " layer %d", op->layer);
	else if (op->unit >= 0 && op->unit < schedule->programs->n_units)
		text_printf(text, " %s", or_empty(schedule->programs->units[op->unit].name));
}

void operation_label(const struct schedule *schedule, const struct op *op, struct text *text)
{
	text_add(text, op_kind_name(op->kind));
	add_subject(schedule, op, text);
	if (op->micro_batch >= 0 && schedule->plan.grad_accum > 1)
		text_printf(text, ", micro-batch %d", op->micro_batch);
}

#define PREPARE(letter)                                                                            \
	{                                                                                          \
		letter, "k-prepare", "casts, copies, marks"                                        \
	}

static const struct appearance appearances[OP_KIND_COUNT] = {
	[OP_CAST_PARAMETERS] = PREPARE('c'),
	[OP_ALL_GATHER] = {'G', "k-gather", "all-gather"},
	[OP_COPY_OUT] = PREPARE('c'),
	[OP_RESHARD] = PREPARE('|'),
	[OP_FORWARD] = {'F', "k-forward", "forward"},
	[OP_LOSS] = {'L', "k-loss", "loss"},
	[OP_RECOMPUTE] = {'r', "k-recompute", "recompute"},
	[OP_BACKWARD] = {'B', "k-backward", "backward"},
	[OP_BACKWARD_INPUT] = {'B', "k-backward", "backward"},
	[OP_BACKWARD_WEIGHT] = {'W', "k-backward", "backward"},
	[OP_FLATTEN_GRADIENTS] = PREPARE('c'),
	[OP_CAST_GRADIENTS] = PREPARE('c'),
	[OP_REDUCE_SCATTER] = {'S', "k-scatter", "reduce-scatter"},
	[OP_ALL_REDUCE] = {'A', "k-reduce", "all-reduce"},
	[OP_ADD_SUM] = {'F', "k-forward", "forward"},
	[OP_ALL_TO_ALL] = {'X', "k-reduce", "all-to-all"},
	[OP_SEND_RECV] = {'R', "k-prepare", "messages"},
	[OP_ACCUMULATE_GRADIENTS] = PREPARE('c'),
	[OP_GRADIENT_NORM] = {'n', "k-optimizer", "optimizer, norm"},
	[OP_END_BACKWARD] = PREPARE('|'),
	[OP_CLIP_GRADIENTS] = {'n', "k-optimizer", "optimizer, norm"},
	[OP_OPTIMIZER] = {'O', "k-optimizer", "optimizer, norm"},
	[OP_COPY_H2D] = PREPARE('h'),
	[OP_COPY_D2H] = PREPARE('d'),
	[OP_END_COPIES] = PREPARE('|'),
	[OP_SEND] = {'>', "k-prepare", "messages"},
	[OP_RECV] = {'<', "k-prepare", "messages"},
};

/* A kind without a row in the table is drawn as a preparation. */
struct appearance kind_appearance(enum op_kind kind)
{
	static const struct appearance other = PREPARE('?');

	return appearances[kind].css != NULL ? appearances[kind] : other;
}

void sum_kinds(const struct explained *explained, struct kind_sum sums[OP_KIND_COUNT])
{
	const struct program *program = &explained->schedule->programs[0];
	const struct timeline *predicted = explained->predicted;
	const struct timeline *measured =
		explained->measured != NULL ? &explained->measured->timeline : NULL;

	for (int k = 0; k < OP_KIND_COUNT; k++)
		sums[k] = (struct kind_sum){0};
	for (int i = 0; i < program->n_ops; i++) {
		struct kind_sum *sum = &sums[program->ops[i].kind];
		sum->count++;
		sum->bytes += program->ops[i].bytes;
		if (predicted != NULL && i < predicted->n_ops)
			sum->predicted += predicted->spans[i].end - predicted->spans[i].start;
		if (measured != NULL && i < measured->n_ops)
			sum->measured += measured->spans[i].end - measured->spans[i].start;
	}
}

/* A change of the number of running operations of a class. */
struct edge {
	double time;
	int communication, computation;
};

static int compare_edges(const void *a, const void *b)
{
	const struct edge *left = a, *right = b;

	return left->time < right->time ? -1 : left->time > right->time;
}

static int collect_edges(
	const struct program *program, const struct timeline *timeline, struct edge *edges)
{
	int n = 0;

	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct span *span = &timeline->spans[i];
		enum op_class class = op_kind_class(program->ops[i].kind);
		int communicates = class == OP_CLASS_COLLECTIVE;
		/* A message computes nothing: most of its time it waits for its other end. */
		if (!(span->end > span->start) || class == OP_CLASS_MESSAGE)
			continue;
		edges[n++] = (struct edge){span->start, communicates, !communicates};
		edges[n++] = (struct edge){span->end, -communicates, -!communicates};
	}
	qsort(edges, (size_t)n, sizeof(*edges), compare_edges);
	return n;
}

int exposed_intervals(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct interval **intervals)
{
	const struct program *program = &schedule->programs[0];
	struct edge *edges = ARENA_ARRAY(arena, struct edge, 2 * program->n_ops);
	int n_edges = collect_edges(program, timeline, edges);
	struct interval *found = ARENA_ARRAY(arena, struct interval, n_edges + 1);
	int n = 0, communication = 0, computation = 0;

	for (int i = 0; i < n_edges; i++) {
		communication += edges[i].communication;
		computation += edges[i].computation;
		double end = i + 1 < n_edges ? edges[i + 1].time : edges[i].time;
		if (communication == 0 || computation > 0 || !(end > edges[i].time))
			continue;
		if (n > 0 && found[n - 1].end == edges[i].time)
			found[n - 1].end = end;
		else
			found[n++] = (struct interval){edges[i].time, end};
	}
	*intervals = found;
	return n;
}

double stream_busy(
	const struct schedule *schedule, const struct timeline *timeline, enum stream stream)
{
	const struct program *program = &schedule->programs[0];
	double busy = 0;

	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		if (program->ops[i].stream == stream)
			busy += timeline->spans[i].end - timeline->spans[i].start;
	}
	return busy;
}

void streams_used(const struct schedule *schedule, bool used[STREAM_COUNT])
{
	const struct program *program = &schedule->programs[0];

	for (int s = 0; s < STREAM_COUNT; s++)
		used[s] = false;
	for (int i = 0; i < program->n_ops; i++)
		used[program->ops[i].stream] = true;
}

int64_t sum_categories(const int64_t bytes[CATEGORY_COUNT])
{
	int64_t sum = 0;

	for (int c = 0; c < CATEGORY_COUNT; c++)
		sum += bytes[c];
	return sum;
}

static void copy_categories(int64_t to[CATEGORY_COUNT], const int64_t from[CATEGORY_COUNT])
{
	for (int c = 0; c < CATEGORY_COUNT; c++)
		to[c] = from[c];
}

void memory_with_overhead(const struct memory_curve *curve, const struct prediction *prediction,
	struct arena *arena, struct memory_curve *full)
{
	int64_t overhead = prediction->memory_at_peak[CATEGORY_RUNTIME_OVERHEAD];

	for (int i = 0; i < curve->n; i++) {
		if (curve->bytes[i][CATEGORY_RUNTIME_OVERHEAD] != 0)
			overhead = 0;
	}
	*full = (struct memory_curve){.n = curve->n, .times = curve->times};
	full->bytes = arena_alloc(arena, (size_t)curve->n, sizeof(*full->bytes));
	for (int i = 0; i < curve->n; i++) {
		copy_categories(full->bytes[i], curve->bytes[i]);
		full->bytes[i][CATEGORY_RUNTIME_OVERHEAD] += overhead;
	}
}

void memory_sample(const struct memory_curve *curve, double end, int limit, struct arena *arena,
	struct memory_curve *sampled)
{
	double width = end / limit;

	*sampled = (struct memory_curve){0};
	sampled->times = ARENA_ARRAY(arena, double, curve->n);
	sampled->bytes = arena_alloc(arena, (size_t)curve->n, sizeof(*sampled->bytes));
	for (int i = 0; i < curve->n; i++) {
		int last = sampled->n - 1;
		bool same = last >= 0 && curve->n > limit &&
			    curve->times[i] < sampled->times[last] + width;
		if (!same) {
			sampled->times[sampled->n] = curve->times[i];
			copy_categories(sampled->bytes[sampled->n++], curve->bytes[i]);
		} else if (sum_categories(curve->bytes[i]) > sum_categories(sampled->bytes[last])) {
			copy_categories(sampled->bytes[last], curve->bytes[i]);
		}
	}
}

void memory_of_ledger(
	const struct timeline *timeline, struct arena *arena, struct memory_curve *curve)
{
	*curve = (struct memory_curve){0};
	if (timeline->live == NULL)
		return;
	curve->n = timeline->n_ops;
	curve->times = ARENA_ARRAY(arena, double, curve->n);
	curve->bytes = arena_alloc(arena, (size_t)curve->n, sizeof(*curve->bytes));
	for (int i = 0; i < curve->n; i++) {
		curve->times[i] = timeline->spans[i].issued;
		copy_categories(curve->bytes[i], timeline->live[i]);
	}
}

double timeline_end(const struct timeline *timeline)
{
	double end = timeline->step_time;

	for (int i = 0; i < timeline->n_ops; i++) {
		if (timeline->spans[i].end > end)
			end = timeline->spans[i].end;
	}
	return end;
}

double round_step(double about)
{
	double power = pow(10, floor(log10(about)));
	double digit = about / power;

	return power * (digit < 1.4 ? 1 : digit < 3 ? 2 : digit < 7 ? 5 : 10);
}
