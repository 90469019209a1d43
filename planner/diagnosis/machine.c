/* Rules: the run does what the plan says, and takes longer. */
#include "planner/diagnosis/rules.h"

#include <math.h>

/* The kind whose durations grew most. */
static enum activity_kind slowest_kind(const struct evidence *p, double *times)
{
	enum activity_kind worst = ACTIVITY_ALL_GATHER;

	*times = 0;
	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_ALL_REDUCE; kind++) {
		double bytes = evidence_ratio(evidence_mean_bytes(p->measured, kind),
			evidence_mean_bytes(p->expected, kind));
		double now = p->expected->count[kind] > 0 && p->measured->count[kind] > 0
				     ? evidence_ratio(p->measured->typical[kind],
					       p->expected->typical[kind]) /
					       (bytes > 0 && isfinite(bytes) ? bytes : 1)
				     : 0;
		if (now > *times) {
			*times = now;
			worst = kind;
		}
	}
	return worst;
}

static bool slow_link(const struct evidence *p, struct diagnosis_cause *cause)
{
	double times;
	enum activity_kind kind = slowest_kind(p, &times);
	double seconds = evidence_lost_to_communication(p);

	if (times < 1.5 || !evidence_noticeable(p, seconds) ||
		p->measured->least[kind] < 1.25 * p->expected->least[kind])
		return false;
	cause->title = "collectives take longer than this topology says";
	cause->evidence = arena_printf(p->arena,
		"%s takes %.2f ms where %.2f ms are predicted for as many bytes, the fastest too",
		activity_names[kind], 1e3 * p->measured->typical[kind],
		1e3 * p->measured->typical[kind] / times);
	cause->advice = "check the links (NCCL_DEBUG=INFO: NET/IB or Socket? channels? P2P?), "
			"then give the topology what nccl-tests measures: "
			"shardplan topologies import";
	cause->seconds = seconds;
	cause->gain = seconds;
	return true;
}

static bool stragglers(const struct evidence *p, struct diagnosis_cause *cause)
{
	double times;
	enum activity_kind kind = slowest_kind(p, &times);
	double seconds = evidence_lost_to_communication(p);

	if (times < 1.3 || !evidence_noticeable(p, seconds) ||
		p->measured->least[kind] > 1.25 * p->expected->least[kind])
		return false;
	cause->title = "this rank waits for slower ones";
	cause->evidence = arena_printf(p->arena,
		"half of the %ss take %.2f ms or more, a tenth of them at most %.2f ms: "
		"the kernel runs from the arrival of the first rank to that of the last",
		activity_names[kind], 1e3 * p->measured->typical[kind],
		1e3 * p->measured->least[kind]);
	cause->advice = "profile the other ranks: "
			"the one whose collectives are short is the slow one; "
			"look at its clocks, its data, and sequences of uneven length";
	cause->seconds = seconds;
	cause->gain = seconds;
	return true;
}

static bool host_bound(const struct evidence *p, struct diagnosis_cause *cause)
{
	double seconds = p->measured->waiting_host - p->expected->waiting_host;

	if (!evidence_noticeable(p, seconds) || p->what->file->topology->device.kind == DEVICE_CPU)
		return false;
	cause->seconds = cause->gain = seconds;
	if (p->measured->longest_wait > 0.5 * p->measured->waiting_host) {
		cause->title = "the device stands still once a step";
		cause->evidence = arena_printf(p->arena,
			"%.3f s in one piece, "
			"of %.3f s a step in which the next kernel has not been launched",
			p->measured->longest_wait, p->measured->waiting_host);
		cause->advice = "see what the host does there: a loader that is no DataLoader, "
				"logging, evaluation, a checkpoint, .item() at the end of the step";
		return true;
	}
	cause->title = "the device waits for the host to launch work";
	cause->evidence = arena_printf(p->arena,
		"%.1f %% of the step nothing runs and the next kernel has not been launched yet",
		100 * p->measured->waiting_host / p->measured->step_time);
	cause->advice = "larger micro-batches or units, torch.compile, fewer Python hooks; "
			"remove .item(), print and other synchronisation from the step";
	return true;
}

static bool data_bound(const struct evidence *p, struct diagnosis_cause *cause)
{
	if (p->measured->waiting_data < 0.02 * p->measured->step_time)
		return false;
	cause->title = "the device waits for data";
	cause->evidence = arena_printf(p->arena,
		"%.1f %% of the step nothing runs while the host is in the data loader",
		100 * p->measured->waiting_data / p->measured->step_time);
	cause->advice = "more workers, pin_memory, prefetch_factor; tokenise ahead of training";
	cause->seconds = cause->gain = p->measured->waiting_data;
	return true;
}

static bool allocator_retries(const struct evidence *p, struct diagnosis_cause *cause)
{
	const struct activity_summary *m = p->measured;
	double expected = p->expected->waiting_allocator / p->expected->step_time;

	if (m->allocator_calls < 1 && m->waiting_allocator < 0.01 * m->step_time)
		return false;
	cause->title = "the allocator asks the driver for memory inside steps";
	cause->evidence = arena_printf(p->arena,
		"%.1f cudaMalloc or cudaFree a step; %.1f %% of the step nothing runs meanwhile",
		m->allocator_calls, 100 * m->waiting_allocator / m->step_time);
	if (expected > 0)
		cause->evidence = arena_printf(p->arena,
			"%s (the plan itself is tight: %.1f %% for retries of the allocator)",
			cause->evidence, 100 * expected);
	cause->advice = "the peak is too near the limit: "
			"a smaller micro-batch, checkpointing of some blocks, "
			"the rate limiter, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
	cause->seconds = m->waiting_allocator;
	cause->gain = m->waiting_allocator;
	return true;
}

static bool offload_left_on(const struct evidence *p, struct diagnosis_cause *cause)
{
	double copied =
		p->measured->bytes[ACTIVITY_COPY_IN] + p->measured->bytes[ACTIVITY_COPY_OUT] -
		p->expected->bytes[ACTIVITY_COPY_IN] - p->expected->bytes[ACTIVITY_COPY_OUT];
	double shard =
		4.0 * (double)p->what->file->model->parameter_count / (double)p->plan->mesh.shard;
	struct plan offloaded = *p->plan;

	if (copied < 0.25 * shard)
		return false;
	offloaded.cpu_offload = rows_of_offload(OFFLOAD_PARAMETERS);
	/* Parameters come for forward and again for backward, updated ones once. */
	cause->title = p->measured->bytes[ACTIVITY_COPY_IN] > 1.5 * shard
			       ? "parameters are offloaded to the host"
			       : "gradients or optimizer states are offloaded to the host";
	cause->evidence = arena_printf(p->arena,
		"%.2f GB are copied between host and device a step beyond the plan, "
		"its fp32 shard is %.2f GB",
		copied / 1e9, shard / 1e9);
	cause->advice = "turn CPU offload off: by the plan everything fits on the device";
	cause->seconds = evidence_more_exposed(p, ACTIVITY_COPY_IN) +
			 evidence_more_exposed(p, ACTIVITY_COPY_OUT) +
			 fmax(0, p->measured->waiting_other - p->expected->waiting_other);
	cause->gain = evidence_effect(p, &offloaded);
	return true;
}

/* Steps of equal work last as long as one another where nothing else runs. */
#define BUSY_SPREAD 0.1
#define BUSY_LOAD   0.25
enum { BUSY_STEPS = 5 };

static bool steps_differ(const struct trace_facts *facts)
{
	return facts->counted_steps >= BUSY_STEPS && facts->step_spread > BUSY_SPREAD;
}

static bool is_busy(const struct evidence *p)
{
	const struct trace_facts *facts = &p->what->facts;

	return (steps_differ(facts) || facts->other_load > BUSY_LOAD) &&
	       evidence_noticeable(p, evidence_more_exposed(p, ACTIVITY_COMPUTE));
}

static bool busy_machine(const struct evidence *p, struct diagnosis_cause *cause)
{
	const struct trace_facts *facts = &p->what->facts;

	if (!is_busy(p))
		return false;
	cause->title = "something else runs on this machine";
	cause->evidence =
		steps_differ(facts)
			? arena_printf(p->arena,
				  "the standard deviation of "
				  "%d steps of equal work is %.0f %% of their mean",
				  facts->counted_steps, 100 * facts->step_spread)
			: arena_printf(p->arena, "%.1f processes beside the ranks wanted each core",
				  facts->other_load);
	cause->advice = p->what->file->topology->device.kind == DEVICE_CPU
				? "look at top and the load, "
				  "give the ranks cores of their own (taskset), measure again"
				: "look at nvidia-smi: other processes, clocks that change; "
				  "measure again";
	cause->seconds = cause->gain = evidence_more_exposed(p, ACTIVITY_COMPUTE);
	return true;
}

static bool more_compute(const struct evidence *p, struct diagnosis_cause *cause)
{
	double seconds = evidence_more_exposed(p, ACTIVITY_COMPUTE);
	double times = evidence_ratio(
		p->measured->exposed[ACTIVITY_COMPUTE], p->expected->exposed[ACTIVITY_COMPUTE]);
	bool recomputes = plan_checkpoints(p->plan, CHECKPOINTING_FULL);
	struct plan full = *p->plan;

	if (!evidence_noticeable(p, seconds) || is_busy(p) || evidence_has_fp32_parameters(p) ||
		evidence_has_eager_attention(p))
		return false;
	cause->evidence = arena_printf(p->arena, "%.3f s of kernels a step, predicted %.3f s",
		p->measured->exposed[ACTIVITY_COMPUTE], p->expected->exposed[ACTIVITY_COMPUTE]);
	cause->seconds = cause->gain = seconds;
	if (!recomputes && times > 1.15 && times < 1.45) {
		full.activation_checkpointing = rows_of_checkpointing(CHECKPOINTING_FULL);
		cause->title = "kernels run a third longer: activations may be recomputed";
		cause->advice = "turn activation checkpointing off where the plan has none";
		cause->gain = evidence_effect(p, &full);
		return true;
	}
	cause->title = "kernels take longer than predicted";
	cause->advice = p->what->file->topology->device.kind == DEVICE_CPU
				? "see that nothing else runs on these cores (top), "
				  "then calibrate this machine: shardplan calibrate"
				: "compare clocks and power (nvidia-smi -q -d PERFORMANCE), "
				  "the attention kernel, torch.compile, "
				  "and shapes that are no multiple of 64; calibrate the topology";
	return true;
}

const struct diagnosis_rule diagnosis_machine_rules[] = {
	{"slow-link", slow_link},
	{"stragglers", stragglers},
	{"host-bound", host_bound},
	{"data-bound", data_bound},
	{"allocator", allocator_retries},
	{"offload", offload_left_on},
	{"busy-machine", busy_machine},
	{"more-compute", more_compute},
	{NULL, NULL},
};
