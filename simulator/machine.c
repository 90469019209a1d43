/* Calibration first, then the prior of the generation. Sources of the priors: docs/cost-model.md.
 */
#include "simulator/machine.h"

/* Fractions of the datasheet peak (attention on a CPU: of gemm_flops), sizes in elements. */
struct prior {
	double gemm, half_m, half_n, half_k;
	double attention_forward, attention_backward;
	double memory;
	double kernel_overhead; /* s */
};

static const struct prior priors[] = {
	[GENERATION_CPU] = {0.75, 4, 16, 32, 0.5, 0.5, 0.80, 1e-6},
	[GENERATION_VOLTA] = {0.74, 160, 160, 110, 0.40, 0.33, 0.83, 2e-6},
	[GENERATION_AMPERE] = {0.846, 177, 177, 126, 0.60, 0.52, 0.85, 2e-6},
	[GENERATION_ADA] = {0.90, 177, 177, 126, 0.65, 0.55, 0.88, 2e-6},
	[GENERATION_HOPPER] = {0.803, 256, 256, 192, 0.42, 0.36, 0.85, 2e-6},
	[GENERATION_BLACKWELL] = {0.776, 384, 384, 256, 0.30, 0.26, 0.85, 2e-6},
};

/* One core streams less than a socket does; several share what the host delivers. */
static const double core_memory_bandwidth = 12e9;
static const double default_core_flops = 30e9;
static const double optimizer_efficiency = 0.95; /* of what element-wise kernels reach */

/* Kernels measured alone run at higher clocks than in a step that keeps the device at its power
 * limit. Fitted on five A100 rows of published training runs (docs/cost-model.md). */
static const double sustained_clock = 0.92;

static double given(double calibrated, double prior)
{
	return calibrated > 0 ? calibrated : prior;
}

/* The dtype that gemm_flops was measured in: the half-precision one on GPUs. */
static double reference_peak(const struct device *device)
{
	if (device->kind == DEVICE_CPU)
		return device->fp32_flops;
	if (device->bf16_flops > 0)
		return device->bf16_flops;
	return given(device->fp16_flops, device->fp32_flops);
}

static void init_arithmetic(struct machine *machine, const struct prior *prior)
{
	const struct device *device = &machine->topology->device;
	const struct calibration *calibration = &machine->topology->calibration;
	double reference = reference_peak(device);
	double scale = 1;
	double attention;
	bool sustained = machine->gpu && !calibration->measured;

	machine->peak_flops = device_peak_flops(device, machine->dtype);
	if (machine->peak_flops > 0 && reference > 0)
		scale = machine->peak_flops / reference;
	machine->gemm_flops = scale * given(calibration->gemm_flops,
					      given(prior->gemm * reference, default_core_flops));
	machine->gemm_half_m = given(calibration->gemm_half_m, prior->half_m);
	machine->gemm_half_n = given(calibration->gemm_half_n, prior->half_n);
	machine->gemm_half_k = given(calibration->gemm_half_k, prior->half_k);
	attention = machine->gpu ? given(machine->peak_flops, reference) : machine->gemm_flops;
	machine->attention_forward_flops = given(
		scale * calibration->attention_forward_flops, prior->attention_forward * attention);
	machine->attention_backward_flops = given(scale * calibration->attention_backward_flops,
		prior->attention_backward * attention);
	if (!sustained)
		return;
	machine->gemm_flops *= sustained_clock;
	machine->attention_forward_flops *= sustained_clock;
	machine->attention_backward_flops *= sustained_clock;
}

/* Ranks of one host share what its memory delivers; only as many as there are cores run at once. */
static double shared(const struct machine *machine, double alone)
{
	const struct topology *topology = machine->topology;
	double all = given(topology->calibration.memory_bandwidth_shared,
		priors[GENERATION_CPU].memory * topology->host.memory_bandwidth);
	double ranks = (double)topology->devices_per_node;
	double running = ranks * machine->core_share;

	if (!topology->shares_host)
		return alone;
	if (all > 0 && alone * running > all)
		alone = all / running;
	return alone * machine->core_share;
}

static void init_memory(struct machine *machine, const struct prior *prior)
{
	const struct topology *topology = machine->topology;
	const struct calibration *calibration = &topology->calibration;
	double bandwidth = prior->memory * topology->device.memory_bandwidth;

	if (topology->shares_host && (bandwidth <= 0 || bandwidth > core_memory_bandwidth))
		bandwidth = core_memory_bandwidth;
	bandwidth = given(calibration->memory_bandwidth, bandwidth);
	machine->memory_bandwidth = shared(machine, bandwidth);
	machine->optimizer_bandwidth = shared(
		machine, given(calibration->optimizer_bandwidth, optimizer_efficiency * bandwidth));
	machine->link_bandwidth = topology->host.pcie_bandwidth;
}

void machine_init(struct machine *machine, const struct topology *topology, enum dtype dtype)
{
	const struct prior *prior = &priors[topology->device.generation];

	*machine = (struct machine){.topology = topology, .dtype = dtype, .core_share = 1};
	machine->gpu = topology->device.kind == DEVICE_GPU;
	if (topology->shares_host && topology->host.cores < topology->devices_per_node)
		machine->core_share =
			(double)topology->host.cores / (double)topology->devices_per_node;
	init_arithmetic(machine, prior);
	init_memory(machine, prior);
	machine->kernel_overhead =
		given(topology->calibration.kernel_overhead, prior->kernel_overhead) /
		machine->core_share;
}
