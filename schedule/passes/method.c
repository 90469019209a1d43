/* Finds the choices of a runtime under a strategy. */
#include "schedule/passes/method.h"

static void choose_kinds(struct method *method, enum layout_kind layout, bool has_zero)
{
	bool whole = layout == LAYOUT_WHOLE, parts = layout == LAYOUT_PARTITIONED;
	method->gathers = parts      ? GATHERS_BY_TRACE
			  : !whole   ? GATHERS_BY_HOOK
			  : has_zero ? GATHERS_AT_END
				     : GATHERS_NEVER;
	method->reduces = parts ? REDUCES_PARTITIONS : whole ? REDUCES_BUCKETS : REDUCES_UNITS;
	method->weights = !whole ? WEIGHTS_OF_UNIT : has_zero ? WEIGHTS_WHOLE : WEIGHTS_OF_BUCKETS;
}

static void choose_zero(
	struct method *method, const struct zero_rules *zero, const struct plan *plan, int stage)
{
	method->reduces_late = zero->reduces_late >> stage & 1;
	method->overlaps = zero->overlaps >> stage & 1 && plan->overlap != OVERLAP_NONE;
	method->buckets = zero->fp32_gradients ? BUCKETS_ADDED_UP : BUCKETS_CUT;
	method->adds_at_once = zero->adds_at_once;
	method->sums_alike = zero->sums_alike;
	method->shares_biases = zero->shares_biases;
	method->scatters = zero->adds_at_once && method->shards;
	if (method->scatters && (plan->overlap == OVERLAP_ALL || plan->mesh.expert > 1)) {
		method->gathers =
			plan->overlap == OVERLAP_ALL ? GATHERS_BY_BUCKET : GATHERS_BUCKETS_AT_END;
		method->weights = WEIGHTS_WHOLE_BUCKETS;
	}
	/* A single rank is not wrapped in DDP, to which this hook belongs. */
	method->adds_in_hook = zero->fp32_gradients && !zero->adds_at_once && !method->shards &&
			       plan_reduce_ranks(plan) > 1;
	method->copies_back = zero->copies_back;
	method->copies_gradients =
		!zero->fp32_gradients || plan->reduce_dtype != plan->master_dtype;
	method->host_update_is_fused = true;
	method->bucket_elements = zero->bucket_elements;
	method->collector_elements = zero->buffer_elements;
	method->group_elements = stage == 3 ? zero->group_elements : INT64_MAX;
	method->prefetch_elements = zero->prefetch_elements;
	method->persistent_elements = zero->persistent_elements;
	method->live_elements = zero->live_elements;
	method->reuse_elements = zero->reuse_elements;
}

struct method method_of(const struct plan *plan, const struct topology *topology)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	enum layout_kind layout = plan_layout(plan);
	struct method method = {
		.shards = strategy_shards(plan->strategy),
		.casts = plan->param_dtype != plan->master_dtype,
		.keeps_units = strategy_keeps_parameters(plan->strategy) && layout != LAYOUT_WHOLE,
		.casts_shard = runtime->casts_shard,
		.copies_out = runtime->copies_out,
		.stages_again = runtime->stages_again,
		.flattens = runtime->flattens_gradients,
		.flattens_on = plan_flattens_to_gather(plan) ? STREAM_GATHER : STREAM_COMPUTE,
		.divides = runtime->divides_separately,
		.recomputes_by_unit = runtime->recomputes_by_unit,
		.update_per_unit = runtime->optimizer_per_unit,
		.delays_post_backward = runtime->delays_post_backward && plan->forward_prefetch,
		.has_limiter = plan->limit_all_gathers,
		.waits_for_messages = runtime->waits_for_messages >> plan->pipeline_schedule & 1,
		.limits_gradients = runtime->limits_gradients,
		.reshards_always = !strategy_shards(plan->strategy) || runtime->copies_out,
		.one_communicator = runtime->one_engine && topology_issues_inline(topology),
		.needed_tensors_only = runtime->needed_tensors_only,
		.keeps_work = runtime->keeps_backward_work,
		.keeps_losses = runtime->keeps_losses,
		.adds_in_compute = runtime->adds_in_compute,
		.chunks_head = plan_chunks_head(plan),
		.recomputes_to_end =
			!runtime->recompute_stops_early && !runtime->needed_tensors_only,
		.recomputes_modules = runtime->recomputes_modules,
		.norm_is_exact = runtime->exact_norm,
		.measures_norm = runtime->measures_norm,
		.own_copy_streams = runtime->own_copy_streams,
		.keeps_host_gradient = runtime->keeps_host_gradient,
	};
	method.two_communicators = runtime->two_communicators && !method.one_communicator;
	method.gradients = layout == LAYOUT_PARTITIONED || method.flattens || method.copies_out
				   ? GRADIENT_OF_RANGE
				   : GRADIENT_OF_UNIT;
	choose_kinds(&method, layout, runtime->zero != NULL);
	if (runtime->zero != NULL)
		choose_zero(&method, runtime->zero, plan, strategy_stage(plan->strategy));
	return method;
}
