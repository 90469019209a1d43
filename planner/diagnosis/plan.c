/* Rules: the run does not do what the plan says. */
#include "planner/diagnosis/rules.h"

#include <math.h>

static bool about(double a, double b, double tolerance)
{
	return fabs(a - b) <= tolerance * b;
}

/* The reduction that the plan uses: reduce-scatter, or all-reduce where nothing is sharded. */
static enum activity_kind reduction(const struct evidence *p)
{
	return p->expected->count[ACTIVITY_REDUCE_SCATTER] > 0 ? ACTIVITY_REDUCE_SCATTER
							       : ACTIVITY_ALL_REDUCE;
}

static bool no_wrap(const struct evidence *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double mean = evidence_mean_bytes(p->measured, g),
	       planned = evidence_mean_bytes(p->expected, g);
	struct plan whole = *p->plan;

	if (p->expected->count[g] < 4 || p->measured->count[g] <= 0 ||
		p->measured->count[g] > p->expected->count[g] / 2 || mean < 2 * planned)
		return false;
	whole.wrap = wrap_of_kind(WRAP_MODEL);
	cause->title = "units are far larger than planned: no wrap policy took effect";
	cause->evidence = arena_printf(p->arena,
		"%.0f all-gathers of %.0f MB a step, planned %.0f of %.0f MB",
		p->measured->count[g], mean / 1e6, p->expected->count[g], planned / 1e6);
	cause->advice = arena_printf(p->arena,
		"wrap every transformer block (wrap: %s): "
		"the class name of the block must be the model's",
		p->plan->wrap.text);
	cause->seconds = evidence_lost_to_communication(p);
	cause->gain = evidence_effect(p, &whole);
	return true;
}

static bool small_units(const struct evidence *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double mean = evidence_mean_bytes(p->measured, g),
	       planned = evidence_mean_bytes(p->expected, g);
	struct plan small = *p->plan;

	if (p->measured->count[g] < 1.5 * p->expected->count[g] || mean > planned / 1.5 ||
		!about(p->measured->bytes[g], p->expected->bytes[g], 0.35))
		return false;
	small.wrap = (struct wrap_policy){
		.text = "size:1000000", .kind = WRAP_SIZE, .argument = 1000000};
	cause->title = "units are far smaller than planned";
	cause->evidence = arena_printf(p->arena,
		"%.0f all-gathers of %.1f MB a step, planned %.0f of %.1f MB: "
		"each pays its latency and the host's hooks",
		p->measured->count[g], mean / 1e6, p->expected->count[g], planned / 1e6);
	cause->advice = arena_printf(p->arena,
		"wrap whole blocks and nothing inside them (wrap: %s)", p->plan->wrap.text);
	cause->seconds = evidence_lost_to_communication(p) +
			 fmax(0, p->measured->waiting_host - p->expected->waiting_host);
	cause->gain = evidence_effect(p, &small);
	return true;
}

static bool gathered_again(const struct evidence *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	double more = evidence_ratio(p->measured->count[g], p->expected->count[g]);
	bool reshards = plan_reshard_group(p->plan) != 0;

	if (p->expected->count[g] <= 0 || more < 1.2 ||
		!about(evidence_mean_bytes(p->measured, g), evidence_mean_bytes(p->expected, g),
			0.3))
		return false;
	cause->evidence =
		arena_printf(p->arena, "%.0f all-gathers a step, planned %.0f of the same size",
			p->measured->count[g], p->expected->count[g]);
	if (reshards) {
		cause->title = "units are gathered once more than planned";
		cause->advice = "put the checkpoint inside the unit "
				"(wrap the module that is checkpointed, not the other way round) "
				"and use non-reentrant checkpointing; "
				"without checkpointing, look for modules that run twice";
	} else {
		cause->title = "parameters are resharded after forward, the plan keeps them";
		cause->advice = "SHARD_GRAD_OP, or reshard_after_forward=False";
	}
	cause->seconds = evidence_lost_to_communication(p);
	/* As much as the share of gathers that is too much, were they as exposed as the rest. */
	cause->gain = fmin(cause->seconds, p->measured->seconds[g] * (1 - 1 / more));
	return true;
}

static bool reduced_too_often(const struct evidence *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	struct plan often = *p->plan;

	if (p->plan->grad_accum <= 1 || p->plan->sync_each_micro_batch ||
		evidence_ratio(p->measured->count[r], p->expected->count[r]) < 1.5 ||
		!about(evidence_mean_bytes(p->measured, r), evidence_mean_bytes(p->expected, r),
			0.3))
		return false;
	often.sync_each_micro_batch = true;
	cause->title = "gradients are reduced after every micro-batch";
	cause->evidence = arena_printf(p->arena, "%.0f reductions a step, planned %.0f",
		p->measured->count[r], p->expected->count[r]);
	cause->advice = "no_sync() (FSDP1) or set_requires_gradient_sync(False) "
			"(FSDP2) for all micro-batches but the last; it keeps unsharded gradients";
	cause->seconds = evidence_lost_to_communication(p);
	cause->gain = evidence_effect(p, &often);
	return true;
}

static bool wide_reduction(const struct evidence *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	bool is_wide = p->plan->reduce_dtype != DTYPE_FP32 &&
		       (p->what->facts.fp32_reduced > 0.5 ||
			       (isnan(p->what->facts.fp32_reduced) &&
				       evidence_ratio(p->measured->bytes[r],
					       p->expected->bytes[r]) > 1.6));
	struct plan wide = *p->plan;

	if (!is_wide || p->measured->count[r] <= 0)
		return false;
	wide.reduce_dtype = DTYPE_FP32;
	cause->title = "gradients are reduced in fp32, the plan reduces them in a smaller type";
	cause->evidence = arena_printf(p->arena, "%.2f GB reduced a step, planned %.2f GB",
		p->measured->bytes[r] / 1e9, p->expected->bytes[r] / 1e9);
	cause->advice = arena_printf(p->arena, "reduce_dtype %s in the mixed precision policy",
		dtype_name(p->plan->reduce_dtype));
	cause->seconds = evidence_more_exposed(p, r);
	cause->gain = evidence_effect(p, &wide);
	return true;
}

static bool fp32_parameters(const struct evidence *p, struct diagnosis_cause *cause)
{
	struct plan wide = *p->plan;

	if (!evidence_has_fp32_parameters(p))
		return false;
	wide.param_dtype = DTYPE_FP32;
	cause->title = "parameters are gathered and multiplied in fp32";
	cause->evidence =
		isnan(p->what->facts.fp32_products)
			? arena_printf(p->arena, "%.2f GB gathered a step, planned %.2f GB in %s",
				  p->measured->bytes[ACTIVITY_ALL_GATHER] / 1e9,
				  p->expected->bytes[ACTIVITY_ALL_GATHER] / 1e9,
				  dtype_name(p->plan->param_dtype))
			: arena_printf(p->arena,
				  "%.0f %% of the time of matrix products is in fp32 kernels, "
				  "planned %s",
				  100 * p->what->facts.fp32_products,
				  dtype_name(p->plan->param_dtype));
	cause->advice = arena_printf(p->arena,
		"MixedPrecisionPolicy(param_dtype=%s) (FSDP2), "
		"MixedPrecision (FSDP1), autocast (DDP)",
		dtype_name(p->plan->param_dtype));
	cause->seconds = evidence_more_exposed(p, ACTIVITY_COMPUTE) +
			 evidence_more_exposed(p, ACTIVITY_ALL_GATHER);
	cause->gain = evidence_effect(p, &wide);
	return true;
}

static bool eager_attention(const struct evidence *p, struct diagnosis_cause *cause)
{
	struct plan eager = *p->plan;

	if (!evidence_has_eager_attention(p))
		return false;
	eager.attention = ATTENTION_EAGER;
	cause->title = "attention is not fused: scores are written to memory";
	cause->evidence = arena_printf(p->arena,
		"%.0f softmax kernels a step and no fused attention, planned %s",
		p->what->facts.softmax_kernels, attention_kind_names[p->plan->attention]);
	cause->advice = "attn_implementation=\"sdpa\" or \"flash_attention_2\"; no mask that the "
			"fused kernel refuses (causal by is_causal=True)";
	cause->seconds = evidence_more_exposed(p, ACTIVITY_COMPUTE);
	cause->gain = evidence_effect(p, &eager);
	return true;
}

static bool no_overlap(const struct evidence *p, struct diagnosis_cause *cause)
{
	double planned = evidence_total_communication(p->expected);
	double hidden = evidence_hidden_communication(p->expected);
	double total = evidence_total_communication(p->measured);

	if (!evidence_is_serial(p))
		return false;
	cause->title = "communication does not overlap with compute";
	cause->evidence = arena_printf(p->arena, "%.1f %% of it is beside compute, planned %.1f %%",
		100 * evidence_hidden_communication(p->measured) / total, 100 * hidden / planned);
	cause->advice = "unset CUDA_DEVICE_MAX_CONNECTIONS=1, "
			"CUDA_LAUNCH_BLOCKING and TORCH_NCCL_BLOCKING_WAIT; "
			"no torch.cuda.synchronize() between units";
	cause->seconds = fmin(total * hidden / planned, p->measured->exposed[ACTIVITY_COMPUTE]);
	cause->gain = fmin(cause->seconds, hidden);
	return true;
}

/* Not a departure: the plan itself reduces in fp32, and it shows. */
static bool narrow_would_help(const struct evidence *p, struct diagnosis_cause *cause)
{
	enum activity_kind r = reduction(p);
	struct plan narrow = *p->plan;

	if (p->plan->reduce_dtype != DTYPE_FP32 || p->plan->param_dtype == DTYPE_FP32 ||
		!evidence_noticeable(p, p->measured->exposed[r]))
		return false;
	narrow.reduce_dtype = p->plan->param_dtype;
	cause->title = "reductions in fp32 are exposed";
	cause->evidence = arena_printf(p->arena, "%.1f %% of the step is exposed %s",
		100 * p->measured->exposed[r] / p->measured->step_time, activity_names[r]);
	cause->advice =
		arena_printf(p->arena, "reduce_dtype %s halves their bytes, if the model bears it",
			dtype_name(p->plan->param_dtype));
	/* Half of the bytes are taken as half of the time that is exposed now. */
	cause->seconds = fmin(p->measured->exposed[r], p->measured->seconds[r] / 2);
	cause->gain = -evidence_effect(p, &narrow);
	return cause->gain > 0;
}

static bool no_prefetch(const struct evidence *p, struct diagnosis_cause *cause)
{
	const enum activity_kind g = ACTIVITY_ALL_GATHER;
	enum activity_kind r = reduction(p);
	double seconds = evidence_more_exposed(p, g);
	struct plan without = *p->plan;

	/* Gathers also come late when longer reductions are in their way, or when the host does. */
	if (!evidence_noticeable(p, seconds) || evidence_is_serial(p) ||
		p->measured->waiting_host - p->expected->waiting_host > seconds ||
		p->measured->seconds[r] > 1.3 * p->expected->seconds[r] ||
		!about(p->measured->count[g], p->expected->count[g], 0.2) ||
		!about(evidence_mean_bytes(p->measured, g), evidence_mean_bytes(p->expected, g),
			0.3) ||
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
	cause->gain = evidence_effect(p, &without);
	return true;
}

const struct diagnosis_rule diagnosis_plan_rules[] = {
	{"no-wrap", no_wrap},
	{"small-units", small_units},
	{"gathered-again", gathered_again},
	{"reduced-each-micro-batch", reduced_too_often},
	{"fp32-parameters", fp32_parameters},
	{"fp32-reduction", wide_reduction},
	{"eager-attention", eager_attention},
	{"narrower-reduction", narrow_would_help},
	{"no-prefetch", no_prefetch},
	{"no-overlap", no_overlap},
	{NULL, NULL},
};
