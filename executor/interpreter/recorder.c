#include "executor/interpreter/recorder.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "executor/ranks/ranks.h"

/* Timelines are kept in at most this much memory: it counts in the PSS that is being judged. */
enum { KEPT_BYTES = 2 << 20 };

void recorder_open(struct recorder *recorder, int64_t steps, int n_ops, struct arena *arena)
{
	int64_t one = max_i64(n_ops * (int64_t)sizeof(struct span), 1);
	int64_t room = max_i64(KEPT_BYTES / one, 1);

	*recorder = (struct recorder){.steps = steps, .n_ops = n_ops};
	recorder->every = ceil_div(steps, room);
	recorder->step_times = ARENA_ARRAY(arena, double, steps);
	recorder->losses = ARENA_ARRAY(arena, double, steps);
	recorder->gradient_norms = ARENA_ARRAY(arena, double, steps);
	recorder->spans = ARENA_ARRAY(arena, struct span, ceil_div(steps, recorder->every) * n_ops);
}

/* The last step of each stretch of `every` is kept, so that a single one is not a warm-up step. */
static struct span *kept_spans(const struct recorder *recorder, int64_t step)
{
	return recorder->spans + step / recorder->every * recorder->n_ops;
}

void recorder_add(struct recorder *recorder, const struct timeline *timeline, double step_time,
	double loss, double gradient_norm)
{
	int64_t step = recorder->done++;

	recorder->step_times[step] = step_time;
	recorder->losses[step] = loss;
	recorder->gradient_norms[step] = gradient_norm;
	memcpy(kept_spans(recorder, step), timeline->spans,
		(size_t)recorder->n_ops * sizeof(struct span));
}

/* --- statistics --- */

struct spread measure_spread(double *values, int64_t n)
{
	struct spread spread = {0};

	if (n <= 0)
		return spread;
	sort_numbers(values, n);
	for (int64_t i = 0; i < n; i++)
		spread.mean += values[i] / (double)n;
	for (int64_t i = 0; i < n && n > 1; i++)
		spread.variance +=
			(values[i] - spread.mean) * (values[i] - spread.mean) / (double)(n - 1);
	spread.p10 = quantile(values, n, 0.1);
	spread.p50 = quantile(values, n, 0.5);
	spread.p90 = quantile(values, n, 0.9);
	spread.p95 = quantile(values, n, 0.95);
	return spread;
}

/* --- where the time went --- */

struct interval {
	double start, end;
};

static int compare_intervals(const void *a, const void *b)
{
	double x = ((const struct interval *)a)->start, y = ((const struct interval *)b)->start;

	return (x > y) - (x < y);
}

/* Sorts the intervals and joins those that overlap. Returns how many are left. */
static int merge(struct interval *list, int n)
{
	int kept = 0;

	qsort(list, (size_t)n, sizeof(list[0]), compare_intervals);
	for (int i = 0; i < n; i++) {
		if (kept > 0 && list[i].start <= list[kept - 1].end)
			list[kept - 1].end = fmax(list[kept - 1].end, list[i].end);
		else
			list[kept++] = list[i];
	}
	return kept;
}

static double total(const struct interval *list, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += list[i].end - list[i].start;
	return sum;
}

/* Returns how long two merged lists overlap. */
static double overlap(const struct interval *a, int n_a, const struct interval *b, int n_b)
{
	double sum = 0;

	for (int i = 0, j = 0; i < n_a && j < n_b;) {
		double start = fmax(a[i].start, b[j].start), end = fmin(a[i].end, b[j].end);

		if (end > start)
			sum += end - start;
		if (a[i].end < b[j].end)
			i++;
		else
			j++;
	}
	return sum;
}

struct time_split measure_time_split(
	const struct program *program, const struct span *spans, struct arena *arena)
{
	struct interval *busy = ARENA_ARRAY(arena, struct interval, program->n_ops);
	struct interval *moving = ARENA_ARRAY(arena, struct interval, program->n_ops);
	struct time_split split = {0};
	int n_busy = 0, n_moving = 0;

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct interval interval = {spans[i].start, spans[i].end};

		time_split_add(&split, op->kind, interval.end - interval.start);
		if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE)
			moving[n_moving++] = interval;
		else if (op->stream == STREAM_COMPUTE)
			busy[n_busy++] = interval;
	}
	n_busy = merge(busy, n_busy);
	n_moving = merge(moving, n_moving);
	split.exposed_communication =
		total(moving, n_moving) - overlap(moving, n_moving, busy, n_busy);
	return split;
}

/* --- the measurement --- */

static int64_t warm_up_steps(const struct recorder *recorder)
{
	return min_i64(WARM_UP_STEPS, max_i64(recorder->done - 1, 0));
}

/* Returns the kept step whose time is nearest to the median. */
static int64_t median_step(const struct recorder *recorder, double p50)
{
	int64_t best = recorder->done - 1;

	for (int64_t i = warm_up_steps(recorder); i < recorder->done; i++) {
		bool kept = (i + 1) % recorder->every == 0 || i == recorder->done - 1;

		if (kept && fabs(recorder->step_times[i] - p50) <
				    fabs(recorder->step_times[best] - p50))
			best = i;
	}
	return best;
}

static void fill_timeline(
	const struct measure_inputs *in, double p50, struct arena *arena, struct timeline *timeline)
{
	const struct recorder *recorder = in->recorder;
	int64_t step = median_step(recorder, p50);

	timeline_init(timeline, recorder->n_ops, arena);
	memcpy(timeline->spans, kept_spans(recorder, step),
		(size_t)recorder->n_ops * sizeof(struct span));
	memcpy(timeline->live, in->last->live, (size_t)recorder->n_ops * sizeof(timeline->live[0]));
	timeline->step_time = recorder->step_times[step];
}

static void fill_times(const struct measure_inputs *in, struct arena *arena, struct measurement *m)
{
	const struct recorder *recorder = in->recorder;
	const struct plan *plan = &in->schedule->plan;
	int64_t first = warm_up_steps(recorder), n = recorder->done - first;
	double *times = ARENA_ARRAY(arena, double, max_i64(n, 1));

	memcpy(times, recorder->step_times + first, (size_t)n * sizeof(double));
	struct spread spread = measure_spread(times, n);
	m->steps = recorder->done;
	m->warm_up_steps = first;
	m->step_time_p50 = spread.p50;
	m->step_time_p95 = spread.p95;
	m->step_time_variance = spread.variance;
	m->values.step_time = spread.mean;
	m->values.step_time_low = spread.p10;
	m->values.step_time_high = spread.p90;
	m->values.uncertainty_source = "10th and 90th percentile of the measured steps";
	m->values.tokens_per_s_per_gpu = (double)(plan->global_batch * plan->seq_len) /
					 spread.mean / (double)in->comm->ranks;
	fill_timeline(in, spread.p50, arena, &m->timeline);
	m->values.time = measure_time_split(in->program, m->timeline.spans, arena);
}

/* Returns the FLOPs that recomputation adds to a step of one rank. */
static double recompute_flops(const struct schedule *schedule, const struct program *program)
{
	const struct plan *plan = &schedule->plan;
	double flops = 0;

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];

		for (int m = op->first_module; m < op->end_module && op->kind == OP_RECOMPUTE;
			m++) {
			struct module_work work;

			model_module_work(program->model, m, PASS_FORWARD, plan->micro_batch,
				plan->seq_len, dtype_bytes(plan->param_dtype), plan_attending(plan),
				&work);
			flops += work.attention_flops;
			for (int g = 0; g < work.n_gemms; g++)
				flops += 2.0 * (double)work.gemms[g].m * (double)work.gemms[g].n *
					 (double)work.gemms[g].k * (double)work.gemms[g].count;
		}
	}
	return flops;
}

static void fill_utilisation(
	const struct measure_inputs *in, struct arena *arena, struct prediction *v)
{
	const struct topology *topology = in->schedule->topology;
	const struct model *model = in->schedule->model;
	enum dtype dtype = in->schedule->plan.param_dtype;
	double gemm = calibration_gemm_flops(&topology->calibration, dtype) *
		      topology_rank_speedup(topology);
	double rate = v->tokens_per_s_per_gpu;

	v->peak_flops = gemm > 0 ? gemm : device_peak_flops(&topology->device, dtype);
	if (gemm > 0)
		v->peak_name =
			topology->calibration.measured ? "measured GEMM peak" : "prior GEMM peak";
	else
		v->peak_name = arena_printf(
			arena, "%s %s dense", topology->device.name, dtype_name(dtype));
	if (v->peak_flops <= 0)
		return;
	v->mfu = rate * model_flops_per_token(model, in->schedule->plan.seq_len) / v->peak_flops;
	v->mfu_6n = rate * model_flops_6n(model) / v->peak_flops;
	v->mfu_causal =
		rate * model_flops_causal(model, in->schedule->plan.seq_len) / v->peak_flops;
	v->hfu = v->mfu + recompute_flops(in->schedule, in->program) / v->step_time / v->peak_flops;
}

static int64_t allocated_in_role(const struct measure_inputs *in, enum buffer_role role)
{
	const struct program *program = in->buffers->program;
	int64_t bytes = 0;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident && program->buffers[i].role == role &&
			!buffer_in_host(&program->buffers[i]))
			bytes += buffers_bytes(in->buffers, i);
	return bytes;
}

static const char *describe_op(const struct program *program, int index, struct arena *arena)
{
	const struct op *op = &program->ops[index];
	const char *unit = op->unit >= 0 ? program->units[op->unit].name : "all units";

	if (op->micro_batch < 0)
		return arena_printf(arena, "%s %s", op_kind_name(op->kind), unit);
	return arena_printf(
		arena, "%s %s, micro-batch %d", op_kind_name(op->kind), unit, op->micro_batch);
}

static void fill_ledger(const struct measure_inputs *in, struct arena *arena, struct prediction *v)
{
	for (int i = 0; i < in->last->n_ops; i++) {
		int64_t sum = 0;

		for (int c = 0; c < CATEGORY_COUNT; c++) {
			sum += in->last->live[i][c];
			v->ledger_category_peak[c] =
				max_i64(v->ledger_category_peak[c], in->last->live[i][c]);
		}
		if (sum > v->ledger_peak_bytes) {
			v->ledger_peak_bytes = sum;
			v->peak_op = i;
		}
	}
	v->peak_at = describe_op(in->program, v->peak_op, arena);
}

static void fill_memory(const struct measure_inputs *in, struct arena *arena, struct prediction *v)
{
	const struct buffers *buffers = in->buffers;

	v->memory_limit_bytes = in->schedule->topology->device.memory_bytes;
	v->model_states_parameters = allocated_in_role(in, BUFFER_PARAMETER_SHARD) +
				     allocated_in_role(in, BUFFER_UNSHARDED);
	v->model_states_gradients = in->gradient_bytes;
	v->model_states_optimizer_state = allocated_in_role(in, BUFFER_OPTIMIZER_STATE);
	v->peak_allocated_bytes = buffers->physical_peak;
	v->peak_reserved_bytes = buffers->heap.high_water;
	memcpy(v->memory_at_peak, buffers->physical_at_peak, sizeof(v->memory_at_peak));
	memcpy(v->memory_category_peak, buffers->physical_category_peak,
		sizeof(v->memory_category_peak));
	/* This is what the process had before it had any buffer. */
	v->memory_at_peak[CATEGORY_RUNTIME_OVERHEAD] += in->pss_before;
	v->memory_category_peak[CATEGORY_RUNTIME_OVERHEAD] += in->pss_before;
	v->peak_memory_bytes = v->peak_allocated_bytes + in->pss_before;
	v->ledger_host_peak_bytes = buffers->host_ledger_peak;
	fill_ledger(in, arena, v);
}

/* Figures are summed over ranks and divided, so that slices which do not divide evenly cancel
 * out. */
static void fill_ranks(const struct measure_inputs *in, struct measurement *m)
{
	int ranks = in->comm->ranks;
	double wire = 0, network = 0, rows = 0, growth = 0,
	       nodes = (double)ranks / in->ranks_per_node;

	for (int r = 0; r < ranks; r++) {
		const struct rank_report *report = &in->reports[r];

		wire += (double)report->wire_bytes;
		network += (double)report->network_bytes;
		rows += (double)report->row_bytes;
		growth += (double)report->pss_growth;
		m->pss_growth_bytes = max_i64(m->pss_growth_bytes, report->pss_growth);
		m->undeclared_bytes = max_i64(m->undeclared_bytes, report->undeclared);
	}
	m->pss_growth_mean_bytes = (int64_t)(growth / ranks);
	m->values.wire_bytes_per_rank = wire / ranks / (double)in->recorder->done;
	m->values.wire_bytes_rows = rows / ranks / (double)in->recorder->done;
	m->values.wire_bytes_node_egress = network / nodes / (double)in->recorder->done;
	for (int k = 0; k < COLLECTIVES_OF_STEPS; k++)
		m->values.collectives[k] =
			in->comm->counters.collectives[k] / max_i64(in->recorder->done, 1);
}

/* Ranks that share a GPU read one account, and the first one that opened it saw what was there
 * before. If each rank has a GPU of its own, the fullest counts. */
static void fill_device(const struct measure_inputs *in, struct arena *arena, struct measurement *m)
{
	int64_t used = in->reports[0].device_used, before = in->reports[0].device_before;

	if (in->device_ranks == 0)
		return;
	for (int r = 1; r < in->comm->ranks; r++) {
		const struct rank_report *report = &in->reports[r];
		bool fuller = report->device_used - max_i64(report->device_before, 0) >
			      used - max_i64(before, 0);

		if (in->device_ranks > 1) {
			used = max_i64(used, report->device_used);
			before = min_i64(before, report->device_before);
		} else if (fuller) {
			used = report->device_used;
			before = report->device_before;
		}
	}
	m->device_ranks = in->device_ranks;
	m->device_used_bytes = used - max_i64(before, 0);
	m->device_account = before < 0
				    ? "all memory in use, of other processes too: "
				      "NVML does not say what was in use before"
				    : arena_printf(arena, "less %lld bytes in use before the run",
					      (long long)before);
}

/* The sum of a hybrid strategy is the world's sum only where shard groups are subtrees of its
 * tree. */
static const char *reproducible_level(const struct plan *plan)
{
	int64_t shard = plan->mesh.shard;
	bool subtree = plan->mesh.replicate == 1 || (shard & (shard - 1)) == 0;

	if (plan->gradient_sums == SUMS_EXACT)
		return "world";
	return subtree ? "plan" : "run";
}

void measure(const struct measure_inputs *in, struct arena *arena, struct measurement *m)
{
	*m = (struct measurement){
		.ranks = in->comm->ranks, .nodes = in->comm->ranks / in->ranks_per_node};
	m->values.schedule_digest = arena_strdup(arena, schedule_digest(in->schedule).hex);
	m->values.fits = FITS_YES;
	fill_times(in, arena, m);
	fill_utilisation(in, arena, &m->values);
	fill_memory(in, arena, &m->values);
	fill_ranks(in, m);
	fill_device(in, arena, m);
	m->n_losses = (int)in->recorder->done;
	m->losses = in->recorder->losses;
	m->gradient_norms = in->recorder->gradient_norms;
	m->weights_digest = arena_strdup(arena, in->reports[0].digest.hex);
	m->reproducible = in->only_repeats ? "run" : reproducible_level(&in->schedule->plan);
	m->paced_operations = in->paced.n_held / max_i64(in->recorder->done, 1);
	m->late_operations = in->paced.n_late;
	m->late = in->paced.late / in->slow_motion;
	m->slow_motion = in->paced.n_held > 0 ? in->slow_motion : 0;
	m->cuda_graphs = in->cuda_graphs;
	m->nccl = in->nccl;
	m->nccl_buffers = in->nccl_buffers;
	m->product_choices = in->product_choices;
	m->attention_choices = in->attention_choices;
	m->hardware = machine_hardware(arena, in->cpus);
	m->versions = machine_versions(in->kernels, arena);
	m->date = machine_date(arena);
}
