/* The rates of a device: those of the calibration, else those of the device's prior (priors.c). */
#include "simulator/devices/devices.h"
#include "simulator/devices/priors.h"

#include <math.h>

/* One core streams less than a socket does; several share what the host delivers. */
static const double core_memory_bandwidth = 12e9, host_memory = 0.80;
static const double default_core_flops = 30e9;
static const double optimizer_efficiency = 0.95; /* of what element-wise kernels reach */

static double given(double calibrated, double prior)
{
	return calibrated > 0 ? calibrated : prior;
}

/* Kernels measured alone run at higher clocks than in a step, which keeps the device at its power
 * limit. Figures of `calibrate` need no such factor, as they are measured where they are used. */
static double sustained_clock(const struct machine *machine, const struct prior *prior)
{
	const struct calibration *calibration = &machine->topology->calibration;

	if (!machine->gpu || calibration->measured)
		return given(calibration->sustained_clock, 1);
	return given(calibration->sustained_clock, prior->sustained_clock);
}

/* Products of cuBLAS before CUDA 11.8 (PyTorch 1.13) reach so much of what later ones do: pairs of
 * calibrating steps that differ in nothing else (docs/cost-model.md). */
static const double old_products = 0.96;

static double library_rate(const struct machine *machine)
{
	const struct libraries *libraries = &machine->libraries;
	bool old = libraries->version[LIBRARY_CUDA] > 0
			   ? library_before(libraries, LIBRARY_CUDA, LIBRARY_VERSION(11, 8))
			   : library_before(libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 0));

	/* Measurements on this machine were made with its libraries. */
	return machine->gpu && old && !machine->topology->calibration.measured ? old_products : 1;
}

/* A calibration speaks of the kernels that its device runs by default, on Blackwell those that were
 * written for it, unless it was measured with our own; the other generations differ in the
 * proportion of the prior. */
static const struct attention_rates *usual_rates(
	const struct topology *topology, const struct prior *prior)
{
	bool latest = topology->device.generation == GENERATION_BLACKWELL &&
		      !topology->calibration.measured;

	return &prior->attention[latest ? ATTENTION_FOURTH : ATTENTION_SECOND];
}

/* The rates are those in a step. */
static void init_attention(
	struct machine *machine, const struct prior *prior, double peak, double calibrated_scale)
{
	const struct calibration *calibration = &machine->topology->calibration;
	const struct attention_rates *usual = usual_rates(machine->topology, prior);
	double forward = given(
		calibrated_scale * calibration->attention_forward_flops, usual->forward * peak);
	double backward = given(
		calibrated_scale * calibration->attention_backward_flops, usual->backward * peak);

	for (int i = 0; i < ATTENTION_GENERATION_COUNT; i++) {
		const struct attention_rates *rates = &prior->attention[i];

		machine->attention[i].forward = forward * rates->forward / usual->forward;
		machine->attention[i].backward = backward * rates->backward / usual->backward;
	}
}

/* The rate of products alone at large shapes, of the reference dtype. */
static double gemm_rate(const struct machine *machine, const struct prior *prior, double reference)
{
	double prior_rate = prior->gemm * reference;

	return given(
		machine->topology->calibration.gemm_flops, given(prior_rate, default_core_flops));
}

/* Measured bf16 products of a CPU replace the rates derived from fp32. */
static void init_cpu_bf16(struct machine *machine)
{
	const struct calibration *calibration = &machine->topology->calibration;

	if (machine->gpu || machine->dtype != DTYPE_BF16 || calibration->bf16_gemm_flops <= 0)
		return;
	machine->gemm_flops = calibration->bf16_gemm_flops;
	machine->gemm_half_m = calibration->bf16_gemm_half_m;
	machine->gemm_half_n = calibration->bf16_gemm_half_n;
	machine->gemm_half_k = calibration->bf16_gemm_half_k;
}

/* Threads of a rank that has a host's cores to share. */
static void use_threads(struct machine *machine)
{
	double speedup = topology_rank_speedup(machine->topology);

	machine->gemm_flops *= speedup;
	for (int i = 0; i < ATTENTION_GENERATION_COUNT; i++) {
		machine->attention[i].forward *= speedup;
		machine->attention[i].backward *= speedup;
	}
}

static void init_rates(struct machine *machine)
{
	const struct calibration *calibration = &machine->topology->calibration;

	if (machine->gpu)
		return;
	bool bf16 = machine->dtype == DTYPE_BF16;
	machine->activation_rate =
		bf16 ? calibration->bf16_activation_rate : calibration->activation_rate;
	machine->loss_rate = bf16 ? calibration->bf16_loss_rate : calibration->loss_rate;
	machine->gradient_norm_rate = calibration->gradient_norm_rate;
}

static void init_arithmetic(struct machine *machine, const struct prior *prior)
{
	const struct device *device = &machine->topology->device;
	const struct calibration *calibration = &machine->topology->calibration;
	double reference = reference_peak(device);
	double scale = 1, attention;

	machine->peak_flops = device_peak_flops(device, machine->dtype);
	if (machine->peak_flops > 0 && reference > 0)
		scale = machine->peak_flops / reference;
	machine->gemm_flops = scale * gemm_rate(machine, prior, reference);
	machine->gemm_half_m = given(calibration->gemm_half_m, prior->half_m);
	machine->gemm_half_n = given(calibration->gemm_half_n, prior->half_n);
	machine->gemm_half_k = given(calibration->gemm_half_k, prior->half_k);
	machine->tiles = machine->gpu && machine->gemm_half_m <= 0 && machine->gemm_half_n <= 0;
	machine->multiprocessors = given((double)device->multiprocessors, prior->multiprocessors);
	/* On a CPU attention is computed in fp32 whatever its operands are. */
	attention =
		machine->gpu ? given(machine->peak_flops, reference) : machine->gemm_flops / scale;
	machine->slower_than_alone = sustained_clock(machine, prior) * library_rate(machine);
	machine->gemm_flops *= machine->slower_than_alone;
	init_attention(machine, prior, attention, machine->gpu ? scale : 1);
	init_cpu_bf16(machine);
	use_threads(machine);
	init_rates(machine);
}

/* Ranks of one host share what its memory delivers, `all`; only as many as there are cores run at
 * once. */
static double shared(const struct machine *machine, double alone, double all)
{
	const struct topology *topology = machine->topology;
	double ranks = (double)topology->devices_per_node;
	double running = ranks * machine->core_share;

	if (!topology->shares_host)
		return alone;
	if (all > 0 && alone * running > all)
		alone = all / running;
	return alone * machine->core_share;
}

double machine_link_bandwidth(const struct topology *topology)
{
	const struct host *host = &topology->host;

	return fmin(host->pcie_bandwidth / (double)max_i64(host->devices_per_root, 1),
		host_memory * host->memory_bandwidth / (double)topology->devices_per_node);
}

/* The host's optimizer runs on the rank's part of the cores. Processes of one machine copy inside
 * its memory, which reads and writes every byte. */
static void init_offload(struct machine *machine)
{
	const struct topology *topology = machine->topology;
	const struct host *host = &topology->host;
	double ranks = (double)topology->devices_per_node;
	double memory = host_memory * host->memory_bandwidth / ranks;
	double cores = core_memory_bandwidth * (double)host->cores / ranks;

	if (!machine->gpu) {
		machine->link_bandwidth = machine->memory_bandwidth / 2;
		machine->host_bandwidth = machine->optimizer_bandwidth;
		return;
	}
	machine->link_bandwidth = machine_link_bandwidth(topology);
	machine->host_bandwidth = cores > 0 ? fmin(memory, cores) : memory;
}

static double memory_rate(const struct topology *topology, const struct prior *prior)
{
	double bandwidth = prior->memory * topology->device.memory_bandwidth;

	if (topology->shares_host && (bandwidth <= 0 || bandwidth > core_memory_bandwidth))
		bandwidth = core_memory_bandwidth;
	return given(topology->calibration.memory_bandwidth, bandwidth);
}

static void init_memory(struct machine *machine, const struct prior *prior)
{
	const struct topology *topology = machine->topology;
	const struct calibration *calibration = &topology->calibration;
	double bandwidth = memory_rate(topology, prior);
	double all = given(calibration->memory_bandwidth_shared,
		host_memory * topology->host.memory_bandwidth);
	machine->memory_bandwidth = shared(machine, bandwidth, all);
	machine->product_bandwidth =
		shared(machine, bandwidth * (double)topology_rank_threads(topology), all);
	machine->optimizer_bandwidth = shared(machine,
		given(calibration->optimizer_bandwidth, optimizer_efficiency * bandwidth),
		given(calibration->optimizer_bandwidth_shared, all));
	init_offload(machine);
}

void machine_init(struct machine *machine, const struct topology *topology,
	const struct libraries *libraries, enum dtype dtype)
{
	const struct prior prior = device_prior(&topology->device);

	*machine = (struct machine){.topology = topology, .dtype = dtype, .core_share = 1};
	machine->gpu = topology->device.kind == DEVICE_GPU;
	if (libraries != NULL)
		machine->libraries = *libraries;
	if (topology->shares_host && topology->host.cores < topology->devices_per_node)
		machine->core_share =
			(double)topology->host.cores / (double)topology->devices_per_node;
	init_arithmetic(machine, &prior);
	init_memory(machine, &prior);
	machine->kernel_overhead =
		given(topology->calibration.kernel_overhead, prior.kernel_overhead) /
		machine->core_share;
	product_init(machine);
}

struct machine machine_in_fp8(const struct machine *machine)
{
	const struct device *device = &machine->topology->device;
	const struct prior usual = device_prior(device);
	const struct prior prior = device_prior_in(device, DTYPE_FP8);
	double most = prior.gemm * (machine->slower_than_alone < 1 ? PRIOR_MOST_CLOCK : 1);
	struct machine low = *machine;

	low.dtype = DTYPE_FP8;
	low.peak_flops = device_peak_flops(device, DTYPE_FP8);
	low.gemm_flops = low.peak_flops * fmin(machine->gemm_flops / machine->peak_flops, most);
	low.gemm_half_k *= prior.half_k / usual.half_k;
	low.n_products = 0;
	return low;
}

static void state(double *rate, double taken)
{
	*rate = given(*rate, taken);
}

void machine_state_rates(struct topology *topology)
{
	const struct prior prior = device_prior(&topology->device);
	const struct attention_rates *usual = usual_rates(topology, &prior);
	const struct machine alone = {
		.topology = topology, .gpu = topology->device.kind == DEVICE_GPU};
	struct calibration *c = &topology->calibration;
	double reference = reference_peak(&topology->device);
	double attention = alone.gpu ? reference : gemm_rate(&alone, &prior, reference);

	state(&c->host_factor, 1);
	state(&c->sustained_clock, sustained_clock(&alone, &prior));
	state(&c->attention_forward_flops, usual->forward * attention);
	state(&c->attention_backward_flops, usual->backward * attention);
	state(&c->memory_bandwidth, memory_rate(topology, &prior));
	state(&c->optimizer_bandwidth, optimizer_efficiency * c->memory_bandwidth);
	if (topology->shares_host) {
		state(&c->memory_bandwidth_shared, host_memory * topology->host.memory_bandwidth);
		state(&c->optimizer_bandwidth_shared, c->memory_bandwidth_shared);
	}
}
