#include "schedule/documents/timeline.h"

#include <limits.h>
#include <math.h>

const char *const critical_reason_names[] = {
	"host", "stream", "engine", "wait", "start", "allocator", NULL};

void timeline_init(struct timeline *timeline, int n_ops, struct arena *arena)
{
	*timeline = (struct timeline){.n_ops = n_ops};
	timeline->spans = ARENA_ARRAY(arena, struct span, n_ops);
	timeline->live = arena_alloc(arena, (size_t)n_ops, sizeof(*timeline->live));
}

static void write_span(const struct span *span, struct writer *writer)
{
	writer_begin_list(writer, NULL);
	writer_number(writer, NULL, span->issued);
	writer_number(writer, NULL, span->start);
	writer_number(writer, NULL, span->end);
	writer_end_list(writer);
}

static void write_live(const int64_t live[CATEGORY_COUNT], struct writer *writer)
{
	writer_begin_list(writer, NULL);
	for (int c = 0; c < CATEGORY_COUNT; c++)
		writer_int(writer, NULL, live[c]);
	writer_end_list(writer);
}

void timeline_write(const struct timeline *timeline, struct writer *writer)
{
	writer_number(writer, "step_time_s", timeline->step_time);
	writer_begin_list(writer, "spans");
	for (int i = 0; i < timeline->n_ops; i++)
		write_span(&timeline->spans[i], writer);
	writer_end_list(writer);
	if (timeline->live == NULL)
		return;
	writer_begin_list(writer, "live");
	for (int i = 0; i < timeline->n_ops; i++)
		write_live(timeline->live[i], writer);
	writer_end_list(writer);
}

/* Checks that `node` is a list of `n` elements, or of any number if n < 0. `what` names the
 * elements in the message. */
static bool check_list(const struct node *node, const struct node *map, const char *key, int n,
	const char *what, struct error *error)
{
	if (node == NULL)
		return node_error(map, error, "missing key \"%s\", expected a list", key);
	if (node->kind != NODE_LIST)
		return node_error(node, error, "expected a list of %s", what);
	if (n >= 0 && node->n_children != n)
		return node_error(node, error, "expected %d %s, got %d", n, what, node->n_children);
	return true;
}

static bool read_span(const struct node *node, struct span *span, struct error *error)
{
	double *const members[] = {&span->issued, &span->start, &span->end};

	if (!check_list(node, NULL, "", COUNT_OF(members), "times (issued, start, end)", error))
		return false;
	for (int i = 0; i < COUNT_OF(members); i++) {
		if (!node_double(node->children[i], members[i], error))
			return false;
	}
	if (!(span->issued <= span->start && span->start <= span->end))
		return node_error(
			node, error, "times go backwards, expected issued <= start <= end");
	return true;
}

static bool read_live(const struct node *node, int64_t live[CATEGORY_COUNT], struct error *error)
{
	if (!check_list(node, NULL, "", CATEGORY_COUNT, "byte counts, one a category", error))
		return false;
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		if (!node_int(node->children[c], &live[c], error))
			return false;
		if (live[c] < 0)
			return node_error(node->children[c], error, "expected 0 or more bytes");
	}
	return true;
}

bool timeline_read(
	struct arena *arena, const struct node *map, struct timeline *timeline, struct error *error)
{
	static const char *const keys[] = {"step_time_s", "spans", "live", NULL};
	const struct node *spans = node_get(map, "spans"), *live = node_get(map, "live");
	const struct node *step_time = node_get(map, "step_time_s");

	if (!node_only_keys(map, keys, error) ||
		!check_list(spans, map, "spans", -1, "[issued, start, end]", error))
		return false;
	timeline_init(timeline, spans->n_children, arena);
	if (step_time == NULL)
		return node_error(map, error, "missing key \"step_time_s\", expected seconds");
	if (!node_double(step_time, &timeline->step_time, error))
		return false;
	for (int i = 0; i < spans->n_children; i++) {
		if (!read_span(spans->children[i], &timeline->spans[i], error))
			return false;
	}
	if (live == NULL || live->kind == NODE_NULL) {
		timeline->live = NULL;
		return true;
	}
	if (!check_list(live, map, "live", timeline->n_ops, "rows, one an operation", error))
		return false;
	for (int i = 0; i < live->n_children; i++) {
		if (!read_live(live->children[i], timeline->live[i], error))
			return false;
	}
	return true;
}
