/* A pipeline's step of many micro-batches, from a list of few. */
#include "planner/evaluation/steady.h"

#include <math.h>
#include <string.h>

#include "schedule/pipeline/pipeline.h"

/* With one stage for each rank a round is one micro-batch; with several it is as many as there are
 * ranks. Two rounds of the list are compared. They come after the pipeline is filled, and before
 * the round that ends with the reductions of the last micro-batch. Where they are not equal yet,
 * the list is made twice as long, and so on; the longest is treated as steady. */
enum { FILLING_MORE = 2 };

/* Micro-batches times ranks of a list that is longer than the first one, at most. */
enum { MOST = 512 };

/* Tolerance of seconds, for sums in another order. */
#define ROUNDING 1e-9

/* Interleaved, the first rank begins less than two rounds before its first backward. */
struct plan steady_filling(const struct plan *plan)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t n = pipeline.ranks + FILLING_MORE + 1;
	if (pipeline.schedule == PIPELINE_GPIPE)
		return *plan;
	if (pipeline.chunks > 1)
		n = 2 * (int64_t)pipeline.ranks;
	return n < plan->grad_accum ? plan_with_micro_batches(plan, n) : *plan;
}

/* A second attempt would list six rounds. Where that is too long, the first one is treated as
 * steady whatever a comparison says, so it lists a round less. */
static bool is_compared(const struct pipeline *pipeline)
{
	return pipeline->chunks == 1 || 6 * pipeline->ranks * pipeline->ranks <= MOST;
}

bool steady_of(const struct plan *plan, int attempt, struct short_list *list)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	bool several = pipeline.chunks > 1;
	int64_t round = several ? pipeline.ranks : 1;
	int64_t filling = (several ? 2 : 1) * (int64_t)pipeline.ranks << attempt;
	int64_t n = filling + (several ? 1 + is_compared(&pipeline) : 3) * round;
	/* GPipe keeps all micro-batches. The first list also says what memory holds; a longer one
	 * has to be clearly shorter than all. */
	if (pipeline.ranks == 1 || pipeline.schedule == PIPELINE_GPIPE ||
		(several && plan->grad_accum <= 2 * n && steady_may_run_all(plan)) ||
		plan->grad_accum % round != 0 || (attempt > 0 && n * pipeline.ranks > MOST) ||
		plan->grad_accum <= (attempt == 0 ? n + FILLING_MORE : 2 * n - round))
		return false;
	*list = (struct short_list){.listed = n, .filling = filling, .round = round};
	return true;
}

bool steady_may_run_all(const struct plan *plan)
{
	return plan->grad_accum * plan->mesh.pipeline <= MOST;
}

/* --- are two rounds alike? -------------------------------------------------------------------- */

static bool is_same_op(const struct op *a, const struct op *b, int64_t round)
{
	bool later = a->micro_batch < 0 ? b->micro_batch == a->micro_batch
					: b->micro_batch == a->micro_batch + round;
	return later && a->kind == b->kind && a->layer == b->layer &&
	       a->first_module == b->first_module && a->bytes == b->bytes;
}

static bool is_as_late(double before, double after, double later, double step)
{
	return fabs(after - before - later) <= ROUNDING * step;
}

/* Does the same operation of the next round run one round later? It must not be issued later than
 * that, because a host that falls behind is waited for some rounds later; it may be issued earlier.
 */
static bool is_in_time(
	const struct span *before, const struct span *after, double later, double step)
{
	return is_as_late(before->start, after->start, later, step) &&
	       is_as_late(before->end, after->end, later, step) &&
	       after->issued - before->issued <= later + ROUNDING * step;
}

/* `*later`: seconds of a round; < 0: not known yet. */
static bool repeats(const struct short_list *list, const struct program *program,
	const struct timeline *timeline, double *later)
{
	int first = program->rounds.first, length = program->rounds.n, next = first + length;
	if (length == 0)
		return true; /* all micro-batches were listed */
	double step = timeline->spans[program->n_ops - 1].end;
	if (next + length > program->n_ops)
		return false;
	for (int i = first; i < next; i++) {
		const struct span *one = &timeline->spans[i], *other = &timeline->spans[i + length];
		if (*later < 0)
			*later = other->start - one->start;
		if (!is_same_op(&program->ops[i], &program->ops[i + length], list->round) ||
			!is_in_time(one, other, *later, step))
			return false;
	}
	return true;
}

bool steady_is(const struct short_list *list, const struct schedule *schedule,
	const struct simulation *simulation)
{
	double later = -1;
	for (int c = 0; c < schedule->n_classes; c++)
		if (!repeats(
			    list, &schedule->programs[c], &simulation->classes[c].timeline, &later))
			return false;
	return true;
}

/* --- the pace --------------------------------------------------------------------------------- */

bool steady_has_settled(const struct short_list *list, const struct schedule *schedule,
	const struct simulation *simulation)
{
	int class = simulation->pacemaker;
	const struct program *program = &schedule->programs[class];
	const struct span *spans = simulation->classes[class].timeline.spans;
	int first = program->rounds.first, length = program->rounds.n;
	double later = spans[first + length].start - spans[first].start;
	double step = spans[program->n_ops - 1].end;
	int n = program->n_ops - first - length, compared = 0;
	n = n < length ? n : length;
	for (int i = first + n / 2; i < first + n; i++) {
		if (!is_same_op(&program->ops[i], &program->ops[i + length], list->round))
			continue;
		if (!is_as_late(spans[i].end, spans[i + length].end, later, step))
			return false;
		compared++;
	}
	return compared > 1;
}

/* --- the times of a longer list --------------------------------------------------------------- */

enum { SUMS = 6, RATES = 5, INTERVAL = 4 };

static void find_sums(struct prediction *p, double *sums[SUMS])
{
	double *found[SUMS] = {&p->step_time, &p->lower_bound, &p->plan_lower_bound,
		&p->wire_bytes_per_rank, &p->wire_bytes_node_egress, &p->wire_bytes_rows};
	memcpy(sums, found, sizeof(found));
}

static void find_rates(struct prediction *p, double *rates[RATES], double *interval[INTERVAL])
{
	double *found[RATES] = {
		&p->tokens_per_s_per_gpu, &p->mfu, &p->mfu_causal, &p->mfu_6n, &p->hfu};
	double *ends[INTERVAL] = {
		&p->step_time_low, &p->step_time_high, &p->step_time_p95, &p->step_time_best};
	memcpy(rates, found, sizeof(found));
	memcpy(interval, ends, sizeof(ends));
}

void steady_take(const struct simulation *from, struct simulation *to)
{
	struct prediction *p = &to->prediction;
	struct simulation rank = from->classes[p->rank_class];
	double *sums[SUMS], *rates[RATES], *interval[INTERVAL];
	double *its_sums[SUMS], *its_rates[RATES], *its_interval[INTERVAL];
	find_sums(p, sums);
	find_rates(p, rates, interval);
	find_sums(&rank.prediction, its_sums);
	find_rates(&rank.prediction, its_rates, its_interval);
	for (int i = 0; i < SUMS; i++)
		*sums[i] = *its_sums[i];
	for (int i = 0; i < RATES; i++)
		*rates[i] = *its_rates[i];
	for (int i = 0; i < INTERVAL; i++)
		*interval[i] = *its_interval[i];
	p->time = rank.prediction.time;
	to->exposed = rank.exposed;
	memcpy(p->axes, rank.prediction.axes, sizeof(p->axes));
	for (int c = 0; c < p->n_classes; c++) {
		p->classes[c].bubble = from->prediction.classes[c].bubble;
		p->classes[c].step_time = from->prediction.classes[c].step_time;
	}
}

void steady_stretch(double factor, struct prediction *p)
{
	double *rates[RATES], *interval[INTERVAL];
	find_rates(p, rates, interval);
	p->step_time *= factor;
	for (int i = 0; i < RATES; i++)
		*rates[i] /= factor;
	for (int i = 0; i < INTERVAL; i++)
		*interval[i] *= factor;
	for (int c = 0; c < p->n_classes && p->classes != NULL; c++)
		p->classes[c].step_time *= factor;
}
