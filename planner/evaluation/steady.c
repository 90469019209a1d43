/* A pipeline's step of many micro-batches, from two of few. */
#include "planner/evaluation/steady.h"

#include "schedule/pipeline/pipeline.h"

/* With one stage a rank as many as there are ranks fill it; with several, rounds of as many. What
 * is over is one or two more, so that the first and the last are apart. */
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

void steady_extend(
	const struct steady *steady, const struct prediction *first, struct prediction *second)
{
	double step = second->step_time, tokens;
	double n = (double)steady->plans[1].grad_accum, all;
	all = n + steady->more * (n - (double)steady->plans[0].grad_accum);
	extend(steady->more, first->step_time, &second->step_time);
	extend(steady->more, first->wire_bytes_per_rank, &second->wire_bytes_per_rank);
	extend(steady->more, first->wire_bytes_node_egress, &second->wire_bytes_node_egress);
	extend(steady->more, first->time.bubble, &second->time.bubble);
	tokens = all / n * step / second->step_time;
	second->tokens_per_s_per_gpu *= tokens;
	second->mfu *= tokens;
	second->mfu_causal *= tokens;
	second->mfu_6n *= tokens;
	second->hfu *= tokens;
	second->step_time_low *= second->step_time / step;
	second->step_time_high *= second->step_time / step;
	second->step_time_p95 *= second->step_time / step;
	second->step_time_best *= second->step_time / step;
}
