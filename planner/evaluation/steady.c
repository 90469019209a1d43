/* A pipeline's step of many micro-batches, from two of few. */
#include "planner/evaluation/steady.h"

#include <math.h>
#include <string.h>

#include "schedule/pipeline/pipeline.h"

/* With one stage for each rank a round is one micro-batch; with several it is as many as there are
 * ranks. Two rounds of the longer list are compared. They come after the pipeline is filled, and
 * before the round that ends with the reductions of the last micro-batch. Where they are not equal
 * yet, the lists are made twice as long, and so on. Where the next lists would be too long, the
 * first ones are treated as steady whatever a comparison says. Then a list of two rounds and one of
 * three do: from the second round on each one adds the same time. */
enum { FILLING_MORE = 2 };

/* Micro-batches times ranks of a list that is longer than the first one. */
enum { MOST = 512 };

/* Tolerance of seconds, for sums in another order. */
#define ROUNDING 1e-9

static struct plan with_micro_batches(const struct plan *plan, int64_t n)
{
	struct plan shorter = *plan;
	shorter.grad_accum = n;
	shorter.global_batch = shorter.micro_batch * n * plan_data_parallel(plan);
	return shorter;
}

/* Interleaved, the first rank begins less than two rounds before its first backward. */
struct plan steady_filling(const struct plan *plan)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t n = pipeline.ranks + FILLING_MORE + 1;
	if (pipeline.schedule == PIPELINE_GPIPE)
		return *plan;
	if (pipeline.chunks > 1)
		n = 2 * (int64_t)pipeline.ranks;
	return n < plan->grad_accum ? with_micro_batches(plan, n) : *plan;
}

/* Micro-batches before the two rounds. */
static int64_t filling_of(const struct pipeline *pipeline, int attempt)
{
	int64_t ranks = pipeline->ranks;
	if (pipeline->chunks == 1)
		return ranks << attempt;
	bool alone = 6 * ranks * ranks > MOST; /* no second attempt */
	return attempt == 0 && alone ? ranks : 2 * ranks << attempt;
}

bool steady_of(const struct plan *plan, int attempt, struct steady *steady)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	bool several = pipeline.chunks > 1;
	int64_t round = several ? pipeline.ranks : 1;
	int64_t filling = filling_of(&pipeline, attempt);
	int64_t n = filling + (several ? 2 : 3) * round;
	/* GPipe keeps all micro-batches. The first lists also say what memory holds; longer ones
	 * together have to be shorter than all. */
	if (pipeline.ranks == 1 || pipeline.schedule == PIPELINE_GPIPE ||
		(several && plan->grad_accum <= 2 * n && steady_may_run_all(plan)) ||
		plan->grad_accum % round != 0 || (attempt > 0 && n * pipeline.ranks > MOST) ||
		plan->grad_accum <= (attempt == 0 ? n + FILLING_MORE : 2 * n - round))
		return false;
	steady->more = (double)(plan->grad_accum - n) / (double)round;
	steady->round = round;
	steady->filling = filling;
	steady->plans[0] = with_micro_batches(plan, n - round);
	steady->plans[1] = with_micro_batches(plan, n);
	return true;
}

bool steady_may_run_all(const struct plan *plan)
{
	return plan->grad_accum * plan->mesh.pipeline <= MOST;
}

/* --- are two rounds alike? -------------------------------------------------------------------- */

/* The first forward of a micro-batch from operation `first` on; -1: there is none. */
static int find_forward(const struct program *program, int first, int64_t micro_batch)
{
	for (int i = first; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_FORWARD &&
			program->ops[i].micro_batch == micro_batch)
			return i;
	return -1;
}

/* The operation at which the first of the two rounds begins, or a round `rounds` later. With
 * several chunks a round is counted from the second chunk on, so that it does not contain
 * operations after the last forward, or beside the last forwards of other ranks. */
static int find_round(const struct steady *steady, const struct program *program, int rounds)
{
	int64_t first = steady->filling + rounds * steady->round;
	if (steady->round == 1)
		return find_forward(program, 0, first);
	first -= steady->round;
	int last = find_forward(program, 0, first + steady->round - 1);
	return last < 0 ? -1 : find_forward(program, last, first);
}

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
static bool repeats(const struct steady *steady, const struct program *program,
	const struct timeline *timeline, double step, double *later)
{
	int64_t round = steady->round;
	int first = find_round(steady, program, 0), next = find_round(steady, program, 1);
	int length = next - first;
	if (first < 0 || next < 0 || length <= 0 || next + length > program->n_ops)
		return false;
	for (int i = first; i < next; i++) {
		const struct span *one = &timeline->spans[i], *other = &timeline->spans[i + length];
		if (*later < 0)
			*later = other->start - one->start;
		if (!is_same_op(&program->ops[i], &program->ops[i + length], round) ||
			!is_in_time(one, other, *later, step))
			return false;
	}
	return true;
}

double steady_is(const struct steady *steady, const struct schedule *schedule,
	const struct simulation *simulation)
{
	double later = -1;
	for (int c = 0; c < schedule->n_classes; c++)
		if (!repeats(steady, &schedule->programs[c], &simulation->classes[c].timeline,
			    simulation->prediction.step_time, &later))
			return 0;
	return later;
}

/* --- a round more -----------------------------------------------------------------------------
 */

static bool is_sent_in(const struct steady *steady, const struct op *op)
{
	return op->micro_batch >= steady->filling &&
	       op->micro_batch < steady->filling + steady->round;
}

/* Adds the bytes that the class sends in the rounds that are not simulated. */
static void send_more(const struct steady *steady, const struct schedule *schedule, int class,
	struct prediction *prediction)
{
	const struct program *program = &schedule->programs[class];
	const struct runtime *runtime = runtime_of(schedule->plan.runtime);
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		enum collective_kind kind;
		bool message = op_kind_class(op->kind) == OP_CLASS_MESSAGE;
		if (!is_sent_in(steady, op) || (!message && !collective_kind_of(op->kind, &kind)))
			continue;
		const struct group *group = &schedule->groups[op->group];
		int64_t ranks = message ? 2 : group->size;
		prediction->wire_bytes_per_rank +=
			steady->more * collective_wire_bytes(op->kind, ranks, op->bytes);
		prediction->wire_bytes_node_egress +=
			steady->more * (message ? message_node_egress(schedule, class, op)
						: collective_node_egress(schedule->topology,
							  runtime, kind, group, op->bytes));
	}
}

void steady_lengthen(const struct steady *steady, const struct schedule *schedule, double round,
	struct prediction *prediction)
{
	prediction->step_time += steady->more * round;
	send_more(steady, schedule, prediction->rank_class, prediction);
}

/* --- what a step has a sum of ----------------------------------------------------------------- */

static void extend(double more, double first, double *second)
{
	*second += more * (*second - first);
}

/* A struct that holds nothing but seconds. */
static void extend_all(double more, const void *first, void *second, size_t size)
{
	const double *from = first;
	double *to = second;
	for (size_t i = 0; i < size / sizeof(double); i++)
		extend(more, from[i], &to[i]);
}

static void extend_axes(double more, const struct prediction *first, struct prediction *second)
{
	for (int a = 0; a < GROUP_KIND_COUNT; a++) {
		extend(more, first->axes[a].wire_bytes, &second->axes[a].wire_bytes);
		extend(more, first->axes[a].time, &second->axes[a].time);
		extend(more, first->axes[a].exposed, &second->axes[a].exposed);
	}
}

static void extend_stages(double more, const struct prediction *first, struct prediction *second)
{
	for (int c = 0; c < second->n_classes && second->classes != NULL; c++) {
		extend(more, first->classes[c].bubble, &second->classes[c].bubble);
		second->classes[c].step_time = second->step_time;
	}
}

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

void steady_extend(
	const struct steady *steady, const struct simulation *before, struct simulation *last)
{
	struct prediction *second = &last->prediction;
	struct simulation rank = before->classes[second->rank_class]; /* that it tells of */
	double *sums[SUMS], *its_sums[SUMS], *rates[RATES], *interval[INTERVAL];
	double step = second->step_time, more = steady->more;
	double n = (double)steady->plans[1].grad_accum;
	double all = n + more * (double)steady->round;
	find_sums(second, sums);
	find_sums(&rank.prediction, its_sums);
	for (int i = 0; i < SUMS; i++)
		extend(more, *its_sums[i], sums[i]);
	extend_all(more, &rank.prediction.time, &second->time, sizeof(second->time));
	extend_all(more, &rank.exposed, &last->exposed, sizeof(last->exposed));
	extend_stages(more, &before->prediction, second);
	extend_axes(more, &rank.prediction, second);
	double longer = second->step_time / step, faster = all / n / longer;
	find_rates(second, rates, interval);
	for (int i = 0; i < RATES; i++)
		*rates[i] *= faster;
	for (int i = 0; i < INTERVAL; i++)
		*interval[i] *= longer;
}
