/* A pipeline's step of many micro-batches, from two of few. */
#include "planner/evaluation/steady.h"

#include "schedule/pipeline/pipeline.h"

/* Micro-batches that fill a pipeline and drain it: with one stage a rank two more than there are
 * ranks; with several stages a few rounds, each of as many as there are ranks. */
enum { FILLING_MORE = 2, ROUNDS = 3 };

static struct plan with_micro_batches(const struct plan *plan, int64_t n)
{
	struct plan shorter = *plan;
	shorter.grad_accum = n;
	shorter.global_batch = shorter.micro_batch * n * plan_data_parallel(plan);
	return shorter;
}

/* The two numbers of micro-batches; false: there is no such regularity. GPipe keeps all of them. */
static bool choose(const struct plan *plan, int64_t n[2])
{
	const struct pipeline pipeline = plan_pipeline(plan);
	if (pipeline.ranks == 1 || pipeline.schedule == PIPELINE_GPIPE)
		return false;
	n[0] = pipeline.ranks + FILLING_MORE;
	n[1] = n[0] + 1;
	if (pipeline.chunks == 1)
		return true;
	n[0] = ROUNDS * pipeline.ranks;
	n[1] = n[0] + pipeline.ranks;
	return plan->grad_accum % pipeline.ranks == 0;
}

bool steady_of(const struct plan *plan, struct steady *steady)
{
	int64_t n[2];
	if (!choose(plan, n) || plan->grad_accum <= n[1] + FILLING_MORE)
		return false;
	steady->more = (double)(plan->grad_accum - n[1]) / (double)(n[1] - n[0]);
	for (int i = 0; i < 2; i++)
		steady->plans[i] = with_micro_batches(plan, n[i]);
	return true;
}

static void extend(double more, double first, double *second)
{
	*second += more * (*second - first);
}

double steady_time(const struct steady *steady, double first, double second)
{
	extend(steady->more, first, &second);
	return second;
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

void steady_extend(
	const struct steady *steady, const struct simulation *first, struct simulation *simulation)
{
	const struct prediction *short_one = &first->prediction;
	struct prediction *second = &simulation->prediction;
	double step = second->step_time, more = steady->more;
	double n = (double)steady->plans[1].grad_accum;
	double all = n + more * (n - (double)steady->plans[0].grad_accum);
	extend(more, short_one->step_time, &second->step_time);
	extend(more, short_one->lower_bound, &second->lower_bound);
	extend(more, short_one->plan_lower_bound, &second->plan_lower_bound);
	extend(more, short_one->wire_bytes_per_rank, &second->wire_bytes_per_rank);
	extend(more, short_one->wire_bytes_node_egress, &second->wire_bytes_node_egress);
	extend_all(more, &short_one->time, &second->time, sizeof(second->time));
	extend_all(more, &first->exposed, &simulation->exposed, sizeof(simulation->exposed));
	extend_stages(more, short_one, second);
	extend_axes(more, short_one, second);
	double longer = second->step_time / step, faster = all / n / longer;
	double *rates[] = {&second->tokens_per_s_per_gpu, &second->mfu, &second->mfu_causal,
		&second->mfu_6n, &second->hfu};
	double *steps[] = {&second->step_time_low, &second->step_time_high, &second->step_time_p95,
		&second->step_time_best};
	for (int i = 0; i < COUNT_OF(rates); i++)
		*rates[i] *= faster;
	for (int i = 0; i < COUNT_OF(steps); i++)
		*steps[i] *= longer;
}
