#include "planner/diagnose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulator/simulator.h"

/* A share of the step below which a difference says nothing. */
#define NOTICEABLE 0.03

struct patient {
	const struct diagnosed *what;
	const struct plan *plan;
	const struct activity_summary *expected, *measured;
	struct arena *arena;
	double planned_time; /* simulated, s */
};

static bool simulate_plan(const struct plan_file *file, const struct plan *plan, bool details,
	struct arena *arena, struct schedule **schedule, struct simulation *simulation,
	struct error *error)
{
	const struct simulation_options options = {.quick_interval = true};

	return schedule_build(arena, plan, file->model, file->topology, schedule, error) &&
	       simulate(*schedule, &options, details, arena, simulation, error);
}

/* Seconds that a change of the plan makes, by simulation; NAN when there is no such plan. */
static double effect(const struct patient *p, const struct plan *changed)
{
	struct arena arena = {0};
	struct schedule *schedule;
	struct simulation simulation;
	struct error error = {0};
	double seconds = NAN;

	if (simulate_plan(p->what->file, changed, false, &arena, &schedule, &simulation, &error))
		seconds = simulation.prediction.step_time - p->planned_time;
	arena_finish(&arena);
	return seconds;
}

/* --- helpers of the rules --- */

static double mean_bytes(const struct activity_summary *s, enum activity_kind kind)
{
	return s->count[kind] > 0 ? s->bytes[kind] / s->count[kind] : 0;
}

static double ratio(double measured, double expected)
{
	return expected > 0 ? measured / expected : measured > 0 ? INFINITY : 1;
}

static bool about(double a, double b, double tolerance)
{
	return fabs(a - b) <= tolerance * b;
}

/* The reduction that the plan uses: reduce-scatter, or all-reduce where nothing is sharded. */
static enum activity_kind reduction(const struct patient *p)
{
	return p->expected->count[ACTIVITY_REDUCE_SCATTER] > 0 ? ACTIVITY_REDUCE_SCATTER
							       : ACTIVITY_ALL_REDUCE;
}

static double more_exposed(const struct patient *p, enum activity_kind kind)
{
	return fmax(0, p->measured->exposed[kind] - p->expected->exposed[kind]);
}

static double lost_to_communication(const struct patient *p)
{
	double seconds = 0;

	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_OTHER_COLLECTIVE; kind++)
		seconds += more_exposed(p, kind);
	return seconds;
}

static bool noticeable(const struct patient *p, double seconds)
{
	return seconds > NOTICEABLE * p->measured->step_time;
}

/* --- the rules: each looks for one cause --- */

static bool no_wrap(const struct patient *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double mean = mean_bytes(p->measured, g), planned = mean_bytes(p->expected, g);
	struct plan whole = *p->plan;

	if (p->expected->count[g] < 4 || p->measured->count[g] <= 0 ||
		p->measured->count[g] > p->expected->count[g] / 2 || mean < 2 * planned)
		return false;
	whole.wrap = "model";
	cause->title = "units are far larger than planned: no wrap policy took effect";
	cause->evidence = arena_printf(p->arena,
		"%.0f all-gathers of %.0f MB a step, planned %.0f of %.0f MB",
		p->measured->count[g], mean / 1e6, p->expected->count[g], planned / 1e6);
	cause->advice = arena_printf(p->arena,
		"wrap every transformer block (wrap: %s): the class name of the block must be the "
		"model's",
		p->plan->wrap);
	cause->seconds = lost_to_communication(p);
	cause->gain = effect(p, &whole);
	return true;
}

static bool small_units(const struct patient *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double mean = mean_bytes(p->measured, g), planned = mean_bytes(p->expected, g);
	struct plan small = *p->plan;

	if (p->measured->count[g] < 1.5 * p->expected->count[g] || mean > planned / 1.5 ||
		!about(p->measured->bytes[g], p->expected->bytes[g], 0.35))
		return false;
	small.wrap = "size:1000000";
	cause->title = "units are far smaller than planned";
	cause->evidence = arena_printf(p->arena,
		"%.0f all-gathers of %.1f MB a step, planned %.0f of %.1f MB: each pays its "
		"latency "
		"and the host's hooks",
		p->measured->count[g], mean / 1e6, p->expected->count[g], planned / 1e6);
	cause->advice = arena_printf(
		p->arena, "wrap whole blocks and nothing inside them (wrap: %s)", p->plan->wrap);
	cause->seconds = lost_to_communication(p) +
			 fmax(0, p->measured->waiting_host - p->expected->waiting_host);
	cause->gain = effect(p, &small);
	return true;
}

static bool gathered_again(const struct patient *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double more = ratio(p->measured->count[g], p->expected->count[g]);
	bool reshards = plan_reshard_group(p->plan) != 0;

	if (p->expected->count[g] <= 0 || more < 1.2 ||
		!about(mean_bytes(p->measured, g), mean_bytes(p->expected, g), 0.3))
		return false;
	cause->evidence =
		arena_printf(p->arena, "%.0f all-gathers a step, planned %.0f of the same size",
			p->measured->count[g], p->expected->count[g]);
	if (reshards) {
		cause->title = "units are gathered once more than planned";
		cause->advice = "put the checkpoint inside the unit (wrap the module that is "
				"checkpointed, not the other way round) and use non-reentrant "
				"checkpointing; without checkpointing, look for modules that run "
				"twice";
	} else {
		cause->title = "parameters are resharded after forward, the plan keeps them";
		cause->advice = "SHARD_GRAD_OP, or reshard_after_forward=False";
	}
	cause->seconds = lost_to_communication(p);
	/* As much as the share of gathers that is too much, were they as exposed as the rest. */
	cause->gain = fmin(cause->seconds, p->measured->seconds[g] * (1 - 1 / more));
	return true;
}

static bool reduced_too_often(const struct patient *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	struct plan often = *p->plan;

	if (p->plan->grad_accum <= 1 || p->plan->sync_each_micro_batch ||
		ratio(p->measured->count[r], p->expected->count[r]) < 1.5 ||
		!about(mean_bytes(p->measured, r), mean_bytes(p->expected, r), 0.3))
		return false;
	often.sync_each_micro_batch = true;
	cause->title = "gradients are reduced after every micro-batch";
	cause->evidence = arena_printf(p->arena, "%.0f reductions a step, planned %.0f",
		p->measured->count[r], p->expected->count[r]);
	cause->advice = "no_sync() (FSDP1) or set_requires_gradient_sync(False) (FSDP2) for all "
			"micro-batches but the last; it keeps unsharded gradients";
	cause->seconds = lost_to_communication(p);
	cause->gain = effect(p, &often);
	return true;
}

static bool wide_reduction(const struct patient *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	bool is_wide = p->plan->reduce_dtype != DTYPE_FP32 &&
		       (p->what->fp32_reduced > 0.5 ||
			       (isnan(p->what->fp32_reduced) &&
				       ratio(p->measured->bytes[r], p->expected->bytes[r]) > 1.6));
	struct plan wide = *p->plan;

	if (!is_wide || p->measured->count[r] <= 0)
		return false;
	wide.reduce_dtype = DTYPE_FP32;
	cause->title = "gradients are reduced in fp32, the plan reduces them in a smaller type";
	cause->evidence = arena_printf(p->arena, "%.2f GB reduced a step, planned %.2f GB",
		p->measured->bytes[r] / 1e9, p->expected->bytes[r] / 1e9);
	cause->advice = arena_printf(p->arena, "reduce_dtype %s in the mixed precision policy",
		dtype_name(p->plan->reduce_dtype));
	cause->seconds = more_exposed(p, r);
	cause->gain = effect(p, &wide);
	return true;
}

/* Not a departure: the plan itself reduces in fp32, and it shows. */
static bool narrow_would_help(const struct patient *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	struct plan narrow = *p->plan;

	if (p->plan->reduce_dtype != DTYPE_FP32 || p->plan->param_dtype == DTYPE_FP32 ||
		!noticeable(p, p->measured->exposed[r]))
		return false;
	narrow.reduce_dtype = p->plan->param_dtype;
	cause->title = "reductions in fp32 are exposed";
	cause->evidence = arena_printf(p->arena, "%.1f %% of the step is exposed %s",
		100 * p->measured->exposed[r] / p->measured->step_time, activity_names[r]);
	cause->advice =
		arena_printf(p->arena, "reduce_dtype %s halves their bytes, if the model bears it",
			dtype_name(p->plan->param_dtype));
	cause->seconds = p->measured->exposed[r];
	cause->gain = -effect(p, &narrow);
	return cause->gain > 0;
}

static bool no_prefetch(const struct patient *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	enum activity_kind r = reduction(p);
	double seconds = more_exposed(p, g);
	struct plan without = *p->plan;

	/* Gathers also come late when longer reductions are in their way. */
	if (!noticeable(p, seconds) || p->measured->seconds[r] > 1.3 * p->expected->seconds[r] ||
		!about(p->measured->count[g], p->expected->count[g], 0.2) ||
		!about(mean_bytes(p->measured, g), mean_bytes(p->expected, g), 0.3) ||
		p->measured->typical[g] > 1.6 * p->expected->typical[g])
		return false;
	without.prefetch = PREFETCH_NONE;
	without.runtime = p->plan->runtime == RUNTIME_PYTORCH_FSDP2 ? RUNTIME_PYTORCH_FSDP1
								    : p->plan->runtime;
	cause->title = "all-gathers start too late: nothing is prefetched";
	cause->evidence = arena_printf(p->arena,
		"as many and as long as planned, but %.1f %% of the step is exposed all-gather, "
		"planned %.1f %%",
		100 * p->measured->exposed[g] / p->measured->step_time,
		100 * p->expected->exposed[g] / p->expected->step_time);
	cause->advice = "backward_prefetch=BACKWARD_PRE (FSDP1), implicit or explicit prefetching "
			"(FSDP2); see that nothing synchronises the device between units";
	cause->seconds = seconds;
	cause->gain = effect(p, &without);
	return true;
}

/* The kind whose durations grew most. */
static enum activity_kind slowest_kind(const struct patient *p, double *times)
{
	enum activity_kind worst = ACTIVITY_ALL_GATHER;

	*times = 0;
	for (int kind = ACTIVITY_ALL_GATHER; kind <= ACTIVITY_ALL_REDUCE; kind++) {
		double bytes = ratio(mean_bytes(p->measured, kind), mean_bytes(p->expected, kind));
		double now =
			p->expected->count[kind] > 0 && p->measured->count[kind] > 0
				? ratio(p->measured->typical[kind], p->expected->typical[kind]) /
					  (bytes > 0 && isfinite(bytes) ? bytes : 1)
				: 0;
		if (now > *times) {
			*times = now;
			worst = kind;
		}
	}
	return worst;
}

static bool slow_link(const struct patient *p, struct diagnosis_cause *cause)
{
	double times;
	enum activity_kind kind = slowest_kind(p, &times);
	double seconds = lost_to_communication(p);

	if (times < 1.5 || !noticeable(p, seconds) ||
		p->measured->least[kind] < 1.25 * p->expected->least[kind])
		return false;
	cause->title = "collectives take longer than this topology says";
	cause->evidence = arena_printf(p->arena,
		"%s takes %.2f ms where %.2f ms are predicted for as many bytes, the fastest too",
		activity_names[kind], 1e3 * p->measured->typical[kind],
		1e3 * p->measured->typical[kind] / times);
	cause->advice = "check the links (NCCL_DEBUG=INFO: NET/IB or Socket? channels? P2P?), then "
			"give the topology what nccl-tests measures: shardplan topologies import";
	cause->seconds = seconds;
	cause->gain = seconds;
	return true;
}

static bool stragglers(const struct patient *p, struct diagnosis_cause *cause)
{
	double times;
	enum activity_kind kind = slowest_kind(p, &times);
	double seconds = lost_to_communication(p);

	if (times < 1.3 || !noticeable(p, seconds) ||
		p->measured->least[kind] > 1.25 * p->expected->least[kind])
		return false;
	cause->title = "this rank waits for slower ones";
	cause->evidence = arena_printf(p->arena,
		"half of the %ss take %.2f ms or more, a tenth of them at most %.2f ms: the kernel "
		"runs from the arrival of the first rank to that of the last",
		activity_names[kind], 1e3 * p->measured->typical[kind],
		1e3 * p->measured->least[kind]);
	cause->advice = "profile the other ranks: the one whose collectives are short is the slow "
			"one; look at its clocks, its data, and sequences of uneven length";
	cause->seconds = seconds;
	cause->gain = seconds;
	return true;
}

static bool host_bound(const struct patient *p, struct diagnosis_cause *cause)
{
	double seconds = p->measured->waiting_host - p->expected->waiting_host;

	if (!noticeable(p, seconds) || p->what->file->topology->device.kind == DEVICE_CPU)
		return false;
	cause->title = "the device waits for the host to launch work";
	cause->evidence = arena_printf(p->arena,
		"%.1f %% of the step nothing runs and the next kernel has not been launched yet",
		100 * p->measured->waiting_host / p->measured->step_time);
	cause->advice = "larger micro-batches or units, torch.compile, fewer Python hooks; remove "
			".item(), print and other synchronisation from the step";
	cause->seconds = seconds;
	cause->gain = seconds;
	return true;
}

static bool data_bound(const struct patient *p, struct diagnosis_cause *cause)
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

static bool allocator_retries(const struct patient *p, struct diagnosis_cause *cause)
{
	const struct activity_summary *m = p->measured;

	if (m->allocator_calls < 1 && m->waiting_allocator < 0.01 * m->step_time)
		return false;
	cause->title = "the allocator asks the driver for memory inside steps";
	cause->evidence = arena_printf(p->arena,
		"%.1f cudaMalloc or cudaFree a step; %.1f %% of the step nothing runs meanwhile",
		m->allocator_calls, 100 * m->waiting_allocator / m->step_time);
	cause->advice = "the peak is too near the limit: a smaller micro-batch, checkpointing of "
			"some blocks, the rate limiter, or "
			"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
	cause->seconds = m->waiting_allocator;
	cause->gain = m->waiting_allocator;
	return true;
}

static bool offload_left_on(const struct patient *p, struct diagnosis_cause *cause)
{
	double copied =
		p->measured->bytes[ACTIVITY_COPY_IN] + p->measured->bytes[ACTIVITY_COPY_OUT] -
		p->expected->bytes[ACTIVITY_COPY_IN] - p->expected->bytes[ACTIVITY_COPY_OUT];
	double shard =
		4.0 * (double)p->what->file->model->parameter_count / (double)p->plan->mesh.shard;
	struct plan offloaded = *p->plan;

	if (copied < 0.25 * shard)
		return false;
	offloaded.cpu_offload = "parameters";
	cause->title = "parameters or optimizer states are offloaded to the host";
	cause->evidence = arena_printf(p->arena,
		"%.2f GB are copied between host and device a step beyond the plan, its fp32 shard "
		"is %.2f GB",
		copied / 1e9, shard / 1e9);
	cause->advice = "turn CPU offload off: by the plan everything fits on the device";
	cause->seconds = more_exposed(p, ACTIVITY_COPY_IN) + more_exposed(p, ACTIVITY_COPY_OUT) +
			 fmax(0, p->measured->waiting_other - p->expected->waiting_other);
	cause->gain = effect(p, &offloaded);
	return true;
}

static bool more_compute(const struct patient *p, struct diagnosis_cause *cause)
{
	double seconds = more_exposed(p, ACTIVITY_COMPUTE);
	double times = ratio(
		p->measured->exposed[ACTIVITY_COMPUTE], p->expected->exposed[ACTIVITY_COMPUTE]);
	bool recomputes = plan_checkpoints(p->plan, CHECKPOINTING_FULL);
	struct plan full = *p->plan;

	if (!noticeable(p, seconds))
		return false;
	cause->evidence = arena_printf(p->arena, "%.3f s of kernels a step, predicted %.3f s",
		p->measured->exposed[ACTIVITY_COMPUTE], p->expected->exposed[ACTIVITY_COMPUTE]);
	cause->seconds = cause->gain = seconds;
	if (!recomputes && times > 1.15 && times < 1.45) {
		full.activation_checkpointing = "full";
		cause->title = "kernels run a third longer: activations may be recomputed";
		cause->advice = "turn activation checkpointing off where the plan has none";
		cause->gain = effect(p, &full);
		return true;
	}
	cause->title = "kernels take longer than predicted";
	cause->advice = "compare clocks and power (nvidia-smi -q -d PERFORMANCE), the attention "
			"kernel, torch.compile, and shapes that are no multiple of 64; calibrate "
			"the topology";
	return true;
}

static const struct rule {
	const char *id;
	bool (*find)(const struct patient *patient, struct diagnosis_cause *cause);
} rules[] = {
	{"no-wrap", no_wrap},
	{"small-units", small_units},
	{"gathered-again", gathered_again},
	{"reduced-each-micro-batch", reduced_too_often},
	{"fp32-reduction", wide_reduction},
	{"narrower-reduction", narrow_would_help},
	{"no-prefetch", no_prefetch},
	{"slow-link", slow_link},
	{"stragglers", stragglers},
	{"host-bound", host_bound},
	{"data-bound", data_bound},
	{"allocator", allocator_retries},
	{"offload", offload_left_on},
	{"more-compute", more_compute},
};

/* --- all of them --- */

/* What the cause costs: as measured, or as simulated where that says more. */
static double weight(const struct diagnosis_cause *cause)
{
	return isnan(cause->gain) ? cause->seconds : fmax(cause->seconds, cause->gain);
}

static int by_weight(const void *left, const void *right)
{
	double a = weight(left), b = weight(right);
	return (a < b) - (a > b);
}

static void find_bound(struct diagnosis *d, struct arena *arena)
{
	const struct activity_summary *m = &d->measured;
	const struct {
		const char *name;
		double seconds;
	} waits[] = {{"the host", m->waiting_host}, {"data", m->waiting_data},
		{"the allocator", m->waiting_allocator}, {"waiting", m->waiting_other}};

	for (int kind = 0; kind < ACTIVITY_KIND_COUNT; kind++) {
		if (m->exposed[kind] <= d->bound_seconds)
			continue;
		d->bound_seconds = m->exposed[kind];
		d->bound = kind == ACTIVITY_COMPUTE
				   ? activity_names[kind]
				   : arena_printf(arena, "exposed %s", activity_names[kind]);
	}
	for (int i = 0; i < COUNT_OF(waits); i++) {
		if (waits[i].seconds > d->bound_seconds) {
			d->bound_seconds = waits[i].seconds;
			d->bound = waits[i].name;
		}
	}
}

static bool expect(const struct diagnosed *diagnosed, struct arena *arena,
	struct activity_summary *expected, double *step_time, struct error *error)
{
	struct activities activities = {0};
	struct schedule *schedule;
	struct simulation simulation;

	if (!simulate_plan(diagnosed->file, &diagnosed->file->plan, true, arena, &schedule,
		    &simulation, error))
		return false;
	activities_of_timeline(schedule, &simulation.timeline, &activities);
	activities_summarise(&activities, expected);
	activities_finish(&activities);
	*step_time = simulation.prediction.step_time;
	return true;
}

bool diagnose(const struct diagnosed *diagnosed, struct arena *arena, struct diagnosis *diagnosis,
	struct error *error)
{
	struct patient patient = {.what = diagnosed,
		.plan = &diagnosed->file->plan,
		.expected = &diagnosis->expected,
		.measured = &diagnosis->measured,
		.arena = arena};

	*diagnosis = (struct diagnosis){.bound = "nothing"};
	if (!expect(diagnosed, arena, &diagnosis->expected, &patient.planned_time, error))
		return false;
	activities_summarise(diagnosed->activities, &diagnosis->measured);
	find_bound(diagnosis, arena);
	for (int i = 0; i < COUNT_OF(rules); i++) {
		struct diagnosis_cause *cause = &diagnosis->causes[diagnosis->n_causes];
		*cause = (struct diagnosis_cause){.id = rules[i].id, .gain = NAN};
		diagnosis->n_causes += rules[i].find(&patient, cause);
	}
	qsort(diagnosis->causes, (size_t)diagnosis->n_causes, sizeof(diagnosis->causes[0]),
		by_weight);
	return true;
}
