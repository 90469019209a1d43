/* Roofline of matrix products, attention, element-wise kernels. */
#include "simulator/compute.h"

#include <math.h>

/* Without torch.compile, PyTorch runs the element-wise parts as several kernels that each go
 * through memory: traffic and launches of the fused figures times these. */
static const double eager_traffic = 1.6, eager_kernels = 2.0;

static double saturation(double size, double half)
{
	return size / (size + half);
}

static double gemm_bytes(const struct gemm_shape *gemm, enum dtype dtype)
{
	double m = (double)gemm->m, n = (double)gemm->n, k = (double)gemm->k;

	return (m * k + k * n + m * n) * dtype_bytes(dtype);
}

/* FLOP/s that the shape reaches; never above the datasheet (a CPU has none, only an estimate). */
static double gemm_rate(const struct machine *machine, const struct gemm_shape *gemm)
{
	double rate = machine->gemm_flops * saturation((double)gemm->m, machine->gemm_half_m) *
		      saturation((double)gemm->n, machine->gemm_half_n) *
		      saturation((double)gemm->k, machine->gemm_half_k);

	if (machine->gpu && machine->peak_flops > 0)
		rate = fmin(rate, machine->peak_flops);
	return rate * machine->core_share;
}

/* Adds work whose arithmetic takes `arithmetic` s and whose memory traffic `memory` s: the longer
 * one is what it waits for. */
static void add_bound(struct cost *cost, double arithmetic, double memory)
{
	if (arithmetic >= memory)
		cost->arithmetic += arithmetic;
	else
		cost->memory += memory;
	cost->device += fmax(arithmetic, memory);
}

static void add_gemm(
	const struct machine *machine, const struct gemm_shape *gemm, struct cost *cost)
{
	double count = (double)gemm->count;
	double flops = 2.0 * (double)gemm->m * (double)gemm->n * (double)gemm->k;

	cost->flops += count * flops;
	add_bound(cost, count * flops / gemm_rate(machine, gemm),
		count * gemm_bytes(gemm, machine->dtype) / machine->memory_bandwidth);
}

double cost_gemm(const struct topology *topology, enum dtype dtype, const struct gemm_shape *gemm)
{
	struct machine machine;
	struct cost cost = {0};

	machine_init(&machine, topology, dtype);
	add_gemm(&machine, gemm, &cost);
	return cost.device + (double)gemm->count * machine.kernel_overhead;
}

/* Flash kernels spend on each score a product of depth d and a softmax that does not depend on d:
 * d / (d + this), relative to the 128 that the priors stand for. */
static const double softmax_depth = 32, prior_head_dim = 128;

static double head_dim_factor(const struct machine *machine, const struct schedule *schedule)
{
	double d = (double)schedule->model->architecture.head_dim;

	if (!machine->gpu || machine->topology->calibration.attention_forward_flops > 0)
		return 1;
	return saturation(d, softmax_depth) / saturation(prior_head_dim, softmax_depth);
}

/* Eager attention is matrix products of depth head_dim. */
static double attention_rate(
	const struct machine *machine, const struct schedule *schedule, enum pass pass)
{
	const struct plan *plan = &schedule->plan;
	const struct gemm_shape eager = {
		plan->seq_len, plan->seq_len, schedule->model->architecture.head_dim, 1};
	double rate = pass == PASS_FORWARD ? machine->attention_forward_flops
					   : machine->attention_backward_flops;

	if (plan->attention == ATTENTION_EAGER)
		return gemm_rate(machine, &eager);
	rate *= head_dim_factor(machine, schedule);
	if (machine->gpu && machine->peak_flops > 0)
		rate = fmin(rate, machine->peak_flops);
	return rate * machine->core_share;
}

/* Our own kernels are written fused; PyTorch's are once compiled. */
static bool is_fused(const struct schedule *schedule)
{
	return schedule->plan.compile || schedule->plan.runtime == RUNTIME_SHARDPLAN;
}

static double add_module(const struct machine *machine, const struct schedule *schedule,
	const struct module_work *work, enum pass pass, struct cost *cost)
{
	bool fused = is_fused(schedule);
	double kernels =
		work->n_gemms + (work->kernels - work->n_gemms) * (fused ? 1 : eager_kernels);

	for (int i = 0; i < work->n_gemms; i++)
		add_gemm(machine, &work->gemms[i], cost);
	if (work->attention_flops > 0) {
		cost->flops += work->attention_flops;
		add_bound(cost, work->attention_flops / attention_rate(machine, schedule, pass), 0);
	}
	add_bound(cost, 0,
		work->memory_bytes * (fused ? 1 : eager_traffic) / machine->memory_bandwidth);
	cost->device += kernels * machine->kernel_overhead;
	return kernels;
}

double compute_range_cost(const struct machine *machine, const struct schedule *schedule, int first,
	int end, enum pass pass, struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	const struct model *model = schedule->model;
	double kernels = 0;

	for (int i = first; i < end; i++) {
		struct module_work work;

		if (!module_kind_is_leaf(model->modules[i].kind))
			continue;
		model_module_work(model, i, pass, plan->micro_batch, plan->seq_len,
			dtype_bytes(plan->param_dtype), plan->attention, &work);
		kernels += add_module(machine, schedule, &work, pass, cost);
	}
	return kernels;
}

/* The logits are read and become their gradient; every byte beside them is written once and read
 * once. Compiled, the loss is one kernel a pass: three reads and a write of the logits. */
double compute_loss_cost(
	const struct machine *machine, const struct schedule *schedule, struct cost *cost)
{
	const struct plan *plan = &schedule->plan;
	double logits = (double)plan->micro_batch * (double)plan->seq_len *
			(double)schedule->model->architecture.vocab;
	double width = dtype_bytes(plan->param_dtype);
	double extra = runtime_of(plan->runtime)->loss_bytes_extra;
	double bytes = is_fused(schedule) ? 4 * width : 2 * width + 2 * extra;
	double kernels = is_fused(schedule) ? 2 : 8;

	traffic_cost(machine, logits * bytes, machine->memory_bandwidth, kernels, cost);
	return kernels;
}

void traffic_cost(const struct machine *machine, double bytes, double bandwidth, double kernels,
	struct cost *cost)
{
	add_bound(cost, 0, bytes / bandwidth);
	cost->device += kernels * machine->kernel_overhead;
}
