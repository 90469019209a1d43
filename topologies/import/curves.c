/* Logs as the segments of a calibration: the time between two measured sizes lies on the line
 * through them, so that at every measured size the simulator predicts what the log has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topologies/import/draft.h"

static int compare_samples(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* --- whose ranks --------------------------------------------------------------------------------
 */

static bool check_ranks(const struct samples *log, struct error *error)
{
	bool bounded = log->ranks_high > 0 && log->ranks_low <= log->ranks_high;

	if (!bounded || (log->ranks >= log->ranks_low && log->ranks <= log->ranks_high))
		return true;
	return error_set(error, EXIT_CODE_INPUT,
		"%s: %lld ranks, but its bus and algorithm bandwidths are those of %lld to %lld; "
		"is it another collective?",
		log->name, (long long)log->ranks, (long long)log->ranks_low,
		(long long)log->ranks_high);
}

/* The option when the log does not tell; else what the bandwidths leave, if it is one number. */
static bool find_ranks(struct topology_import *import, struct samples *log, struct error *error)
{
	if (log->ranks == 0)
		log->ranks = import->options.devices;
	if (log->ranks == 0 && log->ranks_low == log->ranks_high && log->ranks_low > 1) {
		log->ranks = log->ranks_low;
		draft_note(import, "%s: ran on %lld ranks, from the ratio of its bandwidths",
			log->name, (long long)log->ranks);
	}
	if (log->ranks == 0 && log->ranks_high > log->ranks_low)
		return error_set(error, EXIT_CODE_USAGE,
			"%s does not say on how many GPUs it ran "
			"(its bandwidths allow %lld to %lld): add --gpus N",
			log->name, (long long)log->ranks_low, (long long)log->ranks_high);
	if (log->ranks < 2)
		return error_set(error, EXIT_CODE_USAGE,
			"%s does not say on how many GPUs it ran: add --gpus N", log->name);
	return check_ranks(log, error);
}

static bool find_nodes(struct topology_import *import, struct samples *log, struct error *error)
{
	if (log->nodes == 0)
		log->nodes = import->options.nodes;
	if (log->nodes == 0 && import->topology.devices_per_node > 0 &&
		log->ranks % import->topology.devices_per_node == 0)
		log->nodes = log->ranks / import->topology.devices_per_node;
	if (log->nodes == 0)
		return error_set(error, EXIT_CODE_USAGE,
			"%s does not say on how many nodes its %lld GPUs were: add --nodes N",
			log->name, (long long)log->ranks);
	return true;
}

bool draft_log(struct topology_import *import, const struct samples *log, struct error *error)
{
	struct samples *kept = &import->logs[import->n_logs];

	if (import->n_logs == LOGS_MAX)
		return error_set(
			error, EXIT_CODE_INPUT, "%s: more than %d logs", log->name, LOGS_MAX);
	*kept = *log;
	if (!find_ranks(import, kept, error) || !find_nodes(import, kept, error))
		return false;
	if (kept->ranks % kept->nodes != 0)
		return error_set(error, EXIT_CODE_INPUT,
			"%s: %lld ranks on %lld nodes, expected as many on each", log->name,
			(long long)kept->ranks, (long long)kept->nodes);
	qsort(kept->rows, (size_t)kept->n, sizeof(*kept->rows), compare_samples);
	import->n_logs++;
	return true;
}

/* --- one curve ----------------------------------------------------------------------------------
 */

static bool same_curve(const struct samples *a, const struct samples *b)
{
	return a->collective == b->collective && a->ranks == b->ranks && a->nodes == b->nodes;
}

static int count_rows(const struct topology_import *import, int first)
{
	int n = 0;

	for (int i = first; i < import->n_logs; i++)
		n += same_curve(&import->logs[i], &import->logs[first]) ? import->logs[i].n : 0;
	return n;
}

/* The rows of all logs of one curve, by size. */
static struct sample *gather_rows(struct topology_import *import, int first, int n)
{
	struct sample *rows = ARENA_ARRAY(import->arena, struct sample, n);
	int at = 0;

	for (int i = first; i < import->n_logs; i++) {
		const struct samples *log = &import->logs[i];

		if (!same_curve(log, &import->logs[first]))
			continue;
		memcpy(rows + at, log->rows, (size_t)log->n * sizeof(*rows));
		at += log->n;
	}
	qsort(rows, (size_t)n, sizeof(*rows), compare_samples);
	return rows;
}

/* Of repeated sizes the median counts; a larger size is never faster than a smaller one (the first
 * sizes of a run are slow now and then because connections are still made). */
static int clean_rows(struct sample *rows, int n)
{
	int kept = 0;

	for (int i = 0; i < n;) {
		int same = 1;

		while (i + same < n && rows[i + same].bytes == rows[i].bytes)
			same++;
		rows[kept++] = rows[i + (same - 1) / 2];
		i += same;
	}
	for (int i = kept - 2; i >= 0; i--)
		rows[i].seconds = fmin(rows[i].seconds, rows[i + 1].seconds);
	return kept;
}

/* Through two measured points. A step that grows faster than the size (another protocol) has no
 * latency that could be positive: then the first point's rate holds until the second. */
static struct calibration_collective segment_between(
	const struct samples *curve, const struct sample *a, const struct sample *b)
{
	static const double no_slope = 1e18; /* B/s: as long at both ends */
	struct calibration_collective segment = {curve->collective, curve->ranks, curve->nodes,
		a->bytes, 0, (double)a->bytes / a->seconds};

	if (b == NULL)
		return segment;
	double rate = b->seconds > a->seconds
			      ? (double)(b->bytes - a->bytes) / (b->seconds - a->seconds)
			      : no_slope;
	double latency = a->seconds - (double)a->bytes / rate;
	if (latency < 0)
		return segment;
	segment.latency = latency;
	segment.bandwidth = rate;
	return segment;
}

static void add_segment(struct calibration *c, struct calibration_collective segment)
{
	int at = c->n_collectives++;

	while (at > 0 && calibration_compare(&c->collectives[at - 1], &segment) > 0) {
		c->collectives[at] = c->collectives[at - 1];
		at--;
	}
	c->collectives[at] = segment;
}

/* Is every row between `a` and `b` near the line through the two? */
static bool is_straight(const struct samples *curve, const struct sample *rows, int a, int b)
{
	static const double tolerance = 0.01;
	struct calibration_collective segment = segment_between(curve, &rows[a], &rows[b]);

	for (int i = a + 1; i <= b; i++) {
		double line = segment.latency + (double)rows[i].bytes / segment.bandwidth;

		if (fabs(line - rows[i].seconds) > tolerance * rows[i].seconds)
			return false;
	}
	return true;
}

/* As few segments as give every row within 1 %. The last one goes on beyond the largest size. */
static void add_curve(struct topology_import *import, int first, struct calibration *c)
{
	const struct samples *curve = &import->logs[first];
	int n = count_rows(import, first), at = 0;
	struct sample *rows = gather_rows(import, first, n);
	bool exact = false;

	n = clean_rows(rows, n);
	while (at + 1 < n) {
		int end = at + 1;

		while (end + 1 < n && is_straight(curve, rows, at, end + 1))
			end++;
		add_segment(c, segment_between(curve, &rows[at], &rows[end]));
		exact = is_straight(curve, rows, at, end);
		at = end;
	}
	if (!exact)
		add_segment(c, segment_between(curve, &rows[n - 1], NULL));
}

/* What `like` measured of the same curve gives way. */
static void keep_others(const struct topology_import *import, const struct calibration *from,
	struct calibration *to)
{
	for (int i = 0; i < from->n_collectives; i++) {
		const struct calibration_collective *p = &from->collectives[i];
		bool replaced = false;

		for (int k = 0; k < import->n_logs; k++)
			replaced |= import->logs[k].collective == p->collective &&
				    import->logs[k].ranks == p->ranks &&
				    import->logs[k].nodes == p->nodes;
		if (!replaced)
			add_segment(to, *p);
	}
}

static bool first_of_curve(const struct topology_import *import, int log)
{
	for (int i = 0; i < log; i++)
		if (same_curve(&import->logs[i], &import->logs[log]))
			return false;
	return true;
}

static void add_origin(struct topology_import *import, struct topology *t)
{
	struct text text = {0};

	if (t->calibration.provenance != NULL)
		text_printf(&text, "%s; ", t->calibration.provenance);
	text_add(&text, "collectives: nccl-tests, out of place, each piece through two rows (");
	for (int i = 0; i < import->n_logs; i++) {
		const struct samples *log = &import->logs[i];

		text_printf(&text, "%s%.60s: %s over %lld ranks on %lld nodes, %d rows",
			i > 0 ? "; " : "", draft_base_name(log->name),
			collective_kind_names[log->collective], (long long)log->ranks,
			(long long)log->nodes, log->n);
	}
	text_add(&text, ")");
	t->calibration.provenance = arena_strdup(import->arena, text_string(&text));
	text_finish(&text);
}

bool draft_curves(struct topology_import *import, struct topology *t, struct error *error)
{
	struct calibration old = t->calibration;
	int rows = old.n_collectives;

	(void)error;
	if (import->n_logs == 0)
		return true;
	for (int i = 0; i < import->n_logs; i++)
		rows += import->logs[i].n;
	t->calibration.collectives =
		ARENA_ARRAY(import->arena, struct calibration_collective, rows + 1);
	t->calibration.n_collectives = 0;
	keep_others(import, &old, &t->calibration);
	for (int i = 0; i < import->n_logs; i++)
		if (first_of_curve(import, i))
			add_curve(import, i, &t->calibration);
	add_origin(import, t);
	return true;
}
